"""Lists that a store answers as a whole have pages all the same."""

import json

import pytest

from daybell.api.caller import answer_page
from daybell.client import wire
from daybell.core.access import Role
from daybell.core.limits import NEXT_SCHEDULES_MAX
from daybell.core.views import Page
from daybell.core.when import at, every
from tests.builders import a_worker


async def queues(client):
    for n in range(4):
        await client.pause_queue(f"q{n}")


async def workers(client):
    for _ in range(5):
        await client.store.queue.register(client.tenant, a_worker(), lease=60.0)


async def tenants(client):
    for n in range(4):
        await client.add_tenant(f"t{n}")


async def keys(client):
    for n in range(5):
        await client.create_key(f"key {n}", role=Role.VIEWER)


async def versions(client):
    for n in range(11):  # more than nine: by number, not by letters
        await client.define("resize", queue="images", retries=n + 3)


async def schedules(client):
    await client.define("report", schedule="@daily")
    items = [
        {"job": "report", "when": "@hourly", "name": f"s{n}"} for n in range(NEXT_SCHEDULES_MAX)
    ]
    await client.schedule_many(items)


LISTS = {
    "/queues": (queues, "name", 5),
    "/workers": (workers, "worker_id", 5),
    "/tenants": (tenants, "name", 5),
    "/keys": (keys, "key_id", 5),
    "/jobs/resize/versions": (versions, "version", 12),
    "/jobs/report/schedules": (schedules, "schedule_id", NEXT_SCHEDULES_MAX + 1),
}


@pytest.mark.parametrize("path", LISTS)
async def test_pages_together_are_the_list(http, client, path):
    fill, name, count = LISTS[path]
    await fill(client)
    whole = (await http.get(path)).json()

    seen, cursor = [], None
    while True:
        asked = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = (await http.get(path, params=asked)).json()
        seen += page["items"]
        assert 1 <= len(page["items"]) <= 2
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert whole["next_cursor"] is None
    assert seen == whole["items"]
    assert len({one[name] for one in seen}) == len(seen) == count


async def test_a_job_is_shown_with_its_next_schedules_and_says_that_there_are_more(http, client):
    await schedules(client)
    few = (await http.get("/jobs/report")).json()
    await client.schedule("report", at("2099-01-01T00:00:00Z"), name="late")
    await client.schedule("report", every("1s"), name="soon")

    shown = (await http.get("/jobs/report")).json()
    (listed,) = (await http.get("/jobs", params={"prefix": "report"})).json()["items"]

    assert len(few["schedules"]) == NEXT_SCHEDULES_MAX + 1
    assert not few["has_more_schedules"]
    for job in (shown, listed):
        names = [one["name"] for one in job["schedules"]]
        assert job["has_more_schedules"]
        assert names[:2] == ["", "soon"]
        assert len(names) == NEXT_SCHEDULES_MAX + 1
        assert "late" not in names
        assert job["next_run_at"] == job["schedules"][1]["next_run_at"]


async def test_a_page_goes_on_where_one_that_is_gone_was(http, client):
    await client.pause_queue("a")
    await client.pause_queue("c")

    page = (await http.get("/queues", params={"cursor": "b"})).json()

    assert [one["name"] for one in page["items"]] == ["c", "images"]


@pytest.mark.parametrize("path", ["/workers", "/keys", "/jobs/resize/versions"])
@pytest.mark.parametrize("cursor", ["nothing", "1 2", "x y z"])
async def test_a_cursor_that_is_none_is_refused(http, path, cursor):
    answer = await http.get(path, params={"cursor": cursor})

    assert answer.status_code == 422
    assert "not a cursor" in answer.json()["detail"]


LARGE = {"x": "a" * 1_000_000}


async def test_a_list_leaves_large_values_out_and_links_to_them(http, client):
    made = await client.enqueue("resize", LARGE)
    await client.create("loud", command=["echo", "a" * 50_000])
    await client.create("loud-2", command="true", args=None, schedule="@daily")
    await client.update("loud", command=["echo", "b" * 50_000])

    (execution,) = (await http.get("/executions")).json()["items"]
    jobs = {one["name"]: one for one in (await http.get("/jobs")).json()["items"]}
    versions = (await http.get("/jobs/loud/versions")).json()["items"]

    assert (execution["args"], execution["truncated"]) == (None, True)
    assert (await follow(http, execution))["args"] == LARGE
    assert jobs["resize"]["last_execution"]["link"] == f"/api/v1/executions/{made.id}"
    assert (jobs["loud"]["settings"], jobs["loud"]["command"]) == (None, None)
    assert (await follow(http, jobs["loud"]))["command"] == ["echo", "b" * 50_000]
    assert not jobs["loud-2"]["truncated"]
    assert [one["truncated"] for one in versions] == [True, True]
    assert (await follow(http, versions[1]))["command"] == ["echo", "a" * 50_000]
    assert (await http.get("/jobs/resize")).json()["last_execution"]["args"] == LARGE


async def follow(http, item):
    return (await http.get(item["link"].removeprefix("/api/v1"))).json()


async def test_no_answer_of_a_list_has_more_than_8_mb(http, client):
    many = [{"x": "a" * 15_000, "n": n} for n in range(600)]
    ids = [one.id for one in (await client.enqueue_many("resize", many)).executions]

    seen, cursor = [], None
    while True:
        asked = {"limit": 1000} | ({} if cursor is None else {"cursor": cursor})
        answer = await http.get("/executions", params=asked)
        assert len(answer.content) <= 8 * 1024 * 1024
        seen += [one["execution_id"] for one in answer.json()["items"]]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            break

    assert seen == [str(id) for id in reversed(ids)]


async def test_an_answer_is_cut_by_its_own_bytes():
    items = tuple(wire.DeletedName(name=one * 3_000_000, status="deleted") for one in "abc")
    answer = answer_page(Page(items=items), cursor=lambda one: one.name[:1])

    body = json.loads(bytes(answer.body))
    assert (len(body["items"]), body["next_cursor"]) == (2, "b")


async def test_an_execution_that_is_retried_in_bulk_keeps_large_arguments(client):
    made = await client.enqueue("resize", LARGE)
    await client.cancel(made.id)

    assert (await client.retry_many(status="cancelled")).total() == 1

    (new,) = (await client.executions(status="pending")).items
    assert new.truncated
    assert len(str((await client.execution(new.execution_id)).args)) > 1_000_000


async def test_a_job_made_for_one_time_says_so(http):
    for name, schedule in (
        ("now", None),
        ("at", {"at": "2100-01-01T00:00:00Z"}),
        ("daily", "@daily"),
    ):
        body = {"name": name, "command": "true"} | ({"schedule": schedule} if schedule else {})
        assert (await http.post("/jobs", json=body)).status_code == 201
    await http.patch("/jobs/at", json={"schedule": "@hourly"})

    jobs = (await http.get("/jobs")).json()["items"]

    once = {one["name"]: one["once"] for one in jobs}
    assert once == {"at": False, "daily": False, "now": True, "resize": False}
