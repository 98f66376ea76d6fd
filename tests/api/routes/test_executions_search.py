"""Executions by their content over HTTP: lists, bulk decisions, and what is refused."""

import time
from typing import Any, cast

import pytest

from daybell import App, ExecutionFailed
from daybell.api import ApiOptions, create_api
from daybell.api.routes import bulk
from daybell.client import executions
from daybell.client.sealing import new_key
from daybell.core.execution import Failure, NewLogPart, State, join_lines, line_text
from daybell.core.ids import mint
from daybell.core.lifecycle import after_failure
from daybell.core.limits import SCAN_ITEMS_MAX
from daybell.core.retry import Retry
from daybell.sdk.capture import masks
from tests.api.conftest import asking
from tests.builders import a_worker
from tests.sdk.waiting import WAIT


async def ids(http, path="/executions", **params):
    answer = await http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [one["execution_id"] for one in answer.json()["items"]]


async def orders(client, *numbers, **options):
    made = [await client.enqueue("resize", {"order": {"id": n}}, **options) for n in numbers]
    return [str(one.id) for one in made]


async def fail(client, name="TimeoutError", *, worker="web-1"):
    """Have a worker fail at the next execution; answers the worker's id."""
    new = a_worker(name=worker, queues=("images",))
    await client.store.queue.register(client.tenant, new, lease=60.0)
    claim = await client.store.queue.claim(
        client.tenant, worker=new.id, lease=mint(), queues=["images"], limit=1
    )
    error = Failure(type=name, message="no answer").to_json()
    move = after_failure(
        claim.executions[0], Retry(retries=0), error=error, kinds=[name], ran=0.0, jitter=0.0
    )
    await client.store.queue.apply(client.tenant, worker=new.id, transitions=[move])
    return str(new.id)


async def test_a_list_is_searched_by_content(http, client):
    first, second, third = await orders(client, 41, 42, 43)
    (keyed,) = await orders(client, 42, unique_key="order-42", delay="1h")
    await fail(client)

    assert await ids(http, **{"arg.order.id": "42"}) == [keyed, second]
    assert await ids(http, **{"arg.order.id": "42"}, unique_key="order-42") == [keyed]
    assert await ids(http, error="timeouterror") == [first]
    assert await ids(http, "/dead-letters", error="no answer") == [first]
    assert await ids(http, "/dead-letters", error="KeyError") == []
    assert await ids(http, ended_since="1h") == [first]
    assert await ids(http, ended_until="1h") == []
    assert await ids(http, "/job/executions", **{"arg.order.id": "43"}) == [third]


async def test_a_job_is_given_by_name_or_id_under_both_names(http, client):
    (made,) = await orders(client, 42)
    await client.define("other")
    await client.enqueue("other")
    id = str((await client.job("resize")).job_id)

    for name in ("job", "job_id"):
        for value in ("resize", id):
            assert await ids(http, **{name: value}) == [made]
            counts = await http.get("/counts", params={name: value})
            assert counts.json() == {"executions": {"queued": 1}, "at_least": []}
    assert (await http.get("/executions", params={"job": "a", "job_id": "b"})).status_code == 422
    assert (await http.get("/executions", params={"job": str(mint())})).status_code == 404


async def test_a_worker_is_given_by_name_or_id(http, client):
    first, second, third = await orders(client, 1, 2, 3)
    one = await fail(client, worker="web")
    two = await fail(client, worker="web")
    await fail(client, worker="mail")

    assert await ids(http, worker_id=one) == [first]
    assert await ids(http, worker_id="web") == [second, first]
    assert await ids(http, worker_id="mail") == [third]
    counts = [await http.get("/counts", params={"worker_id": id}) for id in ("web", "mail", two)]
    assert [one.json()["executions"] for one in counts] == [{"dead": 2}, {"dead": 1}, {"dead": 1}]
    missing = await http.get("/executions", params={"worker_id": "nobody"})
    assert missing.status_code == 404
    assert "no worker named 'nobody'" in missing.json()["detail"]


