"""Apps on a bench."""

import pytest

from daybell import App
from daybell.testing import Bench


@pytest.fixture
def app():
    """An app that would fail at once if it used the store that it names."""
    return App("postgresql://nobody@127.0.0.1:1/nowhere")


@pytest.fixture
def bench(app):
    with Bench(app) as bench:
        yield bench
