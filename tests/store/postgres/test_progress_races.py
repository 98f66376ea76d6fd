"""Runs of workflows that several processes work on at the same moment."""

import asyncio

import pytest
from msgspec.structs import replace

from daybell.core.execution import TERMINAL, Cancellation, State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from daybell.core.workflow.run import Spec
from daybell.store.postgres import connection, progress, runs
from tests.builders import TENANT, a_job, an_execution, apply, claim, death, look, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import Fate, Stop, settle
from tests.store.runs import (
    SETTINGS,
    a_mapped_plan,
    a_plan,
    begun,
    end,
    labels,
    run_to_end,
    state,
    take,
)
from tests.sweeps import advance_runs

JOIN = {"a": ["join"], "b": ["join"]}
STARTED = "SELECT count(*) FROM daybell.live WHERE node = $1"


async def test_the_child_of_a_thousand_parents_that_end_at_once_starts_once(store, crowd, sql):
    names = [f"p{number}" for number in range(1000)]
    run = await begun(store, a_plan({name: ["join"] for name in names}))
    hands = [await take(one, 250) for one in crowd]
    assert [len(one.executions) for one in hands] == [250] * 4

    async def finish(store, hands):
        groups = [hands.executions[start : start + 50] for start in range(0, 250, 50)]
        for group in groups:
            await apply(store, hands, *map(success, group))

    await asyncio.gather(*map(finish, crowd, hands))

    assert await sql.fetchval(STARTED, "join") == 1
    assert await violations(sql) == []
    assert await run_to_end(store) == [["join"]]
    assert await state(store, run) is State.SUCCEEDED


async def test_of_two_parents_that_end_at_once_the_second_waits_for_the_first(store, stepped, sql):
    await begun(store, a_plan(JOIN))
    first, second = await take(store, 1), await take(store, 1)
    stepped.db.stop = stop = Stop(after=5)  # its end is written, and the run's lock is held

    ending = asyncio.create_task(apply(stepped, first, success(first.one)))
    await stop.arrival()
    processes = [row["pid"] for row in await sql.fetch("SELECT pid FROM pg_stat_activity")]
    later = asyncio.create_task(apply(store, second, success(second.one)))
    assert await settle(sql, later, processes), "it should wait for the run's lock"
    stop.resumed.set()

    assert (await ending, await later) == ([], [])
    assert await sql.fetchval(STARTED, "join") == 1
    assert await violations(sql) == []


@pytest.mark.parametrize("fate", [Fate.BREAKS, Fate.UNANSWERED])
async def test_an_end_whose_answer_was_lost_is_counted_once(store, stepped, sql, fate):
    run = await begun(store, a_plan(JOIN))
    hands = await take(store)
    stepped.db.stop = stop = Stop(after=5, fate=fate)

    ending = asyncio.create_task(apply(stepped, hands, success(hands.executions[0])))
    await stop.arrival()
    stop.resumed.set()
    await asyncio.gather(ending, return_exceptions=True)
    assert await apply(store, hands, success(hands.executions[0])) == []
    assert await apply(store, hands, success(hands.executions[0])) == []

    assert await sql.fetchval(STARTED, "join") == 0
    assert await violations(sql) == []
    await apply(store, hands, success(hands.executions[1]))
    assert await run_to_end(store) == [["join"]]
    assert await state(store, run) is State.SUCCEEDED


async def test_an_end_that_does_not_say_whose_node_it_is_concerns_its_run_all_the_same(store, sql):
    run = await begun(store, a_plan(JOIN))
    hands = await take(store)

    assert await apply(store, hands, *map(death, hands.executions)) == []

    assert await violations(sql) == []
    assert await state(store, run) is State.DEAD


async def test_a_reaper_steps_over_a_run_that_is_locked(store, sql):
    await begun(store, a_plan(JOIN))
    hands = await take(store)
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("SELECT FROM daybell.run FOR UPDATE")

    moves = [replace(death(one), run=one.parent, node=one.node) for one in hands.executions]
    verdicts = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)
    assert {verdict.ruling for verdict in verdicts} == {"busy"}
    assert await advance_runs(store) == 0
    await transaction.rollback()

    again = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)
    assert again == []
    assert await violations(sql) == []


