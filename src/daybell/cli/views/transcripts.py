"""Wait for executions to end, and print their logs as they grow."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import typer

from daybell.cli import output
from daybell.cli.runtime import DONE, FAILED, print_stderr
from daybell.client import wire
from daybell.client.logs import START
from daybell.client.remote.client import AnyClient
from daybell.client.runs import WORKFLOW
from daybell.core import payload
from daybell.core.execution import (
    TERMINAL,
    Failure,
    Line,
    LogPart,
    State,
)
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import Instant, Seconds, to_iso
from daybell.engine.loop import Clock, SystemClock
from daybell.errors import Conflict, DaybellError, NotFound, Unavailable, UsageError

# One line of a log, as a person or a program reads it.

INDENT: Final = "    "
COLOURS: Final = {
    "debug": "bright_black",
    "warning": "yellow",
    "error": "red",
    "critical": "red",
    "stderr": "yellow",
}


def line_text(line: Line) -> str:
    """Return a line for people; its further lines are indented, so that records stand apart."""
    first, *rest = output.printable(line.message.rstrip("\n"), keep="\n").split("\n")
    source = f"{output.printable(line.source)}: " if line.source else ""
    level = f"{output.printable(line.level):<8}"
    if sys.stdout.isatty():
        level = typer.style(level, fg=COLOURS.get(line.level))
    words = f"{format_local_moment(line.at)} {level} {source}{first}".rstrip()
    return "\n".join([words, *(f"{INDENT}{one}".rstrip() for one in rest)])


def line_json(attempt: int, line: Line, **more: str) -> str:
    """Return a line for programs; `more` are fields that name its node."""
    fields = {
        **more,
        "attempt": attempt,
        "at": to_iso(line.at),
        "level": line.level,
        "source": line.source,
        "message": line.message,
    }
    return output.printable(json.dumps(fields, ensure_ascii=False))


def echo_lines(found: Sequence[wire.FoundLine]) -> None:
    """Print the lines that a search found, under the execution that wrote them."""
    for (job, id, attempt), lines in groupby(
        found, key=lambda one: (one.job, one.execution_id, one.attempt)
    ):
        typer.echo(output.printable(f"--- {job} {id} attempt {attempt} ---"))
        for one in lines:
            line = Line(one.at.timestamp(), one.level, one.source, one.message)
            typer.echo(line_text(line))
    if not found:
        typer.echo("no log lines")


def attempt_heading(attempt: int) -> str:
    """Return the heading for the lines of an attempt, where there are several."""
    return f"--- attempt {attempt} ---"


def format_local_moment(instant: Instant) -> str:
    """Return a local time, to the millisecond."""
    moment = datetime.fromtimestamp(instant, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23]


# Surviving a restart of the server, or an absent store, while a user watches.

AWAY_SECONDS_MAX: Final[Seconds] = 60.0
PAUSE_MIN_SECONDS: Final[Seconds] = 0.25
PAUSE_MAX_SECONDS: Final[Seconds] = 5.0


class Patience:
    """The limit of a watcher that gets no answers. Create one for each thing that is watched."""

    def __init__(self, clock: Clock, *, until: Seconds | None = None) -> None:
        self._clock = clock
        self._until = until  # on the monotonic clock: the wait ends then anyway
        self._lost_at: Seconds | None = None
        self._pause = PAUSE_MIN_SECONDS

    def renew(self) -> None:
        """Record that there was an answer."""
        self._lost_at, self._pause = None, PAUSE_MIN_SECONDS

    async def bear(self, error: Unavailable) -> None:
        """Wait before the next try; raise the error if another try is useless."""
        now = self._clock.monotonic()
        if error.is_lasting:
            raise error
        if self._lost_at is None:
            self._lost_at = now
            print_stderr(f"connection lost, trying again for {AWAY_SECONDS_MAX:g} s: {error}")
        ends = self._lost_at + AWAY_SECONDS_MAX
        if self._until is not None:
            ends = min(ends, self._until)
        if now >= ends:
            raise error
        await self._clock.sleep(min(self._pause, ends - now))
        self._pause = min(self._pause * 2, PAUSE_MAX_SECONDS)


# Waiting for an execution's end.

POLL_MIN_SECONDS: Final = 0.02
POLL_MAX_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 3.0  # between checks for a missing worker, and before the first


async def wait_for_end(
    client: AnyClient, id: UUID | str, *, seconds: Seconds | None, as_json: bool
) -> int:
    """Wait, show the result, and return the exit code: 0 only if the execution succeeded.

    The wait is announced at once, on stderr, also if perhaps no worker can run the execution. A
    lack that is found later is reported once; the wait goes on.
    """
    execution = await client.execution(id)
    onlooker = WaitObserver(client, SystemClock())
    if execution.status not in TERMINAL:
        if not as_json:
            print_stderr(f"{id} is {execution.status}; waiting")
        await onlooker.report(execution)
    with output.show_status(f"waiting for {id}", quiet=as_json) as say:

        async def look(seen: wire.Execution, is_last: bool) -> None:
            say(f"{id} is {seen.status}")
            await onlooker.look(seen, is_last=is_last)

        try:
            execution = await poll_until_end(client, id, seconds=seconds, on_look=look)
        except asyncio.CancelledError:  # by Ctrl-C, which ends the wait and nothing else
            print_stderr(
                f"it goes on; see `daybell executions wait {id}`, cancel with `daybell executions"
                f" cancel {id}`"
            )
            raise
    if as_json:
        output.echo_json(execution)
    else:
        output.echo_fields(
            {
                "status": execution.status,
                "reason": execution.reason,
                "error": error_line(execution.error),
                "result": value_text(execution.result),
                "id": execution.execution_id,
            },
            in_lines={"error"},
        )
    return DONE if execution.status is State.SUCCEEDED else FAILED


class WaitObserver:
    """Reports the worker to start or the part to resume before an execution or a node can run."""

    def __init__(self, client: AnyClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._next_look = clock.monotonic() + LOOK_SECONDS
        self._told: set[str] = set()

    async def look(self, execution: wire.Execution, *, is_last: bool = False) -> None:
        """Report at intervals, and at the end of the wait."""
        if self._clock.monotonic() >= self._next_look or is_last:
            await self.report(execution)

    async def report(self, execution: wire.Execution) -> None:
        """Report a lack that holds now, each once."""
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        with suppress(DaybellError):  # the wait does not depend on it
            lack = (await self._client.why(execution.execution_id)).lack
            if lack is not None and lack not in self._told:
                self._told.add(lack)
                print_stderr(f"{lack}, in {self._client.place}")


async def poll_until_end(
    client: AnyClient,
    id: UUID | str,
    *,
    seconds: Seconds | None,
    on_look: Callable[[wire.Execution, bool], Awaitable[object]],
    clock: Clock | None = None,
) -> wire.ExecutionDetail:
    """Read the execution again and again, less and less often, until it has ended. `on_look` is
    called with it, and with true if that was the last look, for the time is up.
    """
    clock = clock or SystemClock()
    started, pause = clock.monotonic(), POLL_MIN_SECONDS
    patience = Patience(clock, until=None if seconds is None else started + seconds)
    while True:
        try:
            execution = await client.execution(id)
        except Unavailable as error:
            await patience.bear(error)
            continue
        patience.renew()
        state = execution.status
        if state in TERMINAL:
            return execution
        waited = clock.monotonic() - started
        is_up = seconds is not None and waited >= seconds
        await on_look(execution, is_up)
        if is_up:
            raise Conflict(f"execution {id} is still {state} after {seconds:g} s; it goes on")
        left = pause if seconds is None else seconds - (clock.monotonic() - started)
        await clock.sleep(max(0.0, min(pause, left)))
        pause = min(pause * 1.5, POLL_MAX_SECONDS)


def error_line(error: Any) -> str | None:
    """Return an error without its traceback; a message of several lines keeps them."""
    if error is None:
        return None
    failure = failure_of(error)
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def failure_of(error: Any) -> Failure:
    """Return the error of an answer; text of another program becomes the type."""
    return Failure.of_kept(error if isinstance(error, str) else payload.encode(error))


def value_text(value: Any) -> str | None:
    """Return a value as JSON; None for none."""
    return None if value is None else payload.encode(value)


# The logs of the nodes of a workflow's run, together, as they come: each line with its node.
#
# A look lists the run's executions and reads the logs of those that may have new lines. It is
# bounded: so many logs and so many runs inside of runs, those first that were not looked at for the
# longest time. The rest waits for the next look. The rest of a run that has ended is all read, some
# logs at a time, and printed in between.

POLL_SECONDS: Final[Seconds] = 0.5
REST: Final = 4  # times as long as a look took: large runs are looked at less often
READS_MAX: Final = 100  # logs that one look reads
READS_AT_ONCE: Final = 10
RUNS_MAX: Final = 20  # runs that one look lists, with those inside
LINES_MAX: Final = 10_000  # that are brought into order at a time
LABEL_CHARS_MIN: Final = 8  # that are lined up
LABEL_CHARS_MAX: Final = 24


async def follow_run(client: AnyClient, id: UUID, *, as_json: bool, clock: Clock) -> int:
    """Print the logs of a run's nodes until the run has ended."""
    patience, onlooker = Patience(clock), WaitObserver(client, clock)
    told = RunTranscript(client, id, as_json=as_json)
    is_told = False  # that it waits
    while True:
        began = clock.monotonic()
        try:
            # Read before the logs: a run that has ended by then has logged everything.
            run = await client.execution(id)
            is_over = run.status in TERMINAL
            await (told.finish(run) if is_over else told.look(run))
        except Unavailable as error:
            await patience.bear(error)
            continue
        patience.renew()
        if is_over:
            break
        if not is_told and run.status is not State.RUNNING:
            print_stderr(f"{id} is {run.status}; waiting")
            await onlooker.report(run)
        is_told = True
        await onlooker.look(run)
        await clock.sleep(max(POLL_SECONDS, REST * (clock.monotonic() - began)))
    if told.is_empty:
        print_stderr(f"no node of the run {id} said anything; it is {run.status}")
    return DONE


