"""Gates, quotas, ends and cancellation of executions, progress of workflow runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from daybell.core.checks import check_capacity, check_limit
from daybell.core.execution import TERMINAL, Cancellation, Execution, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Occasion, target
from daybell.core.limits import check_name
from daybell.core.schedule import (
    DEPENDENCIES,
    Miscount,
    gate_of,
    is_backfill,
    is_job_gate,
    is_schedule_gate,
    job_of_gate,
    room_of,
)
from daybell.core.units import Instant
from daybell.core.workflow.progress import advance, record_ends
from daybell.core.workflow.run import (
    UNSTARTED,
    Advance,
    Node,
    NodeEnd,
    NodeState,
    Plan,
    ReadFailed,
    ReadItemResults,
    ReadLeaves,
    ReadNodes,
    ReadReady,
    ReadResults,
    ReadSpecs,
    ReadTodo,
    ReadUnstarted,
    RunEnd,
    RunQuery,
    Start,
    StopReason,
)
from daybell.errors import UsageError, shown
from daybell.store import run_driver
from daybell.store.admin import (
    JOBS_WAIT_SECONDS,
    QUEUED_WAIT_SECONDS,
    minute_of,
    quota_error,
    rest_of_minute,
)
from daybell.store.memory.tables import NodeRow, Row, RunRow, Tables, shown_state
from daybell.store.run_driver import node_end
from daybell.store.wakeups import Signal

# How much a tenant may use.


def unfinished(tables: Tables, tenant: str) -> int:
    """How many executions a tenant has that have not ended."""
    rows = (row.execution for row in tables.live.values())
    return sum(one.tenant == tenant and one.state not in TERMINAL for one in rows)


def charge(
    tables: Tables, tenant: str, made: int, now: Instant, *, is_refused: bool = True
) -> None:
    """Count executions that were made just now, and refuse them if that is too many. Ticks of
    schedules are only counted.
    """
    quotas = tables.tenants[tenant].quotas
    if made == 0:
        return
    if is_refused and quotas.queued is not None and unfinished(tables, tenant) > quotas.queued:
        raise quota_error(tenant, "queued", most=quotas.queued, wait=QUEUED_WAIT_SECONDS)
    if quotas.per_minute is None:
        return
    minute = tenant, minute_of(now)
    tables.minutes[minute] = tables.minutes.get(minute, 0) + made
    if is_refused and tables.minutes[minute] > quotas.per_minute:
        raise quota_error(tenant, "per_minute", most=quotas.per_minute, wait=rest_of_minute(now))


def queued_room(tables: Tables, tenant: str) -> float:
    """How many more unfinished executions a tenant may have."""
    most = tables.tenants[tenant].quotas.queued
    return inf if most is None else most - unfinished(tables, tenant)


def room(tables: Tables, tenant: str, limit: int) -> int:
    """How many of these may be claimed."""
    most = tables.tenants[tenant].quotas.running
    if most is None:
        return limit
    rows = (row.execution for row in tables.live.values())
    # A workflow that waits for its nodes is in nobody's hands.
    running = sum(one.tenant == tenant and is_held(one) for one in rows)
    return max(0, min(limit, most - running))


def is_held(one: Execution) -> bool:
    return one.state is State.RUNNING and one.worker is not None


def count_jobs(tables: Tables, tenant: str) -> int:
    """How many jobs a tenant has that are not deleted."""
    return sum(owner == tenant and not row.is_deleted for (owner, _), row in tables.jobs.items())


def check_jobs(tables: Tables, tenant: str, before: int) -> None:
    """Refuse jobs that are one too many; `before` is how many there were."""
    most = tables.tenants[tenant].quotas.jobs
    after = count_jobs(tables, tenant)
    if most is not None and after > before and after > most:
        raise quota_error(tenant, "jobs", most=most, wait=JOBS_WAIT_SECONDS)


# Admission: at most so many of a kind at a time.


def set_gates(tables: Tables, now: Instant, tenant: str, capacities: dict[str, int]) -> None:
    for gate, capacity in capacities.items():
        check_name(gate, what="gate")
        check_capacity(gate, capacity)
        tables.gates[tenant, gate] = capacity
        admit_at(tables, tenant, gate, now)


def admit(tables: Tables, now: Instant, limit: int) -> int:
    check_limit(limit)
    admitted = 0
    for tenant, gate in tables.gates:
        admitted += admit_at(tables, tenant, gate, now, limit - admitted)
    return admitted


def recount_gates(tables: Tables) -> list[Miscount]:
    return []  # here, who is inside is counted every time


def find_gate(tables: Tables, tenant: str, gate: str) -> None:
    """Make sure that there is such a gate. Raises UsageError for one that is not made by itself."""
    if (tenant, gate) not in tables.gates:
        room = room_of(gate)
        if room is None:
            raise UsageError(f"no gate named {shown(gate)}; create it with set_gates", field="gate")
        tables.gates[tenant, gate] = room


def remove_gates(tables: Tables) -> int:
    """Take away the gates that were made by themselves, and that nothing refers to."""
    used = {(row.execution.tenant, row.execution.gate) for row in tables.rows.values()}
    used |= {
        (one.tenant, gate_of(one.job, one.id)) for one in tables.schedules.values() if one.own_gate
    }
    idle = [key for key in tables.gates if key not in used and is_left_over(tables, *key)]
    for key in idle:
        del tables.gates[key]
    return len(idle)


def is_left_over(tables: Tables, tenant: str, gate: str) -> bool:
    if is_backfill(gate) or is_schedule_gate(gate):
        return True
    job = tables.jobs.get((tenant, job_of_gate(gate))) if is_job_gate(gate) else None
    return job is not None and job.is_deleted


def at_gate(tables: Tables, tenant: str, gate: str) -> list[Row]:
    """What has come to a gate and has not ended."""
    return [
        row
        for row in tables.live.values()
        if (row.execution.tenant, row.execution.gate) == (tenant, gate)
    ]


def inside(tables: Tables, tenant: str, gate: str) -> list[Row]:
    """Who has a slot."""
    return [row for row in at_gate(tables, tenant, gate) if row.has_slot]


def waiting(tables: Tables, tenant: str, gate: str, now: Instant) -> list[Row]:
    """Who is due and waits for a slot; not who waits for something else, with the slot in hand."""
    return [
        row
        for row in at_gate(tables, tenant, gate)
        if row.execution.state is State.WAITING and not row.has_slot and row.execution.run_at <= now
    ]


def admit_at(
    tables: Tables, tenant: str, gate: str | None, now: Instant, limit: int | None = None
) -> int:
    """Let in what waits at a gate, is due and finds room; answer how many."""
    if gate is None:
        return 0
    find_gate(tables, tenant, gate)
    room = tables.gates[tenant, gate] - len(inside(tables, tenant, gate))
    found = waiting(tables, tenant, gate, now)
    found.sort(key=lambda row: (row.execution.priority, row.execution.run_at, row.execution.id))
    admitted = found[: max(0, room if limit is None else min(room, limit))]
    if admitted:
        tables.signals[Signal.CLAIM] = None
    for row in admitted:
        execution = row.execution
        if execution.reason != DEPENDENCIES:  # else it waits on, with the slot in hand
            state = target(execution.state, Occasion.RELEASED)
            execution = replace(execution, state=state, reason=None)
        tables.put(replace(row, execution=execution, has_slot=True))
    return len(admitted)


# What an end sets off, and the ends of what no worker has begun.


def finish(tables: Tables, row: Row, now: Instant) -> None:
    """Keep an ended execution, tell its schedule and its run, and hand its slot on."""
    tables.put(replace(row, has_slot=False))
    tell(tables, row.execution, now)
    if row.execution.node is not None:
        tell_run(tables, row)
    if row.has_slot:
        admit_at(tables, row.execution.tenant, row.execution.gate, now)


def tell_run(tables: Tables, row: Row) -> None:
    """Let a run hear of the end of a node, before the transaction is over."""
    execution = row.execution
    assert execution.parent is not None, "a node has a run"
    tables.ended.append(((execution.tenant, execution.parent), node_end(execution, row.attempts)))
    if execution.state is State.DEAD:  # if need be, the run is the dead letter
        discarded = replace(execution, is_discarded=True)
        tables.put(replace(row, execution=discarded, has_slot=False))


def tell(tables: Tables, ended: Execution, now: Instant) -> None:
    """Let the schedule that fired an execution know how it ended."""
    schedule = tables.schedule_of(ended)
    if schedule is None or is_backfill(ended.gate):
        return
    key = schedule.tenant, schedule.id
    if ended.state is State.SUCCEEDED:
        known = [at for at in (schedule.succeeded_for, ended.scheduled_for) if at is not None]
        schedule = replace(schedule, failures=0, succeeded_for=max(known, default=None))
    elif ended.state is State.DEAD:
        schedule = replace(schedule, failures=schedule.failures + 1)
    # What a newer one has replaced is not what a fixed delay waits for.
    at, last_at = ended.scheduled_for, schedule.last_at
    is_newest = at is None or last_at is None or at >= last_at
    if schedule.delay is not None and schedule.next_at is None and is_newest:
        schedule = replace(schedule, next_at=now + schedule.delay)
        tables.moved_at[key] = now
        tables.signals[Signal.SCHEDULES] = None
    tables.schedules[key] = schedule
    most = tables.pause_after[key]
    if ended.state is State.DEAD and most is not None and schedule.failures >= most:
        note = f"paused after {schedule.failures} failures in a row"
        pause(tables, schedule.tenant, schedule.job, now, note, again=False)


def pause(
    tables: Tables, tenant: str, name: str, now: Instant, note: str, *, again: bool = True
) -> None:
    """Stop a job's schedules. One that is paused gets the new note, if it is `again`."""
    row = tables.job(tenant, name)
    if row.paused_at is not None and not again:
        return
    paused_at = now if row.paused_at is None else row.paused_at
    tables.jobs[tenant, name] = replace(row, paused_at=paused_at, pause_note=note)
    for key, schedule in list(tables.schedules.items()):
        if (schedule.tenant, schedule.job) == (tenant, name):
            tables.schedules[key] = replace(schedule, is_paused=True)


