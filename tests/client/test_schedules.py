"""Schedules through a client: declared, added at run time, replaced and removed, on every store."""

import json
from typing import Any, cast

import pytest

from daybell.client import Client
from daybell.client import schedules as room
from daybell.client.requests import read_definition
from daybell.client.schedules import find_schedule
from daybell.core.execution import State
from daybell.core.when import Misfire, at, cron, every
from daybell.errors import (
    DuplicateKey,
    ExecutionInTheWay,
    InvalidItems,
    InvalidName,
    InvalidSchedule,
    JobNotFound,
    ScheduleNotFound,
    UnknownJob,
    UsageError,
)
from daybell.store.protocol import Store
from tests.builders import TENANT, a_job, apply, claim, success
from tests.ports import port_of
from tests.refusals import refuses
from tests.stores import KINDS, open_place


@pytest.fixture(params=KINDS)
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def client(store):
    return Client(store)


async def only_schedule(client, job="report"):
    (schedule,) = await room.schedules(client, job)
    return schedule


async def test_a_definition_brings_its_schedule(client, place):
    await client.define(
        "report",
        schedule=every("1m"),
        args={"day": 1},
        misfire="skip",
        misfire_grace="7s",
        pause_after_failures=3,
    )

    schedule = await only_schedule(client)

    assert schedule.is_declared
    assert schedule.name == ""
    assert json.loads(schedule.args) == {"day": 1}
    assert json.loads(schedule.misfire) == {"policy": "skip", "grace": 7.0}
    assert schedule.next_at == every("1m").next_after(place.clock.now())


async def test_several_schedules_are_named_by_their_place(client):
    await client.define("report", schedule=["@hourly", {"every": "5m"}, None, "manual"])

    assert [one.name for one in await room.schedules(client, "report")] == ["0", "1"]


async def test_defining_the_same_again_leaves_the_cursor_alone(client, place):
    await client.define("report", schedule=every("1m"))
    before = await only_schedule(client)
    await place.clock.advance(90)

    await client.define("report", schedule=every("1m"))

    assert await only_schedule(client) == before


async def test_another_definition_begins_from_now_and_keeps_the_counts(client, place, fire):
    await client.define("report", schedule=every("1m"), overlap="allow")
    await place.clock.advance(60)
    await fire()

    await client.define("report", schedule=every("1h"), overlap="allow")

    schedule = await only_schedule(client)
    assert schedule.fired == 1
    assert schedule.next_at == every("1h").next_after(place.clock.now())


async def test_h_is_bound_to_the_job_where_it_fires_and_not_in_the_definition(client):
    first = await client.define("one", schedule="H H * * *")
    second = await client.define("two", schedule="H H * * *")

    assert first.definition.schedules == second.definition.schedules
    assert "H" in first.definition.schedules[0]
    one, two = await only_schedule(client, "one"), await only_schedule(client, "two")
    assert one.rule != two.rule
    assert "H" not in json.loads(one.rule)["cron"]


async def test_a_fixed_delay_and_a_reboot_say_so(client, place):
    await client.define("poll", schedule=every("1m", mode="delay"))
    await client.define("warm", schedule="@reboot")

    poll, warm = await only_schedule(client, "poll"), await only_schedule(client, "warm")

    assert (poll.delay, poll.next_at) == (60.0, place.clock.now() + 60)
    assert (warm.is_reboot, warm.next_at) == (True, None)


async def test_what_the_job_says_holds_for_schedules_that_say_nothing(client):
    await client.define(
        "report",
        schedule=[cron("0 9 * * *", jitter="5s", tz="Europe/Berlin"), cron("0 10 * * *")],
        jitter="30s",
        max_executions=7,
        dst={"fold": "both"},
        calendar={"country": "DE"},
    )

    first, second = [json.loads(one.rule) for one in await room.schedules(client, "report")]
    assert (first["jitter"], second["jitter"]) == (5.0, 30.0)
    assert first["max_executions"] == second["max_executions"] == 7
    assert first["dst"]["fold"] == second["dst"]["fold"] == "both"
    assert first["calendar"] == second["calendar"]


