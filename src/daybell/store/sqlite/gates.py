"""Admission: at most so many of a kind at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.limits import check_name
from daybell.core.overlap import Miscount, room_of
from daybell.store.checks import check_capacity, check_limit
from daybell.store.codes import PRIORITIES
from daybell.store.sqlite.bulk import Bulk
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal


class SqliteGates(Part):
    """See `protocol.Gates`."""

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        await self._write(lambda tx: set_gates(tx, tenant, capacities))

    async def admit(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        return await self._write(lambda tx: admit_all(tx, limit))

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        wrong = await self._read(miscounts)
        if not mend or not wrong:
            return [one for _, one in wrong]
        return await self._write(recount)


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


def make_gates(tx: Transaction, owner: int, gates: Iterable[str]) -> None:
    """Make sure that jobs and schedules have their gates, with one slot."""
    tx.executemany(_MAKE, [(owner, gate) for gate in gates])


_FIND: Final = "SELECT n FROM gate WHERE tenant = ? AND name = ?"
_MAKE_ROOM: Final = "INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, ?)"


def find_gate(tx: Transaction, owner: int, name: str) -> int:
    """A gate's number. Raises UsageError for one that is not there and is not made by itself."""
    room = room_of(name)
    if room is not None and tx.execute(_FIND, (owner, name)).fetchone() is None:
        tx.execute(_MAKE_ROOM, (owner, name, room))
    return tx.names.gate(tx, owner, name)


_ROOM: Final = "SELECT capacity - holders FROM gate WHERE n = ?"
# One priority at a time: ordered by all of it, what is not due yet would be read as well.
_DUE: Final = """
SELECT n FROM execution
 WHERE state = 4 AND slot = 0 AND gate = ? AND priority = ? AND run_at <= ?
 ORDER BY run_at, id LIMIT ?
"""
# Who waits for dependencies as well waits on, with the slot in hand.
_LET_IN: Final = Bulk(
    f"""
UPDATE execution
   SET slot = 1, state = iif(reason IS '{DEPENDENCIES}', 4, 1),
       reason = iif(reason IS '{DEPENDENCIES}', reason, NULL)
 WHERE n IN (""",
    "?",
    ")",
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
        tx.signals.add(Signal.CLAIM)
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


_MISCOUNTS: Final = """
SELECT g.n, t.name, g.name, g.holders, g.inside
  FROM (SELECT g.*, (SELECT count(*) FROM execution WHERE slot = 1 AND gate = g.n) AS inside
          FROM gate g) g
  JOIN tenant t ON t.n = g.tenant
 WHERE g.holders <> g.inside ORDER BY t.name, g.name
"""
_SET_HOLDERS: Final = "UPDATE gate SET holders = ? WHERE n = ?"


def miscounts(tx: Transaction) -> list[tuple[int, Miscount]]:
    """Gates that count wrongly, with their numbers."""
    return [
        (n, Miscount(tenant=tenant, gate=name, counted=holders, inside=inside))
        for n, tenant, name, holders, inside in tx.execute(_MISCOUNTS)
    ]


def recount(tx: Transaction) -> list[Miscount]:
    """Let each gate know how many are inside."""
    wrong = miscounts(tx)
    for n, one in wrong:
        tx.execute(_SET_HOLDERS, (one.inside, n))
        admit(tx, n)
    return [one for _, one in wrong]


# The last one stays, or a new gate would get a number that others remember under its name.
_IDLE: Final = """
SELECT g.n FROM gate g
 WHERE g.holders = 0 AND g.n < (SELECT max(n) FROM gate)
   AND (g.name GLOB 'backfill:*' OR g.name GLOB 'job:*' AND EXISTS (
        SELECT 1 FROM job j WHERE j.tenant = g.tenant AND j.name = substr(g.name, 5)
           AND j.is_deleted = 1)
        OR g.name GLOB 'job:*/*' AND (g.tenant, substr(g.name, -32)) NOT IN (
        SELECT tenant, lower(hex(id)) FROM schedule WHERE own_gate = 1))
   AND NOT EXISTS (SELECT 1 FROM execution WHERE state = 4 AND slot = 0 AND gate = g.n)
"""
_NEWEST: Final = "SELECT ifnull(max(n), 0) FROM execution"
_REFERRED: Final = "SELECT DISTINCT gate FROM execution WHERE gate IS NOT NULL"


def unused_gates(tx: Transaction) -> tuple[list[int], int]:
    """Gates that made themselves and that no execution refers to, ended ones included; second: the
    newest execution that was looked at. All of them are, but nobody who writes waits for that.
    """
    idle = {n for (n,) in tx.execute(_IDLE)}
    if idle:
        idle -= {n for (n,) in tx.execute(_REFERRED)}
    (newest,) = tx.execute(_NEWEST).fetchone()
    return sorted(idle), newest


_REMOVE: Final = """
DELETE FROM gate WHERE n = ?1 AND holders = 0
   AND NOT EXISTS (SELECT 1 FROM execution WHERE n > ?2 AND gate = ?1)
"""


def remove_gates(tx: Transaction, unused: list[int], newest: int) -> int:
    """Remove these, unless an execution has come since."""
    still = {n for (n,) in tx.execute(_IDLE)}
    rows = [(n, newest) for n in unused if n in still]
    return tx.executemany(_REMOVE, rows).rowcount if rows else 0
