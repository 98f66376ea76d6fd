"""Who does what one node should do, and what is due when nobody was there before."""

from __future__ import annotations

from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.leading import Presence, Seat, ask, asks_for, leave, presence_name
from daybell.core.worker import Leadership
from daybell.store.postgres.connection import Link
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES


class Leading(Connected):
    """Leadership. Its row is locked before anything else here is read.

    Those who have asked have rows, too, named after them, with epoch 0; `renewed_at` is since when
    they have been up. Of a leadership, it is until when somebody was there without a break.
    """

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        if since is None:
            return await self._lead_at_once(name, holder, lease)
        has_rebooted = False

        async def work() -> Leadership | None:
            nonlocal has_rebooted
            async with self.db.transaction() as link:
                seat = await self._lock_seat(link, name, holder)
                now: Instant = await link.fetchval("SELECT daybell.now()")
                asked = ask(
                    seat,
                    asks_for(name, holder, lease, now=now),
                    since=since,
                    present=await self._present(link, name),
                    now=now,
                )
                if asked.seat != seat:
                    await self._put(link, asked.seat)
                if asked.presence is not None:
                    await self._attend(link, name, holder, asked.presence, now)
                has_rebooted = asked.is_reboot and await self._reboot(link, now)
                return asked.seat.leadership if asked.leads else None

        leadership = await self.db.settled(work)
        if has_rebooted:
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])
        return leadership

    # What `ask` decides of one who does not say since when he has been up, in one trip.
    LEAD = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    INSERT INTO daybell.leader AS l (name, holder, epoch, until, renewed_at)
    SELECT $1, $2, 1, now + $3, now FROM t
    ON CONFLICT (name) DO UPDATE
       SET holder = excluded.holder, until = excluded.until, renewed_at = excluded.renewed_at,
           epoch = l.epoch + (l.until <= (SELECT now FROM t))::int
     WHERE l.holder = $2 OR l.until <= (SELECT now FROM t)
    RETURNING l.epoch, l.until
    """

    async def _lead_at_once(self, name: str, holder: UUID, lease: Seconds) -> Leadership | None:
        async with self.db.link() as link:
            row = await link.fetchrow(self.LEAD, name, holder, lease)
        if row is None:
            return None
        return Leadership(name=name, holder=holder, epoch=row["epoch"], until=row["until"])

    async def resign(self, name: str, *, holder: UUID) -> None:
        async def work() -> None:
            async with self.db.transaction() as link:
                seat = await self._lock_seat(link, name)
                if seat is None:
                    return
                now: Instant = await link.fetchval("SELECT daybell.now()")
                presence = (await self._present(link, name)).get(holder)
                # It stays, so that the epoch goes on rising, and it is known how long somebody was
                # there.
                await self._put(link, leave(seat, holder, presence, now=now))
                await link.execute(
                    "DELETE FROM daybell.leader WHERE name = $1 AND epoch = 0",
                    presence_name(name, holder),
                )

        await self.db.settled(work)

    LOCK_SEAT = """
    SELECT holder, epoch, until, renewed_at FROM daybell.leader WHERE name = $1 FOR UPDATE
    """
    # So that there is a row to lock for those who come first at the same time.
    MAKE_SEAT = """
    INSERT INTO daybell.leader (name, holder, epoch, until, renewed_at)
    VALUES ($1, $2, 0, '-infinity', '-infinity') ON CONFLICT DO NOTHING
    """

    async def _lock_seat(self, link: Link, name: str, holder: UUID | None = None) -> Seat | None:
        """A leadership, locked until the transaction ends; made for a holder if there is none."""
        row = await link.fetchrow(self.LOCK_SEAT, name)
        if row is None and holder is not None:
            await link.execute(self.MAKE_SEAT, name, holder)
            row = await link.fetchrow(self.LOCK_SEAT, name)
        if row is None:
            return None
        last = Leadership(name=name, holder=row["holder"], epoch=row["epoch"], until=row["until"])
        return Seat(leadership=last, seen_at=row["renewed_at"])

    PRESENT = """
    SELECT holder, renewed_at, until FROM daybell.leader WHERE epoch = 0 AND starts_with(name, $1)
    """

    async def _present(self, link: Link, name: str) -> dict[UUID, Presence]:
        """Who has asked for a leadership and said since when he has been up."""
        rows = await link.fetch(self.PRESENT, presence_name(name))
        return {row["holder"]: Presence(row["renewed_at"], row["until"]) for row in rows}

    FORGET = """
    DELETE FROM daybell.leader WHERE epoch = 0 AND starts_with(name, $1) AND until <= $2
    """
    PUT_ROW = """
    INSERT INTO daybell.leader (name, holder, epoch, until, renewed_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (name) DO UPDATE
       SET holder = excluded.holder, epoch = excluded.epoch, until = excluded.until,
           renewed_at = excluded.renewed_at
    """

    async def _put(self, link: Link, seat: Seat) -> None:
        last = seat.leadership
        values = last.name, last.holder, last.epoch, last.until, seat.seen_at
        await link.execute(self.PUT_ROW, *values)

    async def _attend(
        self, link: Link, name: str, holder: UUID, presence: Presence, now: Instant
    ) -> None:
        await link.execute(self.FORGET, presence_name(name), now)
        values = presence_name(name, holder), holder, 0, presence.until, presence.since
        await link.execute(self.PUT_ROW, *values)

    async def _reboot(self, link: Link, now: Instant) -> bool:
        """Nobody was there before: what waits for that is due. Answers whether anything does."""
        answer = await link.execute("UPDATE daybell.schedule SET next_at = $1 WHERE is_reboot", now)
        return answer != "UPDATE 0"

    LEADERS = """
    SELECT name, holder, epoch, until FROM daybell.leader
     WHERE until > daybell.now() AND epoch > 0 ORDER BY name COLLATE "C"
    """

    async def list_leaders(self) -> list[Leadership]:
        async with self.db.link() as link:
            rows = await link.fetch(self.LEADERS)
        return [Leadership(**row) for row in rows]
