"""Each cause for which an execution does not go on, and its remedies."""

from datetime import timedelta

import pytest

from daybell.core.event import StepKind
from daybell.core.execution import State
from daybell.core.lifecycle import (
    FOR_SLEEP,
    FOR_STEP,
    after_expiry,
    after_loss,
    after_retry_later,
    after_unknown,
    after_wait,
)
from daybell.core.units import to_datetime, to_iso
from daybell.core.when import cron
from tests.builders import (
    TENANT,
    a_step,
    apply,
    claim,
    death,
    retry,
    success,
)
from tests.client.explain.situations import ONE_WAY_PER_STORE
from tests.sweeps import fold_stats

pytestmark = pytest.mark.usefixtures("store")
HOUR = 3600.0
NAP = {"kind": StepKind.SLEEP, "name": "sleep", "delay": HOUR}


# Each situation answers with the execution that does not go on.


async def no_worker(world):
    await world.worker("mail")
    return (await world.client.enqueue("resize")).id


async def draining(world):
    await world.client.drain_worker(await world.worker())
    return (await world.client.enqueue("resize")).id


async def no_worker_of_kind(world):
    await world.client.create("disk", command="df")
    await world.worker()
    return (await world.client.enqueue("disk")).id


async def queue_paused(world):
    await world.worker()
    await world.client.pause_queue("default")
    return (await world.client.enqueue("resize")).id


async def quota(world):
    await world.client.update_tenant(TENANT, running=1)
    await world.start()
    return (await world.client.enqueue("resize")).id


async def workers_busy(world):
    worker = await world.worker(capacity=1)
    await world.client.enqueue("resize")
    await claim(world.store, worker=worker)
    return (await world.client.enqueue("resize")).id


async def due(world):
    await world.worker(capacity=2)
    return (await world.client.enqueue("resize")).id


async def overlap(world):
    await world.client.enqueue("single")
    return (await world.client.enqueue("single")).id


async def backfill(world):
    daily = cron("0 2 * * *")
    await world.client.define("daily", schedule=daily)
    now = world.clock.now()
    found = await world.client.backfill("daily", now - 3 * 86400, now, concurrency=1)
    assert found.ticks == 3
    waiting = await world.client.executions(job="daily", status="waiting")
    ahead = {(await world.client.why(one.execution_id)).ahead: one for one in waiting.items}
    return ahead[0].execution_id


async def _fired_load(world, **options):
    """An execution of a job that has a time of its own, and depends on `extract`."""
    at = to_iso(world.clock.now() + 60)
    await world.client.define("load", schedule={"at": at}, dependencies=["extract"], **options)
    await world.clock.advance(61)
    await world.fire()
    return (await world.client.executions(job="load")).items[0].execution_id


async def dependencies(world):
    return await _fired_load(world)


async def event(world):
    id, hands = await world.start()
    wait = a_step(hands.one, name="paid", event="paid", timeout=HOUR)
    await world.store.runs.record(TENANT, worker=hands.worker, steps=[wait])
    await apply(world.store, hands, after_wait(hands.one, ran=1.0))
    return id


async def approval(world):
    id, hands = await world.start()
    name = "daybell.approval.budget"
    wait = a_step(hands.one, name=name, event=name)
    await world.store.runs.record(TENANT, worker=hands.worker, steps=[wait])
    await apply(world.store, hands, after_wait(hands.one, ran=1.0))
    return id


async def sleep(world):
    id, hands = await world.start()
    (step,) = await world.store.runs.record(
        TENANT, worker=hands.worker, steps=[a_step(hands.one, **NAP)]
    )
    move = after_retry_later(hands.one, at=step.wake_at, ran=1.0, reason=FOR_SLEEP)
    await apply(world.store, hands, move)
    return id


async def step_retry(world):
    id, hands = await world.start()
    step = a_step(hands.one, error='{"type": "ValueError"}', is_done=False, failures=1)
    await world.store.runs.record(TENANT, worker=hands.worker, steps=[step])
    move = after_retry_later(hands.one, delay=60.0, ran=1.0, reason=FOR_STEP)
    await apply(world.store, hands, move)
    return id


async def backoff(world):
    id, hands = await world.start()
    await apply(world.store, hands, retry(hands.one, delay=60.0))
    return id


async def not_due(world):
    return (await world.client.enqueue("resize", delay="1h")).id


async def unknown_task(world):
    id, hands = await world.start()
    await apply(world.store, hands, after_unknown(hands.one, delay=60.0))
    await world.store.queue.retire(TENANT, hands.worker)
    return id


