"""Lists that a store answers as a whole have pages all the same."""

import pytest

from daybell.core.access import Role
from tests.builders import a_worker


async def queues(client):
    for n in range(4):
        await client.pause_queue(f"q{n}")


async def workers(client):
    for _ in range(5):
        await client.store.register(client.tenant, a_worker(), lease=60.0)


async def tenants(client):
    for n in range(4):
        await client.add_tenant(f"t{n}")


async def keys(client):
    for n in range(5):
        await client.create_key(f"key {n}", role=Role.VIEWER)


async def versions(client):
    for n in range(11):  # more than nine: by number, not by letters
        await client.define("resize", queue="images", retries=n + 3)


LISTS = {
    "/queues": (queues, "name", 5),
    "/workers": (workers, "worker_id", 5),
    "/tenants": (tenants, "name", 5),
    "/keys": (keys, "key_id", 5),
    "/jobs/resize/versions": (versions, "version", 12),
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
