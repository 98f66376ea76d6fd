"""`daybell worker --api-url`: processes without a database, real signals, real deaths."""

import asyncio
import json
import re
import signal
import socket
from contextlib import contextmanager
from typing import Any, cast

import pytest

from daybell.client import Client
from daybell.client.sealing import new_key
from tests.cli.terminal import Running, daybell, until

APP = """
import asyncio, os
from daybell import App, Context

app = App()

@app.task
async def greet(name: str) -> str:
    print("greeting", name)
    return f"Hello, {name}"

@app.task(isolation="process")
def apart(name: str) -> str:
    return f"{name} from another process: {os.path.exists('daybell.db')}"

@app.task
async def nap(seconds: float) -> str:
    print("napping", flush=True)
    await asyncio.sleep(seconds)
    return "rested"

@app.task(retries=0)
async def call() -> None:
    await greet.enqueue("you")

@app.task(retries=0)
async def transact(ctx: Context) -> None:
    async with ctx.transaction():
        pass

@app.task(retries=0)
async def tell(token: str) -> int:
    print("the token is", token)
    return len(token)

@app.task
async def order(ctx: Context) -> str:
    first = await ctx.step("one", greet.function, "step")
    await ctx.sleep("10ms")
    return first
"""


class Site:
    """A server with its database in one folder, and another folder with code alone."""

    def __init__(self, folder, place: str) -> None:
        self.folder = folder
        self.place = place
        self.edge = folder / "edge"
        self.edge.mkdir()
        (self.edge / "code.py").write_text(APP)
        self.key = self.make_key("--role", "worker", "--action", "secrets")

    def make_key(self, *words: str) -> str:
        made = daybell("keys", "create", "edge", *words, "--json", folder=self.folder)
        return json.loads(made.out)["token"]

    def worker(self, *words: str, **variables: str) -> Running:
        told = {"DAYBELL_API_KEY": self.key, "DAYBELL_LEASE": "2", **variables}
        words = ("worker", "code.py", "--api-url", self.place, *words)
        return Running(*words, folder=self.edge, **cast(Any, told))

    def ask(self, *words: str) -> dict:
        return json.loads(daybell(*words, "--json", folder=self.folder).out)

    def run(self, job: str, **args) -> dict:
        """Trigger a job, and wait for its end."""
        id = self.ask("jobs", "trigger", job, "--args", json.dumps(args))["execution_id"]
        until(lambda: self.ask("executions", "show", id)["finished_at"] is not None)
        return self.ask("executions", "show", id)


@pytest.fixture
def site(tmp_path):
    key = new_key()
    url = f"sqlite:///{tmp_path}/daybell.db"

    async def fill() -> None:
        async with Client(url, migrate=True, secrets_key=key) as client:
            await client.set_secret("TOKEN", "a long secret")
            for name in ("greet", "apart", "nap", "call", "transact", "tell", "order"):
                await client.define(name, retries=0 if name in ("call", "transact") else 3)

    asyncio.run(fill())
    with Running("server", "--port", "0", folder=tmp_path, DAYBELL_SECRETS_KEY=key) as server:
        found = re.findall(r"https?://[\w.:]+", server.wait_for("listening")[0])
        yield Site(tmp_path, found[0])


def test_a_worker_whose_server_is_away_says_what_it_runs_once_it_does(tmp_path):
    assert daybell("migrate", folder=tmp_path).code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = Site(tmp_path, f"http://127.0.0.1:{port}")

    with site.worker("--name", "early") as running:
        running.wait_for("cannot register yet")
        running.wait_for("renew: .* trying again")
        assert " runs " not in running.said

        with Running("server", "--port", str(port), folder=tmp_path):
            running.wait_for("worker early .* runs ")


@contextmanager
def upkeep(site):
    with Running("scheduler", folder=site.folder, DAYBELL_LEASE="2") as running:
        running.wait_for("looking after")
        yield


def test_a_worker_without_a_database_runs_tasks_of_all_kinds(site):
    with site.worker("--name", "edge-1") as running:
        running.wait_for(r"worker edge-1 .* runs .* in http://")

        assert site.run("greet", name="Ada")["result"] == "Hello, Ada"
        assert site.run("apart", name="Bob")["result"] == "Bob from another process: False"
        assert site.run("order")["result"] == "Hello, step"
        lines = daybell("executions", "logs", site.run("greet", name="log")["execution_id"],
                        folder=site.folder).out  # fmt: skip
        assert "greeting log" in lines
        told = site.run("tell", token={"secret": "TOKEN"})
        lines = daybell("executions", "logs", told["execution_id"], folder=site.folder).out
        assert told["result"] == len("a long secret")
        assert "the token is" in lines and "a long secret" not in lines
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    assert site.ask("workers", "list")["items"] == []
    assert not (site.edge / "daybell.db").exists()


def test_what_takes_a_database_fails_with_the_way_out(site):
    with site.worker() as running:
        running.wait_for("runs .* in http://")

        for job, said in (("transact", "beside the database"), ("call", "RemoteClient")):
            ended = site.run(job)
            assert ended["status"] == "dead"
            assert said in ended["error"]["message"]


def test_the_work_of_a_worker_that_was_killed_runs_elsewhere(site):
    with upkeep(site), site.worker("--name", "one") as one:
        one.wait_for("runs .* in http://")
        id = site.ask("jobs", "trigger", "nap", "--args", '{"seconds": 1}')["execution_id"]
        one.wait_for("napping")

        one.process.kill()
        with site.worker("--name", "two", "--processes", "2") as two:
            two.wait_for("napping")
            until(lambda: site.ask("executions", "show", id)["status"] == "succeeded")
            two.signal(signal.SIGTERM)
            assert two.end() == 0

    shown = site.ask("executions", "show", id)
    assert [one["outcome"] for one in shown["attempts"]] == ["lost", "succeeded"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "operator"), "takes a key with the role worker"),
        (("--role", "worker", "--queues", "mail,sms"), "limited to queues mail, sms"),
    ],
)
def test_a_key_that_may_not_is_told_at_the_start(site, words, said):
    with site.worker(DAYBELL_API_KEY=site.make_key(*words)) as running:
        assert running.end() == 1
    assert said in running.said
    assert "Traceback" not in running.said
