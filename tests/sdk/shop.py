"""A database of a user, to which tasks write what they sell."""

from __future__ import annotations

from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def a_shop(servers, version):
    """A migrated database on the real clock, with a table of the user's own."""
    async with servers.live(version) as url:
        async with user(url) as connection:
            await connection.execute("CREATE TABLE sale (number int)")
        yield url


@asynccontextmanager
async def user(url):
    """A connection that has nothing to do with the app."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def sales(url) -> list[int]:
    async with user(url) as connection:
        return [row["number"] for row in await connection.fetch("SELECT * FROM sale ORDER BY 1")]
