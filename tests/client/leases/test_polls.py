"""Waits of remote workers: they end a few at a time, and cost the store little."""

import asyncio

import pytest

from daybell.client.leases import polls
from daybell.client.leases.polls import (
    GroupKey,
    HeldClaims,
    IdleRenewals,
    Polls,
    WaitEnd,
    WaitGroup,
)
from daybell.core.ids import mint
from daybell.core.worker import Claim
from daybell.errors import LeaseLost
from tests.builders import TENANT, enqueued, registered
from tests.engine.tasks import a_claimed, a_store
from tests.engine.virtual import VirtualClock, in_virtual_time, until


def a_claim(count: int = 0, **more) -> Claim:
    lease = mint()
    executions = [a_claimed(lease=lease) for _ in range(count)]
    return Claim(lease=lease, now=100.0, executions=executions, **more)


def a_group() -> WaitGroup:
    return WaitGroup(asyncio.get_running_loop().time)


async def answer(group: WaitGroup, claim: Claim, limit: int = 10) -> Claim:
    async def ask() -> Claim:
        return claim

    return await group.claim(limit, ask)


@in_virtual_time
async def test_one_execution_ends_one_of_a_thousand_waits():
    group, ended = a_group(), []
    await answer(group, a_claim())

    async def poll() -> None:
        ended.append(await group.wait(mint(), 30))
        await answer(group, a_claim(1))  # it takes what there is, and finds no more

    tasks = [asyncio.create_task(poll()) for _ in range(1000)]
    await asyncio.sleep(0)
    group.wake()
    await asyncio.sleep(0.5)

    assert ended == [WaitEnd.DUE]
    for task in tasks:
        task.cancel()


@in_virtual_time
async def test_each_execution_ends_a_wait_at_once_however_soon_they_follow():
    group, loop = a_group(), asyncio.get_running_loop()
    await answer(group, a_claim())
    late = []

    for _ in range(10):
        wait = asyncio.create_task(group.wait(mint(), 30))
        await asyncio.sleep(0)
        signalled_at = loop.time()
        group.wake()
        assert await wait is WaitEnd.DUE
        late.append(loop.time() - signalled_at)
        await answer(group, a_claim(1))
        await asyncio.sleep(0.005)

    assert max(late) < 0.001


@in_virtual_time
async def test_all_waits_end_soon_while_nobody_finds_the_end_of_the_work():
    group = a_group()
    await answer(group, a_claim())
    waits = [asyncio.create_task(group.wait(mint(), 30)) for _ in range(1000)]
    await asyncio.sleep(0)

    group.wake()

    assert set(await asyncio.wait_for(asyncio.gather(*waits), 0.5)) == {WaitEnd.DUE}


@in_virtual_time
async def test_an_idle_group_claims_once_a_second_and_answers_the_others_from_memory():
    group, asked = a_group(), 0

    async def poll() -> None:
        nonlocal asked
        while True:
            if group.last_claim(mint()) is None:
                asked += 1
                await answer(group, a_claim())
            await group.wait(mint(), 30)

    tasks = [asyncio.create_task(poll()) for _ in range(100)]
    await asyncio.sleep(0.1)
    asked = 0
    await asyncio.sleep(60)

    assert 55 <= asked <= 61
    for task in tasks:
        task.cancel()


@in_virtual_time
async def test_a_signal_during_a_claim_is_not_forgotten():
    group = a_group()

    async def ask() -> Claim:
        group.wake()
        return a_claim()

    await group.claim(10, ask)

    assert group.last_claim(mint()) is None
    assert await group.wait(mint(), 30) is WaitEnd.DUE


@in_virtual_time
async def test_a_wait_ends_when_the_next_execution_is_due():
    group, loop = a_group(), asyncio.get_running_loop()
    polls_before = polls.PROBE_SECONDS
    await answer(group, a_claim(next_due=100.5))
    began = loop.time()

    assert await group.wait(mint(), 30) is WaitEnd.DUE
    assert loop.time() - began == pytest.approx(0.5)
    assert polls_before > 0.5


