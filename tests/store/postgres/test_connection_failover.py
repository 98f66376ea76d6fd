"""Several servers in the URL: the store is with the one that can be written to."""

import asyncio
import signal
from urllib.parse import urlsplit

import asyncpg
import pytest

from daybell.client import Client
from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.engine.events import Events
from daybell.engine.loop import SystemClock
from daybell.errors import Unavailable
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import Lineage
from tests.builders import claim, defined, enqueued, look, states
from tests.engine.tasks import Log, Tasks, a_worker
from tests.engine.virtual import until
from tests.pooler import Pooler
from tests.postgres import Postgres, free_port
from tests.store.postgres.detour import Detour
from tests.store.postgres.standby import Standby
from tests.stores import POSTGRES

SECONDS = 60.0

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


async def fail_over(store, primary, standby, database):
    """Promote the standby while the old primary is down; the store goes on with the new one."""
    (before,) = await enqueued(store)
    await asyncio.wait_for(has_come(before, standby, database), SECONDS)
    await asyncio.to_thread(primary.stop, signal.SIGQUIT)
    await asyncio.to_thread(standby.promote)
    return await insist(lambda: enqueued(store))


async def break_connections(server, database):
    query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND datname = $1"""
    assert await on(server, database, query, database) > 0


COUNT = "SELECT count(*) FROM daybell.live"


@pytest.mark.parametrize("attributes", ["read-write", "any"])
async def test_an_old_primary_that_comes_back_is_passed_over(
    attributes, primary, standby, database
):
    url = url_of(database, primary.port, standby.port).replace("read-write", attributes)
    store = PostgresStore(url)
    await store.open()
    await fail_over(store, primary, standby, database)

    await asyncio.to_thread(primary.start)  # named first, and it takes writes
    await break_connections(standby, database)
    await insist(lambda: enqueued(store))
    await store.close()

    assert await on(primary, database, COUNT) == 1
    assert await on(standby, database, COUNT) == 3


async def test_an_old_primary_behind_the_only_address_is_refused(primary, standby, database):
    async with Detour(primary.port) as way:
        store = PostgresStore(url_of(database, way.port))
        await store.open()
        (before,) = await enqueued(store)
        await asyncio.wait_for(has_come(before, standby, database), SECONDS)
        await asyncio.to_thread(standby.promote)
        await way.lead(standby.port)
        await insist(lambda: enqueued(store))

        await way.lead(primary.port)
        await asyncio.wait_for(refused(store), SECONDS)
        with pytest.raises(Unavailable, match=r"old primary: it is on timeline 1, .* timeline 2"):
            await enqueued(store)
        with pytest.raises(Unavailable, match="old primary"):
            async with store.db.apart():
                pass
        with pytest.raises(Unavailable, match="old primary"):
            await store.queue.begin(mint())
        another = PostgresStore(url_of(database, way.port))  # as the thread that keeps a lease has
        with pytest.raises(Unavailable, match="old primary"):
            await another.open()

        await way.lead(standby.port)
        await insist(lambda: enqueued(store))
        await another.close()
        await store.close()

    assert await on(primary, database, COUNT) == 1
    assert await on(standby, database, COUNT) == 3


async def test_connections_to_the_old_primary_are_left_when_a_new_one_is_seen(
    primary, standby, database
):
    async with Detour(primary.port) as way:
        store = PostgresStore(url_of(database, way.port))
        await store.open()
        (before,) = await enqueued(store)
        task = await store.queue.begin(mint())
        await task.close()
        await asyncio.wait_for(has_come(before, standby, database), SECONDS)
        await asyncio.to_thread(standby.promote)
        await way.lead(standby.port, keep=True)  # the old primary still answers

        async with store.db.apart():
            pass
        await enqueued(store)
        task = await store.queue.begin(mint())
        timeline = await task.connection.fetchval(
            "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
        )
        await task.close()
        await store.close()

    assert await on(primary, database, COUNT) == 1
    assert await on(standby, database, COUNT) == 2
    assert timeline == "00000002"


async def test_a_server_that_turns_read_only_is_not_ready(primary, database):
    async with Client(primary.url(database)) as client:
        await client.check_ready()

        for value in ("on", "off"):
            await on(primary, database, f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            await on(primary, database, "SELECT pg_reload_conf()")
            wanted = value == "off"
            await asyncio.wait_for(turns(client, wanted), SECONDS)


async def turns(client, wanted):
    while await is_ready(client) is not wanted:
        pass


async def is_ready(client):
    try:
        await client.check_ready()
    except Unavailable as refusal:
        assert refusal.is_read_only
        return False
    return True


async def test_a_standby_is_refused(standby, database):
    store = PostgresStore(standby.url(database))

    with pytest.raises(Unavailable, match="is a standby"):
        await store.open()
    await store.close()


async def test_another_cluster_is_refused(primary, database):
    with Postgres(version=primary.version, stranger=True) as stranger:
        await asyncio.to_thread(stranger.create_database, database)
        async with Detour(primary.port) as way:
            store = PostgresStore(url_of(database, way.port))
            await store.open()
            await enqueued(store)

            await way.lead(stranger.port)
            await asyncio.wait_for(refused(store), SECONDS)
            with pytest.raises(Unavailable, match="is another cluster"):
                await enqueued(store)
            await store.close()


async def test_behind_a_pooler_each_transaction_checks_its_server(primary, standby, database):
    async with Detour(primary.port) as way, Pooler(way.url(database), servers=1) as pooler:
        store = PostgresStore(pooler.url)
        await store.open()
        (before,) = await enqueued(store)
        await asyncio.wait_for(has_come(before, standby, database), SECONDS)
        await asyncio.to_thread(standby.promote)
        await way.lead(standby.port)
        await insist(lambda: enqueued(store))

        await way.lead(primary.port)
        await asyncio.wait_for(refused(store), SECONDS)
        with pytest.raises(Unavailable, match="old primary"):
            await enqueued(store)
        await store.close()

    assert await on(primary, database, COUNT) == 1


async def test_a_service_without_timelines_is_used_as_it_is():
    class Other:
        def is_in_transaction(self):
            return False

        async def copy_from_query(self, _query, *, output):
            raise asyncpg.FeatureNotSupportedError("no such function here")

    lineage = Lineage()

    await lineage.check(Other())

    assert lineage.is_unsupported
    await lineage.check(Other())