async def running(world):
    return (await world.start())[0]


async def cancelling(world):
    id, _ = await world.start()
    await world.client.cancel(id)
    return id


async def worker_silent(world):
    id, _ = await world.start()
    await world.clock.advance(45)  # of a lease of 60 s
    return id


async def worker_lost(world):
    id, _ = await world.start()
    await world.clock.advance(61)
    return id


async def _limited(world, **options):
    """The second of two executions, of which the first has the limit."""
    await world.client.define("limited", **options)
    args = {"account": "acme"}
    await world.client.enqueue("limited", args)
    second = await world.client.enqueue("limited", args)
    await world.take()
    return second.id


async def limit(world):
    return await _limited(world, concurrency=1)


async def shared_limit(world):
    return await _limited(world, concurrency={"name": "stripe", "limit": 1, "key": "account"})


async def rate(world):
    return await _limited(world, rate="1/h")


async def _paused(world, key):
    id = await _limited(world, concurrency={"name": "stripe", "limit": 5, "key": "account"})
    await world.client.pause_limit("stripe", key=key)
    third = (await world.client.enqueue("limited", {"account": "acme"})).id
    await world.take()
    assert third != id
    return third


async def limit_paused(world):
    return await _paused(world, None)


async def item_paused(world):
    return await _paused(world, "acme")


async def no_labels(world):
    await world.client.define("train", requires={"gpu": "a100"}, resources={"memory": "4GB"})
    await world.worker(labels={"gpu": "t4"}, resources={"memory": 8e9})
    return (await world.client.enqueue("train")).id


async def resources_busy(world):
    await world.client.define("train", resources={"gpu": 1})
    await world.client.enqueue("train")
    needs = (await world.client.job("train")).definition.needs
    await world.take(resources={"gpu": 1.0}, kinds=(needs,))
    return (await world.client.enqueue("train")).id


async def debounced(world):
    await world.client.define("render", debounce="30s")
    return (await world.client.enqueue("render")).id


async def skipped_by_limit(world):
    await world.client.define("limited", concurrency=1, on_full="skip")
    await world.client.enqueue("limited")
    second = await world.client.enqueue("limited")
    await world.take()
    return second.id


async def singleton(world):
    options = {"singleton": "unfinished", "on_conflict": "cancel"}
    await world.client.define("alone", **options)
    await world.client.enqueue("alone")
    return (await world.client.enqueue("alone")).id


async def dead(world):
    id, hands = await world.start()
    await apply(world.store, hands, death(hands.one))
    return id


async def cancelled(world):
    id = (await world.client.enqueue("resize")).id
    await world.client.cancel(id)
    return id


async def skipped_by_overlap(world):
    at = to_iso(world.clock.now() + 60)
    await world.client.define("hourly", schedule={"at": at})
    await world.client.enqueue("hourly")
    await world.clock.advance(61)
    await world.fire()
    return (await world.client.executions(job="hourly", status="skipped")).items[0].execution_id


async def expired(world):
    id, hands = await world.start(expires="1s")
    await apply(world.store, hands, after_expiry(hands.one))
    return id


async def succeeded(world):
    id, hands = await world.start()
    await apply(world.store, hands, success(hands.one))
    return id


# The situation, its code, the number of its remedies, and what has changed after one: `other`, its
# code; `again`, there is another execution of its job; `released`, its code once others are done.
CAUSES = {
    "no_worker": (no_worker, "no_worker", 1, "other"),
    "draining": (draining, "draining", 1, "other"),
    "no_worker_of_kind": (no_worker_of_kind, "no_worker_of_kind", 1, "other"),
    "queue_paused": (queue_paused, "queue_paused", 1, "other"),
    "quota": (quota, "quota", 1, "other"),
    "workers_busy": (workers_busy, "workers_busy", 1, "other"),
    "due": (due, "due", 0, ""),
    "overlap": (overlap, "overlap", 1, "other"),
    "backfill": (backfill, "backfill", 1, "other"),
    "dependencies": (dependencies, "dependencies", 1, "released"),
    "event": (event, "event", 2, "other"),
    "approval": (approval, "event", 2, "other"),
    "sleep": (sleep, "sleep", 1, "other"),
    "step_retry": (step_retry, "step_retry", 1, "other"),
    "backoff": (backoff, "backoff", 1, "other"),
    "not_due": (not_due, "not_due", 1, "other"),
    "unknown_task": (unknown_task, "unknown_task", 2, "known"),
    "running": (running, "running", 1, "other"),
    "cancelling": (cancelling, "cancelling", 0, ""),
    "worker_silent": (worker_silent, "worker_silent", 1, "taken"),
    "worker_lost": (worker_lost, "worker_lost", 1, "taken"),
    "limit": (limit, "limit", 2, "room"),
    "shared limit": (shared_limit, "limit", 2, "room"),
    "rate": (rate, "limit", 1, "room"),
    "limit paused": (limit_paused, "limit", 1, "room"),
    "item paused": (item_paused, "limit", 1, "room"),
    "no_labels": (no_labels, "no_worker_of_kind", 1, "other"),
    "resources_busy": (resources_busy, "resources_busy", 2, "room"),
    "debounced": (debounced, "debounced", 1, "other"),
    "skipped by limit": (skipped_by_limit, "skipped", 1, "again"),
    "singleton": (singleton, "cancelled", 1, "again"),
    "dead": (dead, "dead", 2, "other"),
    "cancelled": (cancelled, "cancelled", 1, "again"),
    "skipped by overlap": (skipped_by_overlap, "skipped", 1, "again"),
    "expired": (expired, "skipped", 1, "again"),
    "succeeded": (succeeded, "succeeded", 0, ""),
}
REMEDIES = [
    pytest.param(cause, number, id=f"{cause}-{number}")
    for cause, (_, _, count, _) in CAUSES.items()
    for number in range(count)
]


