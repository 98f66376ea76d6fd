"""Text views of executions: lists, details, workflow nodes, steps and timelines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
import typer

from daybell.cli import output
from daybell.cli.output import Column
from daybell.cli.runtime import DONE, INTERRUPTED, print_stderr
from daybell.cli.views.jobs import find_run_workflows
from daybell.cli.views.transcripts import error_line, failure_of, value_text
from daybell.client import wire
from daybell.client.remote.client import AnyClient
from daybell.client.requests import Filters
from daybell.client.runs import short_name
from daybell.core import payload
from daybell.core.event import StepKind
from daybell.core.execution import TERMINAL, State
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import Instant
from daybell.core.views import Page
from daybell.core.workflow.node import describe_condition
from daybell.errors import listed


def echo_executions(
    executions: Sequence[wire.Execution],
    *,
    now: Instant,
    empty: str,
    workflows: Mapping[UUID, str] | None = None,
) -> None:
    """Print executions as a table, their times seen from the store's `now`. Nodes are named with
    the workflows of their runs, as far as these are given.
    """
    of_runs = workflows or {}
    rows = [
        (
            one.execution_id,
            one.job if one.node is None else _node(one, of_runs),
            one.status,
            one.queue,
            one.attempt,
            output.format_relative(one.finished_at or one.started_at or one.run_at, now=now),
            format_attempt_duration(one, now=now),
            one.note or _note(one),
        )
        for one in executions
    ]
    columns = (
        Column("id", rank=0),
        Column("job", least=10, rank=2),
        Column("status"),
        Column("queue", least=8, rank=5),
        Column("attempt", rank=6),
        Column("time", rank=3),
        Column("took", rank=5),
        Column("note", least=10, rank=4),
    )
    output.echo_table(columns, rows, empty=empty)


def _node(one: wire.Execution, of_runs: Mapping[UUID, str]) -> str:
    """Return the name of a node that runs another job: it is an execution of that job."""
    workflow = one.job if one.workflow_id is None else of_runs.get(one.workflow_id, one.job)
    return f"{workflow}: {one.node}"


def _note(one: wire.Execution) -> str | None:
    """Return its error, or the reason for its state: the error of an earlier attempt is over."""
    error = error_line(one.error)
    if is_error_of_now(one):
        return error or one.reason
    return one.reason or (f"before: {error}" if error else None)


def is_error_of_now(one: wire.Execution) -> bool:
    """Return true if its error is the reason for its state. While it goes on, the error is that of
    an attempt.
    """
    return one.status in TERMINAL or one.status is State.RETRYING


def echo_detail(one: wire.ExecutionDetail, *, now: Instant, because: str | None = None) -> None:
    """Print all that is known of an execution at the store's `now`, and why it waits."""
    progress = None if one.progress is None else f"{one.progress:g} % {one.note or ''}"
    asked = one.cancel_requested_at
    output.echo_fields(
        {
            "id": one.execution_id,
            "job": f"{one.job}, version {one.version}",
            "node": None if one.node is None else f"{one.node}, of run {one.workflow_id}",
            "status": one.status,
            "reason": one.reason if because is None else f"{one.reason}: {because}",
            "cancel": None if asked is None else f"requested at {format_precise(asked)}",
            "queue": f"{one.queue}, {one.priority} priority",
            "arguments": value_text(one.args),
            "unique key": one.unique_key,
            "scheduled for": format_precise(one.scheduled_for),
            "created": format_precise(one.created_at),
            "due": format_precise(one.run_at),
            "started": format_precise(one.started_at),
            "finished": format_precise(one.finished_at),
            "took": format_attempt_duration(one, now=now),
            "worker": one.worker_id,
            "progress": progress,
            "result": value_text(one.result),
            "error": error_line(one.error) if is_error_of_now(one) else None,
        },
        in_lines={"error"},
    )
    # The timeline names a release by its cause, such as a sleep.
    outcomes = {moment.attempt: moment.event for moment in one.timeline if moment.node is None}
    rows = [
        (
            attempt.attempt,
            outcomes.get(attempt.attempt, attempt.outcome),
            format_precise(attempt.started_at) or "not started",
            format_precise(attempt.ended_at),
            _between(attempt.started_at, attempt.ended_at),
            error_line(attempt.error),
        )
        for attempt in one.attempts
    ]
    typer.echo("")
    columns = ("attempt", "outcome", "started", "ended", "took", Column("error", least=20))
    output.echo_table(columns, rows, empty="no attempt has ended yet")
    if one.error is not None and (trace := failure_of(one.error).traceback):
        typer.echo("" if is_error_of_now(one) else f"\n{_failed_before(one)}:")
        typer.echo(output.printable(trace.rstrip(), keep="\n"))


