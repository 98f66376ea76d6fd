"""One task inline, failures, endless chains, and waiting for handles."""

import asyncio
import traceback
from datetime import datetime, timedelta

import pytest

from daybell import App, Context, Retry, RetryLater, UsageError, every
from daybell.core.execution import State
from daybell.testing import START, Bench, EndlessRun

DEADLINE = 60


async def test_run_gives_the_result_by_annotation_and_the_context(app: App, bench: Bench):
    @app.task
    async def next_day(ctx: Context, day: datetime) -> datetime:
        assert isinstance(day, datetime) and ctx.attempt == 1
        return day + timedelta(days=1)

    assert await bench.run(next_day, START) == START + timedelta(days=1)
    assert await bench.run(next_day.options(delay="1h"), START) == START + timedelta(days=1)


async def test_run_runs_nothing_else(app: App, bench: Bench):
    @app.task
    async def other():
        raise AssertionError("not asked for")

    @app.task
    async def one():
        await other.enqueue()

    await other.enqueue()
    await bench.run(one)

    assert bench.enqueued(other) == [{}, {}]


async def test_run_raises_what_the_task_raised_with_its_traceback(app: App, bench: Bench):
    error = LookupError("gone")

    def deep_inside():
        raise error

    @app.task(retries=5)
    async def fails():
        deep_inside()

    with pytest.raises(LookupError) as caught:
        await bench.run(fails)

    assert caught.value is error
    assert "deep_inside" in "".join(traceback.format_tb(error.__traceback__))
    assert [one.state for one in bench.executions(fails)] == [State.DEAD]
    assert await bench.advance("1d") == []


async def test_run_raises_retry_later_and_leaves_nothing_behind(app: App, bench: Bench):
    @app.task
    async def busy():
        raise RetryLater(delay="5m")

    with pytest.raises(RetryLater):
        await bench.run(busy)

    assert await bench.advance("1d") == []


async def test_run_checks_arguments_and_results_as_production_does(app: App, bench: Bench):
    @app.task
    async def bad(x: int):
        return object()

    with pytest.raises(UsageError, match="argument 'x'"):
        await bench.run(bad, "no number")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="result"):
        await bench.run(bad, 1)


async def test_run_refuses_what_it_cannot_run(app: App, bench: Bench):
    @app.task
    async def one():
        pass

    await one.options(unique_key="k").enqueue()
    with pytest.raises(UsageError, match="holds this unique_key"):
        await bench.run(one.options(unique_key="k"))
    await (await app.client_for()).pause_queue("default")
    with pytest.raises(UsageError, match="cannot run"):
        await bench.run(one)


async def test_a_task_that_takes_too_long_raises_a_timeout(app: App, bench: Bench):
    @app.task(timeout="50ms")
    async def slow():
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        await bench.run(slow)


async def test_check_raises_what_fails_even_if_it_would_be_retried(app: App, bench: Bench, caplog):
    @app.task(retries=5)
    async def fails():
        raise KeyError("k")

    await fails.enqueue()
    assert [run.has_failed for run in await bench.run_due()] == [True]
    assert "KeyError" in caplog.text and "Traceback" in caplog.text

    await fails.enqueue()
    with pytest.raises(KeyError):
        await bench.run_due(check=True)


async def test_check_can_be_the_bench_s_habit(app: App):
    @app.task
    async def fails():
        raise KeyError("k")

    with Bench(app, check=True) as bench:
        await fails.enqueue()
        with pytest.raises(KeyError):
            await bench.advance("1s")
        await fails.enqueue()
        assert len(await bench.run_due(check=False)) == 1


async def test_a_test_s_own_failure_inside_a_task_fails_the_test(app: App, bench: Bench):
    @app.task
    async def calls_a_fake():
        pytest.fail("the fake was called")

    await calls_a_fake.enqueue()

    with pytest.raises(pytest.fail.Exception, match="the fake was called"):
        await bench.run_due()


async def test_a_task_that_enqueues_itself_for_ever_is_stopped(app: App, bench: Bench):
    @app.task
    async def again() -> None:
        await again.enqueue()

    await again.enqueue()

    with pytest.raises(EndlessRun, match=r"50 attempts .*again 50 times.* enqueue itself"):
        await bench.run_due(limit=50)
    assert bench.enqueued(again) == [{}]


