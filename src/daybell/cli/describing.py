"""Executions as people see them: in a list, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import typer

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.cli.waiting import error_line
from daybell.client.moments import outcome_of
from daybell.core.execution import TERMINAL, Execution, ExecutionDetail, State
from daybell.core.failure import Failure
from daybell.core.instant import Instant
from daybell.core.step import Step


def echo_executions(
    executions: Sequence[Execution],
    *,
    now: Instant,
    empty: str,
    workflows: Mapping[UUID, str] | None = None,
) -> None:
    """Print executions as a table, their times seen from the store's `now`. Nodes are named with
    the workflows of their runs, as far as these are said.
    """
    of_runs = workflows or {}
    rows = [
        (
            one.id,
            one.job if one.node is None else _node(one, of_runs),
            one.state,
            one.queue,
            one.attempt,
            show.relative(one.finished_at or one.started_at or one.run_at, now=now),
            took(one, now=now),
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
    show.echo_table(columns, rows, empty=empty)


def _node(one: Execution, of_runs: Mapping[UUID, str]) -> str:
    """A node that runs another job is an execution of that one."""
    workflow = one.job if one.parent is None else of_runs.get(one.parent, one.job)
    return f"{workflow}: {one.node}"


def _note(one: Execution) -> str | None:
    """Its error, or why it stands where it stands: what went wrong in an earlier attempt is
    over.
    """
    error = error_line(one.error)
    if is_error_of_now(one):
        return error or one.reason
    return one.reason or (f"before: {error}" if error else None)


def is_error_of_now(one: Execution) -> bool:
    """Whether its error is why it stands where it stands. While it goes on, it is that of an
    attempt.
    """
    return one.state in TERMINAL or one.state is State.RETRYING


def echo_detail(
    detail: ExecutionDetail,
    *,
    now: Instant,
    because: str | None = None,
    steps: Sequence[Step] = (),
) -> None:
    """Print all that is known of an execution at the store's `now`, and why it waits."""
    one = detail.execution
    progress = None if one.progress is None else f"{one.progress:g} % {one.note or ''}"
    asked = one.cancel_requested_at
    show.echo_fields(
        {
            "id": one.id,
            "job": f"{one.job}, version {one.version}",
            "node": None if one.node is None else f"{one.node}, of run {one.parent}",
            "status": one.state,
            "reason": one.reason if because is None else f"{one.reason}: {because}",
            "cancel": None if asked is None else f"requested at {precise(asked)}",
            "queue": f"{one.queue}, {one.priority.label} priority",
            "arguments": one.args,
            "unique key": one.unique_key,
            "scheduled for": precise(one.scheduled_for),
            "created": precise(one.created_at),
            "due": precise(one.run_at),
            "started": precise(one.started_at),
            "finished": precise(one.finished_at),
            "took": took(one, now=now),
            "worker": one.worker,
            "progress": progress,
            "result": one.result,
            "error": error_line(one.error) if is_error_of_now(one) else None,
        },
        in_lines={"error"},
    )
    rows = [
        (
            attempt.attempt,
            outcome_of(attempt, steps),
            precise(attempt.started_at) or "not started",
            precise(attempt.ended_at),
            _between(attempt.started_at, attempt.ended_at),
            error_line(attempt.error),
        )
        for attempt in detail.attempts
    ]
    typer.echo("")
    columns = ("attempt", "outcome", "started", "ended", "took", Column("error", least=20))
    show.echo_table(columns, rows, empty="no attempt has ended yet")
    if one.error is not None and (trace := Failure.of_kept(one.error).traceback):
        typer.echo("" if is_error_of_now(one) else f"\n{_failed_before(detail)}:")
        typer.echo(show.printable(trace.rstrip(), keep="\n"))


def _failed_before(detail: ExecutionDetail) -> str:
    """Which attempt its error is of, now that it goes on."""
    error = detail.execution.error
    numbers = [one.attempt for one in detail.attempts if one.error == error]
    return f"attempt {numbers[-1]} failed" if numbers else "an earlier attempt failed"


def precise(instant: Instant | None) -> str:
    """A time to the millisecond, in UTC."""
    if instant is None:
        return ""
    moment = datetime.fromtimestamp(instant, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds")[:23] + "Z"


def took(execution: Execution, *, now: Instant) -> str:
    """How long the last attempt took, or takes already."""
    if execution.finished_at is not None:
        return _between(execution.started_at, execution.finished_at)
    if execution.state is not State.RUNNING or execution.started_at is None:
        return ""
    return f"{_between(execution.started_at, now)} so far"


def _between(start: Instant | None, end: Instant) -> str:
    return "" if start is None else show.length(max(0.0, end - start))
