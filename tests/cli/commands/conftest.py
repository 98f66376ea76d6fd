"""Commands in a folder with a store."""

import pytest

from daybell import Client
from tests.cli.terminal import daybell


@pytest.fixture
def client(store):
    """A client of the folder's store."""
    return Client(store)


@pytest.fixture
def command(tmp_path, client):
    """Types a command in the folder of that store, when the client has made its jobs."""
    return lambda *words: daybell(*words, folder=tmp_path)