def end_unstarted(
    tables: Tables, row: Row, event: Occasion, now: Instant, *, reason: str | None = None
) -> None:
    """End what has not started."""
    row = tables.rows[row.key]  # as it is by now: the end before this one may have given it a slot
    state = target(shown_state(row.execution, now), event)
    ended = replace(row.execution, state=state, finished_at=now, reason=reason)
    finish(tables, replace(row, execution=ended), now)


RunKey = tuple[str, UUID]


def begin(tables: Tables, row: Row, plan: Plan, now: Instant) -> None:
    """Keep the nodes of a run that begins, and start the first."""
    execution = row.execution
    begun = replace(execution, worker=None, started_at=now)
    tables.put(replace(row, execution=begun, lease=None))
    if row.key not in tables.runs:  # or it begins again
        run_driver.check_level(level_of(tables, row))
        nodes = {new.node.label: NodeRow(new.node, new.spec, new.input) for new in plan.nodes}
        tables.runs[row.key] = RunRow(plan.run(execution.id), nodes)
    if execution.cancel_requested_at is not None:
        stop(tables, row.key)
    advance_run(tables, row.key, (), now)


def level_of(tables: Tables, row: Row) -> int:
    """How deep inside others a run is: it is a node of the one around it, that one of the next."""
    level = 1
    while row.execution.node is not None and row.execution.parent is not None:
        row = tables.rows[row.execution.tenant, row.execution.parent]
        level += 1
    return level


