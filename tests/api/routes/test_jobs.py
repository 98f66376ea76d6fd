"""Jobs over HTTP: created, looked at, changed, ended."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.errors import Unavailable

DAILY = {"name": "daily", "task": "resize", "schedule": "0 0 * * *"}


async def test_a_job_is_created_with_its_place_and_version(http, client):
    body = {**DAILY, "retries": 3, "timeout": 3600, "user_id": "ana", "priority": "high"}

    answer = await http.post("/jobs", json=body)

    said = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/jobs/{said['job_id']}"
    assert answer.headers["etag"] == '"1"'
    assert (said["name"], said["version"], said["status"]) == ("daily", 1, "scheduled")
    assert said["next_run_at"].endswith("T00:00:00Z")
    assert (said["timeout"], said["retry"]["retries"], said["priority"]) == (3600, 3, "high")
    assert (said["task"], said["queue"], said["author"]) == ("resize", "images", "dev")
    assert (await client.job("daily")).definition.user_id == "ana"
    assert (await http.get(answer.headers["location"].removeprefix("/api/v1"))).json() == {
        name: said[name] for name in said if name not in ("warnings",)
    }


async def test_a_job_without_a_schedule_runs_once_and_now(http, client):
    body = {"name": "import", "task": "resize", "args": {"file": "a"}, "unique_key": "a"}

    answer = await http.post("/jobs", json=body)

    said = answer.json()
    made = await client.execution(said["execution_id"])
    assert (answer.status_code, said["status"]) == (201, "queued")
    assert (made.job, made.args, made.unique_key) == ("import", {"file": "a"}, "a")


async def test_a_manual_job_does_not_run_by_itself(http, client):
    answer = await http.post("/jobs", json={**DAILY, "schedule": "manual"})

    assert (answer.status_code, answer.json()["status"]) == (201, "manual")
    assert (await client.count()).executions == {}


@pytest.mark.parametrize("method", ["post", "put"])
async def test_a_name_that_could_be_an_id_is_refused(http, method):
    made = (await http.post("/jobs", json={**DAILY, "schedule": "manual"})).json()
    name = made["job_id"]

    if method == "post":
        answer = await http.post("/jobs", json={"name": name, "task": "resize"})
    else:
        answer = await http.put(f"/jobs/{mint()}", json={"task": "resize"})

    assert answer.status_code == 422
    assert "id" in answer.json()["errors"][0]["message"]
    assert (await http.get(f"/jobs/{name}")).json()["name"] == made["name"]


async def test_a_rule_that_was_counted_out_says_the_way_out(http):
    rule = {"rrule": "FREQ=DAILY;COUNT=3"}

    refused = await http.post("/jobs", json={**DAILY, "schedule": rule})
    preview = (await http.get("/schedules/preview", params=rule)).json()

    assert "max_executions in place of COUNT" in refused.json()["errors"][0]["message"]
    assert "counted from 1970-01-01" in preview["description"]


async def test_a_job_that_runs_once_and_is_over_quota_is_not_left_behind(http, client):
    await client.update_tenant("default", queued=0)

    answer = await http.post("/jobs", json={"name": "import", "task": "resize"})

    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["quota"] == "queued"
    assert (await http.get("/jobs/import")).status_code == 404
    await client.update_tenant("default", queued=None)
    again = await http.post("/jobs", json={"name": "import", "task": "resize"})
    assert (again.status_code, again.json()["status"]) == (201, "queued")
    told = (await http.get("/audit?target=import")).json()["items"]
    assert [one["action"] for one in told] == ["job.create"]


async def test_a_job_that_runs_once_is_there_with_its_execution_or_not_at_all(
    http, client, monkeypatch
):
    async def go_away(*_, **__):
        raise Unavailable("gone")

    body = {"name": "import", "task": "resize"}
    with monkeypatch.context() as patched:
        patched.setattr(type(client.store.queue), "enqueue", go_away)
        first = await http.post("/jobs", json=body)
    await http.delete("/jobs/import")
    with monkeypatch.context() as patched:
        patched.setattr(type(client.store.catalog), "launch", go_away)
        lost = await http.post("/jobs", json=body)
    again = await http.post("/jobs", json=body)

    assert (first.status_code, lost.status_code, again.status_code) == (201, 503, 201)
    assert (await client.count(job="import")).executions == {State.CANCELLED: 1, State.QUEUED: 1}


async def test_a_name_that_exists_is_a_conflict(http):
    await http.post("/jobs", json=DAILY)

    answer = await http.post("/jobs", json=DAILY)

    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:daybell:problem:duplicate-key"


async def test_a_job_with_dependencies_runs_after_them(http):
    body = {"name": "load", "task": "resize", "dependencies": ["resize"]}

    answer = await http.post("/jobs", json={**body, "on_dependency_failure": "skip"})

    job = answer.json()
    assert (job["dependencies"], job["on_dependency_failure"]) == (["resize"], "skip")
    assert (job["warnings"], job["status"]) == ([], "manual")
    assert [one["rule"] for one in job["schedules"]] == [{"after": ["resize"]}]
    assert job["schedules"][0]["since"] is not None
    assert "execution_id" not in job, "it was not launched"

    changed = await http.patch("/jobs/load", json={"on_dependency_failure": None})
    assert changed.json()["on_dependency_failure"] == "wait"


async def test_after_in_a_schedule_says_the_same(http):
    body = {"name": "load", "task": "resize", "schedule": {"after": ["resize"]}}

    job = (await http.post("/jobs", json=body)).json()
    beside = await http.post("/jobs", json={**DAILY, "schedule": ["@daily", {"after": ["resize"]}]})

    assert (job["dependencies"], job["status"]) == (["resize"], "manual")
    assert beside.status_code == 422
    assert "can be read in two ways" in beside.json()["errors"][0]["message"]


async def test_after_any_fires_beside_other_schedules(http):
    schedule = [{"after_any": ["resize"]}, "@daily"]
    body = {"name": "load", "task": "resize", "schedule": schedule}

    job = (await http.post("/jobs", json=body)).json()
    afters = [{"after": ["resize"]}, {"after": ["daily"]}]
    wrong = await http.post("/jobs", json={**body, "name": "other", "schedule": afters})

    assert [one["rule"] for one in job["schedules"]] == [
        {"after_any": ["resize"]},
        {"cron": "0 0 * * *"},
    ]
    assert [one["since"] is None for one in job["schedules"]] == [False, True]
    assert wrong.status_code == 422
    assert "after_any('resize', 'daily')" in wrong.json()["errors"][0]["message"]


async def test_a_change_of_the_time_keeps_what_it_does_not_name(http):
    calendar = {"country": "DE", "business_days": True}
    options = {"tz": "Europe/Berlin", "jitter": 30.0, "end_at": "2090-01-01T00:00:00Z"}
    body = {"name": "load", "task": "resize", "schedule": {"cron": "0 2 * * *", **options}}
    await http.post("/jobs", json={**body, "calendar": calendar})

    async def change(**fields):
        answer = await http.patch("/jobs/load", json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["schedules"][0]["rule"]

    assert await change(schedule="0 3 * * *") == {
        "cron": "0 3 * * *",
        **options,
        "calendar": calendar,
    }
    assert await change(schedule={"cron": "0 4 * * *", "jitter": None}, calendar=None) == {
        "cron": "0 4 * * *",
        "tz": "Europe/Berlin",
        "end_at": "2090-01-01T00:00:00Z",
    }


async def test_a_circle_of_dependencies_is_named(http):
    for name, other in (("a", "resize"), ("b", "a"), ("c", "b")):
        await http.post("/jobs", json={"name": name, "task": "resize", "dependencies": [other]})

    answer = await http.patch("/jobs/a", json={"dependencies": ["c"]})

    assert answer.status_code == 422
    message = answer.json()["errors"][0]["message"]
    assert "circle: 'a' -> 'c' -> 'b' -> 'a'" in message


async def test_a_word_that_no_dependency_failure_has_is_refused(http):
    answer = await http.post("/jobs", json={**DAILY, "on_dependency_failure": "panic"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "on_dependency_failure"


async def test_dependencies_must_exist(http):
    answer = await http.post("/jobs", json={**DAILY, "dependencies": ["nobody"]})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "dependencies"


async def test_jobs_are_listed_by_what_is_asked_for(http):
    for name, user in (("a", "ana"), ("b", "bob"), ("c", "ana")):
        await http.post("/jobs", json={**DAILY, "name": name, "user_id": user})
    await http.post("/jobs", json={"name": "once", "task": "resize", "description": "Some words"})

    async def names(query):
        return [one["name"] for one in (await http.get(f"/jobs?{query}")).json()["items"]]

    assert await names("user_id=ana") == ["a", "c"]
    assert await names("status=pending") == ["a", "b", "c", "once"]
    assert await names("status=queued") == ["once"]
    assert await names("q=words") == ["once"]
    assert await names("prefix=on") == ["once"]
    assert await names("queue=mail") == []


async def test_a_list_goes_on_where_its_page_ended(http):
    for name in "abc":
        await http.post("/jobs", json={**DAILY, "name": name})

    first = (await http.get("/jobs?limit=2")).json()
    rest = (await http.get("/jobs", params={"limit": 2, "cursor": first["next_cursor"]})).json()

    assert [one["name"] for one in first["items"] + rest["items"]] == ["a", "b", "c", "resize"]
    assert rest["next_cursor"] is None


async def test_a_job_shows_how_far_its_execution_is(http, client):
    made = await client.enqueue("resize", {"width": 1})

    said = (await http.get("/jobs/resize")).json()

    assert said["last_execution"]["execution_id"] == str(made.id)
    assert {"progress", "started_at", "next_run_at"} <= said.keys()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/versions"),
        ("POST", "/trigger"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/rollback"),
        ("POST", "/backfill"),
    ],
)
async def test_a_job_that_is_not_there_is_not_found(http, method, path):
    bodies = {
        "/rollback": {"version": 1},
        "/backfill": {"since": "2026-01-01", "until": "2026-01-02"},
    }
    body = {"timeout": 3} if method == "PATCH" else bodies.get(path)

    answer = await http.request(method, f"/jobs/nobody{path}", json=body)

    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:daybell:problem:unknown-job"


async def test_a_change_makes_a_version_and_leaves_the_rest(http):
    await http.post("/jobs", json={**DAILY, "timeout": 60, "retries": 7})

    answer = await http.patch("/jobs/daily", json={"queue": "mail", "timeout": None})

    said = answer.json()
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert (said["queue"], said["timeout"], said["retry"]["retries"]) == ("mail", None, 7)
    assert said["schedules"][0]["rule"] == {"cron": "0 0 * * *"}


@pytest.mark.parametrize(
    ("change", "retry"),
    [
        ({"retries": 1}, {"retries": 1, "backoff": "fixed", "delay": 30.0}),
        ({"backoff": {"delays": ["1s"]}}, {"retries": 7, "backoff": "delays", "delays": [1.0]}),
        ({"retries": 2, "backoff": "exponential"}, {"retries": 2, "backoff": "exponential"}),
        ({"retries": None, "backoff": None}, {"retries": 3, "backoff": "exponential"}),
    ],
)
async def test_tries_and_waits_are_changed_one_by_one(http, change, retry):
    body = {**DAILY, "retries": 7, "backoff": {"backoff": "fixed", "delay": "30s"}}
    await http.post("/jobs", json=body)

    said = (await http.patch("/jobs/daily", json=change)).json()["retry"]

    assert {name: said.get(name) for name in retry} == retry


async def test_a_null_is_back_to_the_default(http):
    await http.post("/jobs", json={**DAILY, "queue": "mail", "description": "x"})
    nulls = {
        name: None
        for name in ("queue", "priority", "max_crashes", "on_lost", "store_result", "description")
    }

    said = (await http.patch("/jobs/daily", json=nulls)).json()

    assert (said["queue"], said["priority"], said["description"]) == ("default", "normal", "")


async def test_a_change_of_another_version_is_refused(http):
    await http.post("/jobs", json=DAILY)
    await http.patch("/jobs/daily", json={"queue": "mail"}, headers={"If-Match": '"1"'})

    answer = await http.patch("/jobs/daily", json={"queue": "x"}, headers={"If-Match": '"1"'})

    assert answer.status_code == 412
    assert (await http.get("/jobs/daily")).json()["queue"] == "mail"
    gone = await http.delete("/jobs/daily", headers={"If-Match": '"1"'})
    assert gone.status_code == 412
    weak = await http.patch("/jobs/daily", json={"queue": "x"}, headers={"If-Match": 'W/"2"'})
    wrong = await http.patch("/jobs/daily", json={"queue": "x"}, headers={"If-Match": "no"})
    assert (weak.status_code, wrong.status_code) == (412, 422)


async def test_a_change_of_nothing_is_refused(http):
    answer = await http.patch("/jobs/resize", json={})

    assert answer.status_code == 422


async def test_the_end_of_a_job_cancels_what_is_unfinished(http, client):
    await client.enqueue_many("resize", [{}, {}])

    answer = await http.delete("/jobs/resize")

    assert answer.json()["cancelled"] == 2
    assert (await client.count()).executions == {State.CANCELLED: 2}
    assert (await http.get("/jobs/resize")).json()["status"] == "deleted"
    assert (await http.post("/jobs/resize/trigger")).status_code == 404


async def test_the_end_of_a_job_that_was_interrupted_is_finished_by_asking_again(
    http, client, monkeypatch
):
    await client.enqueue_many("resize", [{}, {}])

    async def go_away(*_, **__):
        raise Unavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(type(client.store.queue), "cancel", go_away)
        lost = await http.delete("/jobs/resize")
    again = await http.delete("/jobs/resize")
    third = await http.delete(f"/jobs/{again.json()['job_id']}")

    assert lost.status_code == 503
    assert (again.status_code, again.json()["cancelled"]) == (200, 2)
    assert (third.status_code, third.json()["cancelled"]) == (200, 0)
    assert (await client.count()).executions == {State.CANCELLED: 2}


async def test_who_needs_a_job_is_told_before_and_when_it_is_deleted(http):
    await http.post("/jobs", json=DAILY)
    after = {**DAILY, "name": "after", "dependencies": ["daily"]}
    await http.post("/jobs", json=after)
    told = ["job after depends on daily, and waits in vain while it is not there"]

    before = await http.get("/jobs/daily/warnings", params={"deleting": "true"})
    deleted = await http.delete("/jobs/daily")
    again = await http.delete("/jobs/daily")
    then = await http.get("/jobs/daily/warnings", params={"deleting": "true"})

    assert before.json()["items"] == then.json()["items"] == told
    assert deleted.json()["warnings"] == again.json()["warnings"] == told


async def test_a_job_that_changes_while_it_is_deleted_stays(http, client, monkeypatch):
    await http.post("/jobs", json=DAILY)
    looked = type(client).standing

    async def overtaken(self, job):
        found = await looked(self, job)
        patched.undo()
        await client.update("daily", queue="mail")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(type(client), "standing", overtaken)
        refused = await http.delete("/jobs/daily", headers={"If-Match": '"1"'})

    assert refused.status_code == 412
    assert (await client.job("daily")).version == 2


async def test_versions_and_the_way_back(http):
    await http.post("/jobs", json=DAILY)
    await http.patch("/jobs/daily", json={"queue": "mail"})

    back = await http.post("/jobs/daily/rollback", json={"version": 1})
    versions = (await http.get("/jobs/daily/versions")).json()["items"]

    assert (back.status_code, back.json()["queue"], back.headers["etag"]) == (200, "images", '"3"')
    assert [(one["version"], one["is_current"]) for one in versions] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert (await http.post("/jobs/daily/rollback", json={"version": 9})).status_code == 404


async def test_a_job_is_paused_with_a_note_and_resumed(http):
    await http.post("/jobs", json=DAILY)

    paused = (await http.post("/jobs/daily/pause", json={"note": "disk"})).json()
    resumed = (await http.post("/jobs/daily/resume")).json()

    assert (paused["status"], paused["pause_note"]) == ("paused", "disk")
    assert (resumed["status"], resumed["paused_at"]) == ("scheduled", None)


async def test_a_trigger_is_accepted_with_its_options(http, client):
    body = {"args": {"width": 3}, "delay": "1h", "priority": "low", "unique_key": "k", "retries": 0}

    answer = await http.post("/jobs/resize/trigger", json=body)

    made = await client.execution(answer.json()["execution_id"])
    assert (answer.status_code, answer.json()["status"]) == (202, "scheduled")
    assert answer.headers["location"] == f"/api/v1/executions/{made.execution_id}"
    assert (made.args, made.priority, made.retries) == ({"width": 3}, "low", 0)
    again = await http.post("/jobs/resize/trigger", json=body)
    assert again.json() == {
        "execution_id": str(made.execution_id),
        "status": "scheduled",
        "created": False,
    }


async def test_a_trigger_without_arguments_is_called_as_the_job_says(http, client):
    await http.post("/jobs", json={**DAILY, "args": {"width": 9}})

    answer = await http.post("/jobs/daily/trigger")

    made = await client.execution(answer.json()["execution_id"])
    assert made.args == {"width": 9}


async def test_a_trigger_by_id(http, client):
    id = (await client.job("resize")).job_id

    answer = await http.post(f"/jobs/{id}/trigger", json={})

    assert (answer.status_code, answer.json()["status"]) == (202, "queued")


async def test_who_is_in_the_way_of_a_trigger_is_named_and_can_be_overridden(http):
    await http.post("/jobs", json=DAILY)
    first = (await http.post("/jobs/daily/trigger")).json()["execution_id"]

    refused = await http.post("/jobs/daily/trigger")
    forced = await http.post("/jobs/daily/trigger", json={"force": True})

    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:daybell:problem:execution-in-the-way"
    assert refused.json()["execution_id"] == first
    assert forced.status_code == 202


async def test_a_trigger_that_has_to_wait_says_so(http):
    await http.post("/jobs", json={**DAILY, "overlap": "queue"})
    await http.post("/jobs/daily/trigger")

    answer = await http.post("/jobs/daily/trigger")

    assert answer.json()["status"] == "waiting"


async def test_a_backfill_can_be_looked_at_before(http, client):
    await http.post("/jobs", json=DAILY)
    span = {"since": "2026-01-01", "until": "2026-01-04"}

    dry = (await http.post("/jobs/daily/backfill", json={**span, "dry_run": True})).json()
    done = (await http.post("/jobs/daily/backfill", json=span)).json()

    assert (dry["ticks"], dry["created"], dry["backfill_id"]) == (3, 0, None)
    assert (done["ticks"], done["created"]) == (3, 3)
    assert (await client.count(job="daily")).total == 3
