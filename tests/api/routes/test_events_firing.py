"""Jobs that events fire, over HTTP: definition, events one by one and in batches, and the story."""

import json

import pytest

BATCH = {"content-type": "application/cloudevents-batch+json"}
ALWAYS = {"since": "2026-01-01T00:00:00Z", "until": "9999-01-01T00:00:00Z"}
JOB = {"name": "index", "command": "true", "schedule": {"event": "file.uploaded"}}


def event(id="1", **data):
    said = {"specversion": "1.0", "id": id, "source": "/s3", "type": "file.uploaded"}
    return {**said, "data": data}


async def made(http, **fields):
    answer = await http.post("/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.json()
    return answer.json()


async def test_an_event_fires_a_job_and_names_its_executions(http):
    job = await made(http)

    first = (await http.post("/events", json=event(path="a"))).json()
    again = (await http.post("/events", json=event(path="a"))).json()

    (id,) = first["executions"]
    assert (first["created"], again["created"], again["executions"]) == (True, False, [id])
    found = (await http.get(f"/executions/{id}")).json()
    assert (found["job"], found["status"]) == ("index", "queued")
    assert found["args"]["event"]["data"] == {"path": "a"}
    assert found["fired_by"] == {"event_id": "1", "source": "/s3", "type": "file.uploaded"}
    moment = found["timeline"][0]
    assert (moment["event"], moment["type"], moment["event_id"]) == ("fired", "file.uploaded", "1")
    why = (await http.get(f"/executions/{id}/why")).json()
    assert "the event file.uploaded (1) fired it" in why["detail"]
    assert (job["status"], job["next_run_at"]) == ("manual", None)
    shown = (await http.get("/jobs/index")).json()
    assert shown["status"] == "queued"
    assert shown["schedules"][0]["description"] == "When an event file.uploaded comes"
    why = (await http.get("/jobs/index/why")).json()
    assert [one["code"] for one in why["schedules"]] == ["event"]


async def test_filters_and_arguments_are_part_of_the_definition(http):
    schedule = {"event": "file.uploaded", "filter": {"size": {"gt": 0}}}
    job = await made(http, schedule=schedule, args={"path": {"event": "data.path"}, "n": 1})

    small = (await http.post("/events", json=event("1", size=0, path="a"))).json()
    large = (await http.post("/events", json=event("2", size=9, path="b"))).json()

    assert [one["rule"] for one in job["schedules"]] == [schedule]
    assert small["executions"] == []
    found = (await http.get(f"/executions/{large['executions'][0]}")).json()
    assert found["args"] == {"path": "b", "n": 1}
    triggered = (await http.post("/jobs/index/trigger")).json()
    found = (await http.get(f"/executions/{triggered['execution_id']}")).json()
    assert found["args"] == {"n": 1}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"schedule": {"event": ""}}, "schedule"),
        ({"schedule": {"event": "a", "filter": {"size": {"above": 1}}}}, "schedule"),
        ({"schedule": {"event": "a", "tz": "UTC"}}, "schedule"),
        ({"schedule": {"filter": {"size": 1}}}, "schedule"),
        ({"args": {"path": {"event": "nowhere"}}}, "args"),
        ({"max_executions": 3}, "max_executions"),
    ],
)
async def test_a_wrong_definition_is_refused_by_field(http, fields, field):
    answer = await http.post("/jobs", json={**JOB, **fields})

    assert answer.status_code == 422, answer.json()
    assert answer.json()["errors"][0]["field"].split(".")[0] in (field, "filter", "event", "tz")


async def test_a_list_mixes_events_and_times(http):
    job = await made(http, schedule=["0 9 * * *", {"event": "file.uploaded"}], overlap="allow")

    answer = (await http.post("/events", json=event())).json()

    assert job["status"] == "scheduled"
    assert len(answer["executions"]) == 1


async def test_a_batch_is_stored_and_fires_in_one_request(http):
    await made(http)

    answer = await http.post(
        "/events", content=json.dumps([event("1"), event("2"), event("1")]), headers=BATCH
    )
    plain = await http.post("/events", json=[{"type": "file.uploaded"}, {"type": "other"}])

    assert (answer.status_code, plain.status_code) == (202, 202)
    items = answer.json()["items"]
    assert [one["created"] for one in items] == [True, True, False]
    assert items[0]["executions"] == items[2]["executions"] != items[1]["executions"]
    assert [len(one["executions"]) for one in plain.json()["items"]] == [1, 0]
    entries = (await http.get("/audit", params={"action": "event.publish"})).json()["items"]
    assert [one["after"]["count"] for one in entries] == [2, 3]


async def test_a_repeated_batch_without_ids_counts_once(http):
    await made(http)
    key = {"Idempotency-Key": "k-1"}

    answers = [
        await http.post("/events", json=[{"type": "file.uploaded"}], headers=key) for _ in range(2)
    ]

    assert answers[0].json() == answers[1].json()
    assert len((await http.get("/executions")).json()["items"]) == 1


async def test_a_paused_job_misses_an_event_and_a_backfill_runs_it(http):
    await made(http, args={"path": {"event": "data.path"}})
    await http.post("/jobs/index/pause")

    missed = (await http.post("/events", json=event(path="a"))).json()
    await http.post("/jobs/index/resume")
    (schedule,) = (await http.get("/jobs/index")).json()["schedules"]
    filled = await http.post("/jobs/index/backfill", json=ALWAYS)

    assert (missed["executions"], schedule["missed"]) == ([], 1)
    assert filled.status_code in (200, 201, 202), filled.json()
    (tick,) = filled.json()["items"]
    found = (await http.get(f"/executions/{tick['execution_id']}")).json()
    assert found["args"] == {"path": "a"}
    assert found["fired_by"]["event_id"] == "1"


async def test_an_event_that_fired_is_not_backfilled(http):
    await made(http)
    await http.post("/events", json=event())

    filled = await http.post("/jobs/index/backfill", json=ALWAYS)

    assert filled.json()["items"] == []
