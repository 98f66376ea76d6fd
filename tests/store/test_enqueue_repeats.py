"""An id that was created is never created again, however late and however often it is sent."""

import asyncio
from collections import Counter

import pytest

from daybell.core.execution import State
from daybell.core.limits import REPEAT_SECONDS_KEPT
from daybell.core.views import Retention
from daybell.errors import DuplicateKey
from tests.builders import (
    TENANT,
    a_job,
    an_entry,
    an_execution,
    apply,
    claim,
    count,
    death,
    defined,
    limit,
    look,
    registered,
    success,
)
from tests.sweeps import retain, set_gates

GATE = "printer"
OPTIONS = {
    "plain": {},
    "with a key": {"unique_key": "k"},
    "at a gate": {"gate": GATE},
    "with a timeout": {"timeout": 5.0},
}


async def run_all(store, move=success):
    """Claim what there is, and end it."""
    hands = await claim(store)
    assert await apply(store, hands, *(move(one) for one in hands.executions)) == []
    return [one.id for one in hands.executions]


async def repeated(store, *news):
    """Create executions by a repeat, whose first request is still on its way, and run them."""
    await store.queue.enqueue(TENANT, news, repeat=True)
    assert sorted(await run_all(store)) == sorted(new.id for new in news)


def answered(answers):
    return [(answer.id, answer.created, answer.skipped) for answer in answers]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("end", [success, death], ids=["succeeded", "dead"])
async def test_a_first_request_after_its_own_repeat_creates_nothing(store, options, end):
    await defined(store)
    await set_gates(store, TENANT, {GATE: 1})
    new = an_execution(**options)
    await store.queue.enqueue(TENANT, [new], repeat=True)
    await run_all(store, end)

    answers = await store.queue.enqueue(TENANT, [new])

    assert answered(answers) == [(new.id, True, False)]
    assert await count(store) == 1
    assert await run_all(store) == []


async def test_a_late_first_request_creates_what_its_repeat_has_not(store):
    await defined(store)
    ended, waiting, fresh = (an_execution() for _ in range(3))
    await repeated(store, ended)
    await store.queue.enqueue(TENANT, [waiting], repeat=True)

    answers = await store.queue.enqueue(TENANT, [fresh, waiting, ended])

    assert [answer.id for answer in answers] == [fresh.id, waiting.id, ended.id]
    assert sorted(await run_all(store)) == sorted([waiting.id, fresh.id])
    assert await count(store) == 3


@pytest.mark.parametrize("rule", ["skip", "queue", "replace"])
async def test_a_late_first_request_is_not_refused_and_cancels_nothing(store, rule):
    await defined(store, overlap=rule)
    new = an_execution()
    await repeated(store, new)
    others = [an_execution() for _ in range(2 if rule == "queue" else 1)]
    for other in others:
        await store.queue.enqueue(TENANT, [other])
    hands = await claim(store)

    answers = await store.queue.enqueue(TENANT, [new])

    assert answered(answers) == [(new.id, True, False)]
    assert (await look(store, hands.one.id)).cancel_requested_at is None
    assert await apply(store, hands, success(hands.one)) == []
    assert await count(store) == 1 + len(others)


async def test_a_late_first_request_is_answered_as_created_though_its_key_has_a_new_holder(store):
    await defined(store)
    new, holder = an_execution(unique_key="k"), an_execution(unique_key="k")
    await repeated(store, new)
    await store.queue.enqueue(TENANT, [holder])

    answers = await store.queue.enqueue(TENANT, [new])

    assert answered(answers) == [(new.id, True, False)]
    assert await count(store) == 2


async def test_a_late_first_request_takes_nothing_of_a_quota(store):
    await defined(store)
    await limit(store, queued=1)
    new, other = an_execution(), an_execution()
    await repeated(store, new)
    await store.queue.enqueue(TENANT, [other])

    assert answered(await store.queue.enqueue(TENANT, [new])) == [(new.id, True, False)]
    assert await count(store) == 2


async def test_a_late_first_request_is_on_record_once(store):
    await defined(store)
    new, entry = an_execution(), an_entry()
    await store.queue.enqueue(TENANT, [new], repeat=True, entries=[entry])
    await run_all(store)

    await store.queue.enqueue(TENANT, [new], entries=[entry])

    page = await store.admin.list_audit(TENANT)
    assert [one.id for one in page.items] == [entry.id]


async def test_a_launch_that_is_sent_again_after_its_job_was_deleted_runs_nothing(store):
    new = an_execution("import")
    await store.catalog.launch(TENANT, a_job("import", expect=0), new)
    await run_all(store)
    await store.catalog.delete_job(TENANT, "import")

    _, made = await store.catalog.launch(TENANT, a_job("import", expect=1, promote=True), new)

    assert made.id == new.id
    assert await run_all(store) == []
    assert await count(store) == 1


async def test_a_load_that_has_run_is_refused_when_it_is_sent_again(store):
    await defined(store)
    news = [an_execution() for _ in range(3)]
    await store.queue.load(TENANT, news)
    await run_all(store)

    with pytest.raises(DuplicateKey):
        await store.queue.load(TENANT, news)
    assert await count(store) == 3


@pytest.mark.parametrize("was_repeated", [False, True], ids=["first", "repeat"])
async def test_an_id_is_known_for_the_documented_time(store, clock, was_repeated):
    """Whoever created it: the other request is answered with it."""
    await defined(store)
    new = an_execution()
    await store.queue.enqueue(TENANT, [new], repeat=was_repeated)
    await run_all(store)
    await clock.advance(REPEAT_SECONDS_KEPT - 1.0)
    await retain(store, Retention())

    await store.queue.enqueue(TENANT, [new], repeat=not was_repeated)

    assert (await look(store, new.id)).state is State.SUCCEEDED
    assert await run_all(store) == []


def test_what_has_ended_is_kept_for_longer_than_a_request():
    assert Retention().finished >= REPEAT_SECONDS_KEPT


async def test_batches_sent_by_many_while_they_run_are_created_once(crowd):
    """Each batch is sent four times at once, one of them as the first; a worker never rests."""
    await defined(crowd[0])
    batches = [[an_execution() for _ in range(40)] for _ in range(25)]
    ids = [new.id for batch in batches for new in batch]
    started = Counter()
    is_over = asyncio.Event()

    async def work(store):
        worker = await registered(store)
        while True:
            is_last = is_over.is_set()
            hands = await claim(store, 30, worker=worker)
            started.update(one.id for one in hands.executions)
            assert await apply(store, hands, *(success(one) for one in hands.executions)) == []
            if is_last and not hands.executions:
                return
            await asyncio.sleep(0)

    async def send(place, store):
        for number, batch in enumerate(batches):
            news = batch[place * 10 :] + batch[: place * 10]
            is_first = number % len(crowd) == place
            answers = await store.queue.enqueue(TENANT, news, repeat=not is_first)
            assert [answer.id for answer in answers] == [new.id for new in news]

    async with asyncio.timeout(120):
        working = [asyncio.create_task(work(store)) for store in crowd[:2]]
        await asyncio.gather(*(send(*one) for one in enumerate(crowd)))
        is_over.set()
        await asyncio.gather(*working)

    assert started == Counter(ids)
    assert await count(crowd[0]) == len(ids)
