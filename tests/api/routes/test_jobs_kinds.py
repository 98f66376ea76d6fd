"""Jobs without code over HTTP: each kind, declared jobs, and what versions tell."""

import pytest

from daybell.api.contract import NEW_JOBS
from daybell.core.execution import State

HTTP = {"url": "https://example.org", "headers": {"X-A": {"secret": "TOKEN"}}}
SQL = {"connection": "main", "statement": "SELECT :a", "parameters": {"a": 1}}
NOTIFY = {"to": ["json://example.org"], "body": "hello"}


async def test_the_request_of_the_contract_works_to_the_letter(http, client):
    await client.define("extract")
    await client.define("load")

    answer = await http.post(
        "/jobs",
        content=b"""
{ "name": "daily-report", "schedule": "0 0 * * *", "command": "python generate_report.py",
  "dependencies": ["extract", "load"], "retries": 3, "timeout": 3600 }""",
        headers={"Content-Type": "application/json"},
    )

    said = answer.json()
    assert answer.status_code == 201
    assert (said["name"], said["version"], said["status"]) == ("daily-report", 1, "scheduled")
    assert (said["kind"], said["command"]) == ("command", "python generate_report.py")
    assert said["next_run_at"].endswith("T00:00:00Z")
    assert (said["dependencies"], said["timeout"]) == (["extract", "load"], 3600)
    assert said["retry"]["retries"] == 3
    assert said["job_id"] in answer.headers["location"]


@pytest.mark.parametrize("name", NEW_JOBS)
async def test_every_example_of_a_job_is_one(http, client, name):
    for task in ("extract", "load"):
        await client.define(task)
    template = {"name": "backup", "parameters": {"database": "string"},
                "job": {"command": ["pg_dump", {"parameter": "database"}]}}  # fmt: skip
    await client.set_template(template)

    answer = await http.post("/jobs", json=NEW_JOBS[name])

    assert answer.status_code == 201, answer.text
    said, asked = answer.json(), NEW_JOBS[name]
    kind = said["kind"]
    assert said[kind] is not None
    if kind == "workflow":  # which is kept with all of its edges
        names = [[one["name"] for one in of["workflow"]["nodes"]] for of in (said, asked)]
        assert names[0] == names[1]
    elif kind != "notify":  # of which one address is a list, too
        assert asked.get(kind) in (None, said[kind])
        assert "env" not in asked or asked["env"] == said["env"]
    others = {"task", "command", "http", "sql", "notify", "workflow"} - {kind}
    assert all(said[other] is None for other in others)


@pytest.mark.parametrize(
    "what", [{"command": "df"}, {"http": HTTP}, {"sql": SQL}, {"notify": NOTIFY}]
)
async def test_without_a_schedule_any_kind_runs_once_and_now(http, client, what):
    said = (await http.post("/jobs", json={"name": "once", "args": {"a": 1}, **what})).json()

    made = await client.execution(said["execution_id"])
    assert (said["status"], made.status, made.args) == ("queued", State.QUEUED, {"a": 1})


