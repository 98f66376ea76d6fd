"""`daybell subscriptions`: receivers of outgoing events from the command line."""

import json

import pytest


async def test_a_subscription_is_created_shown_listed_and_deleted(client, command):
    make = ("subscriptions", "create", "hooks", "https://example.org/a")
    made = command(*make, "--secret", "KEY", "--status", "dead", "--status", "lost", "--job", "re*")
    assert (made.code, made.err) == (0, "")
    assert made.out == "subscription hooks sends events: dead, lost, job re*\n"
    again = command(*make)
    assert (again.code, "already" in again.err) == (1, True)

    (listed,) = json.loads(command("subscriptions", "list", "--json").out)["items"]
    assert (listed["secret"], listed["status"]) == ("KEY", ["dead", "lost"])
    assert "https://example.org/a" in command("subscriptions", "list").out
    shown = command("subscriptions", "show", "hooks").out
    assert "no deliveries yet" in shown and "KEY" in shown
    tested = command("subscriptions", "test", "hooks")
    assert (tested.code, "delivers the event" in tested.out) == (0, True)
    assert "queued" in command("subscriptions", "show", "hooks").out
    assert json.loads(command("subscriptions", "show", "hooks", "--json").out) == listed

    gone = command("subscriptions", "delete", "hooks", "--yes")
    assert (gone.code, gone.out) == (0, "subscription hooks is deleted\n")
    assert "no subscriptions" in command("subscriptions", "list").out
    async with client:
        actions = {one.action for one in (await client.audit()).items}
    assert {f"subscription.{what}" for what in ("create", "test", "delete")} <= actions


async def test_deliveries_are_listed_only_if_their_job_or_queue_is_named(command):
    command("subscriptions", "create", "hooks", "https://example.org/a")
    command("subscriptions", "test", "hooks")

    assert "events:hooks" not in command("executions", "list").out
    assert "events:hooks" in command("executions", "list", "--job", "events:hooks").out
    assert "events:hooks" in command("executions", "list", "--queue", "default").out


async def test_an_unsigned_subscription_has_a_note(command):
    made = command("subscriptions", "create", "b", "@secret:ADDRESS", "--type", "job.*")
    assert (made.code, "not signed" in made.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create", "b"), 2),
        (("create", "b", "example.org"), 2),
        (("create", "b", "http://example.org", "--status", "queued"), 2),
        (("create", "b", "http://example.org", "--type", "nonsense"), 2),
        (("show", "missing"), 1),
        (("test", "missing"), 1),
        (("delete", "missing", "--yes"), 1),
    ],
)
async def test_a_wrong_command_has_a_short_error(command, words, code):
    wrong = command("subscriptions", *words)

    assert wrong.code == code, wrong.err
    assert wrong.err.strip() and "Traceback" not in wrong.err
