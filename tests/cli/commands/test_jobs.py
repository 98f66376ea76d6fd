"""Jobs from the command line: lists, versions, superseded code and templates."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from daybell import Client
from daybell.cli.actions.definitions import is_private_store
from daybell.cli.connection import current_actor
from daybell.client.requests import read_definition
from daybell.core import payload
from tests.builders import a_worker
from tests.cli.in_process import typing
from tests.cli.job_files import a_world
from tests.cli.terminal import Running, daybell


@pytest.fixture
async def client(client):
    """A client of the folder's store, which knows the task `greet`."""
    await client.define("greet", description="Says Hello", queue="mail", user_id="ada")
    return client


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

    old = command("jobs", "show", str(job.job_id), "--version", "1")
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
    assert (entry.actor, entry.after) == (current_actor(), {"version": 1})
    twice = command("jobs", "rollback", "nightly", "3")
    assert (twice.code, "nightly is at version 3 already" in twice.err) == (2, True)
    misspelt = command("jobs", "trigger", "nigtly")
    assert (misspelt.code, "did you mean 'nightly'?" in misspelt.err) == (1, True)


async def test_a_job_that_a_live_worker_declares_is_deleted_by_force_only(client, command):
    worker = a_worker(tasks={"greet": "mail"})
    await client.store.queue.register("default", worker, lease=60.0)

    refused = command("jobs", "delete", "greet", "--yes")
    forced = command("jobs", "delete", "greet", "--yes", "--force")
    await client.define("greet")
    await client.store.queue.retire("default", worker=worker.id)
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
    done = command("jobs", "delete", str(still.job_id), "--yes")
    again = command("jobs", "delete", "greet", "--yes")

    assert asked.code == told.code == 2
    assert "add --yes" in asked.err
    problem = json.loads(told.err.splitlines()[-1])
    assert (f"error: {problem['detail']}", told.out) == (asked.err.splitlines()[-1], "")
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


# Code that goes back: `worker` and `doctor` say so, `dev` and `jobs declare` make it current.

APP = """\
from daybell import App, cron

app = App()

@app.task(schedule=cron("0 {hour} * * *"))
async def report(): ...

@app.task
async def greet(): ...
"""
# Not of the same size, or Python would take what it has compiled within the same second for this.
OLD, NEW = APP.format(hour=1), APP.format(hour=15)
STAYS = "warning: this code has an older version of a job, which does not become current by itself"


