"""However a node ends, its run hears of it once."""

from itertools import pairwise

from daybell.core.execution import Cancellation, State
from daybell.core.lifecycle import after_expiry, after_loss, after_release
from daybell.core.views import ExecutionFilter, Retention
from daybell.core.workflow.run import PROGRESS_BATCH, Spec
from daybell.store import run_driver
from tests.builders import (
    TENANT,
    a_job,
    an_execution,
    apply,
    claim,
    defined,
    look,
    states,
    success,
)
from tests.store.runs import (
    SETTINGS,
    a_plan,
    begun,
    detail,
    end,
    labels,
    nodes,
    reasons,
    run_to_end,
    state,
    take,
    taken_run,
)
from tests.sweeps import advance_runs, expire

CHAIN = {"a": ["b"], "b": ["c"]}
GONE = Spec(job="resize")
DAY = 86_400.0
WEEK = Retention(finished=7 * DAY, ticks=7 * DAY, workers=7 * DAY)


async def test_a_run_that_is_in_other_hands_is_not_begun(store, clock):
    hands = await taken_run(store)
    await apply(store, hands, after_release(hands.one))
    again = await claim(store, kinds=("workflow",))

    assert not await store.runs.expand(
        TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN)
    )
    assert await store.runs.get_run(TENANT, hands.one.id) is None
    assert (await take(store)).executions == []
    assert await store.runs.expand(
        TENANT, worker=again.worker, claimed=again.one, plan=a_plan(CHAIN)
    )


async def test_a_run_begins_once(store):
    hands = await taken_run(store)
    arguments = {"worker": hands.worker, "claimed": hands.one, "plan": a_plan(CHAIN)}

    assert await store.runs.expand(TENANT, **arguments)
    assert not await store.runs.expand(TENANT, **arguments)

    assert await run_to_end(store) == [["a"], ["b"], ["c"]]


async def test_a_late_report_of_who_began_a_run_is_stale(store):
    hands = await taken_run(store)
    await store.runs.expand(TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan(CHAIN))

    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.ruling == "stale"
    assert await state(store, hands.one.id) is State.RUNNING


async def test_a_run_survives_the_worker_that_began_it(store, clock):
    run = await begun(store, a_plan(CHAIN))
    await clock.advance(100)

    assert (await store.queue.lost()).executions == []
    assert await run_to_end(store) == [["a"], ["b"], ["c"]]
    assert await state(store, run) is State.SUCCEEDED


async def test_a_report_that_comes_twice_counts_once(store):
    run = await begun(store, a_plan({"a": ["c"], "b": ["c"]}))
    hands = await take(store)
    first, second = hands.executions

    assert await apply(store, hands, success(first)) == []
    assert await apply(store, hands, success(first), success(first)) == []
    assert (await take(store)).executions == []
    assert (await detail(store, run)).run.running == 1
    assert await apply(store, hands, success(first), success(second)) == []

    assert labels(await take(store)) == ["c"]


async def test_a_batch_with_a_stale_report_in_it_is_told_all_the_same(store):
    graph = {f"n{i}": ["last"] for i in range(5)}
    await begun(store, a_plan(graph))
    hands = await take(store)
    stale = hands.executions[2]
    await apply(store, hands, after_release(stale))

    verdicts = await apply(store, hands, *(success(one) for one in hands.executions))
    assert [verdict.id for verdict in verdicts] == [stale.id]
    again = await take(store)
    assert labels(again) == ["n2"]
    await end(store, again)

    assert labels(await take(store)) == ["last"]


async def test_a_stale_report_does_not_end_a_node(store):
    run = await begun(store, a_plan(CHAIN))
    hands = await take(store)
    await apply(store, hands, after_release(hands.one))
    again = await take(store)

    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.ruling == "stale"
    assert (await detail(store, run)).run.left == 3
    await end(store, again)
    assert labels(await take(store)) == ["b"]


