"""The whole API on SQLite and PostgreSQL: the same answers, also to what databases stumble over."""

import asyncio
import json
from urllib.parse import quote

import pytest

from daybell.client import Client
from daybell.core.execution import State
from daybell.core.limits import COUNT_ITEMS_MAX, SCAN_ITEMS_MAX
from tests.builders import a_worker
from tests.stores import open_place

ODD = [
    "'; DROP TABLE executions; --",
    "a%",
    "\\_",
    "\x01",
    "\ufeff🔔\u202e\ufffd",
    "e\u0301" * 50,
    "a\0b",
]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def client(request, tmp_path, servers):
    async with (
        open_place(request.param, tmp_path, servers) as place,
        place.opened() as store,
    ):
        opened = Client(store)
        await opened.define("resize", queue="images")
        yield opened


async def test_a_job_that_a_live_worker_declares_is_deleted_by_force_only(http, client):
    await client.store.queue.register("default", a_worker(tasks={"resize": "images"}), lease=60.0)

    refused = await http.delete("/jobs/resize")
    forced = await http.delete("/jobs/resize?force=true")

    assert refused.status_code == 409
    assert "declared by the code of a live worker" in refused.json()["detail"]
    assert "force=true" in refused.json()["detail"]
    assert (forced.status_code, forced.json()["status"]) == (200, "deleted")


async def test_a_job_from_its_creation_to_its_end(http, client):
    body = {"name": "daily", "task": "resize", "schedule": "0 0 * * *", "user_id": "ana"}
    key = {"Idempotency-Key": "k"}

    made = await http.post("/jobs", json=body, headers=key)
    again = await http.post("/jobs", json=body, headers=key)
    changed = await http.patch("/jobs/daily", json={"queue": "mail"}, headers={"If-Match": '"1"'})
    moved = await http.patch("/jobs/daily", json={"queue": "x"}, headers={"If-Match": '"1"'})
    paused = await http.post("/jobs/daily/pause", json={"note": "why"})
    resumed = await http.post("/jobs/daily/resume")
    back = await http.post("/jobs/daily/rollback", json={"version": 1})
    span = {"since": "2026-01-01", "until": "2026-01-04"}
    filled = await http.post("/jobs/daily/backfill", json=span)
    listed = await http.get("/jobs?user_id=ana&status=pending&q=DAI")
    ended = await http.delete("/jobs/daily")

    assert (made.status_code, again.text) == (201, made.text)
    assert (changed.status_code, moved.status_code) == (200, 412)
    assert (paused.json()["status"], resumed.json()["status"]) == ("paused", "scheduled")
    assert (back.json()["queue"], filled.json()["created"]) == ("images", 3)
    assert [one["name"] for one in listed.json()["items"]] == ["daily"]
    assert ended.json()["cancelled"] == 3
    told = [one["action"] for one in (await http.get("/audit")).json()["items"]]
    assert told[-1] == "job.create" and told[0] == "job.delete" and len(told) == 7


async def test_triggers_at_the_same_time_are_each_made_once(http, client):
    bodies = [{"args": {"number": number}} for number in range(30)]

    answers = await asyncio.gather(
        *(http.post("/jobs/resize/trigger", json=body) for body in bodies)
    )

    assert {one.status_code for one in answers} == {202}
    assert len({one.json()["execution_id"] for one in answers}) == 30
    assert (await client.count()).executions == {State.QUEUED: 30}
    entries = (await http.get("/audit?action=job.trigger&limit=100")).json()["items"]
    assert len(entries) == 30


async def test_a_request_that_comes_twice_at_the_same_time_is_done_once(http, client):
    key = {"Idempotency-Key": "k"}

    answers = await asyncio.gather(
        *(http.post("/executions", json=[{"job": "resize"}] * 3, headers=key) for _ in range(5))
    )

    assert len({one.text for one in answers}) == 1
    assert (await client.count()).executions == {State.QUEUED: 3}


