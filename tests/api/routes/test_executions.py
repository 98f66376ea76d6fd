"""Executions over HTTP: enqueued in bulk, listed, cancelled, run again."""

import logging

import msgspec
import pytest
from msgspec.structs import replace

from daybell.api.guard import Guard
from daybell.client import context, mint
from daybell.client.requests import read_definition
from daybell.core.execution import NewExecution, NewLogPart, State, line_text
from daybell.core.lifecycle import after_failure, after_success
from daybell.core.retry import Retry
from tests.api.worlds import world
from tests.builders import a_worker

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"


async def run(client, *, fail=False):
    """Have a worker run the next execution; answers its id and the worker's."""
    worker = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    claim = await client.store.queue.claim(
        client.tenant, worker=worker.id, lease=mint(), queues=["images"], limit=1
    )
    (one,) = claim.executions
    if fail:
        none, error = Retry(retries=0), '{"message":"no"}'
        move = after_failure(one, none, error=error, kinds=["ValueError"], ran=0.0, jitter=0.0)
    else:
        move = after_success(one, result='{"made":1}', ran=0.0)
    await client.store.queue.apply(client.tenant, worker=worker.id, transitions=[move])
    return one.id, worker.id


async def test_many_are_enqueued_in_order(http, client):
    body = [
        {"job": "resize", "args": {"width": 1}},
        {"job": "resize", "args": {"width": 2}, "priority": "high", "delay": "1h"},
        {"job": "resize", "unique_key": "k"},
        {"job": "resize", "unique_key": "k"},
    ]

    answer = await http.post("/executions", json=body)

    said = answer.json()
    assert (answer.status_code, said["count"], said["created"]) == (202, 4, 3)
    assert said["items"][2]["execution_id"] == said["items"][3]["execution_id"]
    second = await client.execution(said["items"][1]["execution_id"])
    assert (second.status, second.priority) == (State.SCHEDULED, "high")


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"job": "nobody"}, 404, None),
        ({"job": "resize", "priority": "soon"}, 422, "[1].priority"),
        ({"job": "resize", "args": [1]}, 422, "[1].args"),
        ({"job": "resize", "colour": 1}, 422, "[1].colour"),
        ({"args": {}}, 422, "[1].job"),
        ({"job": "resize", "delay": "1h", "at": "2030-01-01T00:00:00Z"}, 422, "[1].at"),
        ({"job": "resize", "id": UNKNOWN}, 422, "[1].id"),
    ],
)
async def test_one_wrong_item_keeps_all_out(http, client, wrong, status, field):
    answer = await http.post("/executions", json=[{"job": "resize"}, wrong])

    assert answer.status_code == status
    assert field is None or answer.json()["errors"][0]["field"] == field
    assert (await client.count()).executions == {}


async def test_all_wrong_items_are_told_at_once(http):
    body = [{"job": "resize", "queue": "a/b"}, {"job": "resize"}, {"job": "-x"}]

    said = (await http.post("/executions", json=body)).json()

    assert [one["field"] for one in said["errors"]] == ["[0].queue", "[2].job"]


async def test_a_batch_has_a_limit(http):
    answer = await http.post("/executions", json=[{"job": "resize"}] * 10_001)

    assert answer.status_code == 413
    assert (await http.post("/executions", json=[])).status_code == 422


async def test_executions_are_listed_by_what_is_asked_for(http, client):
    job_id = str((await client.job("resize")).job_id)
    await client.define("other", queue="mail")
    await client.enqueue_many("resize", [{}, {}])
    await client.enqueue("other", delay="1h")
    done, worker = await run(client)

    async def count(query, path="/executions"):
        return len((await http.get(f"{path}?{query}")).json()["items"])

    assert await count("job_id=resize") == await count(f"job_id={job_id}") == 2
    assert await count("status=pending") == 2
    assert await count("status=succeeded&status=scheduled") == 2
    assert await count(f"worker_id={worker}") == 1
    assert await count("queue=mail") == 1
    assert await count("since=2020-01-01&until=2099-01-01") == 3
    assert await count("until=2020-01-01") == 0
    assert await count(f"workflow_id={UNKNOWN}") == 0
    assert await count("", path="/job/executions") == 3
    counted = (await http.get("/counts?job_id=resize")).json()
    assert counted == {"executions": {"queued": 1, "succeeded": 1}, "at_least": []}
    first = (await http.get(f"/executions?worker_id={worker}")).json()["items"][0]
    assert (first["execution_id"], first["job_id"]) == (str(done), job_id)


