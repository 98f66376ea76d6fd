"""Firing: very many schedules that are due in the same second, and many that come one by one.

The floor makes the same writes in the same batches: it reads what is due, moves cursors, records
ticks, creates executions with their places in the agenda, and takes a slot of each job's gate. It
computes nothing, and checks nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median, quantiles
from typing import Any, Final

import asyncpg

from benchmarks import last_start
from benchmarks.executions import TENANT
from benchmarks.finding import Finding
from benchmarks.places import Ground, Kind, Place, open_ground
from benchmarks.progress import say
from daybell.core.ids import mint, mint_many
from daybell.core.job import JobDefinition, NewJob
from daybell.core.schedule import NewSchedule, Overlap
from daybell.core.when import cron, every
from daybell.engine.events import Events
from daybell.engine.loop import AGAIN, SystemClock
from daybell.engine.scheduler import BATCH_MAX, Scheduler
from daybell.store.postgres.connection import SETTINGS as SESSION
from daybell.store.protocol import Store
from daybell.store.sqlite import connection

DUE_AT_ONCE: Final[dict[Kind, int]] = {"postgres": 100_000, "sqlite": 10_000}
RULE: Final = cron("0 0 * * *").to_json()  # a tick a day, so each is fired once
DEFINE: Final = 1000
SPREAD_PER_SECOND: Final = 1000
SPREAD_SECONDS: Final = 15
WARM_SECONDS: Final = 3


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Finding]:
    """Measure firing on one kind of store."""
    with open_ground(kind) as ground:
        findings = [
            await at_once(ground, kind, rounds=rounds, scale=scale),
            *await spread(ground, kind, scale=scale),
        ]
        if kind == "postgres":
            findings += await last_start.measure(ground, rounds=rounds, scale=scale)
    return findings


async def at_once(ground: Ground, kind: Kind, *, rounds: int, scale: float) -> Finding:
    """Return the seconds until all schedules that are due at one moment are queued, and those of
    the floor.
    """
    count = int(DUE_AT_ONCE[kind] * scale)
    place = await ground.place("firing")
    due_at = _midnight()
    if kind == "postgres":
        await scheduled(place, 1, lambda _: due_at)
        await multiply(place, count)
    else:
        await scheduled(place, count, lambda _: due_at)
    ours: list[float] = []
    theirs: list[float] = []
    store, floor = place.store(), await open_floor(place)
    await store.open()
    for turn in range(rounds + 1):  # the first one is dropped: it meets every name anew
        await rewind(place, due_at)
        seconds = await timed_scheduler(place, store, count)
        await rewind(place, due_at)
        least = await timed_floor(place, floor, count)
        say(f"{kind:9} {count:,} at once: {seconds:.2f} s, floor {least:.2f} s")
        if turn:
            ours.append(seconds)
            theirs.append(least)
    await store.close()
    await floor.close()
    ground.drop("firing")
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    seconds = median(ours)
    return Finding.at_most(
        kind, f"{count:,} schedules due at once, against the same writes", ratio, 2.5,
        f"{seconds:.2f} s against {median(theirs):.2f} s; {count / seconds:,.0f} a second",
    )  # fmt: skip


async def timed_scheduler(place: Place, store: Store, count: int) -> float:
    scheduler = Scheduler(
        store, clock=SystemClock(), mint=mint, events=Events(), mint_many=mint_many
    )
    began = time.perf_counter()
    while await scheduler.tick() == AGAIN:
        pass
    seconds = time.perf_counter() - began
    assert await place.ask("SELECT count(*) FROM tick") == count
    return seconds


async def timed_floor(place: Place, floor: PostgresFloor | SqliteFloor, count: int) -> float:
    began = time.perf_counter()
    await floor.fire()
    seconds = time.perf_counter() - began
    assert await place.ask("SELECT count(*) FROM tick") == count
    return seconds


async def open_floor(place: Place) -> PostgresFloor | SqliteFloor:
    floor = PostgresFloor() if place.kind == "postgres" else SqliteFloor()
    await floor.open(place.url)
    return floor


DUE: Final = """
SELECT s.id, s.job, j.name FROM daybell.schedule s JOIN daybell.job j ON j.key = s.job
 WHERE s.next_at <= $1 AND NOT s.is_paused ORDER BY s.next_at, s.id LIMIT $2
"""
ADVANCE: Final = """
UPDATE daybell.schedule SET next_at = $2, last_at = $3, fired = fired + 1
 WHERE tenant = 1 AND id = ANY($1::uuid[])