async def test_a_bulk_of_executions_is_decided_on(http, client):
    made = (await http.post("/executions", json=[{"job": "resize"}] * 1000)).json()
    ids = [one["execution_id"] for one in made["items"]]

    cancelled = await http.post("/executions/cancel", json={"ids": ids[:600]})
    rest = await http.post("/executions/cancel", json={"filter": {"status": "queued"}})
    again = await http.post("/executions/retry", json={"ids": ids[:10]})

    assert cancelled.json() == {"matched": 600, "cancelled": 600}
    assert rest.json() == {"matched": 400, "cancelled": 400}
    assert again.json() == {"matched": 10, "renewed": 10}


@pytest.mark.parametrize("odd", ODD, ids=ascii)
async def test_no_text_makes_a_store_stumble(http, client, odd):
    body = {
        "name": "odd",
        "task": "resize",
        "schedule": "manual",
        "description": odd,
        "user_id": odd,
        "args": {odd: odd, "half": "\ud800", "nul": "\0"},
    }
    escaped = json.dumps(body)  # half a pair is only sent as an escape
    job = await http.post("/jobs", content=escaped, headers={"Content-Type": "application/json"})
    answers = [
        await http.get(path, params={name: odd})
        for path, names in (
            ("/jobs", ("status", "user_id", "queue", "q", "prefix", "cursor")),
            ("/executions", ("job_id", "status", "worker_id", "queue", "since", "cursor")),
            ("/counts", ("job_id", "queue")),
            ("/dead-letters", ("job_id", "queue", "cursor")),
            ("/audit", ("actor", "action", "target", "until", "cursor")),
        )
        for name in names
    ]
    answers += [
        await http.get(f"/jobs/{quote(odd)}"),
        await http.post(f"/jobs/{quote(odd)}/trigger"),
        await http.get(f"/tenants/{quote(odd)}"),
        await http.post(f"/queues/{quote(odd)}/pause"),
        await http.post("/jobs/resize/trigger", json={"unique_key": odd, "args": {odd: "\0"}}),
        await http.post("/jobs/resize/trigger", headers={"Idempotency-Key": "x"}, json={}),
        await http.post("/executions/cancel", json={"filter": {"queue": odd}}),
    ]

    if "\0" in odd:
        assert job.status_code == 422
    else:
        assert job.status_code == 201
        assert (await http.get("/jobs/odd")).json()["args"] == body["args"]
    assert (await http.get("/audit")).status_code == 200
    assert {one.status_code for one in answers} <= {200, 202, 404, 422}


async def test_a_long_queue_is_counted_up_to_a_bound(http, client):
    await client.enqueue_many("resize", [{}] * (COUNT_ITEMS_MAX + 5))

    counted = (await http.get("/counts")).json()
    (queue,) = (await http.get("/queues")).json()["items"]
    totals = (await http.get("/stats")).json()["totals"]
    scaling = (await http.get("/queues/images/scaling")).json()

    assert counted["executions"] == {"queued": COUNT_ITEMS_MAX}
    assert "queued" in counted["at_least"]
    assert (queue["queued"], queue["at_least"]) == (COUNT_ITEMS_MAX, ["queued"])
    assert (totals["queued"], totals["at_least"]) == (COUNT_ITEMS_MAX, ["queued"])
    assert (scaling["value"], scaling["at_least"]) == (COUNT_ITEMS_MAX, ["value", "queued"])


async def test_a_page_of_a_rare_filter_goes_on_with_its_cursor(http, client):
    made = await client.enqueue("resize", {}, queue="rare")
    await client.enqueue_many("resize", [{}] * (SCAN_ITEMS_MAX + 5))

    first = (await http.get("/executions?queue=rare")).json()
    second = (await http.get(f"/executions?queue=rare&cursor={first['next_cursor']}")).json()

    assert (first["items"], first["next_cursor"] is None) == ([], False)
    assert [one["execution_id"] for one in second["items"]] == [str(made.id)]
    assert second["next_cursor"] is None
