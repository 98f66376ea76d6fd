"""What differs between two definitions, as people read it."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import typer
from msgspec import UNSET

from daybell.cli import show
from daybell.cli.yaml_text import write_yaml
from daybell.client.declaring import Change

LINE_CHARS_MAX: Final = 60  # of a value that is shown beside its field
CONTEXT_LINES: Final = 2  # of a long text, around what has changed
NOTHING: Final = "(not set)"

COLOURS: Final = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def echo_change(mark: str, what: str, changes: Sequence[Change]) -> None:
    """Print a thing that is new (+), changed (~) or goes (-), and what differs about it."""
    echo_marked(f"{mark} {what}")
    for line in lines_of(changes):
        echo_marked(line)


def echo_marked(line: str) -> None:
    """Print a line in the colour of its mark, where there are colours."""
    colour = COLOURS.get(line.lstrip()[:1])
    text = show.printable(line)
    is_plain = colour is None or bool(os.environ.get("NO_COLOR"))
    typer.echo(text if is_plain else typer.style(text, fg=colour))


def lines_of(changes: Iterable[Change]) -> Iterator[str]:
    """Lines for people: a field with what it was and is, or a long text with what has changed."""
    for change in changes:
        if _is_long(change.before) or _is_long(change.after):
            yield f"    {change.field}:"
            yield from (f"      {line}" for line in _block(change))
        elif change.before is UNSET:
            yield f"    {change.field}: {_short(change.after)}"
        else:
            yield f"    {change.field}: {_short(change.before)} → {_short(change.after)}"


def _is_long(value: Any) -> bool:
    if value is UNSET:
        return False
    return (isinstance(value, str) and "\n" in value) or len(_short(value)) > LINE_CHARS_MAX


def _block(change: Change) -> Iterator[str]:
    before, after = _lines(change.before), _lines(change.after)
    if change.before is UNSET:
        yield from (f"+ {line}" for line in after)
    elif change.after is UNSET:
        yield from (f"- {line}" for line in before)
    else:
        compared = list(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""))
        for line in compared[2:]:  # without the names of files
            yield line if line.startswith("@@") else f"{line[0]} {line[1:]}"
        if not compared:  # they end their lines in other ways
            yield from (f"- {_short(change.before)}", f"+ {_short(change.after)}")


def _lines(value: Any) -> list[str]:
    if value is UNSET:
        return []
    if isinstance(value, str):
        return value.splitlines()
    return write_yaml(value).splitlines()


def _short(value: Any) -> str:
    return NOTHING if value is UNSET else json.dumps(value, ensure_ascii=False)
