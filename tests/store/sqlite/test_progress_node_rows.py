"""How SQLite keeps the nodes of runs: short rows, found by their numbers, and texts once."""

import pytest

from daybell.core.views import Retention
from daybell.core.workflow.run import Spec
from daybell.store.sqlite import progress
from tests.store.runs import a_plan, begun, detail, end, run_to_end, take

BY_NUMBER = "SEARCH node USING INTEGER PRIMARY KEY (rowid=?)"
BY_LABEL = "SEARCH node USING INDEX node_label (run=? AND label=?)"
PLANS = {
    "start": (progress._START_NODES._statements[8], BY_NUMBER),
    "end": (progress._END_NODES._statements[8], BY_NUMBER),
    "update": (progress._UPDATE._statements[8], BY_LABEL),
    "read": (progress._READ, BY_LABEL),
    "todo": (progress._TODO, "SEARCH node USING INDEX node_todo (run=?)"),
    "ready": (progress._READY, "SEARCH node USING INDEX node_ready (run=?)"),
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

    await store.retain(Retention(finished=1.0))

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
