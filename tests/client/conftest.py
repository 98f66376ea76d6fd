"""A client with a job, on two stores, and a scheduler. Some files have others of these names."""

import pytest

from daybell.client import Client
from daybell.core.ids import mint
from daybell.engine.events import Events
from daybell.engine.loop import ManualClock
from daybell.engine.scheduler import Scheduler
from tests.stores import open_place


@pytest.fixture(params=["memory", "sqlite"])
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def client(store):
    """A client with one job, `resize`."""
    made = Client(store)
    await made.define("resize")
    return made


@pytest.fixture
def fire(place, store):
    """Fires what is due, as a scheduler does."""

    async def fire_due():
        clock = ManualClock(place.clock.now())
        await Scheduler(store, clock=clock, mint=mint, events=Events()).tick()

    return fire_due
