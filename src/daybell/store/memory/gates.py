"""Admission: at most so many of a kind at a time."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event, target
from daybell.core.limits import check_name
from daybell.core.overlap import (
    Miscount,
    gate_of,
    is_backfill,
    is_job_gate,
    is_schedule_gate,
    job_of_gate,
    room_of,
)
from daybell.errors import UsageError, shown
from daybell.store.checks import check_capacity, check_limit
from daybell.store.memory.tables import Part, Row, Tables
from daybell.store.wakeups import Signal


class MemoryGates(Part):
    """See `protocol.Gates`."""

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        with self._begin(tenant) as tables:
            for gate, capacity in capacities.items():
                check_name(gate, what="gate")
                check_capacity(gate, capacity)
                tables.gates[tenant, gate] = capacity
                admit(tables, tenant, gate, self._clock())

    async def admit(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        with self._begin() as tables:
            admitted = 0
            for tenant, gate in tables.gates:
                admitted += admit(tables, tenant, gate, self._clock(), limit - admitted)
            return admitted

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        del mend
        with self._begin():
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


def admit(
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
            state = target(execution.state, Event.RELEASED)
            execution = replace(execution, state=state, reason=None)
        tables.put(replace(row, execution=execution, has_slot=True))
    return len(admitted)