def _failed_before(one: wire.ExecutionDetail) -> str:
    """Describe the attempt that its error is of, now that it goes on."""
    numbers = [attempt.attempt for attempt in one.attempts if attempt.error == one.error]
    return f"attempt {numbers[-1]} failed" if numbers else "an earlier attempt failed"


def format_precise(moment: datetime | None) -> str:
    """Return a time to the millisecond, in UTC."""
    if moment is None:
        return ""
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23] + "Z"


def format_attempt_duration(execution: wire.Execution, *, now: Instant) -> str:
    """Return the duration of the last attempt, up to now if it has not ended."""
    if execution.finished_at is not None:
        return _between(execution.started_at, execution.finished_at)
    if execution.status is not State.RUNNING or execution.started_at is None:
        return ""
    return f"{_between(execution.started_at, now)} so far"


def _between(start: datetime | None, end: output.Moment) -> str:
    if start is None:
        return ""
    return output.format_duration(max(0.0, output.instant_of(end) - start.timestamp()))


# Lists of executions at a terminal: pages of a search are followed until enough are found.

CONTENT = ("args", "unique_key", "error", "ended_since", "ended_until", "worker", "q")


class Read(Protocol):
    """A verb of the client that lists executions."""

    async def __call__(
        self, *, limit: int, cursor: str | None, **filters: Any
    ) -> Page[wire.Execution]: ...


class ExecutionSearch:
    """A list that is read page by page. Ctrl-C ends it and keeps the found items."""

    def __init__(
        self,
        read: Read,
        filters: Filters,
        *,
        limit: int | None,
        cursor: str | None = None,
        sort: str | None = None,
        quiet: bool = False,
    ) -> None:
        self._read = read if sort is None else partial(read, sort=sort)
        self._filters = filters
        self._limit = limit  # None: all
        self._quiet = quiet
        self.cursor = cursor
        self.is_interrupted = False
        # The first page of any other list that has items is shown as it is.
        is_search = any(filters.get(name) is not None for name in CONTENT)
        self.goes_on = limit is None or sort is not None or is_search
        self._is_sorted = sort is not None

    async def pages(self) -> AsyncGenerator[tuple[wire.Execution, ...]]:
        """Read until the limit is reached or the list ends."""
        count, has_begun = 0, False
        quiet = self._quiet or not self.goes_on
        with output.show_status("searching; Ctrl-C shows what was found", quiet=quiet) as say:
            try:
                while True:
                    most = PAGE_ITEMS_MAX if self._limit is None else self._limit - count
                    page = await self._read(limit=most, cursor=self.cursor, **self._filters)
                    has_begun = True
                    count += len(page.items)
                    self.cursor = page.next_cursor
                    yield page.items
                    is_enough = count == self._limit or (count > 0 and not self.goes_on)
                    if self.cursor is None or is_enough:
                        break
                    if self._is_sorted:
                        continue
                    say(f"{count:,} found, searched back to {_time_of(self.cursor)}")
            except asyncio.CancelledError:
                if not has_begun:
                    raise
                self.is_interrupted = True

    @property
    def code(self) -> int:
        """Return the exit code of the command."""
        return INTERRUPTED if self.is_interrupted else DONE


def _time_of(cursor: str) -> str:
    """Return the time inside of an id."""
    return output.format_moment((UUID(cursor).int >> 80) / 1000)


async def echo_found(
    client: AnyClient, search: ExecutionSearch, *, empty: str, as_json: bool
) -> int:
    """Print the results of a search; return the exit code."""
    items = tuple([one async for page in search.pages() for one in page])
    if as_json:
        page = Page(items=items, next_cursor=search.cursor)
        output.echo_json(page)
        return search.code
    now = (await client.health()).now
    workflows = await find_run_workflows(client, items)
    if search.is_interrupted:
        print_stderr(
            "stopped before the end of the list;"
            f" {output.format_count(len(items), 'execution')} found"
        )
    echo_executions(items, now=now, empty=empty, workflows=workflows)
    output.echo_more(search.cursor, is_search=search.goes_on)
    return search.code


