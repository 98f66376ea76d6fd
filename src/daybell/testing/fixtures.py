"""Fixtures for pytest; a suite loads them: `pytest_plugins = ["daybell.testing.fixtures"]`.

They are no entry point: installations without tests of Daybell apps pay nothing, and see no
fixtures that they did not load.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daybell.errors import UsageError
from daybell.sdk.app import App
from daybell.sdk.loading import load_app
from daybell.settings import Settings
from daybell.testing.bench import Bench


@pytest.fixture
def daybell_app() -> App:
    """Return the app under test: the one in DAYBELL_APP. Override it for another one."""
    named = Settings.load().app
    if named is None:
        raise UsageError(
            "which app? Write a fixture `daybell_app` in conftest.py that returns it, or name it in"
            " DAYBELL_APP or daybell.toml"
        )
    return load_app(named)


@pytest.fixture
def daybell_bench(daybell_app: App) -> Iterator[Bench]:
    """Return a new bench with the app on it, for one test, with an event loop or without."""
    with Bench(daybell_app) as bench:
        yield bench
