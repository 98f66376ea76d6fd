"""An app on a bench, and what its steps have done."""

from __future__ import annotations

from typing import Any

import pytest

from daybell import App
from daybell.testing import Bench


@pytest.fixture
def app():
    return App("memory://")


@pytest.fixture
async def bench(app: App):
    async with Bench(app) as bench:
        yield bench


@pytest.fixture
def done() -> list[Any]:
    """What the steps of a test have done, in their order."""
    return []
