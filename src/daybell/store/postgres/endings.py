"""What an end means to others: the slot it hands on, the schedule and the run that wait for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.overlap import is_backfill
from daybell.store.codes import STATE_CODES
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.listener import ALL_TENANTS, SCHEDULES
from daybell.store.postgres.progressing import Ends, node_ends, together
from daybell.store.postgres.resetting import Resetting
from daybell.store.postgres.run_rows import Held, Seen

SUCCEEDED: Final = STATE_CODES[State.SUCCEEDED]
DEAD: Final = STATE_CODES[State.DEAD]


# What the end of an execution concerns: its gate, its schedule, its run.
Links = tuple[str | None, UUID | None, UUID | None]


class News(msgspec.Struct):
    """What the ends of a batch come to for one schedule."""

    succeeded_for: Instant | None = None
    has_succeeded: bool = False
    failures: int = 0
    latest: Instant | None = None  # of the ticks whose executions have ended

    def add(self, row: Row) -> None:
        # What had no tick's time was not replaced by a later one, either.
        at = row["scheduled_for"] if row["scheduled_for"] is not None else math.inf
        self.latest = at if self.latest is None else max(self.latest, at)
        if row["state"] == SUCCEEDED:
            self.has_succeeded, self.failures = True, 0
            if row["scheduled_for"] is not None:
                self.succeeded_for = max(self.succeeded_for or 0.0, row["scheduled_for"])
        elif row["state"] == DEAD:
            self.failures += 1


class Ending(Resetting):
    """Locks of what ends concern; then, when the rows have gone, what follows."""

    _is_rearmed = False  # a schedule has a new time, which is to be said after the commit

    def say_news(self) -> None:
        """Wake who waits for schedules or for work, if ends have led to any. After the commit."""
        self.say_filled()
        self.say_rearmed()

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
        self,
        link: Link,
        tenant: int,
        schedules: Collection[UUID],
        gates: Collection[str],
        runs: Collection[UUID] = (),
    ) -> dict[UUID, Held]:
        """Lock what these ends will change beside their own rows; answers the runs."""
        around = await self.around(link, tenant, runs)
        schedules = {*schedules, *_named(around, "schedule")}
        gates = {*gates, *_named(around, "gate")}
        if schedules:
            await link.execute(self.LOCK_SCHEDULES, tenant, sorted(schedules))
        if gates:
            await self.lock_gates(link, tenant, gates)
        return await self.lock_runs(link, tenant, _named(around, "id"))

    # For a reaper, who must not be stopped by one client that froze inside a transaction.
    LOCK_GATES_FREE = """
    SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY($2::text[]) ORDER BY key
       FOR UPDATE SKIP LOCKED
    """
    LOCK_SCHEDULES_FREE = """
    SELECT id FROM daybell.schedule WHERE tenant = $1 AND id = ANY($2::uuid[]) ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
    """
    # A schedule that is gone is in nobody's way.
    GONE = """
    SELECT u.id FROM unnest($2::uuid[]) u(id)
     WHERE NOT EXISTS (SELECT FROM daybell.schedule s WHERE s.tenant = $1 AND s.id = u.id)
    """

    async def lock_links_free(
        self, link: Link, tenant: int, links: Collection[Links]
    ) -> tuple[set[Links], dict[UUID, Held]]:
        """The same without waiting: answers for which of these all that they concern was free, and
        the runs.
        """
        around = {
            row["id"]: row
            for row in await self.around(link, tenant, {run for *_, run in links if run})
        }
        concerned = {one: _concerned(one, around) for one in links}
        free: set[str | UUID | None] = {None}
        schedules = {schedule for some in concerned.values() for schedule in some[1]}
        if schedules:
            locked = await link.fetch(self.LOCK_SCHEDULES_FREE, tenant, sorted(schedules))
            gone = await link.fetch(self.GONE, tenant, sorted(schedules))
            free |= {row["id"] for row in (*locked, *gone)}
        gates = {gate for some in concerned.values() if some[1] <= free for gate in some[0]}
        if gates:
            locked = await link.fetch(self.LOCK_GATES_FREE, tenant, sorted(gates))
            free |= {row["key"] for row in locked}
        runs = {run for some in concerned.values() if some[0] | some[1] <= free for run in some[2]}
        held = await self.lock_runs(link, tenant, runs, wait=False)
        free |= held.keys()
        return {one for one, (g, s, r) in concerned.items() if g | s | r <= free}, held

    async def follow_up(
        self,
        link: Link,
        tenant: int,
        ended: Iterable[Row],
        held: Mapping[UUID, Held],
        also: Ends | None = None,
        parts: int = 1,
        seen: Seen | None = None,
    ) -> None:
        """Let runs go on, hand on slots and tell schedules, for rows with what is TOLD. `also`:
        runs that go on in any case, with ends of their nodes. `parts`, `seen`: see `go_on`.
        """
        rows = list(ended)
        if held:
            ends = together(also or {}, node_ends(rows))
            rows += await self.go_on(link, tenant, held, ends, parts, seen)
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
           -- What a newer one has replaced is not what a fixed delay waits for.
           next_at = CASE WHEN s.delay IS NOT NULL AND s.next_at IS NULL
                               AND coalesce(u.latest >= s.last_at, true)
                          THEN (SELECT now FROM t) + s.delay ELSE s.next_at END,
           moved_at = CASE WHEN s.delay IS NOT NULL AND s.next_at IS NULL
                           THEN (SELECT now FROM t) ELSE s.moved_at END
      FROM unnest($2::uuid[], $3::float8[], $4::boolean[], $5::int[], $6::float8[])
             u(id, succeeded_for, has_succeeded, failures, latest)
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
            [one.latest for one in news.values()],
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


def _named(rows: Iterable[Row], column: str) -> set[Any]:
    return {row[column] for row in rows if row[column] is not None}


def _concerned(links: Links, around: Mapping[UUID, Row]) -> tuple[set[str], set[UUID], set[UUID]]:
    """The gates, schedules and runs that an end concerns, if it should be that of its run, too."""
    gate, schedule, run = links
    gates = set[str]() if gate is None else {gate}
    schedules = set[UUID]() if schedule is None else {schedule}
    runs = set[UUID]()
    while run is not None:
        runs.add(run)
        row = around.get(run)
        if row is None:
            break
        gates |= _named([row], "gate")
        schedules |= _named([row], "schedule")
        run = row["parent"]
    return gates, schedules, runs
