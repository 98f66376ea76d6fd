"""One key takes all that it can get, and another tenant is served as before.

Attacker, server and prober are processes of their own. The attack that takes much memory is scaled
down with the server's settings; `make test-all` runs it with the real numbers, too.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pytest

from daybell import Client
from tests.api.sockets import PATIENCE, Reader, come
from tests.cli.terminal import Running

ATTACKER = Path(__file__).with_name("attacker.py")
SMALL = {"BODIES": "3000000"}
MIB = 1024 * 1024


class Neighbours:
    """A server, the key of an attacker, and a prober with the key of another tenant."""

    def __init__(self, port: int, keys: dict[str, str], folder: Path) -> None:
        self.port = port
        self.keys = keys
        self.answers = folder / "answers"
        self.answers.touch()

    @contextmanager
    def attacked(self, kind: str, *, count: int, size: int = 0) -> Iterator[dict[str, int]]:
        """An attack; yields how many of its requests were answered with which status."""
        words = [kind, self.port, self.keys["attacker"], count, size, self.answers]
        process = subprocess.Popen(
            [sys.executable, str(ATTACKER), *map(str, words)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            said = "" if kind == "bulk" else process.stdout.readline()
            yield json.loads(said.partition(" ")[2] or "{}")
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()

    async def trigger(self) -> httpx.Response:
        async with self._client("prober") as http:
            return await http.post("/jobs/resize/trigger", json={"args": {"width": 1_000_000}})

    async def stream(self) -> bytes:
        async with Reader(self.port) as reader:
            return await reader.ask("/api/v1/stream", Authorization=f"Bearer {self.keys['prober']}")

    def _client(self, tenant: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}/api/v1",
            headers={"Authorization": f"Bearer {self.keys[tenant]}"},
            timeout=PATIENCE,
        )


@pytest.fixture
def scale() -> dict[str, str]:
    """The settings of the server, unless a test says otherwise."""
    return {}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def neighbours(request: Any, scale: Any, tmp_path: Path, servers: Any) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path}/jobs.db"
        if request.param == "postgres":
            url = await stack.enter_async_context(servers.live("18"))
        keys: dict[str, str] = {}
        async with Client(url, migrate=True) as client:
            for name in ("attacker", "prober"):
                await client.add_tenant(name)
                tenant = client.for_tenant(name)
                await tenant.define("resize")
                keys[name] = (await tenant.create_key(name, role="operator")).token
        settings = {f"DAYBELL_SERVER_{name}": value for name, value in scale.items()}
        running = stack.enter_context(
            Running("server", "--port", "0", folder=tmp_path, DAYBELL_DATABASE_URL=url, **settings)
        )
        (line,) = await asyncio.to_thread(running.wait_for, "listening: ")
        yield Neighbours(int(re.findall(r"http://[\d.]+:(\d+)", line)[0]), keys, tmp_path)


async def test_bodies_that_do_not_come_take_no_turn_of_another_tenant(neighbours):
    with neighbours.attacked("body", count=520, size=2) as statuses:
        answers = [await neighbours.trigger() for _ in range(5)]

    assert [one.status_code for one in answers] == [202] * 5
    assert statuses["100"] > 100
    assert sum(statuses.values()) == 520 and set(statuses) <= {"100", "429", "cut"}


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(SMALL, id="small"),
        pytest.param({}, id="real", marks=pytest.mark.all_only),
    ],
)
async def test_bodies_in_memory_leave_room_for_another_tenant(neighbours, scale):
    count, size = (4, 3 * MIB // 2) if scale else (17, 16 * MIB)

    with neighbours.attacked("body", count=count, size=size):
        # While it is being sent, too: the last of it may be on its way.
        answers = [await neighbours.trigger() for _ in range(40)]

    assert {one.status_code for one in answers} == {202}


async def test_streams_leave_room_for_another_tenant(neighbours):
    with neighbours.attacked("stream", count=200) as statuses:
        head = await neighbours.stream()

    assert head.startswith(b"HTTP/1.1 200")
    assert statuses["200"] > 1 and sum(statuses.values()) == 200


async def test_bulk_enqueues_are_not_all_ahead_of_another_tenant(neighbours):
    ahead: list[int] = []  # bulk requests that were answered between a trigger and its answer

    def answered() -> int:
        return neighbours.answers.stat().st_size

    with neighbours.attacked("bulk", count=12, size=5_000):
        await come(lambda: answered() > 0)
        for _ in range(7):
            before = answered()
            assert (await neighbours.trigger()).status_code == 202
            ahead.append(answered() - before)

    assert median(ahead) <= 3
    assert set(neighbours.answers.read_bytes()) == {ord(".")}
