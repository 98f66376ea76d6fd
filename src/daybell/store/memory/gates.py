"""Admission: at most so many of a kind at a time."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.lifecycle import Event, target
from daybell.core.limits import check_name
from daybell.store.checks import check_capacity, check_limit
from daybell.store.memory.tables import Part, Row, Tables


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


def at_gate(tables: Tables, tenant: str, gate: str) -> list[Row]:
    """All that ever came to a gate."""
    return [
        row
        for row in tables.rows.values()
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
    room = tables.gates[tenant, gate] - len(inside(tables, tenant, gate))
    found = waiting(tables, tenant, gate, now)
    found.sort(key=lambda row: (row.execution.priority, row.execution.run_at, row.execution.id))
    admitted = found[: max(0, room if limit is None else min(room, limit))]
    for row in admitted:
        state = target(row.execution.state, Event.RELEASED)
        tables.put(
            replace(row, execution=replace(row.execution, state=state, reason=None), has_slot=True)
        )
    return len(admitted)
