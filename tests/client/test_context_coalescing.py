"""Enqueues that come at the same time go to the store together, and fail apart."""

import asyncio
from typing import cast

import pytest

from daybell import Client, Unavailable
from daybell.client.context import Coalescer
from daybell.core.execution import Enqueued, State
from daybell.errors import JobNotFound
from daybell.store.protocol import Store
from daybell.store.sqlite import SqliteStore
from tests.builders import an_execution
from tests.engine.faults import FaultyStore
from tests.engine.virtual import until


class SendingStore:
    """A store that only sends."""

    def __init__(self, send):
        self.send = send
        self.queue = self

    async def enqueue(self, tenant, executions, *, repeat, entries):
        return await self.send(executions, entries, repeat=repeat)


@pytest.fixture
async def store():
    store = FaultyStore(SqliteStore.in_memory())
    await store.store.open()
    return store


@pytest.fixture
async def client(store):
    client = Client(store)
    await client.define("resize")
    return client


async def test_fifty_at_once_reach_the_store_in_few_calls(client, store):
    answers = await asyncio.gather(*(client.enqueue("resize", {"n": n}) for n in range(50)))

    assert store.count("enqueue") <= 2
    assert len({answer.id for answer in answers}) == 50
    assert (await client.count()).executions == {State.QUEUED: 50}
    found = await client.execution(answers[7].id)
    assert found.args == {"n": 7}


async def test_what_comes_while_others_are_on_their_way_goes_with_the_next(client, store):
    gate = store.hold("enqueue")
    first = asyncio.ensure_future(client.enqueue("resize"))
    await until(lambda: store.count("enqueue"))
    rest = [asyncio.ensure_future(client.enqueue("resize")) for _ in range(20)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)

    assert store.count("enqueue") == 2


async def test_a_lone_one_waits_for_nobody(client, store):
    for count in range(1, 4):
        await client.enqueue("resize")
        assert store.count("enqueue") == count


async def test_one_bad_one_fails_alone(client, store):
    jobs = ["resize"] * 20 + ["unknown"] + ["resize"] * 29

    answers = await asyncio.gather(*(client.enqueue(job) for job in jobs), return_exceptions=True)

    assert [type(answer) for answer in answers if not isinstance(answer, Enqueued)] == [JobNotFound]
    assert isinstance(answers[20], JobNotFound)
    assert (await client.count()).executions == {State.QUEUED: 49}
    assert store.count("enqueue") < 20


@pytest.mark.parametrize("after", [False, True], ids=["not committed", "committed"])
async def test_a_lost_answer_is_asked_for_once_more_and_nothing_is_doubled(client, store, after):
    store.fail("enqueue", after=after)

    answers = await asyncio.gather(*(client.enqueue("resize") for _ in range(10)))

    assert len(answers) == 10
    assert [asked.get("repeat", False) for asked in store.asked("enqueue")] == [False, True]
    assert (await client.count()).executions == {State.QUEUED: 10}


async def test_a_store_that_stays_away_is_told_to_all(client, store):
    store.fail("enqueue", Unavailable("away"), Unavailable("still away"))

    answers = await asyncio.gather(
        *(client.enqueue("resize") for _ in range(5)), return_exceptions=True
    )

    assert {str(answer) for answer in answers} == {"still away"}
    assert store.count("enqueue") == 2
    assert (await client.enqueue("resize")).created


async def test_an_error_of_ours_leaves_nobody_waiting():
    is_broken = True
    may_go = asyncio.Event()

    async def send(executions, entries, *, repeat):
        await may_go.wait()
        if is_broken:
            raise ZeroDivisionError
        return [Enqueued(one.id, created=True) for one in executions]

    coalescer = Coalescer(cast("Store", SendingStore(send)), "default")
    first = asyncio.ensure_future(coalescer.enqueue(an_execution()))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(coalescer.enqueue(an_execution()))
    await asyncio.sleep(0)
    may_go.set()

    async with asyncio.timeout(300):
        answers = await asyncio.gather(first, second, return_exceptions=True)
        is_broken = False
        assert (await coalescer.enqueue(an_execution())).created
    assert [type(answer) for answer in answers] == [ZeroDivisionError] * 2


async def test_a_caller_that_gives_up_takes_nobody_along(client, store):
    gate = store.hold("enqueue")
    waiting = [asyncio.ensure_future(client.enqueue("resize")) for _ in range(3)]
    await until(lambda: store.count("enqueue"))
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.set()

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(isinstance(answer, Enqueued) for answer in answers[1:])
    assert (await client.count()).executions == {State.QUEUED: 3}


async def test_a_sender_that_is_cancelled_leaves_nobody_waiting():
    async def send(executions, entries, *, repeat):
        await asyncio.Event().wait()
        return []

    coalescer = Coalescer(cast("Store", SendingStore(send)), "default")
    waiting = [asyncio.ensure_future(coalescer.enqueue(an_execution())) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.append(asyncio.ensure_future(coalescer.enqueue(an_execution())))
    await asyncio.sleep(0)
    assert coalescer._sender is not None
    coalescer._sender.cancel()

    async with asyncio.timeout(300):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)


async def test_an_error_of_ours_in_one_half_leaves_nobody_waiting_in_the_other():
    async def send(executions, entries, *, repeat):
        if len(executions) > 1:
            raise JobNotFound("one of them")
        raise ZeroDivisionError

    coalescer = Coalescer(cast("Store", SendingStore(send)), "default")
    waiting = [asyncio.ensure_future(coalescer.enqueue(an_execution())) for _ in range(4)]

    async with asyncio.timeout(300):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ZeroDivisionError] * 4


async def test_a_group_that_may_have_been_sent_is_split_into_repeats():
    sent = []

    async def send(executions, entries, *, repeat):
        sent.append((len(executions), repeat))
        if not repeat:
            raise Unavailable("perhaps it is on its way")
        if len(executions) > 1:
            raise JobNotFound("one of them")
        return [Enqueued(one.id) for one in executions]

    coalescer = Coalescer(cast("Store", SendingStore(send)), "default")
    await asyncio.gather(*(coalescer.enqueue(an_execution()) for _ in range(2)))

    assert sent == [(2, False), (2, True), (1, True), (1, True)]
