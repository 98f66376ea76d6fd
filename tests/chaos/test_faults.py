"""The faults of a run: the plan of a seed, and the proxy that breaks connections."""

import asyncio

import asyncpg
import pytest

from daybell.chaos.faults import (
    ALONE,
    OF_PROCESSES,
    Hold,
    Kind,
    Messages,
    Proxy,
    Questions,
    can_stand_before,
    draw_faults,
)
from daybell.chaos.fleet import WORKER
from daybell.engine.loop import SystemClock
from tests.sdk.waiting import eventually
from tests.stores import POSTGRES


def kinds(seed, **options):
    told = {"seconds": 30, "lease": 2.0, "has_proxy": True, "has_restart": True} | options
    return [fault.kind for fault in draw_faults(seed, **told)]


def test_a_seed_says_what_happens():
    assert kinds(1) == kinds(1) != kinds(2)


@pytest.mark.parametrize("seed", range(20))
def test_half_a_minute_has_some_of_everything(seed):
    assert set(kinds(seed)) == set(Kind)


def test_a_file_has_no_connections_and_no_server():
    found = set(kinds(1, has_proxy=False, has_restart=False))

    assert found == {Kind.KILL, Kind.FREEZE, Kind.DRAIN, Kind.EXIT}


def test_a_freeze_and_an_outage_are_longer_than_the_lease():
    faults = draw_faults(1, seconds=60, lease=2.0, has_proxy=True, has_restart=False)

    long = {Kind.FREEZE, Kind.OUTAGE}
    assert all(fault.length > 2.0 for fault in faults if fault.kind in long)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_else_disturbs_what_is_to_be_seen_of_deaf_held_and_slow_connections(seed):
    faults = draw_faults(seed, seconds=120, lease=2.0, has_proxy=True, has_restart=True)

    for one in [fault for fault in faults if fault.kind in ALONE]:
        inside = [
            fault
            for fault in faults
            if fault is not one and one.at <= fault.at <= one.at + one.length
        ]
        assert all(fault.kind in OF_PROCESSES and fault.role == WORKER for fault in inside)
        assert one.kind is not Kind.DEAF or not inside


def test_only_some_kinds_may_be_asked_for():
    assert set(kinds(1, only=[Kind.LATE, Kind.KILL])) == {Kind.LATE, Kind.KILL}
    assert kinds(1, only=[]) == []


# The proxy does exactly its faults.

WAIT = 60


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


@pytest.mark.postgres
async def test_deaf_connections_never_answer_and_new_ones_do(proxy, table):
    connection = await asyncpg.connect(proxy.url)
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO sale VALUES (1)")
    deafening = asyncio.create_task(proxy.deafen(WAIT))
    await asyncio.sleep(0)

    asking = asyncio.create_task(connection.execute("COMMIT"))
    again = await asyncpg.connect(proxy.url)
    assert await asyncio.wait_for(again.fetchval("SELECT 1"), WAIT) == 1
    assert not asking.done()
    assert await sales(table) == []

    # Not even the end of the client reaches the server: the session keeps its transaction.
    connection.terminate()
    await asyncio.gather(asking, return_exceptions=True)
    await again.execute("SELECT 1")
    idle = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'idle in transaction' AND datname = current_database()"
    )
    assert await again.fetchval(idle) == 1
    deafening.cancel()
    await asyncio.gather(deafening, return_exceptions=True)
    await eventually(lambda: again.fetchval(idle), lambda count: count == 0)
    await again.close()


@pytest.mark.postgres
async def test_a_slow_store_answers_late(proxy):
    connection = await asyncpg.connect(proxy.url)
    clock = asyncio.get_running_loop().time
    slowing = asyncio.create_task(proxy.slow_down(WAIT, lag=0.3))
    await asyncio.sleep(0)

    since = clock()
    assert await asyncio.wait_for(connection.fetchval("SELECT 1"), WAIT) == 1
    assert clock() - since >= 0.6  # it was prepared, then executed

    slowing.cancel()
    await connection.close()


@pytest.mark.postgres
async def test_a_commit_is_held_back_while_its_session_keeps_its_locks(proxy, url, table):
    await proxy.open("shop")
    other = await asyncpg.connect(proxy.url)
    connection = await asyncpg.connect(proxy.url_of("shop"))
    holding = asyncio.create_task(
        proxy.hold(Hold(role="shop", statement=b"COMMIT", after=b"INTO sale", seconds=0.5))
    )
    await asyncio.sleep(0)

    async def sell(link: asyncpg.Connection, statement: str) -> None:
        async with link.transaction():
            await link.execute(statement, 1)

    await sell(other, "INSERT INTO sale VALUES ($1)")  # outside of the shop
    await sell(connection, "SELECT $1::int")  # another transaction
    assert not holding.done()
    selling = asyncio.create_task(sell(connection, "INSERT INTO sale VALUES ($1 + 1)"))
    await asyncio.wait_for(holding, WAIT)

    assert await sales(table) == [1]
    proxy.cut_all()  # a held statement stays held
    await asyncio.wait_for(selling, WAIT)
    assert await sales(table) == [1, 2]
    await connection.close()
    other.terminate()


@pytest.mark.postgres
async def test_a_single_statement_arrives_when_its_client_has_long_gone(proxy, table):
    connection = await asyncpg.connect(proxy.url)
    hold = Hold(statement=b"INTO sale", is_single=True, breaks=True, seconds=0.5)
    async with connection.transaction():
        await connection.execute("INSERT INTO sale VALUES ($1)", 1)
        holding = asyncio.create_task(proxy.hold(hold))
        await asyncio.sleep(0)
        await connection.execute("INSERT INTO sale VALUES ($1)", 2)  # it does not commit by itself
    assert not holding.done()

    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await asyncio.wait_for(connection.execute("INSERT INTO sale VALUES ($1)", 3), WAIT)

    assert holding.done()
    assert await sales(table) == [1, 2]
    await eventually(lambda: sales(table), lambda found: found == [1, 2, 3])
    connection.terminate()


def test_a_statement_is_known_by_the_text_that_it_was_prepared_with():
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    asked = message(b"P", b"one\0SELECT 1\0\0\0") + message(b"Q", b"COMMIT;\0")
    again = message(b"B", b"\0one\0\0\0") + message(b"E", b"\0\0\0\0\0")

    for size in (1, 3, len(asked + again)):
        data, questions = asked + again, Questions()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        found = [text for piece in pieces for text in questions.statements(piece)]
        assert found == questions.transaction == [b"COMMIT;\0", b"SELECT 1"]


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