async def test_what_is_older_than_a_length_of_time_is_left_out(http, client, monkeypatch):
    await orders(client, 1)
    monkeypatch.setattr(client.store.db.writer.session, "clock", lambda: time.time() + 7200)
    (new,) = await orders(client, 2)

    assert await ids(http, since="1h") == [new]
    assert (await http.get("/counts", params={"since": "1h"})).json()["executions"] == {"queued": 1}


@pytest.mark.parametrize("path", ["/executions", "/counts", "/audit", "/dead-letters"])
async def test_a_length_of_time_means_so_long_ago(http, client, path):
    await orders(client, 1)

    async def said(**params):
        answer = await http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert await said(since="1h") == await said()
    assert await said(until="1h ago") != await said() or path in ("/audit", "/dead-letters")
    wrong = await http.get(path, params={"since": "soon"})
    assert wrong.status_code == 422
    assert "1h for an hour ago" in wrong.json()["errors"][0]["message"]


async def test_many_are_cancelled_by_content(http, client):
    await orders(client, 41, 42, 42, delay="1h")

    by_args = {"filter": {"args": {"order.id": 42}, "since": "1h"}}
    answer = await http.post("/executions/cancel", json=by_args)
    by_name = await http.post("/executions/cancel", json={"filter": {"arg.order.id": "41"}})

    assert answer.json() == {"matched": 2, "cancelled": 2}
    assert by_name.json() == {"matched": 1, "cancelled": 1}


@pytest.mark.parametrize(
    ("path", "done"),
    [
        ("/executions/retry", "revived"),
        ("/dead-letters/retry", "revived"),
        ("/dead-letters/discard", "discarded"),
    ],
)
async def test_many_are_decided_on_by_content(http, client, path, done):
    await orders(client, 41, 42)
    await fail(client, "TimeoutError")
    await fail(client, "KeyError")

    none = await http.post(path, json={"filter": {"error": "ValueError"}})
    one = await http.post(path, json={"filter": {"error": "KeyError", "ended_since": "1h"}})

    assert none.json() == {"matched": 0}
    assert one.json() == {"matched": 1, done: 1}
    assert await ids(http, "/dead-letters", **{"arg.order.id": "42"}) == []
    assert len(await ids(http, "/dead-letters")) == 1


async def test_a_bulk_request_reads_a_bounded_number_and_goes_on(http, client, monkeypatch):
    monkeypatch.setattr(bulk, "SWEEP_PAGES", 1)
    (oldest,) = await orders(client, 42)
    await client.enqueue_many("resize", [{"order": {"id": 1}}] * SCAN_ITEMS_MAX)
    body = {"filter": {"args": {"order.id": 42}}}

    first = (await http.post("/executions/cancel", json=body)).json()
    assert first == {"matched": 0, "next_cursor": first["next_cursor"]}
    assert (await client.execution(oldest)).status is State.QUEUED

    second = await http.post("/executions/cancel", json={**body, "cursor": first["next_cursor"]})
    assert second.json() == {"matched": 1, "cancelled": 1}


async def test_a_bulk_request_with_a_limit_goes_on_after_it(http, client):
    await client.enqueue_many("resize", [{}] * 1001)
    body = {"filter": {"job": "resize"}, "limit": 1000}

    first = (await http.post("/executions/cancel", json=body)).json()
    second = await http.post("/executions/cancel", json={**body, "cursor": first["next_cursor"]})
    all_of_it = await http.post("/executions/cancel", json={"filter": {"job": "resize"}})

    assert (first["matched"], first["cancelled"]) == (1000, 1000)
    assert second.json() == {"matched": 1, "cancelled": 1}
    assert "next_cursor" not in all_of_it.json()


