"""A secret is used wherever jobs can use one; then all that was written is searched for it."""

import asyncio
import base64
import html
import io
import json
import re
import signal
import sqlite3
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from daybell.client.sealing import new_key
from daybell.core.masking import WITHHELD
from tests.cli.answering import answering
from tests.cli.terminal import Running, daybell
from tests.sdk import secret_app
from tests.sdk.waiting import eventually
from tests.stores import POSTGRES

CANARY = "canary-5f1d"
VALUE = f'{CANARY}/+="q" ü 0123456789'
PLAIN = f"{CANARY}-plain-9876543210"  # for where such characters cannot be
ODD = f'{CANARY.title()}<b>&"it\'s" 0123456789'
LONG = "".join(f"{CANARY}.{number:03d}" for number in range(67))  # 1,005 characters
PASSWORD = f"{CANARY}-of-a-database"
TOKEN, WORD = {"secret": "TOKEN"}, {"secret": "WORD"}
OTHERS = {"join": [{"secret": "ODD"}, " ", {"secret": "LONG"}]}
OVER = {"succeeded", "dead"}
SCRIPT = 'echo "out $TOKEN"; echo "err $1" >&2; cat; printf %s "$TOKEN" | base64; exit $2'
ENVIRON = "command-environ"  # of its worker
CLOSED = "127.0.0.1:9"  # nobody is there


