"""Several servers in the URL: the store is with the one that can be written to."""

import asyncio
import signal
from urllib.parse import urlsplit

import asyncpg
import pytest

from daybell.core.execution import State
from daybell.engine.clock import SystemClock
from daybell.engine.events import Events
from daybell.errors import Unavailable
from daybell.store.postgres import PostgresStore
from tests.builders import claim, defined, enqueued, look, states
from tests.engine.tasks import Log, Tasks, a_worker
from tests.engine.virtual import until
from tests.postgres import Postgres, free_port
from tests.store.postgres.standby import Standby
from tests.stores import POSTGRES

SECONDS = 20.0

pytestmark = pytest.mark.postgres


@pytest.fixture
def primary(kind):
    with Postgres(version=POSTGRES[kind]) as server:
        yield server


@pytest.fixture
async def database(primary):
    """The name of a database with a schema and a job."""
    url = await asyncio.to_thread(primary.create_database)
    store = PostgresStore(url)
    await store.migrate()
    await store.open()
    await defined(store)
    await store.close()
    return urlsplit(url).path.removeprefix("/")


@pytest.fixture
def standby(primary, database):
    with Standby(primary) as server:
        yield server


def url_of(database, *ports):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"


@pytest.fixture
async def store(database, standby, primary):
    """The one that takes no writes is named first."""
    opened = PostgresStore(url_of(database, standby.port, primary.port))
    await opened.open()
    yield opened
    await opened.close()


async def insist(operation):
    """What an operation answers as soon as the store is there again."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        try:
            return await operation()
        except Unavailable:
            assert asyncio.get_running_loop().time() < deadline, "it does not come back"


async def on(server, database, query, *args):
    connection = await asyncpg.connect(server.url(database))
    try:
        return await connection.fetchval(query, *args)
    finally:
        await connection.close()


async def has_come(id, server, database):
    """Wait until what was committed on the primary is on its standby, too."""
    query = "SELECT count(*) FROM daybell.live WHERE id = $1"
    while not await on(server, database, query, id):
        pass


async def test_the_store_is_with_the_server_that_takes_writes(store, primary, database):
    (id,) = await enqueued(store)

    assert await on(primary, database, "SELECT count(*) FROM daybell.live WHERE id = $1", id) == 1


async def test_a_server_that_is_down_is_passed_over(database, primary):
    store = PostgresStore(url_of(database, free_port(), primary.port))
    await store.open()

    (id,) = await enqueued(store)

    assert await states(store, [id]) == [State.QUEUED]
    await store.close()


async def test_the_store_follows_when_the_standby_takes_over(store, primary, standby, database):
    (before,) = await enqueued(store)
    await asyncio.wait_for(has_come(before, standby, database), SECONDS)

    await asyncio.to_thread(primary.stop, signal.SIGQUIT)
    with pytest.raises(Unavailable):
        await enqueued(store)
    await asyncio.to_thread(standby.promote)
    (after,) = await insist(lambda: enqueued(store))

    hands = await claim(store, 2)
    assert {one.id for one in hands.executions} == {before, after}
    assert await on(standby, database, "SELECT count(*) FROM daybell.live") == 2


async def test_the_store_leaves_a_server_that_takes_no_more_writes(
    store, primary, standby, database
):
    (before,) = await enqueued(store)
    await asyncio.wait_for(has_come(before, standby, database), SECONDS)

    await asyncio.to_thread(standby.promote)
    await on(primary, database, "ALTER SYSTEM SET default_transaction_read_only = on")
    await on(primary, database, "SELECT pg_reload_conf()")
    await asyncio.wait_for(refused(store), SECONDS)  # its connections live on
    (after,) = await insist(lambda: enqueued(store))

    where = "SELECT count(*) FROM daybell.live WHERE id = $1"
    assert await on(standby, database, where, after) == 1
    assert await on(primary, database, where, after) == 0


async def refused(store):
    try:
        while True:
            await enqueued(store)
    except Unavailable:
        pass


async def test_a_worker_goes_on_with_the_server_that_took_over(store, primary, standby, database):
    log = Log()
    worker = a_worker(store, Tasks(resize=log), clock=SystemClock(), events=Events())
    await worker.start()
    (before,) = await enqueued(store)
    await until(lambda: log.ran == [before], within=SECONDS)

    await asyncio.to_thread(primary.stop, signal.SIGQUIT)
    await asyncio.to_thread(standby.promote)
    (after,) = await insist(lambda: enqueued(store))
    await until(lambda: after in log.ran, within=SECONDS)

    await worker.stop()
    assert (await look(store, after)).state is State.SUCCEEDED