async def test_a_bulk_request_by_the_name_of_several_workers_is_bounded(http, client, monkeypatch):
    await orders(client, 1, 2, 3)
    for worker in ("web", "web", "mail"):
        await fail(client, worker=worker)
    body = {"filter": {"worker_id": "web", "status": "dead"}}

    monkeypatch.setattr(bulk, "SWEEP_PAGES", 0)
    first = (await http.post("/executions/retry", json=body)).json()
    alone = await http.post("/executions/retry", json={"filter": {"worker_id": "mail"}})
    monkeypatch.setattr(bulk, "SWEEP_PAGES", 1)
    second = await http.post("/executions/retry", json={**body, "cursor": first["next_cursor"]})

    assert first["matched"] == 0
    assert (alone.json()["matched"], "next_cursor" in alone.json()) == (1, False)
    assert second.json()["matched"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {"args": {"order": {"id": 42}}}}, "filter.args.order"),
        ({"filter": {"args": "42"}}, "filter.args"),
        ({"filter": {"args": {}}}, "filter.args"),
        ({"filter": {"args": None}}, "filter.args"),
        ({"filter": {"unique_key": None, "queue": "x"}}, "filter.unique_key"),
        ({"filter": {"error": None}}, "filter.error"),
        ({"filter": {"ended_since": None}}, "filter.ended_since"),
        ({"filter": {"ended_until": None}}, "filter.ended_until"),
        ({"filter": {"error": ""}}, "filter.error"),
        ({"filter": {"error": "x"}, "cursor": "x"}, "cursor"),
        ({"filter": {"queue": "x"}, "cursor": "0."}, "cursor"),
        ({"filter": {"queue": "x"}, "limit": 999}, "limit"),
        ({"filter": {"job": "a", "job_id": "b"}}, "job"),
    ],
)
async def test_a_filter_of_a_body_that_makes_no_sense_is_refused(http, body, field):
    answer = await http.post("/executions/cancel", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


async def test_a_masked_secret_cannot_be_searched_for(tmp_path, monkeypatch):
    """What a list shows is what is searched: an error is masked before it is kept."""
    monkeypatch.setenv("DAYBELL_SECRETS_KEY", new_key())
    secret, reference = "hunter2-canary", cast("Any", {"secret": "TOKEN"})
    app = App(f"sqlite:///{tmp_path}/daybell.db")

    @app.task(retries=0)
    async def refuse(token: str) -> None:
        raise RuntimeError(f"{token} was refused")

    async with app:
        client = await app.open()
        await client.set_secret("TOKEN", secret)
        async with app.worker():
            handle = await refuse.enqueue(reference)
            with pytest.raises(ExecutionFailed):
                await handle.result(timeout=WAIT)
        api = create_api(client, options=ApiOptions(open_tenant="default"))
        async with asking(api) as http:
            assert await ids(http, error="was refused") == [str(handle.id)]
            assert await ids(http, error=secret) == []
            assert await ids(http, **{"arg.token": secret}) == []
    masks.forget()


async def test_a_delay_of_more_than_a_day_needs_a_unit(http, client):
    refused = await http.post("/jobs/resize/trigger", json={"delay": 100000})
    bulk_refused = await http.post("/executions", json=[{"job": "resize", "delay": 100000}])
    fine = await http.post("/jobs/resize/trigger", json={"delay": "100000s"})
    day = await http.post("/jobs/resize/trigger", json={"delay": 86400})

    assert (refused.status_code, bulk_refused.status_code) == (422, 422)
    for answer in (refused, bulk_refused):
        said = answer.json()["errors"][0]["message"]
        assert said == (
            'a delay of 100000 s is over a day; write its unit, as in "100000s" or "1d3h46m40s"'
        )
    assert (fine.status_code, day.status_code) == (202, 202)


async def test_dependencies_take_ids_and_all_that_are_missing_are_named(http, client):
    id = str((await client.job("resize")).job_id)
    job = {"name": "load", "command": "true"}

    made = await http.post("/jobs", json={**job, "dependencies": [id]})
    unknown = str(mint())
    missing = ["extract", "resize", "clean", unknown]
    refused = await http.post("/jobs", json={**job, "name": "other", "dependencies": missing})

    assert made.status_code == 201
    assert made.json()["dependencies"] == ["resize"]
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["field"] == "dependencies"
    assert (
        f"no jobs named 'extract', 'clean' or with the id {unknown} to depend on"
        in error["message"]
    )

    after = {"after_any": [id, "extract", unknown]}
    fired = await http.post("/jobs", json={**job, "name": "any", "schedule": {"after_any": [id]}})
    refused = await http.post("/jobs", json={**job, "name": "other", "schedule": after})
    assert fired.status_code == 201
    assert (await client.job("any")).definition.upstream == ("resize",)
    (error,) = refused.json()["errors"]
    assert error["field"] == "schedule"
    assert f"no jobs named 'extract' or with the id {unknown} to depend on" in error["message"]
    gone = await http.get(f"/jobs/{unknown}")
    assert (gone.status_code, gone.json()["detail"]) == (404, f"no job with the id {unknown}")


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("/executions", "args.order_id", "did you mean 'arg.order_id'?"),
        ("/dead-letters", "args.order.id", "did you mean 'arg.order.id'?"),
        ("/counts", "arg.x", "/counts takes no search by content"),
        ("/counts", "args.x", "/counts takes no search by content"),
        ("/counts", "ended_since", "/counts takes no search by content"),
        ("/counts", "statsu", "did you mean 'status'?"),
    ],
)
async def test_a_parameter_that_is_not_there_is_answered_with_what_is(http, path, name, said):
    answer = await http.get(path, params={name: "1h"})

    assert answer.status_code == 422
    assert said in answer.json()["errors"][0]["message"]