def settle_runs(tables: Tables, now: Instant) -> None:
    """Let runs know which of their nodes have ended in this transaction."""
    while tables.ended:
        by_run: dict[RunKey, list[NodeEnd]] = {}
        for key, end in tables.ended:
            by_run.setdefault(key, []).append(end)
        tables.ended = []
        for key, ends in by_run.items():
            advance_run(tables, key, ends, now)


def advance_run(
    tables: Tables,
    key: RunKey,
    ended: Sequence[NodeEnd],
    now: Instant,
    *,
    just_note: bool = False,
) -> bool:
    """Do a bounded part of what can be done in a run; True: there is more."""
    if not is_in_nobodys_hands(tables, key):
        return False
    row = tables.runs[key]
    going = (record_ends if just_note else advance)(row.run, ended, mint=mint)
    step = run_driver.drive(
        going, lambda ask: answer(row.nodes, ask), lambda: queued_room(tables, key[0])
    )
    write(tables, key, step, now)
    gone = start_all(tables, key, step.starts, now)
    if step.end is not None:
        end_run(tables, key, step.end, now)
    if gone:
        return advance_run(tables, key, gone, now, just_note=True)
    return step.run.is_todo


def is_in_nobodys_hands(tables: Tables, key: RunKey) -> bool:
    """Whether it is a run that has begun and has not ended. Before it begins again, it can only be
    stopped.
    """
    if key not in tables.runs:
        return False
    execution, run = tables.rows[key].execution, tables.runs[key].run
    is_stopped = run.stopping is StopReason.CANCEL and execution.state not in TERMINAL
    return execution.worker is None and (is_stopped or execution.state is State.RUNNING)


