"""`daybell alerts`: rules, silences, tests and incidents from the command line."""

import json

import pytest

from daybell.core.ids import mint
from daybell.engine.alerts import Alerts
from tests.builders import dead


async def test_a_rule_is_created_listed_replaced_and_deleted(command):
    make = ("alerts", "create", "late", "--on", "missed_run", "--grace", "30m", "--job", "re*")
    made = command(*make, "--to", "@secret:TEAM_CHAT", "--to", "json://127.0.0.1:1/a")
    assert (made.code, made.err) == (0, "")
    assert made.out == "alert rule late is at version 1; it watches job re*\n"
    again = command(*make)
    assert (again.code, "--replace" in again.err) == (1, True)

    (listed,) = json.loads(command("alerts", "list", "--json").out)["items"]
    assert listed["to"] == [{"secret": "TEAM_CHAT"}, "json://127.0.0.1:1/a"]
    assert listed["grace"] == 1800.0
    table = command("alerts", "list").out
    assert "missed_run" in table and "grace 30m" in table

    replaced = command(*make, "--replace", "--json")
    assert json.loads(replaced.out)["version"] == 2
    gone = command("alerts", "delete", "late", "--yes")
    assert (gone.code, gone.out) == (0, "alert rule late is deleted\n")
    assert "no alerts" in command("alerts", "list").out


async def test_a_rule_sends_to_webhooks(command):
    make = ("alerts", "create", "alive", "--on", "heartbeat", "--webhook", "https://example.org/a")
    made = command(*make, "--webhook-secret", "KEY", "--json")
    assert made.code == 0, made.err
    (one,) = json.loads(made.out)["to"]
    assert one == {"webhook": "https://example.org/a", "secret": "KEY"}
    assert json.loads(made.out)["repeat"] == 60.0
    wrong = command("alerts", "create", "b", "--on", "paused", "--webhook", "ftp://example.org")
    assert (wrong.code, "http" in wrong.err) == (2, True)


async def test_a_rule_is_silenced_and_heard_again(command):
    assert command("alerts", "create", "a", "--on", "paused").code == 0
    silent = command("alerts", "silence", "a", "--for", "2h", "--reason", "deploy")
    assert (silent.code, "is silent until" in silent.out) == (0, True)
    (listed,) = json.loads(command("alerts", "list", "--json").out)["items"]
    assert listed["silence_reason"] == "deploy"

    heard = command("alerts", "silence", "a", "--end")
    assert heard.out == "alert rule a sends messages again\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("silence", "a"), 2),
        (("silence", "a", "--for", "1h", "--end"), 2),
        (("silence", "missing", "--for", "1h"), 1),
        (("create", "b"), 2),
        (("create", "b", "--on", "nonsense"), 2),
        (("create", "b", "--on", "dead_letter", "--count", "3"), 2),
        (("create", "b", "--on", "late_start", "--grace", "soon"), 2),
        (("create", "b", "--on", "paused", "--webhook-secret", "KEY"), 2),
        (("test", "missing"), 1),
        (("test", "a"), 2),
        (("acknowledge", "nonsense"), 2),
        (("acknowledge", "01934b2e-7c00-7000-8000-000000000000"), 1),
    ],
)
async def test_a_wrong_command_has_a_short_error(command, words, code):
    assert command("alerts", "create", "a", "--on", "paused").code == 0

    wrong = command("alerts", *words)

    assert wrong.code == code, wrong.err
    assert wrong.err.strip() and "Traceback" not in wrong.err


async def test_incidents_are_listed_and_acknowledged(client, command):
    command("alerts", "create", "a", "--on", "dead_letter", "--to", "json://127.0.0.1:1/a")
    async with client:
        await dead(client.store)
        await Alerts(client.store, mint=mint).tick()

    (incident,) = json.loads(command("alerts", "incidents", "--open", "--json").out)["items"]
    assert incident["subject"] == "resize"
    known = command("alerts", "acknowledge", incident["incident_id"])
    assert known.out == "incident of a about resize is acknowledged\n"
    assert "acknowledged" in command("alerts", "incidents").out
    sent = command("alerts", "test", "a")
    assert "sends the message" in sent.out
    async with client:
        actions = {one.action for one in (await client.audit()).items}
    assert {"alert.create", "alert.test", "incident.acknowledge"} <= actions