"""
RECORD: Final = """
INSERT INTO daybell.tick (tenant, schedule, at, decision, execution)
SELECT 1, u.schedule, $3, 1, u.execution FROM unnest($1::uuid[], $2::uuid[]) u(schedule, execution)
"""
TAKE: Final = "UPDATE daybell.gate SET holders = holders + 1 WHERE tenant = 1 AND key = ANY($1)"
CREATE: Final = """
WITH l AS (
  INSERT INTO daybell.live (tenant, id, job, version, lane, priority, state, created_at, run_at,
                            args, gate, scheduled_for, schedule)
  SELECT 1, u.id, u.job, 1, $5, 2, 1, $6, $6, '{}', u.gate, $7, u.schedule
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::uuid[]) u(id, job, gate, schedule))
INSERT INTO daybell.agenda (run_at, lane, priority, id) SELECT $6, $5, 2, id FROM unnest($1) id
"""


class PostgresFloor:
    """Plain asyncpg."""

    async def open(self, url: str) -> None:
        self._link: Any = await asyncpg.connect(url, server_settings=SESSION)
        self._lane = await self._link.fetchval("SELECT key FROM daybell.lane ORDER BY key LIMIT 1")

    async def close(self) -> None:
        await self._link.close()

    async def fire(self) -> None:
        link = self._link
        while rows := await link.fetch(DUE, time.time(), BATCH_MAX):
            now = time.time()
            due_at = now - now % 86_400
            schedules = [row["id"] for row in rows]
            ids = [mint() for _ in rows]
            gates = [f"job:{row['name']}" for row in rows]
            jobs = [row["job"] for row in rows]
            async with link.transaction():
                await link.execute(ADVANCE, schedules, due_at + 86_400, due_at)
                await link.execute(RECORD, schedules, ids, due_at)
                await link.execute(TAKE, gates)
                await link.execute(CREATE, ids, jobs, gates, schedules, self._lane, now, due_at)


SQLITE_DUE: Final = """
SELECT s.id, s.job, j.version, g.n FROM schedule s JOIN job j ON j.n = s.job
  JOIN gate g ON g.tenant = 1 AND g.name = 'job:' || j.name
 WHERE s.next_at <= ? AND s.next_at IS NOT NULL AND s.is_paused = 0
 ORDER BY s.next_at, s.id LIMIT ?
"""
SQLITE_ADVANCE: Final = """
UPDATE schedule SET next_at = ?, last_at = ?, fired = fired + 1 WHERE tenant = 1 AND id = ?
"""
SQLITE_RECORD: Final = """
INSERT INTO tick (tenant, schedule, at, decision, execution) VALUES (1, ?, ?, 1, ?)
"""
SQLITE_CREATE: Final = """
INSERT INTO execution (tenant, id, job, version, lane, priority, state, created_at, run_at, args,
                       gate, slot, scheduled_for, schedule)
VALUES (1, ?, ?, ?, ?, 2, 1, ?, ?, '{}', ?, 1, ?, ?)
"""
SQLITE_TAKE: Final = "UPDATE gate SET holders = holders + 1 WHERE n = ?"


class SqliteFloor:
    """Plain sqlite3, on the event loop's own thread."""

    async def open(self, url: str) -> None:
        self._link = connection.connect(url)  # for the store's own settings
        (self._lane,) = self._link.execute("SELECT n FROM lane LIMIT 1").fetchone()

    async def close(self) -> None:
        self._link.close()

    async def fire(self) -> None:
        link = self._link
        while rows := link.execute(SQLITE_DUE, (time.time(), BATCH_MAX)).fetchall():
            now = time.time()
            due_at = now - now % 86_400
            both = [(row, mint().bytes) for row in rows]
            link.execute("BEGIN IMMEDIATE")
            link.executemany(SQLITE_ADVANCE, [(due_at + 86_400, due_at, row[0]) for row in rows])
            link.executemany(SQLITE_RECORD, [(row[0], due_at, id) for row, id in both])
            link.executemany(
                SQLITE_CREATE,
                [
                    (id, row[1], row[2], self._lane, now, now, row[3], due_at, row[0])
                    for row, id in both
                ],
            )
            link.executemany(SQLITE_TAKE, [(row[3],) for row in rows])
            link.execute("COMMIT")


async def spread(ground: Ground, kind: Kind, *, scale: float) -> list[Finding]:
    """Measure the lateness of ticks of many schedules that fire every second, each at its own
    moment: from the nominal time to the row before its commit.
    """
    per_second = int(SPREAD_PER_SECOND * scale)
    place = await ground.place("spread")
    start = float(int(time.time()) + 5)
    while True:  # until all of them have been written in time
        due = [start + n / per_second for n in range(per_second)]
        await scheduled(place, per_second, due.__getitem__, every_second=True)
        if time.time() < start:
            break
        start += 20
    store = place.store()
    await store.open()
    scheduler = Scheduler(
        store, clock=SystemClock(), mint=mint, events=Events(), mint_many=mint_many
    )
    scheduler.start()
    try:
        await asyncio.sleep(start + SPREAD_SECONDS - time.time())
        await until_fired(place, per_second * (SPREAD_SECONDS - 1))
    finally:
        await scheduler.stop()
        await store.close()
    table = "live" if kind == "postgres" else "execution"
    late = sorted(await _lateness(place, table, start + WARM_SECONDS))
    ground.drop("spread")
    p50, p99 = (quantiles(late, n=100)[percent - 1] * 1e3 for percent in (50, 99))
    what = f"{per_second:,} ticks a second, spread evenly: late by"
    detail = f"largest {late[-1] * 1e3:.0f} ms, of {len(late):,}; aim: p99 under 100 ms"
    return [
        Finding(kind, f"{what} (p50)", p50, "ms"),
        Finding(kind, f"{what} (p99)", p99, "ms", detail),
    ]


