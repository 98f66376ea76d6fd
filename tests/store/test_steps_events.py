"""Events and waits for them: none is lost, whichever comes first, also after a timeout."""

import asyncio

import msgspec
import pytest

from daybell.core.event import StepKind
from daybell.core.execution import Cancellation, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_retry_later, after_wait
from daybell.core.limits import EVENT_SECONDS_KEPT
from daybell.core.units import to_iso
from daybell.core.views import ExecutionFilter, Retention
from daybell.errors import ExecutionNotFound, TenantNotFound, UsageError
from tests.builders import (
    TENANT,
    a_step,
    add_tenants,
    an_event,
    apply,
    claim,
    claimed,
    death,
    enqueued,
    look,
    retry,
    states,
    success,
)
from tests.sweeps import expire, retain, set_gates

DAY = 86_400.0
QUEUED, WAITING, RUNNING = State.QUEUED, State.WAITING, State.RUNNING


async def record(store, hands, *steps):
    return await store.runs.record(TENANT, worker=hands.worker, steps=steps)


async def suspended(store, count=1, *, wait=lambda place: {"event": "paid"}, **options):
    """Executions that wait for an event, each as `wait` says of its place."""
    hands = await claimed(store, count, **options)
    waits = [a_step(one, **wait(place)) for place, one in enumerate(hands.executions)]
    assert not any(step.is_done for step in await record(store, hands, *waits))
    moves = [after_wait(one, ran=1.0) for one in hands.executions]
    assert await apply(store, hands, *moves) == []
    assert (await store.catalog.count_executions(TENANT, ExecutionFilter()))[WAITING] == count
    return [one.id for one in hands.executions]


async def step_of(store, id, n=0):
    return (await store.runs.steps(TENANT, id))[n]


async def test_an_event_lets_go_on_who_waits_for_it(store, clock):
    (id,) = await suspended(store)
    before = await look(store, id)
    assert (before.reason, before.attempt, before.failures) == ("event", 2, 0)
    await clock.advance(100 * DAY)
    assert (await claim(store)).executions == []
    sent = an_event(data='{"amount": 3}', time=clock.now() - 5)

    published = await store.runs.publish(TENANT, sent)

    assert (published.created, published.resumed) == (True, 1)
    seen = await look(store, id)
    assert (seen.state, seen.reason, seen.attempt) == (QUEUED, None, 2)
    assert seen.run_at == clock.now()
    step = await step_of(store, id)
    assert (step.is_done, step.finished_at) == (True, clock.now())
    assert msgspec.json.decode(step.result) == {
        "id": sent.id,
        "source": "shop",
        "name": "paid",
        "data": {"amount": 3},
        "time": to_iso(clock.now() - 5),
        "received_at": to_iso(clock.now()),
    }
    again = await claim(store)
    assert (again.one.id, again.one.attempt) == (id, 2)
    assert await record(store, again, a_step(again.one, event="paid")) == [step]


async def test_an_event_that_comes_before_the_move_to_waiting_is_not_lost(store, clock):
    hands = await claimed(store)
    await record(store, hands, a_step(hands.one, event="paid"))

    published = await store.runs.publish(TENANT, an_event())
    assert published.resumed == 1
    assert await states(store, [hands.one.id]) == [RUNNING]
    assert (await step_of(store, hands.one.id)).is_done
    assert await apply(store, hands, after_wait(hands.one, ran=1.0)) == []

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.reason, seen.attempt) == (QUEUED, None, 2)
    assert (await claim(store)).one.id == hands.one.id


async def test_an_event_that_came_before_the_wait_is_not_lost(store, clock):
    hands = await claimed(store)
    await clock.advance(6 * DAY)
    await store.runs.publish(TENANT, an_event("other"))
    await store.runs.publish(TENANT, an_event(data="1"))
    await clock.advance(1)
    await store.runs.publish(TENANT, an_event(data="2"))

    (step,) = await record(store, hands, a_step(hands.one, event="paid"))

    assert step.is_done
    assert msgspec.json.decode(step.result)["data"] == 1
    assert await store.runs.steps(TENANT, hands.one.id) == [step]
    assert await apply(store, hands, success(hands.one)) == []


async def test_what_came_before_the_execution_was_made_is_not_for_it(store, clock):
    await store.runs.publish(TENANT, an_event())
    await clock.advance(1)

    (id,) = await suspended(store)

    assert (await store.runs.publish(TENANT, an_event())).resumed == 1
    assert await states(store, [id]) == [QUEUED]


async def test_every_wait_of_an_execution_gets_an_event_of_its_own(store, clock):
    hands = await claimed(store)
    for text in "12":
        await store.runs.publish(TENANT, an_event(data=text))
    waits = [a_step(hands.one, n, event="paid") for n in range(3)]

    first, second, third = await record(store, hands, *waits)

    assert [msgspec.json.decode(one.result)["data"] for one in (first, second)] == [1, 2]
    assert not third.is_done
    assert await record(store, hands, *waits) == [first, second, third]


