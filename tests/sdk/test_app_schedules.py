"""Tasks with schedules: declared, added at run time, and what they learn when they run."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from daybell import App, Context, UsageError, any_of, at, cron, every
from daybell.client import schedules as room
from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.core.schedule import Firing, Tick
from daybell.errors import (
    ExecutionInTheWay,
    InvalidArguments,
    InvalidItems,
    InvalidSchedule,
    JobNotFound,
)
from daybell.runners.processes import PoolOptions
from tests.refusals import refuses
from tests.sdk import isolated_app
from tests.sdk.waiting import eventually


async def report(day: int = 1) -> int:
    return day


async def fire(app: App, *, at: float) -> None:
    """Fire a tick of each schedule, as a scheduler does."""
    client = await app.open()
    for schedule in await room.schedules(client):
        assert schedule.next_at is not None
        execution = NewExecution(
            id=mint(), job=schedule.job, scheduled_for=at, schedule=schedule.id
        )
        firing = Firing(
            tenant=schedule.tenant,
            schedule=schedule.id,
            expect=schedule.next_at,
            next_at=schedule.next_at + 3600,
            ticks=(Tick(at=at, execution=execution),),
        )
        assert await client.store.schedules.fire([firing]) == [True]


async def test_a_task_brings_its_schedules_to_the_store(app: App):
    app.task(schedule=[cron("0 9 * * mon-fri", tz="Europe/Berlin"), every("5m")])(report)

    client = await app.open()

    rules = [one.rule for one in await client.schedules("report")]
    assert rules == [{"cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}, {"every": "5m"}]


async def test_the_words_of_the_schedule_language_are_at_hand(app: App):
    union = any_of(cron("@daily"), at("2040-01-01T00:00:00Z"))

    assert (cron("@daily") | at("2040-01-01T00:00:00Z")) == union


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "0 0 30 2 *"}, "never fires"),
        ({"schedule": "every day"}, "once a day is @daily"),
        ({"overlap": "maybe"}, "overlap 'maybe'"),
        ({"misfire": "maybe"}, "misfire 'maybe'"),
        ({"shedule": "@daily"}, "did you mean 'schedule'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_where_it_is_written(options, said):
    app = App("memory://")

    with pytest.raises(UsageError, match=said):
        app.task(**options)(report)

    assert not app.tasks


async def test_a_scheduled_task_is_given_what_it_needs(app: App):
    @app.task(schedule="@daily")
    async def greet(name: str) -> None: ...

    with refuses(InvalidArguments, field="args"):
        await app.open()


async def test_arguments_for_the_schedule_are_checked_like_all_others(app: App):
    app.task(schedule="@daily", args={"day": "Monday"})(report)

    with refuses(InvalidArguments, field="args"):
        await app.open()


async def test_arguments_for_the_schedule_may_be_right(app: App):
    app.task(schedule="@daily", args={"day": 3})(report)

    client = await app.open()

    (schedule,) = await client.schedules("report")
    assert schedule.args == {"day": 3}


async def test_a_task_is_scheduled_at_run_time(app: App):
    task = app.task(report)

    made = await app.schedule(task, every("5m"), args={"day": 2}, name="often")
    again = await app.schedule("report", {"every": "5m"}, args={"day": 2}, name="often")

    assert made == again
    await app.unschedule(task, "often")
    assert await (await app.open()).schedules("report") == []


async def test_a_schedule_at_run_time_is_checked(app: App):
    @app.task
    async def greet(name: str) -> None: ...

    with refuses(InvalidArguments, field="args"):
        await app.schedule(greet, "@daily")
    with refuses(InvalidArguments, field="nam"):
        await app.schedule(greet, "@daily", args={"nam": "Ada"})
    with pytest.raises(InvalidSchedule):
        await app.schedule(greet, "@dayly", args={"name": "Ada"})
    with pytest.raises(JobNotFound):
        await app.schedule("gret", "@daily")
    with refuses(UsageError, field="job"):
        await app.schedule(5, "@daily")  # type: ignore[arg-type]


async def test_a_task_that_needs_arguments_can_be_unscheduled(app: App):
    @app.task
    async def greet(name: str) -> None: ...

    await app.schedule(greet, "@daily", args={"name": "Ada"}, name="ada")
    await app.unschedule(greet, "ada")

    assert await (await app.open()).schedules("greet") == []


async def test_many_schedules_of_tasks_are_made_in_one_call(app: App):
    task = app.task(report)

    @app.task
    async def greet(name: str) -> None: ...

    made = await app.schedules.put_many(
        [
            {"job": task, "when": every("5m"), "args": {"day": 2}, "name": "often"},
            {"job": "greet", "when": "@daily", "args": {"name": "Ada"}, "overlap_by": "job"},
        ]
    )

    assert [(one.job, one.args) for one in made] == [
        ("report", {"day": 2}),
        ("greet", {"name": "Ada"}),
    ]
    assert [one.overlap_by for one in made] == ["schedule", "job"]
    one = await app.schedule(task, every("5m"), args={"day": 2}, name="often", overlap_by="job")
    assert (one.schedule_id, one.overlap_by) == (made[0].schedule_id, "job")


async def test_all_that_is_wrong_with_many_schedules_is_told_by_index(app: App):
    @app.task
    async def greet(name: str) -> None: ...

    items: list[Any] = [
        {"job": greet, "when": "@daily", "args": {"name": "Ada"}},
        {"job": greet, "when": "@daily"},
        {"job": greet, "when": "@daily", "args": {"nam": "Ada"}},
        {"job": 5, "when": "@daily"},
        {"job": "gret", "when": "@daily"},
        {"job": greet, "when": "@dayly", "args": {"name": "Ada"}},
        None,
    ]

    with pytest.raises(InvalidItems) as caught:
        await app.schedules.put_many(items)

    assert list(caught.value.errors) == [1, 2, 3, 4, 5, 6]
    assert "items[1]: task 'greet': this schedule has the wrong arguments" in str(caught.value)
    assert "items[3]: 5 is neither a task nor the name" in str(caught.value)
    assert await (await app.open()).schedules() == []


async def test_a_job_that_was_deleted_is_declared_again_for_many_schedules(app: App):
    task = app.task(report)
    client = await app.open()
    await client.delete_job("report")

    (made,) = await app.schedules.put_many([{"job": task, "when": "@daily"}])

    assert made.job == "report"


def test_many_schedules_can_be_made_without_an_event_loop(file_url):
    app = App(file_url)
    task = app.task(report)

    made = app.sync.schedules.put_many(
        {"job": task, "when": "@hourly", "name": f"n{n}"} for n in range(3)
    )

    assert [one.name for one in made] == ["n0", "n1", "n2"]


def test_a_schedule_can_be_made_without_an_event_loop(file_url):
    app = App(file_url)
    task = app.task(report)

    made = app.sync.schedule(task, "@hourly", name="often")
    app.sync.unschedule(task, "often")

    assert made.name == "often"


async def test_an_enqueue_obeys_overlap_unless_it_is_forced(app: App):
    task = app.task(schedule="@daily")(report)
    first = await task.enqueue()

    with pytest.raises(ExecutionInTheWay) as caught:
        await task.enqueue()
    forced = await task.options(force=True).enqueue()

    assert caught.value.execution == first.id
    assert forced.created


async def test_a_task_learns_its_time_and_the_last_success(app: App):
    seen = []

    @app.task(schedule="@daily")
    async def sync(ctx: Context) -> None:
        seen.append((ctx.scheduled_for, ctx.previous_success))

    first, second = 1_000_000_000.0, 1_000_086_400.0
    async with app, app.worker():
        await fire(app, at=first)
        await succeeded(app, 1)
        await fire(app, at=second)
        await succeeded(app, 2)
        await sync.enqueue()
        await succeeded(app, 3)

    times = [datetime.fromtimestamp(one, UTC) for one in (first, second)]
    assert seen == [(times[0], None), (times[1], times[0]), (None, None)]


async def succeeded(app: App, count: int):
    """What has succeeded, newest first, once there are so many."""
    client = await app.open()
    page = await eventually(
        lambda: client.executions(status="succeeded"), lambda page: len(page.items) == count
    )
    return page.items


@pytest.mark.parametrize("task", ["when_in_child", "when_in_thread"])
async def test_a_child_process_and_a_thread_learn_it_too(file_url, monkeypatch, task):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    app = isolated_app.app
    app.handlers.pool_options = PoolOptions(children=1)
    async with app, app.worker():
        await app.schedule(task, every("1h"), name="often")
        await fire(app, at=1_000_000_000.0)
        await succeeded(app, 1)
        await fire(app, at=1_000_003_600.0)
        done = await succeeded(app, 2)

    assert [one.result for one in done] == [
        ["2001-09-09T02:46:40+00:00", "2001-09-09T01:46:40+00:00"],
        ["2001-09-09T01:46:40+00:00", "None"],
    ]


async def test_the_author_is_the_place_of_the_app(app: App):
    assert app.author == "code:tests.sdk.conftest:app"
    assert HERE.author == "code:tests.sdk.test_app_schedules:HERE"


HERE = App("memory://")


def test_the_author_does_not_depend_on_how_the_code_is_started(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(
        "from daybell import App\nmain = App('memory://')\nprint(main.author)\n"
    )
    (tmp_path / "email.py").write_text(
        "from daybell import App\nmain = App('memory://')\nprint(main.author)\n"
    )
    load = "import sys; from daybell.sdk.loading import load_app; load_app(sys.argv[1])"

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-P", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert {
        run("shop/jobs.py"),
        run("-c", load, "shop/jobs.py"),
        run("-c", load, "shop.jobs:main"),
    } == {"code:shop.jobs:main"}
    assert run("email.py") == run("-c", load, "email.py") == "code:email:main"


async def test_a_job_of_another_name_runs_the_task_that_it_names(app: App):
    @app.task(retries=0)
    async def double(ctx: Context, number: int) -> list[object]:
        return [ctx.job, 2 * number]

    async with app, app.worker():
        client = await app.open()
        await client.define("nightly", settings={"task": "double"}, args={"number": 21})
        await client.trigger("nightly")
        (done,) = await succeeded(app, 1)

    assert done.result == ["nightly", 42]


async def test_its_own_definition_says_how_often_and_how_long(app: App):
    @app.task(retries=5)
    async def fail() -> None:
        raise ValueError

    async with app, app.worker():
        client = await app.open()
        await client.define("once", settings={"task": "fail"}, retries=0)
        made = await client.trigger("once")
        detail = await eventually(
            lambda: client.execution(made.id), lambda one: one.status == "dead"
        )

    assert len(detail.attempts) == 1


async def test_a_new_version_may_name_another_task(app: App):
    @app.task
    async def first() -> int:
        return 1

    @app.task
    async def second() -> int:
        return 2

    async with app, app.worker():
        client = await app.open()
        await client.define("nightly", settings={"task": "first"})
        await client.trigger("nightly")
        await succeeded(app, 1)
        await client.define("nightly", settings={"task": "second"})
        await client.trigger("nightly")
        done = await succeeded(app, 2)

    assert [one.result for one in done] == [2, 1]


async def test_a_job_whose_task_is_not_here_goes_back(app: App):
    async with app, app.worker():
        client = await app.open()
        await client.define("nightly", settings={"task": "elsewhere"})
        made = await client.trigger("nightly")
        detail = await eventually(lambda: client.execution(made.id), lambda one: one.attempts != [])

    assert detail.attempts[0].outcome == "released"


async def test_a_worker_for_a_while_fires_what_its_tasks_declare(app: App):
    @app.task(schedule=every("100ms"))
    async def beat(ctx: Context) -> None: ...

    async with app, app.worker():
        client = await app.open()
        await eventually(
            lambda: client.executions(status="succeeded"), lambda page: len(page.items) >= 2
        )