async def test_a_list_goes_on_where_its_page_ended(http, client):
    await client.enqueue_many("resize", [{}] * 3)

    first = (await http.get("/executions?limit=2")).json()
    rest = (await http.get(f"/executions?limit=2&cursor={first['next_cursor']}")).json()

    assert (len(first["items"]), len(rest["items"]), rest["next_cursor"]) == (2, 1, None)


@pytest.mark.parametrize(
    "query",
    [
        "status=done",
        "since=soon",
        "ended_since=soon",
        "error=",
        "unique_key=",
        "arg.=1",
        "args.order_id=42",
        "limit=0",
        "limit=1001",
        "cursor=me",
        "sort=name",
        "job_id=%00",
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused_by_name(http, query):
    answer = await http.get(f"/executions?{query}")

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


async def test_an_execution_is_shown_with_its_attempts_and_timeline(http, client):
    await client.enqueue("resize", {"width": 1})
    id, worker = await run(client)

    said = (await http.get(f"/executions/{id}")).json()

    assert (said["status"], said["result"], said["args"]) == (
        "succeeded",
        {"made": 1},
        {"width": 1},
    )
    assert said["job_id"] == str((await client.job("resize")).job_id)
    (attempt,) = said["attempts"]
    assert (attempt["outcome"], attempt["worker_id"]) == ("succeeded", str(worker))
    events = [one["event"] for one in said["timeline"]]
    assert (events[0], events[-1]) == ("created", "ended")
    assert said["timeline"][-1]["status"] == "succeeded"
    assert [one["at"] for one in said["timeline"]] == sorted(one["at"] for one in said["timeline"])


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/logs"), ("GET", "/why"), ("POST", "/cancel"), ("POST", "/retry")],
)
async def test_an_execution_that_is_not_there_is_not_found(http, method, path):
    unknown = await http.request(method, f"/executions/{UNKNOWN}{path}")
    wrong = await http.request(method, f"/executions/..%2f..%2fetc{path}")

    assert unknown.status_code == 404
    assert unknown.json()["type"] == "urn:daybell:problem:unknown-execution"
    assert wrong.status_code in (404, 422)


async def test_what_has_not_started_is_cancelled_at_once(http, client):
    made = await client.enqueue("resize")

    answer = await http.post(f"/executions/{made.id}/cancel")
    again = await http.post(f"/executions/{made.id}/cancel")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["cancel_requested"] is False
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")


async def test_what_runs_is_asked_to_stop(http, client):
    made = await client.enqueue("resize")
    worker = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    await client.store.queue.claim(
        client.tenant, worker=worker.id, lease=mint(), queues=["images"], limit=1
    )

    answer = await http.post(f"/executions/{made.id}/cancel")

    assert answer.status_code == 202
    assert answer.json()["cancel_requested"] is True
    assert (await http.get(f"/executions/{made.id}/why")).json()["code"] == "cancelling"


async def test_a_dead_one_runs_again_itself_and_others_as_new_ones(http, client):
    await client.enqueue("resize")
    dead, _ = await run(client, fail=True)

    revived = await http.post(f"/executions/{dead}/retry")
    running = await http.post(f"/executions/{dead}/retry")
    done, _ = await run(client)
    refused = await http.post(f"/executions/{done}/retry")
    forced = await http.post(f"/executions/{done}/retry", json={"force": True})

    assert (revived.status_code, revived.json()["execution_id"]) == (202, str(dead))
    assert running.status_code == 409
    assert refused.status_code == 409
    assert forced.status_code == 202
    assert forced.json()["execution_id"] != str(done)


async def test_many_are_cancelled_by_ids_or_by_filter(http, client):
    ids = [str(one.id) for one in (await client.enqueue_many("resize", [{}] * 4)).executions]

    by_ids = await http.post("/executions/cancel", json={"ids": [*ids[:2], UNKNOWN]})
    by_filter = await http.post("/executions/cancel", json={"filter": {"job_id": "resize"}})

    assert by_ids.json() == {"matched": 2, "cancelled": 2, "unknown": 1}
    assert by_filter.json() == {"matched": 2, "cancelled": 2}
    assert (await client.count()).executions == {State.CANCELLED: 4}


async def test_many_run_again_by_ids_or_by_filter(http, client):
    ids = [str(one.id) for one in (await client.enqueue_many("resize", [{}] * 3)).executions]
    await run(client, fail=True)
    await http.post("/executions/cancel", json={"filter": {}})

    by_filter = await http.post("/executions/retry", json={"filter": {}})
    by_ids = await http.post("/executions/retry", json={"ids": ids})

    assert by_filter.json() == {"matched": 1, "revived": 1}
    assert by_ids.json() == {"matched": 3, "renewed": 2, "not_retryable": 1}


async def test_of_many_that_cannot_run_again_each_is_counted_by_what_is_in_the_way(http, client):
    succeeded, discarded, waiting = [
        str(one.id) for one in (await client.enqueue_many("resize", [{}] * 3)).executions
    ]
    await run(client)
    await run(client, fail=True)
    await http.post("/dead-letters/discard", json={"ids": [discarded]})
    ids = {"ids": [succeeded, discarded, waiting, UNKNOWN]}

    counts = (await http.post("/executions/retry", json=ids)).json()
    letters = (await http.post("/dead-letters/retry", json=ids)).json()
    forced = (await http.post("/executions/retry", json={**ids, "force": True})).json()

    assert counts == {"matched": 3, "needs_force": 2, "not_retryable": 1, "unknown": 1}
    assert letters == {"matched": 0, "not_listed": 3, "unknown": 1}
    assert forced == {"matched": 3, "renewed": 2, "not_retryable": 1, "unknown": 1}


@pytest.mark.parametrize("path", ["cancel", "retry"])
@pytest.mark.parametrize(
    "body", [{}, {"ids": [UNKNOWN], "filter": {}}, {"ids": []}, {"ids": ["me"]}, {"all": True}]
)
async def test_which_ones_is_never_guessed(http, client, path, body):
    await client.enqueue("resize")

    answer = await http.post(f"/executions/{path}", json=body)

    assert answer.status_code == 422
    assert (await client.count()).executions == {State.QUEUED: 1}


async def test_dead_letters_are_listed_and_decided_on(http, client):
    await client.enqueue_many("resize", [{}] * 3)
    dead = [str((await run(client, fail=True))[0]) for _ in range(3)]

    listed = (await http.get("/dead-letters?job_id=resize")).json()["items"]
    discarded = await http.post("/dead-letters/discard", json={"ids": [dead[0], UNKNOWN]})
    counted = (await http.get("/counts?dead_letters=true")).json()
    retried = await http.post("/dead-letters/retry", json={"filter": {"queue": "images"}})

    assert {one["execution_id"] for one in listed} == set(dead)
    assert discarded.json() == {"matched": 1, "discarded": 1, "not_listed": 1}
    assert counted == {"executions": {"dead": 2}, "at_least": []}
    assert retried.json() == {"matched": 2, "revived": 2}
    assert (await http.get("/dead-letters")).json()["items"] == []


async def test_a_log_is_read_in_pages(http, client):
    made = await client.enqueue("resize")
    worker = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, worker, lease=60.0)
    lease = mint()
    await client.store.queue.claim(
        client.tenant, worker=worker.id, lease=lease, queues=["images"], limit=1
    )
    parts = [
        NewLogPart(made.id, 1, lease, number, line_text(1.0, "info", "app", f"line {number}"))
        for number in range(1, 13)
    ]
    await client.store.queue.write_log(client.tenant, worker=worker.id, parts=parts)

    first = (await http.get(f"/executions/{made.id}/logs")).json()
    rest = (await http.get(f"/executions/{made.id}/logs?cursor={first['next_cursor']}")).json()

    lines = [one["message"] for one in first["items"] + rest["items"]]
    assert lines == [f"line {number}" for number in range(1, 13)]
    assert rest["next_cursor"] is None
    assert (await http.get(f"/executions/{made.id}/logs?attempt=2")).json()["items"] == []
    assert (await http.get(f"/executions/{made.id}/logs?cursor=me")).status_code == 422


