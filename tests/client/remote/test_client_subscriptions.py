"""Subscriptions by both transports: created, changed, listed, deleted and tested."""

import pytest

from daybell.core.execution import State
from daybell.errors import (
    DuplicateKey,
    SubscriptionNotFound,
    UsageError,
    VersionConflict,
)
from tests.refusals import refuses

HOOKS = {"name": "hooks", "url": "https://example.org/hook", "secret": "KEY", "status": ["dead"]}


async def test_a_subscription_is_created_changed_listed_and_deleted(client):
    made = await client.create_subscription(HOOKS)
    assert (made.name, made.version, made.secret, made.status) == ("hooks", 1, "KEY", ["dead"])
    assert made.delivery_job == "events:hooks"
    assert await client.subscription("hooks") == made
    assert await client.subscriptions() == [made]
    assert (await client.subscriptions_page(limit=1)).items == (made,)
    with refuses(DuplicateKey):
        await client.create_subscription({**HOOKS, "status": []})

    changed = await client.update_subscription("hooks", {"job": "re*", "secret": None}, expect=1)

    assert (changed.version, changed.job, changed.secret) == (2, "re*", None)
    assert changed.status == ["dead"]
    with pytest.raises(VersionConflict):
        await client.update_subscription("hooks", {"job": None}, expect=1)
    with pytest.raises(VersionConflict):
        await client.delete_subscription("hooks", expect=1)
    await client.delete_subscription("hooks")
    for call in (client.subscription, client.delete_subscription, client.test_subscription):
        with refuses(SubscriptionNotFound):
            await call("hooks")
    with refuses(SubscriptionNotFound):
        await client.update_subscription("hooks", {"job": None})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "ftp://example.org"}, "url"),
        ({"url": "https://user:word@example.org"}, "url"),
        ({"secret": 1}, "secret"),
        ({"types": ["execution.begun"]}, "types"),
        ({"types": "nothing.*"}, "types"),
        ({"types": [1]}, "types"),
        ({"status": ["queued"]}, "status"),
        ({"types": ["job.changed"]}, "types"),
        ({"job": 5}, "job"),
        ({"message_queue": "a/b"}, "message_queue"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_a_wrong_subscription_is_refused_with_its_field(client, fields, field):
    with pytest.raises(UsageError) as refused:
        await client.create_subscription({**HOOKS, **fields})
    assert field.rpartition("_")[2] in str(getattr(refused.value, "field", "")), refused.value
    assert await client.subscriptions() == []


async def test_a_name_for_which_the_deliveries_have_no_job_is_refused(client):
    with pytest.raises(UsageError):
        await client.create_subscription({**HOOKS, "name": "a" * 198})


async def test_a_test_enqueues_a_delivery(store, client):
    await client.create_subscription(HOOKS)

    sent = await client.test_subscription("hooks")

    found = await store.execution(sent.execution_id)
    assert (found.status, found.job) == (State.QUEUED, "events:hooks")
    assert found.args["type"] == "subscription.test"
    again = await client.test_subscription("hooks")
    assert (await store.execution(again.execution_id)).args["id"] != found.args["id"]


async def test_changes_are_on_record(client):
    await client.create_subscription(HOOKS)
    if not hasattr(client, "transport"):
        return
    await client.update_subscription("hooks", {"job": "re*"})
    await client.test_subscription("hooks")
    await client.delete_subscription("hooks")

    actions = [one.action for one in (await client.audit(target="hooks")).items]
    assert actions == [f"subscription.{what}" for what in ("delete", "test", "update", "create")]


async def test_deliveries_are_listed_counted_and_cancelled_only_by_name(client):
    await client.create_subscription({"name": "hooks", "url": "https://example.org/a"})
    await client.test_subscription("hooks")

    (delivery,) = (await client.executions(q="job:events:*")).items
    assert (await client.executions(job="events:hooks")).items == (delivery,)
    assert (await client.executions(status="pending")).items == ()
    assert (await client.count()).total == 0
    assert (await client.count(queue="default")).total == 1
    assert await client.count_cancellable(status="pending") == 0
    assert await client.count_cancellable(job="events:hooks") == 1