async def test_one_query_lists_counts_and_decides(http, client):
    first, second = await orders(client, 41, 42)
    await client.define("report")
    other = str((await client.enqueue("report")).id)

    assert await ids(http, q="job:res* status:pending") == [second, first]
    assert await ids(http, q="arg.order.id:42") == [second]
    assert await ids(http, q="status:dead") == []
    assert await ids(http, q="job:res*", queue="images") == [second, first]
    counted = (await http.get("/counts", params={"q": "job:report"})).json()
    assert counted["executions"] == {"queued": 1}

    body = {"filter": {"q": "arg.order.id:42"}, "dry_run": True}
    planned = (await http.post("/executions/cancel", json=body)).json()
    assert planned == {"matched": 1}
    assert (await client.count()).executions[State.QUEUED] == 3
    done = (await http.post("/executions/cancel", json={"filter": body["filter"]})).json()
    assert done == {"matched": 1, "cancelled": 1}
    assert await ids(http, q="status:queued") == [other, first]


async def test_a_dry_run_counts_dead_letters_and_changes_nothing(http, client):
    await orders(client, 1, 2)
    await fail(client)

    for path in ("/dead-letters/retry", "/dead-letters/discard", "/executions/retry"):
        for body in ({"filter": {}}, {"filter": {"q": "error:Timeout"}}):
            answer = await http.post(path, json={**body, "dry_run": True})
            assert answer.json() == {"matched": 1}, (path, body)
    assert len((await client.dead_letters()).items) == 1
    assert not (await client.audit(action="dead_letter")).items


async def test_the_jobs_of_a_user_are_found(http, client):
    await client.define("hers", user_id="ana")
    mine = str((await client.enqueue("hers")).id)
    await orders(client, 1)

    assert await ids(http, q="user:ana") == [mine]
    assert await ids(http, q="user:nobody") == []


