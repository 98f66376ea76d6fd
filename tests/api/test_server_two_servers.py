"""Two servers on one database, asked in turns, are as good as one."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import httpx
import pytest

from daybell import Client
from tests.cli.terminal import Running

A_JOB = {"name": "a", "task": "resize", "schedule": "manual"}
REVOKED_SECONDS = 5.0  # by then a revoked key opens nothing, anywhere


class InTurns:
    """Asks one server, then the other, as a load balancer without a memory does."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self._turns = cycle(clients)

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await next(self._turns).request(method, f"/api/v1{path}", **more)

    async def twice(self, method: str, path: str, **more: Any) -> list[httpx.Response]:
        """The same request to both."""
        return [await self.ask(method, path, **more) for _ in range(2)]


@pytest.fixture
async def pair(servers, tmp_path) -> AsyncIterator[tuple[Client, InTurns]]:
    """A client of the database, and one that asks two servers of it in turns."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(servers.live("18"))
        client = await stack.enter_async_context(Client(url))
        await client.define("resize")
        token = (await client.create_key("root", role="superadmin")).token
        running = [
            stack.enter_context(
                Running("server", "--port", "0", folder=tmp_path, DAYBELL_DATABASE_URL=url)
            )
            for _ in range(2)
        ]
        clients: list[httpx.AsyncClient] = []
        for one in running:
            (line,) = await asyncio.to_thread(one.wait_for, "listening: ")
            (address,) = re.findall(r"http://[\d.:]+", line)
            bearer = {"Authorization": f"Bearer {token}"}
            opened = httpx.AsyncClient(base_url=address, headers=bearer, timeout=300)
            clients.append(await stack.enter_async_context(opened))
        yield client, InTurns(clients)


async def test_two_servers_behave_as_one(pair):
    client, both = pair

    await _a_job_is_made_by_one_and_changed_by_the_other(both)
    await _what_was_done_once_is_not_done_again_by_the_other(client, both)
    await _work_is_taken_by_either(client, both)
    await _a_key_that_one_revoked_opens_nothing_of_the_other(both)


async def _a_job_is_made_by_one_and_changed_by_the_other(both: InTurns) -> None:
    created = await both.ask("POST", "/jobs", json=A_JOB)
    seen = await both.ask("GET", "/jobs/a")
    assert (created.status_code, seen.status_code) == (201, 200)
    assert seen.headers["ETag"] == created.headers["ETag"] == '"1"'

    at_first = {"If-Match": seen.headers["ETag"]}
    changed = await both.ask("PATCH", "/jobs/a", json={"queue": "images"}, headers=at_first)
    too_late = await both.ask("PATCH", "/jobs/a", json={"queue": "mail"}, headers=at_first)
    assert (changed.status_code, too_late.status_code) == (200, 412)
    assert {one.json()["queue"] for one in await both.twice("GET", "/jobs/a")} == {"images"}

    again = await both.ask("POST", "/jobs", json={"name": "a", "task": "resize"})
    assert again.status_code == 409


async def _what_was_done_once_is_not_done_again_by_the_other(client: Client, both: InTurns) -> None:
    for path, body in (
        ("/jobs", {"name": "b", "task": "resize", "schedule": "manual"}),
        ("/jobs/a/trigger", {"args": {"width": 1}}),
        ("/executions", [{"job": "a"}, {"job": "b"}]),
    ):
        named = {"Idempotency-Key": f"once {path}"}
        first, second = await both.twice("POST", path, json=body, headers=named)
        assert first.status_code < 300
        assert (second.status_code, second.json()) == (first.status_code, first.json())
        assert second.headers["Idempotency-Replayed"] == "true"
        assert "Idempotency-Replayed" not in first.headers
    assert (await client.count()).total == 3
    named = {"Idempotency-Key": "once /jobs/a/trigger"}
    other = await both.ask("POST", "/jobs/a/trigger", json={"args": {}}, headers=named)
    assert other.status_code == 422


async def _work_is_taken_by_either(client: Client, both: InTurns) -> None:
    before = (await client.count()).total
    answers = await asyncio.gather(
        *(both.ask("POST", "/jobs/a/trigger", json={"args": {"n": n}}) for n in range(10)),
        *(both.ask("POST", "/executions", json=[{"job": "b"}] * 5) for _ in range(10)),
    )
    assert {one.status_code for one in answers} == {202}
    assert (await client.count()).total == before + 10 + 50

    listed: list[str] = []
    cursor = None
    while True:
        # Each page is another server's.
        asked = {"job_id": "b", "limit": 7} | ({} if cursor is None else {"cursor": cursor})
        page = (await both.ask("GET", "/executions", params=asked)).json()
        listed += [one["execution_id"] for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(listed) == len(set(listed)) == 51

    held = {"unique_key": "one", "args": {}}
    first, second = await both.twice("POST", "/jobs/a/trigger", json=held)
    assert first.json()["execution_id"] == second.json()["execution_id"]
    assert (first.json()["created"], second.json()["created"]) == (True, False)


async def _a_key_that_one_revoked_opens_nothing_of_the_other(both: InTurns) -> None:
    key = (await both.ask("POST", "/keys", json={"name": "short", "role": "viewer"})).json()
    bearer = {"Authorization": f"Bearer {key['token']}"}
    seen = await both.twice("GET", "/jobs", headers=bearer)  # both know it now
    assert {one.status_code for one in seen} == {200}

    await both.ask("POST", f"/keys/{key['key_id']}/revoke")

    answers = seen
    async with asyncio.timeout(REVOKED_SECONDS):
        # Who knocks too often with it is told to wait instead.
        while any(one.status_code not in (401, 429) for one in answers):
            await asyncio.sleep(0.1)
            answers = await both.twice("GET", "/jobs", headers=bearer)
    assert 401 in {one.status_code for one in answers}