async def test_of_two_open_waits_the_first_gets_the_event_and_the_other_asks_again(store, clock):
    hands = await claimed(store)
    waits = [a_step(hands.one, n, event="paid", timeout=50.0) for n in (1, 0)]
    await record(store, hands, *waits)
    await store.runs.publish(TENANT, an_event())
    await apply(store, hands, after_wait(hands.one, ran=1.0))
    first, second = await store.runs.steps(TENANT, hands.one.id)
    assert (first.is_done, second.is_done) == (True, False)
    assert (await store.runs.publish(TENANT, an_event(data="2"))).resumed == 0

    again = await claim(store)
    (second,) = await record(store, again, a_step(again.one, 1, event="paid"))

    assert msgspec.json.decode(second.result)["data"] == 2


async def test_a_wait_that_is_asked_again_has_no_more_time_than_at_first(store, clock):
    hands = await claimed(store)
    wait = {"event": "paid", "timeout": 60.0}
    (first,) = await record(store, hands, a_step(hands.one, **wait))
    assert (first.is_done, first.wake_at) == (False, clock.now() + 60)
    await clock.advance(20)
    await apply(store, hands, retry(hands.one, delay=0.0))
    again = await claim(store)

    assert await record(store, again, a_step(again.one, **wait)) == [first]
    await clock.advance(40)
    (over,) = await record(store, again, a_step(again.one, **wait))

    assert (over.is_done, over.result, over.finished_at) == (True, None, clock.now())


async def test_an_event_is_kept_once(store, clock):
    await suspended(store)
    sent = an_event("other")
    assert (await store.runs.publish(TENANT, sent)).created

    again = await store.runs.publish(TENANT, msgspec.structs.replace(sent, name="paid", data="2"))
    elsewhere = await store.runs.publish(TENANT, msgspec.structs.replace(sent, source="till"))

    assert (again.created, again.resumed) == (False, 0)
    assert elsewhere.created
    page = await store.runs.list_events(TENANT)
    assert [(one.source, one.name, one.data) for one in page.items] == [
        ("till", "other", "null"),
        ("shop", "other", "null"),
    ]


async def test_an_event_resumes_only_those_whose_match_it_meets(store, clock):
    matches = [{"order": 1}, {"order": 2}, {}, {"order": 1, "vip": True}, {"order": "1"}]
    ids = await suspended(
        store,
        5,
        wait=lambda place: {"event": "paid", "match": msgspec.json.encode(matches[place]).decode()},
    )

    published = await store.runs.publish(TENANT, an_event(data='{"order": 1.0, "lines": [2]}'))

    assert published.resumed == 2
    assert await states(store, ids) == [QUEUED, WAITING, QUEUED, WAITING, WAITING]


@pytest.mark.parametrize("pairs", [3, 300])
async def test_a_wait_finds_what_it_matches_among_those_that_came_before(store, clock, pairs):
    hands = await claimed(store)
    for order in range(30):
        data = {"order": order, **{f"key{n}": n for n in range(pairs)}}
        await store.runs.publish(TENANT, an_event(data=msgspec.json.encode(data).decode()))
    wait = a_step(hands.one, event="paid", match='{"order": 27, "key2": 2}')

    (step,) = await record(store, hands, wait)

    assert msgspec.json.decode(step.result)["data"]["order"] == 27


async def test_a_signal_is_for_one_execution_only(store, clock):
    one, other = await suspended(store, 2)
    hands = await claimed(store, 2)

    assert (await store.runs.publish(TENANT, an_event(execution=other))).resumed == 1
    assert (
        await store.runs.publish(TENANT, an_event(execution=hands.executions[0].id))
    ).resumed == 0

    assert await states(store, [one, other]) == [WAITING, QUEUED]
    answers = await record(store, hands, *[a_step(it, event="paid") for it in hands.executions])
    assert [step.is_done for step in answers] == [True, False]
    with pytest.raises(ExecutionNotFound):
        await store.runs.publish(TENANT, an_event(execution=mint()))


async def test_a_signal_for_what_has_ended_changes_nothing(store, clock):
    hands = await claimed(store)
    await apply(store, hands, success(hands.one))

    assert (await store.runs.publish(TENANT, an_event(execution=hands.one.id))).resumed == 0
    assert (await look(store, hands.one.id)).state is State.SUCCEEDED


async def test_a_thousand_waits_are_resumed_by_one_event(store, clock):
    ids = await suspended(store, 1000)

    published = await store.runs.publish(TENANT, an_event())

    assert published.resumed == 1000
    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    assert {one.id for one in (await claim(store, 1000)).executions} == set(ids)