async def test_a_wrong_query_is_refused_with_its_place(http):
    answer = await http.get("/executions", params={"q": "status:dead jbo:x"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "q"
    assert "character 13: " in answer.text and "did you mean 'job'" in answer.text


async def test_dead_letters_are_grouped_by_job_and_error(http, client):
    await orders(client, 1, 2, 3)
    for name in ("TimeoutError", "TimeoutError", "ValueError"):
        await fail(client, name)

    first, second = (await http.get("/dead-letters/groups")).json()["items"]

    assert (first["error"], first["count"], second["error"]) == ("TimeoutError", 2, "ValueError")
    assert first["first_seen"] <= first["last_seen"]
    assert len(await ids(http, "/dead-letters", q=first["q"])) == 2
    answer = await http.post("/dead-letters/discard", json={"filter": {"q": first["q"]}})
    assert answer.json() == {"matched": 2, "discarded": 2}
    (left,) = (await client.dead_letter_groups(job="resize")).items
    assert left.error == "ValueError"


async def test_groups_of_many_dead_letters_come_in_parts(http, client, monkeypatch):
    monkeypatch.setattr(executions, "PAGE_ITEMS_MAX", 2)
    await orders(client, 1, 2, 3)
    for _ in range(3):
        await fail(client)

    page = (await http.get("/dead-letters/groups")).json()
    rest = (await http.get("/dead-letters/groups", params={"cursor": page["next_cursor"]})).json()

    counts = [one["count"] for one in page["items"] + rest["items"]]
    assert (counts, rest["next_cursor"]) == ([2, 1], None)


def test_errors_of_one_cause_have_one_fingerprint():
    texts = ["order 42 of 'ana' failed at 0x7f", 'order 7 of "bob" failed at 0x1\nmore']
    same = {Failure(type="ShopError", message=one).fingerprint for one in texts}

    assert len(same) == 1
    assert Failure(type="OtherError", message=texts[0]).fingerprint not in same
    assert Failure(type="ShopError", message="order 42 was lost").fingerprint not in same


async def test_a_count_that_is_not_complete_has_an_estimate_if_asked_for(http, monkeypatch):
    monkeypatch.setattr("daybell.store.sqlite.views.COUNT_ITEMS_MAX", 5)
    await http.post("/executions", json=[{"job": "resize"} for _ in range(12)])

    asked = (await http.get("/counts", params={"estimate": "true"})).json()
    plain = (await http.get("/counts")).json()
    few = (await http.get("/counts", params={"estimate": "true", "status": "dead"})).json()

    assert (asked["at_least"], asked["estimate"]) == (["queued", "succeeded"], 12)
    assert "estimate" not in plain
    assert "estimate" not in few


async def test_a_list_is_sorted_by_the_parameter(http):
    made = (await http.post("/executions", json=[{"job": "resize"} for _ in range(3)])).json()
    ids = [one["execution_id"] for one in made["items"]]

    first = (await http.get("/executions", params={"sort": "created", "limit": 2})).json()
    cursor = first["next_cursor"]
    rest = (await http.get("/executions", params={"sort": "created", "cursor": cursor})).json()
    wrong = await http.get("/executions", params={"sort": "size"})

    assert [one["execution_id"] for one in first["items"] + rest["items"]] == sorted(ids)
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["field"] == "sort"


async def test_the_lines_of_many_logs_are_searched(http, client):
    await orders(client, 41, 42)
    new = a_worker(queues=("images",))
    await client.store.queue.register(client.tenant, new, lease=60.0)
    lease = mint()
    claim = await client.store.queue.claim(
        client.tenant, worker=new.id, lease=lease, queues=["images"], limit=2
    )
    for one in claim.executions:
        text = join_lines(line_text(time.time(), "error", "app", f"try {n}") for n in range(3))
        part = NewLogPart(one.id, one.attempt, lease, 1, text)
        await client.store.queue.write_log(client.tenant, worker=new.id, parts=[part])
    newest = str(claim.executions[1].id)

    path = {"q": "TRY", "level": "warning", "job": "resize", "since": "1h", "limit": 2}
    page = (await http.get("/logs", params=path)).json()
    rest = (await http.get("/logs", params={**path, "cursor": page["next_cursor"]})).json()

    assert [(one["execution_id"], one["message"]) for one in page["items"]] == [
        (newest, "try 0"),
        (newest, "try 1"),
    ]
    assert [one["message"] for one in rest["items"]] == ["try 2", "try 0"]
    for wrong in ({"q": ""}, {"level": "loud"}, {"since": "soon"}, {"cursor": "x"}):
        answer = await http.get("/logs", params=wrong)
        (field,) = [one["field"] for one in answer.json()["errors"]]
        assert (answer.status_code, field) == (422, next(iter(wrong)))
    assert (await http.get("/logs", params={"job": "nobody"})).status_code == 404
