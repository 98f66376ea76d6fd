"""What all tests share."""

import pytest

from tests.stores import Servers


@pytest.fixture(scope="session")
def servers():
    """PostgreSQL servers; none is started before a test needs it."""
    running = Servers()
    yield running
    running.close()
