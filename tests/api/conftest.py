"""An API in this process, and those who ask it."""

import httpx
import pytest

from daybell.api import ApiOptions, create_api
from daybell.client import Client


@pytest.fixture
async def client():
    """A client of a store in memory with a task to run."""
    async with Client("memory://") as opened:
        await opened.define("resize", queue="images", retries=2)
        yield opened


@pytest.fixture
async def http(client):
    """Whoever asks, without a key: a superadmin of the default tenant."""
    app = create_api(client, options=ApiOptions(open_tenant="default"))
    async with asking(app) as opened:
        yield opened


def asking(app, **more) -> httpx.AsyncClient:
    """One who asks an application of this process."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False, client=("127.0.0.1", 5000))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost/api/v1", **more)
