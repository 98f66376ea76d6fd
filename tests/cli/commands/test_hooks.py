"""`daybell hooks`: webhooks of jobs from the command line."""

import json

import pytest


@pytest.fixture
def job(command):
    made = command("jobs", "create", "build", "--command", "true")
    assert made.code == 0, made.err
    return "build"


async def test_a_hook_is_made_listed_rotated_and_revoked(client, command, job):
    made = command("hooks", "create", job, "uploads", "--expires", "90d")
    assert (made.code, made.out[:18]) == (0, "/api/v1/hooks/dbh_")
    assert "fires job build" in made.err
    assert "not signed" in made.err
    again = command("hooks", "create", job, "uploads")
    assert (again.code, "rotate it" in again.err) == (1, True)

    rotated = json.loads(command("hooks", "rotate", job, "uploads", "--json").out)
    assert rotated["path"] != made.out.strip()
    listed = command("hooks", "list", job)
    assert listed.out.count("uploads") == 2
    assert rotated["token"] not in listed.out
    gone = command("hooks", "revoke", job, "uploads")
    assert (gone.code, gone.out) == (0, "hook uploads of job build takes nothing any more\n")
    items = json.loads(command("hooks", "list", job, "--json").out)["items"]
    assert all(one["revoked_at"] for one in items)
    async with client:
        actions = [one.action for one in (await client.audit()).items]
    assert actions[:3] == ["hook.revoke", "hook.rotate", "hook.create"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("list", "none"), 1, "no job named 'none'"),
        (("revoke", "build", "none"), 1, "no valid hook named 'none'"),
        (("create", "build", "x", "--signature", "github"), 2, "secret"),
        (("create", "build", "x", "--signature", "github", "--secret", "S"), 2, "no secret named"),
        (("create", "build", "x", "--header", "X-A"), 2, "header is for the signature hmac"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(command, job, words, code, said):
    ended = command("hooks", *words)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_a_job_without_hooks_says_how_to_make_one(command, job):
    assert "daybell hooks create build NAME" in command("hooks", "list", job).out
