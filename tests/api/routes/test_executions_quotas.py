"""What becomes of those that should run again and for which a quota has no room."""

import pytest

from tests.api.routes.test_executions import run


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
