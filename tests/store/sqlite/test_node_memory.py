"""What a connection remembers of nodes is what the file says, or it is not remembered."""

import pytest

from daybell.core.execution import State
from daybell.core.workflow.run import NodeState
from daybell.store.sqlite import transaction
from daybell.store.sqlite.progress import NODE_COLUMNS, SPEC, read_nodes
from tests.store.runs import a_mapped_plan, a_plan, begun, end, labels, run_to_end, state, take

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
