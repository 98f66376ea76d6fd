"""Events and waits in PostgreSQL: every order of their statements, and large events.

Each pair of operations is run once for every statement of the first: there it stands still, with
its transaction open, while the second ends or waits for it.
"""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import after_loss, after_wait
from daybell.store.postgres import steps
from tests.builders import TENANT, Hands, a_step, an_event, apply, claimed, look
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import DEADLINE_SECONDS, Stop, settle
from tests.sweeps import expire

STATEMENTS_MAX = 30


def wait_of(hands: Hands):
    return a_step(hands.one, event=f"paid {hands.one.id}", timeout=60.0)


async def record(store, hands):
    return await store.runs.record(TENANT, worker=hands.worker, steps=[wait_of(hands)])


async def publish(store, hands):
    return await store.runs.publish(TENANT, an_event(f"paid {hands.one.id}"))


async def signal(store, hands):
    sent = an_event(f"paid {hands.one.id}", execution=hands.one.id)
    return await store.runs.publish(TENANT, sent)


async def suspend(store, hands):
    return await apply(store, hands, after_wait(hands.one, ran=1.0))


async def time_out(store, hands):
    return await expire(store)


async def interleaved(slow, quick, sql, hands, first, second, after):
    """Run two operations, the first one stopped; answers whether it came so far."""
    stop = slow.pace.stop = Stop(after)
    quick.pace.stop = Stop()
    begun = asyncio.create_task(first(slow, hands))
    reached = asyncio.create_task(stop.reached.wait())
    await asyncio.wait([begun, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    other = asyncio.create_task(second(quick, hands))
    await settle(sql, other, quick.pace.processes)
    stop.resumed.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(begun, other)
    return stop.reached.is_set()


PAIRS = [
    (publish, record, []),
    (record, publish, []),
    (signal, record, []),
    (record, signal, []),
    (publish, suspend, [record]),
    (suspend, publish, [record]),
    (publish, publish, [record, suspend]),
    (time_out, suspend, [record]),
    (suspend, time_out, [record]),
    (publish, time_out, [record, suspend]),
    (time_out, publish, [record, suspend]),
]


@pytest.mark.parametrize(
    ("first", "second", "before"),
    PAIRS,
    ids=[f"{first.__name__} and {second.__name__}" for first, second, _ in PAIRS],
)
async def test_who_waits_goes_on(slow, quick, store, clock, sql, first, second, before):
    done = {first, second, *before}
    for after in range(1, STATEMENTS_MAX):
        hands = await claimed(store)
        for act in before:
            await act(store, hands)
        if time_out in done:
            await clock.advance(60)
        has_come = await interleaved(slow, quick, sql, hands, first, second, after)
        if suspend not in done:
            await suspend(store, hands)

        seen = await look(store, hands.one.id)
        (step,) = await store.runs.steps(TENANT, hands.one.id)
        assert (seen.state, step.is_done) == (State.QUEUED, True), after
        if not has_come:
            assert await violations(sql) == []
            return
        await store.queue.cancel(TENANT, [hands.one.id])
    pytest.fail("it does not come to an end")


async def test_what_is_lost_while_a_wait_is_recorded_is_recorded_before_or_not_at_all(
    slow, quick, store, sql
):
    for after in range(1, STATEMENTS_MAX):
        hands = await claimed(store)
        answers = []

        async def note(store, hands, answers=answers):
            answers.extend(await record(store, hands))

        async def lose(store, hands, answers=answers):
            move = after_loss(hands.one, max_crashes=9)
            # As a reaper does: what is locked is left alone.
            answers.extend(
                await store.queue.apply(TENANT, worker=hands.worker, transitions=[move], wait=False)
            )

        has_come = await interleaved(slow, quick, sql, hands, note, lose, after)

        is_lost = (await look(store, hands.one.id)).attempt == 2
        if not has_come:
            assert is_lost
            assert await violations(sql) == []
            return
        assert (answers == [None]) == is_lost, after
        await store.queue.cancel(TENANT, [hands.one.id])
    pytest.fail("it does not come to an end")


async def test_a_stale_step_is_not_written_after_the_loss(slow, quick, store, sql):
    hands = await claimed(store)
    for each in (slow, quick):
        await each.runs.steps(TENANT, hands.one.id)  # they know the tenant
    step = a_step(hands.one)
    losing = slow.queue.apply(
        TENANT, worker=hands.worker, transitions=[after_loss(hands.one, max_crashes=9)]
    )
    stop = slow.pace.stop = Stop(1)
    lost = asyncio.create_task(losing)
    await stop.arrival()

    recording = asyncio.create_task(quick.runs.record(TENANT, worker=hands.worker, steps=[step]))
    assert await settle(sql, recording, quick.pace.processes), "it should wait for the other"
    stop.resumed.set()

    assert await lost == []
    assert await recording == [None]
    assert await store.runs.steps(TENANT, hands.one.id) == []


# Many waits for the same large events.


class Reader:
    """A connection that counts the rows which it reads."""

    def __init__(self, link, seen):
        self.link = link
        self.seen = seen

    async def fetch(self, query, *args):
        rows = await self.link.fetch(query, *args)
        self.seen += rows
        return rows


async def test_each_event_is_read_once_for_all_who_want_it(store, clock, monkeypatch):
    hands = await claimed(store, 30)
    for size in range(3):
        await store.runs.publish(TENANT, an_event(data=f'{{"size": {size}}}'))
    choose, seen = steps._choose, []
    written, put = [], steps._put_steps

    async def counted(tx, choices, found):
        return await choose(cast("Any", Reader(tx, seen)), choices, found)

    async def noted(tx, owner, some, events):
        written.append(len(some))
        await put(tx, owner, some, events)

    monkeypatch.setattr(steps, "_choose", counted)
    monkeypatch.setattr(steps, "_put_steps", noted)
    monkeypatch.setattr(steps, "PART_CHARS_MAX", 2_000)
    waits = [a_step(one, event="paid", match='{"size": 1}') for one in hands.executions[:15]]
    waits += [a_step(one, event="paid") for one in hands.executions[15:]]

    made = await store.runs.record(TENANT, worker=hands.worker, steps=waits)

    sizes = [msgspec.json.decode(step.result)["data"]["size"] for step in made]
    assert sizes == [1] * 15 + [0] * 15
    assert len(seen) == 2  # and not one for each wait
    assert sum(written) == 30 and max(written) < 20
