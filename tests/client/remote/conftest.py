"""A store, a server in front of it, and a client of each."""

import pytest

from daybell import Client, RemoteClient, cron
from daybell.api.caller import ApiOptions
from daybell.api.server import ApiService, ServerOptions
from daybell.engine.loop import SystemClock


@pytest.fixture
async def store():
    """A client of the store itself, with a task to run."""
    async with Client("memory://") as opened:
        await opened.define("resize", retries=2, schedule=cron("0 9 * * *"))
        await opened.define("plain", queue="images")
        yield opened


@pytest.fixture
async def address(store):
    """Where a server of that store listens."""
    clock = SystemClock()
    front = ApiService(
        store,
        options=ServerOptions(port=0),
        api=ApiOptions(),
        monotonic=clock.monotonic,
        ask=store.tenants,
    )
    await front.start()
    yield front.url
    await front.stop()


@pytest.fixture(params=["store", "http"])
def client(request):
    """A client of that store, by each transport."""
    return request.getfixturevalue("store" if request.param == "store" else "remote")


@pytest.fixture
async def remote(store, address):
    """The same over HTTP, with a superadmin's key."""
    token = (await store.create_key("root", role="superadmin")).token
    async with RemoteClient(address, key=token) as opened:
        yield opened