async def test_a_wait_ends_without_a_result_when_its_time_is_over(store, clock):
    waits = [{"event": "paid", "timeout": 60.0}, {"event": "paid", "timeout": 61.0}]
    ids = await suspended(store, 2, wait=lambda place: waits[place])
    assert await expire(store) == 0
    assert not (await store.queue.lost()).is_any_overdue
    await clock.advance(60)
    assert (await store.queue.lost()).is_any_overdue

    assert await expire(store) == 1
    assert not (await store.queue.lost()).is_any_overdue
    assert await states(store, ids) == [QUEUED, WAITING]
    step = await step_of(store, ids[0])
    assert (step.is_done, step.result, step.finished_at) == (True, None, clock.now())
    assert (await claim(store)).one.id == ids[0]
    await clock.advance(1)
    assert await expire(store) == 1

    assert await states(store, ids) == [RUNNING, QUEUED]
    assert (await store.runs.publish(TENANT, an_event())).resumed == 0


async def test_no_more_waits_are_timed_out_at_once_than_asked_for(store, clock):
    ids = await suspended(store, 3, wait=lambda place: {"event": "paid", "timeout": 60.0 + place})
    await clock.advance(90)

    assert await expire(store, limit=2) == 2
    assert await states(store, ids) == [QUEUED, QUEUED, WAITING]
    assert await expire(store, limit=2) == 1
    assert await expire(store, limit=2) == 0


async def test_time_that_is_over_before_the_move_to_waiting_is_noticed(store, clock):
    hands = await claimed(store)
    await record(store, hands, a_step(hands.one, event="paid", timeout=5.0))
    await clock.advance(5)
    assert await expire(store) == 1
    assert await states(store, [hands.one.id]) == [RUNNING]

    await apply(store, hands, after_wait(hands.one, ran=1.0))

    assert await states(store, [hands.one.id]) == [QUEUED]


async def test_what_is_cancelled_while_it_waits_is_over(store, clock):
    (id,) = await suspended(store, wait=lambda _: {"event": "paid", "timeout": 60.0})

    assert await store.queue.cancel(TENANT, [id]) == [Cancellation.CANCELLED]
    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    await clock.advance(60)
    assert await expire(store) == 0

    assert await states(store, [id]) == [State.CANCELLED]
    assert not (await step_of(store, id)).is_done


async def test_an_event_for_what_is_retried_is_there_at_the_next_attempt(store, clock):
    hands = await claimed(store)
    await record(store, hands, a_step(hands.one, event="paid"))
    await apply(store, hands, retry(hands.one, delay=60.0))

    assert (await store.runs.publish(TENANT, an_event())).resumed == 1

    assert await states(store, [hands.one.id]) == [State.RETRYING]
    assert (await step_of(store, hands.one.id)).is_done


async def test_a_dead_one_that_is_revived_asks_again_and_finds_what_came_meanwhile(store, clock):
    hands = await claimed(store)
    await record(store, hands, a_step(hands.one, event="paid"))
    await apply(store, hands, death(hands.one))
    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    assert not (await step_of(store, hands.one.id)).is_done
    await store.queue.revive(TENANT, [hands.one.id])
    again = await claim(store)

    (step,) = await record(store, again, a_step(again.one, event="paid"))

    assert step.is_done


async def test_a_slot_is_kept_while_its_holder_waits(store, clock):
    await set_gates(store, TENANT, {"narrow": 1})
    (id,) = await suspended(store, gate="narrow")
    (behind,) = await enqueued(store, gate="narrow")

    await store.runs.publish(TENANT, an_event())

    assert await states(store, [id, behind]) == [QUEUED, WAITING]
    assert await store.catalog.miscounts() == []
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    assert await states(store, [behind]) == [QUEUED]


async def test_workers_are_woken(store, clock):
    await suspended(store, 2, wait=lambda place: {"event": "paid", "timeout": 9.0 + 90 * place})
    woken = asyncio.Event()
    stop = await store.listen(TENANT, ["default"], woken.set)
    try:
        woken.clear()
        await clock.advance(10)
        await expire(store)
        await asyncio.wait_for(woken.wait(), 300)
        woken.clear()
        await store.runs.publish(TENANT, an_event())
        await asyncio.wait_for(woken.wait(), 300)
    finally:
        await stop()


async def test_events_are_kept_for_a_while(store, clock):
    await store.runs.publish(TENANT, an_event("old", id="1", data='{"a": 1}'))
    await clock.advance(EVENT_SECONDS_KEPT - 10)
    await store.runs.publish(TENANT, an_event("new"))
    await retain(store, Retention())
    assert len((await store.runs.list_events(TENANT)).items) == 2
    await clock.advance(20)

    await retain(store, Retention())

    assert [one.name for one in (await store.runs.list_events(TENANT)).items] == ["new"]
    assert (await store.runs.publish(TENANT, an_event("old", id="1"))).created


