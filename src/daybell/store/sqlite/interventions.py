"""Ends that no worker makes: cancel, expire, discard; and the way back, revive."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.execution import State
from daybell.core.lifecycle import EXPIRED
from daybell.core.overlap import OVERLAP, is_job_gate
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.sqlite import gates, restarting, waits
from daybell.store.sqlite.advancing import Advancing
from daybell.store.sqlite.cancelling import cancel
from daybell.store.sqlite.endings import LINKS, Links, end
from daybell.store.sqlite.names import RunKey, Transaction
from daybell.store.sqlite.progress import left_to_do
from daybell.store.sqlite.quotas import queued_room
from daybell.store.sqlite.strays import gather


class SqliteInterventions(Advancing):
    """Cancelling, expiry and dead letters, of `protocol.Executions`."""

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        def operation(tx: Transaction) -> tuple[list[Cancellation], list[RunKey]]:
            owner = tx.names.tenant(tx, tenant)
            return [cancel(tx, owner, id) for id in ids], left_to_do(tx, owner)

        answers, todo = await self._write(operation)
        await self._go_on(todo)
        return answers

    async def expire(self, *, limit: int = 1000) -> int:
        return await self._write(lambda tx: expire(tx, limit))

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        def operation(tx: Transaction) -> list[Revival]:
            owner = tx.names.tenant(tx, tenant)
            room = queued_room(tx, owner)
            answers: list[Revival] = []
            for id in ids:
                answers.append(revive(tx, owner, id, is_full=room <= 0))
                room -= answers[-1] is Revival.REVIVED
            return answers

        return await self._write(operation)

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        def operation(tx: Transaction) -> list[bool]:
            owner = tx.names.tenant(tx, tenant)
            return [discard(tx, owner, id) for id in ids]

        return await self._write(operation)


_EXPIRED: Final = """
SELECT n FROM execution WHERE state < 5 AND expires_at <= ? ORDER BY expires_at LIMIT ?
"""
_LINKS: Final = f"SELECT {LINKS} FROM execution WHERE n = ?"


def expire(tx: Transaction, limit: int) -> int:
    expired = tx.execute(_EXPIRED, (tx.now, limit)).fetchall()
    for (n,) in expired:
        # Read one by one: the end of one may have handed its slot to the next.
        links = Links(*tx.execute(_LINKS, (n,)).fetchone())
        end(tx, n, links, State.SKIPPED, EXPIRED)
    gather(tx, limit)
    return len(expired) + waits.time_out(tx, limit)


_LOOK_DEAD: Final = """
SELECT n, state = 7 AND is_discarded = 0, version, gate FROM execution WHERE tenant = ? AND id = ?
"""
_FINAL_ATTEMPT: Final = """
SELECT n, attempt, outcome, worker, started_at, finished_at, error, log FROM execution WHERE n = ?
"""
_REVIVE: Final = """
UPDATE execution
   SET state = iif(gate IS NULL, 1, 4), reason = ?,
       attempt = attempt + 1, failures = 0, crashes = 0, run_at = ?, expires_at = NULL,
       worker = NULL, started_at = NULL, finished_at = NULL, outcome = NULL, progress = NULL,
       note = NULL, log = NULL
 WHERE n = ?
"""
_LOG: Final = """
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at, error, log)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def revive(tx: Transaction, owner: int, id: UUID, *, is_full: bool) -> Revival:
    """Put a dead letter back; its final attempt becomes an earlier one."""
    row = tx.execute(_LOOK_DEAD, (owner, id.bytes)).fetchone()
    if row is None:
        return Revival.UNKNOWN
    n, is_dead_letter, version, gate = row
    if not is_dead_letter:
        return Revival.NOT_LISTED
    if is_full:
        return Revival.OVER_QUOTA
    # Read before the update clears it, and logged after: the update may find the key taken.
    final_attempt = tx.execute(_FINAL_ATTEMPT, (n,)).fetchone()
    try:
        tx.execute(_REVIVE, (why_it_waits(tx, version, gate), tx.now, n))
    except sqlite3.IntegrityError:
        return Revival.KEY_HELD
    tx.execute(_LOG, final_attempt)
    restarting.revive(tx, n, id)
    if gate is not None:
        gates.admit(tx, gate)
    return Revival.REVIVED


def why_it_waits(tx: Transaction, version: int, gate: int | None) -> str | None:
    """The reason of what comes to a gate that it was given earlier."""
    if gate is None:
        return None
    name = tx.names.gate_name(tx, gate)
    return OVERLAP if name is not None and is_job_gate(name) else "gate"


_DISCARD: Final = """
UPDATE execution SET is_discarded = 1 WHERE tenant = ? AND id = ? AND state = 7 AND is_discarded = 0
"""


def discard(tx: Transaction, owner: int, id: UUID) -> bool:
    return tx.execute(_DISCARD, (owner, id.bytes)).rowcount == 1
