"""The server: sockets, slow and hostile clients, TLS."""

import asyncio
import contextlib
import socket
import ssl
import warnings

import pytest

from daybell.api.guard import Limits
from daybell.api.server import ApiServer, ServerOptions, bind, is_loopback, tls_context
from daybell.core.limits import HEADER_BYTES_MAX
from daybell.errors import Conflict, UsageError
from tests.api.sockets import (
    PATIENCE,
    TLS,
    TLS_FILES,
    app,
    come,
    get,
    guarded,
    is_well,
    serving,
    status_of,
    talk,
    trusting,
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400),
        (b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_is_refused_and_others_are_served(request_, status):
    async with guarded(app) as (_, port):
        assert await status_of(port, request_) == status
        assert await is_well(port)


POST = b"POST /api HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        b"Content-Length: 6\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: 5, 5\r\n\r\n",
        b"Content-Length: +5\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 0x5\r\n\r\n",
        b"Content-Length: 99999999999999999999999\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100 + b"\n\r\n",
    ],
)
async def test_a_request_cannot_hide_another_one(head):
    async with guarded(app) as (_, port):
        answer = await talk(port, POST + head + HIDDEN, is_over=True)

        assert answer.split()[1] in (b"400", b"413")
        assert b"/hidden" not in answer
        assert await is_well(port)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * HEADER_BYTES_MAX + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 3 * HEADER_BYTES_MAX,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 150 + b"\r\n",
        b"GET /" + b"x" * HEADER_BYTES_MAX + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"x" * 3 * HEADER_BYTES_MAX,
    ],
)
async def test_a_head_has_a_limit(request_):
    async with guarded(app) as (_, port):
        assert await status_of(port, request_) == 431
        assert await is_well(port)


async def test_a_head_that_comes_in_pieces_has_the_same_limit():
    async with guarded(app) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        sent = 0
        try:
            while not reader.at_eof() and sent < 100 * HEADER_BYTES_MAX:
                writer.write(b"X: " + b"x" * 1000 + b"\r\n")
                sent += 1000
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        writer.close()

        assert sent < 100 * HEADER_BYTES_MAX
        assert await is_well(port)


BEFORE = POST + b"Content-Length: 40000\r\n\r\n" + b"x" * 40_000


async def test_a_body_is_not_part_of_the_next_head():
    request = get("/healthz")
    async with guarded(app) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BEFORE + request[:30])
        await asyncio.wait_for(reader.readuntil(b"POST /api 40000"), PATIENCE)
        writer.write(request[30:])
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()

    assert answer.endswith(b"GET /healthz 0")


@pytest.mark.parametrize(
    "second",
    [
        b"GET /" + b"x" * 3 * HEADER_BYTES_MAX,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 150 + b"\r\n",
        b"\x16\x03\x01 nonsense\r\n\r\n",
    ],
)
async def test_a_refusal_is_not_taken_for_the_answer_before_it(second):
    go_on = asyncio.Event()

    async def slow(scope, receive, send):
        await go_on.wait()
        await app(scope, receive, send)

    async with guarded(slow) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BEFORE)
        writer.write(second)
        await writer.drain()
        go_on.set()
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1" not in answer.partition(b"POST /api 40000")[0][1:]


@pytest.mark.parametrize("said", [b"", b"GET /hea", b"\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
async def test_who_does_not_finish_a_head_is_cut_off(said):
    async with guarded(app, header_seconds=0.1) as (_, port):
        assert await talk(port, said) == b""
        assert await is_well(port)


async def test_who_begins_again_and_says_no_more_is_cut_off_too():
    async with guarded(app, header_seconds=0.1) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/healthz").replace(b"close", b"keep-alive"))
        await asyncio.wait_for(reader.readuntil(b"GET /healthz 0"), PATIENCE)

        writer.write(b"\r\n")  # allowed before a request, and not the beginning of one

        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()


async def test_a_drop_at_a_time_does_not_keep_a_connection():
    async with guarded(app, header_seconds=0.2) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def drip():
            for byte in get("/healthz") * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
        dripping.cancel()
        writer.close()

        assert answer == b""


async def test_a_body_that_does_not_come_is_given_up():
    async with guarded(app, guard={"limits": Limits(body_seconds=0.1)}) as (_, port):
        answer = await talk(port, POST + b"Content-Length: 100\r\n\r\n{")

        assert answer.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in answer


@pytest.mark.parametrize("files", [{}, TLS_FILES], ids=["plain", "tls"])
async def test_idle_connections_make_way_for_others(files):
    async with guarded(app, connections=20, header_seconds=3600, **files) as (server, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]

        assert await is_well(port, tls=trusting() if files else None)
        assert server.connections <= 20
        ends = [asyncio.wait_for(reader.read(), PATIENCE) for reader, _ in idle[:40]]
        for end in await asyncio.gather(*ends, return_exceptions=True):
            assert end == b"" or isinstance(end, ConnectionError)
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("is_stream", [True, False])
async def test_who_does_not_read_is_cut_off(is_stream):
    kind = b"text/event-stream" if is_stream else b"application/json"

    async def flood(scope, receive, send):
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

    limits = Limits(send_seconds=0.1) if is_stream else Limits(request_seconds=0.2)
    async with guarded(flood, guard={"limits": limits}) as (server, port):
        # A small window, so that little fits on the way.
        call = socket.socket()
        call.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        call.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(call, ("127.0.0.1", port))
        await loop.sock_sendall(call, get("/flood"))

        await come(lambda: server.connections == 1)
        await come(lambda: server.connections == 0)
        call.close()


async def test_stopping_cuts_off_who_does_not_read():
    is_stuck = asyncio.Event()

    async def flood(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            is_stuck.set()

    async with guarded(flood, stop_seconds=0) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(get("/flood"))
        await is_stuck.wait()

        await asyncio.wait_for(server.stop(), PATIENCE)

        await come(lambda: server.connections == 0)
        writer.close()
        assert not reader.at_eof()


async def test_a_stream_may_last_longer_than_an_answer():
    async def stream(scope, receive, send):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(10):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"the end"})

    limits = Limits(request_seconds=0.1)
    async with guarded(stream, guard={"limits": limits}) as (_, port):
        assert b"the end" in await talk(port, get("/stream"))


async def test_stopping_lets_an_answer_be_sent_and_cuts_off_who_is_silent():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(scope, receive, send):
        begun.set()
        await go_on.wait()
        await app(scope, receive, send)

    async with guarded(slow) as (server, port):
        silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
        answer = asyncio.create_task(talk(port, get("/slow")))
        await begun.wait()

        stopping = asyncio.create_task(server.stop())
        assert await asyncio.wait_for(silent.read(), PATIENCE) == b""
        go_on.set()
        await asyncio.wait_for(stopping, PATIENCE)

        assert (await answer).endswith(b"GET /slow 0")
        silent_writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_stopping_does_not_wait_for_ever():
    begun = asyncio.Event()

    async def stuck(scope, receive, send):
        begun.set()
        await asyncio.Event().wait()

    async with guarded(stuck, stop_seconds=0) as (server, port):
        answer = asyncio.create_task(talk(port, get("/slow")))
        await begun.wait()

        await asyncio.wait_for(server.stop(), PATIENCE)

        await asyncio.wait_for(answer, PATIENCE)


async def test_nothing_is_said_of_the_server():
    async with guarded(app) as (_, port):
        answer = await talk(port, get("/healthz"))

    assert b"server:" not in answer.lower()
    assert b"uvicorn" not in answer.lower()


async def test_where_a_request_came_from_is_not_taken_from_its_headers():
    async def who(scope, receive, send):
        body = f"{scope['client'][0]} {scope['scheme']}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    forged = get("/who", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https")
    async with serving(who) as (_, port):
        assert b"127.0.0.1 http\r" in await talk(port, forged)
    async with serving(who, forwarded_allow_ips="127.0.0.1") as (_, port):
        assert b"203.0.113.9 https\r" in await talk(port, forged)


