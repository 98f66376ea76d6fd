"""Runs in SQLite: rows of nodes, the memory of a connection, and stops in parts."""

from collections import Counter

import pytest

from daybell.core.execution import Cancellation, State
from daybell.core.views import Retention
from daybell.core.workflow.run import NodeState, RunRead, Spec
from daybell.store.run_driver import ADVANCE_ROUNDS
from daybell.store.sqlite import progress, transaction
from daybell.store.sqlite.progress import NODE_COLUMNS, SPEC, read_nodes
from tests.builders import TENANT, claim, defined
from tests.store.runs import (
    SETTINGS,
    a_mapped_plan,
    a_plan,
    begun,
    detail,
    end,
    labels,
    run_to_end,
    state,
    take,
)
from tests.sweeps import retain

FAN = {"first": ["a", "b", "c"], "a": ["last"], "b": ["last"], "c": ["last"]}


async def remembered(store):
    """By label, of all runs; and the same as the rows have it."""

    def look(tx):
        known = {}
        truth = {}
        for run, nodes in tx.names.nodes._runs.items():
            known |= nodes
            rows = tx.execute(f"SELECT {NODE_COLUMNS} FROM node WHERE run = ?", (run,)).fetchall()
            for row, node in zip(rows, read_nodes(tx, rows), strict=True):
                truth[node.label] = row[0], row[SPEC], node
        return known, {label: truth[label] for label in known}

    return await store.db.write(look)


@pytest.mark.parametrize("plan", [a_plan(FAN), a_mapped_plan(), a_plan(FAN, max_running=1)])
async def test_it_is_what_the_rows_say(store, plan):
    run = await begun(store, plan)

    while (hands := await take(store, 2)).executions:
        await end(store, hands, failing=["b"], results={"list": [1, 2, 3]})

        known, truth = await remembered(store)
        assert known == truth
        assert known or await state(store, run) is not State.RUNNING


async def test_what_has_ended_is_forgotten(store):
    run = await begun(store, a_plan(FAN))
    await end(store, await take(store))
    assert (await remembered(store))[0].keys() == {"a", "b", "c", "last"}

    await end(store, await take(store, 2))
    assert (await remembered(store))[0].keys() == {"c", "last"}

    await run_to_end(store)
    assert await state(store, run) is State.SUCCEEDED
    assert await remembered(store) == ({}, {})


async def test_what_another_process_has_written_is_read(store, place):
    run = await begun(store, a_plan({"a": ["c"], "b": ["c"]}))
    first, second = await take(store, 1), await take(store, 1)
    other = place.connect()
    await other.open()
    await end(other, first)  # `store` remembers `c` with none of its parents ended
    await other.close()

    await end(store, second)

    assert labels(await take(store)) == ["c"]
    assert await state(store, run) is State.RUNNING


async def test_what_was_undone_is_forgotten(store):
    await begun(store, a_plan(FAN))

    def fail(tx):
        for nodes in tx.names.nodes._runs.values():
            assert nodes.pop("a")[2].state is NodeState.WAITING
        raise ValueError("undo it")

    with pytest.raises(ValueError, match="undo it"):
        await store.db.write(fail)

    assert await remembered(store) == ({}, {})
    assert await run_to_end(store) == [["first"], ["a", "b", "c"], ["last"]]


async def test_it_does_not_grow_without_end(store, monkeypatch):
    monkeypatch.setattr(transaction, "NODES_MAX", 8)
    await begun(store, a_plan(FAN))
    await begun(store, a_plan(FAN))
    assert len((await remembered(store))[0]) == 5  # labels of both runs

    await end(store, await take(store, 1))

    assert len((await remembered(store))[0]) < 5
    done = [label for each in await run_to_end(store) for label in each]
    assert sorted(done) == sorted(["first", *2 * [*"abc", "last"]])


# How SQLite keeps the nodes of runs: short rows, found by their numbers, and texts once.

BY_NUMBER = "SEARCH node USING INTEGER PRIMARY KEY (rowid=?)"
BY_LABEL = "SEARCH node USING INDEX node_label (run=? AND label=?)"
PLANS = {
    "start": (progress._START_NODES._statements[8], BY_NUMBER),
    "end": (progress._END_NODES._statements[8], BY_NUMBER),
    "update": (progress._UPDATE._statements[8], BY_LABEL),
    "read": (progress._READ, BY_LABEL),
    "todo": (progress._LISTS[RunRead.MARKED], "SEARCH node USING INDEX node_todo (run=?)"),
    "ready": (progress._LISTS[RunRead.READY], "SEARCH node USING INDEX node_ready (run=?)"),
}