async def test_secrets_stay_references_wherever_a_job_is_told_of(http):
    body = {"name": "call", "http": HTTP, "args": {"b": {"secret": "B"}}, "schedule": "manual"}

    said = (await http.post("/jobs", json=body)).json()

    assert said["http"] == HTTP
    assert said["args"] == {"b": {"secret": "B"}}
    (entry,) = (await http.get("/audit?action=job.create")).json()["items"]
    assert entry["after"] == body
    told = "\n".join(said["warnings"])
    assert "secret B is not set" in told and "secret TOKEN is not set" in told
    assert "no live worker of queue 'default' makes requests" in told
    again = (await http.get("/jobs/call/warnings")).json()
    assert again == {"items": said["warnings"], "next_cursor": None}
    assert (await http.get("/jobs/nobody/warnings")).status_code == 404


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "task", "it names nothing to run"),
        ({"command": "df", "http": HTTP}, "http", "two things to run"),
        ({"command": "echo 'it"}, "command", "cannot be split"),
        ({"command": ""}, "command", "is empty"),
        ({"command": 5}, "command", "must be text, or a list of words"),
        ({"command": ["df", 5]}, "command", "must be text"),
        ({"command": ["a", {"secret": "no good"}]}, "command", "cannot name a secret"),
        ({"command": {"run": "df", "cwd": "/"}}, "command.cwd", "command has no 'cwd'"),
        ({"command": {"run": "df", "grace": "soon"}}, "command.grace", "grace"),
        ({"command": {"run": "df", "directory": "x"}}, "command.directory", "begins with /"),
        ({"command": {"run": "df", "env": {"A": 5}}}, "env.A", "must be text"),
        ({"command": {"run": "df", "shell": False}, "shell": True}, "shell", "say it once"),
        ({"command": ["df"], "shell": True}, "command", "one text, not a list"),
        ({"command": "df", "env": {"A": 5}}, "env.A", "must be text"),
        ({"command": "df", "env": {"A-B": "x"}}, "env", "cannot name a variable"),
        ({"command": "df", "env": []}, "env", "must be given by name"),
        ({"command": "df", "shell": "yes"}, "shell", "must be true or false"),
        ({"shell": True}, "command", "shell is for a command"),
        ({"http": {"url": "ftp://x"}}, "http.url", "must begin with http"),
        ({"http": {**HTTP, "headers": {"X-A": 5}}}, "http.headers.X-A", "must be text"),
        ({"http": {**HTTP, "headers": {"Host": "x"}}}, "http.headers.Host", "cannot be set"),
        ({"http": {**HTTP, "method": "STEAL"}}, "http.method", "is not one of"),
        ({"http": 5}, "http", "must be given by name"),
        ({"sql": {"statement": "SELECT 1"}}, "sql.connection", "sql has no connection"),
        ({"sql": "SELECT 1"}, "sql", "must be given by name"),
        ({"notify": {"to": [], "body": "x"}}, "notify.to", "names no address"),
        ({"notify": {"to": "json://x"}}, "notify.body", "says nothing"),
        ({"template": "a/b"}, "template", "contains '/'"),
        ({"template": "nothing"}, "template", "no template named 'nothing'"),
        ({"template": "x", "command": "df"}, "template", "two things to run"),
        ({"command": "df", "parameters": {"a": 1}}, "parameters", "are a template's"),
    ],
)
async def test_what_is_wrong_is_told_by_its_place_in_the_body(http, client, body, field, message):
    answer = await http.post("/jobs", json={"name": "job", "schedule": "@daily", **body})

    assert answer.status_code == 422
    told = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert field in told, told
    assert message in told[field]
    assert len((await client.jobs()).items) == 1


async def test_what_is_wrong_with_each_kind_is_told_at_once(http):
    body = {"name": "a/b", "command": "echo 'it", "http": {"url": "x"}, "sql": {}, "retires": 1}

    told = {one["field"] for one in (await http.post("/jobs", json=body)).json()["errors"]}

    assert told == {"name", "command", "http.url", "sql.connection", "retires", "http"}


async def test_a_change_runs_something_else_and_versions_tell_of_it(http):
    body = {"name": "disk", "command": "df", "env": {"A": "x"}, "schedule": "manual"}
    await http.post("/jobs", json=body)

    line = await http.patch("/jobs/disk", json={"command": "du 'it", "shell": True})
    kind = await http.patch("/jobs/disk", json={"http": HTTP, "timeout": 5})
    await http.post("/jobs/disk/rollback", json={"version": 1})
    versions = (await http.get("/jobs/disk/versions")).json()["items"]

    assert line.status_code == kind.status_code == 200, line.text
    assert (line.json()["command"], line.json()["env"]) == ("du 'it", {"A": "x"})
    assert (kind.json()["command"], kind.json()["http"]) == (None, HTTP)
    told = [{one["field"]: (one["before"], one["after"]) for one in version["changes"]}
            for version in versions]  # fmt: skip
    assert [one["version"] for one in versions] == [4, 3, 2, 1]
    assert told[3] == {}
    assert told[2] == {"command": ("df", "du 'it"), "shell": (None, True)}
    assert told[1]["http"] == (None, HTTP) and told[1]["timeout"] == (None, "5s")
    assert told[0]["http"] == (HTTP, None) and told[0]["command"] == (None, "df")
    assert all(one["author"] == "dev" and one["created_at"] for one in versions)
    first = (await http.get("/jobs/disk/versions?limit=1")).json()
    assert first["items"][0]["changes"] == versions[0]["changes"]


