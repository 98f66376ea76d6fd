"""Alerts to webhooks, and heartbeats."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from daybell.core.alerts.rules import ALERT_RULES
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.engine.alerts import Alerts
from daybell.errors import UsageError
from tests.builders import TENANT, dead
from tests.store.test_admin_alerts import (
    TO,
    a_rule,
    evaluated,
    incidents,
    kept,
    messages,
    opened,
)

HOOK = {"webhook": "http://127.0.0.1:1/hook", "secret": "KEY"}


async def deliveries(store, job):
    found = (await store.catalog.list_executions(TENANT, ExecutionFilter(job=job))).items
    return found[::-1]


async def test_webhooks_get_the_opening_and_the_end_of_an_incident_in_their_order(store):
    await kept(store, to=[*TO, HOOK])
    ids = await dead(store)
    await evaluated(store, 2)
    await store.queue.discard(TENANT, ids)
    await evaluated(store, 2)

    first, second = await deliveries(store, "alert:on-dead_letter:1")
    assert [json.loads(one.args)["type"] for one in (first, second)] == [
        "alert.open",
        "alert.close",
    ]
    assert [str(one.state) for one in (first, second)] == ["queued", "waiting"]
    assert json.loads(first.args)["data"]["subject"] == "resize"
    assert [one[:5] for one in await messages(store)] == ["[ALER", "[RECO"]
    job = await store.catalog.get_job(TENANT, "alert:on-dead_letter:1")
    settings = json.loads(job.definition.settings)
    assert (settings["url"], settings["sign"]) == (HOOK["webhook"], {"secret": "KEY"})


async def test_a_rule_with_webhooks_alone_needs_no_worker_that_notifies(store):
    await kept(store, to=HOOK)
    await dead(store)
    await evaluated(store)
    job = await store.catalog.get_job(TENANT, "alert:on-dead_letter")
    assert job.definition.kind == "http"
    assert len(await deliveries(store, "alert:on-dead_letter")) == 1


async def test_a_heartbeat_is_sent_every_minute_whatever_processes_evaluate(store, crowd, clock):
    await kept(store, "heartbeat", to=[HOOK])
    for _ in range(13):  # two minutes, in rounds of ten seconds
        await asyncio.gather(*(evaluated(one) for one in crowd[:2]))
        await clock.advance(10)

    beats = await deliveries(store, "alert:on-heartbeat")
    assert [json.loads(one.args)["type"] for one in beats] == ["alert.beat"] * 3
    assert all(one.expires_at == one.run_at + 60 for one in beats)
    assert await opened(store) == []
    (row,) = await incidents(store)
    assert row.notified_at == clock.now() - 10


async def test_a_heartbeat_stops_while_a_rule_cannot_be_evaluated_or_it_is_silenced(
    store, clock, monkeypatch
):
    await kept(store, "heartbeat", to=[HOOK])
    broken = Alerts(store, mint=mint)

    async def fail(*_):
        raise UsageError("out of order")

    await kept(store, "dead_letter")
    monkeypatch.setattr(broken, "_find", fail)
    await broken.tick()
    assert (await store.catalog.list_jobs(TENANT)).items == ()
    silent = a_rule("heartbeat", to=[HOOK])
    silent = replace(silent, silenced_until=clock.now() + 60)
    await store.admin.put_record(TENANT, ALERT_RULES, silent)
    await evaluated(store)
    assert (await store.catalog.list_jobs(TENANT)).items == ()


@pytest.mark.parametrize(
    "to",
    [
        {"webhook": "ftp://example.org"},
        {"webhook": "http://example.org", "secret": "no name"},
        {"webhook": "http://example.org", "key": "KEY"},
        {"webhook": None},
        [HOOK] * 1_000,
        [HOOK, "nowhere"],
    ],
)
def test_wrong_receivers_are_refused(to):
    with pytest.raises(UsageError):
        a_rule(to=to)
