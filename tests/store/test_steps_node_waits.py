"""What nodes of a run wait for: told for all of them at once, however deep they are."""

import pytest

from daybell.core.execution import State
from daybell.core.lifecycle import after_retry_later, after_wait
from daybell.core.workflow.run import Spec
from tests.builders import TENANT, a_job, a_step, an_event, apply, claimed, success
from tests.store.runs import SETTINGS, a_mapped_plan, a_plan, begun, detail, end, take


async def wait(store, hands, waits):
    """Nodes wait for the events that are named by their labels; the others stay as they are."""
    chosen = [one for one in hands.executions if one.node in waits]
    steps = [a_step(one, n, **said) for one in chosen for n, said in enumerate(waits[one.node])]
    assert not any(
        one.is_done for one in await store.record(TENANT, worker=hands.worker, steps=steps)
    )
    assert await apply(store, hands, *[after_wait(one, ran=1.0) for one in chosen]) == []
    return {one.node: one.id for one in chosen}


async def told(store, run, **options):
    found = await store.node_waits(TENANT, run, **options)
    return [(one.label, one.node, one.name, one.until) for one in found]


async def test_each_open_wait_is_told_with_its_execution(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    hands = await take(store)
    paid, sent = {"event": "paid"}, {"event": "sent", "timeout": 60.0}
    ids = await wait(store, hands, {"a": [paid], "b": [sent, paid]})
    other = await claimed(store)  # waits, too, but is in no run
    await store.record(TENANT, worker=other.worker, steps=[a_step(other.one, event="paid")])

    found = await store.node_waits(TENANT, run)

    assert sorted((one.label, one.name, one.until) for one in found) == [
        ("a", "paid", None),
        ("b", "paid", None),
        ("b", "sent", clock.now() + 60.0),
    ]
    assert {one.label: one.execution for one in found} == ids
    assert [one.execution for one in found] == sorted(one.execution for one in found)
    assert len(await store.node_waits(TENANT, run, limit=2)) == 2
    assert await store.node_waits(TENANT, ids["a"]) == []


async def test_only_those_that_an_event_fits_and_that_have_time(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": [], "d": []}))
    await wait(
        store,
        await take(store),
        {
            "a": [{"event": "paid", "match": '{"order": 1}'}],
            "b": [{"event": "paid", "match": '{"order": 2}'}],
            "c": [{"event": "sent"}],
            "d": [{"event": "paid", "timeout": 5.0}],
        },
    )

    event = an_event(data='{"order": 2, "by": "ada"}')
    assert sorted(await told(store, run, event=event)) == [
        ("b", "b", "paid", None),
        ("d", "d", "paid", clock.now() + 5.0),
    ]
    await clock.advance(6)
    assert await told(store, run, event=event) == [("b", "b", "paid", None)]
    assert (await store.publish(TENANT, event)).resumed == 1
    assert await told(store, run, event=event) == []


@pytest.mark.parametrize("limit", [1, 2])
async def test_the_limit_counts_those_that_an_event_fits(store, clock, limit):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    items = {"a": (1, 4), "b": (2, 5), "c": (3, 6, 6, 6)}
    waits = {
        label: [{"event": "paid", "match": f'{{"batch": 1, "item": {item}}}'} for item in wanted]
        for label, wanted in items.items()
    }
    await wait(store, await take(store), waits)

    for label, wanted in items.items():
        for item in wanted:
            event = an_event(data=f'{{"batch": 1, "item": {item}}}')
            found = [one[0] for one in await told(store, run, event=event, limit=limit)]
            assert found == [label] * min(limit, wanted.count(item))
    assert await told(store, run, event=an_event(data='{"batch": 1}'), limit=limit) == []


async def test_items_and_nodes_of_inner_runs_are_told_under_the_node_that_they_are_in(store, clock):
    await store.define_jobs(TENANT, [a_job("inner", kind="workflow", settings=SETTINGS)])
    plan = a_plan({"outer": [], "ask": []}, specs={"outer": Spec(job="inner")})
    run = await begun(store, plan)
    hands = await take(store)
    await wait(store, hands, {"ask": [{"event": "paid"}]})
    (inner,) = (one for one in hands.executions if one.node == "outer")
    mapped = a_mapped_plan()
    assert await store.expand(TENANT, worker=hands.worker, claimed=inner, plan=mapped)
    await end(store, await take(store), results={"list": [1, 2]})
    ids = await wait(store, await take(store), {"each[1]": [{"event": "sent"}]})

    assert sorted(await told(store, run)) == [
        ("ask", "ask", "paid", None),
        ("each[1]", "outer", "sent", None),
    ]
    assert await told(store, inner.id) == [("each[1]", "each", "sent", None)]
    await store.cancel(TENANT, [ids["each[1]"]])
    assert await told(store, inner.id) == []


async def test_a_node_is_shown_with_why_and_until_when_it_is_away(store, clock):
    run = await begun(store, a_plan({"a": [], "b": [], "c": []}))
    hands = await take(store)
    now = clock.now()
    await wait(store, hands, {"a": [{"event": "paid"}]})
    (b,) = (one for one in hands.executions if one.node == "b")
    (c,) = (one for one in hands.executions if one.node == "c")
    moves = [after_retry_later(b, delay=60.0, reason="busy", ran=1.0), success(c)]
    assert await apply(store, hands, *moves) == []

    views = {view.node.label: view for view in (await detail(store, run)).nodes}

    assert (views["a"].state, views["a"].reason) == (State.WAITING, "event")
    assert (views["b"].state, views["b"].reason) == (State.SCHEDULED, "busy")
    assert views["b"].run_at == pytest.approx(now + 60.0)
    assert (views["c"].state, views["c"].reason, views["c"].run_at) == (State.SUCCEEDED, None, None)
    await clock.advance(61)
    views = {view.node.label: view for view in (await detail(store, run)).nodes}
    assert (views["b"].state, views["b"].reason) == (State.QUEUED, None)
