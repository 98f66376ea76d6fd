"""Templates over HTTP."""

import pytest

BACKUP = {
    "name": "backup",
    "description": "Saves a database.",
    "parameters": {
        "database": "string",
        "password": {"type": "secret", "default": {"secret": "P"}},
    },
    "job": {
        "command": ["pg_dump", {"parameter": "database"}],
        "env": {"PGPASSWORD": {"parameter": "password"}},
        "schedule": "0 3 * * *",
    },
}
KEY = {"Idempotency-Key": "k-1"}


async def test_a_template_is_created_and_a_job_is_made_from_it(http):
    answer = await http.post("/templates", json=BACKUP)
    said = answer.json()
    body = {"name": "shop", "template": "backup", "parameters": {"database": "shop"}}
    job = (await http.post("/jobs", json=body)).json()

    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    assert answer.headers["location"] == "/api/v1/templates/backup"
    assert (said["name"], said["version"], said["author"]) == ("backup", 1, "dev")
    assert said["job"] == BACKUP["job"]
    assert said["parameters"]["database"] == {"type": "string"}
    assert (await http.get("/templates/backup")).json() == said
    assert (await http.get("/templates")).json()["items"] == [said]
    assert (job["command"], job["status"]) == (["pg_dump", "shop"], "scheduled")
    assert job["env"] == {"PGPASSWORD": {"secret": "P"}}
    assert job["template"] == {"name": "backup", "version": 1, "parameters": {"database": "shop"}}


async def test_a_name_that_exists_is_a_conflict(http):
    await http.post("/templates", json=BACKUP)

    assert (await http.post("/templates", json=BACKUP)).status_code == 409


async def test_a_template_is_put_in_place_of_the_one_that_was_seen(http):
    body = {name: BACKUP[name] for name in BACKUP if name != "name"}

    made = await http.put("/templates/backup", json=body)
    same = await http.put("/templates/backup", json=BACKUP)
    changed = await http.put(
        "/templates/backup", json={**body, "description": ""}, headers={"If-Match": '"1"'}
    )
    stale = await http.put("/templates/backup", json=body, headers={"If-Match": '"1"'})
    other = await http.put("/templates/backup", json={**BACKUP, "name": "other"})

    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert (same.status_code, same.headers["etag"]) == (200, '"1"')
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert (stale.status_code, other.status_code) == (412, 422)
    entries = (await http.get("/audit?target=backup")).json()["items"]
    assert [one["action"] for one in entries] == ["template.update"] * 2  # not of what was the same
    assert entries[0]["after"]["description"] == ""
    assert entries[0]["before"]["description"] == "Saves a database."


async def test_a_template_is_deleted_and_its_jobs_stay(http):
    await http.post("/templates", json=BACKUP)
    body = {"name": "shop", "template": "backup", "parameters": {"database": "shop"}}
    await http.post("/jobs", json=body)

    stale = await http.delete("/templates/backup", headers={"If-Match": '"2"'})
    there = await http.get("/templates/backup")
    gone = await http.delete("/templates/backup", headers={"If-Match": '"1"'})

    assert (stale.status_code, there.status_code) == (412, 200)
    assert (gone.status_code, gone.json()) == (200, {"name": "backup", "status": "deleted"})
    assert (await http.get("/templates/backup")).status_code == 404
    assert (await http.delete("/templates/backup")).status_code == 404
    assert (await http.get("/jobs/shop")).json()["template"]["name"] == "backup"
    actions = [one["action"] for one in (await http.get("/audit?target=backup")).json()["items"]]
    assert actions == ["template.delete", "template.create"]


async def test_the_same_request_creates_one_template(http, client, monkeypatch):
    async def die(*_, **__):
        raise RuntimeError("killed between the change and its answer")

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "answer_request", die)
        lost = await http.post("/templates", json=BACKUP, headers=KEY)
    again = await http.post("/templates", json=BACKUP, headers=KEY)
    third = await http.post("/templates", json=BACKUP, headers=KEY)

    assert (lost.status_code, again.status_code) == (500, 201)
    assert third.text == again.text
    assert third.headers["idempotency-replayed"] == "true"
    assert len((await client.audit(action="template.create")).items) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"job": None}, "job"),
        ({"job": {}}, "job"),
        ({"job": {"queue": "x"}}, "parameters.database"),
        ({"job": {"command": ["a", {"parameter": "nope"}]}}, "job"),
        ({"parameters": {}, "job": {"queue": "x"}}, "job.task"),
        (
            {
                "parameters": {"a": "string"},
                "job": {"command": {"join": ["ls ", {"parameter": "a"}]}},
            },
            "job.command",
        ),
        (
            {
                "parameters": {"a": "string"},
                "job": {"sql": {"connection": "w", "statement": {"parameter": "a"}}},
            },
            "job.sql.statement",
        ),
        ({"parameters": {}, "job": {"command": "df", "timeout": "soon"}}, "job.timeout"),
        ({"parameters": {}, "job": {"http": {"url": "x"}}}, "job.http.url"),
        ({"parameters": {"database": "text", "password": "secret"}}, "parameters.database"),
        ({"parameters": ["database"]}, "parameters"),
        ({"description": 5}, "description"),
        ({"colour": 5}, "colour"),
    ],
)
async def test_what_is_wrong_with_a_template_is_told_by_its_place(http, change, field):
    answer = await http.post("/templates", json={**BACKUP, **change})

    assert answer.status_code == 422
    assert field in {one["field"] for one in answer.json()["errors"]}, answer.text
    assert (await http.get("/templates")).json()["items"] == []
