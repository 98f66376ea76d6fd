"""Open waits: what ends them, and what becomes of their executions then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.event import Event, Facts, NewEvent, result_of
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.lifecycle import FOR_EVENT, Transition
from daybell.core.step import NodeWait
from daybell.store.driving import fitting_waits
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal

_HAS_WAIT: Final = """
SELECT 1 FROM execution e JOIN wait w ON w.execution = e.n WHERE e.tenant = ? AND e.id = ? LIMIT 1
"""


def unless_over(tx: Transaction, owner: int, move: Transition) -> Transition:
    """A move back as it is made: what says that it waits for an event, which has come, is queued
    instead.
    """
    if move.target is not State.WAITING or move.reason != FOR_EVENT:
        return move
    if tx.execute(_HAS_WAIT, (owner, move.id.bytes)).fetchone() is not None:
        return move
    tx.signals.add(Signal.CLAIM)
    return replace(move, target=State.QUEUED, reason=None)


class Wait(NamedTuple):
    """An open wait, with the state of its execution."""

    execution: int
    n: int
    state: int
    match: str
    run_at: Instant

    def may_run(self, now: Instant) -> bool:
        """Whether it is in somebody's hands or can be claimed. Then it may be about to wait: that
        none of its waits is open tells it that one has ended.
        """
        return self.state != 4 and self.run_at <= now


_LOOK: Final = """
SELECT w.execution, w.n, e.state, w.match, e.run_at
  FROM wait w JOIN execution e ON e.n = w.execution
"""
# The plus sign leaves the way by the keys, or else by the execution.
_BY_KEY: Final = f"""
{_LOOK} WHERE w.tenant = ? AND w.event = ? AND w.key IN (SELECT value FROM json_each(?))
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?)
 ORDER BY w.execution, w.n
"""
_OF_ONE: Final = f"""
{_LOOK} WHERE e.tenant = ? AND +w.event = ? AND e.id = ?
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?)
 ORDER BY w.execution, w.n
"""


def deliver(tx: Transaction, owner: int, event: Event, number: int) -> int:
    """Give an event to those who wait for it; answer how many executions got it."""
    facts = Facts(event.data)
    if event.execution is None:
        keys = msgspec.json.encode(facts.keys).decode()
        found = tx.execute(_BY_KEY, (owner, event.name, keys, tx.now)).fetchall()
    else:
        own = event.execution.bytes
        found = tx.execute(_OF_ONE, (owner, event.name, own, tx.now)).fetchall()
    waits = map(Wait._make, found)
    return end(tx, (wait for wait in waits if facts.meet(wait.match)), result_of(event), number)


# From the run down: of all that wait there may be many, and of its nodes there are few.
_OF_NODES: Final = """
WITH RECURSIVE inside (id, root) AS (
  SELECT ?2, NULL
   UNION ALL
  SELECT v.id, coalesce(i.root, v.node) FROM inside i CROSS JOIN execution v ON v.parent = i.id
   WHERE v.tenant = ?1 AND v.node IS NOT NULL AND v.state = 5 AND v.worker IS NULL)
SELECT v.id, v.node, coalesce(i.root, v.node), w.event, w.match, w.timeout_at
  FROM inside i CROSS JOIN execution v ON v.parent = i.id CROSS JOIN wait w ON w.execution = v.n
 WHERE v.tenant = ?1 AND v.node IS NOT NULL AND v.state <= 5
   AND (w.timeout_at IS NULL OR w.timeout_at >= ?3)
   AND (?4 IS NULL OR (w.event = ?4 AND w.key IN (SELECT value FROM json_each(?5))))
 ORDER BY v.id, w.n LIMIT ?6
"""


def of_nodes(
    tx: Transaction, owner: int, run: UUID, event: NewEvent | None, limit: int
) -> list[NodeWait]:
    """What nodes of a run wait for."""
    facts = None if event is None else Facts(event.data)
    keys = None if facts is None else msgspec.json.encode(facts.keys).decode()
    name = None if event is None else event.name
    most = limit if event is None else -1  # of what is found, who knows how many it fits
    rows = tx.execute(_OF_NODES, (owner, run.bytes, tx.now, name, keys, most))
    return fitting_waits(((UUID(bytes=id), *rest) for id, *rest in rows), facts, limit)


_OVER: Final = f"{_LOOK} WHERE w.timeout_at <= ? ORDER BY w.timeout_at, w.execution, w.n LIMIT ?"


def time_out(tx: Transaction, limit: int) -> int:
    """End the waits whose time is over; answer how many."""
    found = tx.execute(_OVER, (tx.now, limit)).fetchall()
    return end(tx, map(Wait._make, found), None, None)


_ANY_OVER: Final = "SELECT EXISTS (SELECT 1 FROM wait WHERE timeout_at <= ?)"


def is_any_over(tx: Transaction) -> bool:
    """Whether there is a wait whose time is over."""
    return bool(tx.execute(_ANY_OVER, (tx.now,)).fetchone()[0])


_END: Final = """
UPDATE step SET result = ?, event = ?, finished_at = ?, is_done = 1
 WHERE execution = ? AND n = ? AND is_done = 0
"""
_CLOSE: Final = "DELETE FROM wait WHERE execution = ? AND n = ?"
_CLOSE_ALL: Final = "DELETE FROM wait WHERE execution = ?"
_RESUME: Final = f"""
UPDATE execution SET state = 1, run_at = ?, reason = NULL
 WHERE n = ? AND state = 4 AND reason = '{FOR_EVENT}'
"""


def end(tx: Transaction, waits: Iterable[Wait], result: str | None, event: int | None) -> int:
    """End the first of these waits of each execution. Of one that has ended nothing is left to do
    but to close them.
    """
    firsts: dict[int, Wait] = {}
    for wait in waits:
        firsts.setdefault(wait.execution, wait)
    if not firsts:
        return 0
    unfinished = [wait for wait in firsts.values() if wait.state <= 5]
    tx.executemany(_CLOSE_ALL, [(n,) for n, wait in firsts.items() if wait.may_run(tx.now)])
    tx.executemany(_CLOSE, [(wait.execution, wait.n) for wait in firsts.values()])
    tx.executemany(_END, [(result, event, tx.now, wait.execution, wait.n) for wait in unfinished])
    tx.executemany(_RESUME, [(tx.now, wait.execution) for wait in unfinished])
    tx.signals.add(Signal.CLAIM)
    return len(unfinished)
