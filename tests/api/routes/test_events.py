"""Events over HTTP: published, signalled, decided; and what executions tell of their steps."""

import json

import pytest

from daybell.client import mint
from daybell.core.event import NewStep, StepKind
from daybell.core.lifecycle import after_wait
from tests.builders import a_step, a_worker, claim
from tests.workflows import work

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"
EVENT = {
    "specversion": "1.0",
    "id": "A-1",
    "source": "/shop",
    "type": "order.approved",
    "data": {"order_id": 42},
}
SENT = {"execution_id": None, "node": None, "executions": []}  # not to one alone
BARE = {name: value for name, value in EVENT.items() if name != "data"}
BINARY = {f"ce-{name}": value for name, value in BARE.items()}
PNG = {"datacontenttype": "image/png", "data_base64": "iVBORw0KGgo="}
KEY = {"Idempotency-Key": "k-1"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
CLOUD = {"content-type": "application/cloudevents+json; charset=utf-8"}


async def waiting(client, *events, **fields):
    """An execution that has made a step, and waits for events; answers its id."""
    made = await client.enqueue("resize")
    worker = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    claim = await client.store.queue.claim(
        client.tenant, worker=worker.id, lease=mint(), queues=["images"], limit=1
    )
    (one,) = claim.executions
    own = {"id": one.id, "attempt": one.attempt, "lease": one.lease}
    steps = [NewStep(**own, n=1, name="charge", kind=StepKind.STEP, result='{"cents":12}')]
    for n, event in enumerate(events, 2):
        steps.append(
            NewStep(**own, n=n, name=event, kind=StepKind.WAIT, event=event, timeout=60.0, **fields)
        )
    await client.store.runs.record(client.tenant, worker=worker.id, steps=steps)
    await client.store.queue.apply(
        client.tenant, worker=worker.id, transitions=[after_wait(one, ran=0.0)]
    )
    return str(made.id)


async def steps_of(http, id):
    return (await http.get(f"/executions/{id}")).json()["steps"]


async def test_an_event_lets_go_on_what_waits_for_it_and_counts_once(http, client):
    id = await waiting(client, "order.approved", match='{"order_id": 42}')

    first = await http.post("/events", content=json.dumps(EVENT), headers=CLOUD)
    again = await http.post("/events", json=EVENT)

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == {**SENT, "event_id": "A-1", "created": True, "resumed": 1}
    assert again.json() == {**SENT, "event_id": "A-1", "created": False, "resumed": 0}
    found = (await http.get(f"/executions/{id}")).json()
    assert found["status"] == "queued"
    step, wait = found["steps"]
    assert (step["name"], step["status"], step["result"]) == ("charge", "done", {"cents": 12})
    assert (wait["kind"], wait["status"], wait["result"]["data"]) == (
        "wait",
        "done",
        {"order_id": 42},
    )


async def test_an_event_in_binary_mode_has_its_attributes_in_headers(http, client):
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "B-1",
        "ce-source": "/caf%C3%A9",
        "ce-type": "order.approved",
        "ce-time": "2026-11-16T09:00:00Z",
        "ce-traceparent": "00-0af7-b7ad-01",
        "content-type": "application/json",
    }

    answer = await http.post("/events", content='{"order_id": 1}', headers=headers)
    without = await http.post("/events", headers={**headers, "ce-id": "B-2"})

    assert (answer.status_code, without.status_code) == (202, 202)
    listed = (await http.get("/events")).json()["items"]
    assert [one["event_id"] for one in listed] == ["B-2", "B-1"]
    assert (listed[1]["source"], listed[1]["type"]) == ("/café", "order.approved")
    assert listed[1]["time"] == "2026-11-16T09:00:00Z"
    assert (listed[1]["data"], listed[0]["data"]) == ({"order_id": 1}, None)


