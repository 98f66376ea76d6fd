"""What only SQLite has: a file, threads and locks. `store` and `clock` are those of all stores."""

import sqlite3
import threading

import pytest

from daybell.store.sqlite import connection
from tests.stores import open_place


@pytest.fixture
async def place(tmp_path, servers):
    async with open_place("sqlite", tmp_path, servers) as opened:
        yield opened


@pytest.fixture
def path(place):
    return place.url


@pytest.fixture
def refused(monkeypatch):
    """Set once somebody has found the file locked."""
    event = threading.Event()
    is_busy = connection.is_busy

    def noticing(error):
        if is_busy(error):
            event.set()
        return is_busy(error)

    monkeypatch.setattr(connection, "is_busy", noticing)
    return event


@pytest.fixture
def raw(path):
    """A connection that knows nothing of Daybell."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()
