"""Gates: at most so many of a kind at a time, from admission to the end."""

import pytest

from daybell.core.execution import Priority, Revival, State
from daybell.core.lifecycle import after_loss, after_release
from daybell.errors import UsageError
from tests.builders import (
    TENANT,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    look,
    retry,
    states,
    success,
)
from tests.sweeps import admit, set_gates

QUEUED, WAITING, RUNNING = State.QUEUED, State.WAITING, State.RUNNING


async def gate(store, capacity, name="g"):
    await set_gates(store, TENANT, {name: capacity})


async def test_as_many_as_fit_get_in_at_once_and_the_others_wait(store):
    await gate(store, 2)

    ids = await enqueued(store, 3, gate="g")

    assert await states(store, ids) == [QUEUED, QUEUED, WAITING]
    waiting = await look(store, ids[2])
    assert (waiting.gate, waiting.reason) == ("g", "gate")
    assert (await look(store, ids[0])).reason is None
    assert [one.id for one in (await claim(store)).executions] == ids[:2]


async def test_a_slot_is_held_over_several_enqueues(store):
    await gate(store, 1)
    (inside,) = await enqueued(store, gate="g")

    (outside,) = await enqueued(store, gate="g")

    assert await states(store, [inside, outside]) == [QUEUED, WAITING]


async def test_what_waits_is_never_claimed(store, clock):
    await gate(store, 0)
    await enqueued(store, 2, gate="g")
    await clock.advance(3600)

    found = await claim(store)
    assert (found.executions, found.next_due) == ([], None)


async def test_an_unknown_gate_is_refused_and_stops_the_whole_batch(store):
    await defined(store)

    with pytest.raises(UsageError, match="nothing"):
        await store.queue.enqueue(TENANT, [an_execution(), an_execution(gate="nothing")])

    assert (await claim(store)).executions == []


@pytest.mark.parametrize("end", [success, death], ids=["success", "death"])
async def test_an_end_hands_the_slot_on(store, end):
    await gate(store, 1)
    first, second, third = await enqueued(store, 3, gate="g")
    hands = await claim(store)
    assert hands.one.gate == "g"

    await apply(store, hands, end(hands.one))

    assert await states(store, [second, third]) == [QUEUED, WAITING]
    assert first == hands.one.id
    assert (await claim(store)).one.id == second


async def test_several_ends_at_once_hand_on_several_slots(store):
    await gate(store, 3)
    await enqueued(store, 7, gate="g")
    hands = await claim(store)
    assert len(hands.executions) == 3

    await apply(store, hands, *(success(one) for one in hands.executions[:2]))

    assert len((await claim(store)).executions) == 2


@pytest.mark.parametrize(
    "way_back",
    [retry, after_release, lambda claimed: after_loss(claimed, max_crashes=9)],
    ids=["retry", "release", "loss"],
)
async def test_a_slot_is_held_through_ways_back(store, clock, way_back):
    await gate(store, 1)
    first, second = await enqueued(store, 2, gate="g")
    hands = await claim(store)

    await apply(store, hands, way_back(hands.one))

    assert (await states(store, [second])) == [WAITING]
    await clock.advance(60)
    assert await admit(store) == 0
    again = await claim(store)
    assert again.one.id == first
    await apply(store, again, success(again.one))
    assert await states(store, [second]) == [QUEUED]


async def test_a_slot_is_held_when_a_claims_answer_was_lost(store):
    await gate(store, 1)
    first, second = await enqueued(store, 2, gate="g")
    hands = await claim(store)

    await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[])

    assert await states(store, [first, second]) == [QUEUED, WAITING]


async def test_the_best_priority_gets_in_first_then_the_oldest(store, clock):
    await gate(store, 0)
    (low,) = await enqueued(store, gate="g", priority=Priority.LOW)
    (old,) = await enqueued(store, gate="g")
    await clock.advance(1)
    (young,) = await enqueued(store, gate="g")
    (high,) = await enqueued(store, gate="g", priority=Priority.HIGH)
    wanted = [high, old, young, low]

    for room in range(1, 5):
        await gate(store, room)
        expected = [QUEUED] * room + [WAITING] * (4 - room)
        assert await states(store, wanted) == expected


async def test_a_delayed_one_waits_for_its_time_and_then_for_a_slot(store, clock):
    await gate(store, 1)
    (delayed,) = await enqueued(store, gate="g", delay=10.0)
    assert await states(store, [delayed]) == [WAITING]
    assert await admit(store) == 0

    await clock.advance(10)
    assert await states(store, [delayed]) == [WAITING]
    assert await admit(store) == 1

    assert await states(store, [delayed]) == [QUEUED]
    assert (await claim(store)).one.id == delayed


async def test_an_enqueue_lets_in_who_was_due_before_and_itself_if_there_is_room(store, clock):
    await gate(store, 2)
    (delayed,) = await enqueued(store, gate="g", delay=10.0)
    await clock.advance(10)

    now, full = await enqueued(store, 2, gate="g")

    assert await states(store, [delayed, now, full]) == [QUEUED, QUEUED, WAITING]


async def test_a_delayed_one_takes_no_slot_before_its_time(store):
    await gate(store, 1)
    await enqueued(store, gate="g", delay=10.0)

    (now,) = await enqueued(store, gate="g")

    assert await states(store, [now]) == [QUEUED]


