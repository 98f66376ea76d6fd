"""Processes that freeze just before COMMIT: others wait a moment, and never fail for it."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Decision, gate_of
from daybell.core.when import cron
from daybell.core.worker import SCHEDULER
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from daybell.errors import Unavailable
from daybell.store.postgres import PostgresStore
from daybell.store.postgres import schedules as schedules_room
from tests.builders import TENANT, a_firing, a_schedule, an_execution, defined, put, registered
from tests.sweeps import set_gates

MINUTELY = cron("* * * * *").to_json()
LEASE = 3.0
# Before, a frozen session kept its locks for a minute.
SECONDS = 40.0
GENERAL: dict[str, Any] = {"expires": 600.0}  # of a job whose ticks do not go the short way


@asynccontextmanager
async def opened(place):
    store = PostgresStore(place.url, lease=LEASE)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def cold(place):
    """The store of a process that freezes."""
    async with opened(place) as store:
        yield store


@pytest.fixture
async def warm(place):
    """The store of another one."""
    async with opened(place) as store:
        yield store


@asynccontextmanager
async def frozen(store, work):
    """Have this work of a store stand still just before its COMMIT while the block lasts."""
    is_there, go_on = asyncio.Event(), asyncio.Event()
    real = store.db.transaction

    @asynccontextmanager
    async def transaction(*args):
        async with real(*args) as link:
            yield link
            is_there.set()
            await go_on.wait()

    store.db.transaction = transaction
    task = asyncio.create_task(work)
    try:
        await asyncio.wait_for(is_there.wait(), SECONDS)
        yield
    finally:
        store.db.transaction = real
        go_on.set()
        await asyncio.wait([task])
        if not isinstance(task.exception(), Unavailable):
            task.result()


def a_scheduler(store, clock):
    return Scheduler(store, clock=ManualClock(clock.now()), mint=mint, events=Events())


async def fire_until(scheduler, store, ids):
    """Have a scheduler tick until these have fired."""
    async with asyncio.timeout(SECONDS):
        while True:
            await scheduler.tick()
            schedules = await store.schedules.list_schedules(TENANT)
            if all(one.fired for one in schedules if one.id in ids):
                return
            await asyncio.sleep(0.02)


async def test_schedules_fire_beside_a_scheduler_that_is_frozen(cold, warm, clock):
    now = clock.now() // 60 * 60
    held = [a_schedule(f"held{n}", rule=MINUTELY, next_at=now) for n in range(3)]
    free = a_schedule("free", rule=MINUTELY, next_at=now)
    await put(warm, *held, free, **GENERAL)
    scheduler = a_scheduler(warm, clock)

    async with frozen(cold, cold.schedules.fire([a_firing(one) for one in held])):
        await scheduler.tick()
        assert {one.job for one in await warm.schedules.list_schedules(TENANT) if one.fired} == {
            "free"
        }
        await fire_until(scheduler, warm, {one.id for one in held})

    for one in held:
        (tick,) = await warm.schedules.list_ticks(TENANT, one.id)
        assert tick.decision is Decision.FIRED
    assert [one.missed for one in await warm.schedules.list_schedules(TENANT)] == [0] * 4


async def test_one_row_that_is_locked_keeps_one_schedule_of_a_batch_from_firing(
    warm, clock, sql, monkeypatch
):
    """Whatever it is that a firing waits for: the others of its batch do not wait with it."""
    schedules = [a_schedule(f"job{n}", next_at=clock.now()) for n in range(40)]
    await put(warm, *schedules, **GENERAL)
    stuck = schedules[17]
    real = schedules_room.advance_cursors

    async def advance(tx, specs, firings, **options):
        if stuck.id in {one.schedule for one in firings}:
            await tx.execute("SELECT pg_advisory_xact_lock(17)")
        return await real(tx, specs, firings, **options)

    monkeypatch.setattr(schedules_room, "advance_cursors", advance)
    async with sql.transaction():
        await sql.execute("SELECT pg_advisory_xact_lock(17)")

        fired = await asyncio.wait_for(
            warm.schedules.fire([a_firing(one) for one in schedules]), SECONDS
        )

    assert [one is not stuck for one in schedules] == fired


async def test_a_row_that_all_schedules_need_is_not_asked_for_by_each_of_them(
    warm, clock, sql, monkeypatch
):
    schedules = [a_schedule(f"job{n}", next_at=clock.now()) for n in range(40)]
    await put(warm, *schedules, **GENERAL)
    asked = 0

    async def advance(tx, *_args, **_options):
        nonlocal asked
        asked += 1
        await tx.execute("SELECT pg_advisory_xact_lock(17)")

    monkeypatch.setattr(schedules_room, "advance_cursors", advance)
    async with sql.transaction():
        await sql.execute("SELECT pg_advisory_xact_lock(17)")

        fired = await asyncio.wait_for(
            warm.schedules.fire([a_firing(one) for one in schedules]), SECONDS
        )

    assert fired == [False] * 40
    assert asked < 10


async def test_a_scheduler_that_was_cut_off_for_being_slow_fires_at_its_next_try(
    warm, clock, monkeypatch
):
    schedule = a_schedule(next_at=clock.now())
    await put(warm, schedule, **GENERAL)
    real, tries = schedules_room.advance_cursors, 0

    async def slowly(tx, *args, **options):
        nonlocal tries
        tries += 1
        if tries == 1:
            pid = await tx.fetchval("SELECT pg_backend_pid()")
            other = await asyncpg.connect(warm.db.url)
            await other.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await other.close()
        return await real(tx, *args, **options)

    monkeypatch.setattr(schedules_room, "advance_cursors", slowly)

    assert await warm.schedules.fire([a_firing(schedule)]) == [True]
    assert tries == 2


@pytest.mark.parametrize("table", ["schedule", "gate"])
async def test_a_row_that_is_locked_keeps_one_schedule_from_going_the_short_way(
    warm, clock, sql, table
):
    schedules = [a_schedule(f"job{n}", next_at=clock.now()) for n in range(5)]
    await put(warm, *schedules)
    stuck = schedules[2]
    locks = {
        "schedule": ("SELECT FROM daybell.schedule WHERE id = $1 FOR UPDATE", stuck.id),
        "gate": ("SELECT FROM daybell.gate WHERE key = $1 FOR UPDATE", gate_of(stuck.job)),
    }
    firings = [a_firing(one) for one in schedules]

    async with sql.transaction():
        await sql.execute(*locks[table])
        fired = await asyncio.wait_for(warm.schedules.fire(firings), SECONDS)

    assert fired == [one is not stuck for one in schedules]
    assert await warm.schedules.fire(firings) == [one is stuck for one in schedules]
    assert await warm.catalog.miscounts() == []


async def test_an_enqueue_into_a_gate_waits_for_a_frozen_one_and_succeeds(cold, warm):
    await set_gates(warm, TENANT, {"narrow": 5})
    await defined(warm)

    async with frozen(cold, cold.queue.enqueue(TENANT, [an_execution(gate="narrow")])):
        (answer,) = await asyncio.wait_for(
            warm.queue.enqueue(TENANT, [an_execution(gate="narrow")]), SECONDS
        )

    assert answer.created


async def test_a_new_worker_starts_beside_a_frozen_one(cold, warm):
    await defined(warm, "one", "two")

    async with frozen(cold, defined(cold, "one", "two", timeout=5.0)):
        async with asyncio.timeout(SECONDS):
            await defined(warm, "two", "one", "three")
            worker = await registered(warm)
            await warm.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=1)


async def test_a_scheduler_that_freezes_while_it_leads_is_followed(cold, warm, clock):
    async def lead(store):
        holder = mint()
        return await store.admin.lead(SCHEDULER, holder=holder, lease=LEASE, since=clock.now())

    async with frozen(cold, lead(cold)):
        leader = await asyncio.wait_for(lead(warm), SECONDS)

    assert leader is not None


async def worker_of(store, sql) -> UUID:
    worker = await registered(store)
    await sql.execute("CREATE TABLE IF NOT EXISTS public.sale (number int PRIMARY KEY)")
    return worker


async def test_burying_a_worker_frees_what_its_tasks_have_locked(cold, warm, sql, clock):
    worker, living = await worker_of(warm, sql), await registered(warm, lease=1000.0)
    one, other = await cold.queue.begin(worker), await cold.queue.begin(living)
    try:
        await one.connection.execute("INSERT INTO public.sale VALUES (1)")
        await other.connection.execute("INSERT INTO public.sale VALUES (2)")
        await clock.advance(100)

        await warm.queue.lost()

        await sql.execute(f"SET lock_timeout = '{SECONDS:g}s'")
        await sql.execute("INSERT INTO public.sale VALUES (1)")
        # The driver names it by the moment at which it notices.
        ended = asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError
        with pytest.raises(ended):
            await one.connection.execute("INSERT INTO public.sale VALUES (3)")
        assert await other.connection.fetchval("SELECT 1") == 1, "its worker is alive"
    finally:
        await one.close()
        await other.close()
        await sql.execute("DROP TABLE public.sale")
