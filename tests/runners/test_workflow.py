"""Nodes of a workflow as workers run them: tasks, kinds without code, and what they are told."""

import sqlite3
from contextlib import closing
from typing import Any
from uuid import UUID

from daybell import App
from daybell.client.jobs import job as load_job
from daybell.core.execution import Claimed, Priority
from daybell.core.job import JobDefinition
from daybell.core.references import literal
from daybell.runners.kind import KindHandler
from daybell.runners.workflow import NodeHandler, WorkflowHandler
from daybell.sdk.handlers import KindOptions

LONG = 20.0  # seconds; nothing here takes so long


def a_claimed(**fields: Any) -> Claimed:
    """An execution of a node."""
    usual: dict[str, Any] = dict(
        id=UUID(int=1), attempt=1, lease=UUID(int=2), tenant="default", job="w", version=1,
        kind="task", queue="default", priority=Priority.NORMAL, args="{}", failures=0, crashes=0,
        created_at=0.0, run_at=0.0,
    )  # fmt: skip
    return Claimed(**usual | fields)


async def run_of(app: App, name: str, **workflow: Any) -> Any:
    """What a workflow that was made over the API comes to."""
    async with app, app.worker():
        await app.client().create(name, workflow=workflow)
        answer = await app.client().trigger(name)
        handle = app.workflows["any"]._handle(answer.id, created=True)
        return await handle.result(LONG)


def an_app(url: str) -> App:
    app = App(url)

    @app.task
    def find():
        return {"name": "ada'; DROP TABLE customer; --", "ids": [1, 2]}

    with app.workflow("any"):
        find.node()
    return app


async def test_results_go_into_settings_as_data(tmp_path, monkeypatch):
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as shop:
        shop.execute("CREATE TABLE customer (name TEXT)")
    monkeypatch.setenv("DAYBELL_CONNECTION_SHOP", f"sqlite:///{file}")
    insert = {
        "connection": "shop",
        "statement": "INSERT INTO customer VALUES (:name)",
        "parameters": {"name": {"output": "find", "path": "name"}},
    }

    app = an_app(f"sqlite:///{tmp_path / 'daybell.db'}")
    await run_of(
        app,
        "shop",
        nodes=[{"name": "find", "task": "find"}, {"name": "insert", "sql": insert}],
    )

    with closing(sqlite3.connect(file)) as shop:
        assert shop.execute("SELECT name FROM customer").fetchall() == [
            ("ada'; DROP TABLE customer; --",)
        ]


class Echo(KindHandler):
    """Answers what it was given."""

    def __init__(self, definition: JobDefinition) -> None:
        super().__init__(definition, reveal=None)  # pyright: ignore[reportArgumentType]
        self.settings = definition.settings

    async def perform(self, running: Any) -> Any:
        running.is_hopeless = True
        return [self.settings, running.claimed.args]


class Running:
    """An execution of a node."""

    def __init__(self, args: str) -> None:
        self.claimed = a_claimed(args=args, node="call")
        self.is_hopeless = False


async def test_a_node_without_code_is_called_with_nothing_else():
    settings = '{"url":{"output":"find"},"body":{"as":{"item":true}}}'
    definition = JobDefinition(name="w", kind="http", settings=settings, timeout=7.0)
    looks_like_one = literal({"secret": "NOT_ONE"})
    running: Any = Running('{"find":"https://example.org","item":{"as_is":{"secret":"NOT_ONE"}}}')

    handler = NodeHandler(definition, Echo)
    answer = await handler.run(running)

    assert looks_like_one == {"as_is": {"secret": "NOT_ONE"}}
    assert answer is not None and "https://example.org" in answer
    assert '\\"as\\":{\\"as_is\\":{\\"secret\\":\\"NOT_ONE\\"}}' in answer  # nobody looks into it
    assert answer.endswith(',"{}"]')
    assert running.is_hopeless  # what is said of it reaches the execution itself
    assert handler.timeout == 7.0


async def test_nodes_that_are_run_alike_share_their_handler(tmp_path):
    app = an_app(f"sqlite:///{tmp_path / 'daybell.db'}")
    with app.workflow("many"):
        for number in range(3):
            app.tasks["find"].node(f"n{number}", timeout=5 if number else 6)
    app.handlers.kind_options = KindOptions()

    async with app:
        version = (await app.client().job("many")).version
        claimed = [a_claimed(job="many", version=version, node=f"n{n}") for n in range(3)]
        handlers = [await app.handlers.ask(one) for one in claimed]
        run = app.handlers.find(a_claimed(job="many", version=version, kind="workflow"))

    assert handlers[0] is not handlers[1] and handlers[1] is handlers[2]
    assert isinstance(run, WorkflowHandler)


async def test_a_node_that_no_version_has_is_given_back(tmp_path):
    app = an_app(f"sqlite:///{tmp_path / 'daybell.db'}")

    async with app:
        version = (await app.client().job("any")).version
        unknown = await app.handlers.ask(a_claimed(job="any", version=version, node="gone"))

    assert unknown is None


async def test_what_is_known_of_nodes_stays_when_others_are_learned(tmp_path, monkeypatch):
    monkeypatch.setattr("daybell.sdk.handlers.WORKFLOWS_MAX", 2)
    app = an_app(f"sqlite:///{tmp_path / 'daybell.db'}")
    for name in ("one", "two", "three"):
        with app.workflow(name):
            app.tasks["find"].node("only")

    async with app:
        jobs = {name: await load_job(app.client(), name) for name in ("one", "two", "three")}
        nodes = {
            name: a_claimed(job=name, version=job.version, node="only")
            for name, job in jobs.items()
        }
        assert await app.handlers.ask(nodes["one"]) is not None
        assert await app.handlers.ask(nodes["two"]) is not None
        app.handlers.learn([jobs["one"]])  # again, as whoever opens an app does
        assert app.handlers.find(nodes["one"]) is not None

        await app.handlers.ask(nodes["three"])  # one is too many
        known = {name for name, node in nodes.items() if app.handlers.find(node) is not None}
        assert known == {"one", "three"}
        assert await app.handlers.ask(nodes["two"]) is not None