async def test_a_node_is_no_dead_letter_but_its_run_is(store):
    run = await begun(store, a_plan(CHAIN))
    hands = await take(store)
    await end(store, hands, failing=["a"])

    every = ExecutionFilter(dead_letters=True, with_nodes=True)
    letters = await store.catalog.list_executions(TENANT, every)
    assert [one.id for one in letters.items] == [run]
    node = await look(store, hands.one.id)
    assert node.state is State.DEAD
    assert await store.queue.revive(TENANT, [hands.one.id]) == ["not_listed"]
    assert await store.queue.discard(TENANT, [hands.one.id]) == [False]


async def test_a_node_whose_worker_is_lost_runs_again(store, clock):
    run = await begun(store, a_plan(CHAIN))
    await take(store)
    await clock.advance(100)

    (lost,) = (await store.queue.lost()).executions
    assert (lost.claimed.node, lost.claimed.parent) == ("a", run)
    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=3)]
    )

    assert await run_to_end(store) == [["a"], ["b"], ["c"]]


async def test_a_node_that_kills_its_workers_fails(store, clock):
    run = await begun(store, a_plan(CHAIN))
    await take(store)
    await clock.advance(100)
    (lost,) = (await store.queue.lost()).executions

    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=1)]
    )

    assert await state(store, run) is State.DEAD
    assert await nodes(store, run) == {"a": State.DEAD, "b": State.SKIPPED, "c": State.SKIPPED}


async def test_a_node_that_expires_is_skipped(store, clock):
    await store.catalog.define_jobs(TENANT, [a_job("report", expires=60.0)])
    graph = {"a": ["b"], "b": ["c"]}
    run = await begun(store, a_plan(graph, specs={"b": Spec(job="report")}))
    await end(store, await take(store))
    await clock.advance(61)

    assert await expire(store) == 1

    assert await nodes(store, run) == {
        "a": State.SUCCEEDED,
        "b": State.SKIPPED,
        "c": State.SKIPPED,
    }
    assert (await reasons(store, run))["b"] == "expired"
    assert await state(store, run) is State.SUCCEEDED


async def test_a_node_that_is_claimed_too_late_is_skipped(store):
    run = await begun(store, a_plan(CHAIN))
    hands = await take(store)

    await apply(store, hands, after_expiry(hands.one))

    assert await state(store, run) is State.SUCCEEDED
    assert set((await nodes(store, run)).values()) == {State.SKIPPED}


async def test_a_cancelled_node_fails_what_depends_on_it(store):
    run = await begun(store, a_plan(CHAIN))
    (node,) = (await store.catalog.list_executions(TENANT, ExecutionFilter(parent=run))).items

    assert await store.queue.cancel(TENANT, [node.id]) == [Cancellation.CANCELLED]

    assert await state(store, run) is State.DEAD
    assert (await nodes(store, run))["a"] is State.CANCELLED


async def test_what_is_given_back_and_was_to_be_cancelled_ends_its_node(store):
    run = await begun(store, a_plan(CHAIN))
    hands = await take(store)
    assert await store.queue.cancel(TENANT, [hands.one.id]) == [Cancellation.REQUESTED]

    assert await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 1

    assert await state(store, run) is State.DEAD


async def test_a_job_can_be_a_node(store):
    await defined(store, "resize", queue="images", timeout=5.0)
    spec = Spec(job="resize", args='{"n": {"output": "a"}}', outputs=("a",))
    await begun(store, a_plan({"a": ["b"]}, specs={"b": spec}))
    await end(store, await take(store), results={"a": 3})

    hands = await take(store, queues=["images"])

    assert (hands.one.job, hands.one.version, hands.one.kind) == ("resize", 1, "task")
    assert (hands.one.node, hands.one.args) == ("b", '{"n":3}')


async def test_such_a_node_passes_no_gate(store):
    await defined(store, "resize", overlap="skip")
    await store.queue.enqueue(TENANT, [an_execution("resize")])
    await begun(store, a_plan({"a": []}, specs={"a": Spec(job="resize")}))

    hands = await take(store)

    assert labels(hands) == ["None", "a"]


