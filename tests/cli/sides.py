"""Two stores with the same past: one is asked by itself, the other by way of a server."""

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from daybell import App, Client, ExecutionFailed, Retry, cron
from tests.cli.terminal import Running

KEY_ROLES = ("superadmin", "operator")


class Side(NamedTuple):
    """One of the two stores, and how it is asked."""

    url: str
    variables: dict[str, str]


def an_app(url: str) -> App:
    app = App(url)

    @app.task
    async def greet(name: str = "you") -> str:
        sys.stdout.write(f"greeting {name}\n")
        return f"Hello, {name}"

    @app.task(retries=0)
    async def fail() -> None:
        raise ValueError("no \x1b[31mgood")

    @app.task(
        schedule=cron("0 9 * * mon-fri", tz="Europe/Rome"),
        misfire="fire_all",
        misfire_limit=3,
        retries=Retry.fixed("5s", retries=9),
    )
    async def report(day: str = "monday") -> None: ...

    assert greet and fail and report
    return app


async def _live(url: str) -> dict[str, str]:
    """A past: what succeeded, what died, what waits. Answers keys by role."""
    async with Client(url, migrate=True) as client:
        keys = {role: (await client.create_key(role, role=role)).token for role in KEY_ROLES}
    app = an_app(url)
    async with app, app.worker():
        await (await app.tasks["greet"].enqueue("Ada")).result(timeout=300)
        for one in [await app.tasks["fail"].enqueue() for _ in range(4)]:
            with pytest.raises(ExecutionFailed):
                await one.result(timeout=300)
    async with Client(url) as client:
        await client.enqueue("greet", {"name": "Grace"}, delay="1h", unique_key="grace")
    return keys


class World(NamedTuple):
    here: Side
    there: Side
    keys: dict[str, str]
    address: str


@contextmanager
def a_world(folder: Path) -> Iterator[World]:
    """Two stores, and a server of the second."""
    urls = [f"sqlite:///{folder}/{name}.db" for name in ("here", "there")]
    _, keys = [asyncio.run(_live(url)) for url in urls]
    with Running("server", "--port", "0", folder=folder, DAYBELL_DATABASE_URL=urls[1]) as server:
        (line,) = server.wait_for("listening: ")
        (address,) = re.findall(r"http://[\d.:]+", line)
        yield World(
            Side(urls[0], {"DAYBELL_DATABASE_URL": urls[0]}),
            Side(urls[1], {"DAYBELL_API_URL": address, "DAYBELL_API_KEY": keys["superadmin"]}),
            keys,
            address,
        )
