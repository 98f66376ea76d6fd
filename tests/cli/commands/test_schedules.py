"""Schedules from the command line: made, changed, paused, backfilled and explained."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from daybell import Calendar, every
from daybell.cli.doctor.report import judge_ahead, judge_schedules
from daybell.client import schedules as room
from daybell.client.backfill import backfill
from daybell.core.ids import mint
from daybell.core.limits import NEXT_SCHEDULES_MAX
from daybell.core.schedule import NewSchedule, Schedule
from daybell.core.when import cron
from daybell.core.worker import Leadership
from tests.cli.terminal import Running, as_json, daybell


@pytest.fixture
async def client(client):
    """A client of the folder's store, which knows the task `greet`."""
    await client.define("greet", queue="mail", retries=7)
    return client


async def test_a_job_is_made_of_a_task_and_a_time(client, command):
    made = command(
        "jobs", "create", "nightly", "--task", "greet", "--cron", "0 2 * * *",
        "--tz", "Europe/Rome",
        "--args", '{"name": "Ada"}', "--overlap", "queue", "--misfire", "fire_all",
        "--misfire-limit", "3", "--calendar", "DE-BY", "--retries", "0", "--fold", "both",
    )  # fmt: skip

    assert made.code == 0, made.err
    assert "nightly is at version 1 and runs next" in made.out
    assert "Europe/Rome" in made.out
    definition = (await client.job("nightly")).definition
    assert json.loads(definition.settings) == {"task": "greet"}
    assert json.loads(definition.args) == {"name": "Ada"}
    assert (definition.queue, definition.retry.retries, definition.overlap) == ("mail", 0, "queue")
    assert json.loads(definition.misfire) == {"policy": "fire_all", "limit": 3}
    (rule,) = map(json.loads, definition.schedules)
    assert (rule["cron"], rule["tz"]) == ("0 2 * * *", "Europe/Rome")
    assert rule["calendar"] == {"country": "DE", "subdivision": "BY"}
    assert rule["dst"]["fold"] == "both"


async def test_what_becomes_of_failures_can_be_said(client, command):
    made = command(
        "jobs", "create", "careful", "--task", "greet", "--backoff", '{"delays": ["1s", "10s"]}',
        "--max-crashes", "1", "--on-lost", "dead", "--cron", "0 2 * * *", "--tz", "Europe/Rome",
    )  # fmt: skip
    changed = command("jobs", "update", "careful", "--backoff", "exponential", "--manual")
    run = command("jobs", "trigger", "careful", "--retries", "4", "--expires", "1h", "--json")

    assert (made.code, changed.code) == (0, 0), made.err + changed.err
    [now, before] = (await client.versions_page("careful")).items
    assert before.definition.retry.waits == (1.0, 10.0)
    assert (now.definition.retry.backoff, now.definition.schedules) == ("exponential", ())
    assert (now.definition.max_crashes, now.definition.on_lost) == (1, "dead")
    execution = await client.execution(as_json(run)["execution_id"])
    assert execution.retries == 4
    assert execution.expires_at == execution.run_at + timedelta(hours=1)


