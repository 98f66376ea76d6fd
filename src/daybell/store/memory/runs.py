"""Workflow runs, steps of durable functions, and events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from msgspec.structs import asdict

from daybell.core import checks
from daybell.core.checks import check_limit
from daybell.core.event import (
    Event,
    Facts,
    NewEvent,
    NewStep,
    NodeWait,
    Published,
    Step,
    StepKind,
    check_cursor,
    check_event,
    check_steps,
    close_wait,
    matches,
    record_step,
    result_of,
)
from daybell.core.execution import AttemptSpan, Claimed, Enqueued, Execution, NewExecution, State
from daybell.core.lifecycle import after_cancel
from daybell.core.units import Instant
from daybell.core.views import Page, bytes_of, cut_page
from daybell.core.workflow.run import Plan, RunDetail
from daybell.errors import ExecutionNotFound
from daybell.store import run_driver
from daybell.store.memory import progress, queue, waits
from daybell.store.memory.progress import queued_room
from daybell.store.memory.queue import holds
from daybell.store.memory.tables import Row, RunRow, StepRow, Tables, Wait, shown_state
from daybell.store.run_driver import select_waits
from daybell.store.wakeups import Signal


def expand(
    tables: Tables, now: Instant, tenant: str, worker: UUID, claimed: Claimed, plan: Plan
) -> bool:
    row = tables.rows.get((tenant, claimed.id))
    if row is None or not holds(row, worker, claimed):
        return False
    is_cancelled = row.execution.cancel_requested_at is not None
    if row.key in tables.runs or not is_cancelled:
        progress.begin(tables, row, plan, now)
    else:
        queue.leave(tables, row, after_cancel(claimed), now)
    return True


def advance(tables: Tables, now: Instant, tenant: str, run: UUID) -> bool:
    return progress.advance_run(tables, (tenant, run), (), now)


def advance_runs(tables: Tables, now: Instant, limit: int) -> int:
    check_limit(limit)
    found = todo(tables)[:limit]
    for key in found:
        progress.advance_run(tables, key, (), now)
    return len(found)


def get_run(tables: Tables, now: Instant, tenant: str, id: UUID) -> RunDetail | None:
    row = tables.runs.get((tenant, id))
    return None if row is None else describe_run(tables, now, tenant, row)


def node_attempts(
    tables: Tables, tenant: str, id: UUID, limit: int
) -> dict[UUID, tuple[AttemptSpan, ...]]:
    check_limit(limit)
    run = tables.runs.get((tenant, id))
    nodes = [] if run is None else [one.node for one in run.nodes.values()]
    found = (
        tables.rows.get((tenant, one.execution))
        for one in nodes
        if one.execution is not None and one.group is None
    )
    return run_driver.newest_spans(
        ((row.execution.id, span) for row in found if row for span in spans(row)), limit
    )


def rerun(
    tables: Tables,
    now: Instant,
    tenant: str,
    id: UUID,
    new: NewExecution,
    labels: Sequence[str] | None,
) -> Enqueued:
    answer = queue.rerun(tables, (tenant, id), new, labels, now)
    tables.signals[Signal.CLAIM] = None
    return answer


def describe_run(tables: Tables, now: Instant, tenant: str, row: RunRow) -> RunDetail:
    nodes = [one for one in row.nodes.values() if one.node.group is None]
    # Of what was taken over, too, whose parent is another run.
    found = (tables.rows.get((tenant, one.node.execution)) for one in nodes if one.node.execution)
    executions = {
        one.execution.id: standing(one.execution, now) for one in found if one is not None
    }
    nodes.sort(key=lambda one: one.node.order)
    return RunDetail(
        row.run,
        tuple(run_driver.view_node(one.node, one.result, executions) for one in nodes),
        tables.rows[tenant, row.run.id].execution.finished_at,
    )


def standing(one: Execution, now: Instant) -> run_driver.ExecutionStatus:
    return run_driver.ExecutionStatus(shown_state(one, now), one.started_at, one.run_at, one.reason)


def spans(row: Row) -> Iterator[AttemptSpan]:
    """The attempts at an execution, ended or not."""
    for one in row.attempts:
        yield AttemptSpan(one.attempt, one.outcome, one.worker, one.started_at, one.ended_at)
    last = row.execution
    if last.outcome is not None or last.state is State.RUNNING:
        yield AttemptSpan(
            last.attempt, last.outcome, last.worker, last.started_at, last.finished_at
        )


def todo(tables: Tables) -> list[progress.RunKey]:
    """Runs in which something can be done now."""
    blocked = {key[0] for key, row in tables.runs.items() if row.run.is_blocked}
    free = {tenant for tenant in blocked if queued_room(tables, tenant) > 0}
    return [
        key
        for key, row in tables.runs.items()
        if (row.run.is_todo or (row.run.is_blocked and key[0] in free))
        and progress.is_in_nobodys_hands(tables, key)
    ]


# Steps of durable functions, and events.


def steps(tables: Tables, tenant: str, id: UUID) -> list[Step]:
    keys = sorted(key for key in tables.steps if key[:2] == (tenant, id))
    return [tables.steps[key].step for key in keys]


def record(
    tables: Tables, now: Instant, tenant: str, worker: UUID, steps: Sequence[NewStep]
) -> list[Step | None]:
    check_steps(steps)
    answers: list[Step | None] = []
    for new in steps:
        row = tables.rows.get((tenant, new.id))
        if row is None or not holds(row, worker, new):
            answers.append(None)
        else:
            answers.append(write(tables, row, new, now))
    return answers


def publish(tables: Tables, now: Instant, tenant: str, event: NewEvent) -> Published:
    check_event(event)
    if event.execution is not None and (tenant, event.execution) not in tables.rows:
        raise ExecutionNotFound(f"no execution {event.execution}")
    key = tenant, event.source, event.id
    if key in tables.events:
        return Published(created=False)
    kept = Event(received_at=now, **asdict(event))
    last = next(reversed(tables.events.values()), (0, None))[0]
    tables.events[key] = last + 1, kept
    return Published(True, waits.deliver(tables, tenant, kept, now))


def time_out_waits(tables: Tables, now: Instant, limit: int) -> int:
    checks.check_limit(limit)
    return waits.time_out(tables, limit, now)


def node_waits(
    tables: Tables, now: Instant, run: UUID, event: NewEvent | None, limit: int
) -> list[NodeWait]:
    checks.check_limit(limit)
    facts = None if event is None else Facts(event.data)
    rows = [
        (key[1], *found, wait.event, wait.match, wait.timeout_at)
        for key, wait in sorted(tables.waits.items(), key=lambda pair: pair[0])
        if (event is None or wait.event == event.name)
        and (wait.timeout_at is None or wait.timeout_at >= now)
        and (found := waits.place_in(tables, key[:2], run)) is not None
    ]
    return select_waits(rows, facts, limit)


def list_events(tables: Tables, tenant: str, limit: int, cursor: str | None) -> Page[Event]:
    checks.check_limit(limit)
    before = check_cursor(cursor)
    found = [
        (number, event)
        for (owner, _, _), (number, event) in tables.events.items()
        if owner == tenant and (before is None or number < before)
    ]
    page = cut_page(
        sorted(found, key=lambda one: -one[0]),
        limit,
        size=lambda one: bytes_of(one[1].data),
        cursor=lambda one: str(one[0]),
    )
    return Page(items=tuple(event for _, event in page.items), next_cursor=page.next_cursor)


def write(tables: Tables, row: Row, new: NewStep, now: Instant) -> Step:
    """Put a step on record, and answer what is there now."""
    key = *row.key, new.n
    before = tables.steps.get(key)
    step, event = record_step(new, None if before is None else before.step, now=now), None
    if before is not None and step is before.step:
        return step
    if step.kind is StepKind.WAIT:
        found = earlier_event(tables, row, new, until=step.wake_at)
        if found is not None:
            step, event = close_wait(step, result_of(found), now=now), (found.source, found.id)
    tables.steps[key] = StepRow(step=step, event=event)
    tables.waits.pop(key, None)
    if not step.is_done and new.event is not None and step.kind is StepKind.WAIT:
        tables.waits[key] = Wait(event=new.event, match=new.match, timeout_at=step.wake_at)
    return step


def earlier_event(
    tables: Tables, row: Row, wait: NewStep, *, until: Instant | None
) -> Event | None:
    """The first event that fits, came in time, and that no other wait of the execution got."""
    execution = row.execution
    taken = {step.event for key, step in tables.steps.items() if key[:2] == row.key}
    for (owner, *name), (_, event) in tables.events.items():
        if (
            owner == execution.tenant
            and event.name == wait.event
            and event.execution in (None, execution.id)
            and event.received_at >= execution.created_at
            and (until is None or event.received_at <= until)
            and tuple(name) not in taken
            and matches(wait.match, event.data)
        ):
            return event
    return None


def remove_events(tables: Tables, before: Instant) -> int:
    old = [key for key, (_, event) in tables.events.items() if event.received_at < before]
    for key in old:
        del tables.events[key]
    return len(old)


def remove_steps(tables: Tables) -> int:
    """Take away steps and waits of executions that are gone."""
    removed = 0
    for table in (tables.steps, tables.waits):
        old = [key for key in table if key[:2] not in tables.rows]
        for key in old:
            del table[key]
        removed += len(old)
    return removed
