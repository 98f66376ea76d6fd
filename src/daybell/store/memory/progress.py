"""How runs of workflows go on, in the transaction that has ended one of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Instant
from daybell.core.progress import advance, note
from daybell.core.run import (
    UNSTARTED,
    Advance,
    Ask,
    Failed,
    ItemResults,
    Leaves,
    Node,
    NodeEnd,
    NodeState,
    Plan,
    Read,
    Ready,
    Results,
    RunEnd,
    Specs,
    Start,
    Stopping,
    Todo,
    Unstarted,
)
from daybell.store import driving
from daybell.store.ids import mint
from daybell.store.memory import endings, quotas
from daybell.store.memory.tables import NodeRow, Row, RunRow, Tables
from daybell.store.wakeups import Signal

RunKey = tuple[str, UUID]


def begin(tables: Tables, row: Row, plan: Plan, now: Instant) -> None:
    """Keep the nodes of a run that begins, and start the first."""
    execution = row.execution
    begun = replace(execution, worker=None, started_at=now)
    tables.put(replace(row, execution=begun, lease=None))
    if row.key not in tables.runs:  # or it begins again
        driving.check_level(level_of(tables, row))
        nodes = {new.node.label: NodeRow(new.node, new.spec, new.input) for new in plan.nodes}
        tables.runs[row.key] = RunRow(plan.run(execution.id), nodes)
    if execution.cancel_requested_at is not None:
        stop(tables, row.key)
    go_on(tables, row.key, (), now)


def level_of(tables: Tables, row: Row) -> int:
    """How deep inside others a run is: it is a node of the one around it, that one of the next."""
    level = 1
    while row.execution.node is not None and row.execution.parent is not None:
        row = tables.rows[row.execution.tenant, row.execution.parent]
        level += 1
    return level


def settle(tables: Tables, now: Instant) -> None:
    """Let runs know which of their nodes have ended in this transaction."""
    while tables.ended:
        by_run: dict[RunKey, list[NodeEnd]] = {}
        for key, end in tables.ended:
            by_run.setdefault(key, []).append(end)
        tables.ended = []
        for key, ends in by_run.items():
            go_on(tables, key, ends, now)


def go_on(
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
    going = (note if just_note else advance)(row.run, ended, mint=mint)
    step = driving.drive(
        going, lambda ask: answer(row.nodes, ask), lambda: quotas.queued_room(tables, key[0])
    )
    write(tables, key, step, now)
    gone = start_all(tables, key, step.starts, now)
    if step.end is not None:
        end(tables, key, step.end, now)
    if gone:
        return go_on(tables, key, gone, now, just_note=True)
    return step.run.is_todo


def is_in_nobodys_hands(tables: Tables, key: RunKey) -> bool:
    """Whether it is a run that has begun and has not ended. Before it begins again, it can only be
    stopped.
    """
    if key not in tables.runs:
        return False
    execution, run = tables.rows[key].execution, tables.runs[key].run
    is_stopped = run.stopping is Stopping.CANCEL and execution.state not in TERMINAL
    return execution.worker is None and (is_stopped or execution.state is State.RUNNING)


def answer(nodes: dict[str, NodeRow], ask: Ask) -> Any:
    """What the store knows of a run's nodes."""
    match ask:
        case Read(labels):
            return [nodes[label].node for label in labels if label in nodes]
        case Todo(limit):
            return in_order(row.node for row in nodes.values() if row.node.is_todo)[:limit]
        case Ready(limit):
            ready = (row.node for row in nodes.values() if row.node.state is NodeState.READY)
            return in_order(ready)[:limit]
        case Unstarted(limit):
            return in_order(r.node for r in nodes.values() if r.node.state in UNSTARTED)[:limit]
        case Specs(labels):
            return {label: (nodes[label].spec, nodes[label].input) for label in labels}
        case Results(labels):
            found = {label: nodes[label].result for label in labels if label in nodes}
        case ItemResults(group):
            found = {k: row.result for k, row in nodes.items() if row.node.group == group}
        case Failed(limit):
            failed = (row.node for row in nodes.values() if row.node.state is NodeState.FAILED)
            return in_order(node for node in failed if node.group is None)[:limit]
        case Leaves():
            return in_order(row.node for row in nodes.values() if row.node.is_leaf)
    return {label: text for label, text in found.items() if text is not None}


def in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.order)


def write(tables: Tables, key: RunKey, step: Advance, now: Instant) -> None:
    """Keep what has changed of a run and its nodes."""
    nodes = dict(tables.runs[key].nodes)
    for new in step.new:
        nodes[new.node.label] = NodeRow(driving.stamped(new.node, now), new.spec, new.input)
    for node in step.changed:
        nodes[node.label] = replace(nodes[node.label], node=driving.stamped(node, now))
    for label, result in step.results.items():
        nodes[label] = replace(nodes[label], result=result)
    tables.runs[key] = RunRow(step.run, nodes)


def start_all(tables: Tables, key: RunKey, starts: Sequence[Start], now: Instant) -> list[NodeEnd]:
    """Create executions of nodes; answers the ends of those whose job is gone."""
    gone: list[NodeEnd] = []
    for start in starts:
        row = started(tables, tables.rows[key], start, now)
        if row is None:
            gone.append(driving.without_job(start))
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


def end(tables: Tables, key: RunKey, how: RunEnd, now: Instant) -> None:
    """The last node has ended, and with it the run."""
    row = tables.rows[key]
    ended = replace(
        row.execution,
        state=how.state,
        outcome=driving.OUTCOMES[how.state],
        result=how.result,
        error=how.error,
        reason=how.reason,
        finished_at=now,
    )
    endings.finish(tables, replace(row, execution=ended), now)


def stop(tables: Tables, key: RunKey) -> list[Row]:
    """Have nothing more started in a run; answers the executions that are to be cancelled."""
    row = tables.runs[key]
    run = replace(row.run, stopping=Stopping.CANCEL, is_todo=True)
    tables.runs[key] = replace(row, run=run)
    return [
        child
        for child in tables.live.values()
        if (child.execution.tenant, child.execution.parent) == key
        and child.execution.node is not None
        and child.execution.state not in TERMINAL
    ]