# Ids of the jobs that executions name.


async def test_a_page_asks_once_for_all_jobs_that_it_does_not_know(http, client, monkeypatch):
    asked: list[set[str]] = []
    job_ids = type(client.store.catalog).job_ids

    async def counted(self, tenant, names):
        asked.append(set(names))
        return await job_ids(self, tenant, names)

    monkeypatch.setattr(type(client.store.catalog), "job_ids", counted)
    jobs = [await client.define(f"job {n}") for n in range(3)]
    for job in jobs:
        await client.enqueue(job.name)
    first = (await http.get("/executions")).json()["items"]
    await client.enqueue("resize")
    again = (await http.get("/executions")).json()["items"]

    assert asked == [{job.name for job in jobs}, {"resize"}]
    assert {one["job_id"] for one in first} == {str(job.job_id) for job in jobs}
    assert len(again) == 4


async def test_what_is_remembered_of_jobs_is_bounded(http, client, monkeypatch):
    monkeypatch.setattr(context, "KNOWN_JOBS_MAX", 2)
    ids = []
    for n in range(5):
        ids.append(str((await client.define(f"job {n}")).job_id))
        await client.enqueue(f"job {n}")

    for _ in range(2):
        listed = (await http.get("/executions")).json()["items"]
        assert [one["job_id"] for one in reversed(listed)] == ids


