"""Who does what one node should do, and what is due when nobody was there before."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.leading import Presence, Seat, ask, asks_for, leave, presence_name
from daybell.core.worker import Leadership
from daybell.store.sqlite.names import Transaction
from daybell.store.wakeups import Signal

# Those who have asked have rows here, too, named after them, with epoch 0; `renewed_at` is since
# when they have been up. Of a leadership, it is until when somebody was there without a break.
_SEAT: Final = "SELECT holder, epoch, until, renewed_at FROM leader WHERE name = ?"
_PRESENT: Final = """
SELECT holder, renewed_at, until FROM leader WHERE epoch = 0 AND substr(name, 1, length(?1)) = ?1
"""
_PUT: Final = """
INSERT INTO leader (name, holder, epoch, until, renewed_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until,
       renewed_at = excluded.renewed_at
"""
_FORGET: Final = """
DELETE FROM leader WHERE epoch = 0 AND substr(name, 1, length(?1)) = ?1 AND until <= ?2
"""


def lead(
    tx: Transaction, name: str, holder: UUID, lease: Seconds, since: Instant | None
) -> Leadership | None:
    seat = find_seat(tx, name)
    asked = ask(
        seat,
        asks_for(name, holder, lease, now=tx.now),
        since=since,
        present={} if since is None else present(tx, name),
        now=tx.now,
    )
    if asked.seat != seat:
        put_seat(tx, asked.seat)
    if asked.presence is not None:
        tx.execute(_FORGET, (presence_name(name), tx.now))
        row = presence_name(name, holder), holder.bytes, 0, asked.presence.until
        tx.execute(_PUT, (*row, asked.presence.since))
    if asked.is_reboot:
        reboot(tx)
    return asked.seat.leadership if asked.leads else None


def find_seat(tx: Transaction, name: str) -> Seat | None:
    row = tx.execute(_SEAT, (name,)).fetchone()
    if row is None:
        return None
    holder, epoch, until, seen_at = row
    last = Leadership(name=name, holder=UUID(bytes=holder), epoch=epoch, until=until)
    return Seat(leadership=last, seen_at=seen_at)


def put_seat(tx: Transaction, seat: Seat) -> None:
    last = seat.leadership
    tx.execute(_PUT, (last.name, last.holder.bytes, last.epoch, last.until, seat.seen_at))


def present(tx: Transaction, name: str) -> dict[UUID, Presence]:
    """Who has asked for a leadership and said since when he has been up."""
    rows = tx.execute(_PRESENT, (presence_name(name),))
    return {UUID(bytes=holder): Presence(since, until) for holder, since, until in rows}


_REBOOT: Final = "UPDATE schedule SET next_at = ? WHERE is_reboot = 1"


def reboot(tx: Transaction) -> None:
    """Nobody was there before: what waits for that is due."""
    if tx.execute(_REBOOT, (tx.now,)).rowcount:
        tx.signals.add(Signal.SCHEDULES)


_LEAVE: Final = "DELETE FROM leader WHERE name = ? AND epoch = 0"


def resign(tx: Transaction, name: str, holder: UUID) -> None:
    seat = find_seat(tx, name)
    if seat is not None:
        # It stays, so that the epoch goes on rising, and it is known how long somebody was there.
        put_seat(tx, leave(seat, holder, present(tx, name).get(holder), now=tx.now))
        tx.execute(_LEAVE, (presence_name(name, holder),))


_LEADERS: Final = """
SELECT name, holder, epoch, until FROM leader WHERE until > ? AND epoch > 0 ORDER BY name
"""


def leaders(tx: Transaction) -> list[Leadership]:
    return [
        Leadership(name=name, holder=UUID(bytes=holder), epoch=epoch, until=until)
        for name, holder, epoch, until in tx.execute(_LEADERS, (tx.now,))
    ]
