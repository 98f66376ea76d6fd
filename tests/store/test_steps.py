"""Steps of durable functions: written by who holds it, and there for the next attempt."""

import pytest
from msgspec.structs import replace

from daybell.core.event import StepKind
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss, after_retry_later
from daybell.core.limits import RECORD_BATCH_MAX
from daybell.core.views import Retention
from daybell.errors import PayloadTooLarge, TenantNotFound, UsageError
from tests.builders import LEASE, TENANT, a_step, apply, claim, claimed, death, look, retry, success

DAY = 86_400.0


async def record(store, hands, *steps, tenant=TENANT):
    return await store.record(tenant, worker=hands.worker, steps=steps)


async def test_steps_are_read_back_in_their_order(store, clock):
    hands = await claimed(store, 2)
    one, other = hands.executions
    answers = await record(
        store,
        hands,
        a_step(one, 1, result='"b"', ran=2.0),
        a_step(other, 0, result='"x"'),
        a_step(one, 0, name="reserve", kind=StepKind.NOW, result="17"),
    )

    found = await store.steps(TENANT, one.id)

    assert found == [answers[2], answers[0]]
    assert [step.n for step in found] == [0, 1]
    assert found[0].name == "reserve"
    assert found[0].kind is StepKind.NOW
    assert found[0].result == "17"
    assert found[1].started_at == clock.now() - 2.0
    assert found[1].finished_at == clock.now()
    assert found[1].is_done


async def test_a_step_that_is_done_stays_as_it_is(store, clock):
    hands = await claimed(store)
    (first,) = await record(store, hands, a_step(hands.one, result="1"))
    await clock.advance(5)

    (again,) = await record(store, hands, a_step(hands.one, result="2", name="other"))

    assert again == first
    assert await store.steps(TENANT, hands.one.id) == [first]


async def test_a_step_that_failed_is_replaced_and_keeps_its_beginning(store, clock):
    hands = await claimed(store)
    failed = a_step(hands.one, error='{"type": "E"}', failures=1, is_done=False, ran=1.0)
    (first,) = await record(store, hands, failed)
    assert (first.is_done, first.failures, first.finished_at) == (False, 1, None)
    await clock.advance(5)

    (done,) = await record(store, hands, a_step(hands.one, result="2", failures=1))

    assert (done.is_done, done.result, done.error) == (True, "2", None)
    assert (done.started_at, done.finished_at) == (first.started_at, clock.now())
    assert await store.steps(TENANT, hands.one.id) == [done]


async def test_of_the_same_step_twice_in_a_batch_the_first_one_that_is_done_counts(store, clock):
    hands = await claimed(store)
    failed = a_step(hands.one, error="1", failures=1, is_done=False)

    answers = await record(
        store, hands, failed, a_step(hands.one, result="1"), a_step(hands.one, result="2")
    )

    assert [step.result for step in answers] == [None, "1", "1"]
    assert await store.steps(TENANT, hands.one.id) == [answers[1]]


async def test_a_sleep_ends_when_the_store_says_however_often_it_is_asked(store, clock):
    hands = await claimed(store)
    sleep = a_step(hands.one, name="sleep", kind=StepKind.SLEEP, delay=3600.0)
    (first,) = await record(store, hands, sleep)
    assert first.wake_at == clock.now() + 3600.0
    assert first.finished_at == first.wake_at
    await clock.advance(100)

    assert await record(store, hands, sleep) == [first]


async def test_who_lost_an_execution_writes_nothing(store, clock):
    hands = await claimed(store)
    await clock.advance(LEASE + 1)
    (lost,) = (await store.lost()).executions
    await store.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=3)]
    )

    assert await record(store, hands, a_step(hands.one)) == [None]
    again = await claim(store)
    assert await record(store, hands, a_step(hands.one)) == [None]

    assert await store.steps(TENANT, hands.one.id) == []
    assert (await record(store, again, a_step(again.one)))[0] is not None


@pytest.mark.parametrize("kind", [StepKind.STEP, StepKind.WAIT])
async def test_only_its_worker_under_its_lease_and_attempt_writes(store, clock, kind):
    hands = await claimed(store, 2)
    one, other = hands.executions
    fine = a_step(one, kind=kind, event="paid")
    wrong = [
        replace(fine, lease=mint()),
        replace(fine, attempt=2),
        replace(fine, attempt=2**40),
        replace(fine, id=mint()),
    ]
    assert await store.record(TENANT, worker=mint(), steps=[fine]) == [None]
    assert await record(store, hands, *wrong) == [None] * 4
    assert await store.steps(TENANT, one.id) == []

    mixed = [wrong[0], a_step(other, kind=kind, event="paid"), wrong[3]]
    assert [step is not None for step in await record(store, hands, *mixed)] == [False, True, False]


