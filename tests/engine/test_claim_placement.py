"""Labels and resources: a worker takes what fits it, and no more than it has."""

import asyncio
import random
from uuid import UUID

import pytest

from daybell.core.flow import read_concurrency
from daybell.core.placement import (
    PASSED_OVER_SECONDS,
    PREFER_SECONDS,
    Demands,
    Site,
    seat_of,
    split_needs,
    sum_used,
)
from daybell.engine.loop import ManualClock
from tests.builders import LEASE, TENANT, a_worker, claim, defined, enqueued
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_bench, a_store, endless
from tests.engine.virtual import turns


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    return faulty(await a_store(clock))


async def work(bench, rounds=5):
    for _ in range(rounds):
        await bench.dispatcher.tick()
        await turns()


def running(bench):
    return sorted(run.claimed.job for run in bench.executor)


async def test_a_worker_claims_what_its_labels_meet(store, clock):
    await defined(store, "eu", requires={"zone": ("eu",)})
    await defined(store, "gpu", requires={"zone": ("eu",), "gpu": ("a100",)})
    await defined(store, "plain")
    for job in ("eu", "gpu", "plain"):
        await enqueued(store, job=job)
    tasks = Tasks(eu=endless, gpu=endless, plain=endless)
    site = Site(labels={"zone": "eu"})

    bench = await a_bench(store, tasks, clock=clock, site=site)
    await work(bench)

    assert running(bench) == ["eu", "plain"]


@pytest.mark.parametrize(("site", "looks"), [(Site(), 1), (Site(labels={"zone": "eu"}), 21)])
async def test_a_worker_looks_for_demands_from_time_to_time(store, clock, site, looks):
    await enqueued(store, 3)
    bench = await a_bench(store, Tasks(resize=endless), clock=clock, site=site)

    for _ in range(41):
        await work(bench, 1)
        clock.advance(0.5)

    assert store.count("list_demands") == looks


async def test_the_worker_of_the_parent_comes_first_and_then_any(store, clock):
    assert seat_of(UUID(int=7)) == 7
    await defined(store, "child", near="parent")
    host = UUID(int=7)
    await store.queue.register(TENANT, a_worker(id=host, queues=("default",)), lease=LEASE)
    await enqueued(store)
    (parent,) = (await claim(store, worker=host)).executions
    await enqueued(store, 2, job="child", parent=parent.id)
    tasks = Tasks(child=endless)
    other = await a_bench(store, tasks, clock=clock, site=Site(seat=8))
    await work(other)
    assert running(other) == []
    same = await a_bench(store, tasks, clock=clock, site=Site(seat=7), concurrency=1)

    await work(same)
    clock.advance(PREFER_SECONDS - 1)
    await work(other)
    assert (running(same), running(other)) == (["child"], [])
    assert [run.claimed.demands for run in same.executor] == [Demands(seat=7).text]
    clock.advance(2)
    await work(other)

    assert running(other) == ["child"]


async def test_resources_are_never_exceeded_by_several_lanes(store, clock):
    await defined(store, "one", resources={"gpu": 1.0})
    await defined(store, "two", resources={"gpu": 2.0, "memory": 3.0})
    await defined(store, "plain")
    for job in ("one", "two", "plain"):
        await enqueued(store, 20, job=job)
    site = Site(resources={"gpu": 4.0, "memory": 10.0})
    chance = random.Random(7)
    most = 0.0

    async def some(attempt):
        nonlocal most
        used = sum_used(run.claimed.demands for run in bench.executor)
        most = max(most, used.get("gpu", 0.0))
        assert not site.lacks(split_needs(attempt.claimed.demands)[1])
        assert used.get("gpu", 0.0) <= 4 and used.get("memory", 0.0) <= 10
        for _ in range(chance.randint(0, 4)):
            await asyncio.sleep(0)

    bench = await a_bench(store, Tasks(one=some, two=some, plain=some), clock=clock, site=site)
    while len(bench.ends) < 60:
        await work(bench, 1)

    assert most == 4


async def test_each_execution_has_devices_of_its_own(store, clock):
    await defined(store, "train", resources={"gpu": 2.0})
    await enqueued(store, 3, job="train")
    bench = await a_bench(
        store, Tasks(train=endless), clock=clock, site=Site(resources={"gpu": 5.0})
    )

    await work(bench)

    assert [run.devices for run in bench.executor] == [{"gpu": [0, 1]}, {"gpu": [2, 3]}]


async def test_large_work_is_not_passed_over_for_ever(store, clock):
    await defined(store, "large", resources={"gpu": 4.0})
    await defined(store, "small", resources={"gpu": 1.0})
    ends = asyncio.Event()

    async def until(_):
        await ends.wait()

    tasks = Tasks(large=endless, small=until)
    bench = await a_bench(store, tasks, clock=clock, site=Site(resources={"gpu": 4.0}))
    await enqueued(store, job="small")
    await work(bench)
    await enqueued(store, job="large")
    clock.advance(PASSED_OVER_SECONDS + 1)
    await enqueued(store, 9, job="small")

    await work(bench)

    assert running(bench) == ["small"]
    ends.set()
    await turns()
    await work(bench)
    assert running(bench) == ["large"]


async def test_limited_work_with_resources_runs_as_both_allow(store, clock):
    one = read_concurrency(1, "concurrency")
    await defined(store, "train", resources={"gpu": 1.0}, concurrency=one)
    await enqueued(store, 3, job="train")
    site = Site(resources={"gpu": 4.0})
    bench = await a_bench(store, Tasks(train=endless), clock=clock, site=site)

    await work(bench)

    assert running(bench) == ["train"]
