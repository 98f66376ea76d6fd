"""Durable functions as nodes: a run says what they wait for, and passes on what is said to it."""

from __future__ import annotations

from typing import Any

import pytest

from daybell import App, Context
from daybell.client import runs
from daybell.client.runs import describe_node
from daybell.core.execution import State
from daybell.errors import Conflict
from daybell.testing import Bench


@pytest.fixture
def flows(app: App) -> dict[str, Any]:
    @app.task
    async def ask(ctx: Context) -> bool:
        return (await ctx.wait_for_approval("first", timeout="2d")).approved

    @app.task
    async def nap(ctx: Context) -> None:
        await ctx.sleep("1h")

    @app.task
    async def paid(ctx: Context, order: int) -> Any:
        event = await ctx.wait_for_event("paid", match={"order": order})
        return None if event is None else event.data

    with app.workflow("inner") as inner:
        _ = ask >> nap.node("rest")
    with app.workflow("asking") as asking:
        _ = [ask, nap] >> nap.node("rest")
    with app.workflow("orders") as orders:
        paid.map(order=[1, 2, 3])
    with app.workflow("outer") as outer:
        _ = inner.node("sub")
    with app.workflow("twice") as twice:
        _ = [ask.node("one"), ask.node("two")] >> nap.node("rest")
    return {"asking": asking, "orders": orders, "outer": outer, "twice": twice}


async def nodes_of(app: App, id: Any) -> dict[str, Any]:
    run = await runs.run(await app.open(), id)
    assert run is not None
    return {one.name: one for one in run.nodes}


async def test_a_run_says_what_its_nodes_wait_for_and_what_to_type(app, bench: Bench, flows):
    run = await flows["asking"].enqueue()
    await bench.run_due()

    nodes, client = await nodes_of(app, run.id), await app.open()
    why = await client.why(run.id)

    ask, nap = nodes["ask"], nodes["nap"]
    assert (ask.status, ask.reason, ask.started_at is None) == (State.WAITING, "event", False)
    assert describe_node(ask).startswith("waits for approval 'first' (until ")
    assert describe_node(nap).startswith("sleeps until ")
    assert describe_node(nodes["rest"]) == "" and nodes["rest"].started_at is None
    assert f"decide with `daybell executions approve {ask.execution} --name first`" in why.detail
    assert f". nap {describe_node(nap)}" in why.detail
    assert why.next_at is not None and why.next_at.timestamp() == nap.run_at


async def test_what_is_said_to_a_run_is_passed_on_to_the_node_that_waits(app, bench: Bench, flows):
    run = await flows["asking"].enqueue()
    await bench.run_due()
    ask = (await nodes_of(app, run.id))["ask"]

    with pytest.raises(Conflict, match="none of its nodes waits for approval 'second'"):
        await run.approve("second")
    with pytest.raises(Conflict, match="none of its nodes waits for event 'first'"):
        await run.signal("first")
    told = await (await app.open()).approve(run.id, "first", approved=False)
    await bench.run_due()

    assert (told.resumed, told.node, told.execution) == (1, "ask", ask.execution)
    assert (await nodes_of(app, run.id))["ask"].status is State.SUCCEEDED
    events = (await (await app.open()).events()).items
    assert [one.execution_id for one in events] == [ask.execution]  # and none that nobody reads


async def test_an_event_is_for_the_item_that_it_fits(app, bench: Bench, flows):
    run = await flows["orders"].enqueue()
    await bench.run_due()
    waits = (await nodes_of(app, run.id))["paid"].waits

    with pytest.raises(Conflict, match="none of its nodes"):
        await run.signal("paid", {"order": 4})
    await run.signal("paid", {"order": 2})
    await bench.run_due()

    assert [(one.label, one.match) for one in waits] == [
        (f"paid[{n}]", f'{{"order":{n + 1}}}') for n in range(3)
    ]
    left = (await nodes_of(app, run.id))["paid"].waits
    assert [one.label for one in left] == ["paid[0]", "paid[2]"]


async def test_a_node_of_an_inner_run_is_reached_from_the_outermost(app, bench: Bench, flows):
    run = await flows["outer"].enqueue()
    with pytest.raises(Conflict, match="a workflow's run"):  # it has not begun
        await run.approve("first")
    await bench.run_due()
    sub = (await nodes_of(app, run.id))["sub"]

    await run.approve("first")
    await bench.run_due()

    assert (sub.status, describe_node(sub)[:33]) == (
        State.RUNNING,
        "waits for approval 'first' in ask",
    )
    inner = await nodes_of(app, sub.execution)
    assert inner["ask"].status is State.SUCCEEDED


async def test_of_several_that_wait_none_is_chosen(app, bench: Bench, flows):
    run = await flows["twice"].enqueue()
    await bench.run_due()
    nodes = await nodes_of(app, run.id)

    with pytest.raises(Conflict) as refused:
        await run.approve("first")
    client = await app.open()
    await client.approve(nodes["two"].execution, "first")
    await bench.run_due()

    for name in ("one", "two"):
        assert f"{name} ({nodes[name].execution})" in str(refused.value)
    nodes = await nodes_of(app, run.id)
    assert [nodes[one].status for one in ("one", "two")] == [State.WAITING, State.SUCCEEDED]


async def test_looking_at_a_run_asks_for_all_waits_at_once(app, bench: Bench, flows, monkeypatch):
    run = await flows["orders"].enqueue()
    await bench.run_due()
    client = await app.open()
    asked: list[Any] = []
    for name in ("steps", "node_waits"):
        real = getattr(client.store.runs, name)

        async def counting(*words: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            asked.append(name)
            return await real(*words, **options)

        monkeypatch.setattr(client.store.runs, name, counting)

    await runs.run(client, run.id)

    assert asked == ["node_waits"]