def answer(nodes: dict[str, NodeRow], ask: RunQuery) -> Any:
    """What the store knows of a run's nodes."""
    match ask:
        case ReadNodes(labels):
            return [nodes[label].node for label in labels if label in nodes]
        case ReadTodo(limit):
            return in_order(row.node for row in nodes.values() if row.node.is_todo)[:limit]
        case ReadReady(limit):
            ready = (row.node for row in nodes.values() if row.node.state is NodeState.READY)
            return in_order(ready)[:limit]
        case ReadUnstarted(limit):
            return in_order(r.node for r in nodes.values() if r.node.state in UNSTARTED)[:limit]
        case ReadSpecs(labels):
            return {label: (nodes[label].spec, nodes[label].input) for label in labels}
        case ReadResults(labels):
            found = {label: nodes[label].result for label in labels if label in nodes}
        case ReadItemResults(group):
            found = {k: row.result for k, row in nodes.items() if row.node.group == group}
        case ReadFailed(limit):
            failed = (row.node for row in nodes.values() if row.node.state is NodeState.FAILED)
            return in_order(node for node in failed if node.group is None)[:limit]
        case ReadLeaves():
            return in_order(row.node for row in nodes.values() if row.node.is_leaf)
    return {label: text for label, text in found.items() if text is not None}


def in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.order)


def write(tables: Tables, key: RunKey, step: Advance, now: Instant) -> None:
    """Keep what has changed of a run and its nodes."""
    nodes = dict(tables.runs[key].nodes)
    for new in step.new:
        nodes[new.node.label] = NodeRow(run_driver.stamp_node(new.node, now), new.spec, new.input)
    for node in step.changed:
        nodes[node.label] = replace(nodes[node.label], node=run_driver.stamp_node(node, now))
    for label, result in step.results.items():
        nodes[label] = replace(nodes[label], result=result)
    tables.runs[key] = RunRow(step.run, nodes)


def start_all(tables: Tables, key: RunKey, starts: Sequence[Start], now: Instant) -> list[NodeEnd]:
    """Create executions of nodes; answers the ends of those whose job is gone."""
    gone: list[NodeEnd] = []
    for start in starts:
        row = started(tables, tables.rows[key], start, now)
        if row is None:
            gone.append(run_driver.missing_job_end(start))
        else:
            tables.put(row)
            tables.signals[Signal.CLAIM] = None
    return gone


