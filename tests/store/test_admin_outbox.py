"""Outgoing events: each change enters the outbox with its transaction, and is enqueued once."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from daybell.core.execution import Outcome, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.schedule import Decision, Tick
from daybell.core.subscription import SUBSCRIPTIONS, Dispatch, delivery_job, dispatches
from daybell.core.views import ExecutionFilter, SweepKind
from daybell.engine.upkeep import Outbox
from daybell.errors import SubscriptionNotFound, UsageError
from tests.builders import (
    TENANT,
    a_move,
    a_schedule,
    a_subscription,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    fired,
    limit,
    put,
    retry,
    success,
)
from tests.sweeps import fold_all


async def kept(store, name="hooks", tenant=TENANT, **fields):
    """A subscription that the store has."""
    return await store.admin.put_record(tenant, SUBSCRIPTIONS, a_subscription(name, **fields))


async def told(store):
    """Bring all changes to the deliveries, in a process of its own."""
    await fold_all(store)
    outbox = Outbox(store, mint=mint)
    while (await store.admin.outbox_work()).events:
        await outbox.tick()


async def deliveries(store, name="hooks", tenant=TENANT):
    """The deliveries of a subscription, oldest first."""
    where = ExecutionFilter(job=delivery_job(name))
    return (await store.catalog.list_executions(tenant, where)).items[::-1]


async def sent(store, name="hooks", tenant=TENANT):
    """The events that a subscription delivers, oldest first."""
    await told(store)
    return [json.loads(one.args) for one in await deliveries(store, name, tenant)]


async def types(store, name="hooks", **options):
    return [one["type"] for one in await sent(store, name, **options)]


async def test_a_subscription_is_kept_replaced_listed_and_deleted(store):
    first = await kept(store)
    second = await kept(store, job="resize")
    assert (first.version, second.version) == (1, 2)
    assert await store.admin.get_record(TENANT, SUBSCRIPTIONS, "hooks") == second
    assert (await store.admin.list_records(TENANT, SUBSCRIPTIONS)).items == (second,)

    await store.admin.delete_record(TENANT, SUBSCRIPTIONS, "hooks")

    with pytest.raises(SubscriptionNotFound):
        await store.admin.get_record(TENANT, SUBSCRIPTIONS, "hooks")


async def test_without_a_subscription_nothing_enters_the_outbox(store):
    await finished(store, 2)
    await defined(store, "resize", queue="slow")
    await fold_all(store)
    assert (await store.admin.outbox_work()).events == ()


async def test_each_end_is_delivered_once_to_each_subscription(store):
    await kept(store)
    await kept(store, "other", status=["dead"])
    (done,) = await finished(store, 1)
    (died,) = await dead(store, 1)
    await told(store)

    ends = {(one["data"].get("execution_id"), one["type"]) for one in await sent(store)}
    assert (str(done), "execution.succeeded") in ends
    assert (str(died), "execution.dead") in ends
    (event,) = await sent(store, "other")
    assert event["specversion"] == "1.0"
    assert event["source"] == f"/daybell/{TENANT}"
    assert event["subject"] == "resize"
    assert event["data"]["status"] == "dead"
    assert event["data"]["error"]["type"]
    assert len({one["id"] for one in await sent(store)}) == len(await sent(store))


async def test_attempts_and_the_end_of_one_execution_are_delivered_in_their_order(store, clock):
    """The second delivery waits at a gate until the first has ended, whatever it takes."""
    await kept(store, types=["execution.*"])
    hands = await claimed(store)
    await apply(store, hands, retry(hands.executions[0], delay=0))
    hands = await claim(store)
    await apply(store, hands, death(hands.executions[0]))
    await told(store)

    first, second = await deliveries(store)
    assert [json.loads(one.args)["type"] for one in (first, second)] == [
        "execution.retrying", "execution.dead",
    ]  # fmt: skip
    assert (first.state, second.state) == (State.QUEUED, State.WAITING)
    hands = await claim(store, kinds=("http",))
    assert [one.id for one in hands.executions] == [first.id]
    await apply(store, hands, retry(hands.executions[0], delay=5))
    assert (await claim(store, kinds=("http",))).executions == []
    await clock.advance(6)
    hands = await claim(store, kinds=("http",))
    assert [one.id for one in hands.executions] == [first.id]
    await apply(store, hands, success(hands.executions[0]))
    assert [one.id for one in (await claim(store, kinds=("http",))).executions] == [second.id]


async def test_deliveries_keep_their_order_when_the_clock_is_set_back(store, clock):
    await kept(store, types=["execution.*"])
    hands = await claimed(store)
    await clock.advance(60)
    for _ in range(2):
        await apply(store, hands, retry(hands.executions[0], delay=0))
        await told(store)
        hands = await claim(store)
    await clock.advance(-40)
    await apply(store, hands, death(hands.executions[0]))
    await told(store)
    await clock.advance(41)

    order = []
    while (hands := await claim(store, kinds=("http",))).executions:
        order += [json.loads(one.args)["data"]["attempt"] for one in hands.executions]
        await apply(store, hands, success(hands.executions[0]))

    assert order == [1, 2, 3]


async def test_executions_that_end_at_the_first_attempt_wait_for_no_other(store):
    await kept(store, types=["execution.succeeded"])
    await finished(store, 3)
    await told(store)
    assert [one.gate for one in await deliveries(store)] == [None] * 3


async def test_lost_attempts_are_events_and_released_ones_are_not(store):
    await kept(store, types=["execution.*"])
    hands = await claimed(store, 2)
    one, other = hands.executions
    lost = after_loss(one, max_crashes=3, is_begun=True)
    await apply(store, hands, lost, a_move(other, State.QUEUED, Outcome.RELEASED))
    assert await types(store) == ["execution.lost"]


async def test_a_dead_letter_that_is_revived_before_the_sweep_was_dead(store):
    await kept(store, types=["execution.*"])
    (id,) = await dead(store, 1)
    await store.queue.revive(TENANT, [id])
    hands = await claim(store)
    await apply(store, hands, success(hands.executions[0]))
    assert await types(store) == ["execution.dead", "execution.succeeded"]


async def test_changes_of_jobs_are_events(store):
    await defined(store, "resize")
    await kept(store, types=["job.changed"])
    await defined(store, "resize", description="of pictures")
    await store.schedules.pause_job(TENANT, "resize", note="deploy")
    await store.schedules.resume_job(TENANT, "resize")
    await store.catalog.delete_job(TENANT, "resize")
    await defined(store, "resize", description="again")
    events = await sent(store)
    assert [one["data"]["change"] for one in events] == [
        "updated", "paused", "resumed", "deleted", "created",
    ]  # fmt: skip
    assert {one["data"]["job"] for one in events} == {"resize"}
    assert [one["data"]["version"] for one in events] == [2, 2, 2, 2, 3]


async def test_a_missed_tick_is_an_event(store, clock):
    await defined(store)
    await kept(store, types=["schedule.*"])
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule)
    await fired(store, schedule, Tick(at=clock.now(), decision=Decision.MISSED))
    (event,) = await sent(store)
    assert event["type"] == "schedule.missed"
    assert event["data"]["schedule_id"] == str(schedule.id)
    assert event["data"]["job"] == "resize"


async def test_a_subscription_gets_nothing_from_before_it(store):
    await kept(store, "early")
    await finished(store, 1)
    await told(store)
    await kept(store, "late")
    await finished(store, 1)
    await told(store)
    ends = ["execution.succeeded"]
    assert [one for one in await types(store, "early") if one in ends] == ends * 2
    assert [one for one in await types(store, "late") if one in ends] == ends


async def test_events_of_a_subscription_that_is_gone_leave_the_outbox(store):
    await kept(store)
    await finished(store, 1)
    await fold_all(store)
    await store.admin.delete_record(TENANT, SUBSCRIPTIONS, "hooks")
    swept = await store.upkeep(sweeps=[SweepKind.FOLD])
    assert swept.folded.is_told
    await told(store)
    assert not (await store.upkeep(sweeps=[SweepKind.FOLD])).folded.is_told
    await kept(store)
    assert await types(store) == []


async def test_deliveries_are_no_events(store):
    await kept(store, types=["execution.*", "job.changed"])
    await finished(store, 1)
    await told(store)
    before = len(await deliveries(store))
    hands = await claim(store, kinds=("http",))
    await apply(store, hands, *(death(one) for one in hands.executions))
    assert len(await sent(store)) == before


async def test_messages_of_alerts_are_events_only_by_the_name_of_their_job(store):
    await kept(store, "all")
    await kept(store, "named", job="alert:letters")
    await finished(store, job="alert:letters")
    assert await types(store, "all") == []
    assert "execution.succeeded" in await types(store, "named")


async def test_events_go_to_subscriptions_of_their_tenant_only(store):
    await add_tenants(store, ["acme"])
    await kept(store)
    await kept(store, tenant="acme")
    await finished(store, 1, tenant="acme")
    assert await types(store) == []
    assert "execution.succeeded" in await types(store, tenant="acme")


async def test_filters_by_job_queue_and_status(store):
    await kept(store, "by-job", job="re*")
    await kept(store, "by-queue", queue="slow")
    await kept(store, "by-status", status=["cancelled"])
    await finished(store, 1, job="resize", queue="slow")
    await finished(store, 1, job="mail")
    (id,) = await enqueued(store, 1, job="mail")
    await store.queue.cancel(TENANT, [id])
    assert {one["data"]["job"] for one in await sent(store, "by-job")} == {"resize"}
    assert [one["data"]["queue"] for one in await sent(store, "by-queue")] == ["slow"]
    assert await types(store, "by-status") == ["execution.cancelled"]


async def test_two_processes_enqueue_each_event_once(store, crowd):
    await kept(store, types=["execution.*"])
    await finished(store, 20)
    await asyncio.gather(*(told(one) for one in crowd))
    assert len(await sent(store)) == 20


async def test_events_that_were_taken_out_are_not_enqueued_again(store):
    await kept(store, types=["execution.*"])
    await finished(store, 2)
    await fold_all(store)
    (first,) = dispatches(await store.admin.outbox_work(), mint)
    assert await store.admin.dispatch(first)
    assert not await store.admin.dispatch(first)
    assert not await store.admin.dispatch(replace(first, numbers=first.numbers[:1]))
    assert len(await deliveries(store)) == 2


async def test_a_delivery_that_cannot_be_enqueued_leaves_its_event(store):
    await kept(store, types=["execution.*"])
    await finished(store, 1)
    await fold_all(store)
    (one,) = dispatches(await store.admin.outbox_work(), mint)
    wrong = Dispatch(
        tenant=TENANT,
        numbers=one.numbers,
        jobs=one.jobs,
        executions=(an_execution(delivery_job("hooks"), gate="nowhere"),),
    )
    with pytest.raises(UsageError):
        await store.admin.dispatch(wrong)
    assert len((await store.admin.outbox_work()).events) == len(one.numbers)
    assert await types(store) == ["execution.succeeded"]


async def test_quotas_refuse_no_delivery(store):
    await kept(store, types=["execution.*"])
    await finished(store, 3)
    await limit(store, jobs=1, queued=1, per_minute=1)
    assert len(await types(store)) == 3


async def test_an_end_that_is_rolled_back_is_no_event(store):
    await kept(store, types=["execution.*"])
    hands = await claimed(store)
    (stale,) = hands.executions
    await apply(store, hands, retry(stale, delay=0))
    await apply(store, hands, success(stale))  # refused by the fence
    assert await types(store) == ["execution.retrying"]
