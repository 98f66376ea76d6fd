"""Limits by both transports: lists, changes and pauses, and `why` of one that waits."""

import pytest

from daybell.errors import LimitNotFound, UsageError
from tests.builders import claim
from tests.refusals import refuses


async def test_a_limit_is_shown_changed_paused_and_resumed(client, store):
    await store.define("charge", concurrency={"name": "stripe", "limit": 2}, rate="9/m")
    await store.define("refund", concurrency=[{"name": "stripe", "limit": 2}])

    assert [one.name for one in await client.limits()] == ["charge", "stripe"]
    found = await client.limit("stripe")
    assert (found.limit, found.rates, found.running, found.waiting) == (2, [], 0, 0)
    changed = await client.set_limit("stripe", {"limit": 5, "rate": ["10/s", "100/h"]})
    assert (changed.limit, changed.rates) == (5, ["10/s", "100/h"])
    assert changed.declared.limit == 2
    back = await client.set_limit("stripe", {"limit": None, "rate": None})
    assert (back.limit, back.rates) == (2, [])

    paused = await client.pause_limit("stripe", duration="30s")
    assert paused.is_paused and paused.paused_until is not None
    paused = await client.pause_limit("stripe")
    assert paused.is_paused and paused.paused_until is None
    assert not (await client.resume_limit("stripe")).is_paused
    one = await client.pause_limit("charge", key="acme")
    assert [(each.key, each.is_paused) for each in one.buckets] == [("acme", True)]


async def test_a_wrong_limit_is_refused(client, store):
    await store.define("charge", concurrency=1)

    for call in (client.limit, client.pause_limit, client.resume_limit):
        with refuses(LimitNotFound):
            await call("missing")
    with refuses(LimitNotFound):
        await client.set_limit("missing", {"limit": 1})
    for changes in ({"limit": 0}, {"limit": "many"}, {"rate": "fast"}, {"colour": "red"}):
        with pytest.raises(UsageError):
            await client.set_limit("charge", changes)
    with pytest.raises(UsageError):
        await client.pause_limit("charge", duration="soon")


async def test_why_names_the_limit_its_holders_and_the_place(client, store):
    await store.define("charge", concurrency=1)
    ids = [(await store.enqueue("charge", {})).id for _ in range(3)]
    await claim(store.store)

    found = await client.why(ids[2])

    assert found.code == "limit"
    assert [one.execution_id for one in found.holders] == [ids[0]]
    assert "limit charge, 1 at a time" in found.detail
    assert "1 others wait before it" in found.detail
    await client.pause_limit("charge")
    assert "paused" in (await client.why(ids[2])).detail
