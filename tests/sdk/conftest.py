"""Apps to test with."""

import pytest

from daybell import App


@pytest.fixture(params=["memory", "sqlite"])
async def app(request, tmp_path):
    """An app without tasks, on a store of its own."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'daybell.db'}"
    app = App(url)
    yield app
    await app.close()


@pytest.fixture
def file_url(tmp_path):
    """A store that threads, loops and processes can share."""
    return f"sqlite:///{tmp_path / 'daybell.db'}"


@pytest.fixture
def short_lease(monkeypatch):
    """Workers hear of a cancellation with their next renewal: let that be soon."""
    monkeypatch.setenv("DAYBELL_LEASE", "1s")
