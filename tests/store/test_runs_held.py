"""A run is an execution: it can be cancelled, holds what others hold, and is looked at."""

import pytest

from daybell.core.execution import Cancellation, State
from daybell.core.views import ExecutionFilter, Retention
from daybell.errors import ExecutionNotFound
from tests.builders import (
    TENANT,
    a_schedule,
    add_tenants,
    an_execution,
    apply,
    claim,
    death,
    fired,
    look,
    put,
    registered,
    retry,
    shown,
    success,
)
from tests.store.runs import (
    SETTINGS,
    a_mapped_plan,
    a_plan,
    begun,
    detail,
    end,
    labels,
    nodes,
    run_to_end,
    state,
    take,
    taken_run,
    waiting_run,
)
from tests.sweeps import retain

CHAIN = {"a": ["b"], "b": ["c"]}
DAY = 86_400.0
WEEK = Retention(finished=7 * DAY, ticks=7 * DAY, workers=7 * DAY)


async def test_a_run_that_has_not_begun_is_cancelled_at_once(store):
    run = await waiting_run(store)

    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.CANCELLED]
    assert await store.runs.get_run(TENANT, run) is None


async def test_a_run_that_is_to_be_cancelled_ends_instead_of_beginning(store):
    hands = await taken_run(store)
    assert await store.queue.cancel(TENANT, [hands.one.id]) == [Cancellation.REQUESTED]

    assert await store.runs.expand(
        TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN)
    )

    assert await state(store, hands.one.id) is State.CANCELLED
    assert await store.runs.get_run(TENANT, hands.one.id) is None


async def test_nodes_that_nobody_has_claimed_end_with_their_run(store):
    run = await begun(store, a_plan({"a": ["c"], "b": ["c"]}))

    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.CANCELLED]

    assert set((await nodes(store, run)).values()) == {State.CANCELLED}
    assert (await take(store)).executions == []
    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.FINISHED]


async def test_a_run_is_cancelled_when_the_last_running_node_has_stopped(store, clock):
    run = await begun(store, a_plan({"a": ["c"], "b": ["c"]}))
    hands = await take(store, 1)

    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.REQUESTED]
    assert (await look(store, run)).cancel_requested_at == clock.now()
    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    assert [id for id, _ in renewal.cancel] == [hands.one.id]
    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.ruling == "cancelled"
    ended = await look(store, run)
    assert (ended.state, ended.outcome) == (State.CANCELLED, "cancelled")


async def test_a_run_can_be_cancelled_whose_items_are_not_all_made(store, monkeypatch):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": list(range(2500))})
    hands = await take(store, 1)

    assert await store.queue.cancel(TENANT, [run]) == [Cancellation.REQUESTED]
    await apply(store, hands, success(hands.one))

    assert await state(store, run) is State.CANCELLED
    counts = await store.catalog.count_executions(TENANT, ExecutionFilter(parent=run))
    assert counts == {State.SUCCEEDED: 1, State.CANCELLED: 2500}


async def test_a_run_that_is_replaced_is_cancelled(store):
    run = await begun(store, a_plan(CHAIN), overlap="replace")
    hands = await take(store)

    (new,) = await store.queue.enqueue(TENANT, [an_execution("etl")])
    assert (await claim(store, kinds=("workflow",))).executions == []
    await apply(store, hands, success(hands.one))

    assert await state(store, run) is State.CANCELLED
    assert (await claim(store, kinds=("workflow",))).one.id == new.id


@pytest.mark.parametrize("failing", [[], ["c"]])
async def test_a_run_holds_its_unique_key_until_its_end(store, failing):
    run = await begun(store, a_plan(CHAIN), unique_key="k")
    again = an_execution("etl", unique_key="k")
    (answer,) = await store.queue.enqueue(TENANT, [again])
    assert (answer.id, answer.created) == (run, False)

    await run_to_end(store, failing=failing)

    (answer,) = await store.queue.enqueue(TENANT, [again])
    assert answer.created


async def test_a_run_holds_its_gate_until_its_end(store):
    await begun(store, a_plan(CHAIN), overlap="queue")
    (waiting,) = await store.queue.enqueue(TENANT, [an_execution("etl")])
    assert await state(store, waiting.id) is State.WAITING

    rounds = await run_to_end(store)

    assert rounds[:3] == [["a"], ["b"], ["c"]]
    assert await state(store, waiting.id) is not State.WAITING
    assert await store.catalog.miscounts() == []


async def test_the_schedule_of_a_run_hears_of_its_end(store, clock):
    schedule = a_schedule("etl", next_at=clock.now(), delay=60.0)
    await put(store, schedule, kind="workflow", settings=SETTINGS)
    await fired(store, schedule)
    hands = await claim(store, kinds=("workflow",))
    await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN))
    assert (await shown(store, schedule)).next_at is None

    await run_to_end(store, failing=["c"])

    heard = await shown(store, schedule)
    assert (heard.failures, heard.next_at) == (1, clock.now() + 60)


async def test_a_quota_of_running_executions_counts_no_runs(store):
    await store.admin.set_quotas(TENANT, running=1)
    await begun(store, a_plan(CHAIN))

    assert await run_to_end(store) == [["a"], ["b"], ["c"]]


