"""One line of a log, as a person or a program reads it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Final

import typer

from daybell.cli import show
from daybell.core.instant import Instant, to_iso
from daybell.core.log import Line

INDENT: Final = "    "
COLOURS: Final = {
    "debug": "bright_black",
    "warning": "yellow",
    "error": "red",
    "critical": "red",
    "stderr": "yellow",
}


def line_text(line: Line) -> str:
    """A line for people; what it goes on with is indented, so that lines can be told apart."""
    first, *rest = show.printable(line.message.rstrip("\n"), keep="\n").split("\n")
    source = f"{show.printable(line.source)}: " if line.source else ""
    level = f"{show.printable(line.level):<8}"
    if sys.stdout.isatty():
        level = typer.style(level, fg=COLOURS.get(line.level))
    words = f"{local(line.at)} {level} {source}{first}".rstrip()
    return "\n".join([words, *(f"{INDENT}{one}".rstrip() for one in rest)])


def line_json(attempt: int, line: Line, **more: str) -> str:
    """A line for programs; `more` says whose it is."""
    fields = {
        **more,
        "attempt": attempt,
        "at": to_iso(line.at),
        "level": line.level,
        "source": line.source,
        "message": line.message,
    }
    return show.printable(json.dumps(fields, ensure_ascii=False))


def attempt_heading(attempt: int) -> str:
    """What comes before the lines of an attempt, where there are several."""
    return f"--- attempt {attempt} ---"


def local(instant: Instant) -> str:
    """A time as the clock on the wall shows it, to the millisecond."""
    moment = datetime.fromtimestamp(instant, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]
