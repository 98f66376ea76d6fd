"""Which nodes of a run are started, and which are not: rules, conditions, limits, stops."""

import asyncio
import json
import re
from random import Random

import pytest

from daybell.core.execution import TERMINAL, State
from daybell.core.workflow.progress import advance
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import Spec, StopReason
from daybell.store import run_driver
from daybell.store.sqlite import SqliteStore
from tests.builders import look, registered
from tests.store.runs import (
    a_mapped_plan,
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
)
from tests.sweeps import advance_runs

S, D, K = State.SUCCEEDED, State.DEAD, State.SKIPPED

# What becomes of a node by its rule, if of its parents one succeeds, fails or is skipped.
TABLE = {
    "all_success": {"sss": S, "ssf": K, "ssk": K, "fff": K, "kkk": K},
    "all_done": {"sss": S, "ssf": S, "sfk": S, "fff": S, "kkk": S},
    "all_failed": {"sss": K, "ssf": K, "fff": S, "ffk": K, "kkk": K},
    "one_success": {"sss": S, "sff": S, "fff": K, "skk": S, "kkk": K},
    "one_failed": {"sss": K, "ssf": S, "fff": S, "sfk": S, "kkk": K},
    "none_failed": {"sss": S, "ssf": K, "ssk": S, "kkk": S},
    "none_failed_min_one_success": {"sss": S, "ssf": K, "skk": S, "kkk": K},
    "none_skipped": {"sss": S, "ssf": S, "ssk": K, "fff": S},
    "always": {"sss": S, "ssf": S, "fff": S, "kkk": S},
}


@pytest.mark.parametrize("rule", TABLE)
async def test_a_rule_decides_by_how_parents_ended(store, rule):
    cases = TABLE[rule]
    graph: dict[str, list[str]] = {"gate": []}
    rules, when, failing = {}, {}, []
    for case in cases:
        rules[case] = rule
        for place, fate in enumerate(case):
            parent = f"{case}-{place}"
            graph[parent] = [case]
            failing += [parent] if fate == "f" else []
            if fate == "k":
                graph["gate"].append(parent)
                when["gate", parent] = "result > 1"
    run = await begun(store, a_plan(graph, rules=rules, when=when))

    await run_to_end(store, failing=failing, results={"gate": 1})

    shown = await nodes(store, run)
    assert {case: shown[case] for case in cases} == cases


async def test_a_condition_decides_which_branch_is_taken(store):
    graph = {"count": ["many", "few"], "many": ["tell"], "few": ["tell"]}
    when = {("count", "many"): "result.rows > 10", ("count", "few"): "result.rows <= 10"}
    rules = {"tell": "none_failed_min_one_success"}
    run = await begun(store, a_plan(graph, when=when, rules=rules))

    rounds = await run_to_end(store, results={"count": {"rows": 12}})

    assert rounds == [["count"], ["many"], ["tell"]]
    assert (await nodes(store, run))["few"] is State.SKIPPED
    assert (await reasons(store, run))["few"] == "condition"
    assert await state(store, run) is State.SUCCEEDED


@pytest.fixture
def small_parts(monkeypatch):
    """A transaction does a tenth of what it may, so that runs need not be long to take several."""
    monkeypatch.setitem(advance.__kwdefaults__, "limit", 100)
    monkeypatch.setattr("daybell.store.postgres.progress.PROGRESS_BATCH", 100)
    monkeypatch.setattr("daybell.store.postgres.progress.LATER_PARTS", 1)
    monkeypatch.setattr("daybell.store.sqlite.progress.TOGETHER", 1)


@pytest.mark.usefixtures("small_parts")
async def test_a_long_row_of_skipped_nodes_is_walked_to_its_end(store):
    length = 250
    graph = {"n0": ["n1"]} | {f"n{i}": [f"n{i + 1}"] for i in range(1, length)}
    run = await begun(store, a_plan(graph, when={("n0", "n1"): "result == 1"}))

    await end(store, await take(store), results={"n0": 0})

    found = await detail(store, run)
    assert [one.state for one in found.nodes] == [State.SUCCEEDED] + [State.SKIPPED] * length
    assert (found.run.left, found.run.is_todo) == (0, False)
    assert await state(store, run) is State.SUCCEEDED


