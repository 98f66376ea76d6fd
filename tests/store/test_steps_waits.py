"""Waits whose time is over, and several waits at once: what came in time is not lost."""

import msgspec

from daybell.core.execution import State
from daybell.core.lifecycle import after_retry_later, after_wait
from daybell.core.limits import EVENT_SECONDS_KEPT
from daybell.core.views import Retention
from tests.builders import TENANT, a_step, an_event, apply, claim, claimed, retry, states

DAY = 86_400.0


async def record(store, hands, *steps):
    return await store.record(TENANT, worker=hands.worker, steps=steps)


async def tried_again(store, hands):
    await apply(store, hands, retry(hands.one, delay=0.0))
    return await claim(store)


def told(step):
    return None if step.result is None else msgspec.json.decode(step.result)["data"]


async def test_an_event_that_came_in_time_is_found_when_the_time_is_over(store, clock):
    hands = await claimed(store)
    waits = [
        a_step(hands.one, n, event=name, timeout=60.0) for n, name in enumerate(("paid", "sent"))
    ]
    await record(store, hands, *waits)
    await store.publish(TENANT, an_event())  # which closes the other, too
    await clock.advance(59)
    await store.publish(TENANT, an_event(name="sent", data="2"))
    await clock.advance(10)
    again = await tried_again(store, hands)

    (late,) = await record(store, again, a_step(again.one, 1, event="sent", timeout=60.0))

    assert (late.is_done, told(late)) == (True, 2)


async def test_an_event_that_comes_too_late_does_not_count_whoever_is_first(store, clock):
    hands = await claimed(store)
    await record(store, hands, a_step(hands.one, event="paid", timeout=60.0))
    await apply(store, hands, after_wait(hands.one, ran=1.0))
    await clock.advance(61)

    for signal in (None, hands.one.id):
        assert (await store.publish(TENANT, an_event(execution=signal))).resumed == 0
    assert await store.time_out_waits() == 1
    again = await claim(store)
    (over,) = await record(store, again, a_step(again.one, event="paid", timeout=60.0))

    assert (over.is_done, over.result) == (True, None)


async def test_what_was_told_that_its_time_is_over_is_not_told_otherwise_later(store, clock):
    hands = await claimed(store)
    wait = {"event": "paid", "timeout": 60.0}
    await record(store, hands, a_step(hands.one, **wait))
    await clock.advance(60)
    again = await tried_again(store, hands)
    (over,) = await record(store, again, a_step(again.one, **wait))
    assert over.is_done

    assert (await store.publish(TENANT, an_event())).resumed == 0
    assert await store.steps(TENANT, hands.one.id) == [over]
    assert await store.time_out_waits() == 0


async def test_of_several_waits_beside_a_sleep_each_gets_its_event_however_long_it_is(store, clock):
    hands = await claimed(store)
    waits = [a_step(hands.one, n, event=name) for n, name in enumerate(("paid", "sent"))]
    await record(store, hands, *waits)
    move = after_retry_later(hands.one, delay=30 * DAY, ran=1.0, reason="sleep")
    await apply(store, hands, move)

    assert (await store.publish(TENANT, an_event(data="1"))).resumed == 1
    assert (await store.publish(TENANT, an_event(name="sent", data="2"))).resumed == 1
    await clock.advance(2 * EVENT_SECONDS_KEPT)
    await store.retain(Retention())

    assert [told(step) for step in await store.steps(TENANT, hands.one.id)] == [1, 2]
    assert await states(store, [hands.one.id]) == [State.SCHEDULED]


async def test_two_events_for_two_waits_take_one_more_attempt_if_both_are_quick(store, clock):
    hands = await claimed(store)
    waits = [a_step(hands.one, n, event=name) for n, name in enumerate(("paid", "sent"))]
    await record(store, hands, *waits)
    await apply(store, hands, after_wait(hands.one, ran=1.0))

    assert (await store.publish(TENANT, an_event(data="1"))).resumed == 1
    assert (await store.publish(TENANT, an_event(name="sent", data="2"))).resumed == 1

    assert [told(step) for step in await store.steps(TENANT, hands.one.id)] == [1, 2]
    assert await states(store, [hands.one.id]) == [State.QUEUED]