async def test_ends_of_inner_runs_meet_in_the_same_order(store, crowd, sql):
    specs = {name: Spec(job="inner") for name in ("x", "y", "z")}
    await store.catalog.define_jobs(TENANT, [a_job("inner", kind="workflow", settings=SETTINGS)])
    run = await begun(store, a_plan({"x": ["end"], "y": ["end"], "z": ["end"]}, specs=specs))
    inner = await claim(store, 3, kinds=("workflow",))
    for one in inner.executions:
        assert await store.runs.expand(TENANT, worker=inner.worker, claimed=one, plan=a_plan(JOIN))
    hands = [await take(one, 2) for one in crowd[:3]]
    assert {labels(one)[0] for one in hands} <= {"a", "b"}

    await asyncio.gather(*(end(one, held) for one, held in zip(crowd, hands, strict=False)))

    assert await violations(sql) == []
    rest = await run_to_end(store)
    assert rest[-1] == ["end"]
    assert await state(store, run) is State.SUCCEEDED


async def test_cancelling_ending_and_replacing_do_not_block_each_other(store, crowd, sql):
    workflow = a_job("etl", kind="workflow", settings=SETTINGS, overlap=Overlap.REPLACE)
    await store.catalog.define_jobs(TENANT, [workflow])
    plan = a_plan({"root": [], **{f"n{number}": ["join"] for number in range(20)}})
    runs = []

    async def begin(store):
        answer = (await store.queue.enqueue(TENANT, [an_execution("etl")]))[0]
        runs.append(answer.id)

    async def work(store):
        for _ in range(3):
            held = await take(store, 10)
            for one in held.executions:
                if one.kind == "workflow":
                    await store.runs.expand(TENANT, worker=held.worker, claimed=one, plan=plan)
            nodes = [one for one in held.executions if one.node is not None]
            await apply(store, held, *map(success, nodes))

    async def stop(store):
        for run in list(runs):
            await store.queue.cancel(TENANT, [run])

    for _ in range(4):
        await asyncio.gather(begin(crowd[0]), work(crowd[1]), work(crowd[2]), stop(crowd[3]))
        assert await violations(sql) == []

    await store.queue.cancel(TENANT, runs)
    for worker in crowd:
        await work(worker)
    assert await violations(sql) == []


async def test_cancelling_a_run_waits_for_an_end_of_it_that_is_under_way(store, stepped, sql):
    run = await begun(store, a_plan({"a": ["b"]}))
    hands = await take(store)
    stepped.db.stop = stop = Stop(after=5)
    ending = asyncio.create_task(apply(stepped, hands, success(hands.one)))
    await stop.arrival()

    cancelling = asyncio.create_task(store.queue.cancel(TENANT, [run]))
    processes = [row["pid"] for row in await sql.fetch("SELECT pid FROM pg_stat_activity")]
    assert await settle(sql, cancelling, processes), "it should wait for the end"
    stop.resumed.set()

    await asyncio.gather(ending, cancelling)
    assert await state(store, run) is State.CANCELLED
    assert await violations(sql) == []


@pytest.mark.parametrize("after", range(1, 13))
@pytest.mark.parametrize("how", [success, death])
async def test_a_run_that_ends_while_it_is_cancelled_ends_as_the_answer_says(
    store, stepped, sql, how, after
):
    run = await begun(store, a_plan({"a": []}))
    hands = await take(store)
    stepped.db.stop = stop = Stop(after=after)
    cancelling = asyncio.create_task(stepped.queue.cancel(TENANT, [run]))
    await stop.arrival()

    ending = asyncio.create_task(apply(store, hands, how(hands.one)))
    await settle(sql, ending, await pids(sql))
    stop.resumed.set()

    (answer,) = await cancelling
    await ending
    seen = await look(store, run)
    if answer is Cancellation.FINISHED:
        assert seen.state in (State.SUCCEEDED, State.DEAD)
    else:
        assert (seen.state, seen.result, seen.error) == (State.CANCELLED, None, None)
    assert await violations(sql) == []