@pytest.mark.usefixtures("small_parts")
async def test_what_is_left_of_a_long_row_is_done_by_upkeep(store, monkeypatch):
    monkeypatch.setattr(run_driver, "ADVANCE_ROUNDS", 0)
    length = 250
    graph = {"n0": ["n1"]} | {f"n{i}": [f"n{i + 1}"] for i in range(1, length)}
    run = await begun(store, a_plan(graph, when={("n0", "n1"): "result == 1"}))
    await end(store, await take(store), results={"n0": 0})
    assert await state(store, run) is State.RUNNING

    assert await advance_runs(store) == 1
    assert await state(store, run) is State.RUNNING
    assert await advance_runs(store) == 1

    assert await state(store, run) is State.SUCCEEDED
    assert await advance_runs(store) == 0


@pytest.mark.parametrize("count", [0, 1, 2500])
async def test_a_mapped_node_has_an_execution_per_item(store, count):
    run = await begun(store, a_mapped_plan())

    rounds = await run_to_end(store, results={"list": list(range(count))})

    done = [label for each in rounds for label in each]
    assert sorted(done) == sorted(["list", "join", *(f"each[{i}]" for i in range(count))])
    assert done[-1] == "join"
    assert await state(store, run) is State.SUCCEEDED
    (_, mapped, join) = (await detail(store, run)).nodes
    assert json.loads(mapped.result or "") == [f"each[{i}]" for i in range(count)]
    assert (mapped.node.items, mapped.node.items_ended) == (count, count)
    assert join.state is State.SUCCEEDED


async def test_items_get_their_value_and_the_join_gets_all_results(store):
    await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [{"id": 7}, [8]]})

    hands = await take(store)
    given = {one.node: json.loads(one.args)["x"] for one in hands.executions}
    assert given == {"each[0]": {"id": 7}, "each[1]": [8]}

    await end(store, hands, results={"each[0]": 70, "each[1]": 80})
    assert json.loads((await take(store)).one.args) == {"all": [70, 80]}


async def test_a_failed_item_fails_its_node(store):
    run = await begun(store, a_mapped_plan())

    await run_to_end(store, results={"list": [1, 2, 3]}, failing=["each[1]"])

    assert await state(store, run) is State.DEAD
    shown = await nodes(store, run)
    assert (shown["each"], shown["join"]) == (State.DEAD, State.SKIPPED)
    assert (await reasons(store, run))["each"].startswith("1 of 3 items")


async def test_what_is_no_list_cannot_be_mapped_over(store):
    run = await begun(store, a_mapped_plan())

    await run_to_end(store, results={"list": "abc"})

    assert (await nodes(store, run))["each"] is State.DEAD
    assert "no list" in (await reasons(store, run))["each"]


async def test_no_more_nodes_run_at_once_than_the_workflow_allows(store):
    graph = {f"n{i}": ["last"] for i in range(7)}
    run = await begun(store, a_plan(graph, max_running=3))
    first = await take(store)
    assert labels(first) == ["n0", "n1", "n2"]

    await end(store, first._replace(executions=first.executions[:1]))

    assert labels(await take(store)) == ["n3"]
    assert (await nodes(store, run))["n4"] is State.WAITING


async def test_a_mapped_node_minds_the_same_limit(store):
    await begun(store, a_mapped_plan(max_running=2))

    rounds = await run_to_end(store, results={"list": list(range(5))})

    assert [len(each) for each in rounds] == [1, 2, 2, 1, 1]


async def test_fail_fast_starts_nothing_more(store):
    graph = {"a": ["c"], "b": ["d"], "c": [], "d": []}
    run = await begun(store, a_plan(graph, fail_fast=True))
    hands = await take(store)
    assert labels(hands) == ["a", "b"]

    await end(store, hands._replace(executions=hands.executions[:1]), failing=["a"])
    assert (await detail(store, run)).run.stopping is StopReason.FAIL_FAST
    assert (await take(store)).executions == []
    assert await state(store, run) is State.RUNNING
    await end(store, hands._replace(executions=hands.executions[1:]))

    shown = await nodes(store, run)
    assert shown == {"a": D, "b": S, "c": K, "d": K}
    assert (await reasons(store, run))["d"] == "fail_fast"
    assert (await look(store, run)).reason == "nodes_failed"


