"""TLS: certificates, handshakes, and those who do not finish one."""

import asyncio
import contextlib
import ssl
import warnings

import pytest

from daybell.api.server import tls_context
from daybell.errors import UsageError
from tests.api.sockets import PATIENCE, TLS, TLS_FILES, app, come, get, guarded, talk, trusting


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
