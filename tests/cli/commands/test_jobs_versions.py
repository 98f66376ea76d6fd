"""Jobs from the command line: listed by what they are, versions, and the end of them."""

import json

import pytest

from daybell import Client
from daybell.cli.connection import current_actor
from tests.builders import a_worker
from tests.cli.terminal import daybell


@pytest.fixture
async def client(tmp_path):
    """A client of the folder's store, which knows the task `greet`."""
    async with Client(f"sqlite:///{tmp_path}/daybell.db", migrate=True) as client:
        await client.define("greet", description="Says Hello", queue="mail", user_id="ada")
        yield client


@pytest.fixture
def command(tmp_path, client):
    """Types a command in that folder."""
    return lambda *words: daybell(*words, folder=tmp_path)


async def test_jobs_are_listed_by_what_they_are_and_do(client, command):
    await client.define("sweep", schedule="@hourly", user_id="ada")
    await client.define("idle", schedule="@hourly", user_id="bob")

    found = command("jobs", "list", "--status", "pending", "--user", "ada", "--json")
    words = command("jobs", "list", "--search", "HELLO", "--queue", "mail")
    none = command("jobs", "list", "--status", "running")
    wrong = command("jobs", "list", "--status", "deleted")

    assert [job["name"] for job in json.loads(found.out)["items"]] == ["sweep"]
    assert "greet" in words.out
    assert "sweep" not in words.out
    assert (none.code, none.out) == (0, "no jobs like that\n")
    assert wrong.code == 2
    assert "deleted jobs are not listed" in wrong.err


async def test_an_old_version_is_shown_with_its_schedules_and_comes_back(client, command):
    await client.create("nightly", task="greet", schedule="0 2 * * *", user_id="ada")
    job = await client.update("nightly", schedule="0 3 * * *", dependencies=["greet"])

    old = command("jobs", "show", str(job.id), "--version", "1")
    listed = command("jobs", "versions", "nightly", "--json")
    back = command("jobs", "rollback", "nightly", "1")

    assert "At 02:00" in old.out
    assert "1, since" in old.out
    assert "depends on" not in old.out
    assert [one["version"] for one in json.loads(listed.out)["items"]] == [2, 1]
    assert "nightly is at version 3 and runs next" in back.out
    assert "At 02:00" in back.out
    assert (await client.job("nightly")).author == current_actor()
    (entry,) = (await client.audit()).items
    assert (entry.actor, json.loads(entry.after or "")) == (current_actor(), {"version": 1})
    twice = command("jobs", "rollback", "nightly", "3")
    assert (twice.code, "nightly is at version 3 already" in twice.err) == (2, True)
    misspelt = command("jobs", "trigger", "nigtly")
    assert (misspelt.code, "did you mean 'nightly'?" in misspelt.err) == (1, True)


async def test_a_job_that_a_live_worker_declares_is_deleted_by_force_only(client, command):
    worker = a_worker(tasks={"greet": "mail"})
    await client.store.register("default", worker, lease=60.0)

    refused = command("jobs", "delete", "greet", "--yes")
    forced = command("jobs", "delete", "greet", "--yes", "--force")
    await client.define("greet")
    await client.store.retire("default", worker=worker.id)
    free = command("jobs", "delete", "greet", "--yes")

    assert (refused.code, "declared by the code of a live worker" in refused.err) == (1, True)
    assert "--force" in refused.err
    assert (forced.code, free.code) == (0, 0)


async def test_a_job_is_deleted_only_by_who_says_so(client, command):
    await client.enqueue("greet")
    await client.create("after", task="greet", dependencies=["greet"])

    asked = command("jobs", "delete", "greet")
    told = command("jobs", "delete", "greet", "--json")
    still = await client.job("greet")
    done = command("jobs", "delete", str(still.id), "--yes")
    again = command("jobs", "delete", "greet", "--yes")

    assert asked.code == told.code == 2
    assert "add --yes" in asked.err
    assert (told.err, told.out) == (asked.err, "")
    assert (done.code, done.out) == (0, "greet is deleted; executions cancelled: 1\n")
    assert (asked.err + done.err).count("warning: job after depends on greet, and waits") == 2
    assert (again.code, "no job named 'greet'; it was deleted" in again.err) == (1, True)
    assert (await client.standing("greet")).status == "deleted"


async def test_a_job_is_made_with_an_owner_and_dependencies(client, command):
    made = command(
        "jobs", "create", "report", "--task", "greet", "--user", "bob", "--depends-on", "greet"
    )
    wrong = command("jobs", "update", "report", "--depends-on", "nothing")

    assert made.code == 0, made.err
    definition = (await client.job("report")).definition
    assert (definition.user_id, definition.dependencies) == ("bob", ("greet",))
    assert wrong.code == 2
    assert "no job named 'nothing' to depend on" in wrong.err


async def test_a_job_depends_on_nothing_any_more_when_told_so(client, command):
    command("jobs", "create", "report", "--task", "greet", "--depends-on", "greet")

    refused = command("jobs", "update", "report", "--manual")
    both = command("jobs", "update", "report", "--no-dependencies", "--depends-on", "greet")
    done = command("jobs", "update", "report", "--manual", "--no-dependencies")

    assert (refused.code, "add --no-dependencies" in refused.err) == (2, True), refused.err
    assert (both.code, "choose one" in both.err) == (2, True)
    assert done.code == 0, done.err
    definition = (await client.job("report")).definition
    assert (definition.dependencies, definition.fires_after) == ((), False)


async def test_a_job_says_what_it_runs_after_and_what_if_that_fails(client, command):
    work = ("--task", "greet", "--depends-on", "greet")

    made = command("jobs", "create", "report", *work, "--on-dependency-failure", "skip")
    wrong = command("jobs", "update", "report", "--on-dependency-failure", "panic")

    assert made.code == 0, made.err
    assert "when greet has succeeded" in made.out.lower()
    shown = command("jobs", "show", "report").out
    assert "skip" in shown and "when these have succeeded" in shown
    assert "manual" in shown  # it never ran
    assert wrong.code == 2
    assert "is not one of wait, skip, run" in wrong.err