@pytest.mark.parametrize(
    ("headers", "body", "data"),
    [
        (CLOUD, {**BARE, "traceparent": "00-1", "ext1": True, "data": 1}, 1),
        ({}, {**BARE, "traceparent": "00-1", "data": 1}, 1),
        (CLOUD, {**BARE, "datacontenttype": "text/xml", "data": "<a/>"}, "<a/>"),
        (CLOUD, {**BARE, "data_base64": "eyJhIjogMX0="}, {"a": 1}),
        (CLOUD, {**BARE, "data_base64": None, "data": 1}, 1),
        (CLOUD, {**BARE, "datacontenttype": "text/plain", "data_base64": "Y2Fmw6k="}, "café"),
        ({**BINARY, "content-type": "text/plain"}, "café", "café"),
        ({**BINARY, "content-type": "application/xml; charset=UTF-8"}, "<a/>", "<a/>"),
        ({**BINARY, "ce-ext1": "x"}, {"a": 1}, {"a": 1}),
    ],
)
async def test_an_event_may_have_attributes_of_others_and_data_that_is_text(
    http, headers, body, data
):
    given = {"content-type": "application/json", **headers}
    content = body if isinstance(body, str) else json.dumps(body)
    answer = await http.post("/events", content=content.encode(), headers=given)

    assert answer.status_code == 202, answer.json()
    (kept,) = (await http.get("/events")).json()["items"]
    assert (kept["event_id"], kept["data"]) == ("A-1", data)


async def test_as_plain_json_an_event_needs_no_more_than_its_type(http):
    first = await http.post("/events", json={"type": "ping"})
    second = await http.post("/events", json={"type": "ping"})

    assert first.json()["created"] and second.json()["created"]
    page = (await http.get("/events", params={"limit": 1})).json()
    rest = (await http.get("/events", params={"cursor": page["next_cursor"]})).json()
    assert [one["source"] for one in page["items"] + rest["items"]] == ["daybell", "daybell"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    ("headers", "body", "status", "field", "said"),
    [
        ({}, {"data": 1}, 422, "type", "is missing"),
        ({}, {"type": "x", "dat": 1}, 422, "dat", "did you mean 'data'"),
        ({}, {"specversion": "1.0", "type": "x"}, 422, "id", "a CloudEvent has it"),
        ({}, {**EVENT, "specversion": "0.3"}, 422, "specversion", "'1.0'"),
        ({}, {**EVENT, "time": "soon"}, 422, "time", "is not a time"),
        ({}, {**EVENT, "id": "x" * 201}, 422, "id", "the limit is 200"),
        ({}, {**EVENT, "type": "daybell.approval.x"}, 422, "name", "reserved"),
        ({}, 5, 422, "body", "send a JSON object"),
        (CLOUD, {"type": "x"}, 422, "specversion", "a CloudEvent has it"),
        (CLOUD, {**EVENT, "data_base64": "MQ=="}, 422, "data_base64", "send one of them"),
        (CLOUD, {**BARE, "data_base64": "!"}, 422, "data_base64", "data_base64 is not Base64"),
        (CLOUD, {**BARE, "data_base64": 1}, 422, "data_base64", "data_base64 is not Base64"),
        (CLOUD, {**BARE, **PNG}, 422, "data_base64", "not text in UTF-8"),
        ({**BINARY, "content-type": "image/png"}, 1, 415, None, "and text in UTF-8"),
        ({**BINARY, "content-type": "text/plain; charset=utf-16"}, 1, 415, None, "in UTF-8"),
        ({"ce-type": "x"}, 1, 422, "specversion", "a CloudEvent has it"),
        (BATCH, EVENT, 422, "body", "a batch is a list"),
        (BATCH, [EVENT, {"type": "x"}], 422, "[1].specversion", "a CloudEvent has it"),
        (BATCH, [{**EVENT, "data_base64": 1}], 422, "[0].data_base64", "send one of them"),
        ({}, [EVENT] * 1_001, 413, "body", "1,001 events are too many"),
        ({"content-type": "text/plain"}, EVENT, 415, None, "application/json"),
    ],
)
async def test_what_is_no_event_is_refused_by_field(http, headers, body, status, field, said):
    given = {"content-type": "application/json", **headers}
    answer = await http.post("/events", content=json.dumps(body), headers=given)

    problem = answer.json()
    assert answer.status_code == status, problem
    assert said in problem["detail"]
    if field is not None:
        assert problem["errors"][0]["field"] == field


