"""`/schedules`: the calendar of all schedules, and previews of those that are not stored."""

import pytest

from daybell.core.limits import FIRES_MAX
from tests.builders import TENANT, a_firing, a_tick


async def test_the_calendar_has_the_next_times_of_all_schedules(http, client):
    await client.create("nightly", command="ls", schedule={"cron": "0 2 * * *", "tz": "Asia/Tokyo"})
    await client.create("often", command="ls", schedule={"every": "10m"})
    await client.create("idle", command="ls", schedule={"every": "10m"})
    await client.pause("idle")
    await client.create("once", command="ls", schedule={"at": "2999-01-01T00:00:00Z"})
    params = {"since": "2100-01-01T00:00:00Z", "until": "2100-01-01T18:00:00Z"}

    page = (await http.get("/schedules/upcoming", params=params)).json()

    fires = {one["job"]: [tick["at"] for tick in one["fires"]] for one in page["items"]}
    assert fires["nightly"] == ["2100-01-01T17:00:00Z"]
    assert len(fires["often"]) == 18 * 6
    assert (fires["idle"], fires["once"]) == ([], [])
    assert {tick["decision"] for one in page["items"] for tick in one["fires"]} == {"upcoming"}
    assert page["next_cursor"] is None


async def test_the_calendar_begins_now_and_has_a_day(http, client):
    await client.create("hourly", command="ls", schedule="0 * * * *")

    (entry,) = (await http.get("/schedules/upcoming")).json()["items"]

    assert len(entry["fires"]) in (24, 25)
    assert entry["description"] and not entry["has_more"]


async def test_ticks_on_record_are_in_the_calendar(http, client):
    await client.create("nightly", command="ls", schedule={"every": "1h"})
    (schedule,) = await client.store.schedules.list_schedules(TENANT)
    tick = a_tick(schedule.next_at, job=schedule.job)
    assert await client.store.schedules.fire([a_firing(schedule, tick)]) == [True]

    (entry,) = (await client.upcoming(since="1h")).items

    assert [one.decision for one in entry.fires][:1] == ["fired"]
    assert entry.fires[0].execution_id is not None


async def test_a_schedule_has_a_bounded_number_of_ticks_and_a_page_of_schedules(http, client):
    for name in ("a", "b", "c"):
        await client.create(name, command="ls", schedule={"every": "1s"})
    first = (await http.get("/schedules/upcoming", params={"limit": 2})).json()
    rest = await http.get("/schedules/upcoming", params={"cursor": first["next_cursor"]})

    items = first["items"] + rest.json()["items"]
    assert sorted(one["job"] for one in items) == ["a", "b", "c"]
    assert all(len(one["fires"]) == FIRES_MAX and one["has_more"] for one in items)


@pytest.mark.parametrize(
    "params",
    [
        {"since": "2026-01-02", "until": "2026-01-01"},
        {"since": "2026-01-01", "until": "2028-01-01"},
        {"until": "soon"},
    ],
)
async def test_a_range_that_makes_no_sense_is_refused(http, params):
    answer = await http.get("/schedules/upcoming", params=params)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "until"


@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        ("0 9 * * *", "2030-01-01T09:00:00+00:00"),
        ({"cron": "0 9 * * *", "tz": "Asia/Tokyo"}, "2030-01-01T09:00:00+09:00"),
        ({"every": "1d"}, None),
        ({"rrule": "FREQ=DAILY;BYHOUR=7;BYMINUTE=0;BYSECOND=0"}, "2030-01-01T07:00:00+00:00"),
        ({"at": "2031-01-01T00:00:00Z"}, "2031-01-01T00:00:00+00:00"),
    ],
)
async def test_any_form_of_a_schedule_is_previewed_and_nothing_is_stored(
    http, client, schedule, first
):
    answer = await http.post(
        "/schedules/preview", json={"schedule": schedule, "start": "2030-01-01T00:00:00Z"}
    )
    said = answer.json()

    assert answer.status_code == 200, answer.text
    assert said["description"] and len(said["next"]) in (1, 10)
    assert first in (None, said["next"][0])
    assert not await client.store.schedules.list_schedules(TENANT)


async def test_a_wrong_schedule_is_refused_with_what_is_wrong(http):
    answer = await http.post("/schedules/preview", json={"schedule": "61 * * * *"})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-schedule")