@pytest.mark.parametrize("after", range(1, 9))
@pytest.mark.parametrize("how", [success, death])
async def test_a_node_that_ends_and_is_cancelled_is_locked_in_the_same_order(
    store, stepped, sql, monkeypatch, how, after
):
    monkeypatch.setattr(connection, "CONFLICT_TRIES", 1)  # a deadlock is not made up for
    run = await begun(store, a_plan({"a": ["b"]}))
    hands = await take(store)
    stepped.db.stop = stop = Stop(after=after)
    ending = asyncio.create_task(apply(stepped, hands, how(hands.one)))
    await stop.arrival()

    cancelling = asyncio.create_task(store.queue.cancel(TENANT, [hands.one.id]))
    await settle(sql, cancelling, await pids(sql))
    stop.resumed.set()

    await asyncio.gather(ending, cancelling)
    assert await violations(sql) == []
    await run_to_end(store)
    assert await state(store, run) in TERMINAL


@pytest.mark.parametrize("after", range(1, 9))
async def test_an_inner_run_that_begins_and_is_cancelled_is_locked_in_the_same_order(
    store, stepped, sql, monkeypatch, after
):
    monkeypatch.setattr(connection, "CONFLICT_TRIES", 1)
    outer, inner = await an_inner_one(store)
    stepped.db.stop = stop = Stop(after=after)
    expanding = asyncio.create_task(
        stepped.runs.expand(TENANT, worker=inner.worker, claimed=inner.one, plan=a_plan(JOIN))
    )
    await stop.arrival()

    cancelling = asyncio.create_task(store.queue.cancel(TENANT, [inner.one.id]))
    await settle(sql, cancelling, await pids(sql))
    stop.resumed.set()

    await asyncio.gather(expanding, cancelling)
    assert await violations(sql) == []
    await run_to_end(store)
    assert await state(store, outer) is State.DEAD


@pytest.mark.parametrize("after", range(1, 12))
async def test_an_inner_run_that_ends_and_is_cancelled_is_locked_in_the_same_order(
    store, stepped, sql, monkeypatch, after
):
    monkeypatch.setattr(connection, "CONFLICT_TRIES", 1)
    outer, inner = await an_inner_one(store)
    assert await store.runs.expand(
        TENANT, worker=inner.worker, claimed=inner.one, plan=a_plan({"last": []})
    )
    last = await take(store)
    stepped.db.stop = stop = Stop(after=after)
    ending = asyncio.create_task(apply(stepped, last, success(last.one)))
    await stop.arrival()

    cancelling = asyncio.create_task(store.queue.cancel(TENANT, [inner.one.id]))
    await settle(sql, cancelling, await pids(sql))
    stop.resumed.set()

    await asyncio.gather(ending, cancelling)
    assert await violations(sql) == []
    await run_to_end(store)
    assert await state(store, outer) in TERMINAL


async def test_ends_of_many_kinds_and_a_cancel_lock_nodes_in_the_same_order(
    store, stepped, sql, monkeypatch
):
    monkeypatch.setattr(connection, "CONFLICT_TRIES", 1)
    await begun(store, a_plan({"a": ["c"], "b": ["c"]}))
    hands = await take(store)
    first, then = sorted(hands.executions, key=lambda one: one.id)
    stepped.db.stop = stop = Stop(after=3)  # what succeeded has moved; what failed has not
    ending = asyncio.create_task(apply(stepped, hands, death(first), success(then)))
    await stop.arrival()

    cancelling = asyncio.create_task(store.queue.cancel(TENANT, [first.id, then.id]))
    await settle(sql, cancelling, await pids(sql))
    stop.resumed.set()

    await asyncio.gather(ending, cancelling)
    assert await violations(sql) == []


async def test_what_has_told_all_its_children_has_nothing_left_to_do(store, sql):
    parents = {f"p{n}": [f"c{n}-{child}" for child in range(40)] for n in range(60)}
    await begun(store, a_plan(parents))
    await end(store, await take(store, 60))

    assert await sql.fetchval("SELECT count(*) FROM daybell.node WHERE is_todo") == 0
    assert await sql.fetchval("SELECT count(*) FROM daybell.live WHERE node IS NOT NULL") == 2400


