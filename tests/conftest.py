"""What all tests share."""

import gc
import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.inherited import drop_variables, restore_signals
from tests.postgres import memory_folder
from tests.stores import TEST_ALL, Servers

pytest_plugins = ["tests.leftovers", "tests.watchdog"]

# How long a draw takes depends on the machine, and its luck is not for every run: `make test-all`
# draws anew each time, `make test` always the same.
settings.register_profile(
    "daybell", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not TEST_ALL
)
settings.load_profile("daybell")


def pytest_configure() -> None:
    """Forget what this run inherits, so that no test depends on how it was started."""
    drop_variables()
    restore_signals()
    if "TMPDIR" not in os.environ and (folder := memory_folder()):
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # computed anew, from the variable


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without garbage collection, which looks at all of them again and again.

    That is almost half of the time it takes, in every worker. They stay to the end, so they are
    not looked at later either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def servers():
    """PostgreSQL servers; none is started before a test needs it."""
    running = Servers()
    yield running
    running.close()


@pytest.fixture
async def store(place):
    """An open store with nothing in it, where a module or a folder says that stores are."""
    async with place.opened() as opened:
        yield opened
