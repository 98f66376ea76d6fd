"""Fixtures for pytest; a suite asks for them: `pytest_plugins = ["daybell.testing.fixtures"]`.

They are no entry point: whoever installs Daybell and tests something else pays nothing, and sees no
fixtures that were not asked for.
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
    """The app to be tested: what DAYBELL_APP names. Override it to say otherwise."""
    named = Settings.load().app
    if named is None:
        raise UsageError(
            "which app? Write a fixture `daybell_app` in conftest.py that returns it, or name it in"
            " DAYBELL_APP or daybell.toml"
        )
    return load_app(named)


@pytest.fixture
def daybell_bench(daybell_app: App) -> Iterator[Bench]:
    """A fresh bench with the app on it, for one test, with an event loop or without."""
    with Bench(daybell_app) as bench:
        yield bench