@pytest.mark.parametrize("cause", CAUSES)
async def test_each_cause_has_its_code_and_its_remedies(cause, world):
    situation, code, count, _ = CAUSES[cause]

    found = await world.client.why(await situation(world))

    assert (found.code, len(found.actions)) == (code, count)
    assert found.detail


@ONE_WAY_PER_STORE
@pytest.mark.parametrize(("cause", "number"), REMEDIES)
async def test_a_remedy_removes_its_cause(cause, number, by, world):
    situation, code, _, change = CAUSES[cause]
    id = await situation(world)
    found = await world.client.why(id)
    remedy, job = found.actions[number], (await world.client.execution(id)).job
    before = len(await world.states(job))

    await world.perform(remedy, by=by)

    if change == "released":
        await world.work_off()
    if change == "known" and remedy.request is None:
        await world.clock.advance(61)
    if change == "room":
        await world.clock.advance(30)  # all waits are checked every few seconds
        await world.stop_cancelled()
        await world.take()
    if change == "taken":
        await take_back(world)
    if change == "again":
        assert len(await world.states(job)) == before + 1
    else:
        assert (await world.client.why(id)).code != code


async def take_back(world):
    """Do as the reaper does that runs in each worker, once the lease has ended."""
    await world.clock.advance(20)
    for one in (await world.store.queue.lost()).executions:
        move = after_loss(one.claimed, max_crashes=one.max_crashes)
        await world.store.queue.apply(TENANT, worker=one.worker, transitions=[move], wait=False)


async def test_a_paused_job_that_another_waits_for_is_to_be_resumed(world):
    id = await dependencies(world)
    await world.client.pause("extract")

    labels = [one.label for one in (await world.client.why(id)).actions]

    assert labels == ["resume job extract", "run job extract now"]


async def test_a_killed_worker_is_told_by_its_silence_until_its_lease_ends(world):
    id, hands = await world.start()
    until = world.clock.now() + 60
    await world.clock.advance(5)
    assert (await world.client.why(id)).code == "running"
    await world.clock.advance(40)

    silent = await world.client.why(id)

    assert silent.next_at == to_datetime(until)
    assert str(hands.worker) in silent.detail and "heard from 45 s ago" in silent.detail
    assert f"lasts until {to_iso(until)}" in silent.detail
    assert "it is queued again, and starts as attempt 2" in silent.detail
    await take_back(world)
    again = await world.client.why(id)
    assert (again.code, again.status) == ("no_worker", State.QUEUED)
    assert again.detail.startswith("it has lost its worker and was queued again; ")


async def test_a_killed_worker_with_others_beside_it_needs_no_remedy(world):
    id = await worker_silent(world)
    await world.worker()

    assert (await world.client.why(id)).actions == []


async def test_a_lost_execution_that_may_not_run_twice_is_a_dead_letter_next(world):
    await world.client.define("once", on_lost="dead")
    id, _ = await world.start("once")
    await world.clock.advance(45)

    assert "becomes a dead letter, as on_lost is dead" in (await world.client.why(id)).detail


