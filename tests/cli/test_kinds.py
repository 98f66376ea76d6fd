"""Jobs without code, run by real workers: one that may run all of them, and one that may not."""

import json
import sqlite3
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from daybell import Client
from daybell.client.sealing import new_key
from daybell.core.execution import State
from tests.cli.terminal import Running, daybell
from tests.sdk.waiting import eventually

READY = r"worker \S+ \(.*\) runs "
TOKEN = "t0p-secret-canary"
COMMANDS = 8


@contextmanager
def a_server():
    """A place to send requests to; yields its address, and what came there."""
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"ok": true}')

        def log_message(self, format, *args): ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def ended(client, id):
    async def ask():
        return (await client.execution(id)).execution

    return await eventually(ask, lambda one: one.state in (State.SUCCEEDED, State.DEAD))


async def result_of(client, name, args=None):
    one = await ended(client, (await client.enqueue(name, args or {})).id)
    assert one.state is State.SUCCEEDED, one.error
    return json.loads(one.result)


async def test_a_worker_runs_what_it_may_and_never_takes_what_it_may_not(tmp_path):
    key = new_key()
    shop = {"DAYBELL_CONNECTION_SHOP": "sqlite:///shop.db", "DAYBELL_SECRETS_KEY": key}
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE item (name TEXT, price REAL)")
        database.execute("INSERT INTO item VALUES ('bell', 9.5), ('rope', 2.0)")
    database.close()
    url = f"sqlite:///{tmp_path}/daybell.db"
    async with Client(url, migrate=True, secrets_key=key) as client:
        with (
            a_server() as (place, came),
            Running("worker", "--name", "plain", folder=tmp_path) as plain,
        ):
            plain.wait_for(READY)
            await client.set_secret("TOKEN", TOKEN)
            await client.create("hello", command=["echo", "hello"], env={"A": {"secret": "TOKEN"}})
            first = [await client.enqueue("hello", {"n": n}) for n in range(COMMANDS)]
            waiting = daybell("executions", "why", str(first[0].id), folder=tmp_path)
            words = ["--allow-command", "--allow-private-http", "--queues", "default,web"]
            with Running("worker", *words, "--name", "able", folder=tmp_path, **shop) as able:
                said = able.wait_for(READY)[0]

                done = [await ended(client, one.id) for one in first]
                workers = {one.name: one for one in await client.workers()}

                assert "runs commands; start one with `daybell worker --allow-command`" in (
                    waiting.out
                )
                assert said.endswith("kinds: command, http, notify, sql:shop")
                assert workers["plain"].kinds == ("http", "notify")
                assert workers["able"].kinds == ("command", "http", "notify", "sql:shop")
                for one in done:
                    assert (one.state, one.attempt) == (State.SUCCEEDED, 1), one.error
                    (attempt,) = (await client.execution(one.id)).attempts
                    assert attempt.worker == workers["able"].id
                await _other_kinds(client, place, came)


async def _other_kinds(client, place, came):
    token = {"secret": "TOKEN"}
    await client.create(
        "call",
        queue="web",
        http={
            "url": f"http://{place}/call",
            "method": "POST",
            "headers": {"Authorization": {"join": ["Bearer ", token]}},
        },
    )
    await client.create(
        "cheap",
        sql={
            "connection": "shop",
            "statement": "SELECT name FROM item WHERE price < :most ORDER BY name",
            "parameters": {"most": 1},
        },
    )
    await client.create(
        "tell", queue="web", notify={"to": f"json://{place}/told", "title": "Hi", "body": "there"}
    )

    answer = await result_of(client, "call", {"n": 1})
    rows = await result_of(client, "cheap", {"most": 5})
    sent = await result_of(client, "tell", {"body": "you"})

    assert (answer["status"], answer["body"]) == (200, {"ok": True})
    assert rows["rows"] == [{"name": "rope"}]
    assert sent == {"sent": 1}
    by_path = {path: (headers, body) for path, headers, body in came}
    headers, body = by_path["/call"]
    assert (headers["Authorization"], body) == (f"Bearer {TOKEN}", {"n": 1})
    assert by_path["/told"][1]["message"] == "you"
