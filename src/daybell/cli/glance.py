"""An overview as people and programs see it: a screen that fits, plain text, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daybell.cli import show
from daybell.cli.columns import GAP, Column, fit
from daybell.cli.waiting import error_line
from daybell.client import wire
from daybell.client.overview import Overview
from daybell.core.instant import Instant
from daybell.core.view import Queue, Total
from daybell.core.worker import Worker, WorkerState

HEAD_LINES: Final = 4  # with the empty one
FRAME_LINES: Final = 2  # a section's headings, and the empty line after it
RIGHT: Final = {"queued", "scheduled", "retrying", "running", "waiting", "delay"}


class Section(NamedTuple):
    """A table of the screen."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]
    empty: str


def as_json(seen: Overview, *, store: str) -> dict[str, Any]:
    """An overview for programs."""
    rates = seen.rates
    return {
        "store": store,
        "now": wire.time(seen.now),
        "enqueued_per_second": None if rates is None else round(rates.enqueued, 3),
        "finished_per_second": None if rates is None else _rounded(rates.finished),
        "failed_per_second": None if rates is None else round(rates.failed, 3),
        "queues": [wire.queue(one) for one in seen.queues],
        "workers": [wire.worker(one) for one in seen.workers],
        "dead_letters": [wire.execution(one) for one in seen.letters],
        "has_more_dead_letters": seen.has_more_letters,
    }


def echo(seen: Overview, *, store: str) -> None:
    """Print an overview as text."""
    typer.echo(f"{show.printable(store)} at {_clock(seen.now)}")
    typer.echo(totals(seen))
    typer.echo(pace(seen))
    for section in sections(seen):
        typer.echo("")
        show.echo_table(section.columns, section.rows, empty=section.empty)


def screen(
    seen: Overview, *, store: str, trouble: str = "", columns: int, lines: int
) -> RenderableType:
    """An overview that fits a terminal of this size."""
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("daybell top", "bold")
    head.append(f"  {show.printable(store)}")
    quits = f"{_clock(seen.now)}  q quits"
    room = columns - head.cell_len - cell_len(quits)
    head.append(" " * max(2, room) + quits, "dim")
    second = Text(totals(seen), no_wrap=True, overflow="ellipsis")
    third = Text(pace(seen), "bold", no_wrap=True, overflow="ellipsis")
    if trouble:
        third = Text(f"trying again: {show.printable(trouble)}", "bold red", no_wrap=True)
        third.overflow = "ellipsis"
    parts: list[RenderableType] = [head, second, third, Text("")]
    listed = sections(seen)
    shares = divide(lines - HEAD_LINES, [max(1, len(one.rows)) for one in listed])
    for section, share in zip(listed, shares, strict=True):
        if share:
            parts += [_table(section, share, columns), Text("")]
    return Group(*parts[:-1])


