"""A world on each store."""

from datetime import UTC, datetime

import pytest

from tests.client.explain.situations import World
from tests.stores import open_place


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres])])
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def world(place, store, tmp_path):
    # Commands have the time of this machine.
    await place.clock.advance(max(0.0, datetime.now(UTC).timestamp() - place.clock.now()))
    made = World(place, store, tmp_path)
    await made.client.define("resize")
    await made.client.define("single", overlap="queue")
    await made.client.define("extract")
    return made