class _Node:
    """The position in the log of a node up to which it is printed."""

    def __init__(self, id: UUID, label: str) -> None:
        self.id = id
        self.label = label
        self.state = State.WAITING
        self.attempt = 1
        self.started_at: Instant | None = None
        self.read_at: tuple[State, int] | None = None  # its state when its log was read
        self.read_in = 0  # the number of that look
        self.after: tuple[int, int] = START
        self.heading = 1  # the attempt of the line printed last

    @property
    def stands(self) -> tuple[State, int]:
        return self.state, self.attempt

    @property
    def never_begins(self) -> bool:
        """Return true if it has ended without having run: it has no log."""
        has_begun = self.attempt > 1 or self.started_at is not None
        return self.state in (State.SKIPPED, State.CANCELLED) and not has_begun

    @property
    def is_due(self) -> bool:
        """Return true if it may have log lines that are not printed."""
        is_begun = self.state is State.RUNNING or self.state in TERMINAL or self.attempt > 1
        return is_begun and (self.state is State.RUNNING or self.read_at != self.stands)


class _Run:
    """A run with its nodes listed."""

    def __init__(self, id: UUID, prefix: str) -> None:
        self.id = id
        self.prefix = prefix  # of its nodes' labels, if it is inside of another
        self.listed_in = 0  # the number of that look
        self.job: str | None = None  # also that of nodes, unless they run a job
        self.known: set[UUID] = set()
        self.open: dict[UUID, _Node] = {}  # nodes that are not printed to their end