async def test_a_time_of_the_job_is_read_by_the_clock_of_each_schedule(client):
    await client.define(
        "report",
        schedule=cron("0 9 * * *", tz="Europe/Berlin"),
        start_at="2040-01-01T00:00:00",
    )

    assert json.loads((await only_schedule(client)).rule)["start_at"] == "2039-12-31T23:00:00Z"


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"schedule": "0 25 * * *"}, "schedule.hour", "25"),
        ({"schedule": "0 0 30 2 *"}, "schedule.cron", "never fires"),
        ({"schedule": {"at": "2020-01-01T00:00:00Z"}}, "schedule.at", "in the past"),
        ({"schedule": {"at": "tomorrow"}}, "schedule.at", "tomorrow"),
        ({"schedule": "@daily", "end_at": "2020-01-01T00:00:00Z"}, "end_at", "in the past"),
        (
            {
                "schedule": cron("@daily", start_at="2041-01-01T00:00:00Z"),
                "end_at": "2040-01-01T00:00:00Z",
            },
            "end_at",
            "before start_at",
        ),
        ({"schedule": 5}, "schedule", "list of those"),
        ({"schedule": [{"every": "1ms"}]}, "schedule.every", "10 ms"),
        ({"schedule": "@daily", "dst": "both"}, "dst", "not an object"),
        ({"schedule": ["@daily"] * 101}, "schedule", "101"),
        ({"overlap": "sometimes"}, "overlap", "queue_all"),
        ({"misfire": "never"}, "misfire", "fire_once"),
        ({"misfire_limit": 0}, "misfire_limit", "whole number"),
        ({"misfire_within": "soon"}, None, "soon"),
        ({"pause_after_failures": 0}, "pause_after_failures", "from 1"),
        ({"args": [1]}, "args", "by name"),
        ({"shedule": "@daily"}, "shedule", "did you mean 'schedule'"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(client, options, field, said):
    with pytest.raises(UsageError, match=said) as caught:
        await client.define("report", **options)

    assert field is None or caught.value.field == field
    with pytest.raises(JobNotFound):
        await client.job("report")


def test_a_misfire_may_be_said_in_three_ways():
    said = [
        read_definition("report", misfire="fire_all", misfire_limit=5),
        read_definition("report", misfire={"policy": "fire_all", "limit": 5}),
        read_definition("report", misfire=Misfire("fire_all", 5)),
    ]

    assert said[0] == said[1] == said[2]
    assert read_definition("report", misfire="fire_once").misfire == ""


async def test_a_delay_counts_from_now(client, place):
    await client.define("report", schedule={"delay": "5m"})

    assert (await only_schedule(client)).next_at == place.clock.now() + 300


async def test_code_whose_time_has_passed_can_still_be_started(client):
    past = read_definition("report", schedule=at("2020-01-01T00:00:00Z"))

    await client.define_jobs([past])

    assert (await only_schedule(client)).next_at is None


async def test_a_schedule_is_added_at_run_time(client, place):
    await client.define("report", args={"day": 1})

    made = await room.schedule(client, "report", "*/5 * * * *", name="often")

    assert (made.name, made.is_declared, json.loads(made.args)) == ("often", False, {"day": 1})
    assert await only_schedule(client) == made


async def test_one_of_the_same_name_is_replaced(client):
    await client.define("report")
    await room.schedule(client, "report", "@hourly", name="often")

    await room.schedule(client, "report", "@daily", args={"day": 2}, name="often")

    assert json.loads((await only_schedule(client)).args) == {"day": 2}


async def test_saying_the_same_again_changes_nothing(client, place):
    await client.define("report")
    first = await room.schedule(client, "report", every("1m"))
    await place.clock.advance(90)

    assert await room.schedule(client, "report", {"every": "60s"}) == first
    other = await room.schedule(client, "report", every("1m"), args={"day": 2})

    assert other.id != first.id
    assert len(await room.schedules(client, "report")) == 2


async def test_a_definition_leaves_what_was_added_at_run_time(client):
    await client.define("report", schedule="@hourly")
    await room.schedule(client, "report", "@daily", name="more")

    await client.define("report")

    assert [one.name for one in await room.schedules(client)] == ["more"]


async def test_a_schedule_is_removed_by_its_name(client):
    await client.define("report")
    await room.schedule(client, "report", "@hourly", name="often")

    await client.unschedule("report", "often")

    assert await room.schedules(client, "report") == []
    with pytest.raises(ScheduleNotFound, match=r"'often'; it has none"):
        await client.unschedule("report", "often")


async def test_one_that_was_declared_is_not_removed_by_hand(client):
    await client.define("report", schedule="@hourly")

    with refuses(UsageError, field="name"):
        await client.unschedule("report", "")


async def test_schedules_that_make_no_sense_are_refused(client):
    await client.define("report")

    with pytest.raises(JobNotFound):
        await room.schedule(client, "sned", "@hourly")
    with refuses(InvalidSchedule, field="at"):
        await room.schedule(client, "report", at("2020-01-01T00:00:00Z"))
    with pytest.raises(InvalidSchedule, match="use unschedule"):
        await room.schedule(client, "report", "manual")
    with refuses(UsageError, field="name"):
        await room.schedule(client, "report", "@hourly", name="0")
    with pytest.raises(InvalidName):
        await room.schedule(client, "report", "@hourly", name="a/b")
    with pytest.raises(JobNotFound):
        await room.schedules(client, "sned")


async def test_a_job_of_another_name_is_as_its_task_says(client):
    await client.define(
        "greet", queue="mail", retries=7, timeout="5s", schedule="@daily", args={"name": "you"}
    )

    made = await client.create("nightly", task="greet", args={"name": "Ada"}, retries=1)
    again = await client.create("weekly", task="nightly", schedule="@weekly")

    assert json.loads(made.definition.settings) == {"task": "greet"}
    assert json.loads(again.definition.settings) == {"task": "greet"}
    assert (made.definition.queue, made.definition.timeout) == ("mail", 5.0)
    assert made.definition.retry.retries == 1
    assert (made.definition.schedules, json.loads(made.definition.args)) == ((), {"name": "Ada"})
    assert (await room.standing(client, "weekly")).status == "scheduled"


async def test_a_job_of_another_name_is_new_and_has_a_task(client):
    await client.define("greet")
    await client.define("disk", kind="command", settings={"run": "df"})

    with refuses(DuplicateKey):
        await client.create("greet", task="greet")
    with pytest.raises(UnknownJob, match="knows no task named 'gret'"):
        await client.create("nightly", task="gret")
    with pytest.raises(UnknownJob, match="is a command, not a task"):
        await client.create("nightly", task="disk")


async def test_an_update_can_go_back_to_what_was(client):
    first = await client.define("report", schedule="@daily", misfire="skip", overlap="queue")

    second = await client.update("report", schedule="@hourly")
    third = await client.update("report", schedule="@daily")

    assert third.definition == first.definition
    assert second.definition.overlap == first.definition.overlap
    assert third.version == (await client.job("report")).version
    assert (await only_schedule(client)).rule == first.definition.schedules[0]


async def test_an_update_of_one_thing_leaves_a_schedule_that_is_over(client):
    await client.define_jobs([read_definition("report", schedule=at("2020-01-01T00:00:00Z"))])

    changed = await client.update("report", queue="slow")

    assert changed.definition.queue == "slow"
    with refuses(InvalidSchedule, field="schedule.at"):
        await client.update("report", jitter="5s")


# Overlap of schedules that were made at run time.


async def run_all(store, count):
    """Run so many executions that are waiting to be claimed, each to its end."""
    for _ in range(count):
        hands = await claim(store, 1)
        assert await apply(store, hands, success(hands.one)) == []
    assert (await claim(store)).executions == []


async def test_run_time_schedules_of_one_job_do_not_block_each_other(client, store, place, fire):
    await client.define("report")
    for name in ("a", "b", "c"):
        made = await room.schedule(client, "report", every("2s"), name=name)
        assert made.overlap_by == "schedule"

    for _ in range(3):
        await place.clock.advance(2)
        await fire()
        await run_all(store, 3)
    assert [(one.fired, one.skipped) for one in await room.schedules(client, "report")] == [
        (3, 0)
    ] * 3
    for _ in range(2):  # and nothing ends
        await place.clock.advance(2)
        await fire()

    assert [(one.fired, one.skipped) for one in await room.schedules(client, "report")] == [
        (4, 1)
    ] * 3


async def test_schedules_that_are_joined_pass_the_gate_of_the_job(client, place, fire):
    await client.define("report", overlap="skip")
    for name in ("a", "b"):
        made = await room.schedule(client, "report", every("2s"), name=name, overlap_by="job")
        assert made.overlap_by == "job"
    await room.schedule(client, "report", every("2s"), name="own")
    await place.clock.advance(2)

    await fire()

    counts = {one.name: (one.fired, one.skipped) for one in await room.schedules(client, "report")}
    assert sorted([counts["a"], counts["b"]]) == [(0, 1), (1, 0)]
    assert counts["own"] == (1, 0)
    with pytest.raises(ExecutionInTheWay):
        await client.trigger("report")


async def test_a_trigger_does_not_meet_the_gate_of_a_schedule(client, place, fire):
    await client.define("report", overlap="skip")
    await room.schedule(client, "report", every("2s"), name="own")
    await place.clock.advance(2)
    await fire()

    made = await client.trigger("report")

    assert (await client.execution(made.id)).status is State.QUEUED


async def test_why_says_whether_its_schedule_or_its_job_is_in_the_way(client, store, place, fire):
    for job in ("report", "mail"):
        await client.define(job, overlap="queue")
        options: Any = {"overlap_by": "job"} if job == "mail" else {}
        await room.schedule(client, job, every("2s"), name="often", **options)
    for _ in range(3):
        await place.clock.advance(2)
        await fire()
        await claim(store)

    told = {}
    for job in ("report", "mail"):
        for one in (await client.executions(job=job)).items:
            told[job, one.status] = (await client.why(one.execution_id)).detail

    waits = "it waits until another execution of"
    assert told["report", State.WAITING].startswith(f"{waits} the same schedule of report has")
    assert told["mail", State.WAITING].startswith(f"{waits} mail has ended")
    for job, of in (("report", "schedule"), ("mail", "job")):
        words = told[job, State.SKIPPED]
        assert words.startswith("it was skipped (overlap): execution ")
        assert f" of the same {of} was in its way, and still is (running)" in words


async def test_overlap_by_can_be_changed_and_is_checked(client):
    await client.define("report")
    made = await room.schedule(client, "report", "@hourly", name="often", overlap_by="job")
    assert await room.schedule(client, "report", "@hourly", name="often", overlap_by="job") == made

    again = await room.schedule(client, "report", "@hourly", name="often")

    assert (again.id, again.overlap_by) == (made.id, "schedule")
    with refuses(UsageError, field="overlap_by"):
        await client.schedule("report", "@hourly", overlap_by="tenant")


# Many at a time.


class Counted:
    """A store that counts schedules and calls."""

    def __init__(self, store):
        self._store = store
        self.schedules = self
        self.read = self.puts = self.looks = 0

    def __getattr__(self, name):
        return getattr(port_of(self._store, name), name)

    async def list_schedules(self, *args, **options):
        found = await self._store.schedules.list_schedules(*args, **options)
        self.read += len(found)
        return found

    async def list_job_schedules(self, *args, **options):
        page = await self._store.schedules.list_job_schedules(*args, **options)
        self.read += len(page.items)
        return page

    async def list_ticks(self, *args, **options):
        self.looks += 1
        return await self._store.schedules.list_ticks(*args, **options)

    async def put_schedules(self, *args):
        self.puts += 1
        await self._store.schedules.put_schedules(*args)


async def test_schedules_are_read_page_by_page(client):
    await client.define("report", schedule=["@daily", "@weekly"])
    items = [{"job": "report", "when": "@hourly", "name": f"n{n}"} for n in range(1_010)]
    await client.schedule_many(items)
    await client.schedule("report", at("2099-01-01T00:00:00Z"), name="last")

    first = await room.schedules_page(client, "report", limit=3)
    second = await room.schedules_page(client, "report", limit=1, cursor=first.next_cursor)
    found = await room.schedules(client, "report")

    made = [one.id for one in found if not one.is_declared and one.name != "last"]
    assert {one.name for one in first.items[:2]} == {"0", "1"}
    assert [one.id for one in (first.items[2], *second.items)] == sorted(made)[:2]
    names = sorted(one["name"] for one in items)
    assert [one.name for one in found] == ["0", "1", "last", *names]


async def test_a_resume_reads_the_ticks_of_what_came_due_only(client, store, place):
    await client.define("report")
    items = [{"job": "report", "when": "@yearly", "name": f"n{n}"} for n in range(50)]
    await room.schedule_many(
        client, [*items, {"job": "report", "when": every("1m"), "name": "due"}]
    )
    await client.pause("report")
    await place.clock.advance(3_600)
    counted = Counted(store)

    await Client(cast("Store", counted)).resume("report")

    assert counted.looks == 1
    (due,) = [one for one in await room.schedules(client, "report") if one.name == "due"]
    assert (due.missed, due.is_paused) == (60, False)


async def test_a_schedule_costs_the_same_however_many_the_job_has(client, store):
    await client.define("report")
    many = [{"job": "report", "when": "@hourly", "name": f"n{n}"} for n in range(200)]
    await room.schedule_many(client, many)
    counted = Counted(store)
    other = Client(cast("Store", counted))

    await other.schedule("report", "@hourly", name="new")
    await other.schedule("report", "@daily", name="n7")
    await other.schedule("report", "@daily", name="n7")
    await other.unschedule("report", "n8")

    assert counted.read == 1 + 2 + 1 + 1
    assert len(await room.schedules(client, "report")) == 200


async def test_many_schedules_are_made_in_one_call(store):
    counted = Counted(store)
    client = Client(cast("Store", counted))
    await client.define("report")
    await client.define("mail")
    items = [
        {"job": ("report", "mail")[n % 2], "when": every("1h"), "args": {"n": n}, "name": f"n{n}"}
        for n in range(50)
    ]
    items[3]["overlap_by"] = "job"

    made = await room.schedule_many(client, items)

    assert [one.name for one in made] == [f"n{n}" for n in range(50)]
    assert [json.loads(one.args) for one in made[:2]] == [{"n": 0}, {"n": 1}]
    assert [one.overlap_by for one in made[2:5]] == ["schedule", "job", "schedule"]
    assert made == [await find_schedule(client, one.job, one.name) for one in made]
    assert await room.schedule_many(client, items) == made  # which changes nothing
    assert counted.puts == 1
    assert await room.schedule_many(client, []) == []


async def test_the_jobs_of_many_schedules_are_read_together(client, store, monkeypatch):
    names = [f"job-{n}" for n in range(1200)]
    for start in range(0, len(names), 100):
        await store.catalog.define_jobs(TENANT, [a_job(one) for one in names[start : start + 100]])
    reads = []
    get_jobs = type(store.catalog).get_jobs
    monkeypatch.setattr(type(store.catalog), "get_job", None)
    monkeypatch.setattr(
        type(store.catalog),
        "get_jobs",
        lambda self, tenant, some: reads.append(len(some)) or get_jobs(self, tenant, some),
    )

    made = await room.schedule_many(client, [{"job": one, "when": "@hourly"} for one in names])

    assert [one.job for one in made] == names
    assert reads == [1000, 200]


async def test_all_that_is_wrong_with_many_is_told_at_once_and_nothing_is_made(client):
    await client.define("report")
    good = {"job": "report", "when": "@hourly"}
    items = [
        good,
        good,  # the same again
        {"job": "sned", "when": "@hourly"},
        {"job": "report", "when": "@dayly"},
        {**good, "nam": "x"},
        {"when": "@hourly"},
        {"job": "report"},
        "report",
        {**good, "name": "a"},
        {**good, "name": "a", "args": {"day": 2}},
        {**good, "overlap_by": "me"},
        {**good, "args": [1]},
        {"job": ["report"], "when": "@hourly"},
    ]

    with refuses(InvalidItems, field="items") as caught:
        await room.schedule_many(client, items)

    errors = caught.value.errors
    assert list(errors) == [2, 3, 4, 5, 6, 7, 9, 10, 11, 12]
    assert isinstance(errors[2], JobNotFound) and isinstance(errors[3], InvalidSchedule)
    told = str(caught.value)
    for words in (
        "items[2]: no job named 'sned'",
        "items[4]: a schedule has no 'nam'; did you mean 'name'",
        "items[5]: job is missing",
        "items[6]: when is missing",
        "items[7]: a schedule is given as a dict",
        "items[9]: items[8] has the same job and name and differs",
        "items[10]: overlap_by 'me'",
    ):
        assert words in told
    assert await room.schedules(client, "report") == []


async def test_one_call_has_a_limit(client):
    await client.define("report")

    with refuses(UsageError, field="items"):
        await room.schedule_many(client, [{"job": "report", "when": "@hourly"}] * 10_001)
    with pytest.raises(InvalidItems) as caught:
        await room.schedule_many(client, [{"job": "report", "when": "@hourly", "name": "/"}] * 30)
    assert str(caught.value).endswith("and 10 more") and len(caught.value.errors) == 30
