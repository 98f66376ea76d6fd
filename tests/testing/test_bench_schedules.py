"""Schedules on a bench: they fire as the test lets time pass."""

from datetime import UTC, datetime

import pytest

from daybell import App, Context, cron, every
from daybell.core.execution import Outcome, State
from daybell.testing import START, Bench
from daybell.testing.driver import EndlessRun


async def test_a_daily_job_runs_once_a_day(app: App, bench: Bench):
    seen = []

    @app.task(schedule=cron("0 9 * * *", tz="Europe/Berlin"))
    async def report(ctx: Context):
        seen.append((bench.now, ctx.scheduled_for))

    assert await bench.run_due() == []
    await bench.advance("2d")

    times = [datetime(2030, 1, day, 8, tzinfo=UTC) for day in (2, 3)]
    assert seen == [(time, time) for time in times]


async def test_what_schedules_fire_and_what_was_enqueued_run_in_their_order(app: App, bench: Bench):
    @app.task(schedule=every("1h"))
    async def hourly(): ...

    @app.task
    async def once(): ...

    await once.options(delay="90m").enqueue()
    runs = await bench.advance("2h")

    assert [run.task for run in runs] == ["hourly", "once", "hourly"]


async def test_a_fixed_delay_counts_from_the_end(app: App, bench: Bench):
    @app.task(schedule=every("10m", mode="delay"))
    async def poll(): ...

    assert len(await bench.advance("35m")) == 3


async def test_a_failure_is_tried_again_before_the_next_tick(app: App, bench: Bench):
    @app.task(schedule=every("1h"), retries={"delays": ["5m"]})
    async def flaky(ctx: Context):
        if not ctx.failures:
            raise ConnectionError

    runs = await bench.advance("2h")

    outcomes = [run.outcome for run in runs]
    assert outcomes[:3] == [Outcome.FAILED, Outcome.SUCCEEDED, Outcome.FAILED]


async def test_what_overlaps_is_skipped(app: App, bench: Bench):
    @app.task(schedule=every("1h"), retries={"delays": ["90m"]})
    async def flaky(ctx: Context):
        if not ctx.failures:
            raise ConnectionError

    await bench.advance("2h")

    assert [one.state for one in bench.executions(flaky)] == [State.RETRYING, State.SKIPPED]


async def test_a_job_learns_of_its_last_success(app: App, bench: Bench):
    seen = []

    @app.task(schedule=every("1h"))
    async def sync(ctx: Context):
        seen.append(ctx.previous_success)

    await bench.advance("2h")

    assert seen == [None, datetime(2030, 1, 1, 13, tzinfo=UTC)]


async def test_only_schedules_of_named_tasks_fire(app: App, bench: Bench):
    @app.task(schedule=every("1h"))
    async def left(): ...

    @app.task(schedule=every("1h"))
    async def right(): ...

    runs = await bench.advance("1h", left)

    assert [run.task for run in runs] == ["left"]
    assert bench.executions(right) == []


async def test_schedules_that_are_added_in_the_test_fire_too(app: App, bench: Bench):
    @app.task
    async def greet(name: str): ...

    await app.schedule(greet, every("1h"), args={"name": "Ada"})
    (run,) = await bench.advance("1h")

    assert run.arguments == {"name": "Ada"}
    assert run.execution.scheduled_for == START.timestamp() + 3600


async def test_a_paused_job_does_not_fire(app: App, bench: Bench):
    @app.task(schedule=every("1h"))
    async def report(): ...

    client = await app.open()
    await client.pause("report")
    assert await bench.advance("3h") == []
    await client.resume("report")

    assert await bench.run_due() == []
    assert len(await bench.advance("1h")) == 1


async def test_running_one_task_by_hand_fires_nothing(app: App, bench: Bench):
    @app.task(schedule=every("1h"))
    async def report() -> int:
        return 1

    assert await bench.run(report) == 1
    assert len(bench.executions(report)) == 1


async def test_the_work_of_a_tick_does_not_grow_with_the_history(app: App, bench: Bench):
    @app.task(schedule=every("1d"))
    async def report() -> None: ...

    work = 0

    def count() -> None:
        nonlocal work
        work += 1

    assert bench._store._memory is not None
    bench._store._memory.set_progress_handler(count, 100)  # so many instructions of SQLite
    await bench.advance("10d")
    first, work = work, 0
    await bench.advance("100d")

    assert 0 < work <= 11 * first
    assert len(bench.executions(report)) == 110


async def test_twenty_minutes_of_ticks_a_second_is_no_endless_run(app: App, bench: Bench):
    @app.task(schedule=every("1s"))
    async def tick() -> None: ...

    assert len(await bench.advance("20m")) == 1200


async def test_what_fires_too_often_for_a_test_is_ended(app: App, bench: Bench):
    @app.task(schedule=every("1s"))
    async def tick(): ...

    with pytest.raises(EndlessRun, match="its schedule fire so often"):
        await bench.advance("1d", limit=50)


async def test_what_fires_and_never_runs_is_ended_too(app: App, bench: Bench, monkeypatch):
    monkeypatch.setattr("daybell.testing.driver.TURNS_MAX", 20)
    client = await app.open()
    await client.define("elsewhere", kind="command", settings={"run": "x"}, schedule=every("1s"))

    with pytest.raises(EndlessRun):
        await bench.advance("1d", limit=50)


def test_time_passes_without_an_event_loop(app: App, bench: Bench):
    @app.task(schedule=every("1h"))
    def report(): ...

    assert len(bench.sync.advance("3h")) == 3
