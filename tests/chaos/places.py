"""Stores for chaos: a PostgreSQL server of its own, and a SQLite file."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from daybell.chaos.run import ChaosOptions, Restart, Summary, Tell, chaos
from daybell.client import Client
from tests.postgres import Postgres


@asynccontextmanager
async def postgres() -> AsyncIterator[tuple[str, Restart]]:
    """Start a server that may be crashed; yield its database, and the command that crashes and
    restarts it.
    """
    server = await asyncio.to_thread(Postgres)
    try:
        await asyncio.to_thread(server.start)
        url = await asyncio.to_thread(server.create_database)
        await migrate(url)

        async def restart() -> None:
            await asyncio.to_thread(server.restart, signal.SIGQUIT)

        yield url, restart
    finally:
        await asyncio.to_thread(server.close)


async def migrate(url: str) -> None:
    client = Client(url)
    try:
        await client.migrate()
    finally:
        await client.close()


async def on_postgres(options: ChaosOptions, *, tell: Tell) -> Summary:
    async with postgres() as (url, restart):
        return await chaos(url, options, restart=restart, tell=tell)


async def on_sqlite(options: ChaosOptions, folder: Path, *, tell: Tell) -> Summary:
    url = f"sqlite:///{folder / 'chaos.db'}"
    await migrate(url)
    return await chaos(url, options, tell=tell)