class Group(msgspec.Struct, kw_only=True):
    """Dead letters of one job with one class of error."""

    job: str
    error: str  # the name of the class
    message: str  # of the newest
    count: int = 0
    newest: datetime
    oldest: datetime
    execution_id: UUID  # of the newest


class DeadLetterGroups:
    """Dead letters by job and class of error. Nothing else is kept of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Group] = {}

    def add(self, one: wire.Execution) -> None:
        """Count a dead letter."""
        failure = None if one.error is None else failure_of(one.error)
        error = (one.reason or "") if failure is None else failure.type
        ended = one.finished_at or one.created_at
        known = self._found.get((one.job, error))
        if known is None or ended > known.newest:
            message = "" if failure is None else failure.message.partition("\n")[0]
            newest = Group(
                job=one.job,
                error=error,
                message=message,
                count=0 if known is None else known.count,
                newest=ended,
                oldest=ended if known is None else known.oldest,
                execution_id=one.execution_id,
            )
            known = self._found[one.job, error] = newest
        known.count += 1
        known.oldest = min(known.oldest, ended)

    def ranked(self) -> list[Group]:
        """Return the groups, the largest first."""
        return sorted(self._found.values(), key=lambda one: (-one.count, one.job, one.error))


async def echo_groups(
    client: AnyClient, search: ExecutionSearch, *, limit: int | None, as_json: bool
) -> int:
    """Print dead letters by job and class of error, the largest groups up to a limit; return the
    exit code.
    """
    found = DeadLetterGroups()
    async for page in search.pages():
        for one in page:
            found.add(one)
    every = found.ranked()
    groups = every[:limit]
    if as_json:
        output.echo_json(Page(items=tuple(groups), next_cursor=search.cursor))
        return search.code
    now = (await client.health()).now
    if search.is_interrupted:
        print_stderr("stopped before the end of the list; there are more")
    columns = (
        Column("count", rank=0),
        Column("job", least=10, rank=0),
        Column("error", least=10, rank=0),
        Column("newest", rank=2),
        Column("oldest", rank=3),
        Column("message of the newest", least=10, rank=1),
    )
    rows = [
        (
            f"{one.count:,}",
            one.job,
            one.error,
            output.format_relative(one.newest, now=now),
            output.format_relative(one.oldest, now=now),
            one.message,
        )
        for one in groups
    ]
    output.echo_table(columns, rows, empty="no dead letters")
    if more := len(every) - len(groups):
        typer.echo(
            f"and {output.format_count(more, 'smaller group')}; a larger --limit prints more"
        )
    return search.code


# The nodes of a workflow's run, for a person.

IDS_MAX: Final = 20  # nodes with their ids printed
PARENTS_MAX: Final = 3  # that are named of each node


def echo_nodes(run: wire.WorkflowRun | None, *, now: Instant, of: wire.Execution) -> None:
    """Print the state of each node, those that come first before the others; nothing if it is no
    run.
    """
    if run is None:
        return
    parents: dict[str, list[str]] = {}
    for edge in run.edges:
        when = f" if {describe_condition(edge.when, edge.to)}" if edge.when else ""
        parents.setdefault(edge.to, []).append(f"{edge.from_}{when}")
    typer.echo("")
    rows = [
        (
            one.name,
            one.status,
            listed(parents.get(one.name, []), most=PARENTS_MAX),
            _waited(one, now=now),
            output.format_moment(one.started_at) if one.started_at is not None else "",
            _took(one, now=now),
            _items(one),
            one.note,
        )
        for one in run.nodes
    ]
    columns = (
        Column("node", least=12, rank=0),
        Column("status", rank=0),
        Column("after", least=10, rank=5),
        Column("waited", rank=6),
        Column("started", rank=3),
        Column("took", rank=3),
        Column("items", rank=2),
        Column("note", least=12, rank=4),
    )
    output.echo_table(columns, rows, empty="no nodes")
    _echo_ids(run, of.execution_id)
    total = output.format_count(run.progress.total, "node")
    typer.echo(f"{run.progress.ended:,} of {total} ended ({of.progress:g} %)")
    if of.status is State.SUCCEEDED and run.failed:
        typer.echo(output.printable(f"succeeded, with failed nodes: {listed(run.failed)}"))


def _echo_ids(run: wire.WorkflowRun, id: UUID) -> None:
    """Print the executions of the nodes that have begun and not ended, and the input that they wait
    for.
    """
    begun = [one for one in run.nodes if one.is_begun and one.status not in TERMINAL]
    for node in begun[:IDS_MAX]:
        is_one = " waits" if node.execution_id is None else f" is execution {node.execution_id}"
        ways = dict.fromkeys(wait.resume for wait in node.waits)
        how = f"; {listed(ways, most=1)}" if ways else ""
        if node.execution_id is not None or node.waits:
            typer.echo(output.printable(f"{node.name}{is_one}{how}"))
    if len(begun) > IDS_MAX:
        more = f"and {len(begun) - IDS_MAX:,} more"
        typer.echo(f"{more}; `daybell executions list --workflow {id}` has them all")


def _waited(node: wire.RunNode, *, now: Instant) -> str:
    """Return the time that a node was ready and not started."""
    if node.ready_at is None:
        return ""
    if node.started_at is not None:
        return _between(node.ready_at, node.started_at)
    return "" if node.status in TERMINAL else f"{_between(node.ready_at, now)} so far"


def _took(node: wire.RunNode, *, now: Instant) -> str:
    """Return the time from its first start to its end, and the number of attempts if there were
    several.
    """
    if node.started_at is None:
        return ""
    last = node.attempts[-1].attempt if node.attempts else 1
    if node.finished_at is not None:
        length = _between(node.started_at, node.finished_at)
        return f"{length} in {last:,} attempts" if last > 1 else length
    so_far = f"{_between(node.started_at, now)} so far"
    return "" if node.status in TERMINAL else f"{so_far}, attempt {last:,}" if last > 1 else so_far


def _items(node: wire.RunNode) -> str:
    if node.items is None:
        return ""
    failed = f", {node.items.failed:,} failed" if node.items.failed else ""
    return f"{node.items.ended:,} of {node.items.total:,}{failed}"


# The steps of an execution, for a person.


def echo_steps(steps: Sequence[wire.Step]) -> None:
    """Print the steps of a durable function, done and waited for; nothing if there are none."""
    if not steps:
        return
    typer.echo("")
    rows = [
        (
            step.n,
            step.kind,
            short_name(step.name) if step.kind is StepKind.WAIT else step.name,
            step.status,
            output.format_moment(step.started_at),
            output.format_moment(step.wake_at) if step.wake_at is not None else "",
            _outcome(step),
        )
        for step in steps
    ]
    columns = (
        "step",
        "kind",
        Column("name", least=16, rank=1),
        "status",
        "started",
        Column("until", rank=2),
        Column("result", least=16, rank=0),
    )
    output.echo_table(columns, rows, empty="")


def _outcome(step: wire.Step) -> str:
    if step.error is None and step.kind is StepKind.WAIT and step.result is not None:
        return payload.encode(step.result["data"])  # all of it is in the JSON
    if step.error is None:
        return value_text(step.result) or ""
    failure = failure_of(step.error)
    return f"{failure.type}: {failure.message}"


# The history of an execution, moment by moment, for a person.


def echo_timeline(moments: Sequence[wire.Moment]) -> None:
    """Print moments, oldest first, each with the time since the first."""
    times = [one.at for one in moments]
    rows = [
        (
            format_precise(at),
            f"+{_between(times[0], at)}",
            one.node,
            _event(one),
            _step(one),
            one.attempt,
            one.worker_id,
        )
        for at, one in zip(times, moments, strict=True)
    ]
    columns = (
        Column("at", rank=0),
        Column("since", rank=3),
        Column("node", least=10, rank=1),
        Column("event", rank=0),
        Column("step", least=10, rank=2),
        Column("attempt", rank=4),
        Column("worker", rank=5),
    )
    left_out = [name for name in ("node", "step") if not any(getattr(one, name) for one in moments)]
    kept = [n for n, column in enumerate(columns) if column.name not in left_out]
    output.echo_table(
        [columns[n] for n in kept], ([row[n] for n in kept] for row in rows), empty="nothing yet"
    )


def _step(moment: wire.Moment) -> str | None:
    if moment.until is None:
        return moment.step
    return f"{moment.step} (until {moment.until.isoformat()})"


def _event(moment: wire.Moment) -> str:
    if moment.type is not None:
        return f"{moment.event} by {moment.type}"
    return moment.event if moment.status is None else f"{moment.event}: {moment.status}"
