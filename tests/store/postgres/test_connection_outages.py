"""A server that stops, refuses or never was: our own errors, in time, and no secrets in them."""

import asyncio
import signal
import socket

import asyncpg
import pytest

from daybell.core.ids import mint
from daybell.core.views import Retention
from daybell.core.worker import LEASE_SECONDS
from daybell.errors import DaybellError, Unavailable, UsageError
from daybell.store.postgres import PostgresStore
from tests.builders import (
    TENANT,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    enqueued,
    look,
    registered,
    success,
)
from tests.postgres import Postgres, free_port
from tests.store.postgres.invariants import violations
from tests.stores import POSTGRES
from tests.sweeps import retain

SECRET = "hunter2hunter2"
SECONDS = 60.0

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(kind):
    """A server of our own, to be stopped."""
    with Postgres(version=POSTGRES[kind]) as running:
        yield running


@pytest.fixture
async def store(server):
    opened = PostgresStore(server.create_database())
    await opened.migrate()
    await opened.open()
    yield opened
    await opened.close()


def operations(store, hands):
    """One of each kind, to be called."""
    (one,) = hands.executions
    claim = {"worker": hands.worker, "lease": mint(), "queues": ["default"], "limit": 1}
    known = [hands.lease, claim["lease"]]
    return [
        lambda: store.queue.enqueue(TENANT, [an_execution()]),
        lambda: store.queue.enqueue(TENANT, [an_execution(unique_key="k")]),
        lambda: store.queue.load(TENANT, [an_execution() for _ in range(3)]),
        lambda: store.queue.claim(TENANT, **claim),
        lambda: store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=known),
        lambda: store.queue.apply(TENANT, worker=hands.worker, transitions=[success(one)]),
        lambda: store.queue.cancel(TENANT, [one.id]),
        store.queue.lost,
        store.schedules.due_schedules,
        lambda: store.catalog.get_execution(TENANT, one.id),
        lambda: store.catalog.list_queues(TENANT),
        lambda: store.admin.lead("janitor", holder=mint(), lease=60.0),
        lambda: retain(store, Retention()),
        store.health,
    ]


async def test_nothing_works_while_the_server_is_down_and_everything_after(server, store):
    await defined(store)
    hands = await claimed(store)

    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    for operation in operations(store, hands):
        with pytest.raises(Unavailable):
            await asyncio.wait_for(operation(), SECONDS)
    await asyncio.to_thread(server.start)

    for operation in operations(store, hands):
        await asyncio.wait_for(operation(), SECONDS)


async def test_what_was_answered_before_a_crash_is_there_after_it(server, store):
    ids = await enqueued(store, 20)
    hands = await claim(store, 10)
    assert await apply(store, hands, *[success(one) for one in hands.executions[:5]]) == []

    await asyncio.to_thread(server.restart, signal.SIGQUIT)

    seen = [(await look(store, id)).state for id in ids]
    assert [str(state) for state in seen] == ["succeeded"] * 5 + ["running"] * 5 + ["queued"] * 10


async def test_operations_cut_off_by_a_crash_are_unavailable_and_can_be_repeated(server, store):
    """Whatever was under way when the server went: nothing hangs, nothing is lost or doubled."""
    await defined(store)
    worker = await registered(store)
    new = [an_execution(retries=1) for _ in range(200)]
    tasks = [asyncio.create_task(store.queue.enqueue(TENANT, [one])) for one in new]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 4 * SECONDS)
    await asyncio.to_thread(server.start)

    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(error, Unavailable) for error in errors), errors
    for one, answer in zip(new, answers, strict=True):
        if isinstance(answer, Unavailable):
            (again,) = await store.queue.enqueue(TENANT, [one], repeat=True)
            assert (again.id, again.created) == (one.id, True)
    hands = await claim(store, 500, worker=worker)
    assert sorted(one.id for one in hands.executions) == sorted(one.id for one in new)
    connection = await asyncpg.connect(store.db.url)
    assert await violations(connection) == []
    await connection.close()


async def test_health_says_what_a_crash_may_cost(server, store):
    (check,) = [check for check in (await store.health()).checks if check.name == "durability"]

    assert not check.is_ok
    assert "fsync = off" in check.found
    assert check.advice