async def test_lists_and_counts_leave_nodes_out_unless_asked(store):
    run = await begun(store, a_plan({"a": [], "b": []}))
    await end(store, await take(store), failing=["b"])

    def ids(page):
        return {one.id for one in page.items}

    every = ids(await store.catalog.list_executions(TENANT, ExecutionFilter(with_nodes=True)))
    assert len(every) == 3
    for where in (ExecutionFilter(), ExecutionFilter(job="etl")):
        assert ids(await store.catalog.list_executions(TENANT, where)) == {run}
        assert await store.catalog.count_executions(TENANT, where) == {State.DEAD: 1}
    of_run = ExecutionFilter(parent=run)
    assert ids(await store.catalog.list_executions(TENANT, of_run)) == every - {run}
    assert await store.catalog.count_executions(TENANT, of_run) == {
        State.SUCCEEDED: 1,
        State.DEAD: 1,
    }
    some = ExecutionFilter(ids=frozenset(every))
    assert ids(await store.catalog.list_executions(TENANT, some)) == every


async def test_a_job_stands_as_its_run_does(store):
    run = await begun(store, a_plan(CHAIN))

    seen = (await store.catalog.job_activity(TENANT, ["etl"]))["etl"]
    assert (seen.last.id, seen.unfinished) == (run, {State.RUNNING})
    await end(store, await take(store), failing=["a"])

    seen = (await store.catalog.job_activity(TENANT, ["etl"]))["etl"]
    assert (seen.last.id, seen.unfinished) == (run, set())


async def test_the_nodes_of_a_run_are_shown_in_order_with_their_times(store, clock):
    run = await begun(store, a_plan(CHAIN))
    hands = await take(store)
    await clock.advance(5)
    await apply(store, hands, success(hands.one, ran=4.0))

    found = await detail(store, run)

    assert [one.node.label for one in found.nodes] == ["a", "b", "c"]
    assert [one.state for one in found.nodes] == [State.SUCCEEDED, State.QUEUED, State.WAITING]
    a, b, c = (one.node for one in found.nodes)
    assert (a.started_at, a.finished_at) == (clock.now() - 4, clock.now())
    assert (a.execution, c.execution) == (hands.one.id, None)
    assert b.execution is not None
    assert found.finished_at is None
    assert (found.run.total, found.run.left, found.run.running) == (3, 2, 1)


@pytest.mark.parametrize("is_dead", [False, True])
async def test_a_node_has_begun_with_its_first_attempt(store, clock, is_dead):
    run = await begun(store, a_plan(CHAIN))
    began = clock.now()
    hands = await take(store)
    await clock.advance(5)
    await apply(store, hands, retry(hands.one, delay=10.0, ran=5.0))
    await clock.advance(10)
    hands = await take(store)
    await clock.advance(2)
    last = death(hands.one, ran=2.0) if is_dead else success(hands.one, ran=2.0)
    assert await apply(store, hands, last) == []

    first = (await detail(store, run)).nodes[0].node

    assert (first.started_at, first.finished_at) == (began, began + 17)


async def test_a_run_is_unknown_to_other_tenants(store):
    await add_tenants(store, ["acme"])
    run = await begun(store, a_plan(CHAIN))

    assert await store.runs.get_run("acme", run) is None
    assert await store.queue.cancel("acme", [run]) == [Cancellation.UNKNOWN]


async def test_runs_of_two_tenants_are_apart(store):
    await add_tenants(store, ["acme"])
    mine = await begun(store, a_plan(CHAIN))
    theirs = await begun(store, a_plan({"x": []}), tenant="acme")

    assert await run_to_end(store, tenant="acme") == [["x"]]

    assert await state(store, theirs, tenant="acme") is State.SUCCEEDED
    assert await state(store, mine) is State.RUNNING


async def retain_all(store):
    for _ in range(20):
        if (await retain(store, WEEK)).is_complete:
            return
    raise AssertionError("retention does not come to an end")


async def test_a_run_goes_with_its_nodes(store, clock):
    run = await begun(store, a_plan(CHAIN))
    await run_to_end(store)
    await clock.advance(10 * DAY)

    await retain_all(store)

    with pytest.raises(ExecutionNotFound):
        await look(store, run)
    assert await store.runs.get_run(TENANT, run) is None
    everything = ExecutionFilter(with_nodes=True)
    assert (await store.catalog.list_executions(TENANT, everything)).items == ()
    # Whatever numbers a store gives, nothing is inherited from what is gone.
    again = await begun(store, a_plan({"x": []}))
    assert await run_to_end(store) == [["x"]]
    assert await nodes(store, again) == {"x": State.SUCCEEDED}


async def test_a_run_that_lasts_outlives_the_executions_of_its_nodes(store, clock):
    run = await begun(store, a_plan(CHAIN))
    await end(store, await take(store), results={"a": 1})
    await clock.advance(10 * DAY)

    await retain_all(store)

    (a, _, _) = (await detail(store, run)).nodes
    assert (a.state, a.result) == (State.SUCCEEDED, "1")
    worker = await registered(store)
    await end(store, await take(store, worker=worker))
    assert labels(await take(store)) == ["c"]
