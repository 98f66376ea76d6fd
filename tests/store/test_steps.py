"""Steps of durable functions, and waits of nodes."""

import pytest
from msgspec.structs import replace

from daybell.core.event import StepKind
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss, after_retry_later, after_wait
from daybell.core.limits import RECORD_BATCH_MAX
from daybell.core.views import Retention
from daybell.core.workflow.run import Spec
from daybell.errors import PayloadTooLarge, TenantNotFound, UsageError
from tests.builders import (
    LEASE,
    TENANT,
    a_job,
    a_step,
    add_tenants,
    an_event,
    apply,
    claim,
    claimed,
    death,
    look,
    retry,
    success,
)
from tests.store.runs import SETTINGS, a_mapped_plan, a_plan, begun, detail, end, take
from tests.sweeps import retain

DAY = 86_400.0


async def record(store, hands, *steps, tenant=TENANT):
    return await store.runs.record(tenant, worker=hands.worker, steps=steps)


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

    found = await store.runs.steps(TENANT, one.id)

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
    assert await store.runs.steps(TENANT, hands.one.id) == [first]


async def test_a_step_that_failed_is_replaced_and_keeps_its_beginning(store, clock):
    hands = await claimed(store)
    failed = a_step(hands.one, error='{"type": "E"}', failures=1, is_done=False, ran=1.0)
    (first,) = await record(store, hands, failed)
    assert (first.is_done, first.failures, first.finished_at) == (False, 1, None)
    await clock.advance(5)

    (done,) = await record(store, hands, a_step(hands.one, result="2", failures=1))

    assert (done.is_done, done.result, done.error) == (True, "2", None)
    assert (done.started_at, done.finished_at) == (first.started_at, clock.now())
    assert await store.runs.steps(TENANT, hands.one.id) == [done]


async def test_of_the_same_step_twice_in_a_batch_the_first_one_that_is_done_counts(store, clock):
    hands = await claimed(store)
    failed = a_step(hands.one, error="1", failures=1, is_done=False)

    answers = await record(
        store, hands, failed, a_step(hands.one, result="1"), a_step(hands.one, result="2")
    )

    assert [step.result for step in answers] == [None, "1", "1"]
    assert await store.runs.steps(TENANT, hands.one.id) == [answers[1]]


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
    (lost,) = (await store.queue.lost()).executions
    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=3)]
    )

    assert await record(store, hands, a_step(hands.one)) == [None]
    again = await claim(store)
    assert await record(store, hands, a_step(hands.one)) == [None]

    assert await store.runs.steps(TENANT, hands.one.id) == []
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
    assert await store.runs.record(TENANT, worker=mint(), steps=[fine]) == [None]
    assert await record(store, hands, *wrong) == [None] * 4
    assert await store.runs.steps(TENANT, one.id) == []

    mixed = [wrong[0], a_step(other, kind=kind, event="paid"), wrong[3]]
    assert [step is not None for step in await record(store, hands, *mixed)] == [False, True, False]


async def test_what_has_ended_gets_no_more_steps_and_keeps_those_it_has(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, success(hands.one))

    assert await record(store, hands, a_step(hands.one, 1)) == [None]
    assert await store.runs.steps(TENANT, hands.one.id) == [step]


async def test_the_next_attempt_finds_the_steps_of_those_before(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, retry(hands.one, delay=0.0))
    again = await claim(store)

    assert await store.runs.steps(TENANT, again.one.id) == [step]
    (second,) = await record(store, again, a_step(again.one, 1))
    assert await store.runs.steps(TENANT, again.one.id) == [step, second]


async def test_a_revived_execution_keeps_its_steps(store, clock):
    hands = await claimed(store)
    (step,) = await record(store, hands, a_step(hands.one))
    await apply(store, hands, death(hands.one))
    await clock.advance(32 * DAY)
    await retain(store, Retention())
    await store.queue.revive(TENANT, [hands.one.id])

    assert await store.runs.steps(TENANT, hands.one.id) == [step]


async def test_steps_go_with_their_execution(store, clock):
    kept = await claimed(store)
    (step,) = await record(store, kept, a_step(kept.one))
    hands = await claimed(store)
    steps = [a_step(hands.one), a_step(hands.one, 1), a_step(hands.one, 2, event="paid")]
    await record(store, hands, *steps)
    await apply(store, hands, success(hands.one))
    await retain(store, Retention())
    assert len(await store.runs.steps(TENANT, hands.one.id)) == 3
    await clock.advance(32 * DAY)

    for _ in range(5):
        if (await retain(store, Retention())).is_complete:
            break

    assert await store.runs.steps(TENANT, hands.one.id) == []
    assert await store.runs.steps(TENANT, kept.one.id) == [step]


async def test_other_tenants_have_other_steps(store, clock):
    await add_tenants(store, ["acme"])
    hands = await claimed(store)
    assert await record(store, hands, a_step(hands.one), tenant="acme") == [None]
    await record(store, hands, a_step(hands.one))

    assert await store.runs.steps("acme", hands.one.id) == []
    assert await store.runs.steps(TENANT, mint()) == []
    assert await record(store, hands) == []
    with pytest.raises(TenantNotFound):
        await store.runs.steps("nobody", hands.one.id)
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
    assert await store.runs.steps(TENANT, hands.one.id) == []


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


# What nodes of a run wait for: told for all of them at once, however deep they are.


