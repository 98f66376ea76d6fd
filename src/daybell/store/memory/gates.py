"""Admission: at most so many of a kind at a time."""

from __future__ import annotations

from daybell.core.limits import check_name
from daybell.store.checks import check_capacity, check_limit
from daybell.store.memory import moves
from daybell.store.memory.tables import Part


class MemoryGates(Part):
    """See `protocol.Gates`."""

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        with self._begin(tenant) as tables:
            for gate, capacity in capacities.items():
                check_name(gate, what="gate")
                check_capacity(gate, capacity)
                tables.gates[tenant, gate] = capacity
                moves.admit(tables, tenant, gate, self._clock())

    async def admit(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        with self._begin() as tables:
            admitted = 0
            for tenant, gate in tables.gates:
                admitted += moves.admit(tables, tenant, gate, self._clock(), limit - admitted)
            return admitted
