"""Executions that run again: once per request, on record, and within a quota."""

import pytest

from daybell.core.execution import State
from daybell.errors import Unavailable
from tests.api.routes.test_executions import run

KEY = {"Idempotency-Key": "k-1"}


async def cancelled(client, count=1):
    ids = [str(one.id) for one in (await client.enqueue_many("resize", [{}] * count)).executions]
    await client.cancel_picked(ids)
    return ids


async def entries(client):
    return (await client.audit(action="execution.retry")).items


def dying(*_, **__):
    raise RuntimeError("killed between the change and its answer")


async def going(*_, **__):
    raise Unavailable("gone")


async def request_of(client, kind):
    """What to ask for so that two executions, or one, run again."""
    if kind == "one":
        (id,) = await cancelled(client)
        return f"/executions/{id}/retry", None, 1
    ids = await cancelled(client, 2)
    chosen = {"ids": ids} if kind == "ids" else {"filter": {"status": "cancelled"}}
    return "/executions/retry", chosen, 2


@pytest.mark.parametrize("kind", ["one", "ids", "filter"])
async def test_the_same_retry_under_a_key_is_done_once(http, client, kind):
    path, body, count = await request_of(client, kind)

    first = await http.post(path, json=body, headers=KEY)
    again = await http.post(path, json=body, headers=KEY)

    assert first.status_code == again.status_code < 300
    assert again.text == first.text
    assert again.headers["idempotency-replayed"] == "true"
    assert (await client.count()).executions[State.QUEUED] == count


@pytest.mark.parametrize("kind", ["one", "ids", "filter"])
async def test_a_retry_whose_answer_was_never_kept_creates_nothing_twice(
    http, client, kind, monkeypatch
):
    path, body, count = await request_of(client, kind)

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", dying)
        lost = await http.post(path, json=body, headers=KEY)
    again = await http.post(path, json=body, headers=KEY)

    assert lost.status_code == 500
    assert again.status_code < 300
    assert again.json().get("renewed", 1) == count
    assert (await client.count()).executions[State.QUEUED] == count
    assert len(await entries(client)) == 1


async def test_a_revival_whose_answer_was_never_kept_is_answered_as_done(http, client, monkeypatch):
    await client.enqueue("resize")
    dead, _ = await run(client, fail=True)

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", dying)
        await http.post(f"/executions/{dead}/retry", headers=KEY)
    again = await http.post(f"/executions/{dead}/retry", headers=KEY)
    other = await http.post(f"/executions/{dead}/retry", headers={"Idempotency-Key": "k-2"})

    assert again.status_code == 202
    assert again.json() == {"execution_id": str(dead), "status": "queued", "created": False}
    assert other.status_code == 409


@pytest.mark.parametrize("kind", ["one", "ids", "filter"])
async def test_a_retry_and_its_entry_are_one_transaction(http, client, kind, monkeypatch):
    path, body, count = await request_of(client, kind)

    # What is written besides the change could be lost, so nothing is.
    monkeypatch.setattr(type(client.store.admin), "write_audit", going)
    answer = await http.post(path, json=body)

    assert answer.status_code < 300
    assert (await client.count()).executions[State.QUEUED] == count
    assert len(await entries(client)) == 1


@pytest.mark.parametrize("path", ["/jobs/resize/trigger", "/executions"])
async def test_what_has_a_unique_key_is_on_record_if_it_was_created(
    http, client, path, monkeypatch
):
    body = {"args": {}, "unique_key": "k"}
    asked = [{"job": "resize", **body}] if path == "/executions" else body
    monkeypatch.setattr(type(client.store.admin), "write_audit", going)

    first = await http.post(path, json=asked)
    again = await http.post(path, json=asked)

    assert (first.status_code, again.status_code) == (202, 202)
    assert len((await client.audit()).items) == 1


async def test_a_retry_that_is_refused_is_not_on_record(http, client):
    made = await client.enqueue("resize", unique_key="k")
    await client.cancel(made.id)
    await client.enqueue("resize", unique_key="k")

    answer = await http.post(f"/executions/{made.id}/retry")

    assert answer.status_code == 409
    assert await entries(client) == ()


async def test_picked_ones_are_renewed_together(http, client, monkeypatch):
    ids = await cancelled(client, 5)
    batches = []
    enqueue = type(client.store.queue).enqueue

    async def counted(self, tenant, executions, **options):
        batches.append(len(executions))
        return await enqueue(self, tenant, executions, **options)

    monkeypatch.setattr(type(client.store.queue), "enqueue", counted)
    answer = await http.post("/executions/retry", json={"ids": ids})

    assert answer.json() == {"matched": 5, "renewed": 5}
    assert batches == [5]


# What becomes of those that should run again and for which a quota has no room.


@pytest.fixture
async def letters(client):
    """Three dead letters of a tenant that may have two unfinished executions."""
    await client.enqueue_many("resize", [{}] * 3)
    ids = [str((await run(client, fail=True))[0]) for _ in range(3)]
    await client.update_tenant("default", queued=2)
    return ids


@pytest.mark.parametrize("path", ["/dead-letters/retry", "/executions/retry"])
@pytest.mark.parametrize("way", ["ids", "filter"])
async def test_of_many_those_that_fit_run_again(http, letters, path, way):
    chosen = {"ids": letters} if way == "ids" else {"filter": {}}

    answer = await http.post(path, json=chosen)

    assert answer.json() == {"matched": 3, "revived": 2, "over_quota": 1}
    assert len((await http.get("/dead-letters")).json()["items"]) == 1


async def test_one_that_does_not_fit_is_refused_for_a_while(http, client, letters):
    await client.update_tenant("default", queued=0)

    answer = await http.post(f"/executions/{letters[0]}/retry")

    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert "0 unfinished executions" in answer.json()["detail"]


@pytest.mark.parametrize("quota", ["queued", "per_minute"])
@pytest.mark.parametrize("way", ["ids", "filter"])
async def test_those_that_would_be_enqueued_again_are_counted_by_the_same_word(
    http, client, quota, way
):
    made = (await client.enqueue_many("resize", [{}] * 5)).executions
    ids = [str(one.id) for one in made]
    await client.cancel_picked(ids)
    await client.update_tenant("default", **{quota: 3})
    chosen = {"ids": ids} if way == "ids" else {"filter": {"status": "cancelled"}}

    answer = await http.post("/executions/retry", json=chosen)

    counts = answer.json()
    assert counts["matched"] == 5
    assert set(counts) <= {"matched", "renewed", "over_quota"}
    assert 1 <= counts.get("renewed", 0) <= 3 and counts["over_quota"] >= 2
