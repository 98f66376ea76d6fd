"""What an end means to others: the slot it hands on, and the schedule that waits for news."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.overlap import is_backfill
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.gates import Admission
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES

SUCCEEDED: Final = STATE_CODES[State.SUCCEEDED]
DEAD: Final = STATE_CODES[State.DEAD]


class News(msgspec.Struct):
    """What the ends of a batch come to for one schedule."""

    succeeded_for: Instant | None = None
    has_succeeded: bool = False
    failures: int = 0

    def add(self, row: Row) -> None:
        if row["state"] == SUCCEEDED:
            self.has_succeeded, self.failures = True, 0
            if row["scheduled_for"] is not None:
                self.succeeded_for = max(self.succeeded_for or 0.0, row["scheduled_for"])
        elif row["state"] == DEAD:
            self.failures += 1


class Ending(Admission):
    """Locks in the order schedule, gate; then, when the rows have gone, what follows."""

    _is_rearmed = False  # a schedule has a new time, which is to be said after the commit

    def say_rearmed(self) -> None:
        """Wake who waits for schedules, if an end has set the time of one. After the commit."""
        if self._is_rearmed:
            self._is_rearmed = False
            self.notifier.touch(ALL_TENANTS, [SCHEDULES])

    LOCK_SCHEDULES = """
    SELECT FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[])
     ORDER BY id FOR NO KEY UPDATE
    """

    async def lock_links(
        self, link: Link, tenant: int, schedules: Collection[UUID], gates: Collection[str]
    ) -> None:
        """Lock what these ends will change beside their own rows."""
        if schedules:
            await link.execute(self.LOCK_SCHEDULES, tenant, sorted(schedules))
        if gates:
            await self.lock_gates(link, tenant, gates)

    async def follow_up(self, link: Link, tenant: int, ended: Iterable[Row]) -> None:
        """Hand on slots and tell schedules, for rows that name state, gate, schedule and tick."""
        rows = list(ended)
        slots = Counter[str](row["gate"] for row in rows if row["gate"] is not None)
        await self.free_slots(link, tenant, slots)
        news: dict[UUID, News] = {}
        for row in rows:
            if row["schedule"] is not None and not is_backfill(row["gate"]):
                news.setdefault(row["schedule"], News()).add(row)
        if news:
            await self._tell(link, tenant, news)

    TELL = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    UPDATE daybell.schedule s
       SET succeeded_for = greatest(s.succeeded_for, u.succeeded_for),
           failures = CASE WHEN u.has_succeeded THEN 0 ELSE s.failures END + u.failures,
           next_at = CASE WHEN s.delay IS NOT NULL AND s.next_at IS NULL
                          THEN (SELECT now FROM t) + s.delay ELSE s.next_at END
      FROM unnest($2::uuid[], $3::float8[], $4::boolean[], $5::int[])
             u(id, succeeded_for, has_succeeded, failures)
     WHERE s.tenant = $1 AND s.id = u.id
    RETURNING s.job, s.failures, s.delay,
              NOT s.is_paused AND u.failures > 0 AND s.failures >= s.pause_after AS is_enough
    """

    async def _tell(self, link: Link, tenant: int, news: dict[UUID, News]) -> None:
        told = await link.fetch(
            self.TELL,
            tenant,
            list(news),
            [one.succeeded_for for one in news.values()],
            [one.has_succeeded for one in news.values()],
            [one.failures for one in news.values()],
        )
        for row in told:
            if row["is_enough"]:
                note = f"paused after {row['failures']} failures in a row"
                await self.pause(link, row["job"], note)
        if any(row["delay"] is not None for row in told):
            self._is_rearmed = True

    PAUSE = """
    UPDATE daybell.job SET paused_at = coalesce(paused_at, daybell.now()), pause_note = $2
     WHERE key = $1
    """
    # A statement of its own: one that waited for the job saw its schedules before.
    STOP_SCHEDULES = "UPDATE daybell.schedule SET is_paused = true WHERE job = $1 AND NOT is_paused"

    async def pause(self, link: Link, job: int, note: str) -> None:
        """Stop the schedules of a job."""
        await link.execute(self.PAUSE, job, note)
        await link.execute(self.STOP_SCHEDULES, job)
