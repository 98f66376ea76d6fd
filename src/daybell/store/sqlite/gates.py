"""Admission: at most so many of a kind at a time."""

from __future__ import annotations

from typing import Final

from daybell.core.limits import check_name
from daybell.core.overlap import gate_of
from daybell.store.checks import check_capacity, check_limit
from daybell.store.codes import PRIORITIES
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction


class SqliteGates(Part):
    """See `protocol.Gates`."""

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        await self._write(lambda tx: set_gates(tx, tenant, capacities))

    async def admit(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        return await self._write(lambda tx: admit_all(tx, limit))


_SET: Final = """
INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE SET capacity = excluded.capacity
"""


def set_gates(tx: Transaction, tenant: str, capacities: dict[str, int]) -> None:
    owner = tx.names.tenant(tx, tenant)
    for name, capacity in capacities.items():
        check_name(name, what="gate")
        check_capacity(name, capacity)
        tx.execute(_SET, (owner, name, capacity))
        admit(tx, tx.names.gate(tx, owner, name))


_MAKE: Final = """
INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, 1) ON CONFLICT DO NOTHING
"""


def make_gate(tx: Transaction, owner: int, job: str) -> None:
    """Make sure that a job has its gate, with one slot."""
    tx.execute(_MAKE, (owner, gate_of(job)))


_ROOM: Final = "SELECT capacity - holders FROM gate WHERE n = ?"
# One priority at a time: ordered by all of it, what is not due yet would be read as well.
_DUE: Final = """
SELECT n FROM execution
 WHERE state = 4 AND slot = 0 AND gate = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at, id LIMIT ?
"""
_LET_IN: Final = Bulk(
    "UPDATE execution SET state = 1, slot = 1, reason = NULL WHERE n IN (", "?", ")"
)
_TAKE_SLOTS: Final = "UPDATE gate SET holders = holders + ? WHERE n = ?"


def admit(tx: Transaction, gate: int, limit: int | None = None) -> int:
    """Let in what waits at one gate, is due and finds room; answer how many."""
    (room,) = tx.execute(_ROOM, (gate,)).fetchone()
    if limit is not None:
        room = min(room, limit)
    admitted: list[int] = []
    for priority in PRIORITIES:
        if len(admitted) >= room:
            break
        due = tx.execute(_DUE, (gate, priority, tx.now, room - len(admitted)))
        admitted += [n for (n,) in due]
    if admitted:
        _LET_IN.run(tx, admitted)
        tx.execute(_TAKE_SLOTS, (len(admitted), gate))
    return len(admitted)


# From one gate to the next that has somebody waiting, however many wait at each.
_NEXT_GATE: Final = """
SELECT gate FROM execution WHERE state = 4 AND slot = 0 AND gate > ? ORDER BY gate LIMIT 1
"""


def admit_all(tx: Transaction, limit: int) -> int:
    admitted = 0
    gate = 0
    while admitted < limit and (row := tx.execute(_NEXT_GATE, (gate,)).fetchone()):
        (gate,) = row
        admitted += admit(tx, gate, limit - admitted)
    return admitted


_FREE: Final = "UPDATE gate SET holders = holders - 1 WHERE n = ?"


def hand_on(tx: Transaction, gate: int) -> None:
    """A slot is free: the next one gets in."""
    tx.execute(_FREE, (gate,))
    admit(tx, gate)
