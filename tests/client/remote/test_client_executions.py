"""Events and workflow runs over HTTP, compared with a client of the store."""

import pytest
from msgspec.structs import replace

from daybell import RemoteClient
from daybell.cli.views.executions import echo_steps
from daybell.cli.views.jobs import find_run_workflows
from daybell.client.answers import RESULTS_CHARS_MAX
from daybell.client.events import approval_event
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_wait
from daybell.errors import Conflict, ExecutionNotFound, InvalidWorkflow, UsageError
from tests.builders import a_step, apply, claim
from tests.client.remote.losing import losing
from tests.refusals import refuses
from tests.workflows import ETL, work


async def test_what_is_sent_over_http_is_what_the_store_has(store, remote):
    made = await store.enqueue("resize")
    hands = await claim(store.store)
    (one,) = hands.executions
    wait = a_step(one, 2, name="go", event="go", timeout=60.0)
    await store.store.runs.record(
        "default", worker=hands.worker, steps=[a_step(one, 1, result='{"cents":1}'), wait]
    )
    await apply(store.store, hands, after_wait(one, ran=0.0))

    why = await remote.why(made.id)
    first = await remote.publish("go", {"n": 1}, source="shop", id="x", time="2026-01-01T00:00:00Z")
    again = await remote.publish("go", {"n": 1}, source="shop", id="x")

    assert why.code == "event" and "event 'go'" in why.detail
    assert (first.created, first.resumed, again.created) == (True, 1, False)
    execution = await store.execution(made.id)
    assert await remote.execution(made.id) == execution
    assert [step.status for step in execution.steps] == ["done", "done"]
    (event,), (seen,) = (await store.events()).items, (await remote.events()).items
    assert seen == event
    await remote.signal(made.id, "more", [1])
    await remote.approve(made.id, approved=False, note="no")
    decision, signal, _ = (await store.events()).items
    assert (signal.execution_id, signal.data) == (made.id, [1])
    assert decision.data["by"].startswith("key root") and decision.data["approved"] is False
    with pytest.raises(ExecutionNotFound):
        await remote.signal(mint(), "go")
    with pytest.raises(UsageError, match="reserved"):
        await remote.publish("daybell.x")


async def test_a_wait_whose_answer_is_too_long_to_send_has_not_timed_out(store, remote):
    made = await store.enqueue("resize")
    hands = await claim(store.store)
    (one,) = hands.executions
    big = a_step(one, 1, result=f'"{"x" * RESULTS_CHARS_MAX}"')
    wait = a_step(one, 2, name=approval_event("boss"), event=approval_event("boss"), timeout=60.0)
    await store.store.runs.record("default", worker=hands.worker, steps=[big, wait])
    await apply(store.store, hands, after_wait(one, ran=0.0))
    await store.approve(made.id, "boss")

    here, there = await store.execution(made.id), await remote.execution(made.id)

    assert "approved" in [moment.event for moment in here.timeline]
    assert there == here
    assert [step.status for step in there.steps] == ["done", "done"]
    echo_steps(there.steps)


async def test_an_event_whose_answer_is_lost_counts_once(store, address):
    token = (await store.create_key("root", role="superadmin")).token
    async with losing(address) as way, RemoteClient(way.url, key=token) as remote:
        way.to_lose = 1
        published = await remote.publish("go")

    assert published.created and way.lost == 1
    assert len((await store.events()).items) == 1


# Workflows over HTTP, compared with a client of the store.


async def as_told(client, id):
    return (await client.execution(id)).workflow


async def test_a_workflow_is_the_same_over_http(store, remote):
    there = await remote.create("there", workflow=ETL)
    here = await store.create("here", workflow=ETL)

    assert there.definition == replace(here.definition, name="there")
    assert (await remote.apply_job("there", workflow=ETL)).action == "unchanged"
    with refuses(InvalidWorkflow, field="workflow.edges") as refused:
        nodes = [{"name": name, "task": "resize"} for name in "ab"]
        await remote.create("no", workflow={"nodes": nodes, "edges": [["a", "b"], ["b", "a"]]})
    assert refused.value.field == "workflow.edges"


async def test_a_run_is_the_same_over_http(store, remote):
    await remote.create("etl", workflow=ETL)
    id = (await remote.enqueue("etl")).id
    assert await as_told(remote, id) == await as_told(store, id)

    await work(store.store, failing=["a"])
    again = await remote.retry(id)
    assert (await remote.why(id)).detail == (await store.why(id)).detail
    await work(store.store)
    other = await remote.retry(id, from_="load")

    assert (again.id, again.created) == (id, False)
    assert await as_told(remote, id) == await as_told(store, id)
    listed = await remote.executions(parent=id)
    here = await store.executions(parent=id)
    assert listed == here
    assert {one.node for one in listed.items} >= {"extract", "load"}
    assert await as_told(remote, listed.items[0].execution_id) is None
    assert len((await remote.executions(nodes=True)).items) > 2
    assert other.id != id
    assert await work(store.store) == [["load"]]
    assert (await store.execution(other.id)).status is State.SUCCEEDED
    with refuses(UsageError, field="from"):
        await remote.retry(id, from_="lod")
    with pytest.raises(Conflict, match="of run"):
        await remote.retry(listed.items[0].execution_id)


async def test_what_nodes_wait_for_is_the_same_over_http(store, remote):
    await remote.create("etl", workflow={"nodes": [{"name": "ask", "task": "resize"}]})
    id = (await remote.enqueue("etl")).id
    await work(store.store, rounds=1)
    hands = await claim(store.store)
    event = approval_event("first")
    waits = [
        a_step(hands.one, 1, name=event, event=event, timeout=60.0),
        a_step(hands.one, 2, name="paid", event="paid", match='{"order":1}'),
    ]
    await store.store.runs.record(store.tenant, worker=hands.worker, steps=waits)
    await apply(store.store, hands, after_wait(hands.one, ran=0.0))

    assert len((await as_told(remote, id)).nodes[0].waits) == 2
    assert await as_told(remote, id) == await as_told(store, id)
    assert (await remote.why(id)).detail == (await store.why(id)).detail
    with pytest.raises(Conflict, match="none of its nodes waits for event 'other'"):
        await remote.signal(id, "other")
    told = await remote.approve(id, "first")
    assert (told.resumed, told.execution, told.node) == (1, hands.one.id, "ask")


async def test_few_runs_are_asked_for_over_http_just_to_name_them(store, remote, monkeypatch):
    made = (await store.enqueue("resize")).id
    one = await store.execution(made)
    nodes = [replace(one, execution_id=mint(), workflow_id=mint(), node="a") for _ in range(5)]
    asked = []

    async def execution(client, id):
        asked.append((client, id))
        raise ExecutionNotFound(f"no execution {id}")

    for client in (store, remote):
        monkeypatch.setattr(type(client), "execution", execution)
        assert made not in await find_run_workflows(client, nodes)

    assert [client for client, _ in asked].count(store) == 5
    assert [client for client, _ in asked].count(remote) == 3


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda client: client.executions(since="1h", until="2h"), "until"),
        (lambda client: client.executions(ended_since="1h", ended_until="2h"), "ended_until"),
        (lambda client: client.count(since="1h", until="2h"), "until"),
        (lambda client: client.audit(since="1h", until="2h"), "until"),
    ],
)
async def test_an_empty_range_of_times_is_refused(client, ask, field):
    with refuses(UsageError, field=field):
        await ask(client)
