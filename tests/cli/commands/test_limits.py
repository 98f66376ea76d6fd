"""`daybell limits`: list, show, set, pause and resume."""

import json

import pytest


async def test_limits_are_listed_changed_and_paused(command, client):
    assert "no limits" in command("limits", "list").out
    await client.define("charge", concurrency={"name": "stripe", "limit": 2})

    (listed,) = json.loads(command("limits", "list", "--json").out)["items"]
    assert (listed["name"], listed["limit"], listed["waiting"]) == ("stripe", 2, 0)
    assert "stripe" in command("limits", "list").out
    done = command("limits", "set", "stripe", "--limit", "5", "--rate", "100/m")
    assert (done.code, done.out) == (0, "limit stripe: 5 at a time, 100/m\n")
    shown = command("limits", "show", "stripe")
    assert shown.out.startswith("limit stripe: 5 at a time, 100/m; open\n")
    paused = command("limits", "pause", "stripe", "--for", "30s")
    assert paused.out == "limit stripe is paused for 30s\n"
    assert json.loads(command("limits", "show", "stripe", "--json").out)["is_paused"]
    assert command("limits", "resume", "stripe").out == "limit stripe is open\n"
    done = command("limits", "set", "stripe", "--limit", "none", "--rate", "none")
    assert done.out == "limit stripe: 2 at a time\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "missing"), 1),
        (("pause", "missing"), 1),
        (("set", "a"), 2),
        (("set", "a", "--limit", "many"), 2),
        (("set", "a", "--rate", "fast"), 2),
        (("pause", "a", "--for", "soon"), 2),
    ],
)
async def test_a_wrong_command_has_a_short_error(command, words, code):
    found = command("limits", *words)

    assert (found.code, found.out) == (code, "")
    assert found.err.startswith(("error:", "Usage:", "daybell"))
