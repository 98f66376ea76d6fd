"""The client and definitions: dependencies, versions that come back, and what a job may say."""

import json

import pytest

from daybell import cron, every
from daybell.client import Client
from daybell.client import schedules as room
from daybell.core.job import JobDefinition
from daybell.core.limits import DEPENDENCIES_MAX
from daybell.core.retry import Retry
from daybell.errors import (
    InvalidRetry,
    InvalidSchedule,
    JobNotFound,
    UsageError,
    VersionConflict,
)
from tests.refusals import refuses


@pytest.fixture
async def client(store):
    return Client(store)


async def test_another_schedule_keeps_the_options_that_it_does_not_name(client):
    await client.define("report", schedule=every("5m", mode="delay", jitter="2s", tz="Asia/Tokyo"))

    async def change(schedule, **fields):
        job = await client.update("report", schedule=schedule, **fields)
        return [json.loads(text) for text in job.definition.schedules]

    tokyo = {"tz": "Asia/Tokyo", "jitter": 2.0}
    assert await change({"every": "10m"}) == [{"every": "10m", "mode": "delay", **tokyo}]
    assert await change([cron("0 9 * * *"), "0 10 * * *"]) == [
        {"cron": "0 9 * * *", **tokyo},
        {"cron": "0 10 * * *", **tokyo},
    ]
    # In their order, if there are as many as before.
    mixed = [{"cron": "0 9 * * *", "tz": "Europe/Rome"}, {"cron": "0 10 * * *", "jitter": None}]
    assert await change(mixed) == [
        {"cron": "0 9 * * *", "tz": "Europe/Rome", "jitter": 2.0},
        {"cron": "0 10 * * *", "tz": "Asia/Tokyo"},
    ]
    assert await change(["0 1 * * *", "0 2 * * *"]) == [
        {"cron": "0 1 * * *", "tz": "Europe/Rome", "jitter": 2.0},
        {"cron": "0 2 * * *", "tz": "Asia/Tokyo"},
    ]
    with pytest.raises(InvalidSchedule, match="differ in tz; say it with the new one"):
        await change("0 3 * * *")
    text = "DTSTART;TZID=Asia/Kolkata:20300101T090000\nRRULE:FREQ=DAILY"
    assert [one["tz"] for one in await change({"rrule": text}, jitter="9s")] == ["Asia/Kolkata"]
    assert await change("manual") == []


async def test_dependencies_are_kept_and_changed(client):
    for name in ("extract", "load"):
        await client.define(name)

    made = await client.create("report", task="load", dependencies=["extract", "load", "extract"])
    same = await client.update("report", description="daily")
    changed = await client.update("report", dependencies=["load"])
    none = await client.update("report", dependencies=None)

    assert made.definition.dependencies == same.definition.dependencies == ("extract", "load")
    assert changed.definition.dependencies == ("load",)
    assert none.definition.dependencies == ()


async def test_how_often_to_retry_is_changed_without_how_long_to_wait(client):
    await client.define("load", retries=Retry.fixed("5s", retries=9))

    changed = await client.update("load", retries=2)

    assert changed.definition.retry == Retry.fixed("5s", retries=2)
    with pytest.raises(InvalidRetry):
        await client.update("load", retries=-1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("extract", "must be a list of names"),
        (5, "must be a list of names"),
        (["report"], "cannot depend on itself"),
        (["a/b"], "contains '/'"),
        ([5], "must be text"),
        (["nothing"], "no job named 'nothing' to depend on, as 'report' does; create it first"),
        ([f"job-{n}" for n in range(DEPENDENCIES_MAX + 1)], "1,001 dependencies are too many"),
    ],
)
async def test_dependencies_that_make_no_sense_are_refused(client, given, message):
    await client.define("extract")

    with pytest.raises(UsageError, match=message) as caught:
        await client.define("report", dependencies=given)

    assert caught.value.field == "dependencies"
    with pytest.raises(JobNotFound):
        await client.job("report")


async def test_dependencies_do_not_lead_in_a_circle(client):
    await client.define("a")
    await client.define("b", dependencies=["a"])
    await client.define("c", dependencies=["b"])

    with refuses(UsageError, field="dependencies"):
        await client.update("a", dependencies=["c"])
    await client.define("d", dependencies=["b", "c"])  # two ways to the same are fine
    await client.delete_job("a")
    await client.define("e", dependencies=["d"])  # what d lacks is not e's concern

    assert (await client.job("e")).definition.dependencies == ("d",)


async def test_an_old_version_comes_back_as_a_new_one_with_its_schedules(client):
    await client.define("report", schedule="@hourly", timeout="5s")
    await client.update("report", schedule="@daily", timeout="9s")
    await room.schedule(client, "report", "@weekly", name="extra")

    back = await client.rollback("report", 1, author="ada")

    assert (back.version, back.author, back.definition.timeout) == (3, "ada", 5.0)
    rules = {one.name: one.rule for one in await room.schedules(client, "report")}
    assert "0 * * * *" in rules[""] or "@hourly" in rules[""]
    assert set(rules) == {"", "extra"}
    assert [job.version for job in (await client.versions_page("report")).items] == [3, 2, 1]
    assert (await client.rollback("report", 3)).version == 3


async def test_a_version_comes_back_only_if_nobody_was_faster(client):
    await client.define("report", timeout="5s")
    await client.update("report", timeout="9s", expect=1)

    with pytest.raises(VersionConflict, match="is at version 2, not 1"):
        await client.rollback("report", 1, expect=1)
    with pytest.raises(VersionConflict, match="is at version 2, not 1"):
        await client.update("report", timeout="7s", expect=1)
    with refuses(JobNotFound):
        await client.rollback("report", 7)
    await client.delete_job("report")
    with pytest.raises(JobNotFound):
        await client.rollback("report", 1)


async def test_a_version_does_not_come_back_into_a_circle(client):
    await client.define("b")
    await client.define("a", dependencies=["b"])
    await client.update("a", dependencies=[])
    await client.update("b", dependencies=["a"])

    with refuses(UsageError, field="dependencies"):
        await client.rollback("a", 1)


@pytest.mark.parametrize(
    "option",
    [
        {"dst": {"gap": "skip"}},
        {"jitter": "5s"},
        {"start_at": "2027-01-01T00:00:00Z"},
        {"end_at": "2099-01-01T00:00:00Z"},
        {"max_executions": 3},
        {"calendar": {"country": "DE"}},
    ],
)
async def test_what_is_said_of_a_schedule_needs_one(client, option):
    (field,) = option

    for schedule in (None, "manual", []):
        with pytest.raises(UsageError, match=f"{field} is about a schedule") as caught:
            await client.define("report", schedule=schedule, **option)
        assert (caught.value.field or "").partition(".")[0] == field
    await client.define("report", schedule="@daily", **option)


async def test_what_cannot_be_kept_is_refused_by_its_name(client):
    for field, value in {
        "description": "\ud800",
        "user_id": "\ud800",
        "schedule": {"event": ""},
    }.items():
        with pytest.raises(UsageError) as caught:
            await client.define("report", **{field: value})
        assert (caught.value.field or "").partition(".")[0] == field


def test_a_definition_without_dependencies_is_kept_as_before_they_existed():
    assert JobDefinition.from_json(JobDefinition(name="a").to_json()).dependencies == ()
