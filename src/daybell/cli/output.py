"""Output of commands: tables and fields for people, JSON for programs; all text is escaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import typer

from daybell.core.units import Instant, Seconds, to_iso

if TYPE_CHECKING:
    from rich.console import Console


# The columns of a table that fit a terminal, and their widths.

GAP: Final = 2


class Column(NamedTuple):
    """A column. `least` is its least width; without it, the column is whole or left out.

    Of columns without room, the one with the highest `rank` goes first; 0 stays.
    """

    name: str
    least: int | None = None
    rank: int = 1


def fit(columns: Sequence[Column], wanted: Sequence[int], *, room: int) -> list[int]:
    """Return the width of each column, 0 for one that is left out. `wanted` are the full widths."""
    least = [
        want if column.least is None else min(want, column.least)
        for column, want in zip(columns, wanted, strict=True)
    ]
    # The last of equals goes first: the most important column is on the left.
    leaving = sorted(range(len(columns)), key=lambda place: (columns[place].rank, place))
    widths = list(least)
    while _taken(widths) > room and columns[leaving[-1]].rank > 0:
        widths[leaving.pop()] = 0
    for place in sorted(leaving):
        spare = max(0, room - _taken(widths))
        widths[place] += min(spare, wanted[place] - least[place])
    return widths


def _taken(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + GAP * (len(shown) - 1)


STYLES: Final = {
    "running": "cyan",
    "retrying": "yellow",
    "succeeded": "green",
    "live": "green",
    "draining": "yellow",
    "dead": "bold red",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "magenta",
    "paused": "yellow",
}
# A file has no margin to fold at.
FILE_WIDTH: Final = 10_000


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with every unprintable character escaped, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escaped(one) for one in text)


def echo_json(value: object) -> None:
    """Print a value as JSON that any terminal can print."""
    from daybell.client.wire import format_json

    typer.echo(printable(format_json(value), keep="\n"))


def echo_list(items: Iterable[object]) -> None:
    """Print all items of a list as JSON, in the form of a page."""
    echo_json({"items": list(items), "next_cursor": None})


def echo_table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[object]], *, empty: str
) -> None:
    """Print rows under their headings, one line each, or in words that there are none.

    A column that is too wide for a terminal is shortened or left out; a file gets everything.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    known = [Column(one) if isinstance(one, str) else one for one in columns]
    words = [[_word(value) for value in row] for row in rows]
    if not words:
        typer.echo(empty)
        return
    lines = [[one.name for one in known], *words]
    wanted = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    widths = fit(known, wanted, room=console().width if sys.stdout.isatty() else sys.maxsize)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in zip(known, widths, strict=True):
        if width:
            table.add_column(column.name, width=width, no_wrap=True, overflow="ellipsis")
    for row in words:
        table.add_row(
            *(
                Text(word, STYLES.get(word, ""))
                for word, width in zip(row, widths, strict=True)
                if width
            )
        )
    # Wide enough for the columns that are never shortened; a narrower terminal folds lines itself.
    _echo(table, width=sum(widths) + GAP * len(widths))


def echo_fields(fields: Mapping[str, object], *, in_lines: Collection[str] = ()) -> None:
    """Print a thing's fields, one per line; those without a value are left out.

    Those named by `in_lines` keep their lines, each indented as the first: no line of their text
    looks like another field.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in fields.items():
        if value is not None and value != "":
            has_lines = name in in_lines
            word = printable(str(value).rstrip(), keep="\n") if has_lines else _word(value)
            table.add_row(Text(name, "bold"), Text(word, STYLES.get(word, "")))
    _echo(table)


def echo_more(cursor: str | None, *, is_search: bool = False) -> None:
    """Print how to see the next page, if there is one. That of a search may be empty."""
    if cursor is not None:
        typer.echo(f"there {'may be' if is_search else 'is'} more: --cursor {cursor}")


Moment: TypeAlias = datetime | Instant


def instant_of(moment: Moment) -> Instant:
    """Return a time as seconds."""
    return moment.timestamp() if isinstance(moment, datetime) else moment


def format_moment(moment: Moment | None) -> str:
    """Return a time to the second, in UTC."""
    if moment is None:
        return ""
    return to_iso(int(instant_of(moment)))[:19].replace("T", " ") + "Z"


def format_relative(moment: Moment | None, *, now: Instant) -> str:
    """Return a time as a list shows it, seen from now: `2m ago`, `in 5m`."""
    if moment is None:
        return ""
    instant = instant_of(moment)
    seconds = round(abs(now - instant))
    if seconds == 0:
        return "now"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size * (2 if unit == "d" else 1):  # the hours of a day are still told
            break
    said = f"{seconds // size}{unit}"
    return f"{said} ago" if instant < now else f"in {said}"


def format_duration(seconds: Seconds) -> str:
    """Return a duration in the form that people use."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_count(number: int, noun: str, *, plural: str | None = None) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


@contextmanager
def show_progress(what: str, *, total: int | None = None) -> Generator[Callable[[int], None]]:
    """Show the progress of a long task on a terminal; yield a function to call with every step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console(err=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)


@contextmanager
def show_status(what: str, *, quiet: bool = False) -> Generator[Callable[[str], None]]:
    """Show on a terminal that a task goes on; yield a function to call with news."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.text import Text

    with console(err=True).status(Text(printable(what))) as line:
        yield lambda news: line.update(Text(printable(news)))


def console(*, err: bool = False) -> Console:
    """Return a console for the output of a command."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    return Console(
        stderr=err, highlight=False, soft_wrap=False, width=None if stream.isatty() else FILE_WIDTH
    )


def _echo(renderable: Any, *, width: int | None = None) -> None:
    out = console()
    out.width = width or out.width
    with out.capture() as captured:
        out.print(renderable)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _word(value: object) -> str:
    return "" if value is None else printable(str(value))


def _escaped(character: str) -> str:
    # As JSON writes it, which people can read too, and which keeps JSON valid.
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