async def test_without_it_what_can_still_run_does(store):
    run = await begun(store, a_plan({"a": ["c"], "b": ["d"], "c": [], "d": []}))

    rounds = await run_to_end(store, failing=["a"])

    assert rounds == [["a", "b"], ["d"]]
    assert await state(store, run) is State.DEAD


async def test_arguments_that_are_too_large_fail_the_node(store):
    spec = Spec(needs="task", args='{"x": {"output": "a"}, "y": {"output": "a"}}', outputs=("a",))
    run = await begun(store, a_plan({"a": ["b"]}, specs={"b": spec}))

    await run_to_end(store, results={"a": "x" * 700_000})

    assert (await nodes(store, run))["b"] is State.DEAD
    assert "bytes" in (await reasons(store, run))["b"]


async def test_a_thousand_parents_that_end_at_the_same_moment_start_their_child_once(crowd):
    graph = {f"n{i}": ["last"] for i in range(1000)}
    run = await begun(crowd[0], a_plan(graph))
    worker = await registered(crowd[0])
    hands = [await take(store, 250, worker=worker) for store in crowd]

    await asyncio.gather(
        *(
            end(store, held._replace(executions=held.executions[start : start + 25]))
            for store, held in zip(crowd, hands, strict=True)
            for start in range(0, 250, 25)
        )
    )

    assert labels(await take(crowd[0])) == ["last"]
    found = (await detail(crowd[0], run)).run
    assert (found.left, found.running, found.is_todo) == (1, 1, False)


def a_random_graph(chance):
    """Up to thirty nodes with any rules, some conditions, and some that fail."""
    names = [f"n{i}" for i in range(chance.randint(2, 30))]
    graph = {name: [] for name in names}
    when = {}
    for place, name in enumerate(names):
        for parent in chance.sample(names[:place], min(place, chance.randint(0, 3))):
            graph[parent].append(name)
            if chance.random() < 0.2:
                when[parent, name] = "result == 1"
    rules = {name: chance.choice(list(Rule)) for name in names if chance.random() < 0.5}
    failing = [name for name in names if chance.random() < 0.2]
    results = {name: chance.randint(0, 2) for name in names}
    plan = a_plan(graph, rules=rules, when=when, fail_fast=chance.random() < 0.2)
    return plan, failing, results


@pytest.mark.parametrize("seed", range(6))
async def test_any_run_goes_as_in_memory(store, seed):
    plan, failing, results = a_random_graph(Random(seed))
    memory = SqliteStore.in_memory()
    await memory.open()
    seen = []

    for one in (store, memory):
        run = await begun(one, plan)
        rounds = await run_to_end(one, failing=failing, results=results)
        ended = await look(one, run)
        found = [await nodes(one, run), await reasons(one, run)]
        error = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", ended.error or "")
        seen.append((rounds, ended.state, ended.result, error, found))

    assert seen[0] == seen[1]
    assert seen[0][1] in TERMINAL


@pytest.mark.parametrize("failing", [["root"], []])
async def test_two_nodes_with_the_same_many_children_are_both_told(store, failing):
    children = [f"c{number}" for number in range(400)]
    run = await begun(store, a_plan({"root": ["a", "b"], "a": children, "b": children}))
    await end(store, await take(store), failing=failing)
    if not failing:
        await end(store, await take(store))  # both, in one batch
        assert await run_to_end(store) == [sorted(children)]

    assert await state(store, run) is (State.DEAD if failing else State.SUCCEEDED)


async def test_a_child_that_runs_in_any_case_gets_null_for_items_that_failed(store):
    await begun(store, a_mapped_plan(rules={"join": "all_done"}))
    await end(store, await take(store), results={"list": [1, 2, 3]})
    await end(store, await take(store), failing=["each[1]"], results={"each[0]": 10, "each[2]": 30})

    joined = (await take(store)).one

    assert joined.node == "join"
    assert json.loads(joined.args) == {"all": [10, None, 30]}
