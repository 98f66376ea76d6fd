"""Open waits: what ends them, and what becomes of their executions then."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from daybell.core.event import Event, Facts, close_wait, result_of, wait_key
from daybell.core.execution import TERMINAL, State
from daybell.core.lifecycle import FOR_EVENT, Occasion, target
from daybell.core.units import Instant
from daybell.store.memory.tables import Row, StepRow, Tables
from daybell.store.wakeups import Signal


def has_reason(tables: Tables, row: Row, reason: str | None) -> bool:
    """Whether what an execution says it waits for is still to come: of an event, that may not be
    so any more.
    """
    return reason != FOR_EVENT or bool(waits_of(tables, *row.key))


def waits_of(tables: Tables, tenant: str, id: UUID) -> list[tuple[str, UUID, int]]:
    """The keys of an execution's open waits, in its order."""
    return sorted(key for key in tables.waits if key[:2] == (tenant, id))


def place_in(tables: Tables, key: tuple[str, UUID], run: UUID) -> tuple[str, str] | None:
    """The label of an unfinished execution, and that of the node of this run which it is, or is
    inside of; None: it is in no such run.
    """
    label = None
    while (row := tables.rows.get(key)) is not None:
        one = row.execution
        if one.node is None or one.parent is None or one.state in TERMINAL:
            return None
        label = label or one.node
        if one.parent == run:
            return label, one.node
        key = one.tenant, one.parent
    return None


def deliver(tables: Tables, tenant: str, event: Event, now: Instant) -> int:
    """Give an event to those who wait for it; answer how many executions got it."""
    facts = Facts(event.data)
    keys = set(facts.keys)
    fitting = sorted(
        key
        for key, wait in tables.waits.items()
        if key[0] == tenant
        and wait.event == event.name
        and event.execution in (None, key[1])
        and (wait.timeout_at is None or wait.timeout_at >= now)
        and wait_key(wait.match) in keys
        and facts.meet(wait.match)
    )
    firsts = {key[1]: key for key in reversed(fitting)}
    name = event.source, event.id
    return sum(end_wait(tables, key, result_of(event), name, now) for key in firsts.values())


def time_out(tables: Tables, limit: int, now: Instant) -> int:
    """End the waits whose time is over; answer how many."""
    over = [
        (wait.timeout_at, key)
        for key, wait in tables.waits.items()
        if wait.timeout_at is not None and wait.timeout_at <= now
    ]
    firsts = {key[:2]: key for _, key in reversed(sorted(over)[:limit])}
    return sum(end_wait(tables, key, None, None, now) for key in firsts.values())


def may_run(row: Row, now: Instant) -> bool:
    """Whether it is in somebody's hands or can be claimed. Then it may be about to wait: that none
    of its waits is open tells it that one has ended.
    """
    return row.execution.state is not State.WAITING and row.execution.run_at <= now


def end_wait(
    tables: Tables,
    key: tuple[str, UUID, int],
    result: str | None,
    event: tuple[str, str] | None,
    now: Instant,
) -> bool:
    """End one wait of an execution; False if it is over anyway."""
    row = tables.rows.get(key[:2])
    for open_one in waits_of(tables, *key[:2]) if row is None or may_run(row, now) else [key]:
        del tables.waits[open_one]
    if row is None or row.execution.state in TERMINAL:
        return False
    step = tables.steps[key].step
    tables.steps[key] = StepRow(step=close_wait(step, result, now=now), event=event)
    execution = row.execution
    if execution.state is State.WAITING and execution.reason == FOR_EVENT:
        state = target(execution.state, Occasion.RELEASED)
        resumed = replace(execution, state=state, run_at=now, reason=None)
        tables.put(replace(row, execution=resumed))
        tables.signals[Signal.CLAIM] = None
    return True