async def test_what_has_ended_gets_no_more_steps_and_keeps_those_it_has(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, success(hands.one))

    assert await record(store, hands, a_step(hands.one, 1)) == [None]
    assert await store.steps(TENANT, hands.one.id) == [step]


async def test_the_next_attempt_finds_the_steps_of_those_before(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, retry(hands.one, delay=0.0))
    again = await claim(store)

    assert await store.steps(TENANT, again.one.id) == [step]
    (second,) = await record(store, again, a_step(again.one, 1))
    assert await store.steps(TENANT, again.one.id) == [step, second]


async def test_a_revived_execution_keeps_its_steps(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, death(hands.one))
    await clock.advance(30 * DAY)
    await store.retain(Retention())
    await store.revive(TENANT, [hands.one.id])

    assert await store.steps(TENANT, hands.one.id) == [step]


async def test_steps_go_with_their_execution(store, clock):
    kept = await claimed(store)
    (step,) = await record(store, kept, a_step(kept.one))
    hands = await claimed(store)
    steps = [a_step(hands.one), a_step(hands.one, 1), a_step(hands.one, 2, event="paid")]
    await record(store, hands, *steps)
    await apply(store, hands, success(hands.one))
    await store.retain(Retention())
    assert len(await store.steps(TENANT, hands.one.id)) == 3
    await clock.advance(30 * DAY)

    for _ in range(5):
        if (await store.retain(Retention())).is_complete:
            break

    assert await store.steps(TENANT, hands.one.id) == []
    assert await store.steps(TENANT, kept.one.id) == [step]


async def test_other_tenants_have_other_steps(store, clock):
    await store.add_tenants(["acme"])
    hands = await claimed(store)
    assert await record(store, hands, a_step(hands.one), tenant="acme") == [None]
    await record(store, hands, a_step(hands.one))

    assert await store.steps("acme", hands.one.id) == []
    assert await store.steps(TENANT, mint()) == []
    assert await record(store, hands) == []
    with pytest.raises(TenantNotFound):
        await store.steps("nobody", hands.one.id)
    with pytest.raises(TenantNotFound):
        await record(store, hands, a_step(hands.one), tenant="nobody")


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ({"n": 10_001}, "n"),
        ({"n": -1}, "n"),
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"result": '"\0"'}, "result"),
        ({"error": "\ud800"}, "error"),
        ({"failures": -1}, "failures"),
        ({"kind": StepKind.SLEEP}, "delay"),
        ({"kind": StepKind.SLEEP, "delay": float("nan")}, "delay"),
        ({"kind": StepKind.WAIT}, "event"),
        ({"kind": StepKind.WAIT, "event": "paid", "match": "[]"}, "match"),
        ({"kind": StepKind.WAIT, "event": "paid", "timeout": -1.0}, "timeout"),
    ],
)
async def test_a_step_that_cannot_be_kept_is_refused_with_all_of_its_batch(
    store, clock, fault, field
):
    hands = await claimed(store)
    steps = [a_step(hands.one), replace(a_step(hands.one, 1), **fault)]

    with pytest.raises(UsageError) as caught:
        await record(store, hands, *steps)

    assert caught.value.field == field
    assert await store.steps(TENANT, hands.one.id) == []


async def test_too_much_is_refused(store, clock):
    hands = await claimed(store)

    with pytest.raises(PayloadTooLarge):
        await record(store, hands, a_step(hands.one, result="x" * (1024 * 1024 + 1)))
    with pytest.raises(UsageError):
        await record(store, hands, *[a_step(hands.one)] * (RECORD_BATCH_MAX + 1))


async def test_why_it_is_away_is_told_until_it_is_due(store, clock):
    hands = await claimed(store)
    move = after_retry_later(hands.one, delay=60.0, ran=1.0, reason="sleep")
    await apply(store, hands, move)

    asleep = await look(store, hands.one.id)
    assert (asleep.state, asleep.reason) == (State.SCHEDULED, "sleep")
    await clock.advance(60)
    due = await look(store, hands.one.id)
    assert (due.state, due.reason) == (State.QUEUED, None)
    again = await claim(store)
    running = await look(store, hands.one.id)
    assert (running.state, running.reason) == (State.RUNNING, None)
    await apply(store, again, success(again.one))
    ended = await look(store, hands.one.id)
    assert (ended.state, ended.reason) == (State.SUCCEEDED, None)