def divide(lines: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each section gets. Those above get more; one without room for a row, none."""
    shares = [0] * len(wanted)
    left = lines + 1  # nothing follows the last one
    for place in range(len(wanted)):
        if left > FRAME_LINES:
            shares[place] = 1
            left -= FRAME_LINES + 1
    while left > 0 and any(0 < have < want for have, want in zip(shares, wanted, strict=True)):
        for place, want in enumerate(wanted):
            if left > 0 and 0 < shares[place] < want:
                shares[place] += 1
                left -= 1
    return shares


def totals(seen: Overview) -> str:
    """How much there is of everything, in a line."""
    queues, workers = seen.queues, seen.workers
    scheduled = _all(queues, "scheduled", without="retrying")
    letters = f"{len(seen.letters)}{'+' if seen.has_more_letters else ''}"
    words = [
        show.count(len(workers), "worker"),
        f"{_all(queues, 'running'):,} running",
        f"{_all(queues, 'queued'):,} queued",
        f"{scheduled:,} scheduled",
        f"{_all(queues, 'retrying'):,} retrying",
        f"{letters} dead letter{'' if letters == '1' else 's'}",
    ]
    return ", ".join(words)


def _all(queues: Sequence[Queue], name: str, *, without: str | None = None) -> Total:
    """One of the numbers of several queues together."""
    numbers = [_number(one, name, without=without) for one in queues]
    return Total(sum(numbers), is_exact=all(one.is_exact for one in numbers))


def _number(queue: Queue, name: str, *, without: str | None = None) -> Total:
    number = queue.number(name)
    if without is None:
        return number
    less = queue.number(without)
    return Total(max(0, number - less), is_exact=number.is_exact and less.is_exact)


def pace(seen: Overview) -> str:
    """The rates, in a line."""
    if seen.rates is None:
        return "enqueued …/s  finished …/s  failed …/s"
    rates = seen.rates
    return (
        f"enqueued {_rate(rates.enqueued)}/s  finished {_rate(rates.finished)}/s"
        f"  failed {_rate(rates.failed)}/s"
    )


def sections(seen: Overview) -> list[Section]:
    """Queues, workers and dead letters as tables."""
    queues = Section(
        (
            Column("queue", least=12, rank=0),
            Column("queued"),
            Column("running"),
            Column("scheduled", rank=3),
            Column("retrying", rank=2),
            Column("waiting", rank=4),
            Column("delay"),
            Column("state"),
        ),
        [_queue_row(one, seen.now) for one in sorted(seen.queues, key=_by_work)],
        "no queues; the first job makes one",
    )
    workers = Section(
        (
            Column("worker", least=12, rank=0),
            Column("state"),
            Column("running"),
            Column("renewed", rank=2),
            Column("host", least=8, rank=4),
            Column("queues", least=8, rank=3),
        ),
        [_worker_row(one, seen.now) for one in seen.workers],
        "no workers; start one: daybell worker module:app",
    )
    letters = Section(
        (
            Column("died", rank=0),
            Column("job", least=12, rank=0),
            Column("error", least=12),
            Column("id", rank=3),
        ),
        [
            (
                show.relative(one.finished_at, now=seen.now),
                one.job,
                (error_line(one.error) or one.reason or "").partition("\n")[0],
                str(one.id),
            )
            for one in seen.letters
        ],
        "no dead letters",
    )
    return [queues, workers, letters]


def _queue_row(queue: Queue, now: Instant) -> tuple[str, ...]:
    oldest = queue.oldest_run_at
    return (
        queue.name,
        f"{queue.number('queued'):,}",
        f"{queue.number('running'):,}",
        f"{_number(queue, 'scheduled', without='retrying'):,}",
        f"{queue.number('retrying'):,}",
        f"{queue.number('waiting'):,}",
        "" if oldest is None else show.length(max(0.0, now - oldest)),
        "paused" if queue.is_paused else "open",
    )


def _worker_row(worker: Worker, now: Instant) -> tuple[str, ...]:
    is_late = worker.lease_until < now
    return (
        worker.name,
        "lost" if is_late and worker.state is not WorkerState.DEAD else str(worker.state),
        f"{worker.running} of {worker.capacity}",
        show.relative(worker.renewed_at, now=now),
        f"{worker.host} {worker.pid}",
        ", ".join(worker.queues),
    )


def _by_work(queue: Queue) -> tuple[int, str]:
    return -(queue.queued + queue.running + queue.retrying), queue.name


def _table(section: Section, share: int, room: int) -> RenderableType:
    """A section in so many lines; what there is no room for is counted."""
    if not section.rows:
        return Text(section.empty, "dim", no_wrap=True, overflow="ellipsis")
    shown = section.rows[:share]
    left_out = len(section.rows) - len(shown)
    if left_out and share > 1:
        shown, left_out = shown[:-1], left_out + 1
    rows = [[show.printable(cell) for cell in row] for row in shown]
    names = [one.name for one in section.columns]
    wanted = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    widths = fit(section.columns, wanted, room=room)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold reverse")
    for name, width in zip(names, widths, strict=True):
        if width:
            table.add_column(
                name,
                width=width,
                no_wrap=True,
                overflow="ellipsis",
                justify="right" if name in RIGHT else "left",
            )
    for row in rows:
        cells = zip(row, widths, strict=True)
        table.add_row(*(Text(cell, show.STYLES.get(cell, "")) for cell, width in cells if width))
    if left_out and share > 1:
        return Group(table, Text(f"… and {left_out:,} more", "dim"))
    return table


def _rounded(per_second: float | None) -> float | None:
    return None if per_second is None else round(per_second, 3)


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "…"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:,.1f}"


def _clock(instant: Instant) -> str:
    return datetime.fromtimestamp(instant, UTC).astimezone().strftime("%H:%M:%S")