async def test_health_says_that_commits_are_not_waited_for(server, store):
    await asyncio.to_thread(server.stop)
    server._settings |= {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "off"}
    await asyncio.to_thread(server.start)

    (check,) = [check for check in (await store.health()).checks if check.name == "durability"]
    assert not check.is_ok
    assert check.found == "synchronous_commit = off"

    await asyncio.to_thread(server.stop)
    server._settings |= {"synchronous_commit": "on"}
    await asyncio.to_thread(server.start)
    (check,) = [check for check in (await store.health()).checks if check.name == "durability"]
    assert check.is_ok


async def refused(url):
    """The error of opening a store there."""
    store = PostgresStore(url)
    with pytest.raises(DaybellError) as caught:
        await asyncio.wait_for(store.open(), SECONDS)
    await store.close()
    error = caught.value
    assert SECRET not in str(error)
    assert SECRET not in repr(error)
    return error


async def test_this_end_of_a_connection_notices_too_when_the_other_is_gone(store):
    transaction = await store.queue.begin(mint())
    try:
        async with store.db.link() as pooled, store.db.apart() as apart:
            for link in (pooled, apart, transaction.connection):
                ours = link._transport.get_extra_info("socket")
                limit = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert 0 < limit < 0.8 * 1000 * LEASE_SECONDS, "then it is too late for a renewal"
                assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    finally:
        await transaction.close()


async def test_a_server_that_is_not_there_is_unavailable():
    error = await refused(f"postgresql://ada:{SECRET}@127.0.0.1:{free_port()}/daybell")

    assert isinstance(error, Unavailable)
    assert "cannot be reached" in str(error)
    assert str(error).endswith("is it running there, and is DAYBELL_DATABASE_URL right?")


async def test_a_host_that_is_not_there_is_unavailable():
    error = await refused(f"postgresql://ada:{SECRET}@nowhere.invalid/daybell")

    assert isinstance(error, Unavailable)


async def test_something_else_that_listens_is_unavailable_in_time():
    async def hang_up(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]

    error = await refused(f"postgresql://ada:{SECRET}@127.0.0.1:{port}/daybell")

    assert isinstance(error, Unavailable)
    listener.close()


async def test_a_listener_that_never_answers_is_unavailable_in_time():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        error = await refused(
            f"postgresql://ada:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/daybell"
        )

    assert isinstance(error, Unavailable)


async def test_a_wrong_password_is_unavailable_and_not_shown(server):
    connection = await asyncpg.connect(server.url())
    await connection.execute("CREATE ROLE ada LOGIN PASSWORD 'right'")
    await connection.close()
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"host all ada 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    await asyncio.to_thread(server.restart)

    error = await refused(f"postgresql://ada:{SECRET}@127.0.0.1:{server.port}/postgres")

    assert isinstance(error, Unavailable)
    assert "password" in str(error)
    assert "ada" in str(error)


async def test_an_unknown_database_is_unavailable_and_named(server):
    error = await refused(f"postgresql://postgres:{SECRET}@127.0.0.1:{server.port}/nowhere")

    assert isinstance(error, Unavailable)
    assert "nowhere" in str(error)


GARBAGE = [
    "",
    "nonsense",
    f"mysql://ada:{SECRET}@localhost/x",
    f"postgresql://ada:{SECRET}@localhost:port/x",
    f"postgresql://ada:{SECRET}@localhost:99999/x",
    f"postgresql://ada:{SECRET}@[::1/x",
    f"postgresql://ada:{SECRET}@localhost/x?sslmode=perhaps",
    f"postgresql://ada:{SECRET}@localhost/x?target_session_attrs=none",
    f"postgresql://ada:{SECRET}\0@localhost/x",
    f"postgresql://ada:{SECRET}@localhost/x?password=%zz",
    f"postgresql://ada:{SECRET}/x@localhost/x",  # a slash in the password, not escaped
    f"postgresql://ada:{SECRET}",
]


@pytest.mark.parametrize("url", GARBAGE)
async def test_a_url_that_is_none_is_refused_in_our_words(url, monkeypatch):
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)

    error = await refused(url)

    assert isinstance(error, UsageError | Unavailable)
