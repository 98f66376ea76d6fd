"""Jobs of every kind that needs no code, on a fresh `daybell dev`: made with one request each, as
curl would send it, or with one command each.
"""

import json
import re
import sqlite3
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.request import Request, urlopen

import asyncpg
import pytest

from tests.cli.answering import answering
from tests.cli.terminal import Running, daybell, until
from tests.stores import POSTGRES

WAIT_SECONDS = 1  # as the answer says; the job itself would not wait at all


@contextmanager
def a_receiver():
    """A place to send requests to, which takes the first to /call for one too many. Yields its
    address, and what came there.
    """
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            came.append((self.path, body))
            is_early = [path for path, _ in came].count("/call") == 1 and self.path == "/call"
            self.send_response(503 if is_early else 200)
            if is_early:
                self.send_header("retry-after", str(WAIT_SECONDS))
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, format, *args): ...

    with answering(Handler) as place:
        yield place, came


@pytest.fixture
async def connections(tmp_path, servers):
    """Two databases with the same things in them, as a worker is told of them."""
    rows = "INSERT INTO item VALUES ('bell', 9.5), ('rope', 2.0)"
    file = sqlite3.connect(tmp_path / "shop.db")
    file.executescript(f"CREATE TABLE item (name TEXT, price REAL); {rows}")
    file.close()
    async with servers.database(POSTGRES["postgres"]) as url:
        connection = await asyncpg.connect(url)
        await connection.execute(f"CREATE TABLE item (name text, price float8); {rows}")
        await connection.close()
        yield {
            "DAYBELL_CONNECTION_SHOP": "sqlite:///shop.db",
            "DAYBELL_CONNECTION_WAREHOUSE": url,
        }


def ask(url, body=None):
    """What the API answers, to a request as curl would send it."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=300) as answer:
        return json.load(answer)


def ended(api, id) -> Any:
    """An execution with its attempts, once it has succeeded."""

    def look():
        execution = ask(f"{api}/executions/{id}")
        assert execution["status"] != "dead", execution
        return execution if execution["status"] == "succeeded" else None

    return until(look)


def logged(api, id):
    return [line["message"] for line in ask(f"{api}/executions/{id}/logs")["items"]]


@pytest.mark.postgres
async def test_each_kind_of_job_without_code_runs_on_a_fresh_daybell_dev(tmp_path, connections):
    with (
        a_receiver() as (place, came),
        Running("dev", "--port", "0", folder=tmp_path, **connections) as running,
    ):
        api = re.findall(r"http://\S+/api/v1", running.wait_for("  api ")[0])[0]

        ids = made_by_request(api, place)
        made_by_command(tmp_path, api, place, came)  # while the call waits for its second attempt
        check_requests(api, came, ids)


def made_by_request(api, place):
    """Without a schedule, each runs at once."""
    call = {"url": f"http://{place}/call", "body": {"n": 1}}
    cheap = {"connection": "shop", "statement": "SELECT name FROM item WHERE price < 5"}
    jobs = [
        {"name": "call", "http": call, "backoff": {"backoff": "fixed", "delay": 0}},
        {"name": "hello", "command": "echo hello, curl"},
        {"name": "cheap", "sql": cheap},
    ]
    made = [ask(f"{api}/jobs", job) for job in jobs]
    return [job["last_execution"]["execution_id"] for job in made]


def check_requests(api, came, ids):
    called, said, found = (ended(api, id) for id in ids)

    assert logged(api, said["execution_id"]) == ["hello, curl"]
    assert found["result"]["rows"] == [{"name": "rope"}]
    assert called["result"]["body"] == {"ok": True}
    assert [body for path, body in came if path == "/call"] == [{"n": 1}] * 2
    first, second = called["attempts"]
    assert (first["outcome"], second["outcome"]) == ("failed", "succeeded")
    over, again = map(datetime.fromisoformat, (first["ended_at"], second["started_at"]))
    assert (again - over).total_seconds() >= WAIT_SECONDS


def made_by_command(folder, api, place, came):
    """Each runs when it is triggered."""
    dear = "SELECT name FROM item WHERE price > cast(:least AS float8)"
    words = [
        ["greet", "--", "echo", "hello, shell"],
        ["dear", "--connection", "warehouse", "--sql", dear, "--parameter", "least=99"],
        ["tell", "--notify", f"json://{place}/told", "--title", "Hi", "--body", "there"],
    ]
    args = [{}, {"least": 5}, {"body": "you"}]
    ids = []
    for word, given in zip(words, args, strict=True):
        made = daybell("jobs", "create", *word, folder=folder)
        assert made.code == 0, made.err
        asked = ["--args", json.dumps(given)] if given else []
        run = daybell("jobs", "trigger", word[0], *asked, "--json", folder=folder)
        ids.append(json.loads(run.out)["execution_id"])
    _, found, told = (ended(api, id) for id in ids)

    assert "hello, shell" in daybell("executions", "logs", ids[0], folder=folder).out
    assert found["result"]["rows"] == [{"name": "bell"}]
    assert told["result"] == {"sent": 1}
    (body,) = [body for path, body in came if path == "/told"]
    assert (body["title"], body["message"]) == ("Hi", "you")
