"""Gates: admission of at most so many at a time.

A gate's row is locked before anything behind it is touched, so whoever holds the lock may count.
Only admitted executions are in the agenda; the others are parked, in the order they will get in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.limits import check_name
from daybell.core.overlap import room_of
from daybell.errors import UsageError, shown
from daybell.store.checks import check_capacity, check_limit
from daybell.store.postgres.connection import Database, Link, Row
from daybell.store.postgres.listener import Notifier
from daybell.store.postgres.names import Names

NO_LIMIT: Final = 2**31 - 1
# One slot for each of these, for whoever defines a job or gives it a schedule.
MAKE_JOB_GATES: Final = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, 1 FROM unnest($2::text[]) u(key) ORDER BY key ON CONFLICT DO NOTHING
    RETURNING key
    """


class Connected:
    """What every part of the store stands on."""

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        self.db = db
        self.names = Names(apart=lambda: self.db.apart())
        self.notifier = Notifier(self.db)
        self.listen_url = listen_url  # a direct way to the server, past a pooler
        # Queues to be told of after the commit, by who has filled them: another task that says its
        # own news meanwhile would say these too early.
        self._filled = WeakKeyDictionary[asyncio.Task[Any], set[tuple[int, str]]]()

    def fill(self, tenant: int, queues: Iterable[str]) -> None:
        """Note that something can be claimed from these queues, once this is committed."""
        added = {(tenant, queue) for queue in queues}
        if added:
            self._filled.setdefault(_task(), set()).update(added)

    async def fill_lanes(self, link: Link, tenant: int, lanes: Collection[int]) -> None:
        """The same for lanes, which are known by their numbers to who has claimed from them."""
        known = await self.names.lane_rows(link, lanes)
        self.fill(tenant, (known[lane].queue for lane in lanes))

    def say_filled(self) -> None:
        """Wake who waits for work, if there is any that there was not before. After the commit."""
        for tenant, queue in self._filled.pop(_task(), ()):
            self.notifier.touch(tenant, [queue], here=True)


class Room(msgspec.Struct):
    """A locked gate, and what has been decided about it since."""

    capacity: int
    holders: int
    waiting: int = 0  # due and parked; more than two are counted as two
    now: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.holders < self.capacity and self.waiting == 0

    @property
    def has_room_for_waiting(self) -> bool:
        return self.holders < self.capacity and self.waiting > 0


