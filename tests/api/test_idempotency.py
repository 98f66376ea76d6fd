"""The same request under the same key is done once, whatever becomes of its answer."""

import pytest

from daybell.core.execution import State

KEY = {"Idempotency-Key": "k-1"}


async def dying(*_, **__):
    raise RuntimeError("killed between the change and its answer")


REQUESTS = [
    ("/jobs", {"name": "import", "task": "resize"}),
    ("/jobs/resize/trigger", {"args": {"width": 1}}),
    ("/executions", [{"job": "resize"}]),
]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_the_same_request_is_answered_the_same_and_done_once(http, client, path, body):
    first = await http.post(path, json=body, headers=KEY)
    again = await http.post(path, json=body, headers=KEY)

    assert first.status_code == again.status_code < 300
    assert first.text == again.text
    assert first.headers.get("location") == again.headers.get("location")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert (await client.count()).executions == {State.QUEUED: 1}


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_another_request_under_the_same_key_is_refused(http, client, path, body):
    await http.post(path, json=body, headers=KEY)

    other = await http.post("/jobs/resize/trigger", json={"args": {"x": 2}}, headers=KEY)

    assert other.status_code == 422
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"
    assert (await client.count()).executions == {State.QUEUED: 1}


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_a_request_whose_answer_was_never_kept_creates_nothing_twice(
    http, client, path, body, monkeypatch
):
    async def die(*_, **__):
        raise RuntimeError("killed between the change and its answer")

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", die)
        lost = await http.post(path, json=body, headers=KEY)
    again = await http.post(path, json=body, headers=KEY)
    third = await http.post(path, json=body, headers=KEY)

    assert lost.status_code == 500
    assert again.status_code < 300
    assert third.text == again.text
    assert (await client.count()).executions == {State.QUEUED: 1}


@pytest.mark.parametrize("schedule", [None, "0 0 * * *"])
async def test_a_deleted_job_comes_back_once(http, client, schedule, monkeypatch):
    body = {"name": "import", "task": "resize", "schedule": schedule}
    await http.post("/jobs", json=body)
    await http.delete("/jobs/import")

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", dying)
        lost = await http.post("/jobs", json=body, headers=KEY)
    again = await http.post("/jobs", json=body, headers=KEY)
    other = await http.post("/jobs", json=body, headers={"Idempotency-Key": "k-2"})
    still = await http.post("/jobs", json=body, headers={"Idempotency-Key": "k-2"})

    assert (lost.status_code, again.status_code) == (500, 201)
    assert (other.status_code, still.status_code) == (409, 409)
    assert (await client.count(job="import")).executions.get(State.QUEUED, 0) == (schedule is None)
    assert len((await client.audit(action="job.create", target="import")).items) == 2


async def test_a_backfill_under_a_key_is_done_once(http, client):
    await http.post("/jobs", json={"name": "daily", "task": "resize", "schedule": "0 0 * * *"})
    body = {"since": "2026-01-01", "until": "2026-01-03", "only": "all"}

    first = await http.post("/jobs/daily/backfill", json=body, headers=KEY)
    again = await http.post("/jobs/daily/backfill", json=body, headers=KEY)

    assert first.json()["created"] == 2
    assert again.text == first.text
    assert (await client.count(job="daily")).total == 2


async def test_a_backfill_whose_answer_was_never_kept_is_answered_as_it_was_done(
    http, client, monkeypatch
):
    await http.post("/jobs", json={"name": "daily", "task": "resize", "schedule": "0 0 * * *"})
    body = {"since": "2026-01-01", "until": "2026-01-04"}
    monkeypatch.setattr(type(client.store.admin), "write_audit", dying)

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", dying)
        lost = await http.post("/jobs/daily/backfill", json=body, headers=KEY)
    again = await http.post("/jobs/daily/backfill", json=body, headers=KEY)

    assert lost.status_code == 500
    assert again.json()["created"] == 3
    assert {one["execution_id"] for one in again.json()["items"]} == {
        str(one.execution_id) for one in (await client.executions(job="daily")).items
    }
    assert len((await client.audit(action="job.backfill")).items) == 1


async def test_a_dry_run_is_not_on_record(http, client):
    await http.post("/jobs", json={"name": "daily", "task": "resize", "schedule": "0 0 * * *"})
    body = {"since": "2026-01-01", "until": "2026-01-04", "dry_run": True}

    answer = await http.post("/jobs/daily/backfill", json=body)

    assert answer.status_code == 200
    assert (await client.audit(action="job.backfill")).items == ()


async def test_a_tenant_is_created_once(http, client, monkeypatch):
    body = {"name": "acme", "queued": 5}

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", dying)
        lost = await http.post("/tenants", json=body, headers=KEY)
    again = await http.post("/tenants", json=body, headers=KEY)
    third = await http.post("/tenants", json=body, headers=KEY)
    other = await http.post("/tenants", json=body, headers={"Idempotency-Key": "k-2"})
    still = await http.post("/tenants", json=body, headers={"Idempotency-Key": "k-2"})

    assert lost.status_code == 500
    assert (again.status_code, third.text) == (201, again.text)
    assert (other.status_code, still.status_code) == (409, 409)
    assert len((await client.audit(action="tenant.create")).items) == 1


async def test_keys_take_no_idempotency_key(http, client):
    answer = await http.post("/keys", json={"name": "ci", "role": "viewer"}, headers=KEY)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"
    assert await client.keys() == []


async def test_a_refusal_is_not_remembered(http, client):
    body = {"name": "import", "task": "later"}
    refused = await http.post("/jobs", json=body, headers=KEY)
    await client.define("later")

    again = await http.post("/jobs", json=body, headers=KEY)

    assert (refused.status_code, again.status_code) == (422, 201)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
async def test_a_key_that_is_none_is_refused(http, key):
    answer = await http.post("/jobs/resize/trigger", headers={"Idempotency-Key": key})

    assert answer.status_code == 422


async def test_tenants_do_not_share_keys(http, client):
    await client.add_tenant("acme")
    await client.for_tenant("acme").define("resize")

    mine = await http.post("/jobs/resize/trigger", headers=KEY)
    theirs = await http.post("/jobs/resize/trigger?tenant=acme", headers=KEY)

    assert (mine.status_code, theirs.status_code) == (202, 202)
    assert mine.json()["execution_id"] != theirs.json()["execution_id"]