def started(tables: Tables, run: Row, start: Start, now: Instant) -> Row | None:
    """The execution of a node. It passes no gate: the run has passed its own."""
    job, version = run.execution.job, run.execution.version
    queue, priority, expires = run.execution.queue, run.execution.priority, None
    if start.job is not None:
        named = tables.jobs.get((run.execution.tenant, start.job))
        if named is None or named.is_deleted:
            return None
        job, version = start.job, named.current.version
        definition = named.current.definition
        queue, priority, expires = definition.queue, definition.priority, definition.expires
    execution = Execution(
        id=start.id,
        tenant=run.execution.tenant,
        job=job,
        version=version,
        state=State.QUEUED,
        queue=start.queue or queue,
        priority=priority if start.priority is None else start.priority,
        args=start.args,
        attempt=1,
        failures=0,
        crashes=0,
        created_at=now,
        run_at=now,
        scheduled_for=run.execution.scheduled_for,
        expires_at=None if expires is None else now + expires,
        retries=start.retries,
        timeout=start.timeout,
        parent=run.execution.id,
        node=start.label,
    )
    return Row(execution=execution, needs=start.needs)


def end_run(tables: Tables, key: RunKey, how: RunEnd, now: Instant) -> None:
    """The last node has ended, and with it the run."""
    row = tables.rows[key]
    ended = replace(
        row.execution,
        state=how.state,
        outcome=run_driver.OUTCOMES[how.state],
        result=how.result,
        error=how.error,
        reason=how.reason,
        finished_at=now,
    )
    finish(tables, replace(row, execution=ended), now)


def stop(tables: Tables, key: RunKey) -> list[Row]:
    """Have nothing more started in a run; answers the executions that are to be cancelled."""
    row = tables.runs[key]
    run = replace(row.run, stopping=StopReason.CANCEL, is_todo=True)
    tables.runs[key] = replace(row, run=run)
    return [
        child
        for child in tables.live.values()
        if (child.execution.tenant, child.execution.parent) == key
        and child.execution.node is not None
        and child.execution.state not in TERMINAL
    ]


# Cancelling, by whomever.


def cancel(tables: Tables, row: Row | None, now: Instant) -> Cancellation:
    """End what has not started; ask what runs to end."""
    if row is None:
        return Cancellation.UNKNOWN
    execution = row.execution
    if execution.state in TERMINAL:
        return Cancellation.FINISHED
    if execution.state is not State.RUNNING and row.key not in tables.runs:
        end_unstarted(tables, row, Occasion.CANCELLED, now)
        return Cancellation.CANCELLED
    ask(tables, row, now)
    if execution.worker is None:
        return stop_run(tables, row, now)
    tables.signals[Signal.ASK] = None
    return Cancellation.REQUESTED


def ask(tables: Tables, row: Row, now: Instant) -> None:
    """Note that an execution is to end, unless that was asked for before."""
    asked_at = row.execution.cancel_requested_at or now
    tables.put(replace(row, execution=replace(row.execution, cancel_requested_at=asked_at)))


def stop_run(tables: Tables, row: Row, now: Instant) -> Cancellation:
    """Cancel the nodes of a run, and of the runs inside it. It may be over with that."""
    runs = [row.key]
    for key in runs:  # it grows: those inside come after those around them
        for child in stop(tables, key):
            if child.execution.state is State.RUNNING and child.execution.worker is None:
                ask(tables, child, now)
                runs.append(child.key)
            else:
                cancel(tables, child, now)
    for key in reversed(runs):  # the end of one may be that of the run around it
        settle_runs(tables, now)
        advance_run(tables, key, (), now)
    settle_runs(tables, now)
    is_over = tables.rows[row.key].execution.state in TERMINAL
    return Cancellation.CANCELLED if is_over else Cancellation.REQUESTED
