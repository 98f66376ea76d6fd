"""Why a run has failed is said with the run: the first node's error, and how many there are."""

import json

import msgspec

from daybell.core.execution import Failure, State
from tests.builders import apply, death, look
from tests.store.runs import a_mapped_plan, a_plan, begun, end, reasons, state, take


async def fail(store, hands, message):
    """Report all of it dead, with an error of its own."""
    moves = [
        msgspec.structs.replace(
            death(one, error=Failure(type="ValueError", message=message).to_json()),
            run=one.parent,
            node=one.node,
        )
        for one in hands.executions
    ]
    assert await apply(store, hands, *moves) == []


async def message(store, run):
    ended = await look(store, run)
    assert ended.state is State.DEAD
    return json.loads(ended.error or "")["message"]


async def test_a_run_tells_why_its_node_failed(store):
    run = await begun(store, a_plan({"fragile": ["load"]}))
    hands = await take(store)

    await fail(store, hands, "broken\n  for good")

    assert await message(store, run) == (
        f"fragile failed: ValueError: broken for good (execution {hands.one.id})"
    )
    assert await reasons(store, run) == {
        "fragile": "ValueError: broken for good",
        "load": "upstream_failed",
    }
    assert (await look(store, hands.one.id)).reason == "retries_used_up"


async def test_it_tells_how_many_more_have_failed(store):
    run = await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    first = await take(store, limit=1)
    await fail(store, first, "first")
    rest = await take(store, limit=2)
    await fail(store, rest, "later")
    assert await state(store, run) is State.RUNNING

    await end(store, await take(store))

    assert await message(store, run) == (
        f"a failed: ValueError: first (execution {first.one.id}); 2 more nodes failed"
    )


async def test_of_a_mapped_node_it_tells_how_many_more_items_have_failed(store):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2, 3]})
    hands = await take(store, limit=1)
    await fail(store, hands, "odd")
    await fail(store, await take(store), "even")

    assert await message(store, run) == (
        f"each[0] failed: ValueError: odd (execution {hands.one.id}); 2 more items of it did not"
        " succeed"
    )


async def test_of_a_mapped_node_it_tells_of_an_item(store):
    run = await begun(store, a_mapped_plan())
    await end(store, await take(store), results={"list": [1, 2]})
    hands = await take(store, limit=1)
    await fail(store, hands, "odd")

    await end(store, await take(store))

    assert await message(store, run) == (
        f"each[0] failed: ValueError: odd (execution {hands.one.id})"
    )
    assert (await reasons(store, run))["each"] == "1 of 2 items did not succeed"


async def test_what_could_not_start_has_its_reason_and_no_execution(store):
    run = await begun(store, a_mapped_plan())

    await end(store, await take(store), results={"list": 7})

    said = await message(store, run)
    assert said.startswith("each failed: ")
    assert "no list" in said
    assert "execution" not in said
