"""The same fixtures as one folder up, on PostgreSQL alone, with a connection to look behind."""

import asyncpg
import pytest

from tests.builders import tenant_names
from tests.store.postgres.steps import stepped_store
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
async def another(place):
    """A connection of somebody else."""
    connection = await asyncpg.connect(place.url)
    yield connection
    await connection.close()


@pytest.fixture
async def another_store(place):
    """A second process, as far as the database can tell."""
    async with place.opened() as opened:
        yield opened


@pytest.fixture
async def stepped(place):
    """A store that can be stopped between two statements, or told to lose an answer."""
    opened = await stepped_store(place.url)
    yield opened
    await opened.close()


@pytest.fixture
async def slow(stepped):
    """One to be stopped: it has its connection, so that only what it is asked for counts."""
    await tenant_names(stepped)
    return stepped


@pytest.fixture
async def quick(place):
    """Another one, to see whether it waits."""
    opened = await stepped_store(place.url)
    await tenant_names(opened)
    yield opened
    await opened.close()