class RunTranscript:
    """Prints the logs of a run's nodes, and remembers its position."""

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

    async def look(self, run: wire.Execution) -> None:
        """Print the lines since the last look, or a part of them, if they are very many."""
        self._looks += 1
        self._runs[run.execution_id].job = run.job
        whole, *inner = self._runs.values()
        inner.sort(key=lambda one: one.listed_in)
        for one in (whole, *inner[: RUNS_MAX - 1]):
            await self._list(one, is_whole=one.id in self._over)
            if one.id in self._over and not one.open:
                del self._runs[one.id]
        due = sorted(self._due(), key=lambda pair: pair[1].read_in)
        await self._read_all(due[:READS_MAX])

    async def finish(self, run: wire.Execution) -> None:
        """Print the rest of a run that has ended, by the time when its nodes were started."""
        self._looks += 1
        self._runs[run.execution_id].job = run.job
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
        """Read some logs, a few at a time, and print their lines."""
        for first in range(0, len(nodes), READS_AT_ONCE):
            some = nodes[first : first + READS_AT_ONCE]
            reads = (self._read(run, node) for run, node in some)
            # Wait for all: a read must not continue while the next look starts it again.
            for error in await asyncio.gather(*reads, return_exceptions=True):
                if error is not None:
                    raise error
        self._print()

    async def _list(self, run: _Run, *, is_whole: bool) -> None:
        """Read the states of a run's nodes: the newest first, as far as there may be news."""
        run.listed_in = self._looks
        unseen, cursor = set(run.open), None
        while True:
            page = await self._client.executions(parent=run.id, limit=PAGE_ITEMS_MAX, cursor=cursor)
            has_news = False
            for one in page.items:
                has_news |= one.execution_id not in run.known
                unseen.discard(one.execution_id)
                await self._see(run, one)
            cursor = page.next_cursor
            if cursor is None:
                break
            if not has_news and not unseen and not is_whole:
                return
        for id in unseen:  # it was removed
            del run.open[id]

    async def _see(self, run: _Run, one: wire.Execution) -> None:
        id = one.execution_id
        if id not in run.known:
            label = f"{run.prefix}{one.node or one.job}"
            if one.job != run.job and await self._is_workflow(one.job):
                inner = self._runs[id] = _Run(id, f"{label}/")
                inner.job = one.job
            run.known.add(id)
            run.open[id] = _Node(id, label)
        node = run.open.get(id)
        if node is not None:
            node.state, node.attempt = one.status, one.attempt
            node.started_at = None if one.started_at is None else one.started_at.timestamp()
            if node.never_begins:
                del run.open[id]
        if id in self._runs and one.status in TERMINAL:
            self._over.add(id)

    async def _is_workflow(self, job: str) -> bool:
        if job not in self._kinds:
            try:
                found = await self._client.job(job)
                self._kinds[job] = found.kind == WORKFLOW
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
        sys.stdout.flush()  # a reader of a pipe wants it now

    def _echo(self, node: _Node, text: str) -> None:
        label = output.printable(node.label)
        self._width = max(self._width, min(len(label), LABEL_CHARS_MAX))
        for line in text.split("\n"):
            typer.echo(f"{label:<{self._width}} | {line}")


