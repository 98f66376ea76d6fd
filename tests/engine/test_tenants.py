"""A worker of several tenants: turns by weight, nothing of a tenant slows another, one lease."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

from daybell.core.execution import State
from daybell.core.placement import Demands
from daybell.core.views import ExecutionFilter
from daybell.core.worker import SHARED
from daybell.errors import Unavailable
from tests.builders import add_tenants, defined, enqueued, limit
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker, quick
from tests.engine.virtual import in_virtual_time, seconds, until

A, B = "acme", "bolt"


async def a_shared_store(*tenants: str) -> Any:
    store = faulty(await a_store())
    await add_tenants(store, tenants or (A, B))
    return store


class Starts:
    """A task that takes a while, and the tenants and times of its starts."""

    def __init__(self, takes: float = 0.1) -> None:
        self.at: list[tuple[str, float]] = []
        self._takes = takes

    async def __call__(self, running: Any) -> None:
        self.at.append((running.claimed.tenant, seconds()))
        await asyncio.sleep(self._takes)

    def between(self, since: float, until: float) -> Counter[str]:
        return Counter(tenant for tenant, at in self.at if since <= at < until)

    def first(self, tenant: str) -> float | None:
        return next((at for one, at in self.at if one == tenant), None)


def shared(store: Any, task: Any, *tenants: str, **options: Any) -> Any:
    return a_worker(store, Tasks(resize=task), tenant=SHARED, tenants=tenants, **options)


async def counts(store: Any, tenant: str) -> dict[State, int]:
    return await store.catalog.count_executions(tenant, ExecutionFilter())


@in_virtual_time
async def test_a_worker_runs_the_work_of_several_tenants_with_one_lease():
    store, starts = await a_shared_store(), Starts()
    for tenant in (A, B):
        await enqueued(store, 20, tenant=tenant)
    worker = shared(store, starts, A, B, concurrency=5, lease=15.0)

    await worker.start()
    await until(lambda: len(starts.at) == 40)
    await asyncio.sleep(60)
    await worker.stop()

    for tenant in (A, B):
        assert await counts(store, tenant) == {State.SUCCEEDED: 20}
    assert store.count("register") == 1
    assert store.count("renew") <= 60 / 5 + 1


@in_virtual_time
async def test_weights_are_kept_in_any_ten_seconds():
    store, starts = await a_shared_store(), Starts()
    await store.admin.set_quotas(A, weight=3.0)
    for tenant in (A, B):
        await enqueued(store, 6_000, tenant=tenant)
    worker = shared(store, starts, A, B, concurrency=20)

    await worker.start()
    await asyncio.sleep(30)
    windows = [starts.between(since / 2, since / 2 + 10) for since in range(2, 40)]
    await worker.stop()

    assert all(one.total() >= 1_980 for one in windows), "it was not busy"
    shares = [one[A] / one.total() for one in windows]
    assert 0.75 * 0.95 <= min(shares) <= max(shares) <= 0.75 * 1.05


@in_virtual_time
async def test_a_changed_weight_applies_to_a_running_worker():
    store, starts = await a_shared_store(), Starts()
    for tenant in (A, B):
        await enqueued(store, 6_000, tenant=tenant)
    worker = shared(store, starts, concurrency=20)
    await worker.start()
    await asyncio.sleep(5)

    await store.admin.set_quotas(B, weight=4.0)
    await asyncio.sleep(15)
    window = starts.between(8, 18)
    await worker.stop()

    assert 0.8 * 0.95 <= window[B] / window.total() <= 0.8 * 1.05


@in_virtual_time
async def test_one_execution_starts_at_once_behind_the_backlog_of_another_tenant():
    store, starts = await a_shared_store(), Starts(0.05)
    await enqueued(store, 10_000, tenant=A)
    await defined(store, tenant=B)
    worker = shared(store, starts, concurrency=20)
    await worker.start()
    await asyncio.sleep(10)

    began = seconds()
    await enqueued(store, tenant=B)
    await until(lambda: starts.first(B))
    await worker.stop()

    assert (starts.first(B) or 0) - began <= 0.2
    assert starts.between(1, 10)[A] >= 0.98 * 9 * 20 / 0.05, "a tenant alone uses all slots"


@in_virtual_time
async def test_time_without_work_is_not_saved_up():
    store, starts = await a_shared_store(), Starts()
    await enqueued(store, 6_000, tenant=A)
    await enqueued(store, 20, tenant=B)
    worker = shared(store, starts, concurrency=20)
    await worker.start()
    await asyncio.sleep(10)

    began = seconds()
    await enqueued(store, 2_000, tenant=B)
    await asyncio.sleep(10)
    window = starts.between(began + 0.2, began + 10)
    await worker.stop()

    assert 0.475 <= window[B] / window.total() <= 0.525


@in_virtual_time
async def test_a_worker_of_all_tenants_follows_those_that_are_created_later():
    store, starts = await a_shared_store(A), Starts()
    worker = shared(store, starts)
    await worker.start()
    await asyncio.sleep(5)

    began = seconds()
    await add_tenants(store, ["late"])
    await enqueued(store, tenant="late")
    await until(lambda: starts.first("late"))
    await worker.stop()

    assert seconds() - began <= 1.1


@in_virtual_time
async def test_only_the_tenants_that_were_named_are_served():
    store, starts = await a_shared_store(A, B, "other"), Starts()
    for tenant in (A, B, "other", "default"):
        await enqueued(store, tenant=tenant)
    worker = shared(store, starts, A, B)

    await worker.start()
    await asyncio.sleep(5)
    await worker.stop()

    assert {tenant for tenant, _ in starts.at} == {A, B}


@in_virtual_time
async def test_an_idle_worker_of_many_tenants_looks_once_a_second_and_claims_nothing():
    tenants = [f"t{n}" for n in range(50)]
    store = await a_shared_store(*tenants)
    worker = shared(store, quick)

    await worker.start()
    await asyncio.sleep(60)
    await worker.stop()

    assert store.count("claim") == 0
    assert 55 <= store.count("list_tenant_work") <= 65


@in_virtual_time
async def test_a_delayed_execution_starts_on_time():
    store, starts = await a_shared_store(), Starts()
    await enqueued(store, tenant=B, delay=7.35)
    began = seconds()
    worker = shared(store, starts)

    await worker.start()
    await until(lambda: starts.at)
    await worker.stop()

    assert 7.34 <= (starts.first(B) or 0) - began <= 7.4


@in_virtual_time
async def test_a_full_quota_of_one_tenant_delays_no_other():
    store, starts = await a_shared_store(), Starts()
    await limit(store, tenant=A, running=2)
    for tenant in (A, B):
        await enqueued(store, 3_000, tenant=tenant)
    worker = shared(store, starts, concurrency=20)

    await worker.start()
    await asyncio.sleep(10)
    window = starts.between(1, 10)
    await worker.stop()

    assert window.total() >= 0.95 * 9 * 20 / 0.1
    assert 0.8 * 9 * 2 / 0.1 <= window[A] <= 9 * 2 / 0.1 + 2


@in_virtual_time
async def test_work_that_another_worker_should_run_delays_no_other_tenant():
    store, starts = await a_shared_store(), Starts()
    await defined(store, "foreign", tenant=A)
    other = a_worker(store, Tasks(foreign=quick), tenant=A, name="other")
    await other.start()
    other.claim_no_more()  # it offers the task, and takes nothing
    await enqueued(store, 9_000, tenant=B)
    worker = shared(store, starts, concurrency=300)
    await worker.start()
    await asyncio.sleep(1)

    await enqueued(store, 2_000, job="foreign", tenant=A)
    await asyncio.sleep(1)
    times = [at for tenant, at in starts.at if tenant == B]
    await worker.stop()
    await other.stop()

    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) <= 0.2, "no task takes longer than 0.1"


@in_virtual_time
async def test_a_backlog_that_this_worker_cannot_claim_costs_few_claims():
    store, starts = await a_shared_store(), Starts(0.01)
    await defined(store, "page", tenant=A, kind="http", settings='{"url": "http://localhost"}')
    await enqueued(store, 10, job="page", tenant=A)
    await defined(store, tenant=B)
    worker = shared(store, starts)
    await worker.start()

    for _ in range(500):
        await enqueued(store, tenant=B)
        await asyncio.sleep(0.01)
    await worker.stop()

    assert len(starts.at) == 500
    assert store.count("claim") <= 500 + 5 / 0.1 + 20


@in_virtual_time
async def test_devices_are_given_once_among_all_tenants():
    store, held = await a_shared_store(), []
    demands = Demands(resources={"gpu": 1.0})

    async def task(running: Any) -> None:
        held.append(running.devices["gpu"])
        assert len(held) <= 2
        assert sorted(one for some in held for one in some) == sorted(
            {one for some in held for one in some}
        )
        await asyncio.sleep(1)
        held.remove(running.devices["gpu"])

    for tenant in (A, B):
        await defined(store, tenant=tenant, resources=demands.resources)
        await enqueued(store, 3, tenant=tenant)
    worker = shared(store, task, resources={"gpu": 2.0})

    await worker.start()
    await asyncio.sleep(20)
    await worker.stop()

    for tenant in (A, B):
        assert await counts(store, tenant) == {State.SUCCEEDED: 3}


@in_virtual_time
async def test_a_claim_without_an_answer_is_repeated_for_its_tenant():
    store, starts = await a_shared_store(), Starts()
    for tenant in (A, B):
        await enqueued(store, 5, tenant=tenant)
    store.fail("claim", Unavailable("lost"), after=True)
    worker = shared(store, starts, A, B)

    await worker.start()
    await until(lambda: len(starts.at) == 10)
    await worker.stop()

    for tenant in (A, B):
        assert await counts(store, tenant) == {State.SUCCEEDED: 5}
    leases = [asked["lease"] for asked in store.asked("claim")]
    assert leases[0] == leases[1]


@in_virtual_time
async def test_a_worker_that_stops_returns_what_it_has_to_each_tenant():
    store, starts = await a_shared_store(), Starts(100.0)
    for tenant in (A, B):
        await enqueued(store, 3, tenant=tenant)
    worker = shared(store, starts, A, B, drain_timeout=1.0)
    await worker.start()
    await until(lambda: len(starts.at) == 6)

    await worker.stop()

    for tenant in (A, B):
        assert await counts(store, tenant) == {State.QUEUED: 3}


@in_virtual_time
async def test_queues_take_turns_in_each_tenant():
    store = await a_shared_store()
    ran: Counter[tuple[str, str]] = Counter()

    async def task(running: Any) -> None:
        ran[running.claimed.tenant, running.claimed.queue] += 1
        await asyncio.sleep(0.1)

    for tenant in (A, B):
        for queue in ("mail", "video"):
            await enqueued(store, 300, tenant=tenant, queue=queue)
    worker = shared(store, task, queues="mail,video", concurrency=1)

    await worker.start()
    await until(lambda: ran.total() >= 200)
    await worker.stop()

    assert all(40 <= count <= 60 for count in ran.values()), ran
