"""The page of the worker protocol, and workers in other languages that are written from it."""

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from daybell.api import create_api
from daybell.client import Client
from hatch_build import find_node
from tests.api.routes.test_leases import Remote
from tests.cli.terminal import Running, daybell, until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "worker-protocol.md"
BLOCK = re.compile(r"```http\nPOST (\S+)\n(.*?)\n\n(\d+)\n(.*?)\n```", re.DOTALL)


class Names(dict[str, str]):
    """The values of placeholders: those that an answer brings, and others as they are needed."""

    def fill(self, text: str) -> str:
        return re.sub(r"<(\w+)>", lambda found: self.setdefault(found[1], str(uuid4())), text)

    def check(self, said, answer, where="") -> None:
        """Compare an answer with the page."""
        if isinstance(said, dict):
            assert said.keys() <= answer.keys(), where
            assert "code" in said or said.keys() == answer.keys(), where
            for name, one in said.items():
                self.check(one, answer[name], f"{where}.{name}")
        elif isinstance(said, list):
            assert len(said) == len(answer), where
            for number, one in enumerate(said):
                self.check(one, answer[number], f"{where}[{number}]")
        elif isinstance(said, str) and (found := re.fullmatch(r"<(\w+)>", said)):
            assert isinstance(answer, str), where
            if found[1] != "time":
                assert self.setdefault(found[1], answer) == answer, where
        else:
            assert said == answer, where


async def test_the_transcript_is_what_a_server_says():
    blocks = BLOCK.findall(PAGE.read_text())
    async with Client("memory://") as client:
        await client.define("send", queue="mail")
        for to in ("ada", "bob"):
            await client.enqueue("send", {"to": to})
        key = await client.create_key("edge", role="worker")
        http, names = Remote(create_api(client), key.token).http, Names()
        for path, body, status, answer in blocks:
            made = await http.post(names.fill(path), json=json.loads(names.fill(body)))
            assert made.status_code == int(status), (path, made.text)
            names.check(json.loads(answer), made.json(), path)

    assert len(blocks) == 9


def test_the_page_names_every_request_and_every_field():
    text = PAGE.read_text()
    document = create_api(Client("memory://")).openapi()
    for path, methods in document["paths"].items():
        if not path.startswith("/api/v1/leases"):
            continue
        verb = path.rpartition("/")[2]
        assert f"/{verb}" in text or f"`{verb}`" in text, path
        body = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = body["$ref"].rpartition("/")[2]
        for field in document["components"]["schemas"][name]["properties"]:
            assert f"`{field}`" in text, (path, field)


@contextmanager
def other_worker(site, *words: str):
    """A program that is a worker of the site."""
    told = {**os.environ, "DAYBELL_API_URL": site.place, "DAYBELL_API_KEY": site.key}
    with subprocess.Popen(
        words, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("worker "), process.stdout.read()
            yield process
        finally:
            process.kill()


class Site:
    """A server in a folder, with a key for workers."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place
        made = daybell("keys", "create", "edge", "--role", "worker", "--json", folder=folder)
        self.key = json.loads(made.out)["token"]

    def ask(self, *words: str) -> dict:
        return json.loads(daybell(*words, "--json", folder=self.folder).out)

    def run(self, job: str, **args) -> dict:
        id = self.ask("jobs", "trigger", job, "--args", json.dumps(args))["execution_id"]
        until(lambda: self.ask("executions", "show", id)["finished_at"] is not None)
        return self.ask("executions", "show", id)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "app.py").write_text(
        "from daybell import App\n"
        "app = App()\n"
        "@app.task\n"
        "async def greet(name: str) -> str: ...\n"
        "@app.task(retries=0)\n"
        "async def fail() -> None: ...\n"
    )
    daybell("migrate", folder=tmp_path)
    daybell("jobs", "declare", "app:app", folder=tmp_path)
    with Running("server", "--port", "0", folder=tmp_path) as server:
        place = re.findall(r"https?://[\w.:]+", server.wait_for("listening")[0])[0]
        yield Site(tmp_path, place)


def test_the_worker_in_node_runs_its_jobs(site):
    script = ROOT / "examples" / "worker.mjs"
    assert len(script.read_text().splitlines()) <= 60
    node, _ = find_node(ROOT)

    with other_worker(site, node, str(script)) as process:
        assert site.run("greet", name="Ada")["result"] == "Hello, Ada, from Node"
        failed = site.run("fail")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert (failed["status"], failed["error"]["type"]) == ("dead", "RangeError")
    assert site.ask("workers", "list")["items"] == []


def test_the_worker_with_curl_runs_its_jobs(site):
    with other_worker(site, "sh", str(ROOT / "examples" / "worker.sh")):
        assert site.run("greet", name="Ada")["result"] == "Hello, Ada, from curl"
