"""Executions as people see them: in a list, and one with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.cli.waiting import error_line
from daybell.core.execution import Execution, ExecutionDetail, State
from daybell.core.failure import Failure
from daybell.core.instant import Instant


def echo_executions(executions: Sequence[Execution], *, now: Instant, empty: str) -> None:
    """Print executions as a table, their times seen from the store's `now`."""
    rows = [
        (
            one.id,
            one.job if one.node is None else f"{one.job}: {one.node}",
            one.state,
            one.queue,
            one.attempt,
            show.relative(one.finished_at or one.started_at or one.run_at, now=now),
            took(one, now=now),
            one.note or error_line(one.error) or one.reason,
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


def echo_detail(detail: ExecutionDetail, *, now: Instant, because: str | None = None) -> None:
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
            "error": error_line(one.error),
        },
        in_lines={"error"},
    )
    rows = [
        (
            attempt.attempt,
            attempt.outcome,
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
        typer.echo("\n" + show.printable(trace.rstrip(), keep="\n"))


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