LAST_PART: Final = 2**31 - 1  # no attempt has a part after it
NODES_MAX: Final = 20  # nodes with a pointer to their logs


class Transcript:
    """Prints parts of one execution's log, and remembers its position."""

    def __init__(self, *, attempt: int | None, as_json: bool) -> None:
        self._wanted = attempt
        self._as_json = as_json
        self._attempt = 0  # the attempt of the line printed last
        self.after = START if attempt is None else (attempt - 1, LAST_PART)
        self.is_empty = True

    async def print_new(self, client: AnyClient, id: UUID, *, has_several: bool) -> None:
        """Print the lines since the last call. Several attempts each get a heading."""
        async for part in client.log_parts(id, after=self.after):
            if self._wanted is not None and part.attempt > self._wanted:
                break
            self.after = (part.attempt, part.number)
            self._print(part, has_several=has_several)
        sys.stdout.flush()  # a reader of a pipe wants it now

    def _print(self, part: LogPart, *, has_several: bool) -> None:
        if part.attempt != self._attempt and not self._as_json and self._wanted is None:
            if has_several or part.attempt > 1:
                typer.echo(attempt_heading(part.attempt))
            self._attempt = part.attempt
        for line in part.lines:
            self.is_empty = False
            typer.echo(line_json(part.attempt, line) if self._as_json else line_text(line))