def versions(folder):
    async def asked():
        async with Client(f"sqlite:///{folder}/daybell.db") as client:
            return [
                (job.version, job.author) for job in (await client.versions_page("report")).items
            ]

    return asyncio.run(asked())


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Types a command in a folder where the code is old again, and a newer version is current."""
    monkeypatch.chdir(tmp_path)
    # Files of their own: this process imports each once.
    for name, text in (("before.py", OLD), ("between.py", NEW), ("now.py", OLD)):
        (tmp_path / name).write_text(text)
    typed = typing(monkeypatch, capsys, DAYBELL_DATABASE_URL=f"sqlite:///{tmp_path}/daybell.db")
    for name in ("before.py", "between.py"):
        assert typed("jobs", "declare", name) == (0, "as the code says: 2 jobs\n", "")
    return typed


def audited(folder):
    async def asked():
        async with Client(f"sqlite:///{folder}/daybell.db") as client:
            return [(one.actor, one.action) for one in (await client.audit()).items]

    return asyncio.run(asked())


def test_a_worker_leaves_it_and_says_so_once_and_dev_goes_back(tmp_path):
    file = tmp_path / "shop.py"
    for text in (OLD, NEW):
        file.write_text(text)
        assert daybell("jobs", "declare", "shop.py", folder=tmp_path).code == 0
    file.write_text(OLD)

    with Running("worker", "shop.py", "--processes", "2", folder=tmp_path) as running:
        running.wait_for("worker .* runs ", times=2)
        said = running.said
    left = versions(tmp_path)
    with Running("dev", "shop.py", "--port", "0", folder=tmp_path) as running:
        running.wait_for("health ")
        back = running.said

    code = "code:shop:app"
    assert said.count("older version") == 1
    assert f"{STAYS}: report (version 1; current is 2, since " in said
    assert left == [(2, code), (1, code)]
    assert "note: went back to what the code says: report (version 1; current was 2, since " in back
    assert STAYS not in back
    assert versions(tmp_path) == [(3, code), (2, code), (1, code)]
    assert audited(tmp_path) == [(current_actor(), "job.declare")]


@pytest.mark.parametrize(
    ("url", "is_one_developers"),
    [
        ("sqlite:///daybell.db", True),
        ("memory://", True),
        ("postgresql://db/jobs", False),
        ("postgres://db/jobs", False),
    ],
)
def test_what_may_be_the_store_of_many_is_not_gone_back_in_by_dev(url, is_one_developers):
    assert is_private_store(url) is is_one_developers


def test_declaring_makes_what_the_code_says_current(typed, tmp_path):
    back = typed("jobs", "declare", "now.py", "--json")
    again = typed("jobs", "declare", "now.py")
    audited = json.loads(typed("audit", "list", "--json").out)["items"]

    assert json.loads(back.out) == {"jobs": ["report", "greet"], "back": {"report": 3}}
    assert again == (0, "as the code says: 2 jobs\n", "")
    assert [version for version, _ in versions(tmp_path)] == [3, 2, 1]
    (entry,) = audited
    assert (entry["actor"], entry["action"]) == (current_actor(), "job.declare")
    assert entry["before"] == {"report": 2}


def test_declaring_tells_which_jobs_went_back(typed):
    assert typed("jobs", "declare", "now.py").out == (
        "report is again what it was, as version 3\nas the code says: 2 jobs\n"
    )


def test_declaring_needs_an_app(typed):
    nothing = typed("jobs", "declare")

    assert (nothing.code, "say which app" in nothing.err) == (2, True)


def test_the_doctor_compares_an_app_with_the_store(typed):
    def code(*words):
        checks = json.loads(typed("doctor", *words, "--json").out)["checks"]
        return [(one["is_ok"], one["found"]) for one in checks if one["name"] == "code"]

    ((is_ok, found),) = code("now.py")
    before, without = code("between.py"), code()
    typed("jobs", "rollback", "report", "1")
    after = code("now.py")

    assert not is_ok
    assert found.startswith("1 of 2 jobs in an older version: report (version 1; current is 2, ")
    assert before == after == [(True, "2 jobs, none in an older version")]
    assert without == []


def test_new_code_is_no_problem_for_the_doctor_and_broken_code_is(typed, tmp_path):
    (tmp_path / "newer.py").write_text(APP.format(hour=7))
    (tmp_path / "broken.py").write_text("import nothing_like_that\n")

    newer = json.loads(typed("doctor", "newer.py", "--json").out)["checks"]
    broken = typed("doctor", "broken.py", "--json")

    assert [one["is_ok"] for one in newer if one["name"] == "code"] == [True]
    found = {one["name"]: one for one in json.loads(broken.out)["checks"]}
    assert (broken.code, "nothing_like_that" in found["app"]["found"]) == (1, True)
    assert "code" not in found
    assert found["store"]["is_ok"]


# Templates: kept, shown and removed, and applied with their jobs.


@pytest.fixture
def world(monkeypatch, capsys, tmp_path):
    return a_world(monkeypatch, capsys, tmp_path)


def test_templates_and_their_jobs_come_together(world):
    world.write(
        a="jobs:\n- name: users\n  template: dump\n  parameters: {table: users}\n",
        z="name: dump\nparameters: {table: string}\n"
        "job:\n  sql: {connection: main, statement: s, parameters: {t: {parameter: table}}}\n",
    )

    dry = world.applied("--dry-run")
    world.applied()

    assert "+ template dump\n" in dry
    assert "+ users\n" in dry
    assert world.applied() == "= 2 unchanged\nnothing to do\n"
    world.write(a="jobs:\n- name: users\n  template: dump\n  parameters: {tabel: users}\n")
    wrong = world.apply()
    assert wrong.code == 2
    assert "jobs/a.yaml:4: job 'users': template dump has no parameter 'tabel'" in wrong.err
    world.write(a="name: x\ntemplate: nope\n")
    assert "jobs/a.yaml:2: job 'x': there is no template named 'nope'" in world.apply().err


def test_templates_are_kept_shown_and_removed(world):
    text = (
        "name: dump\ndescription: Saves a table\nparameters:\n  table: string\n"
        "  rows: {type: integer, default: 5, minimum: 1}\njob:\n  command:\n    run: [dump,"
        " {parameter: table}, {join: [--rows=, {parameter: rows}]}]\n"
    )
    world.write(t=text, bad="name: x\njob:\n  comand: ls\n")

    none = world.typed("templates", "list")
    made = world.typed("templates", "create", "-f", "jobs/t.yaml")
    twice = world.typed("templates", "create", "-f", "jobs/t.yaml")
    again = world.typed("templates", "create", "-f", "jobs/t.yaml", "--replace", "--json")
    bad = world.typed("templates", "create", "-f", "jobs/bad.yaml")
    shown = world.typed("templates", "show", "dump")
    (world.folder / "jobs" / "t.yaml").write_text(
        world.typed("templates", "show", "dump", "--yaml").out
    )
    world.remove("bad")

    assert none.out == "no templates; daybell templates create -f FILE makes one\n"
    assert made.out == "template dump is at version 1; parameters: table, rows\n"
    assert (twice.code, "--replace takes its place" in twice.err) == (1, True)
    assert json.loads(again.out)["name"] == "dump"
    assert (bad.code, "jobs/bad.yaml:3: template 'x': a job has no field 'comand'" in bad.err) == (
        2,
        True,
    )
    assert "string, required" in shown.out
    assert "integer, default 5, at least 1" in shown.out
    assert world.applied() == "= 1 unchanged\nnothing to do\n"
    assert "table, rows" in world.typed("templates", "list").out
    assert world.typed("templates", "delete", "dump").code == 2
    assert world.typed("templates", "delete", "dump", "--yes").out == "template dump is deleted\n"
    assert world.typed("templates", "show", "dump").code == 1


async def test_a_trigger_with_wrong_arguments_names_the_nearest_one(client, command):
    signature = payload.encode(payload.describe(lambda name: None), what="signature")
    await client.define_jobs([replace(read_definition("hello"), signature=signature)])

    wrong = command("jobs", "trigger", "hello", "--args", '{"nam": "Ada"}')

    assert wrong.code == 2
    assert "no argument 'nam'; did you mean 'name'?" in wrong.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("jobs", "trigger", "greet", "--args", "name=Ada"), "text is in double quotes"),
        (("executions", "list", "--limit", "0"), "it must be at least 1"),
        (("jobs", "rollback", "greet", "one"), "it must be a whole number"),
        (("limits", "set", "greet", "--limit", "-5"), "a whole number from 1"),
        (("jobs", "create", "x", "--rate", "5/fortnight", "--command", "ls"), "'fortnight'"),
        (("executions", "show", "123"), "UUID"),
        (("workers", "drain", "nosuch"), "UUID"),
        (("executions", "list", "--since", "1h", "--until", "2h"), "is not before until"),
    ],
)
async def test_a_mistake_is_answered_with_the_way_out(client, command, words, says):
    wrong = command(*words)

    assert wrong.code == 2
    assert says in wrong.err
