"""Cancelling, by whomever."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from daybell.core.execution import State
from daybell.store.outcomes import Cancellation
from daybell.store.sqlite import progress
from daybell.store.sqlite.endings import LINKS, Links, end
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal

_LOOK: Final = f"SELECT n, state, worker, {LINKS} FROM execution WHERE tenant = ? AND id = ?"
_STATE: Final = "SELECT state FROM execution WHERE n = ?"
_REQUEST: Final = """
UPDATE execution SET cancel_requested_at = ifnull(cancel_requested_at, ?) WHERE n = ?
"""


def cancel(tx: Transaction, owner: int, id: UUID) -> Cancellation:
    """End what has not started; ask what runs to end."""
    row = tx.execute(_LOOK, (owner, id.bytes)).fetchone()
    if row is None:
        return Cancellation.UNKNOWN
    n, state, worker, *links = row
    if state > 5:
        return Cancellation.FINISHED
    if state < 5 and not progress.has_run(tx, n):
        end(tx, n, Links(*links), State.CANCELLED)
        return Cancellation.CANCELLED
    tx.execute(_REQUEST, (tx.now, n))
    if worker is not None:
        tx.signals.add(Signal.ASK)
        return Cancellation.REQUESTED
    # A run that waits for its nodes, or to begin again, is over at once if none of them is in a
    # worker's hands.
    progress.stop(tx, (owner, id.bytes), n)
    progress.settle(tx)
    (state,) = tx.execute(_STATE, (n,)).fetchone()
    return Cancellation.CANCELLED if state > 5 else Cancellation.REQUESTED
