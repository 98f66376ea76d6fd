"""Ends that no worker makes: cancel, expire, discard; and the way back, revive."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.execution import State
from daybell.core.lifecycle import EXPIRED
from daybell.store.codes import STATE_CODES
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.sqlite import gates
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction


class SqliteInterventions(Part):
    """Cancelling, expiry and dead letters, of `protocol.Executions`."""

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        def operation(tx: Transaction) -> list[Cancellation]:
            owner = tx.names.tenant(tx, tenant)
            return [cancel(tx, owner, id) for id in ids]

        return await self._write(operation)

    async def expire(self, *, limit: int = 1000) -> int:
        return await self._write(lambda tx: expire(tx, limit))

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        def operation(tx: Transaction) -> list[Revival]:
            owner = tx.names.tenant(tx, tenant)
            return [revive(tx, owner, id) for id in ids]

        return await self._write(operation)

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        def operation(tx: Transaction) -> list[bool]:
            owner = tx.names.tenant(tx, tenant)
            return [discard(tx, owner, id) for id in ids]

        return await self._write(operation)


_LOOK: Final = "SELECT n, state, gate, slot FROM execution WHERE tenant = ? AND id = ?"
_REQUEST: Final = """
UPDATE execution SET cancel_requested_at = ifnull(cancel_requested_at, ?) WHERE n = ?
"""
_END: Final = """
UPDATE execution
   SET state = ?, finished_at = ?, reason = ?, slot = iif(gate IS NULL, NULL, 0)
 WHERE n = ?
"""


def cancel(tx: Transaction, owner: int, id: UUID) -> Cancellation:
    """End what has not started; ask what runs to end."""
    row = tx.execute(_LOOK, (owner, id.bytes)).fetchone()
    if row is None:
        return Cancellation.UNKNOWN
    n, state, gate, slot = row
    if state > 5:
        return Cancellation.FINISHED
    if state == 5:
        tx.execute(_REQUEST, (tx.now, n))
        return Cancellation.REQUESTED
    end(tx, n, gate, slot, State.CANCELLED)
    return Cancellation.CANCELLED


def end(
    tx: Transaction, n: int, gate: int, slot: int, state: State, reason: str | None = None
) -> None:
    """End what has not started."""
    tx.execute(_END, (STATE_CODES[state], tx.now, reason, n))
    if slot == 1:
        gates.hand_on(tx, gate)


_EXPIRED: Final = """
SELECT n, gate, slot FROM execution WHERE state < 5 AND expires_at <= ? ORDER BY expires_at LIMIT ?
"""


def expire(tx: Transaction, limit: int) -> int:
    expired = tx.execute(_EXPIRED, (tx.now, limit)).fetchall()
    for n, gate, slot in expired:
        end(tx, n, gate, slot, State.SKIPPED, EXPIRED)
    return len(expired)


_LOOK_DEAD: Final = """
SELECT n, state = 7 AND is_discarded = 0, gate FROM execution WHERE tenant = ? AND id = ?
"""
_FINAL_ATTEMPT: Final = """
SELECT n, attempt, outcome, worker, started_at, finished_at, error, log FROM execution WHERE n = ?
"""
_REVIVE: Final = """
UPDATE execution
   SET state = iif(gate IS NULL, 1, 4), reason = iif(gate IS NULL, NULL, 'gate'),
       attempt = attempt + 1, failures = 0, crashes = 0, run_at = ?, expires_at = NULL,
       worker = NULL, started_at = NULL, finished_at = NULL, outcome = NULL, progress = NULL,
       note = NULL, log = NULL
 WHERE n = ?
"""
_LOG: Final = """
INSERT INTO attempt (execution, attempt, outcome, worker, started_at, ended_at, error, log)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


def revive(tx: Transaction, owner: int, id: UUID) -> Revival:
    """Put a dead letter back; its final attempt becomes an earlier one."""
    row = tx.execute(_LOOK_DEAD, (owner, id.bytes)).fetchone()
    if row is None:
        return Revival.UNKNOWN
    n, is_dead_letter, gate = row
    if not is_dead_letter:
        return Revival.NOT_DEAD
    # Read before the update clears it, and logged after: the update may find the key taken.
    final_attempt = tx.execute(_FINAL_ATTEMPT, (n,)).fetchone()
    try:
        tx.execute(_REVIVE, (tx.now, n))
    except sqlite3.IntegrityError:
        return Revival.KEY_HELD
    tx.execute(_LOG, final_attempt)
    if gate is not None:
        gates.admit(tx, gate)
    return Revival.REVIVED


_DISCARD: Final = """
UPDATE execution SET is_discarded = 1 WHERE tenant = ? AND id = ? AND state = 7 AND is_discarded = 0
"""


def discard(tx: Transaction, owner: int, id: UUID) -> bool:
    return tx.execute(_DISCARD, (owner, id.bytes)).rowcount == 1
