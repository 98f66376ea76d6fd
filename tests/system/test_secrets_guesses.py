"""A caller sends guesses of secrets as arguments, to a worker that has opened them: what comes back
does not tell the right ones from the wrong ones. Caller, server and worker are processes of their
own.
"""

import base64
import json
import re
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from daybell.client import Client
from daybell.client.sealing import new_key
from tests.cli.terminal import Running
from tests.sdk import secret_app
from tests.sdk.waiting import eventually
from tests.stores import POSTGRES

TOKEN = "sk4fZ0qLw9TtX2mB7vRcYh1NpKd8Gs3E"
PASSWORD = "correct-horse-22"
OPENS = {"secret": "TOKEN"}
ENDED = {"succeeded", "dead"}
OTHER = str.maketrans({chr(code): chr(code + 1) for code in (*range(65, 90), *range(97, 122))})


@asynccontextmanager
async def a_cluster(kind, folder, servers):
    """A server and a worker in processes of their own; yields an operator's client and the
    settings of the worker.
    """
    key, url = new_key(), f"sqlite:///{folder}/daybell.db"
    variables = {"DAYBELL_SECRETS_KEY": key}
    if kind == "sqlite":
        variables["DAYBELL_CONNECTION_SHOP"] = f"postgresql://me:{PASSWORD}@127.0.0.1:9/x"
        opened = partial(Client, url, secrets_key=key, migrate=True)
        async with guessing(opened, folder, variables | {"DAYBELL_DATABASE_URL": url}) as cluster:
            yield (*cluster, key)
        return
    async with servers.database(POSTGRES[kind]) as url:
        with_password = re.sub("//([^@:/]+)@", rf"//\1:{PASSWORD}@", url)
        assert PASSWORD in with_password
        opened = partial(Client, url, secrets_key=key, migrate=True)
        variables["DAYBELL_DATABASE_URL"] = with_password
        async with guessing(opened, folder, variables) as cluster:
            yield (*cluster, key)


@asynccontextmanager
async def guessing(opened, folder, variables):
    app = secret_app.__file__
    assert app is not None
    async with opened() as client:
        await client.set_secret("TOKEN", TOKEN)
        admin = (await client.create_key("admin", role="admin")).token
        operator = (await client.create_key("guesser", role="operator")).token
        with (
            Running("server", "--port", "0", folder=folder, **variables) as server,
            Running("worker", app, "--allow-command", folder=folder, **variables) as worker,
        ):
            worker.wait_for("worker .* runs ")
            (line,) = server.wait_for("listening")
            address, *_ = re.findall(r"http://[\d.:]+", line)
            async with httpx.AsyncClient(base_url=f"{address}/api/v1", timeout=300) as http:
                for job in jobs_with_a_secret():
                    head = {"Authorization": f"Bearer {admin}"}
                    made = await http.post("/jobs", json=job, headers=head)
                    assert made.status_code == 201, made.text
                http.headers["Authorization"] = f"Bearer {operator}"
                yield http, worker


def jobs_with_a_secret() -> list[dict[str, Any]]:
    """Jobs that open the secret and repeat their arguments."""
    words = ["sh", "-c", 'echo "$DAYBELL_ARGS"; exit "$CODE"']
    node = {
        "name": "node",
        "task": "guess_on_the_loop",
        "args": {"guess": {"param": "guess"}, "token": OPENS},
    }
    jobs: dict[str, Any] = {
        "command": {"command": {"run": words, "env": {"TOKEN": OPENS, "CODE": "0"}}},
        "command-fails": {"command": {"run": words, "env": {"TOKEN": OPENS, "CODE": "3"}}},
        "flow": {"workflow": {"params": ["guess"], "nodes": [node]}},
    }
    more = {"schedule": "manual", "retries": 0}
    return [{"name": name, **job, **more} for name, job in jobs.items()]


async def outputs(http: httpx.AsyncClient, id: str, guess: Any) -> str:
    """All that a caller sees of an execution with a guess, which stands there as GUESS."""

    async def ask(path: str) -> Any:
        return (await http.get(path)).json()

    seen = [await eventually(lambda: ask(f"/executions/{id}"), lambda it: it["status"] in ENDED)]
    if seen[0]["job"] == "flow":
        seen += (await ask(f"/executions?workflow_id={id}"))["items"]
    told: list[Any] = []
    for one in seen:
        logs = await ask(f"/executions/{one['execution_id']}/logs")
        told += [one["status"], one["result"], one["error"], one["progress"], one.get("note")]
        told += [line["message"] for line in logs["items"]]
    text = json.dumps(told, ensure_ascii=False)
    said = "".join(guess)
    assert said in text or guess[0] in text, text  # it comes back
    for part in (said, said.upper(), base64.b64encode(said.encode()).decode(), *guess):
        text = text.replace(part, "GUESS") if len(part) > 1 else text
    return text


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_right_and_wrong_guesses_come_back_alike(kind, tmp_path, servers):
    async with a_cluster(kind, tmp_path, servers) as (http, worker, key):

        async def trigger(calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
            sent = await http.post(
                "/executions", json=[{"job": job, "args": args} for job, args in calls]
            )
            assert sent.status_code == 202, sent.text
            return [one["execution_id"] for one in sent.json()["items"]]

        (id,) = await trigger([("command", {"guess": "nothing"})])
        await outputs(http, id, "nothing")  # the worker knows the secret now
        none = {"token": "none"}
        jobs: list[tuple[str, dict[str, Any]]] = [
            ("guess_on_the_loop", none),
            ("guess_on_the_loop", none | {"is_failing": True}),
            ("guess_in_a_thread", none),
            ("guess_in_a_process", none),
            ("command", {}),
            ("command-fails", {}),
            ("flow", {}),
        ]
        few: list[Any] = [TOKEN, TOKEN[-8:], PASSWORD, key]
        many: list[Any] = [
            *few, TOKEN[:8], TOKEN[:20], [TOKEN[:16], TOKEN[16:]],
            PASSWORD[:8], f":{PASSWORD}@", key[:8], key[-8:],
        ]  # fmt: skip
        pairs = [
            (job, guess, another(guess), more)
            for number, (job, more) in enumerate(jobs)
            for guess in (few if number else many)
        ]
        calls = [(job, {"guess": guess, **more}) for job, *both, more in pairs for guess in both]

        ids = iter(await trigger(calls))

        for job, guess, wrong, _ in pairs:
            seen = await outputs(http, next(ids), guess)
            other = await outputs(http, next(ids), wrong)
            assert seen == other and "***" not in seen and "withheld" not in seen, (job, guess)
        assert "withheld" not in worker.said


def another(guess: Any) -> Any:
    """One that is as long, and wrong."""
    wrong = [part.translate(OTHER) for part in guess]
    return wrong if isinstance(guess, list) else "".join(wrong)