async def test_a_signal_is_for_one_execution_alone(http, client):
    one, other = await waiting(client, "go"), await waiting(client, "go")

    answer = await http.post(f"/executions/{one}/signal", json={"name": "go", "data": [1]})
    unknown = await http.post(f"/executions/{UNKNOWN}/signal", json={"name": "go"})
    reserved = await http.post(
        f"/executions/{one}/signal", json={"name": "daybell.approval.approval"}
    )

    assert (answer.status_code, answer.json()["resumed"]) == (202, 1)
    assert (unknown.status_code, reserved.status_code) == (404, 422)
    assert (await steps_of(http, one))[1]["result"]["data"] == [1]
    assert (await steps_of(http, other))[1]["status"] == "waiting"
    (entry,) = (await client.audit(action="execution.signal")).items
    assert entry.target == one


async def test_a_decision_says_who_made_it_by_their_key(http, client):
    id = await waiting(client, "daybell.approval.approval")

    answer = await http.post(
        f"/executions/{id}/approve", json={"approved": False, "note": "too much"}
    )

    assert (answer.status_code, answer.json()["resumed"]) == (202, 1)
    said = (await steps_of(http, id))[1]["result"]["data"]
    assert said == {"approved": False, "by": "dev", "note": "too much"}
    assert (await http.post(f"/executions/{id}/approve")).status_code == 202
    wrong = await http.post(f"/executions/{id}/approve", json={"approved": "yes", "by": "me"})
    assert {one["field"] for one in wrong.json()["errors"]} == {"approved", "by"}


async def test_a_signal_with_a_key_is_sent_once(http, client):
    id = await waiting(client, "go")
    key = {"Idempotency-Key": "k"}

    answers = [
        await http.post(f"/executions/{id}/signal", json={"name": "go"}, headers=key)
        for _ in range(2)
    ]

    assert answers[0].json() == answers[1].json()
    assert len((await client.events()).items) == 1


async def test_why_says_what_is_waited_for(http, client):
    id = await waiting(client, "order.approved", "daybell.approval.refund")

    said = (await http.get(f"/executions/{id}/why")).json()

    assert said["code"] == "event"
    assert "event 'order.approved'" in said["detail"] and "approval 'refund'" in said["detail"]
    assert said["next_at"] is not None and said["next_at"] in said["detail"]


async def test_a_decision_that_a_run_has_passed_on_is_not_refused_if_its_answer_was_lost(
    http, client, monkeypatch
):
    await client.define("resize")
    await client.create("asking", workflow={"nodes": [{"name": "ask", "task": "resize"}]})
    run = (await client.enqueue("asking")).id
    await work(client.store, rounds=1)
    hands = await claim(client.store)
    wait = a_step(hands.one, name="go", event="go")
    await client.store.runs.record(client.tenant, worker=hands.worker, steps=[wait])

    async def die(*_, **__):
        raise RuntimeError("killed between the change and its answer")

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", die)
        lost = await http.post(f"/executions/{run}/signal", json={"name": "go"}, headers=KEY)
    again = await http.post(f"/executions/{run}/signal", json={"name": "go"}, headers=KEY)
    other = await http.post(f"/executions/{run}/signal", json={"name": "go"})

    assert (lost.status_code, again.status_code, other.status_code) == (500, 202, 409)
    assert again.json()["created"] and again.json()["execution_id"] == str(hands.one.id)
    assert "none of its nodes waits for event 'go' now" in other.json()["detail"]
    (entry,) = (await client.audit()).items
    assert entry.target == str(run) and str(hands.one.id) in str(entry.after)
