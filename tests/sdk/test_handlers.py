"""Handlers of an app: jobs without code, and what a worker lacks."""

import asyncio
import sys
from contextlib import asynccontextmanager

from daybell import App
from daybell.client import mint
from daybell.core.execution import State
from daybell.engine.loop import SystemClock
from daybell.engine.worker import Worker, WorkerOptions
from daybell.runners.command import CommandHandler
from daybell.runners.http import HttpHandler
from daybell.sdk.handlers import KindOptions
from tests.builders import claim
from tests.runners.test_workflow import a_claimed
from tests.sdk.waiting import eventually


@asynccontextmanager
async def working(app, **allowed):
    """A worker of an app that allows so much."""
    app.handlers.kind_options = KindOptions(**allowed)
    worker = Worker(
        (await app.open()).store,
        app.handlers,
        WorkerOptions(kinds=app.handlers.kinds, drain_timeout=5.0),
        clock=SystemClock(),
        mint=mint,
        events=app.events,
    )
    async with app.lifespan():
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()


async def ended(client, id):
    async def ask():
        return await client.execution(id)

    return await eventually(ask, lambda one: one.status in (State.SUCCEEDED, State.DEAD))


def output(execution):
    return execution.result["output"].split("\n")


async def claimed_of(client, name):
    """What a worker would be given of a job."""
    await client.enqueue(name)
    needs = (await client.job(name)).definition.needs
    return (await claim(client.store, kinds=[needs])).one


async def test_each_execution_runs_the_version_that_it_was_created_under(tmp_path):
    # Created under version 1; that fails after version 2 is there, is tried again by the policy,
    # and then by a person.
    one = (
        "echo version one; while [ ! -e go ]; do sleep 0.02; done;"
        " if [ -e mended ]; then echo done; else exit 3; fi"
    )
    app = App(f"sqlite:///{tmp_path / 'daybell.db'}")
    async with app, working(app, allow_command=True):
        client = app.client()
        await client.create(
            "report",
            command={"run": one, "shell": True, "directory": str(tmp_path)},
            retries={"delays": ["10ms"]},
        )
        old = await client.enqueue("report")
        await eventually(lambda: client.workers(), lambda found: found[0].running)
        await client.update("report", command={"run": ["echo", "version two"]})
        (tmp_path / "go").touch()

        failed = await ended(client, old.id)
        (tmp_path / "mended").touch()
        await client.retry(old.id)
        mended = await ended(client, old.id)
        new = await ended(client, (await client.enqueue("report")).id)

        assert (failed.status, failed.failures, failed.version) == (State.DEAD, 2, 1)
        assert (mended.status, mended.version, mended.attempt) == (State.SUCCEEDED, 1, 3)
        assert output(mended)[:2] == ["version one", "done"]
        assert (new.version, output(new)[0]) == (2, "version two")


async def test_what_is_not_offered_goes_back(app):
    async with app:
        client = app.client()
        await client.create("clean", command="uptime")
        claimed = await claimed_of(client, "clean")

        refused = await app.handlers.ask(claimed)
        app.handlers.kind_options = KindOptions(allow_command=True)
        allowed = await app.handlers.ask(claimed)

        assert refused is None
        assert isinstance(allowed, CommandHandler)
        assert app.handlers.find(claimed) is allowed
        await app.handlers.close()
        assert app.handlers.find(claimed) is None
        app.handlers.kind_options = KindOptions()
        assert await app.handlers.ask(claimed) is None


async def test_a_job_is_run_as_the_version_claimed_says(app):
    async with app:
        client = app.client()
        await client.create("call", http="https://example.org", timeout="7s", retries=2)
        first = await claimed_of(client, "call")
        await client.update("call", timeout="9s")
        second = await claimed_of(client, "call")

        old, new = await app.handlers.ask(first), await app.handlers.ask(second)

        assert isinstance(old, HttpHandler) and isinstance(new, HttpHandler)
        assert (old.timeout, new.timeout, old.retry.retries) == (7.0, 9.0, 2)
        assert (app.handlers.find(first), app.handlers.find(second)) == (old, new)
        await app.handlers.close()


