"""A run that has begun stays the same attempt, and nobody takes it for one in a worker's hands."""

from daybell.core.execution import Outcome, State
from daybell.core.view import ExecutionFilter
from daybell.store.outcomes import Revival
from tests.builders import LEASE, TENANT, a_report, apply, enqueued, look, retry, success
from tests.store.runs import a_plan, begun, run_to_end, take, waiting_run

PLAN = a_plan({"a": ["b"]})


async def begun_beside_a_task(store):
    """A run that has begun, and a task of the same claim that the worker still has: so the lease
    is not over.
    """
    run = await waiting_run(store)
    await enqueued(store, 1)
    hands = await take(store)
    ours, task = sorted(hands.executions, key=lambda one: one.id != run)
    assert await store.expand(TENANT, worker=hands.worker, claimed=ours, plan=PLAN)
    return hands, ours, task


async def test_late_reports_of_its_worker_find_nothing(store):
    hands, ours, _ = await begun_beside_a_task(store)

    verdicts = await apply(store, hands, success(ours), retry(ours))
    written = await store.report(TENANT, worker=hands.worker, reports=[a_report(ours, note="late")])

    assert [one.ruling for one in verdicts] == ["stale", "stale"]
    assert written == [(ours.id, ours.attempt)]
    assert not await store.expand(TENANT, worker=hands.worker, claimed=ours, plan=PLAN)
    run = await look(store, ours.id)
    assert (run.state, run.attempt, run.note) == (State.RUNNING, 1, None)
    await run_to_end(store)
    assert [one.ruling for one in await apply(store, hands, success(ours))] == ["stale"]


async def test_neither_a_repeated_claim_nor_a_renewal_nor_a_reaper_finds_it(store, clock):
    hands, ours, task = await begun_beside_a_task(store)

    again = await take(store, worker=hands.worker, lease=hands.lease)
    await store.cancel(TENANT, [task.id])
    await store.cancel(TENANT, [ours.id])
    renewal = await store.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    (worker,) = await store.list_workers(TENANT)
    await clock.advance(LEASE + 1)
    lost = (await store.lost()).executions

    assert [one.id for one in again.executions] == [task.id]
    assert renewal.cancel == ((task.id, 1),)
    assert worker.running == 1
    assert [one.claimed.id for one in lost] == [task.id]


async def test_it_is_listed_and_counted_once(store):
    _, ours, task = await begun_beside_a_task(store)

    page = await store.list_executions(TENANT, ExecutionFilter(states=frozenset({State.RUNNING})))
    (queue,) = await store.list_queues(TENANT)

    assert {one.id for one in page.items} == {ours.id, task.id}
    assert len(page.items) == 2
    assert queue.running == 2


async def test_a_run_that_was_retried_once_has_two_attempts(store):
    run = await begun(store, PLAN)
    await run_to_end(store, failing=["a"])
    assert await store.revive(TENANT, [run]) == [Revival.REVIVED]
    hands = await take(store)
    assert hands.one.attempt == 2
    await store.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=PLAN)
    await run_to_end(store)

    detail = await store.get_execution(TENANT, run)

    assert [(one.attempt, one.outcome) for one in detail.attempts] == [
        (1, Outcome.FAILED),
        (2, Outcome.SUCCEEDED),
    ]
