"""Who does what one node should do, and what is due when nobody was there before."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.worker import Leadership
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal

_LEADER: Final = "SELECT holder, epoch, until, renewed_at FROM leader WHERE name = ?"
_LEAD: Final = """
INSERT INTO leader (name, holder, epoch, until, renewed_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until,
       renewed_at = excluded.renewed_at
"""


def lead(
    tx: Transaction, name: str, holder: UUID, lease: Seconds, since: Instant | None
) -> Leadership | None:
    epoch, begins, renewed_at = 1, True, float("-inf")
    row = tx.execute(_LEADER, (name,)).fetchone()
    if row is not None:
        leader, epoch, until, renewed_at = row
        begins = until <= tx.now
        if begins:
            epoch += 1  # even for the same holder: it may have been away
        elif leader != holder.bytes:
            return None
    if begins and since is not None and renewed_at < since:
        reboot(tx)
    until = tx.now + lease
    tx.execute(_LEAD, (name, holder.bytes, epoch, until, tx.now))
    return Leadership(name=name, holder=holder, epoch=epoch, until=until)


_REBOOT: Final = "UPDATE schedule SET next_at = ? WHERE is_reboot = 1"


def reboot(tx: Transaction) -> None:
    """Nobody was there before: what waits for that is due."""
    if tx.execute(_REBOOT, (tx.now,)).rowcount:
        tx.signals.add(Signal.SCHEDULES)


# The row stays, so that the epoch goes on rising, and it is known how long somebody was there.
_RESIGN: Final = "UPDATE leader SET until = ?, renewed_at = ? WHERE name = ? AND holder = ?"


def resign(tx: Transaction, name: str, holder: UUID) -> None:
    tx.execute(_RESIGN, (tx.now, tx.now, name, holder.bytes))


_LEADERS: Final = "SELECT name, holder, epoch, until FROM leader WHERE until > ? ORDER BY name"


def leaders(tx: Transaction) -> list[Leadership]:
    return [
        Leadership(name=name, holder=UUID(bytes=holder), epoch=epoch, until=until)
        for name, holder, epoch, until in tx.execute(_LEADERS, (tx.now,))
    ]
