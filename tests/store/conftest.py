"""Every test here runs against every store, each in a fresh place with a clock of its own."""

import pytest

from tests.stores import KINDS, open_place


def marked(kind):
    return pytest.param(kind, marks=[pytest.mark.postgres] if kind.startswith("postgres") else [])


@pytest.fixture(params=[marked(kind) for kind in KINDS])
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
async def store(place):
    """An open store with nothing in it."""
    opened = place.connect()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def clock(place):
    """The time that the store goes by."""
    return place.clock