def traces() -> list[bytes]:
    """What canaries leave behind: themselves, and what is their own in base64, wherever it stands;
    all in small letters.
    """
    raw = CANARY.encode()
    found = [raw, raw.hex().encode()]
    for word in (CANARY, CANARY.title()):
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + word.encode())
            found.append(encoded[-(-8 * before // 6) : (8 * before + 8 * len(raw)) // 6].lower())
    return found


@contextmanager
def an_echo():
    """A server that answers with all that it was sent; yields its address, and what came."""
    came: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"] or 0)).decode()
            request = f"{self.path} {dict(self.headers)} {body}"  # another thread appends, too
            came.append(request)
            self.send_response(400 if "fail" in self.path else 200)
            is_page = "page" in self.path
            self.send_header("content-type", "text/html" if is_page else "application/json")
            self.send_header("location", self.path)
            self.end_headers()
            said = json.dumps({"path": self.path, "body": request})
            self.wfile.write((f"<p>{html.escape(body)}" if is_page else said).encode())

        def log_message(self, format, *args): ...

    with answering(Handler) as place:
        yield place, came


def commands() -> dict[str, Any]:
    def command(code: int) -> dict[str, Any]:
        words = ["sh", "-c", SCRIPT, "sh", TOKEN, str(code)]
        return {"run": words, "env": {"TOKEN": TOKEN}, "stdin": TOKEN}

    return {
        ENVIRON: {"command": {"run": "cat /proc/$PPID/environ || true", "shell": True}},
        "command-good": {"command": command(0)},
        "command-bad": {"command": command(3)},
        "command-none": {"command": ["/no/such/program", TOKEN]},
        "command-odd": {"command": [{"join": ["/no/such/", WORD]}]},
    }


def requests(place: str) -> dict[str, Any]:
    def request(host: str, path: str) -> dict[str, Any]:
        return {
            "url": {"join": [f"http://{host}/{path}?token=", WORD]},
            "method": "POST",
            "headers": {"Authorization": {"join": ["Bearer ", WORD]}},
            "body": {"token": TOKEN, "text": {"join": ["<", TOKEN, ">"]}},
        }

    def notice(host: str) -> dict[str, Any]:
        to = {"join": [f"json://{host}/", WORD]}
        return {"to": [to], "title": TOKEN, "body": {"join": ["it is ", TOKEN]}}

    return {
        "http-good": {"http": request(place, "good")},
        "http-bad": {"http": request(place, "fail")},
        "page-good": {"http": {"url": f"http://{place}/page", "method": "POST", "body": OTHERS}},
        "page-bad": {
            "http": {"url": f"http://{place}/page-fail", "method": "POST", "body": OTHERS}
        },
        "http-away": {"http": request(CLOSED, "good")},
        "http-odd": {"http": {"url": {"join": ["http://", TOKEN]}}},
        "notify-good": {"notify": notice(place)},
        "notify-bad": {"notify": notice(CLOSED)},
    }


def statements(name: str, wrong: str) -> dict[str, Any]:
    def sql(statement: str) -> dict[str, Any]:
        return {"sql": {"connection": name, "statement": statement, "parameters": {"token": TOKEN}}}

    return {f"{name}-good": sql("SELECT :token AS token"), f"{name}-bad": sql(wrong)}


@asynccontextmanager
async def a_place(kind: str, folder: Path, servers):
    """A store; yields its URL, what databases its jobs may use, and what reads all of it."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE item (name TEXT)")
    shop = {"DAYBELL_CONNECTION_SHOP": f"sqlite:///{folder}/shop.db"}
    wrong = "SELECT json_extract(:token, '$')"
    if kind == "sqlite":
        yield (
            f"sqlite:///{folder}/daybell.db",
            shop,
            statements("shop", wrong),
            lambda: asyncio.to_thread(all_files, folder),
        )
        return
    database = partial(servers.database, POSTGRES[kind])
    async with database() as url, database() as other:
        yield (
            url,
            {**shop, "DAYBELL_CONNECTION_PLACE": other},
            statements("shop", wrong) | statements("place", "SELECT CAST(:token AS text)::int"),
            partial(all_tables, url),
        )


def all_files(folder: Path) -> dict[str, bytes]:
    files = ["daybell.db", "daybell.db-wal"]
    return {name: (folder / name).read_bytes() for name in files if (folder / name).exists()}


async def all_tables(url: str) -> dict[str, bytes]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'daybell'"
        " AND table_type = 'BASE TABLE'"
    )
    found: dict[str, bytes] = {}
    for (name,) in rows:
        copied = io.BytesIO()
        await connection.copy_from_query(f'SELECT * FROM daybell."{name}"', output=copied)
        found[name] = copied.getvalue()
    await connection.close()
    return found


PATHS = (
    "jobs?limit=1000", "executions?limit=1000", "dead-letters?limit=1000", "audit?limit=1000",
    "secrets", "stats", "workers", "queues", "status", "keys", "templates",
)  # fmt: skip


async def all_answers(http: httpx.AsyncClient, jobs: list[str], ids: list[str]) -> dict[str, bytes]:
    paths = [f"/api/v1/{path}" for path in PATHS] + ["/openapi.json", "/docs"]
    for job in jobs:
        paths += [f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/versions"]
    for id in ids:
        paths += [f"/api/v1/executions/{id}{more}" for more in ("", "/logs", "/why")]
    return {path: (await http.get(path)).content for path in paths}


async def run_all(http: httpx.AsyncClient, jobs: dict[str, Any]) -> list[str]:
    """Make the jobs, run them all and every task; answers the executions."""

    async def trigger(name: str, **more: Any) -> str:
        asked = await http.post(f"/api/v1/jobs/{name}/trigger", json=more)
        return asked.json()["execution_id"]

    ids: list[str] = []
    for name, job in jobs.items():
        said = {"name": name, "schedule": "manual", "retries": 0, "timeout": 20, **job}
        made = await http.post("/api/v1/jobs", json=said)
        assert made.status_code == 201, made.text
        ids.append(await trigger(name))
        if name == ENVIRON:
            await all_ended(http, ids)  # before any secret is opened
    for task in ("on_the_loop", "in_a_thread", "in_a_process"):
        for is_failing in (False, True):
            token = OTHERS if is_failing else TOKEN
            args = {"token": token, "is_failing": is_failing}
            ids.append(await trigger(task, args=args, retries=0))
    ids.append(await trigger("on_the_loop", args={"token": {"secret": "LONG"}}))
    ids.append(await trigger("on_the_loop", args={"token": {"secret": "ODD"}}))
    ids.append(await trigger("later", args={"token": TOKEN}))
    ids.append(await trigger("paint", args={"colour": {"secret": "LONG"}}))
    return ids


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_canary_is_used_everywhere_and_seen_nowhere(kind, tmp_path, servers):
    key = new_key()
    async with a_place(kind, tmp_path, servers) as (url, databases, sqls, read_store):
        variables: dict[str, Any] = {
            "DAYBELL_DATABASE_URL": url,
            "DAYBELL_SECRETS_KEY": key,
            "DAYBELL_CONNECTION_UNUSED": f"postgresql://me:{PASSWORD}@{CLOSED}/x",
            **databases,
        }
        app = secret_app.__file__
        assert app is not None
        with (
            an_echo() as (place, came),
            # Not a fork: that shows the environment of the process which it was forked from.
            Running(
                "dev", app, "--port", "0", folder=tmp_path, afresh=True, **variables
            ) as running,
        ):
            (line,) = running.wait_for("  api ")
            address, *_ = re.findall(r"http://[\d.:]+", line)
            over_http = {"DAYBELL_API_URL": address, "folder": tmp_path}
            said = [daybell("secrets", "set", "TOKEN", stdin=VALUE.encode(), **over_http)]
            jobs = {**commands(), **requests(place), **sqls}
            if kind != "sqlite":  # which has run the rest; here it is about what the store keeps
                jobs = {name: job for name, job in jobs.items() if not name.startswith("notify")}
            async with httpx.AsyncClient(base_url=address, timeout=300) as http:
                for name, value in {"WORD": PLAIN, "ODD": ODD, "LONG": LONG}.items():
                    set_it = await http.put(f"/api/v1/secrets/{name}", json={"value": value})
                    assert set_it.is_success, set_it.text
                ids = await run_all(http, jobs)
                ended = await all_ended(http, ids)
                answers = await all_answers(http, list(jobs), ids)
            said += [daybell("executions", "show", ids[0], **over_http)]
            running.signal(signal.SIGTERM)
            assert running.end() == 0, running.said

        shown = {"stdout and stderr": running.said.encode(), "commands": repr(said).encode()}
        everything = {**answers, **shown, **await read_store()}

        check_use(ended, came, running.said)
        seen = [
            (where, text[max(0, at - 60) : at + 60])
            for where, text in everything.items()
            for trace in (*traces(), key.lower().encode())
            if (at := text.lower().find(trace)) >= 0
        ]
        assert not seen, seen


async def all_ended(http: httpx.AsyncClient, ids: list[str]) -> dict[str, list[dict[str, Any]]]:
    """All executions by job, once they are over; one waits for its hour."""
    found: dict[str, list[dict[str, Any]]] = {}

    async def ask(id: str) -> dict[str, Any]:
        return (await http.get(f"/api/v1/executions/{id}")).json()

    for id in ids:
        one = await eventually(partial(ask, id), is_over)
        found.setdefault(one["job"], []).append(one)
    return found


def is_over(one: dict[str, Any]) -> bool:
    return one["status"] in OVER or (one["job"] == "later" and one["status"] == "scheduled")


def check_use(ended: dict[str, list[dict[str, Any]]], came: list[str], said: str) -> None:
    """The secret was really there."""
    good = {job for job, ran in ended.items() if ran[0]["status"] == "succeeded"}
    bad = {job for job in ended if job.endswith(("-bad", "-none", "-away", "-odd"))}
    told = {job: [one["error"] for one in ended[job]] for job in ended}
    assert good == set(ended) - bad - {"later", "paint"}, told
    sent = {job for job in good if job.startswith(("http-", "page-", "notify-"))}
    sent |= {"http-bad", "page-bad"}
    assert sum(CANARY in one for one in came) == len(sent) >= 4, came
    assert sum(ODD in one and LONG in one for one in came) == 2
    withheld = ended[ENVIRON][0]["result"]["output"] == WITHHELD  # it is one line
    assert withheld or not Path("/proc").exists()
    assert ended["command-good"][0]["result"]["output"].startswith("out ***")
    assert ended["on_the_loop"][0]["result"]["token"] == "***"
    assert all(one["error"] for job in bad for one in ended[job])
    assert "***" in said and "to stderr" in said
    assert said.count("printed ***") >= 6