async def test_events_are_listed_newest_first_page_by_page(store, clock):
    sent = [an_event(data=str(n), time=float(n), execution=None) for n in range(5)]
    for one in sent:
        await store.runs.publish(TENANT, one)

    first = await store.runs.list_events(TENANT, limit=2)
    second = await store.runs.list_events(TENANT, limit=3, cursor=first.next_cursor)

    listed = [*first.items, *second.items]
    assert [one.id for one in listed] == [one.id for one in sent][::-1]
    assert (listed[0].time, listed[0].received_at) == (4.0, clock.now())
    assert second.next_cursor is None
    with pytest.raises(UsageError):
        await store.runs.list_events(TENANT, cursor="x")
    with pytest.raises(UsageError):
        await store.runs.list_events(TENANT, limit=0)


async def test_an_event_is_for_one_tenant(store, clock):
    await add_tenants(store, ["acme"])
    (id,) = await suspended(store)
    sent = an_event()

    assert (await store.runs.publish("acme", sent)).resumed == 0
    assert (await store.runs.publish(TENANT, sent)).created

    assert await states(store, [id]) == [QUEUED]
    assert len((await store.runs.list_events("acme")).items) == 1
    with pytest.raises(TenantNotFound):
        await store.runs.publish("nobody", sent)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": "x" * 201}, "id"),
        ({"source": "\0"}, "source"),
        ({"name": "\ud800"}, "name"),
        ({"data": "{"}, "data"),
        ({"data": '"' + "x" * (1024 * 1024) + '"'}, "data"),
        ({"time": float("nan")}, "time"),
    ],
)
async def test_an_event_that_cannot_be_kept_is_refused(store, clock, fault, field):
    with pytest.raises(UsageError) as caught:
        await store.runs.publish(TENANT, an_event(**fault))

    assert caught.value.field == field
    assert (await store.runs.list_events(TENANT)).items == ()


async def test_what_other_waits_are_for_is_not_ended_by_an_event(store, clock):
    hands = await claimed(store)
    move = after_wait(hands.one, ran=1.0)
    await apply(store, hands, msgspec.structs.replace(move, reason="files"))

    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    assert await states(store, [hands.one.id]) == [WAITING]


async def test_a_sleep_or_a_step_is_ended_by_no_event(store, clock):
    hands = await claimed(store)
    kinds = {"kind": StepKind.STEP, "is_done": False, "error": "1"}
    (step,) = await record(store, hands, a_step(hands.one, **kinds))

    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    assert await store.runs.steps(TENANT, hands.one.id) == [step]


# Waits whose time is over, and several waits at once: what came in time is not lost.


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
    await store.runs.publish(TENANT, an_event())  # which closes the other, too
    await clock.advance(59)
    await store.runs.publish(TENANT, an_event(name="sent", data="2"))
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
        assert (await store.runs.publish(TENANT, an_event(execution=signal))).resumed == 0
    assert await expire(store) == 1
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

    assert (await store.runs.publish(TENANT, an_event())).resumed == 0
    assert await store.runs.steps(TENANT, hands.one.id) == [over]
    assert await expire(store) == 0


async def test_of_several_waits_beside_a_sleep_each_gets_its_event_however_long_it_is(store, clock):
    hands = await claimed(store)
    waits = [a_step(hands.one, n, event=name) for n, name in enumerate(("paid", "sent"))]
    await record(store, hands, *waits)
    move = after_retry_later(hands.one, delay=30 * DAY, ran=1.0, reason="sleep")
    await apply(store, hands, move)

    assert (await store.runs.publish(TENANT, an_event(data="1"))).resumed == 1
    assert (await store.runs.publish(TENANT, an_event(name="sent", data="2"))).resumed == 1
    await clock.advance(2 * EVENT_SECONDS_KEPT)
    await retain(store, Retention())

    assert [told(step) for step in await store.runs.steps(TENANT, hands.one.id)] == [1, 2]
    assert await states(store, [hands.one.id]) == [State.SCHEDULED]


async def test_two_events_for_two_waits_take_one_more_attempt_if_both_are_quick(store, clock):
    hands = await claimed(store)
    waits = [a_step(hands.one, n, event=name) for n, name in enumerate(("paid", "sent"))]
    await record(store, hands, *waits)
    await apply(store, hands, after_wait(hands.one, ran=1.0))

    assert (await store.runs.publish(TENANT, an_event(data="1"))).resumed == 1
    assert (await store.runs.publish(TENANT, an_event(name="sent", data="2"))).resumed == 1

    assert [told(step) for step in await store.runs.steps(TENANT, hands.one.id)] == [1, 2]
    assert await states(store, [hands.one.id]) == [State.QUEUED]
