"""The same fixtures as one folder up, on PostgreSQL alone, with a connection to look behind."""

import asyncpg
import pytest

from tests.stores import POSTGRES, open_place


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.postgres) for kind in POSTGRES])
def kind(request):
    """Which server."""
    return request.param


@pytest.fixture
async def place(kind, tmp_path, servers):
    async with open_place(kind, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def sql(place):
    """A connection of our own to the same database."""
    connection = await asyncpg.connect(place.url)
    yield connection
    await connection.close()


@pytest.fixture
async def another_store(place):
    """A second process, as far as the database can tell."""
    opened = place.connect()
    await opened.open()
    yield opened
    await opened.close()