async def print_log(
    client: AnyClient,
    id: UUID,
    *,
    follow: bool,
    attempt: int | None,
    as_json: bool,
    clock: Clock | None = None,
) -> int:
    """Print an execution's log. With `follow`, go on until nothing more can come; of a workflow's
    run, with the logs of its nodes.
    """
    clock = clock or SystemClock()
    if follow and await _is_run(client, id, clock):
        if attempt is not None:
            raise UsageError(
                f"{id} is a workflow's run, and an attempt is one of a node: follow that node, or"
                " leave out --attempt",
                field="attempt",
            )
        return await follow_run(client, id, as_json=as_json, clock=clock)
    patience = Patience(clock)
    transcript = Transcript(attempt=attempt, as_json=as_json)
    is_told = False  # that it waits
    while True:
        try:
            # Read before the log: an execution that has ended by then has logged everything.
            execution = await client.execution(id)
            await transcript.print_new(client, id, has_several=execution.attempt > 1)
        except Unavailable as error:
            if not follow:
                raise
            await patience.bear(error)
            continue
        patience.renew()
        if not follow or _is_over(execution, attempt):
            break
        if not is_told and execution.status is not State.RUNNING:
            print_stderr(f"{id} is {execution.status}; waiting")
            await WaitObserver(client, clock).report(execution)
        is_told = True
        await clock.sleep(POLL_SECONDS)
    if transcript.is_empty:
        _say_nothing(execution, attempt)
        _say_where(execution)
    return DONE


async def _is_run(client: AnyClient, id: UUID, clock: Clock) -> bool:
    patience = Patience(clock)
    while True:
        try:
            return (await client.execution(id)).workflow is not None
        except Unavailable as error:
            await patience.bear(error)


def _is_over(execution: wire.Execution, attempt: int | None) -> bool:
    is_past = attempt is not None and execution.attempt > attempt
    return execution.status in TERMINAL or is_past


def _say_nothing(execution: wire.Execution, attempt: int | None) -> None:
    if attempt is not None and attempt > execution.attempt:
        print_stderr(
            f"execution {execution.execution_id} has had no attempt {attempt} yet; it is at attempt"
            f" {execution.attempt}"
        )
        return
    yet = "" if execution.status in TERMINAL else " so far"
    of = "" if attempt is None else f" in attempt {attempt}"
    print_stderr(
        f"execution {execution.execution_id} said nothing{of}{yet}; it is {execution.status}"
    )


def _say_where(execution: wire.ExecutionDetail) -> None:
    """Print that a workflow's run has no log of its own; its nodes have."""
    run, id = execution.workflow, execution.execution_id
    if run is None:
        return
    print_stderr("it is a workflow's run, and each of its nodes has its own log:")
    for node in [one for one in run.nodes if one.is_begun][:NODES_MAX]:
        how = f"logs {node.execution_id}" if node.execution_id else f"list --workflow {id}"
        print_stderr(f"  {output.printable(node.name)}: daybell executions {how}")
    print_stderr(f"all of them: daybell executions list --workflow {id}")