# Rows that no client could have stored: each is shown as far as it can be, among the others.

DEEP = '{"a":' + "[" * 2_000 + "]" * 2_000 + "}"


async def test_a_deeply_nested_row_breaks_itself_and_not_the_list(http, client):
    fine = await client.enqueue("resize", {"width": 1})
    deep = NewExecution(id=mint(), job="resize", args=DEEP, queue="images")
    await client.store.queue.enqueue(client.tenant, [deep])

    answer = await http.get("/executions")

    assert answer.status_code == 200
    shown = {one["execution_id"]: one["args"] for one in answer.json()["items"]}
    assert shown[str(fine.id)] == {"width": 1}
    assert list(shown[str(deep.id)]) == ["unreadable"]
    alone = await http.get(f"/executions/{deep.id}")
    assert alone.status_code == 200


async def test_a_job_with_deep_settings_is_listed(http, client):
    await client.create("reach", http="https://example.org", schedule="manual")
    job = await client.job("reach")
    deep = '{"url":"https://example.org","body":' + DEEP + "}"
    msgspec.structs.force_setattr(job.definition, "settings", deep)

    listed = await http.get("/jobs")

    assert listed.status_code == 200
    assert {one["name"] for one in listed.json()["items"]} == {"resize", "reach"}


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/events", "/api/v1/executions"])
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(path, caplog):
    messages = [
        {"type": "http.request", "body": b'{"type": ', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message):
        pass

    caplog.set_level(logging.INFO)
    async with world() as here:
        token = here.keys["admin"].encode()
        headers = [
            (b"host", b"localhost"),
            (b"authorization", b"Bearer " + token),
            (b"content-type", b"application/json; charset=utf-8"),
            (b"content-length", b"100"),
        ]
        scope = {
            **{"type": "http", "method": "POST", "path": path, "raw_path": path.encode()},
            **{"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""},
            **{"headers": headers, "client": ("10.0.0.1", 5000), "server": ("localhost", 80)},
        }
        assert isinstance(here.guard, Guard)
        await here.guard(scope, receive, send)

    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.INFO] == []


SIGNATURE = '{"properties": {"width": {"type": "integer"}}, "required": ["width"],' + (
    ' "additionalProperties": false}'
)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/jobs/thumb/trigger", {"args": {"widht": 3}}, "args.widht"),
        ("/jobs/thumb/trigger", {}, "args.width"),
        ("/executions", [{"job": "thumb", "args": {"widht": 3}}], "[0].args.widht"),
        (
            "/executions",
            [{"job": "thumb", "args": {"width": 3}}, {"job": "thumb"}],
            "[1].args.width",
        ),
    ],
)
async def test_arguments_that_a_task_does_not_have_are_refused(http, client, path, body, field):
    definition = read_definition("thumb")
    await client.define_jobs([replace(definition, signature=SIGNATURE)])

    answer = await http.post(path, json=body)

    assert answer.status_code == 422
    said = answer.json()
    assert (said["code"], said["errors"][0]["field"]) == ("invalid-arguments", field)
    assert (await client.executions()).items == ()