async def test_a_node_whose_job_is_gone_fails_and_says_so(store):
    run = await begun(store, a_plan(CHAIN, specs={"b": Spec(job="resize")}))

    await run_to_end(store)

    assert await state(store, run) is State.DEAD
    assert (await nodes(store, run))["b"] is State.DEAD
    assert "no job named 'resize'" in (await reasons(store, run))["b"]
    assert [one.node.execution for one in (await detail(store, run)).nodes][1] is None
    assert "b failed: no job named 'resize'" in ((await look(store, run)).error or "")


async def test_however_many_nodes_have_no_job_each_transaction_has_few_of_them(store, monkeypatch):
    names = [f"n{place}" for place in range(50)]
    row = {name: [after] for name, after in pairwise(names)}
    monkeypatch.setattr(run_driver, "ADVANCE_ROUNDS", 3)

    plan = a_plan(row, specs=dict.fromkeys(names, GONE), rules=dict.fromkeys(names, "all_done"))
    run = await begun(store, plan)

    assert (await detail(store, run)).run.left > 40
    while await advance_runs(store):
        pass
    assert await state(store, run) is State.DEAD


async def test_a_crowd_of_nodes_without_a_job_is_not_forgotten(store):
    names = [f"n{place}" for place in range(PROGRESS_BATCH + 10)]

    run = await begun(store, a_plan(dict.fromkeys(names, ()), specs=dict.fromkeys(names, GONE)))

    assert await state(store, run) is State.DEAD


async def a_run_within_a_run(store, **options):
    """The node `b` of the outer run is the inner one."""
    await store.catalog.define_jobs(TENANT, [a_job("inner", kind="workflow", settings=SETTINGS)])
    outer = await begun(store, a_plan(CHAIN, specs={"b": Spec(job="inner")}, **options))
    await end(store, await take(store))
    hands = await claim(store, kinds=("workflow",))
    assert await store.runs.expand(
        TENANT, worker=hands.worker, claimed=hands.one, plan=a_plan({"x": ["y"]})
    )
    return outer, hands.one.id


async def test_a_workflow_can_be_a_node(store):
    outer, inner = await a_run_within_a_run(store)

    assert await run_to_end(store, results={"y": 7}) == [["x"], ["y"], ["c"]]

    assert await states(store, [outer, inner]) == [State.SUCCEEDED] * 2
    (_, b, _) = (await detail(store, outer)).nodes
    assert (b.node.execution, b.result) == (inner, "7")


async def test_the_failure_of_an_inner_run_is_that_of_a_node(store):
    outer, inner = await a_run_within_a_run(store)

    await run_to_end(store, failing=["x"])

    assert await states(store, [outer, inner]) == [State.DEAD] * 2
    every = ExecutionFilter(dead_letters=True, with_nodes=True)
    letters = await store.catalog.list_executions(TENANT, every)
    assert [one.id for one in letters.items] == [outer]
    assert await store.queue.revive(TENANT, [inner]) == ["not_listed"]


async def test_an_inner_run_is_cancelled_with_the_outer_one(store):
    outer, inner = await a_run_within_a_run(store)

    assert await store.queue.cancel(TENANT, [outer]) == [Cancellation.CANCELLED]

    assert await states(store, [outer, inner]) == [State.CANCELLED] * 2
    assert (await take(store)).executions == []


async def test_the_outer_run_waits_for_the_inner_one_to_stop(store):
    outer, inner = await a_run_within_a_run(store)
    hands = await take(store)
    assert labels(hands) == ["x"]

    assert await store.queue.cancel(TENANT, [outer]) == [Cancellation.REQUESTED]
    assert await states(store, [outer, inner]) == [State.RUNNING] * 2
    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.ruling == "cancelled"
    assert await states(store, [outer, inner]) == [State.CANCELLED] * 2
