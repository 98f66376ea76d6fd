"""No password in clear to a server of the network, unless the URL asks for it."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager

import pytest

from daybell.core.worker import LEASE_SECONDS
from daybell.errors import Unavailable, UsageError
from daybell.runners.sql_postgres import PostgresDatabase
from daybell.runners.sql_statement import Parameters, StatementFailed
from daybell.store.open import store_for
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import lineage_of
from daybell.store.postgres.context import Listener
from daybell.store.timeouts import timeouts_for
from tests.pooler import SSL_REQUEST, framed


class WithoutTls:
    """A server that refuses TLS, asks for the password in clear, and keeps what it gets."""

    def __init__(self) -> None:
        self.passwords: list[bytes] = []
        self.refusals = 0
        self.port = 0

    async def attend(self, reader, writer) -> None:
        try:
            while True:
                (length,) = struct.unpack("!I", await reader.readexactly(4))
                body = await reader.readexactly(length - 4)
                if struct.unpack("!I", body[:4])[0] != SSL_REQUEST:
                    break
                self.refusals += 1
                writer.write(b"N")
            writer.write(framed(b"R", struct.pack("!I", 3)))  # AuthenticationCleartextPassword
            await reader.readexactly(5)
            self.passwords.append(await reader.readuntil(b"\0"))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def without_tls():
    server = WithoutTls()
    listener = await asyncio.start_server(server.attend, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server


@pytest.fixture(autouse=True)
def _names(monkeypatch):
    """Every name of the network leads to this machine."""
    asked = socket.getaddrinfo

    def answer(host, *args, **options):
        return asked("127.0.0.1" if str(host).endswith(".example") else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    for name in ("PGSSLMODE", "PGHOST", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("hosts", ["db.example:{0}", "db.example:{0},other.example:{0}"])
async def test_a_store_sends_no_password_to_a_server_without_tls(hosts):
    async with without_tls() as server:
        store = PostgresStore(f"postgresql://me:hunter2@{hosts.format(server.port)}/x")
        with pytest.raises(
            Unavailable, match=r"offers no TLS.*or write \?sslmode=disable"
        ) as error:
            await store.open()

    assert error.value.is_lasting
    assert server.refusals
    assert server.passwords == []


async def test_a_url_that_asks_for_it_may_go_without_tls():
    async with without_tls() as server:
        for url in (
            f"postgresql://me:hunter2@db.example:{server.port}/x?sslmode=disable",
            f"postgresql://me:hunter2@127.0.0.1:{server.port}/x",
        ):
            with pytest.raises(Unavailable):
                await PostgresStore(url).open()

    assert set(server.passwords) == {b"hunter2\0"}


async def test_a_statement_sends_no_password_to_a_server_without_tls():
    async with without_tls() as server:
        database = PostgresDatabase("shop", f"postgresql://me:hunter2@db.example:{server.port}/x")
        with pytest.raises(StatementFailed, match=r"offers no TLS.*\?sslmode=disable"):
            await database.run("SELECT 1", Parameters({}), rows_max=1, say=print)
        await database.close()

    assert server.passwords == []


async def test_a_listener_sends_no_password_to_a_server_without_tls(caplog):
    async with without_tls() as server:
        url = f"postgresql://me:hunter2@db.example:{server.port}/x"
        listener = Listener(
            url, {}, lineage=lineage_of(url), timeouts=timeouts_for(LEASE_SECONDS), interval=1.0
        )
        await listener.start()
        await listener.stop()

    assert "no wake-ups" in caplog.text
    assert "offers no TLS" in caplog.text
    assert server.refusals
    assert server.passwords == []


@pytest.mark.parametrize("option", ["ssl=true", "tls=true"])
def test_options_of_other_drivers_are_refused_with_the_right_one(option):
    url = f"postgresql://me:hunter2@db.example/x?{option}"

    for urls in ((url, None), ("postgresql://db/x", url)):
        with pytest.raises(UsageError, match="TLS is chosen with sslmode") as error:
            store_for(urls[0], listen_url=urls[1])
        assert "hunter2" not in str(error.value)


async def test_an_option_that_the_server_does_not_know_is_named(place):
    with pytest.raises(UsageError, match=r'refuses an option of the URL: .*"connect_timeout"'):
        await PostgresStore(f"{place.url}?connect_timeout=3").open()