async def test_a_taken_port_is_a_conflict():
    async with serving(app) as (_, port):
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1 is in use; choose another"):
            ApiServer(app, ServerOptions(port=port)).bind()


async def test_a_port_may_be_kept_without_listening():
    server = ApiServer(app, ServerOptions(port=0))
    server.bind(listening=False)
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)

    async with serving(app, port=port):  # somebody else was quicker
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1 is in use; choose another"):
            await server.start()
    await server.start()
    assert await is_well(port)
    await server.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "", "a" * 300])
async def test_a_host_that_is_not_here_is_named(host):
    with pytest.raises(UsageError, match=r"cannot listen on|--host is empty"):
        ApiServer(app, ServerOptions(host=host, port=0)).bind()


def test_only_loopback_addresses_are():
    assert is_loopback("127.0.0.1")
    assert is_loopback("127.8.8.8")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("::")
    assert not is_loopback("10.0.0.1")


def test_what_it_listens_on_is_known_to_be_tcp():
    # Or asyncio would have answers wait for what comes after them.
    for one in bind("localhost", 0):
        with contextlib.closing(one):
            assert one.proto == socket.IPPROTO_TCP


# TLS: certificates, handshakes, and those who do not finish one.


def test_a_certificate_that_will_not_do_is_one_sentence(tmp_path):
    (tmp_path / "cert.pem").write_text("not a certificate")
    cert = str(tmp_path / "cert.pem")

    with pytest.raises(UsageError, match="cannot be read: No such file"):
        tls_context(str(tmp_path / "gone.pem"), None)
    with pytest.raises(UsageError, match="--tls-key needs --tls-cert"):
        tls_context(None, cert)
    with pytest.raises(UsageError, match="cannot be used for TLS"):
        tls_context(cert, cert)
    with pytest.raises(UsageError, match="does not belong to the certificate"):
        tls_context(str(TLS / "cert.pem"), str(TLS / "other.pem"))
    with pytest.raises(UsageError, match="has a passphrase"):
        tls_context(str(TLS / "cert.pem"), str(TLS / "locked.pem"))
    assert tls_context(None, None) is None


async def test_tls_is_spoken():
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(TLS / "cert.pem")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with guarded(app, guard={"is_tls": True}, **TLS_FILES) as (server, port):
        answer = await talk(port, get("/healthz"), tls=trusting())
        with pytest.raises(OSError):
            await asyncio.open_connection("localhost", port, ssl=old)
        plain = await talk(port, get("/healthz"))

    assert server.url.startswith("https://")
    assert answer.endswith(b"GET /healthz 0")
    assert b"strict-transport-security" in answer
    assert b"200 OK" not in plain


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_who_does_not_finish_a_handshake_is_cut_off(said):
    async with guarded(app, header_seconds=0.2, **TLS_FILES) as (server, port):
        assert await talk(port, said) == b""
        await come(lambda: server.connections == 0)


async def test_who_breaks_off_a_handshake_is_not_counted_any_more():
    async with guarded(app, header_seconds=3600, **TLS_FILES) as (server, port):
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        await come(lambda: server.connections == 1)
        silent.transport.abort()

        await come(lambda: server.connections == 0)
        await talk(port, get("/healthz"))
        await come(lambda: server.connections == 0)


async def test_stopping_cuts_off_who_is_in_a_handshake():
    async with guarded(app, header_seconds=3600, **TLS_FILES) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await come(lambda: server.connections == 1)

        await asyncio.wait_for(server.stop(), PATIENCE)

        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()