async def test_admission_never_exceeds_the_capacity(store, clock):
    await gate(store, 2)
    ids = await enqueued(store, 5, gate="g", delay=10.0)
    await clock.advance(10)

    assert await admit(store) == 2
    assert await admit(store) == 0

    assert sorted(await states(store, ids)) == [QUEUED] * 2 + [WAITING] * 3


async def test_admission_has_a_limit_and_goes_on_after_it(store, clock):
    await gate(store, 9)
    await enqueued(store, 5, gate="g", delay=10.0)
    await clock.advance(10)

    admitted = [await admit(store, limit=2) for _ in range(4)]

    assert admitted == [2, 2, 1, 0]


async def test_admission_works_for_all_gates_and_tenants(store, clock):
    await add_tenants(store, ["acme"])
    for tenant in (TENANT, "acme"):
        await set_gates(store, tenant, {"a": 1, "b": 1})
        for name in "ab":
            await enqueued(store, 2, gate=name, delay=10.0, tenant=tenant)
    await clock.advance(10)

    assert await admit(store) == 4


async def test_more_room_is_given_out_at_once(store):
    await gate(store, 1)
    ids = await enqueued(store, 4, gate="g")

    await gate(store, 3)

    assert await states(store, ids) == [QUEUED, QUEUED, QUEUED, WAITING]


async def test_less_room_takes_nothing_back_from_those_inside(store):
    await gate(store, 3)
    ids = await enqueued(store, 4, gate="g")
    hands = await claim(store)

    await gate(store, 1)
    assert await states(store, ids) == [RUNNING, RUNNING, RUNNING, WAITING]

    for one in hands.executions[:2]:
        await apply(store, hands, success(one))
        assert await states(store, ids[3:]) == [WAITING]
    await apply(store, hands, success(hands.executions[2]))
    assert await states(store, ids[3:]) == [QUEUED]


async def test_a_closed_gate_lets_nobody_in(store):
    await gate(store, 0)

    ids = await enqueued(store, 2, gate="g")

    assert await states(store, ids) == [WAITING, WAITING]
    assert await admit(store) == 0


async def test_gates_do_not_know_each_other(store):
    await set_gates(store, TENANT, {"a": 1, "b": 1})

    (first,) = await enqueued(store, gate="a")
    (second,) = await enqueued(store, gate="b")
    (third,) = await enqueued(store)

    assert await states(store, [first, second, third]) == [QUEUED] * 3


async def test_cancelling_one_that_waits_frees_no_slot(store):
    await gate(store, 1)
    first, second, third = await enqueued(store, 3, gate="g")

    await store.queue.cancel(TENANT, [second])

    assert await states(store, [first, second, third]) == [QUEUED, State.CANCELLED, WAITING]


async def test_cancelling_one_that_was_admitted_hands_its_slot_on(store):
    await gate(store, 1)
    first, second = await enqueued(store, 2, gate="g")

    await store.queue.cancel(TENANT, [first])

    assert await states(store, [first, second]) == [State.CANCELLED, QUEUED]


async def test_asking_a_running_one_to_stop_leaves_it_its_slot_until_it_ends(store):
    await gate(store, 1)
    hands = await claimed(store, gate="g")
    (second,) = await enqueued(store, gate="g")

    await store.queue.cancel(TENANT, [hands.one.id])
    assert await states(store, [second]) == [WAITING]

    await apply(store, hands, success(hands.one))
    assert await states(store, [second]) == [QUEUED]


async def test_a_repeated_end_hands_the_slot_on_once(store):
    await gate(store, 1)
    _, second, third = await enqueued(store, 3, gate="g")
    hands = await claim(store)
    await apply(store, hands, success(hands.one))

    await apply(store, hands, success(hands.one))

    assert await states(store, [second, third]) == [QUEUED, WAITING]


async def test_a_revived_one_goes_through_its_gate_again(store):
    await gate(store, 1)
    (id,) = await dead(store, gate="g")
    (inside,) = await enqueued(store, gate="g")

    assert await store.queue.revive(TENANT, [id]) == [Revival.REVIVED]

    seen = await look(store, id)
    assert (seen.state, seen.reason, seen.attempt) == (WAITING, "gate", 2)
    hands = await claim(store)
    assert hands.one.id == inside
    await apply(store, hands, success(hands.one))
    assert (await claim(store)).one.id == id


async def test_a_revived_one_that_finds_room_is_queued(store):
    await gate(store, 1)
    (id,) = await dead(store, gate="g")

    await store.queue.revive(TENANT, [id])

    assert await states(store, [id]) == [QUEUED]
    assert (await claim(store)).one.id == id


async def test_enqueueing_an_id_again_takes_no_second_slot(store):
    await gate(store, 2)
    await defined(store)
    new = an_execution(gate="g")
    await store.queue.enqueue(TENANT, [new])

    await store.queue.enqueue(TENANT, [new], repeat=True)

    (second,) = await enqueued(store, gate="g")
    assert await states(store, [new.id, second]) == [QUEUED, QUEUED]


async def test_one_that_waits_at_a_gate_holds_its_unique_key(store):
    await gate(store, 0)
    (id,) = await enqueued(store, gate="g", unique_key="k")

    (answer,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (answer.id, answer.created) == (id, False)


async def test_a_look_for_the_lost_tells_whether_anything_waits(store):
    await gate(store, 1)
    await enqueued(store, gate="g")
    assert not (await store.queue.lost()).is_any_waiting

    await enqueued(store, gate="g")
    assert (await store.queue.lost()).is_any_waiting

    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    assert not (await store.queue.lost()).is_any_waiting