async def test_as_many_as_the_limit_are_not_endless(app: App, bench: Bench):
    @app.task
    async def one():
        pass

    await one.enqueue_many([{}] * 5)

    assert len(await bench.run_due(limit=5)) == 5


async def test_waiting_for_a_result_runs_that_execution_and_no_other(app: App, bench: Bench):
    @app.task
    async def add(left: int, right: int) -> int:
        return left + right

    other = await add.enqueue(1, 1)
    handle = await add.enqueue(1, 2)

    assert await asyncio.wait_for(handle.result(), DEADLINE) == 3
    assert await other.status() == State.QUEUED


async def test_waiting_for_what_is_not_due_says_so_instead_of_hanging(app: App, bench: Bench):
    @app.task(retries=Retry.fixed("15s"))
    async def fails():
        raise ConnectionError("no answer")

    scheduled = await fails.options(delay="1h").enqueue()
    with pytest.raises(TimeoutError, match=r"scheduled, due in 1h.*bench.advance\('1h'\)"):
        await asyncio.wait_for(scheduled.result(), DEADLINE)
    failing = await fails.enqueue()
    with pytest.raises(TimeoutError, match=r"retrying.*no answer.*bench.advance\('"):
        await asyncio.wait_for(failing.result(), DEADLINE)


async def test_a_task_can_wait_for_another(app: App, bench: Bench):
    @app.task
    async def parent() -> int:
        return await (await child.enqueue(20)).result() + 1

    @app.task
    def child(n: int) -> int:
        return n * 2

    assert await bench.run(parent) == 41


async def test_tasks_that_wait_for_their_own_kind_for_ever_are_stopped(app: App, bench: Bench):
    @app.task
    async def waits() -> None:
        await (await waits.enqueue()).result()

    @app.task
    async def is_fine() -> int:
        return 1

    with pytest.raises(EndlessRun, match="wait for one another"):
        await asyncio.wait_for(bench.run(waits), DEADLINE)
    assert await bench.run(is_fine) == 1


async def test_a_running_task_hears_of_its_cancellation(app: App, bench: Bench):
    began = asyncio.Event()

    @app.task
    async def endless():
        began.set()
        await asyncio.Event().wait()

    handle = await endless.enqueue()
    running = asyncio.create_task(bench.run_due())
    await asyncio.wait_for(began.wait(), DEADLINE)
    await handle.cancel()
    (run,) = await asyncio.wait_for(running, DEADLINE)

    assert run.state is State.CANCELLED


async def test_a_result_can_be_waited_for_while_it_is_made(app: App, bench: Bench):
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.task
    async def works() -> int:
        began.set()
        await may_end.wait()
        return 3

    handle = await works.enqueue()
    running = asyncio.create_task(bench.run_due())
    await asyncio.wait_for(began.wait(), DEADLINE)
    result = asyncio.create_task(handle.result())
    asyncio.get_running_loop().call_soon(may_end.set)

    assert await asyncio.wait_for(result, DEADLINE) == 3
    await running


async def test_a_run_that_is_given_up_stops_its_task(app: App, bench: Bench):
    stopped = asyncio.Event()

    @app.task
    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = await endless.enqueue()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.run_due(), 0.05)

    assert stopped.is_set()
    assert await handle.status() == State.QUEUED


async def test_progress_and_checkpoints_are_kept(app: App, bench: Bench):
    @app.task(retries=Retry.fixed("1s"))
    async def load(ctx: Context) -> int:
        row = ctx.checkpoint.get("row", 0)
        ctx.checkpoint["row"] = row + 10
        ctx.progress(50, "halfway")
        if not row:
            raise ConnectionError
        return row

    await load.enqueue()
    await bench.run_due()
    (run,) = await bench.advance("1h")

    assert run.result == 10
    assert (run.execution.progress, run.execution.note) == (50, "halfway")


async def test_jobs_without_code_wait_and_are_in_nobodys_way(app: App, bench: Bench):
    @app.task
    async def greet() -> None: ...

    client = await app.open()
    await client.create("clean", command="touch /nowhere", schedule=every("1h"))
    await client.enqueue("clean")
    await greet.options(delay="5m").enqueue()

    runs = await bench.advance("90m")

    assert [run.execution.job for run in runs] == ["greet"]
    states = [one.state for one in bench.executions() if one.job == "clean"]
    assert states == [State.QUEUED, State.SKIPPED]  # the latter of its schedule, in its turn