async def test_a_run_that_cannot_go_on_does_not_keep_others_from_it(store, sql, monkeypatch):
    bad, good = await begun(store, a_plan({"a": []})), await begun(store, a_plan({"a": []}))
    await sql.execute("UPDATE daybell.run SET is_todo = true")
    went_on = []
    advance_run = runs.advance_run

    async def advance_some(pg, after, tenant, run, *, wait=True):
        if run == bad:
            raise RuntimeError("a mistake")
        went_on.append(run)
        return await advance_run(pg, after, tenant, run, wait=wait)

    monkeypatch.setattr(runs, "advance_run", advance_some)

    assert await advance_runs(store) == 1
    assert went_on == [good]


async def an_inner_one(store):
    """A run, and its node that is a workflow itself, in hand."""
    await store.catalog.define_jobs(TENANT, [a_job("inner", kind="workflow", settings=SETTINGS)])
    run = await begun(store, a_plan({"x": ["end"]}, specs={"x": Spec(job="inner")}))
    return run, await claim(store, 1, kinds=("workflow",))


async def pids(sql):
    return [row["pid"] for row in await sql.fetch("SELECT pid FROM pg_stat_activity")]


async def test_a_mapped_node_is_spawned_by_parts_and_joined_once(store, crowd, sql):
    run = await begun(store, a_mapped_plan())
    first = await take(store)
    await apply(store, first, success(first.one, result=str(list(range(2500)))))
    assert await sql.fetchval("SELECT count(*) FROM daybell.live WHERE node LIKE 'each[%'") == 2500

    async def drain(store):
        while (held := await take(store, 200)).executions:
            await apply(store, held, *(success(one, result="1") for one in held.executions))

    await asyncio.gather(*map(drain, crowd))

    assert await violations(sql) == []
    assert await state(store, run) is State.SUCCEEDED
    (joined,) = await sql.fetch("SELECT args FROM daybell.history WHERE node = 'join'")
    assert joined["args"].count("1") == 2500


async def test_a_run_that_lost_its_helper_is_stopped_by_upkeep(store, sql):
    run = await begun(store, a_plan({"a": ["b"], "c": []}))
    await sql.execute("UPDATE daybell.live SET cancel_requested_at = 1 WHERE id = $1", run)

    assert await advance_runs(store) == 1

    assert await state(store, run) is State.CANCELLED
    assert await violations(sql) == []
    assert await advance_runs(store) == 0


async def test_a_cancelled_run_whose_nodes_succeeded_all_the_same_begins_again_as_its_end(
    store, monkeypatch
):
    """Its helper was lost before the last node could be asked to stop."""

    async def lose(*_args):
        return []

    run = await begun(store, a_plan({"a": []}))
    hands = await take(store)
    monkeypatch.setattr(progress, "_uncancelled_nodes", lose)
    await store.queue.cancel(TENANT, [run])
    await end(store, hands, results={"a": 7})
    assert await state(store, run) is State.CANCELLED
    new = an_execution("etl")

    await store.runs.rerun(TENANT, run, new)
    again = await claim(store, kinds=("workflow",))
    assert await store.runs.expand(
        TENANT, worker=again.worker, claimed=again.one, plan=a_plan({"wrong": []})
    )

    assert await state(store, new.id) is State.SUCCEEDED
    assert (await look(store, new.id)).result == "7"


async def test_who_listens_in_the_same_process_hears_of_a_started_node_at_once(store):
    await begun(store, a_plan({"a": ["b"]}))
    hands = await take(store)
    heard = []
    stop = await store.listen(TENANT, ["default"], lambda: heard.append(True))
    heard.clear()

    await apply(store, hands, success(hands.one))

    assert heard != []  # before the server could have said so
    await stop()


async def test_nobody_else_in_the_process_says_too_early_that_a_node_was_started(
    store, monkeypatch
):
    await begun(store, a_plan({"a": ["b"]}))
    hands = await take(store)
    heard = []
    stop = await store.listen(TENANT, ["default"], lambda: heard.append(True))
    start_nodes = progress.start_nodes

    async def interrupted(*args):
        gone = await start_nodes(*args)
        # Another operation of the same store is committed meanwhile.
        await asyncio.create_task(store.queue.cancel(TENANT, [mint()]))
        heard.clear()
        return gone

    monkeypatch.setattr(progress, "start_nodes", interrupted)

    await apply(store, hands, success(hands.one))

    assert heard != []
    await stop()