class Admission(Connected):
    """Slots: who has one, and who gets the next."""

    # Keys sorted: two who lock several gates meet in the same order.
    LOCK_SLOTS = """
    SELECT key FROM daybell.gate WHERE tenant = $1 AND key = ANY($2::text[]) ORDER BY key FOR UPDATE
    """

    MAKE_GATES = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, room FROM unnest($2::text[], $3::int[]) u(key, room) ORDER BY key
    ON CONFLICT DO NOTHING
    """

    async def lock_gates(self, link: Link, tenant: int, keys: Collection[str]) -> None:
        """Lock these gates until the transaction ends. Raises UsageError for a missing one."""
        found = {row["key"] for row in await link.fetch(self.LOCK_SLOTS, tenant, sorted(keys))}
        missing = sorted(key for key in keys if key not in found)
        if not missing:
            return
        rooms = {key: room_of(key) for key in missing}
        for key, room in rooms.items():
            if room is None:
                raise UsageError(f"no gate named {shown(key)}; make it with set_gates first")
        await link.execute(self.MAKE_GATES, tenant, missing, list(rooms.values()))
        await self.lock_gates(link, tenant, missing)

    # A statement of its own, after the lock: the one that waited for it saw the tables before.
    LOOK = """
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now)
    SELECT g.key, g.capacity, g.holders, (SELECT now FROM t) AS now,
           (SELECT count(*) FROM (SELECT FROM daybell.parked p
                                   WHERE p.tenant = $1 AND p.gate = g.key
                                     AND p.run_at <= (SELECT now FROM t) LIMIT 2) w) AS waiting
      FROM daybell.gate g WHERE g.tenant = $1 AND g.key = ANY($2::text[])
    """

    async def look_into(self, link: Link, tenant: int, keys: Collection[str]) -> dict[str, Room]:
        """What there is room for at these gates, which the caller has locked."""
        rows = await link.fetch(self.LOOK, tenant, list(keys))
        return {
            row["key"]: Room(row["capacity"], row["holders"], row["waiting"], row["now"])
            for row in rows
        }

    # The parked rows that fit go to the agenda. run_at is raised to now, because a claimer that
    # keeps a lower bound must not miss a row that comes late. Who waits for dependencies as well
    # waits on, with the slot in hand.
    ADMIT = f"""
    WITH t AS MATERIALIZED (SELECT daybell.now() AS now),
    p AS (
      DELETE FROM daybell.parked WHERE ctid = ANY(ARRAY(
        SELECT p.ctid FROM daybell.gate g, LATERAL (
          SELECT x.ctid FROM daybell.parked x
           WHERE x.tenant = g.tenant AND x.gate = g.key AND x.run_at <= (SELECT now FROM t)
           ORDER BY x.priority, x.run_at, x.id
           LIMIT greatest(least(g.capacity - g.holders, $3), 0)) p
         WHERE g.tenant = $1 AND g.key = $2)) RETURNING id),
    v AS (
      UPDATE daybell.live v
         SET run_at = (SELECT now FROM t),
             state = CASE v.reason WHEN '{DEPENDENCIES}' THEN 4 ELSE 1 END,
             reason = CASE v.reason WHEN '{DEPENDENCIES}' THEN v.reason END
       WHERE v.tenant + 0 = $1 AND v.id = ANY(ARRAY(SELECT id FROM p))
      RETURNING v.run_at, v.lane, v.priority, v.id, v.state),
    a AS (
      INSERT INTO daybell.agenda (run_at, lane, priority, id)
      SELECT run_at, lane, priority, id FROM v WHERE state = 1),
    g AS (
      UPDATE daybell.gate SET holders = holders + n
        FROM (SELECT count(*) AS n FROM v) c WHERE tenant = $1 AND key = $2 AND n > 0)
    SELECT l.queue, count(*) AS n, bool_or(v.state = 1) AS is_claimable
      FROM v JOIN daybell.lane l ON l.key = v.lane GROUP BY l.queue
    """

    async def admit_gates(
        self, link: Link, tenant: int, keys: Collection[str], *, limit: int = NO_LIMIT
    ) -> int:
        """Let in what fits through these gates, which the caller has locked, and note in which
        queues it is: whoever commits this says so.
        """
        admitted = 0
        for key in sorted(keys):
            rows = await link.fetch(self.ADMIT, tenant, key, limit)
            admitted += sum(row["n"] for row in rows)
            self.fill(tenant, (row["queue"] for row in rows if row["is_claimable"]))
        return admitted

    # One statement for all of them: the executions of a thousand jobs have a thousand gates. As a
    # scalar, the subquery is one probe for each, whatever the planner believes of who is parked.
    CHANGE = """
    UPDATE daybell.gate g SET holders = g.holders + $3
     WHERE g.tenant = $1 AND g.key = ANY($2::text[])
    RETURNING g.key, (SELECT true FROM daybell.parked p
                       WHERE p.tenant = $1 AND p.gate = g.key LIMIT 1) AS is_wanted
    """

    async def take_slots(self, link: Link, tenant: int, slots: Mapping[str, int]) -> None:
        """Count those who were let in by the holder of the lock himself."""
        for count, keys in _by_count(slots).items():
            await link.execute(self.CHANGE, tenant, keys, count)

    async def free_slots(self, link: Link, tenant: int, slots: Mapping[str, int]) -> None:
        """Give back slots of locked gates, and let the next ones in."""
        for count, keys in _by_count(slots).items():
            rows = await link.fetch(self.CHANGE, tenant, keys, -count)
            await self.admit_gates(link, tenant, [row["key"] for row in rows if row["is_wanted"]])

    SET = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, capacity FROM unnest($2::text[], $3::int[]) u(key, capacity) ORDER BY key
    ON CONFLICT (tenant, key) DO UPDATE SET capacity = excluded.capacity
    """

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        for key, capacity in capacities.items():
            check_name(key, what="gate")
            check_capacity(key, capacity)

        async def work() -> None:
            async with self.db.transaction() as link:
                number = await self.names.tenant(link, tenant)
                await link.execute(self.SET, number, list(capacities), list(capacities.values()))
                await self.admit_gates(link, number, capacities)

        await self.db.settled(work)
        self.say_filled()

    # Gates where something waits that is due and there is room.
    ADMITTABLE = """
    SELECT DISTINCT g.tenant, g.key FROM daybell.gate g
      JOIN daybell.parked p ON p.tenant = g.tenant AND p.gate = g.key
     WHERE g.holders < g.capacity AND p.run_at <= (SELECT daybell.now()) LIMIT $1
    """

    async def admit(self, *, limit: int = 1000) -> int:
        check_limit(limit)
        async with self.db.link() as link:
            gates = await link.fetch(self.ADMITTABLE, limit)
        admitted = 0
        for gate in gates:
            left = limit - admitted
            admitted += await self.db.settled(lambda gate=gate, left=left: self._admit(gate, left))
            self.say_filled()
        return admitted

    async def _admit(self, gate: Row, limit: int) -> int:
        async with self.db.transaction() as link:
            await self.lock_gates(link, gate["tenant"], [gate["key"]])
            return await self.admit_gates(link, gate["tenant"], [gate["key"]], limit=limit)


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "stores are used by tasks"
    return task


def _by_count(slots: Mapping[str, int]) -> dict[int, list[str]]:
    """The gates for each number of slots; most often all have one."""
    gates: dict[int, list[str]] = {}
    for key, count in slots.items():
        gates.setdefault(count, []).append(key)
    return gates
