"""`isolation="process"`: what may be declared, and what a task sees and does in its process."""

import asyncio
import os
import subprocess
import sys
import textwrap
from functools import partial
from typing import Any

import pytest

from daybell import App, ExecutionFailed, UsageError
from daybell.core.execution import TERMINAL
from daybell.engine.worker import WorkerOptions
from daybell.runners.processes import PoolOptions
from daybell.sdk.worker import fit_options
from tests.builders import claim
from tests.sdk import isolated_app
from tests.sdk.waiting import WAIT, eventually


def plain() -> None: ...


def generator():
    yield 1


async def async_generator():
    yield 1


class Callable:
    def __call__(self) -> None: ...


@pytest.fixture
async def app(file_url, monkeypatch):
    """The app of that file, with a store of its own and a worker."""
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    app = isolated_app.app
    app.handlers.pool_options = PoolOptions(children=1)
    async with app, app.worker():
        yield app


@pytest.mark.parametrize(
    ("options", "message", "field"),
    [
        (
            {"isolation": "thread"},
            "isolation 'thread' is not \"process\"; leave it out",
            "isolation",
        ),
        ({"isolation": 5}, "isolation 5 is not", "isolation"),
        ({"memory_limit": "512MB"}, 'memory_limit needs isolation="process"', "memory_limit"),
        ({"isolation": "process", "memory_limit": "512"}, "'512' has no unit", "memory_limit"),
        ({"isolation": "process", "memory_limit": 512}, "512 is too little", "memory_limit"),
        ({"isolation": "process", "memory_limit": "much"}, "cannot be read", "memory_limit"),
        ({"isolation": "process", "memory_limit": True}, "of the wrong type", "memory_limit"),
        (
            {"isolation": "process", "memory_limit": "9" * 15 + "TB"},
            "than there is",
            "memory_limit",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, message, field):
    app = App("memory://")

    with pytest.raises(UsageError, match=message) as refused:
        app.task(**options)(plain)
    assert refused.value.field == field
    assert not app.tasks


@pytest.mark.parametrize(
    ("size", "kept"),
    [("512MB", 512_000_000), ("1GiB", 2**30), ("1.5 gb", 1_500_000_000), (2_000_000, 2_000_000)],
)
def test_a_memory_limit_is_kept_with_the_definition(size, kept):
    task = App("memory://").task(isolation="process", memory_limit=size)(plain)

    assert task.definition.settings == f'{{"isolation":"process","memory_limit":{kept}}}'


def test_what_a_child_could_not_import_is_refused():
    app = App("memory://")

    def nested() -> None: ...

    refused: dict[str, Any] = {
        r"nested\(\) cannot be imported .* inside of another function": nested,
        "a lambda cannot be imported": lambda: None,
        "has no name of its own": Callable(),
    }
    for message, function in refused.items():
        with pytest.raises(UsageError, match=message):
            app.task(name="task", isolation="process")(function)
    app.task(name="task")(nested)  # in a thread it may be anything


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_function_with_a_yield_is_no_task(function):
    app = App("memory://")

    with pytest.raises(UsageError, match="has a yield in it"):
        app.task(function)


async def test_a_task_runs_in_a_process_of_its_own(app: App):
    pids = {await (await isolated_app.whoami.enqueue()).result(WAIT) for _ in range(2)}

    assert len(pids) == 1
    assert os.getpid() not in pids


async def test_what_was_opened_to_enqueue_serves_the_next_task_in_that_process(app: App):
    pid = await (await isolated_app.whoami.enqueue()).result(WAIT)

    for task in (isolated_app.fan_out_sync, isolated_app.fan_out):
        await (await task.enqueue()).result(WAIT)

        assert await (await isolated_app.whoami.enqueue()).result(WAIT) == pid


async def test_the_context_works(app: App):
    handle = await isolated_app.resume.enqueue()

    assert await handle.result(WAIT) == {
        "attempt": 2, "failures": 1, "offset": 1200, "job": "resume", "id": str(handle.id)
    }  # fmt: skip
    client = await app.open()
    parts = [part async for part in client.log_parts(handle.id)]
    lines = [(line.level, line.source, line.message) for part in parts for line in part.lines]
    assert ("warning", "daybell.task.resume", "at resume") in lines
    assert (await handle.execution()).progress == 40


async def test_what_is_enqueued_in_a_process_is_a_child_of_its_execution(app: App):
    handles = [await isolated_app.fan_out.enqueue(), await isolated_app.fan_out_sync.enqueue()]

    client = await app.open()
    for handle in handles:
        ids = await handle.result(WAIT)
        for id in [ids] if isinstance(ids, str) else ids:
            detail = await client.execution(id)
            assert detail.parent_id == handle.id


async def test_what_is_enqueued_belongs_to_the_tenant_of_the_worker(file_url, monkeypatch):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    app = isolated_app.app
    async with app:
        await (await app.open()).add_tenant("acme")
    monkeypatch.setattr(app, "tenant", "acme")  # as `daybell worker --tenant acme` does
    async with app, app.worker():
        handle = await isolated_app.fan_out_sync.enqueue()

        detail = await (await app.open()).execution(await handle.result(WAIT))

        assert detail.tenant == "acme"
        assert detail.parent_id == handle.id


async def test_rules_of_the_retry_policy_know_the_classes_of_errors(app: App):
    handle = await isolated_app.never.enqueue()

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(WAIT)
    failure = failed.value.failure
    assert failure is not None
    assert (failure.type, failure.message) == ("tests.sdk.isolated_app.Hopeless", "it is no use")
    assert "tests.sdk.isolated_app.Flaky" in failure.names
    assert 'raise Hopeless("it is no use")' in failure.traceback
    assert (await handle.execution()).failures == 1


async def test_a_permanent_error_is_not_tried_again(app: App):
    handle = await isolated_app.permanent.enqueue()

    with pytest.raises(ExecutionFailed, match="no such thing"):
        await handle.result(WAIT)
    assert (await handle.execution()).failures == 1


@pytest.mark.parametrize(("way", "failures"), [("delay", 0), ("at", 0), ("wrong", 1)])
async def test_a_task_may_put_itself_off(way, failures, app: App):
    handle = await isolated_app.later.enqueue(way)

    assert await handle.result(WAIT) == failures


async def test_a_result_that_is_not_kept_may_be_anything(app: App):
    assert await (await isolated_app.forgotten.enqueue()).result(WAIT) is None


async def is_busy(handle: Any) -> None:
    await eventually(handle.execution, lambda execution: execution.progress == 1)


async def test_a_running_task_and_one_that_waits_for_a_child_can_be_cancelled(
    short_lease, app: App, tmp_path
):
    first = await isolated_app.wait_for.enqueue(str(tmp_path / "never"))
    await is_busy(first)
    second = await isolated_app.wait_for.enqueue(str(tmp_path / "never"))
    await eventually(second.status, lambda state: state == "running")

    for handle in (second, first):
        await handle.cancel()
        assert await eventually(handle.status, lambda state: state != "running") == "cancelled"


async def test_a_worker_leaves_to_others_what_its_children_cannot_run_soon(
    file_url, monkeypatch, tmp_path
):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    app, came = isolated_app.app, tmp_path / "came"
    app.handlers.pool_options = PoolOptions(children=1)
    async with app:
        handles = [await isolated_app.wait_for.enqueue(str(came)) for _ in range(6)]

        async def states() -> list[str]:
            return [await handle.status() for handle in handles]

        async with app.worker(queues="patience"):
            await is_busy(handles[0])
            assert sorted(await states()) == ["queued"] * 4 + ["running"] * 2

            came.touch()
            assert [await handle.result(WAIT) for handle in handles] == ["it came"] * 6


def test_only_a_worker_with_nothing_but_isolated_tasks_is_fitted_to_its_children():
    app = App("memory://")
    app.handlers.pool_options = PoolOptions(children=3)
    app.task(isolation="process", queue="render", name="render")(plain)
    app.task(queue="mail", name="mail")(plain)

    def slots(queues: str, concurrency: int = 100) -> int:
        return fit_options(app, WorkerOptions(queues=queues, concurrency=concurrency)).concurrency

    assert slots("render") == slots("render=3,default") == 6
    assert slots("render", concurrency=1) == 1
    assert slots("mail") == slots("render,mail") == slots("default") == 100


async def test_what_waits_for_a_child_longer_than_its_timeout_is_not_charged(app: App, tmp_path):
    came = tmp_path / "came"
    first = await isolated_app.wait_for.enqueue(str(came))
    await is_busy(first)
    second = await isolated_app.double.options(timeout=0.1).enqueue(4)
    await eventually(second.execution, lambda execution: execution.attempt > 1)

    came.touch()

    assert await first.result(WAIT) == "it came"
    assert await second.result(WAIT) == 8
    assert (await second.execution()).failures == 0


async def test_a_worker_that_stops_gives_back_what_runs_in_a_child(file_url, monkeypatch, tmp_path):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", file_url)
    app = isolated_app.app
    app.handlers.pool_options = PoolOptions(children=1)
    async with app:
        async with app.worker(drain_timeout=0):
            handle = await isolated_app.wait_for.enqueue(str(tmp_path / "never"))
            await is_busy(handle)

        execution = await handle.execution()
        assert (execution.status, execution.failures) == ("queued", 0)


async def test_a_memory_store_cannot_be_reached_from_a_process(monkeypatch):
    monkeypatch.setenv("DAYBELL_DATABASE_URL", "memory://")
    app = App("memory://")
    task = app.task(isolation="process", retries=0)(isolated_app.fan_out_sync.function)
    async with app, app.worker():
        handle = await task.enqueue()

        with pytest.raises(ExecutionFailed, match="memory:// is in the worker's own memory"):
            await handle.result(WAIT)


SCRIPT = """
import asyncio
from daybell import App, Retry

app = App("sqlite:///jobs.db")

class Rare(Exception): ...

@app.task(isolation="process", retries=Retry.fixed(0, retries=5, never_on=[Rare]))
def fail(number: int) -> None:
    raise Rare(f"{number} in {__name__}")

async def main():
    async with app, app.worker():
        handle = await fail.enqueue(7)
        try:
            await handle.result(timeout=300)
        except Exception as error:
            print(error.failure.type, error.failure.message)
            print((await handle.execution()).failures)
"""
GUARD = '\nif __name__ == "__main__":\n    asyncio.run(main())\n'


def run_script(folder, source, *words):
    (folder / "script.py").write_text(textwrap.dedent(source))
    return subprocess.run(
        [sys.executable, *(words or ["script.py"])],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout


@pytest.mark.parametrize("words", [["script.py"], ["-m", "script"]])
async def test_a_script_is_imported_under_another_name(words, tmp_path):
    printed = await asyncio.to_thread(run_script, tmp_path, SCRIPT + GUARD, *words)

    assert printed.splitlines() == ["__main__.Rare 7 in __mp_main__", "1"]


async def test_a_job_with_the_name_of_a_task_runs_the_one_that_its_definition_names(app):
    await app.client().delete_job("resume", force=True)
    await app.client().create("resume", task="double")

    made = await app.client().enqueue("resume", {"number": 21})

    look = partial(app.client().execution, made.id)
    detail = await eventually(look, lambda seen: seen.status in TERMINAL)
    assert detail.result == 42


async def test_a_script_that_would_run_again_is_told_what_to_do(tmp_path):
    script = SCRIPT.replace("retries=5", "retries=0") + "\nasyncio.run(main())\n"

    printed = await asyncio.to_thread(run_script, tmp_path, script)

    assert "script.py is imported by a process that is to run a task of it" in printed
    assert 'put what only a script does under `if __name__ == "__main__":`' in printed


async def test_what_becomes_of_a_lost_lease_is_one_of_two_words():
    app = App("memory://")

    @app.task(on_lease_lost="continue")
    async def count() -> None: ...

    @app.task
    async def sell() -> None: ...

    async with app:
        await count.enqueue()
        await sell.enqueue()
        hands = await claim(app.client().store, 2, tenant="default")
        goes_on = {one.job: app.handlers.find(one) for one in hands.executions}
    assert {name: one is not None and one.goes_on for name, one in goes_on.items()} == {
        "count": True,
        "sell": False,
    }
    wrong: Any = "go on"
    with pytest.raises(UsageError, match='"stop" nor "continue"'):
        app.task(on_lease_lost=wrong)(len)
