"""Connections that stay open and are never answered: noticed in time, and all of them at once."""

import asyncio
from urllib.parse import urlsplit

import pytest

from daybell.api.app import create_api
from daybell.api.caller import ApiOptions
from daybell.client import Client
from daybell.core.ids import mint
from daybell.core.views import ExecutionFilter
from daybell.errors import Unavailable
from daybell.store.postgres import PostgresStore
from daybell.store.postgres.connection import POOL_CONNECTIONS_MAX
from daybell.store.postgres.context import CHANNEL, Listener
from daybell.store.timeouts import Pace
from tests.api.conftest import asking
from tests.builders import TENANT, defined, registered, tenant_names
from tests.store.postgres.deaf import Passage

LEASE = 3.0
# Before, each of these took more than a minute.
SECONDS = 50.0


@pytest.fixture
async def passage(place):
    async with Passage(place.url) as opened:
        yield opened


@pytest.fixture
async def far(passage):
    """A store behind the passage, with a full pool of connections."""
    opened = PostgresStore(passage.url, lease=LEASE)
    await opened.open()
    await fill_pool(opened)
    yield opened
    await asyncio.wait_for(opened.close(), SECONDS)


async def fill_pool(store):
    """Have as many connections as there can be."""
    together = asyncio.Barrier(POOL_CONNECTIONS_MAX)

    async def hold():
        async with store.db.link() as link:
            await link.execute("SELECT 1")
            await together.wait()

    await asyncio.gather(*(hold() for _ in range(POOL_CONNECTIONS_MAX)))


async def test_one_timeout_is_the_price_of_a_whole_pool_that_went_deaf(far, passage):
    await tenant_names(far)
    passage.go_deaf()

    async with asyncio.timeout(SECONDS):
        with pytest.raises(Unavailable):
            await tenant_names(far)
        for _ in range(2 * POOL_CONNECTIONS_MAX):
            assert await tenant_names(far)


async def test_a_host_that_is_deaf_does_not_keep_a_store_from_the_next_one(place, passage):
    passage.go_deaf(to_new=True)
    first, second = urlsplit(passage.url), urlsplit(place.url)
    hosts = f"{first.netloc},{second.netloc.rpartition('@')[2]}"
    store = PostgresStore(first._replace(netloc=hosts).geturl(), lease=LEASE)

    async with asyncio.timeout(SECONDS):
        await store.open()
        assert await tenant_names(store)
        await store.close()


async def test_a_deaf_connection_costs_a_large_batch_no_more_than_a_small_one(place, passage):
    store = PostgresStore(passage.url, lease=LEASE)
    await store.open()
    async with store.db.link(Pace.LONG) as link:
        await link.execute("SELECT 1")
    passage.go_deaf()

    async with asyncio.timeout(SECONDS):
        async with store.db.link(Pace.LONG) as link:
            assert await link.fetchval("SELECT 1") == 1
        await store.close()


async def test_what_never_got_a_connection_was_not_sent(far, passage):
    passage.go_deaf(to_new=True)
    with pytest.raises(Unavailable) as sent:
        await tenant_names(far)
    with pytest.raises(Unavailable) as unsent:
        await tenant_names(far)

    assert (sent.value.was_sent, unsent.value.was_sent) == (True, False)


@pytest.mark.parametrize("way", ["link", "transaction", "apart"])
async def test_a_deaf_connection_is_not_waited_for_twice(place, passage, way):
    """Neither by a rollback nor when it goes back to its pool."""
    store = PostgresStore(passage.url, lease=2 * LEASE)
    await store.open()
    loop = asyncio.get_running_loop()
    started = loop.time()

    async with asyncio.timeout(SECONDS):
        with pytest.raises(Unavailable):
            async with getattr(store.db, way)() as link:
                await link.execute("SELECT 1")
                passage.go_deaf()
                started = loop.time()
                await link.execute("SELECT 1")

    assert loop.time() - started < 2 * store.db.timeouts.command
    await store.close()


