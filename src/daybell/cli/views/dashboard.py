"""The screen of `daybell top`: queues, workers and rates, live, as text or as JSON."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Final, NamedTuple

import typer
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from daybell.cli import output
from daybell.cli.connection import client_for
from daybell.cli.output import GAP, Column, fit
from daybell.cli.runtime import DONE
from daybell.cli.terminal import KeyReader, StartInterrupted, StopSignals
from daybell.cli.views.transcripts import error_line
from daybell.client import wire
from daybell.client.remote.client import AnyClient
from daybell.core.units import Seconds, parse_duration
from daybell.core.views import Total
from daybell.core.worker import WorkerState
from daybell.engine.loop import Clock, SystemClock
from daybell.errors import Unavailable, UsageError
from daybell.runners.python import wait_for_first
from daybell.settings import Settings, masked_url

# An overview as people and programs see it: a screen that fits, plain text, or JSON.

HEAD_LINES: Final = 4  # with the empty one
FRAME_LINES: Final = 2  # a section's headings, and the empty line after it
RIGHT: Final = {"queued", "scheduled", "retrying", "running", "waiting", "delay"}


class Section(NamedTuple):
    """A table of the screen."""

    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]
    empty: str


def echo_overview(seen: wire.Stats, *, store: str) -> None:
    """Print an overview as text."""
    typer.echo(f"{output.printable(store)} at {_clock(seen.now)}")
    typer.echo(format_totals(seen))
    typer.echo(format_rates(seen))
    for section in sections(seen):
        typer.echo("")
        output.echo_table(section.columns, section.rows, empty=section.empty)


def render_screen(
    seen: wire.Stats, *, store: str, trouble: str = "", columns: int, lines: int
) -> RenderableType:
    """Return an overview that fits a terminal of this size."""
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("daybell top", "bold")
    head.append(f"  {output.printable(store)}")
    quits = f"{_clock(seen.now)}  q quits"
    room = columns - head.cell_len - cell_len(quits)
    head.append(" " * max(2, room) + quits, "dim")
    second = Text(format_totals(seen), no_wrap=True, overflow="ellipsis")
    third = Text(format_rates(seen), "bold", no_wrap=True, overflow="ellipsis")
    if trouble:
        third = Text(f"trying again: {output.printable(trouble)}", "bold red", no_wrap=True)
        third.overflow = "ellipsis"
    parts: list[RenderableType] = [head, second, third, Text("")]
    listed = sections(seen)
    shares = divide(lines - HEAD_LINES, [max(1, len(one.rows)) for one in listed])
    for section, share in zip(listed, shares, strict=True):
        if share:
            parts += [_table(section, share, columns), Text("")]
    return Group(*parts[:-1])


def divide(lines: int, wanted: Sequence[int]) -> list[int]:
    """Return the number of rows of each section. Those above get more; one without room, none."""
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


def format_totals(seen: wire.Stats) -> str:
    """Return the totals of the overview in a line."""
    queues, workers = seen.queues, seen.workers
    scheduled = _all(queues, "scheduled", without="retrying")
    letters = f"{len(seen.dead_letters)}{'+' if seen.has_more_dead_letters else ''}"
    words = [
        output.format_count(len(workers), "worker"),
        f"{_all(queues, 'running'):,} running",
        f"{_all(queues, 'queued'):,} queued",
        f"{scheduled:,} scheduled",
        f"{_all(queues, 'retrying'):,} retrying",
        f"{letters} dead letter{'' if letters == '1' else 's'}",
    ]
    return ", ".join(words)


def _all(queues: Sequence[wire.Queue], name: str, *, without: str | None = None) -> Total:
    """Return the sum of one of the numbers of several queues."""
    numbers = [_number(one, name, without=without) for one in queues]
    return Total(sum(numbers), is_exact=all(one.is_exact for one in numbers))


def _number(queue: wire.Queue, name: str, *, without: str | None = None) -> Total:
    number = queue.number(name)
    if without is None:
        return number
    less = queue.number(without)
    return Total(max(0, number - less), is_exact=number.is_exact and less.is_exact)


def format_rates(seen: wire.Stats) -> str:
    """Return the rates in a line."""
    if seen.rates is None:
        return "enqueued …/s  finished …/s  failed …/s"
    rates = seen.rates
    return (
        f"enqueued {_rate(rates.enqueued)}/s  finished {_rate(rates.finished)}/s"
        f"  failed {_rate(rates.failed)}/s"
    )


def sections(seen: wire.Stats) -> list[Section]:
    """Return queues, workers and dead letters as tables."""
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
                output.format_relative(one.finished_at, now=seen.now.timestamp()),
                one.job,
                (error_line(one.error) or one.reason or "").partition("\n")[0],
                str(one.execution_id),
            )
            for one in seen.dead_letters
        ],
        "no dead letters",
    )
    return [queues, workers, letters]


def _queue_row(queue: wire.Queue, now: datetime) -> tuple[str, ...]:
    oldest = queue.oldest_run_at
    return (
        queue.name,
        f"{queue.number('queued'):,}",
        f"{queue.number('running'):,}",
        f"{_number(queue, 'scheduled', without='retrying'):,}",
        f"{queue.number('retrying'):,}",
        f"{queue.number('waiting'):,}",
        "" if oldest is None else output.format_duration(max(0.0, (now - oldest).total_seconds())),
        "paused" if queue.is_paused else "open",
    )


def _worker_row(worker: wire.Worker, now: datetime) -> tuple[str, ...]:
    is_late = worker.lease_until < now
    return (
        worker.name,
        "lost" if is_late and worker.state is not WorkerState.DEAD else str(worker.state),
        f"{worker.running} of {worker.capacity}",
        output.format_relative(worker.renewed_at, now=now.timestamp()),
        f"{worker.host} {worker.pid}",
        ", ".join(worker.queues),
    )


def _by_work(queue: wire.Queue) -> tuple[int, str]:
    return -(queue.queued + queue.running + queue.retrying), queue.name


def _table(section: Section, share: int, room: int) -> RenderableType:
    """Return a section of so many lines; rows without room are counted."""
    if not section.rows:
        return Text(section.empty, "dim", no_wrap=True, overflow="ellipsis")
    shown = section.rows[:share]
    left_out = len(section.rows) - len(shown)
    if left_out and share > 1:
        shown, left_out = shown[:-1], left_out + 1
    rows = [[output.printable(cell) for cell in row] for row in shown]
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
        table.add_row(*(Text(cell, output.STYLES.get(cell, "")) for cell, width in cells if width))
    if left_out and share > 1:
        return Group(table, Text(f"… and {left_out:,} more", "dim"))
    return table


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "…"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:,.1f}"


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


INTERVAL_MIN_SECONDS: Final = 0.1
INTERVAL_MAX_SECONDS: Final = 60.0


async def watch(
    settings: Settings, *, interval: str, once: bool, tenant: str | None, as_json: bool
) -> int:
    """Show the dashboard, once or until the user quits."""
    seconds = parse_duration(interval, what="interval")
    if not INTERVAL_MIN_SECONDS <= seconds <= INTERVAL_MAX_SECONDS:
        raise UsageError(
            f"interval {interval} is not from {INTERVAL_MIN_SECONDS:g}s to"
            f" {INTERVAL_MAX_SECONDS:g}s",
            field="interval",
        )
    url, clock = masked_url(settings.api_url or settings.database_url), SystemClock()
    async with client_for(settings, tenant=tenant) as client:
        first = await client.stats()
        if once or as_json or not sys.stdout.isatty():
            await clock.sleep(seconds)  # a rate needs two looks
            seen = await client.stats()
            if as_json:
                output.echo_json(seen)
            else:
                echo_overview(seen, store=url)
            return DONE
        display = Display(url, first)
        keys = KeyReader(display.press, on_end=display.quit)
        with StopSignals(on_second=display.leave(keys)) as stop:
            display.stop = stop
            with keys, display.live, _resized(display.draw):
                await _look_on(client, display, settings, interval=seconds, clock=clock)
    return DONE


class Display:
    """The screen, and its content."""

    def __init__(self, url: str, first: wire.Stats) -> None:
        self._url = url
        self._trouble = ""
        self.seen = first
        self.stop: StopSignals | None = None
        self._console = output.console()
        self.live = Live(
            get_renderable=self._render,
            console=self._console,
            screen=True,
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def show(self, seen: wire.Stats) -> None:
        self.seen, self._trouble = seen, ""
        self.draw()

    def complain(self, trouble: str) -> None:
        self._trouble = trouble
        self.draw()

    def draw(self) -> None:
        self.live.refresh()

    def press(self, key: str) -> None:
        if key in "qQ":
            self.quit()

    def quit(self) -> None:
        if self.stop is not None:
            self.stop.request()

    def leave(self, keys: KeyReader) -> Callable[[], None]:
        """Return a function that restores the terminal when the process ends at any point."""

        def restore() -> None:
            self.live.stop()
            keys.restore()

        return restore

    def _render(self) -> RenderableType:
        size = self._console.size
        return render_screen(
            self.seen,
            store=self._url,
            trouble=self._trouble,
            columns=size.width,
            lines=size.height,
        )


async def _look_on(
    client: AnyClient, display: Display, settings: Settings, *, interval: Seconds, clock: Clock
) -> None:
    stop = display.stop
    assert stop is not None
    display.draw()
    took: Seconds = 0.0
    while True:
        # A store that is slow to answer gets a pause as long as its answer took.
        await wait_for_first(stop.wait(), clock.sleep(max(interval - took, took)))
        if stop.is_requested:
            return
        began = clock.monotonic()
        try:
            with stop.heeding():
                seen = await client.stats()
            display.show(seen)
        except StartInterrupted:
            return
        except Unavailable as error:
            display.complain(settings.mask(str(error)))
        took = clock.monotonic() - began


@contextmanager
def _resized(redraw: Callable[[], None]) -> Generator[None]:
    """Have the screen drawn again when it has another size."""
    loop = asyncio.get_running_loop()

    def hear(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(redraw)

    before = signal.signal(signal.SIGWINCH, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
