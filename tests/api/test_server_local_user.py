"""Without a key, `daybell dev` answers the user that started it and root, and no other user."""

import asyncio
import socket
import struct
from contextlib import AsyncExitStack
from functools import partial

import pytest

from daybell.api.caller import ApiOptions
from daybell.api.server import ApiService, ServerOptions, find_user
from daybell.client import Client
from daybell.engine.loop import SystemClock
from tests.api.sockets import OWN, a_socket
from tests.postgres import NOBODY

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
async def client():
    async with Client("memory://") as opened:
        yield opened


@pytest.fixture
async def start(client):
    """Starts a server of a user; answers a coroutine that asks it over a socket."""
    async with AsyncExitStack() as stack:

        async def start(uid, host="127.0.0.1"):
            front = ApiService(
                client,
                options=ServerOptions(host=host, port=0),
                api=ApiOptions(open_tenant="default", open_uid=uid),
                monotonic=SystemClock().monotonic,
                ask=client.tenants,
            )
            await front.start()
            stack.push_async_callback(front.stop)
            return partial(ask, (host, int(front.url.rpartition(":")[2])))

        yield start


async def ask(address, caller, path="/api/v1/stats", headers=""):
    """The answer to a request that is sent over this socket."""
    caller.connect(address)
    reader, writer = await asyncio.open_connection(sock=caller)
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
    writer.write(head.encode())
    said = (await reader.read()).decode()
    writer.close()
    return said


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_user_that_started_it_needs_no_key(start, host):
    ask = await start(OWN, host)

    said = await ask(a_socket(family=socket.AF_INET6 if ":" in host else socket.AF_INET))

    assert said.startswith("HTTP/1.1 200")


async def test_another_user_needs_a_key(start, client):
    # Root can be another user; any other user can only ask a server of one.
    own, other = (OWN, NOBODY) if OWN == 0 else (OWN + 1, OWN)
    ask = await start(own)
    token = (await client.create_key("other", role="viewer")).token

    said = await ask(a_socket(other))

    assert said.startswith("HTTP/1.1 401")
    assert f"(uid {own})" in said and f"opened by uid {other}" in said and "daybell keys" in said
    key = f"Authorization: Bearer {token}\r\n"
    assert (await ask(a_socket(other), headers=key)).startswith("HTTP/1.1 200")
    assert (await ask(a_socket(other), "/healthz")).startswith("HTTP/1.1 200")


@pytest.mark.skipif(OWN != 0, reason="only root can connect as root")
async def test_root_needs_no_key(start):
    ask = await start(NOBODY)

    assert (await ask(a_socket())).startswith("HTTP/1.1 200")


# The kernel's answer.


@pytest.fixture
def connect():
    """Connects two sockets; answers the client's and the server's."""
    opened = []

    def connect(client):
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        mapped = client.family == socket.AF_INET6
        client.connect(("::ffff:127.0.0.1" if mapped else "127.0.0.1", port))
        server, _ = listener.accept()
        opened.extend((client, server, listener))
        return client, server

    yield connect
    for one in opened:
        one.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("uid", {OWN, NOBODY} if OWN == 0 else {OWN})
def test_a_connection_has_the_user_that_opened_it(connect, uid, family):
    client, server = connect(a_socket(uid, family))

    assert find_user(server) == uid
    client.shutdown(socket.SHUT_WR)
    assert find_user(server) == uid


def test_a_socket_that_was_closed_is_not_taken_for_that_of_root(connect):
    client, server = connect(a_socket())
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    client.close()
    gone, reset = connect(a_socket())
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    gone.close()

    assert find_user(server) is None
    assert find_user(reset) is None