async def test_holders_of_a_gate_and_the_place_in_its_line_are_named(world):
    await world.client.define("lined", overlap="queue_all")
    holder, _, third = [await world.client.enqueue("lined") for _ in range(3)]

    found = await world.client.why(third.id)

    assert [one.execution_id for one in found.holders] == [holder.id]
    assert found.holders[0].url == f"/api/v1/executions/{holder.id}"
    assert (found.ahead, found.at_least) == (1, False)
    assert str(holder.id) in found.detail


async def test_the_nearest_worker_lacks_least(world):
    await world.client.create("disk", command="df", queue="ops")
    await world.worker("mail", name="far")
    near = await world.worker("ops", name="near")
    made = await world.client.enqueue("disk")

    found = (await world.client.why(made.id)).nearest_worker

    assert (found.worker_id, found.name) == (near, "near")
    assert found.lacks == ["it does not run jobs of the kind 'command'"]


async def test_a_worker_whose_app_lacks_the_task_is_told_so(world):
    await world.worker(tasks={"other": "default"})
    made = await world.client.enqueue("resize")

    found = (await world.client.why(made.id)).nearest_worker

    assert found.lacks == ["its app has no task 'resize'"]


async def test_the_start_is_estimated_by_the_rate_of_the_last_minutes(world):
    worker = await world.worker(capacity=100)
    for _ in range(60):
        await world.client.enqueue("resize")
    hands = await claim(world.store, worker=worker)
    await apply(world.store, hands, *(success(one) for one in hands.executions))
    await world.clock.advance(60)
    while await fold_stats(world.store):
        pass
    await world.worker(capacity=100)
    for _ in range(9):
        await world.client.enqueue("resize")
    made = await world.client.enqueue("resize")

    found = await world.client.why(made.id)

    assert found.ahead == 9
    assert found.estimated_start == to_datetime(world.clock.now()) + timedelta(seconds=100)


@pytest.mark.parametrize("cause", ["dead", "succeeded", "cancelled", "expired"])
async def test_the_parts_of_the_delay_add_up(cause, world):
    id = await CAUSES[cause][0](world)

    found, one = await world.client.why(id), await world.client.execution(id)

    total = (one.finished_at - one.created_at).total_seconds()
    assert sum(part.seconds for part in found.delays) == pytest.approx(total, abs=1e-6)


# A limit is given at a claim, a slot at the end of the execution before.
@pytest.mark.parametrize(
    ("job", "waits"),
    [("single", {"slot": 10.0, "worker": 6.0}), ("limited", {"limit": 15.0, "worker": 1.0})],
)
async def test_the_delay_is_split_by_its_causes(world, job, waits):
    await world.client.define("limited", concurrency=1)
    await world.client.enqueue(job)
    second = await world.client.enqueue(job)
    worker = await world.worker(capacity=10)
    await world.clock.advance(10)
    first = await claim(world.store, worker=worker)
    await apply(world.store, first, success(first.one, ran=0.0))
    await world.clock.advance(5)
    hands = await claim(world.store, worker=worker)
    await world.clock.advance(3)
    await apply(world.store, hands, success(hands.one, ran=2.0))

    found = await world.client.why(second.id)

    assert {one.code: round(one.seconds, 3) for one in found.delays} == {
        **waits,
        "run": 2.0,
    }


async def test_retries_sleeps_and_losses_are_parts_of_the_delay(world):
    id, hands = await world.start()
    await world.clock.advance(4)
    await apply(world.store, hands, retry(hands.one, delay=30.0, ran=4.0))
    await world.clock.advance(40)
    again = await claim(world.store, worker=await world.worker())
    await world.clock.advance(1)
    await apply(world.store, again, success(again.one, ran=1.0))

    found = await world.client.why(id)

    assert {one.code: round(one.seconds, 3) for one in found.delays} == {
        "run": 5.0,
        "retry": 30.0,
        "worker": 10.0,
    }


async def test_commands_name_the_tenant(world):
    await world.client.add_tenant("acme")
    other = world.client.for_tenant("acme")
    await other.define("resize")
    await other.pause_queue("default")
    made = await other.enqueue("resize")

    (remedy,) = (await other.why(made.id)).actions

    assert remedy.command == "daybell queues resume default --tenant acme"


async def test_an_execution_that_made_room_names_the_limit_and_its_rule(world):
    rule = {"concurrency": {"name": "bank", "limit": 1}, "on_full": "cancel_oldest"}
    await world.client.define("pay", **rule)
    first = await world.client.enqueue("pay")
    await world.take()
    await world.client.enqueue("pay")
    await world.take()
    await world.stop_cancelled()

    found = await world.client.why(first.id)

    assert found.code == "cancelled"
    assert "limit bank (on_full=cancel_oldest)" in found.detail
