"""`daybell progress`: for commands that a worker runs, to report how far they are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from daybell.cli.edge import FAILED, complain

VARIABLE = "DAYBELL_PROGRESS"


def progress(
    percent: Annotated[
        float, typer.Argument(min=0, max=100, help="How much is done.", show_default=False)
    ],
    note: Annotated[
        str, typer.Argument(help="What is being done, in a few words.", show_default=False)
    ] = "",
) -> None:
    """Report how far the command of a job is, from inside it."""
    if percent != percent:
        raise typer.BadParameter("the percentage is not a number")
    line = f"{percent:g} {' '.join(note.split())}".rstrip()
    path = os.environ.get(VARIABLE)
    if not path:
        # No error: the script of a job can be tried by hand.
        complain(f"note: no worker runs this, as {VARIABLE} is not set; progress: {line}")
        return
    try:
        # Not to wait for a worker that reads no more.
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        complain(f"error: the worker does not listen at {path}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    try:
        os.set_blocking(pipe, True)
        os.write(pipe, line.encode(errors="replace")[:4000] + b"\n")
    except OSError as error:
        complain(f"error: the worker does not listen at {path}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    finally:
        os.close(pipe)