async def test_an_enqueue_whose_connection_went_deaf_is_there_once(far, store, passage):
    await defined(store)
    async with Client(far, tenant=TENANT) as client:
        await client.enqueue("resize")
        passage.go_deaf()

        async with asyncio.timeout(SECONDS):
            answer = await client.enqueue("resize")

    found = await store.catalog.list_executions(TENANT, ExecutionFilter())
    assert found.items[0].id == answer.id
    assert len(found.items) == 2


async def test_a_renewal_is_made_on_a_new_connection_before_the_lease_is_over(far, passage):
    worker = await registered(far)
    await far.queue.renew(TENANT, worker=worker, lease=LEASE, leases=[])
    passage.go_deaf()

    async with asyncio.timeout(SECONDS):
        with pytest.raises(Unavailable):
            await far.queue.renew(TENANT, worker=worker, lease=LEASE, leases=[])
        await far.queue.renew(TENANT, worker=worker, lease=LEASE, leases=[])


async def test_connections_that_went_deaf_are_not_asked_to_close_one_after_the_other(far, passage):
    passage.go_deaf()
    loop = asyncio.get_running_loop()
    started = loop.time()

    with pytest.raises(Unavailable):
        async with far.db.link() as link:
            await link.execute("SELECT 1")

    assert loop.time() - started < (POOL_CONNECTIONS_MAX - 1) * far.db.timeouts.connect


async def test_a_task_gets_a_transaction_on_a_connection_that_answers(far, passage):
    worker = mint()
    await (await far.queue.begin(worker)).close()
    passage.go_deaf()

    async with asyncio.timeout(SECONDS):
        transaction = await far.queue.begin(worker)
        assert await transaction.connection.fetchval("SELECT 1") == 1
        await transaction.close()


async def test_a_listener_that_went_deaf_listens_again(far, passage, sql):
    heard = asyncio.Event()
    listener = Listener(
        passage.url,
        {"1:default": heard.set},
        lineage=far.db.lineage,
        timeouts=far.db.timeouts,
        interval=0.1,
    )
    async with asyncio.timeout(SECONDS):
        await listener.start()
        passage.go_deaf()
        heard.clear()
        await heard.wait()  # it listens again, and looks what it has missed
        heard.clear()
        await sql.execute("SELECT pg_notify($1, '1:default')", CHANNEL)
        await heard.wait()
        await listener.stop()


async def test_closing_a_store_does_not_wait_for_deaf_connections(place, passage):
    store = PostgresStore(passage.url, lease=LEASE)
    await store.open()
    await fill_pool(store)
    stop = await store.listen(TENANT, ["default"], lambda: None)
    passage.go_deaf(to_new=True)

    async with asyncio.timeout(SECONDS):
        await stop()
        await store.close()


async def test_the_api_answers_503_while_nothing_is_heard_and_serves_after_that(far, passage):
    await defined(far)
    client = Client(far, tenant=TENANT)
    async with asking(create_api(client, options=ApiOptions(open_tenant=TENANT))) as http:
        assert (await http.get("/jobs")).status_code == 200

        passage.go_deaf(to_new=True)
        for _ in range(2):  # on old connections, and on new ones
            answer = await asyncio.wait_for(http.get("/jobs"), SECONDS)
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)

        passage.hear()
        assert (await asyncio.wait_for(http.get("/jobs"), SECONDS)).status_code == 200


async def test_a_statement_that_the_server_ends_for_its_length_is_given_more_time(far):
    asked = []

    async def work():
        async with far.db.link() as link:
            asked.append(await link.fetchval("SHOW statement_timeout"))
            await link.execute("SELECT pg_sleep($1)", far.db.timeouts.command)

    await asyncio.wait_for(far.db.settled(work), SECONDS)

    assert len(asked) == 2
    assert asked[0] != asked[1]
    assert far.db.is_open
