"""Which fixtures there are, and which app they are for."""

import pytest
import shop

pytest_plugins = ["daybell.testing.fixtures"]


@pytest.fixture
def daybell_app():
    shop.outbox.clear()
    return shop.app
