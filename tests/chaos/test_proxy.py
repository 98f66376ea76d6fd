"""The proxy does what it says, and nothing else."""

import asyncio

import asyncpg
import pytest

from daybell.chaos.proxy import Messages, Proxy, can_stand_before
from daybell.engine.clock import SystemClock
from tests.stores import POSTGRES

WAIT = 20


@pytest.fixture
async def url(servers):
    async with servers.database(POSTGRES["postgres"]) as url:
        yield url


@pytest.fixture
async def proxy(url):
    async with Proxy(url, clock=SystemClock()) as proxy:
        yield proxy


@pytest.fixture
async def table(url):
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE sale (number int)")
    yield connection
    await connection.close()


async def sales(table) -> list[int]:
    return [row["number"] for row in await table.fetch("SELECT number FROM sale ORDER BY 1")]


@pytest.mark.postgres
async def test_it_passes_on_what_is_said(proxy, table):
    connection = await asyncpg.connect(proxy.url)
    try:
        assert await connection.fetchval("SELECT repeat('x', 1000000)") == "x" * 1_000_000
    finally:
        await connection.close()


@pytest.mark.postgres
@pytest.mark.parametrize("is_explicit", [True, False])
async def test_an_answer_is_lost_when_the_work_is_committed(proxy, table, is_explicit):
    connection = await asyncpg.connect(proxy.url)

    async def sell() -> None:
        if is_explicit:
            async with connection.transaction():
                await connection.execute("INSERT INTO sale VALUES (1)")
                proxy.lose_answers(1)
        else:
            proxy.lose_answers(1)
            await connection.execute("INSERT INTO sale VALUES ($1)", 1)

    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await asyncio.wait_for(sell(), WAIT)

    assert await sales(table) == [1]
    assert proxy.lost == 1
    connection.terminate()


@pytest.mark.postgres
async def test_what_is_rolled_back_is_no_work(proxy, table):
    connection = await asyncpg.connect(proxy.url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("INSERT INTO sale VALUES (1)")
    proxy.lose_answers(1)

    await transaction.rollback()

    assert proxy.lost == 0
    connection.terminate()


@pytest.mark.postgres
async def test_connections_are_cut_and_new_ones_get_through(proxy):
    connection = await asyncpg.connect(proxy.url)
    asking = asyncio.create_task(connection.execute("SELECT pg_sleep(30)"))
    await asyncio.wait([asking], timeout=0.1)

    proxy.cut_all()

    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await asyncio.wait_for(asking, WAIT)
    again = await asyncpg.connect(proxy.url)
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


@pytest.mark.postgres
async def test_a_delay_lets_nothing_through_until_it_is_over(proxy):
    connection = await asyncpg.connect(proxy.url)
    delaying = asyncio.create_task(proxy.delay(0.3))
    await asyncio.sleep(0)

    assert await asyncio.wait_for(connection.fetchval("SELECT 1"), WAIT) == 1

    assert delaying.done()
    await connection.close()


def test_an_answer_may_come_in_any_pieces():
    answer = b"C\0\0\0\x0bCOMMIT\0" + b"Z\0\0\0\x05I"

    for size in (1, 3, len(answer)):
        messages = Messages()
        found = [messages.ends_work(answer[at : at + size]) for at in range(0, len(answer), size)]
        assert found.count(True) == 1
        assert found[-1]


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("postgresql://a:b@host/x", True),
        ("postgresql://host:5433/x?sslmode=prefer", True),
        ("postgresql://host/x?sslmode=require", False),
        ("postgresql://one,two/x", False),
        ("postgresql:///x?host=/run/postgresql", False),
    ],
)
def test_it_stands_before_one_server_without_tls(url, can):
    assert can_stand_before(url) is can
