"""What the nodes of a workflow's run say, together, as it comes: each line with its node.

A look lists the run's executions and reads the logs of those that may have said something since. It
is bounded: so many logs and so many runs inside of runs, those first that were not looked at for
the longest time. The rest waits for the next look. What is left of a run that has ended is all
read, some logs at a time, and printed in between.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

import typer

from daybell.cli import show
from daybell.cli.edge import DONE, complain
from daybell.cli.lines import attempt_heading, line_json, line_text
from daybell.cli.patience import Patience
from daybell.cli.waiting import Onlooker
from daybell.client.logs import START
from daybell.client.remote.client import AnyClient
from daybell.client.waiting import why_idle
from daybell.client.workflows import WORKFLOW
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.log import Line
from daybell.engine.clock import Clock
from daybell.errors import NotFound, Unavailable

POLL_SECONDS: Final[Seconds] = 0.5
REST: Final = 4  # times as long as a look took: large runs are looked at less often
READS_MAX: Final = 100  # logs that one look reads
READS_AT_ONCE: Final = 10
RUNS_MAX: Final = 20  # runs that one look lists, with those inside
LINES_MAX: Final = 10_000  # that are brought into order at a time
LABEL_CHARS_MIN: Final = 8  # that are lined up
LABEL_CHARS_MAX: Final = 24


async def follow_run(client: AnyClient, id: UUID, *, as_json: bool, clock: Clock) -> int:
    """Print what a run's nodes say until the run has ended."""
    patience, onlooker = Patience(clock), Onlooker(client, clock)
    told = RunTranscript(client, id, as_json=as_json)
    is_told = False  # that it waits
    while True:
        began = clock.monotonic()
        try:
            # Looked at before the logs are read: when it has ended, all has been said.
            run = (await client.execution(id)).execution
            is_over = run.state in TERMINAL
            await (told.finish(run) if is_over else told.look(run))
        except Unavailable as error:
            await patience.bear(error)
            continue
        patience.renew()
        if is_over:
            break
        if not is_told and run.state is not State.RUNNING:
            complain(f"{id} is {run.state}; waiting")
            if why := await why_idle(client, run):
                complain(why)
                onlooker.knows(run)
        is_told = True
        await onlooker.look(run)
        await clock.sleep(max(POLL_SECONDS, REST * (clock.monotonic() - began)))
    if told.is_empty:
        complain(f"no node of the run {id} said anything; it is {run.state}")
    return DONE


class _Node:
    """How far the log of a node is printed."""

    def __init__(self, id: UUID, label: str) -> None:
        self.id = id
        self.label = label
        self.state = State.WAITING
        self.attempt = 1
        self.started_at: Instant | None = None
        self.read_at: tuple[State, int] | None = None  # how it stood when its log was read
        self.read_in = 0  # which look that was
        self.after: tuple[int, int] = START
        self.heading = 1  # the attempt whose lines were printed last

    @property
    def stands(self) -> tuple[State, int]:
        return self.state, self.attempt

    @property
    def never_begins(self) -> bool:
        """Whether it has ended without having run: there is nothing to ask for."""
        has_begun = self.attempt > 1 or self.started_at is not None
        return self.state in (State.SKIPPED, State.CANCELLED) and not has_begun

    @property
    def is_due(self) -> bool:
        """Whether it may have said something that is not printed."""
        is_begun = self.state is State.RUNNING or self.state in TERMINAL or self.attempt > 1
        return is_begun and (self.state is State.RUNNING or self.read_at != self.stands)


class _Run:
    """A run whose nodes are listed."""

    def __init__(self, id: UUID, prefix: str) -> None:
        self.id = id
        self.prefix = prefix  # of its nodes' labels, if it is inside of another
        self.listed_in = 0  # which look that was
        self.job: str | None = None  # also that of nodes, unless they run a job
        self.known: set[UUID] = set()
        self.open: dict[UUID, _Node] = {}  # nodes that are not printed to their end