async def wait(store, hands, waits):
    """Nodes wait for the events that are named by their labels; the others stay as they are."""
    chosen = [one for one in hands.executions if one.node in waits]
    steps = [a_step(one, n, **said) for one in chosen for n, said in enumerate(waits[one.node])]
    assert not any(
        one.is_done for one in await store.runs.record(TENANT, worker=hands.worker, steps=steps)
    )
    assert await apply(store, hands, *[after_wait(one, ran=1.0) for one in chosen]) == []
    return {one.node: one.id for one in chosen}


async def told(store, run, **options):
    found = await store.runs.node_waits(TENANT, run, **options)
    return [(one.label, one.node, one.name, one.until) for one in found]


async def test_each_open_wait_is_told_with_its_execution(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    hands = await take(store)
    paid, sent = {"event": "paid"}, {"event": "sent", "timeout": 60.0}
    ids = await wait(store, hands, {"a": [paid], "b": [sent, paid]})
    other = await claimed(store)  # waits, too, but is in no run
    await store.runs.record(TENANT, worker=other.worker, steps=[a_step(other.one, event="paid")])

    found = await store.runs.node_waits(TENANT, run)

    assert sorted((one.label, one.name, one.until) for one in found) == [
        ("a", "paid", None),
        ("b", "paid", None),
        ("b", "sent", clock.now() + 60.0),
    ]
    assert {one.label: one.execution for one in found} == ids
    assert [one.execution for one in found] == sorted(one.execution for one in found)
    assert len(await store.runs.node_waits(TENANT, run, limit=2)) == 2
    assert await store.runs.node_waits(TENANT, ids["a"]) == []


async def test_only_those_that_an_event_fits_and_that_have_time(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    await wait(
        store,
        await take(store),
        {
            "a": [{"event": "paid", "match": '{"order": 1}'}],
            "b": [{"event": "paid", "match": '{"order": 2}'}],
            "c": [{"event": "sent"}],
            "d": [{"event": "paid", "timeout": 5.0}],
        },
    )

    event = an_event(data='{"order": 2, "by": "ada"}')
    assert sorted(await told(store, run, event=event)) == [
        ("b", "b", "paid", None),
        ("d", "d", "paid", clock.now() + 5.0),
    ]
    await clock.advance(6)
    assert await told(store, run, event=event) == [("b", "b", "paid", None)]
    assert (await store.runs.publish(TENANT, event)).resumed == 1
    assert await told(store, run, event=event) == []


@pytest.mark.parametrize("limit", [1, 2])
async def test_the_limit_counts_those_that_an_event_fits(store, clock, limit):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    items = {"a": (1, 4), "b": (2, 5), "c": (3, 6, 6, 6)}
    waits = {
        label: [{"event": "paid", "match": f'{{"batch": 1, "item": {item}}}'} for item in wanted]
        for label, wanted in items.items()
    }
    await wait(store, await take(store), waits)

    for label, wanted in items.items():
        for item in wanted:
            event = an_event(data=f'{{"batch": 1, "item": {item}}}')
            found = [one[0] for one in await told(store, run, event=event, limit=limit)]
            assert found == [label] * min(limit, wanted.count(item))
    assert await told(store, run, event=an_event(data='{"batch": 1}'), limit=limit) == []


async def test_items_and_nodes_of_inner_runs_are_told_under_the_node_that_they_are_in(store, clock):
    await store.catalog.define_jobs(TENANT, [a_job("inner", kind="workflow", settings=SETTINGS)])
    plan = a_plan({"outer": [], "ask": []}, specs={"outer": Spec(job="inner")})
    run = await begun(store, plan)
    hands = await take(store)
    await wait(store, hands, {"ask": [{"event": "paid"}]})
    (inner,) = (one for one in hands.executions if one.node == "outer")
    mapped = a_mapped_plan()
    assert await store.runs.expand(TENANT, worker=hands.worker, claimed=inner, plan=mapped)
    await end(store, await take(store), results={"list": [1, 2]})
    ids = await wait(store, await take(store), {"each[1]": [{"event": "sent"}]})

    assert sorted(await told(store, run)) == [
        ("ask", "ask", "paid", None),
        ("each[1]", "outer", "sent", None),
    ]
    assert await told(store, inner.id) == [("each[1]", "each", "sent", None)]
    await store.queue.cancel(TENANT, [ids["each[1]"]])
    assert await told(store, inner.id) == []


async def test_a_node_is_shown_with_why_and_until_when_it_is_away(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    hands = await take(store)
    now = clock.now()
    await wait(store, hands, {"a": [{"event": "paid"}]})
    (b,) = (one for one in hands.executions if one.node == "b")
    (c,) = (one for one in hands.executions if one.node == "c")
    moves = [after_retry_later(b, delay=60.0, reason="busy", ran=1.0), success(c)]
    assert await apply(store, hands, *moves) == []

    views = {view.node.label: view for view in (await detail(store, run)).nodes}

    assert (views["a"].state, views["a"].reason) == (State.WAITING, "event")
    assert (views["b"].state, views["b"].reason) == (State.SCHEDULED, "busy")
    assert views["b"].run_at == pytest.approx(now + 60.0)
    assert (views["c"].state, views["c"].reason, views["c"].run_at) == (State.SUCCEEDED, None, None)
    await clock.advance(61)
    views = {view.node.label: view for view in (await detail(store, run)).nodes}
    assert (views["b"].state, views["b"].reason) == (State.QUEUED, None)
