"""`daybell progress`: for commands that a worker runs, to report how far they are."""

from __future__ import annotations

import os
import select
from typing import Annotated, Final

import typer

from daybell.cli.edge import FAILED, complain

VARIABLE: Final = "DAYBELL_PROGRESS"
TRIES: Final = 20  # to write to a pipe that is full, which the worker reads ten times a second
PAUSE_SECONDS: Final = 0.05


def progress(
    percent: Annotated[
        str, typer.Argument(help="How much is done, from 0 to 100.", show_default=False)
    ],
    note: Annotated[
        str, typer.Argument(help="What is being done, in a few words.", show_default=False)
    ] = "",
) -> None:
    """Report how far the command of a job is, from inside it."""
    line = f"{_read_percent(percent)} {' '.join(note.split())}".rstrip()
    path = os.environ.get(VARIABLE)
    if not path:
        # No error: the script of a job can be tried by hand.
        complain(f"note: no worker runs this, as {VARIABLE} is not set; progress: {line}")
        return
    try:
        # Not to wait for a worker that reads no more.
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            is_written = _write(pipe, line.encode(errors="replace")[:4000] + b"\n")
        finally:
            os.close(pipe)
    except OSError as error:
        complain(f"error: the worker does not listen at {path}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    if not is_written:
        # No error either: the command is to go on, and what it reports next will be read.
        complain(f"note: the worker has not read earlier progress yet; this is dropped: {line}")


def _read_percent(text: str) -> str:
    """Return a percentage as a worker reads it, which takes no exponent."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise typer.BadParameter(
            f"{text!r:.50} is no percentage; a number from 0 to 100 is expected, such as 50"
        )
    return f"{percent:.9f}".rstrip("0").rstrip(".")


def _write(pipe: int, line: bytes) -> bool:
    """Write a line as a whole. False: the pipe was full, and stayed so."""
    for _ in range(TRIES):
        try:
            os.write(pipe, line)
        except BlockingIOError:
            select.select([], [], [], PAUSE_SECONDS)
        else:
            return True
    return False
