"""Every test here runs against every store, each in a fresh place with a clock of its own."""

from contextlib import AsyncExitStack

import pytest

from tests.stores import KINDS, open_place

# Where the two of a pair disagree is shown in full, as if the class were in a file of tests.
pytest.register_assert_rewrite("tests.store.pair")


def marked(kind):
    return pytest.param(kind, marks=[pytest.mark.postgres] if kind.startswith("postgres") else [])


@pytest.fixture(params=[marked(kind) for kind in KINDS])
async def place(request, tmp_path, servers):
    async with open_place(request.param, tmp_path, servers) as opened:
        yield opened


@pytest.fixture
def clock(place):
    """The time that the store goes by."""
    return place.clock


@pytest.fixture
async def crowd(place):
    """Four stores on the same data."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(place.opened()) for _ in range(4)]