def test_event_loops_share_nothing(file_url):
    app = App(file_url)
    found = []

    async def look():
        async with app:
            client = app.client()
            if not found:
                await client.create("call", http="https://example.org")
            claimed = await claimed_of(client, "call")
            assert app.handlers.find(claimed) is None
            found.append(await app.handlers.ask(claimed))

    asyncio.run(look())
    asyncio.run(look())

    assert found[0] is not found[1]


async def test_a_worker_in_a_script_offers_connections_and_neither_commands_nor_private_places(
    app, monkeypatch
):
    monkeypatch.setenv("DAYBELL_CONNECTION_SHOP", "sqlite:///shop.db")
    app.handlers.kind_options = KindOptions(allow_command=True, allow_private_http=True)

    async with app.worker():
        (worker,) = await app.client().workers()

    assert worker.kinds == ["task", "http", "workflow", "notify", "sql:shop"]
    assert app.handlers.kind_options.allow_private_http is False


LOADING = """
import asyncio, sys, threading
from daybell import App
from tests.builders import claim

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("httpx", "daybell.runners.http"):
            is_main = threading.current_thread() is threading.main_thread()
            print(name, "on the loop" if is_main else "in a thread")

async def main():
    sys.meta_path.insert(0, Finder())
    async with App("memory://") as app:
        await app.client().create("alive", http="https://example.org")
        await app.client().enqueue("alive")
        claimed = (await claim(app.client().store, kinds=["http"])).one
        print(type(await app.handlers.ask(claimed)).__name__)

asyncio.run(main())
"""


async def test_what_runs_a_kind_is_imported_in_a_thread():
    script = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOADING, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(script.communicate(), 300)

    assert sorted(said.decode().splitlines()) == [
        "HttpHandler",
        "daybell.runners.http in a thread",
        "httpx in a thread",
    ]


async def test_what_a_command_prints_feeds_a_map_a_condition_and_other_words(tmp_path):
    told = '{"files": ["a", "b"], "rows": 2}'
    nodes = [
        {"name": "list", "command": {"run": ["echo", told], "output": "json"}},
        {"name": "day", "command": "echo monday"},
        {
            "name": "each",
            "command": ["echo", {"item": True}, {"output": "day", "path": "output"}],
            "map": {"output": "list", "path": "output.files"},
        },
    ]
    edges = [
        {"from": "list", "to": "each", "when": "result.output.rows == 2"},
        {"from": "day", "to": "each", "when": 'result.output == "monday"'},
    ]
    app = App(f"sqlite:///{tmp_path / 'daybell.db'}")

    async with app, working(app, allow_command=True):
        client = app.client()
        await client.create("files", workflow={"nodes": nodes, "edges": edges})
        run = await ended(client, (await client.enqueue("files")).id)

    said = [one["output"] for one in run.result]
    assert said == ["a monday", "b monday"], run.error


# What an app's handlers say they lack, so that another worker can be looked for.


def an_app(*tasks: str) -> App:
    app = App("memory://")
    for name in tasks:
        app.task(name=name)(lambda: None)
    return app


async def test_a_task_that_is_not_in_the_code_is_named_whoever_runs_it():
    app = an_app("find", "sell")
    assert app.handlers.tasks == {"find": "default", "sell": "default"}
    async with app:
        client = app.client()
        await client.define("report")
        await client.create("monthly", task="report")
        nodes = [{"name": "first", "task": "find"}, {"name": "last", "task": "report"}]
        await client.create("flow", workflow={"nodes": nodes})
        first, last = (a_claimed(job="flow", node=node) for node in ("first", "last"))

        for claimed in (a_claimed(job="report"), a_claimed(job="monthly"), last):
            assert app.handlers.lacking(claimed) is None, "nobody has asked yet"
            for _ in range(2):
                assert await app.handlers.ask(claimed) is None
                assert app.handlers.lacking(claimed) == "task:report"
        for claimed in (first, a_claimed(job="sell")):
            assert await app.handlers.ask(claimed) is not None
            assert app.handlers.lacking(claimed) is None
        missing = a_claimed(job="nobody_knows")
        assert await app.handlers.ask(missing) is None
        assert app.handlers.lacking(missing) is None