async def until_fired(place: Place, count: int) -> None:
    for _ in range(60):
        if await place.ask("SELECT count(*) FROM tick") >= count:
            return
        await asyncio.sleep(1)
    raise RuntimeError("not all ticks were fired within a minute")


async def _lateness(place: Place, table: str, since: float) -> list[float]:
    statement = f"SELECT created_at - scheduled_for FROM {table} WHERE scheduled_for > {since}"
    if place.kind == "postgres":
        link: Any = await asyncpg.connect(place.url)
        rows = await link.fetch(statement.replace(table, f"daybell.{table}", 1))
        await link.close()
        return [row[0] for row in rows]
    with closing(sqlite3.connect(place.url, timeout=60)) as connection:
        return [row[0] for row in connection.execute(statement)]


async def scheduled(
    place: Place, count: int, due_at: Callable[[int], float], *, every_second: bool = False
) -> None:
    """Make so many jobs, each with a schedule of its own that begins then."""
    store = place.store()
    await store.open()
    try:
        for start in range(0, count, DEFINE):
            numbers = range(start, min(count, start + DEFINE))
            jobs = [_new_job(n, due_at(n), every_second=every_second) for n in numbers]
            await store.catalog.define_jobs(TENANT, jobs)
    finally:
        await store.close()


async def multiply(place: Place, count: int) -> None:
    """Copy the first job, with its gate and its schedule: defining so many takes minutes."""
    more = f"generate_series(1, {count - 1}) n"
    await place.run(
        f"""INSERT INTO daybell.job (id, tenant, name, version, queue)
            SELECT gen_random_uuid(), 1, 'report-' || n, 1, 'default' FROM {more}""",
        """INSERT INTO daybell.job_version (job, version, definition, author)
           SELECT j.key, 1, replace(first.definition, 'report-0', j.name), ''
             FROM daybell.job j, (SELECT v.definition FROM daybell.job_version v JOIN daybell.job o
                                      ON o.key = v.job WHERE o.name = 'report-0') first
            WHERE j.name LIKE 'report-%' AND j.name <> 'report-0'""",
        f"""INSERT INTO daybell.gate (tenant, key, capacity)
            SELECT 1, 'job:report-' || n, 1 FROM {more}""",
        """INSERT INTO daybell.schedule (tenant, id, job, rule, next_at, is_declared, is_paused)
           SELECT 1, gen_random_uuid(), j.key, s.rule, s.next_at, true, false
             FROM daybell.job j, daybell.schedule s
            WHERE j.name LIKE 'report-%' AND j.name <> 'report-0'""",
        "ANALYZE",
    )


def _new_job(number: int, due_at: float, *, every_second: bool) -> NewJob:
    name = f"report-{number}"
    rule = every("1s", anchor=due_at).to_json() if every_second else RULE
    schedule = NewSchedule(id=mint(), job=name, rule=rule, next_at=due_at, is_declared=True)
    overlap = Overlap.ALLOW if every_second else None  # no worker runs them here
    definition = JobDefinition(name=name, schedules=(rule,), overlap=overlap)
    return NewJob(id=mint(), definition=definition, schedules=(schedule,))


async def rewind(place: Place, due_at: float) -> None:
    """Reset everything to the time before the first tick."""
    if place.kind == "postgres":
        await place.run(
            "TRUNCATE daybell.live, daybell.agenda, daybell.history, daybell.tick",
            f"UPDATE daybell.schedule SET next_at = {due_at}, last_at = NULL, fired = 0",
            "UPDATE daybell.gate SET holders = 0",
            "VACUUM (FULL, ANALYZE) daybell.schedule",
            "VACUUM (FULL, ANALYZE) daybell.gate",
            "CHECKPOINT",
        )
        return
    with closing(sqlite3.connect(place.url, timeout=60)) as connection:
        for table in ("execution", "tick"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("UPDATE schedule SET next_at = ?, last_at = NULL, fired = 0", (due_at,))
        connection.execute("UPDATE gate SET holders = 0")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _midnight() -> float:
    now = time.time()
    return now - now % 86_400