@pytest.mark.parametrize(
    ("job", "change", "field"),
    [
        ("resize", {"command": "df"}, "command"),
        ("resize", {"task": "resize"}, "task"),
        ("disk", {"command": {"run": 5}}, "command"),
        ("disk", {"command": "df 'it"}, "command"),
        ("disk", {"http": HTTP, "env": {"A": "x"}}, "env"),
        ("disk", {"http": {"url": "https://x", "headers": {"A": 1}}}, "http.headers.A"),
    ],
)
async def test_a_change_that_makes_no_sense_is_told_by_its_place(http, job, change, field):
    await http.post("/jobs", json={"name": "disk", "command": "df", "schedule": "manual"})

    answer = await http.patch(f"/jobs/{job}", json=change)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


async def test_a_declared_job_is_made_changed_and_left_alone(http):
    body = {"command": "df", "schedule": "0 0 * * *", "source": "apply:ops"}

    dry = await http.put("/jobs/disk?dry_run=true", json=body)
    missing = await http.get("/jobs/disk")
    made = await http.put("/jobs/disk", json=body)
    same = await http.put("/jobs/disk", json={**body, "name": "disk"})
    changed = await http.put("/jobs/disk?dry_run=false", json={"command": "du"})

    assert (dry.status_code, dry.json()["action"], dry.json()["job"]) == (200, "created", None)
    assert missing.status_code == 404
    assert (made.status_code, made.json()["action"], made.headers["etag"]) == (
        201,
        "created",
        '"1"',
    )
    assert made.json()["after"] == {"name": "disk", **body}
    assert (same.status_code, same.json()["action"]) == (200, "unchanged")
    assert (changed.json()["action"], changed.json()["job"]["version"]) == ("changed", 2)
    assert changed.json()["before"] == made.json()["after"]
    assert changed.json()["job"]["schedules"] == []
    assert "--allow-command" in changed.json()["warnings"][0]
    entries = (await http.get("/audit?target=disk")).json()["items"]
    assert [one["action"] for one in entries] == ["job.apply", "job.apply"]
    assert entries[0]["before"] == made.json()["after"]
    assert entries[0]["after"] == {"command": "du"}


@pytest.mark.parametrize(
    ("job", "body", "headers", "status"),
    [
        ("resize", {"command": "df"}, {}, 409),
        ("disk", {"command": "du"}, {"If-Match": '"7"'}, 412),
        ("disk", {"command": "du"}, {"If-Match": '"0"'}, 412),
        ("other", {"command": "du"}, {"If-Match": '"1"'}, 412),
        ("disk", {"command": "du", "name": "other"}, {}, 422),
        ("disk", {"schedule": "@daily"}, {}, 422),
        ("disk", {"command": "du", "schedule": {"delay": "5m"}}, {}, 422),
        ("disk", {"command": "du", "unique_key": "k"}, {}, 422),
        ("a b\u202e", {"command": "du"}, {}, 422),
    ],
)
async def test_what_cannot_be_declared_changes_nothing(http, job, body, headers, status):
    await http.put("/jobs/disk", json={"command": "df"})

    answer = await http.put(f"/jobs/{job}", json=body, headers=headers)

    assert answer.status_code == status, answer.text
    assert (await http.get("/jobs/disk")).json()["version"] == 1


async def test_a_line_of_a_command_with_a_shell_is_changed_by_itself(http):
    body = {"name": "disk", "command": "df", "shell": True, "schedule": "manual"}
    await http.post("/jobs", json=body)

    said = (await http.patch("/jobs/disk", json={"command": "echo 'it; df'|wc #'"})).json()

    assert (said["command"], said["shell"]) == ("echo 'it; df'|wc #'", True)


async def test_a_job_is_declared_by_its_name_and_not_its_id(http):
    made = (await http.put("/jobs/disk", json={"command": "df"})).json()["job"]

    answer = await http.put(f"/jobs/{made['job_id']}", json={"command": "du"})
    free = await http.put("/jobs/01934b2e-7c00-7000-8000-000000000000", json={"command": "du"})

    assert (answer.status_code, free.status_code) == (422, 422)
    assert answer.json()["errors"][0]["field"] == "name"


async def test_a_declared_task_may_have_no_limit_although_its_task_has_one(http, client):
    await client.define("slow", timeout="30s")

    limited = (await http.put("/jobs/a", json={"task": "slow"})).json()
    free = (await http.put("/jobs/b", json={"task": "slow", "timeout": None})).json()

    assert (limited["job"]["timeout"], free["job"]["timeout"]) == (30.0, None)
    assert (await http.put("/jobs/b", json=free["after"])).json()["action"] == "unchanged"
