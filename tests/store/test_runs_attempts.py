"""A run that has begun stays the same attempt, and nobody takes it for one in a worker's hands."""

from daybell.core.execution import Outcome, Revival, State
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from tests.builders import (
    LEASE,
    TENANT,
    a_report,
    an_execution,
    apply,
    enqueued,
    look,
    retry,
    success,
)
from tests.store.runs import a_mapped_plan, a_plan, begun, detail, run_to_end, take, waiting_run

PLAN = a_plan({"a": ["b"]})


async def begun_beside_a_task(store):
    """A run that has begun, and a task of the same claim that the worker still has: so the lease
    is not over.
    """
    run = await waiting_run(store)
    await enqueued(store, 1)
    hands = await take(store)
    ours, task = sorted(hands.executions, key=lambda one: one.id != run)
    assert await store.runs.expand(TENANT, worker=hands.worker, claimed=ours, plan=PLAN)
    return hands, ours, task


async def test_late_reports_of_its_worker_find_nothing(store):
    hands, ours, _ = await begun_beside_a_task(store)

    verdicts = await apply(store, hands, success(ours), retry(ours))
    written = await store.queue.report(
        TENANT, worker=hands.worker, reports=[a_report(ours, note="late")]
    )

    assert [one.ruling for one in verdicts] == ["stale", "stale"]
    assert written == [(ours.id, ours.attempt)]
    assert not await store.runs.expand(TENANT, worker=hands.worker, claimed=ours, plan=PLAN)
    run = await look(store, ours.id)
    assert (run.state, run.attempt, run.note) == (State.RUNNING, 1, None)
    await run_to_end(store)
    assert [one.ruling for one in await apply(store, hands, success(ours))] == ["stale"]


async def test_neither_a_repeated_claim_nor_a_renewal_nor_a_reaper_finds_it(store, clock):
    hands, ours, task = await begun_beside_a_task(store)

    again = await take(store, worker=hands.worker, lease=hands.lease)
    await store.queue.cancel(TENANT, [task.id])
    await store.queue.cancel(TENANT, [ours.id])
    renewal = await store.queue.renew(
        TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease]
    )
    (worker,) = await store.catalog.list_workers(TENANT)
    await clock.advance(LEASE + 1)
    lost = (await store.queue.lost()).executions

    assert [one.id for one in again.executions] == [task.id]
    assert renewal.cancel == ((task.id, 1),)
    assert worker.running == 1
    assert [one.claimed.id for one in lost] == [task.id]


async def test_it_is_listed_and_counted_once(store):
    _, ours, task = await begun_beside_a_task(store)

    page = await store.catalog.list_executions(
        TENANT, ExecutionFilter(states=frozenset({State.RUNNING}))
    )
    (queue,) = await store.catalog.list_queues(TENANT)

    assert {one.id for one in page.items} == {ours.id, task.id}
    assert len(page.items) == 2
    assert queue.running == 2


async def test_a_run_that_was_retried_once_has_two_attempts(store):
    run = await begun(store, PLAN)
    await run_to_end(store, failing=["a"])
    assert await store.queue.revive(TENANT, [run]) == [Revival.REVIVED]
    hands = await take(store)
    assert hands.one.attempt == 2
    await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=PLAN)
    await run_to_end(store)

    detail = await store.catalog.get_execution(TENANT, run)

    assert [(one.attempt, one.outcome) for one in detail.attempts] == [
        (1, Outcome.FAILED),
        (2, Outcome.SUCCEEDED),
    ]


async def spans(store, run, **options):
    """The attempts at the nodes of a run: by label, with who has or had them."""
    labels = {one.node.execution: one.node.label for one in (await detail(store, run)).nodes}
    found = await store.runs.node_attempts(TENANT, run, **options)
    return {
        labels[id]: [(one.attempt, one.outcome, one.worker) for one in each]
        for id, each in found.items()
    }


async def test_the_attempts_at_nodes_are_told_ended_or_not(store, clock):
    run = await begun(store, a_plan({"a": ["b"], "c": []}))
    first = await take(store)
    a, c = sorted(first.executions, key=lambda one: str(one.node))
    assert await apply(store, first, retry(a, delay=0.0), success(c)) == []
    assert await spans(store, run) == {
        "a": [(1, Outcome.FAILED, first.worker)],
        "c": [(1, Outcome.SUCCEEDED, first.worker)],
    }

    await clock.advance(60)
    second = await take(store)
    await store.queue.report(TENANT, worker=second.worker, reports=[a_report(second.one, ran=2.0)])

    failed, current = (await store.runs.node_attempts(TENANT, run))[a.id]
    assert (current.attempt, current.outcome, current.worker) == (2, None, second.worker)
    assert (failed.ended_at - failed.started_at, current.ended_at) == (1.0, None)
    assert current.started_at - failed.ended_at >= 57
    await apply(store, second, success(second.one))
    await run_to_end(store)
    told = await spans(store, run)
    assert told["a"] == [
        (1, Outcome.FAILED, first.worker),
        (2, Outcome.SUCCEEDED, second.worker),
    ]
    assert [outcome for _, outcome, _ in told["b"]] == [Outcome.SUCCEEDED]
    assert (await spans(store, run, limit=1))["a"] == told["a"][1:]


async def test_attempts_at_items_are_left_out_and_those_at_what_was_taken_over_are_not(store):
    run = await begun(store, a_mapped_plan())
    await run_to_end(store, results={"list": [1, 2]}, failing=["join"])
    other = (await store.runs.rerun(TENANT, run, an_execution("etl"))).id
    again = await take(store)
    await store.runs.expand(TENANT, worker=again.worker, claimed=again.one, plan=a_mapped_plan())

    before, after = await spans(store, run), await spans(store, other)

    assert set(before) == {"list", "join"}
    assert [outcome for _, outcome, _ in before["join"]] == [Outcome.FAILED]
    assert after == {"list": before["list"]}
    assert await store.runs.node_attempts(TENANT, mint()) == {}