@in_virtual_time
async def test_a_quota_that_is_used_up_is_not_answered_from_memory():
    group = a_group()
    await answer(group, a_claim(is_limited=True))

    assert group.last_claim(mint()) is None


@in_virtual_time
async def test_a_server_that_stops_ends_all_waits():
    store, waits = await a_store(), Polls(asyncio.get_running_loop().time)
    key = GroupKey(TENANT, ("default",), ("task",))
    group = waits.group(key)
    await answer(group, a_claim())
    task = asyncio.create_task(waits.wait(store, key, mint(), 30))
    await until(lambda: group.waits)

    await waits.close()

    assert await task is WaitEnd.OVER
    assert await waits.wait(store, key, mint(), 30) is WaitEnd.OVER


@in_virtual_time
async def test_news_for_a_worker_that_does_not_wait_end_its_next_wait():
    store, waits = await a_store(), Polls(asyncio.get_running_loop().time)
    key, worker = GroupKey(TENANT, (), ("task",)), mint()
    assert await waits.wait(store, key, worker, 0.1) is WaitEnd.OVER
    waits.held.add(TENANT, worker, a_claim(1))

    waits._tell(TENANT)
    found = [await waits.wait(store, key, worker, 0.1) for _ in range(2)]
    waits._tell(TENANT)
    waits.forget_news(TENANT, worker)  # it renews

    assert found == [WaitEnd.NEWS, WaitEnd.OVER]
    assert await waits.wait(store, key, worker, 0.1) is WaitEnd.OVER
    await waits.close()


@in_virtual_time
async def test_all_waits_of_a_tenant_share_one_listener():
    store, waits, listening = await a_store(), Polls(asyncio.get_running_loop().time), []
    listen = store.listen

    async def counted(tenant, queues, *args, **options):
        stop = await listen(tenant, queues, *args, **options)
        listening.append(queues)

        async def stopped() -> None:
            listening.remove(queues)
            await stop()

        return stopped

    store.listen = counted
    for queues in (("a",), ("b",), ("a", "b"), ("a",)):
        await waits.wait(store, GroupKey(TENANT, queues, ("task",)), mint(), 0.1)

    assert listening == [{"a", "b"}]
    await waits.close()
    assert listening == []


@in_virtual_time
async def test_idle_workers_are_renewed_in_one_write_and_the_others_one_by_one():
    clock = VirtualClock()
    store, renewals = await a_store(clock), IdleRenewals()
    idle, busy, dead = [await registered(store) for _ in range(3)]
    await enqueued(store)
    lease = mint()
    claim = await store.queue.claim(TENANT, worker=busy, lease=lease, queues=["default"], limit=1)
    await store.queue.retire(TENANT, dead)

    found = await asyncio.gather(
        *(renewals.renew(store, TENANT, one, 15.0) for one in (idle, busy, dead)),
        return_exceptions=True,
    )

    assert not isinstance(found[0], BaseException) and not isinstance(found[1], BaseException)
    assert found[0].lease_until == pytest.approx(clock.now() + 15, abs=1)
    assert found[1].returned == len(claim.executions) == 1  # it named no claim
    assert isinstance(found[2], LeaseLost)


@in_virtual_time
async def test_what_a_worker_holds_is_asked_for_again_after_it_was_forgotten(monkeypatch):
    store, held = await a_store(), HeldClaims()
    worker, other = [await registered(store) for _ in range(2)]
    await enqueued(store, 4)
    claims = [
        await store.queue.claim(TENANT, worker=worker, lease=mint(), queues=["default"], limit=2)
        for _ in range(2)
    ]
    monkeypatch.setattr(polls, "HELD_MAX", 3)
    for one in claims:
        held.add(TENANT, worker, one)

    assert held.is_busy(TENANT, worker) and len(held._claims) == 1
    for one in claims:
        fences = {(each.id, each.attempt) for each in one.executions}
        assert (await held.find(store, TENANT, worker, one.lease)).keys() == fences
    assert await held.find(store, TENANT, other, claims[0].lease) == {}
    held.keep(TENANT, worker, ())
    assert not held.is_busy(TENANT, worker) and held._count == 0
