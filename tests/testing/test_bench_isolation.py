"""What a bench keeps from the app's own world, and one test from the next."""

import asyncio

import pytest

from daybell import App, UsageError
from daybell.core.execution import State
from daybell.engine.events import Ended
from daybell.sdk.context import current
from daybell.testing import START, Bench


async def test_hooks_surround_what_runs_and_can_be_left_out(app: App):
    seen = []

    app.on_start(lambda: seen.append("start"))
    app.on_stop(lambda: seen.append("stop"))

    @app.task
    async def work():
        await (await inner.enqueue()).result()
        seen.append("work")

    @app.task
    async def inner():
        seen.append("inner")

    with Bench(app) as bench:
        await bench.run_due()
        assert seen == []
        await bench.run(work)
        assert seen == ["start", "inner", "work", "stop"]
    seen.clear()
    with Bench(app, hooks=False) as bench:
        await bench.run(work)
        assert seen == ["inner", "work"]


async def test_observers_hear_what_they_hear_in_production(app: App, bench: Bench):
    heard = []

    @app.task
    async def work():
        pass

    app.observe(heard.append)
    await bench.run(work)

    assert [type(event).__name__ for event in heard] == ["Started", "Ended"]
    assert isinstance(heard[1], Ended)


async def test_a_worker_that_the_program_starts_takes_nothing_away(app: App, bench: Bench):
    @app.task
    async def work():
        pass

    async with app.worker():
        await work.enqueue()
        for _ in range(100):
            await asyncio.sleep(0)
        assert bench.enqueued(work) == [{}]
        await bench.advance("1d")
    assert [one.state for one in bench.executions(work)] == [State.SUCCEEDED]


async def test_a_connection_of_the_caller_s_is_not_used(app: App, bench: Bench):
    @app.task
    async def work():
        pass

    await work.options(connection=object()).enqueue()

    assert bench.enqueued(work) == [{}]


async def test_other_tenants_are_there_if_they_are_named():
    app = App("postgresql://nobody@127.0.0.1:1/nowhere", tenant="acme")

    @app.task
    async def work():
        pass

    with Bench(app, tenants=["globex"]) as bench:
        handle = await work.options(tenant="globex").enqueue()
        await asyncio.wait_for(handle.result(), 300)
        handle = await work.options(tenant="globex").enqueue()
        await work.enqueue()
        assert {run.execution.tenant for run in await bench.run_due()} == {"acme", "globex"}
        await handle.result()


async def test_nothing_of_one_bench_is_left_for_the_next(app: App):
    @app.task
    async def work():
        assert current.get() is not None

    with Bench(app) as bench:
        await work.enqueue()
        await bench.run_due()
        await work.enqueue()
    assert current.get() is None
    assert not app.is_open and app.stand_in is None
    for again in (Bench(app), bench):
        with again:
            assert again.executions() == []
            assert again.now == START


async def test_the_workers_of_a_bench_are_gone_when_it_has_run(app: App, bench: Bench, caplog):
    @app.task
    async def work():
        pass

    await bench.run(work)
    await (await work.enqueue()).cancel()
    for _ in range(20):
        await asyncio.sleep(0)

    assert await (await app.client_for()).workers() == []
    assert caplog.text == ""


async def test_connections_of_the_app_s_own_are_untouched(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'real.db'}")

    @app.task
    async def work():
        pass

    async with app:
        real = app.client()
        with Bench(app) as bench:
            await work.enqueue()
            assert len(bench.executions()) == 1
        assert app.client() is real
        assert (await real.executions()).items == ()


async def test_a_bench_is_used_inside_its_block_and_one_per_app(app: App):
    @app.task
    async def work():
        pass

    bench = Bench(app)
    with pytest.raises(UsageError, match="with Bench"):
        bench.enqueued(work)
    with pytest.raises(UsageError, match="with Bench"):
        await bench.run_due()
    with bench, pytest.raises(UsageError, match="on a bench already"), Bench(app):
        pass
    with pytest.raises(UsageError, match="for an App"):
        Bench("app")  # type: ignore[arg-type]


async def test_what_comes_after_the_block_is_refused(app: App):
    @app.task
    async def work():
        pass

    with Bench(app):
        client = await app.client_for()
        await work.enqueue()

    with pytest.raises(UsageError, match="not open"):
        await client.enqueue("work")


async def test_a_task_of_another_app_is_refused_rather_than_never_found(app: App, bench: Bench):
    other = App()

    @other.task
    async def elsewhere():
        pass

    with pytest.raises(UsageError, match="another app"):
        bench.enqueued(elsewhere)
    with pytest.raises(UsageError, match="not a task"):
        bench.enqueued(elsewhere.function)  # type: ignore[arg-type]


async def test_a_job_with_the_name_of_a_task_runs_the_one_that_its_definition_names(app: App):
    ran = []

    @app.task
    async def greet():
        ran.append("greet")

    @app.task
    async def part():
        ran.append("part")

    @app.task
    async def fail():
        ran.append("fail")

    with Bench(app) as bench:
        client = await app.open()
        await client.delete_job("fail")
        await client.create("fail", task="greet")
        await client.enqueue("fail")
        await bench.run_due()
        assert ran == ["greet"]
    with Bench(app) as bench:  # where it is another job, at the same version
        client = await app.open()
        await client.delete_job("fail")
        await client.create("fail", task="part")
        await client.enqueue("fail")
        await bench.run_due()
        assert ran == ["greet", "part"]