async def test_a_job_may_have_several_times_of_several_kinds(client, command):
    said = as_json(
        command(
            "jobs",
            "create",
            "often",
            "--task",
            "greet",
            "--every",
            "5m",
            "--mode",
            "delay",
            "--cron",
            "@daily",
            "--cron",
            "@hourly",
            "--at",
            "2040-01-01T00:00:00Z",
            "--delay",
            "1h",
            "--rrule",
            "FREQ=WEEKLY",
            "--json",
        )
    )

    rules = [one["rule"] for one in said["schedules"]]
    kinds = [key for rule in rules for key in ("cron", "every", "at", "rrule") if key in rule]
    assert kinds == ["cron", "cron", "every", "at", "at", "rrule"]
    assert said["status"] == "scheduled"
    assert all(one["description"] for one in said["schedules"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["create", "x"], 2, "say what it runs: --task NAME"),
        (["create", "x", "--task", "gret"], 2, "knows no task named 'gret'"),
        (["create", "greet", "--task", "greet"], 1, "there is a job named 'greet' already"),
        (["create", "x", "--task", "greet", "--cron", "0 25 * * *"], 2, "25"),
        (["create", "x", "--task", "greet", "--cron", "0 0 30 2 *"], 2, "never fires"),
        (["create", "x", "--task", "greet", "--at", "2020-01-01T00:00:00Z"], 2, "in the past"),
        (["create", "x", "--task", "greet", "--tz", "Europe/Rome"], 2, "tz is about a schedule"),
        (["create", "x", "--task", "greet", "--cron", "@daily", "--tz", "Mars"], 2, "no time zone"),
        (["create", "x", "--task", "greet", "--mode", "delay"], 2, "--mode is for --every"),
        (["create", "x", "--task", "greet", "--args", "[1]"], 2, "by name"),
        (["create", "x", "--task", "greet", "--overlap", "x"], 2, "queue_all"),
        (["update", "greet"], 2, "say what to change"),
        (["update", "sned", "--queue", "x"], 1, "sned"),
        (["update", "greet", "--jitter", "5s"], 2, "no schedule"),
        (["update", "greet", "--manual", "--every", "5m"], 2, "--manual means no times"),
        (["pause", "sned"], 1, "sned"),
        (["resume", "sned"], 1, "sned"),
        (["backfill", "greet", "--since", "2026-01-01", "--yes"], 2, "no schedule"),
        (["backfill", "sned", "--since", "2026-01-01"], 1, "sned"),
        (["backfill", "greet", "--since", "soon"], 2, "soon"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(command, words, code, said):
    ended = command("jobs", *words)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


async def test_a_changed_time_stays_one_of_the_same_clock(client, command):
    await client.define("report", schedule=cron("0 2 * * *", tz="Europe/Rome"))

    assert "At 03:00, Europe/Rome" in command("jobs", "update", "report", "--cron", "0 3 * * *").out
    elsewhere = command("jobs", "update", "report", "--cron", "0 3 * * *", "--tz", "UTC").out

    assert "At 03:00, UTC" in elsewhere


async def test_a_change_leaves_the_rest_as_it_is(client, command):
    await client.define(
        "report", schedule=cron("@daily", jitter="5s"), args={"day": 1}, misfire="skip", timeout=9
    )

    assert command("jobs", "update", "report", "--queue", "slow", "--jitter", "30s").code == 0
    changed = (await client.job("report")).definition
    assert command("jobs", "update", "report", "--every", "5m").code == 0
    other = (await client.job("report")).definition
    assert command("jobs", "update", "report", "--manual").code == 0
    manual = (await client.job("report")).definition

    assert (changed.queue, changed.timeout, changed.args) == ("slow", 9, '{"day":1}')
    assert json.loads(changed.schedules[0])["jitter"] == 30.0
    assert (other.queue, other.misfire) == (changed.queue, changed.misfire)
    assert [json.loads(text) for text in other.schedules] == [{"every": "5m", "jitter": 30.0}]
    assert manual.schedules == ()
    assert await room.schedules(client, "report") == []


async def test_another_time_keeps_calendar_and_jitter_unless_they_are_reset(client, command):
    calendar = Calendar(dates=["2030-12-24"], on_closed="next_open")
    await client.define(
        "report", schedule=cron("0 2 * * *", calendar=calendar, jitter="5s", gap="skip")
    )

    said = command("jobs", "update", "report", "--cron", "0 3 * * *").out
    kept = json.loads((await client.job("report")).definition.schedules[0])
    words = ["--cron", "0 4 * * *", "--no-calendar", "--no-jitter", "--fold", "both"]
    assert command("jobs", "update", "report", *words).code == 0
    reset = json.loads((await client.job("report")).definition.schedules[0])

    assert "not on 1 other date, but on the next open day, late by up to 5 seconds" in said
    assert kept == {
        "cron": "0 3 * * *",
        "calendar": calendar.to_dict(),
        "jitter": 5.0,
        "dst": {"gap": "skip", "fold": "first"},
    }
    assert reset == {"cron": "0 4 * * *", "dst": {"gap": "skip", "fold": "both"}}


async def test_a_job_after_any_is_made_and_shown(client, command):
    words = ["--task", "greet", "--after-any", "greet", "--cron", "0 2 * * *", "--tz", "Asia/Tokyo"]

    assert command("jobs", "create", "report", *words).code == 0
    shown = command("jobs", "show", "report").out

    assert "When greet has succeeded" in shown
    assert "when any of these has succeeded" in shown
    assert "At 02:00, Asia/Tokyo" in shown
    assert "overlap" in shown and "queue" in shown


async def test_a_job_with_many_schedules_takes_a_line_of_a_table(client, command):
    items = [{"job": "greet", "when": every("5m"), "name": f"user-{n}"} for n in range(500)]
    await room.schedule_many(client, items)

    listed = command("jobs", "list").out
    shown = command("jobs", "show", "greet").out
    said = as_json(command("jobs", "show", "greet", "--json"))
    page = as_json(command("jobs", "schedules", "greet", "--limit", "3", "--json"))
    rest = command("jobs", "schedules", "greet", "--limit", "2", "--cursor", page["next_cursor"])

    assert "Every 5 minutes; Every 5 minutes; and at least 19 more" in listed
    assert max(map(len, listed.splitlines())) < 300
    assert len(said["schedules"]) == NEXT_SCHEDULES_MAX
    assert said["has_more_schedules"]
    assert "daybell jobs schedules greet" in shown
    names = {one["name"] for one in said["schedules"]}  # of one time: by id
    assert {one["name"] for one in page["items"]} < names
    assert {*re.findall(r"user-\d+", rest.out)} < names - {one["name"] for one in page["items"]}
    assert "Every 5 minutes" in rest.out
    assert "--cursor" in rest.out


async def test_jobs_of_which_any_fires_are_given_by_id_and_all_that_are_missing_named(
    client, command
):
    id, unknown = str((await client.job("greet")).job_id), str(mint())

    made = command("jobs", "create", "report", "--task", "greet", "--after-any", id)
    no = ["--after-any", "nope", "--after-any", unknown]
    refused = command("jobs", "create", "other", "--task", "greet", *no)

    assert made.code == 0, made.err
    assert "When greet has succeeded" in command("jobs", "show", "report").out
    assert refused.code != 0
    assert f"there are no jobs named 'nope' or with the id {unknown} to depend on" in refused.err


async def test_a_job_is_shown_with_what_it_does_and_when(client, command):
    await client.define("report", schedule=cron("0 9 * * mon-fri", tz="Europe/Berlin"))
    await room.schedule(client, "report", every("5m"), name="often")
    await client.pause("greet", "too loud")

    listed = command("jobs", "list")
    shown = command("jobs", "show", "report")
    paused = command("jobs", "show", "greet")
    data = as_json(command("jobs", "show", "report", "--json"))

    assert "scheduled" in listed.out
    assert "paused" in listed.out
    assert "schedule often  Every 5 minutes" in shown.out
    assert "09:00:00+01:00 Europe/Berlin" in shown.out or "+02:00 Europe/Berlin" in shown.out
    assert "too loud" in paused.out
    assert data["status"] == "scheduled"
    assert data["next_run_at"] == min(one["next_run_at"] for one in data["schedules"])
    assert [one["name"] for one in data["schedules"]] == ["", "often"]


async def test_a_deleted_job_is_shown_as_such(client, command):
    await client.delete_job("greet")

    assert as_json(command("jobs", "show", "greet", "--json"))["status"] == "deleted"


async def test_a_job_is_paused_with_a_note_and_resumed(client, command):
    await client.define("report", schedule=every("1h"))

    paused = command("jobs", "pause", "report", "--note", "holidays")
    twice = command("jobs", "pause", "report")
    note = (await client.job("report")).pause_note
    shown = command("jobs", "show", "report")
    resumed = command("jobs", "resume", "report")
    again = command("jobs", "resume", "report")

    assert paused.out.startswith("report is paused: its schedules do not fire")
    assert twice.out.startswith("report was paused already (holidays)")
    assert note == "holidays"
    assert re.search(r"^ +next +paused$", shown.out, re.MULTILINE)
    assert resumed.out.startswith("report goes on and runs next ")
    assert again.out.startswith("report was not paused and runs next ")


async def test_a_trigger_says_what_is_in_the_way_and_can_be_forced(client, command):
    await client.define("report", schedule=every("1h"), args={"day": 1})
    first = as_json(command("jobs", "trigger", "report", "--json"))["execution_id"]

    refused = command("jobs", "trigger", "report")
    forced = command("jobs", "trigger", "report", "--force")

    assert refused.code == 1
    assert first in refused.err
    assert forced.code == 0
    assert (await client.execution(first)).args == {"day": 1}


async def test_a_backfill_is_shown_and_asked_about(client, command):
    await client.define("report", schedule=every("1h"))
    span = "--since", "2026-01-01", "--until", "2026-01-02"

    dry = command("jobs", "backfill", "report", *span, "--dry-run")
    unasked = command("jobs", "backfill", "report", *span)
    before = (await client.count(job="report")).total
    ago = command("jobs", "backfill", "report", "--since", "2d ago", "--dry-run")
    assert ago.out.endswith("48 of 48 ticks would be run\n")
    done = as_json(command("jobs", "backfill", "report", *span, "--yes", "--json"))
    over = command("jobs", "backfill", "report", *span, "--yes")

    assert "2026-01-01 00:00:00Z" in dry.out
    assert "… and 14 more, the last at 2026-01-01 23:00:00Z" in dry.out
    assert dry.out.endswith("24 of 24 ticks would be run\n")
    assert unasked.code == 2
    assert "add --yes" in unasked.err
    assert before == 0
    assert (done["created"], len(done["items"])) == (24, 24)
    assert over.out == "0 of 24 ticks would be run\n"


async def test_the_execution_of_a_tick_shows_its_time(client, command):
    await client.define("report", schedule=every("1h"))
    made = await backfill(client, "report", "2026-01-01", "2026-01-01T01:00:00Z")

    shown = command("executions", "show", str(made.ticks[0].execution))

    assert "scheduled for  2026-01-01 00:00:00" in shown.out


async def test_it_says_which_scheduler_leads(client, command):
    nobody = command("workers", "list")
    holder = mint()
    await client.store.admin.lead("scheduler", holder=holder, lease=60.0)
    somebody = command("workers", "list")
    leaders = as_json(command("workers", "list", "--leaders", "--json"))["items"]

    assert "no scheduler" in nobody.out
    assert f"scheduler {holder} leads" in somebody.out
    assert [(one["role"], one["holder_id"]) for one in leaders] == [("scheduler", str(holder))]


async def test_the_doctor_looks_at_schedules(client, command):
    fine = command("doctor")
    await client.define("report", schedule=every("1h"))
    alone = command("doctor")

    assert ["ok", "schedules", "none"] in [line.split() for line in fine.out.splitlines()]
    assert "none is there, so no schedule fires" in alone.out
    assert alone.code == 1


def a_schedule(
    job: str = "report",
    *,
    rule: str = '{"every":"1h"}',
    next_at: float | None = 1000.0,
    **options: Any,
) -> Schedule:
    return Schedule(id=mint(), tenant="default", job=job, rule=rule, next_at=next_at, **options)


def problems(*schedules, now=1000.0, leads=True):
    leader = Leadership(name="scheduler", holder=mint(), epoch=1, until=now + 9)
    checks = judge_schedules(schedules, [leader] if leads else [], now=now)
    return {check.name: check.found for check in checks if not check.is_ok}


def test_schedules_that_are_due_in_time_are_fine():
    assert problems() == {}
    assert problems(a_schedule(), a_schedule(next_at=990.0)) == {}


def test_a_rule_that_cannot_be_read_is_named():
    found = problems(a_schedule("odd", rule='{"lunar": 1}', next_at=1.0))

    assert list(found) == ["schedules"]
    assert found["schedules"].startswith("1 schedule of odd cannot be read")


def test_times_that_have_all_passed_are_a_problem_unless_one_fired():
    assert "schedules that never fire" in problems(a_schedule("old", next_at=None))
    assert problems(a_schedule("old", next_at=None, last_at=5.0)) == {}
    assert problems(a_schedule("delayed", next_at=None, delay=60.0)) == {}
    assert problems(a_schedule("boot", next_at=None, is_reboot=True)) == {}


def test_overdue_ticks_are_a_problem_unless_the_job_is_paused():
    assert "overdue ticks" in problems(a_schedule(next_at=900.0))
    assert problems(a_schedule(next_at=900.0, is_paused=True)) == {}


def test_a_clock_that_was_set_back_is_a_problem_until_its_time_has_come():
    early = a_schedule(next_at=1010.0, last_at=4600.0)

    (check,) = judge_ahead([], [early, a_schedule()], 1000.0)
    assert (check.name, check.is_ok) == ("clock set back", False)
    assert check.found.startswith("1 schedule of ")
    assert "re-arms" in check.advice
    assert judge_ahead([early], [early], 4600.0) != []  # its cursor is ahead, too
    assert judge_ahead([], [early], 4600.0) == []


def test_schedules_without_a_scheduler_are_a_problem():
    assert list(problems(a_schedule(), leads=False)) == ["scheduler"]


APP = """\
from daybell import App, every

app = App()

@app.task(schedule=every("1h"))
async def kept(): ...

with app.workflow("nightly", schedule=every("1h")):
    app.task(name="nap")(print).node()
"""
OLD = (
    APP
    + """
@app.task(schedule=every("1h"))
async def old(): ...
"""
)


def test_jobs_that_left_the_code_are_reported_and_pruned(tmp_path):
    file = tmp_path / "shop.py"

    def dev(*words):
        with Running("dev", "shop.py", "--port", "0", *words, folder=tmp_path) as running:
            running.wait_for("health ")
            return running.said

    file.write_text(OLD)
    before = dev()
    file.write_text(APP)
    reported = dev()
    pruned = dev("--prune")
    after = dev()

    assert "left the code" not in before
    assert "warning: job old has left the code and still fires; --prune removes such" in reported
    assert "removed job old, which the code has no more" in pruned
    assert "left the code" not in after
    gone = daybell("jobs", "show", "old", "--json", folder=tmp_path)
    assert json.loads(gone.out)["status"] == "deleted"


def test_a_worker_reports_what_left_the_code_too(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(OLD)
    with Running("dev", "shop.py", "--port", "0", folder=tmp_path) as running:
        running.wait_for("health ")
    file.write_text(APP)

    with Running("worker", "shop.py", folder=tmp_path) as running:
        running.wait_for("job old has left the code")
    with Running("worker", "shop.py", "--processes", "2", "--prune", folder=tmp_path) as running:
        running.wait_for("removed job old")


async def test_a_job_shows_the_gates_of_its_schedules_and_which_are_overdue(client, command):
    await client.define("report")
    await room.schedule(client, "report", every("1h"), name="own")
    await room.schedule(client, "report", every("1h"), name="joined", overlap_by="job")
    assert "overdue" not in command("jobs", "show", "report").out
    _, own = await room.schedules(client, "report")
    late = NewSchedule(
        id=own.id, job="report", rule=own.rule, next_at=8e8, name="own", own_gate=True
    )
    await client.store.schedules.put_schedules("default", [late])

    shown = command("jobs", "show", "report").out
    ways = {
        one["name"]: one["overlap_by"]
        for one in as_json(command("jobs", "show", "report", "--json"))["schedules"]
    }

    assert re.findall(r"overlap by +(\w+)", shown) == ["schedule", "job"]
    assert len(re.findall(r"1995-05-09.*\(overdue\)", shown)) == 2  # of the job and its schedule
    assert ways == {"joined": "job", "own": "schedule"}
    assert "(overdue)" in command("jobs", "list").out


# `daybell cron explain`: words, times, and what is wrong.


@pytest.fixture
def explain(tmp_path):
    return lambda *words: daybell("cron", "explain", *words, folder=tmp_path)


def test_an_expression_is_explained_with_its_next_times(explain):
    ended = explain("30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28", "--count", "3")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "At 02:30, Europe/Berlin",
        "",
        "day  time                 offset  remark",
        "Sat  2026-03-28 02:30:00  +01:00",
        "Sun  2026-03-29 03:00:00  +02:00  clocks have just changed",
        "Mon  2026-03-30 02:30:00  +02:00",
    ]


def test_a_time_that_exists_twice_is_told_apart(explain):
    ended = explain("*/30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-10-25", "--count", "3")

    assert [line[23:] for line in ended.out.splitlines()[3:]] == [
        "0  +02:00  first of two",
        "0  +02:00  first of two",
        "0  +01:00  second of two",
    ]


def test_json_has_the_description_and_the_times(explain):
    words = ["0 9 * * mon-fri", "--tz", "Europe/Berlin", "--from", "2026-11-13T10:00:00Z"]
    ended = explain(*words, "--count", "2", "--json")

    assert json.loads(ended.out) == {
        "description": "At 09:00 on Monday to Friday, Europe/Berlin",
        "next": ["2026-11-16T09:00:00+01:00", "2026-11-17T09:00:00+01:00"],
    }


def test_a_step_that_is_larger_than_its_field_is_warned_of(explain):
    ended = explain("0 0 1 */20 *", "--from", "2026-11-13", "--count", "2")
    found = explain("*/100 * * * *", "--json")

    assert (ended.code, ended.err.strip()) == (
        0,
        "warning: month */20: the step of */20 reaches no second value, so only the first one"
        " matches",
    )
    assert [line[5:15] for line in ended.out.splitlines()[3:]] == ["2027-01-01", "2028-01-01"]
    assert json.loads(found.out)["warnings"] == [
        "minute */100: the step of */100 reaches no second value, so only the first one matches"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0 0 12 ? * 2", "--dialect", "quartz"], "At 12:00 on Monday, UTC"),
        (["cron(0 12 ? * 2 *)"], "At 12:00 on Monday, UTC"),
        (["FREQ=DAILY", "--tz", "Asia/Tokyo"], "By the rule FREQ=DAILY, Asia/Tokyo"),
        (['{"every": "90m"}'], "Every 1 hour 30 minutes"),
        (["@reboot"], "When a scheduler starts and none was running"),
        (["manual"], "Only when it is triggered"),
    ],
)
def test_other_languages_are_understood(words, said, explain):
    ended = explain(*words, "--count", "1")

    assert (ended.code, ended.out.splitlines()[0]) == (0, said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["61 * * * *"], "minute '61' has 61; it takes 0-59"),
        (["0 0 30 2 *"], "never fires: there is no such date"),
        (["0 0 0 1 1 ? 2020"], "it never fires from"),
        (["FREQ=DAILY;COUNT=3"], 'without one from 1970: say "DTSTART:'),
        (["* * *"], "has 3 fields; unix cron takes 5"),
        (["@dayly"], "there is no macro '@dayly'"),
        (["* * * * *", "--tz", "berlin"], "no time zone 'berlin'; did you mean 'Europe/Berlin'?"),
        (["* * * * *", "--from", "soon"], "--from: 'soon' is not a time"),
        (["* * * * *", "--dialect", "klingon"], "dialect 'klingon' is not one of unix, quartz"),
    ],
)
def test_what_is_wrong_is_said(words, said, explain):
    ended = explain(*words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
