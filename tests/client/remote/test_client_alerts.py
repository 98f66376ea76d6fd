"""Alerts by both transports: rules, silences, tests, incidents."""

import json

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.alerts import Alerts
from daybell.errors import AlertNotFound, DuplicateKey, UsageError, VersionConflict
from tests.builders import TENANT, dead
from tests.refusals import refuses

RULE = {"name": "letters", "on": "dead_letter", "to": ["json://127.0.0.1:1/a"], "repeat": "1h"}


async def test_a_rule_is_set_shown_listed_and_deleted(client):
    made = await client.set_alert(RULE, expect=0)
    assert (made.name, made.version, made.on, made.repeat) == ("letters", 1, "dead_letter", 3600.0)
    assert await client.alert("letters") == made
    assert await client.alerts() == [made]
    assert (await client.alerts_page(limit=1)).items == (made,)
    changed = await client.set_alert({**RULE, "repeat": "2h"}, expect=1)
    assert (changed.version, changed.repeat) == (2, 7200.0)

    await client.delete_alert("letters", expect=2)
    with refuses(AlertNotFound):
        await client.alert("letters")
    with refuses(AlertNotFound):
        await client.delete_alert("letters")


async def test_a_rule_at_another_version_stays(client):
    await client.set_alert(RULE, expect=0)

    with refuses(DuplicateKey):
        await client.set_alert({**RULE, "repeat": "2h"}, expect=0)
    with pytest.raises(VersionConflict):
        await client.set_alert({**RULE, "repeat": "2h"}, expect=5)
    with pytest.raises(VersionConflict):
        await client.delete_alert("letters", expect=5)
    with refuses(UsageError, field="on"):
        await client.set_alert({"name": "a", "on": "nonsense"})


async def test_a_silence_has_an_end_and_a_reason_and_outlives_a_change_of_the_rule(client):
    await client.set_alert(RULE)
    silenced = await client.silence_alert("letters", duration="2h", reason="deploy")
    changed = await client.set_alert({**RULE, "repeat": "2h"})

    assert silenced.silence_reason == changed.silence_reason == "deploy"
    assert silenced.silenced_until == changed.silenced_until is not None
    assert (await client.silence_alert("letters")).silenced_until is None
    until = await client.silence_alert("letters", until="2100-01-01T00:00:00Z")
    assert until.silenced_until is not None and until.silenced_until.year == 2100


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"duration": "1h", "until": "2100-01-01"}, "until"),
        ({"until": "2001-01-01"}, "until"),
        ({"duration": 0}, "duration"),
    ],
)
async def test_a_silence_that_is_wrong_is_refused(client, fields, field):
    await client.set_alert(RULE)

    with pytest.raises(UsageError):
        await client.silence_alert("letters", **fields)
    with refuses(AlertNotFound):
        await client.silence_alert("other", duration="1h")


async def test_a_test_enqueues_a_message(store, client):
    await client.set_alert(RULE)
    await client.silence_alert("letters", duration="1h")

    sent = await client.test_alert("letters")

    found = await store.execution(sent.execution_id)
    assert (found.status, found.job) == (State.QUEUED, "alert:letters")
    assert found.args["title"] == "[TEST] letters"
    await client.set_alert({"name": "quiet", "on": "paused"})
    with refuses(UsageError, field="to"):
        await client.test_alert("quiet")


async def test_incidents_are_listed_and_acknowledged(store, client):
    await client.set_alert(RULE)
    ids = await dead(store.store)
    await Alerts(store.store, mint=mint).tick()
    (incident,) = (await client.incidents(is_open=True)).items
    assert (incident.rule, incident.subject) == ("letters", "resize")
    assert incident.notified_at == incident.opened_at

    for _ in range(2):
        done = await client.acknowledge_incident(incident.incident_id)
        assert (done.subject, done.status) == ("resize", "acknowledged")
    (known,) = (await client.incidents(rule="letters")).items
    assert known.acknowledged_at is not None

    await store.store.queue.discard(TENANT, ids)
    await Alerts(store.store, mint=mint).tick()
    assert (await client.incidents(is_open=True)).items == ()
    assert len((await client.incidents(is_open=False)).items) == 1
    with refuses(AlertNotFound):
        await client.acknowledge_incident(incident.incident_id)


async def test_changes_are_on_record(client):
    await client.set_alert(RULE, expect=0)
    if not hasattr(client, "transport"):
        return
    await client.silence_alert("letters", duration="1h")
    await client.test_alert("letters")
    await client.delete_alert("letters")

    actions = [one.action for one in (await client.audit(target="letters")).items]
    assert actions == ["alert.delete", "alert.test", "alert.silence", "alert.create"]
    assert json.dumps(RULE["to"])