@pytest.mark.parametrize("name", PLANS)
async def test_nodes_are_found_by_their_indexes(raw, name):
    statement, expected = PLANS[name]

    rows = raw.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))

    assert [step for *_, step in rows if " node " in step] == [expected]


async def test_texts_that_nodes_have_in_common_are_kept_once(store, raw):
    other = Spec(needs="task", queue="slow")

    await begun(store, a_plan({"a": ["d"], "b": ["d"], "c": ["d"]}, specs={"d": other}))

    texts = sorted(text for (text,) in raw.execute("SELECT text FROM node_text"))
    assert texts == ['[["d",null]]', '{"needs":"task","queue":"slow"}', '{"needs":"task"}']


async def test_nodes_and_their_texts_go_with_the_run(store, raw, clock):
    await begun(store, a_plan({"a": ["b"]}))
    await run_to_end(store)
    await clock.advance(60.0)

    await retain(store, Retention(finished=1.0))

    for table in ("run", "node", "node_text"):
        assert raw.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_nodes_that_start_and_end_together_keep_what_is_their_own(store):
    """Alike in most that is written of them, and not in all."""
    rules = {"of two": "all_done", "of one": "all_done"}
    graph = {"a": ["of two", "of one"], "b": ["of two"]}
    run = await begun(store, a_plan(graph, rules=rules))
    hands = await take(store)

    await end(store, hands, failing=["b"])
    rounds = await run_to_end(store, results={"of two": 2, "of one": 1})

    found = {one.node.label: one for one in (await detail(store, run)).nodes}
    assert rounds == [["of one", "of two"]]
    parents = found["of two"].node.parents
    assert (parents.succeeded, parents.failed, found["of two"].result) == (1, 1, "2")
    parents = found["of one"].node.parents
    assert (parents.succeeded, parents.failed, found["of one"].result) == (1, 0, "1")
    executions = {one.node: one.id for one in hands.executions}
    assert {label: found[label].node.execution for label in "ab"} == executions


# Runs that are stopped with the one around them: not all in one transaction.


async def test_what_one_transaction_leaves_is_stopped_by_the_next(store, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.progress.STOPS_MAX", 3)
    await defined(store, "inner", kind="workflow", settings=SETTINGS)
    outer = await begun(store, a_plan_of_runs("inner", 8))
    inner = await expanded(store, 8, a_plan({"work": []}))

    assert await store.queue.cancel(TENANT, [outer]) == [Cancellation.REQUESTED]

    assert {await state(store, run) for run in (outer, *inner)} == {State.CANCELLED}


async def test_so_is_what_the_next_one_leaves_in_runs_further_inside(store, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.progress.STOPS_MAX", 2)
    for job in ("middle", "inner"):
        await defined(store, job, kind="workflow", settings=SETTINGS)
    outer = await begun(store, a_plan_of_runs("middle", 4))
    middle = await expanded(store, 4, a_plan_of_runs("inner", 4))
    inner = await expanded(store, 16, a_plan({"work": []}))

    await store.queue.cancel(TENANT, [outer])

    assert (await take(store)).executions == []
    assert {await state(store, run) for run in (outer, *middle, *inner)} == {State.CANCELLED}


async def test_each_run_gets_so_many_parts_before_it_is_left_to_upkeep(store, monkeypatch):
    asked = Counter()

    def go_on(tx, key, parts):
        asked[key] += parts
        assert asked[key] <= ADVANCE_ROUNDS
        return [(1, b"a"), (1, b"b")]

    monkeypatch.setattr("daybell.store.sqlite.progress.continue_run", go_on)

    await store.runs._continue_runs([(1, b"a")])

    assert asked == {(1, b"a"): ADVANCE_ROUNDS, (1, b"b"): ADVANCE_ROUNDS}


def a_plan_of_runs(job, count):
    return a_plan({"each": []}, specs={"each": Spec(job=job, map=str([*range(count)]))})


async def expanded(store, count, plan):
    """Begin so many runs, and answer which."""
    hands = await claim(store, count, kinds=("workflow",))
    assert len(hands.executions) == count
    for one in hands.executions:
        assert await store.runs.expand(TENANT, worker=hands.worker, claimed=one, plan=plan)
    return [one.id for one in hands.executions]