class RunTranscript:
    """Prints what the nodes of a run say, and remembers how far it is."""

    def __init__(self, client: AnyClient, id: UUID, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._runs = {id: _Run(id, "")}  # outer ones before those inside
        self._over: set[UUID] = set()
        self._kinds: dict[str, bool] = {}  # of jobs: whether they are workflows
        self._lines: list[tuple[_Node, int, Line]] = []
        self._looks = 0
        self._width = LABEL_CHARS_MIN
        self.is_empty = True

    async def look(self, run: Execution) -> None:
        """Print what has come since the last time, or a part of it, if it is very much."""
        self._looks += 1
        self._runs[run.id].job = run.job
        whole, *inner = self._runs.values()
        inner.sort(key=lambda one: one.listed_in)
        for one in (whole, *inner[: RUNS_MAX - 1]):
            await self._list(one, is_whole=one.id in self._over)
            if one.id in self._over and not one.open:
                del self._runs[one.id]
        due = sorted(self._due(), key=lambda pair: pair[1].read_in)
        await self._read_all(due[:READS_MAX])

    async def finish(self, run: Execution) -> None:
        """Print all that is left of a run that has ended, by when its nodes were started."""
        self._looks += 1
        self._runs[run.id].job = run.job
        listed: set[UUID] = set()
        while left := [one for one in self._runs.values() if one.id not in listed]:
            for one in left:
                await self._list(one, is_whole=True)
                listed.add(one.id)
        due = sorted(self._due(), key=lambda pair: pair[1].started_at or 0.0)
        for first in range(0, len(due), READS_MAX):
            await self._read_all(due[first : first + READS_MAX])

    def _due(self) -> Iterator[tuple[_Run, _Node]]:
        for run in self._runs.values():
            yield from ((run, node) for node in run.open.values() if node.is_due)

    async def _read_all(self, nodes: Sequence[tuple[_Run, _Node]]) -> None:
        """Read some logs, a few at a time, and print what they have."""
        for first in range(0, len(nodes), READS_AT_ONCE):
            some = nodes[first : first + READS_AT_ONCE]
            reads = (self._read(run, node) for run, node in some)
            # All are waited for: none is to go on while they are asked for once more.
            for error in await asyncio.gather(*reads, return_exceptions=True):
                if error is not None:
                    raise error
        self._print()

    async def _list(self, run: _Run, *, is_whole: bool) -> None:
        """See how a run's nodes stand: the newest first, as far as there may be news."""
        run.listed_in = self._looks
        unseen, cursor = set(run.open), None
        while True:
            page = await self._client.executions(parent=run.id, limit=PAGE_ITEMS_MAX, cursor=cursor)
            has_news = False
            for one in page.items:
                has_news |= one.id not in run.known
                unseen.discard(one.id)
                await self._see(run, one)
            cursor = page.next_cursor
            if cursor is None:
                break
            if not has_news and not unseen and not is_whole:
                return
        for id in unseen:  # it was removed
            del run.open[id]

    async def _see(self, run: _Run, one: Execution) -> None:
        if one.id not in run.known:
            label = f"{run.prefix}{one.node or one.job}"
            if one.job != run.job and await self._is_workflow(one.job):
                inner = self._runs[one.id] = _Run(one.id, f"{label}/")
                inner.job = one.job
            run.known.add(one.id)
            run.open[one.id] = _Node(one.id, label)
        node = run.open.get(one.id)
        if node is not None:
            node.state, node.attempt, node.started_at = one.state, one.attempt, one.started_at
            if node.never_begins:
                del run.open[one.id]
        if one.id in self._runs and one.state in TERMINAL:
            self._over.add(one.id)

    async def _is_workflow(self, job: str) -> bool:
        if job not in self._kinds:
            try:
                found = await self._client.job(job)
                self._kinds[job] = found.definition.kind == WORKFLOW
            except NotFound:  # it was deleted since
                self._kinds[job] = False
        return self._kinds[job]

    async def _read(self, run: _Run, node: _Node) -> None:
        stands = node.stands
        async for part in self._client.log_parts(node.id, after=node.after):
            node.after = (part.attempt, part.number)
            self._lines += ((node, part.attempt, line) for line in part.lines)
            if len(self._lines) >= LINES_MAX:
                self._print()
        node.read_at, node.read_in = stands, self._looks
        if node.state in TERMINAL:
            del run.open[node.id]

    def _print(self) -> None:
        lines, self._lines = self._lines, []
        for node, attempt, line in sorted(lines, key=lambda one: one[2].at):
            self.is_empty = False
            if self._as_json:
                of = {"node": node.label, "execution_id": str(node.id)}
                typer.echo(line_json(attempt, line, **of))
                continue
            if attempt != node.heading:
                node.heading = attempt
                self._echo(node, attempt_heading(attempt))
            self._echo(node, line_text(line))
        sys.stdout.flush()  # whoever reads through a pipe wants it now

    def _echo(self, node: _Node, text: str) -> None:
        label = show.printable(node.label)
        self._width = max(self._width, min(len(label), LABEL_CHARS_MAX))
        for line in text.split("\n"):
            typer.echo(f"{label:<{self._width}} | {line}")
