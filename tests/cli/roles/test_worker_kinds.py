"""Jobs without code, run by real workers: one that may run all of them, and one that may not."""

from typing import Any

from daybell import Client
from daybell.client.sealing import new_key
from daybell.core.execution import State
from tests.cli.terminal import Running, daybell
from tests.sdk.waiting import eventually

READY = r"worker \S+ \(.*\) runs "
TOKEN = "t0p-secret-canary"
COMMANDS = 8


async def ended(client, id):
    async def ask():
        return await client.execution(id)

    return await eventually(ask, lambda one: one.status in (State.SUCCEEDED, State.DEAD))


async def test_a_worker_runs_what_it_may_and_never_takes_what_it_may_not(tmp_path):
    key = new_key()
    shop: dict[str, Any] = {
        "DAYBELL_CONNECTION_SHOP": "sqlite:///shop.db",
        "DAYBELL_SECRETS_KEY": key,
    }
    url = f"sqlite:///{tmp_path}/daybell.db"
    async with Client(url, migrate=True, secrets_key=key) as client:
        with Running("worker", "--name", "plain", folder=tmp_path) as plain:
            plain.wait_for(READY)
            await client.set_secret("TOKEN", TOKEN)
            await client.create("hello", command=["echo", "hello"], env={"A": {"secret": "TOKEN"}})
            first = [await client.enqueue("hello", {"n": n}) for n in range(COMMANDS)]
            waiting = daybell("executions", "why", str(first[0].id), folder=tmp_path)
            words = ["--allow-command", "--name", "able"]
            with Running("worker", *words, folder=tmp_path, **shop) as able:
                said = able.wait_for(READY)[0]

                done = [await ended(client, one.id) for one in first]
                workers = {one.name: one for one in await client.workers()}

                assert "runs commands; start one with `daybell worker --allow-command`" in (
                    waiting.out
                )
                assert said.endswith("kinds: command, http, workflow, notify, sql:shop")
                assert workers["plain"].kinds == ["http", "workflow", "notify"]
                assert workers["able"].kinds == [
                    "command",
                    "http",
                    "workflow",
                    "notify",
                    "sql:shop",
                ]
                for one in done:
                    assert (one.status, one.attempt) == (State.SUCCEEDED, 1), one.error
                    (attempt,) = (await client.execution(one.execution_id)).attempts
                    assert attempt.worker_id == workers["able"].worker_id
