"""Behind a pooler in transaction mode: nothing is kept between two transactions."""

import asyncio
import os
import shutil
import socket
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from daybell.errors import Unavailable
from daybell.store.postgres import PostgresStore
from tests.builders import claim, claimed, defined, enqueued, steps, success
from tests.pooler import Pooler
from tests.postgres import NOBODY, eventually, free_port, make_folder, scratch
from tests.store.postgres.invariants import violations
from tests.store.postgres.lifecycle import live_through_everything
from tests.stores import POSTGRES

CLIENTS = 4


@pytest.fixture(params=[True, False], ids=["refuses parameters", "forgets parameters"])
async def pooler(request, place):
    async with Pooler(place.url, is_strict=request.param) as running:
        yield running


@pytest.fixture
async def pooled(pooler):
    """A store that reaches its database through the pooler."""
    opened = PostgresStore(pooler.url)
    await opened.open()
    yield opened
    await opened.close()


async def test_the_pooler_forgets_settings_and_named_statements(place):
    async with Pooler(place.url, servers=2, is_strict=False) as pooler:
        connection = await asyncpg.connect(pooler.url, statement_cache_size=0)
        await connection.execute("SET work_mem = '5MB'")
        async with connection.transaction():
            assert await connection.fetchval("SHOW work_mem") != "5MB"
        await connection.execute("PREPARE mine AS SELECT 1")
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await connection.execute("EXECUTE mine")
        await connection.close()


async def test_a_pooler_refuses_start_parameters_in_the_words_of_pgbouncer(place):
    async with Pooler(place.url) as pooler:
        with pytest.raises(asyncpg.PostgresError, match="unsupported startup parameter: jit"):
            await asyncpg.connect(pooler.url, server_settings={"jit": "off"})


async def test_a_store_notices_the_pooler(pooled):
    (check,) = [check for check in (await pooled.health()).checks if check.name == "pooler"]

    assert "pooler" in check.found


async def test_a_store_on_a_direct_connection_notices_none(store):
    (check,) = [check for check in (await store.health()).checks if check.name == "pooler"]

    assert "direct" in check.found


async def test_everything_works_behind_a_pooler(pooler, pooled, sql):
    await live_through_everything(pooled)

    assert pooler.moves > 50
    assert await violations(sql) == []


async def test_several_clients_share_a_pooler(pooler, sql):
    stores = [PostgresStore(pooler.url) for _ in range(CLIENTS)]
    for store in stores:
        await store.open()

    await asyncio.gather(
        *[live_through_everything(store, f"job-{n}") for n, store in enumerate(stores)]
    )

    assert await violations(sql) == []
    for store in stores:
        await store.close()


async def test_several_workers_share_a_queue_behind_a_pooler(pooler, pooled, sql):
    ids = set(await enqueued(pooled, 60))
    workers = [PostgresStore(pooler.url) for _ in range(CLIENTS)]

    async def work(store):
        await store.open()
        taken = []
        while (hands := await claim(store, 5)).executions:
            moves = [success(one) for one in hands.executions]
            assert await store.apply("default", worker=hands.worker, transitions=moves) == []
            taken += [one.id for one in hands.executions]
        await store.close()
        return taken

    taken = [
        id for each in await asyncio.gather(*[work(store) for store in workers]) for id in each
    ]

    assert len(taken) == 60
    assert set(taken) == ids
    assert await violations(sql) == []


async def test_a_database_is_migrated_through_a_pooler(kind, servers):
    async with servers.database(POSTGRES[kind]) as url, Pooler(url) as pooler:
        first, second = PostgresStore(pooler.url), PostgresStore(pooler.url)

        answers = await asyncio.gather(first.migrate(), second.migrate())

        assert sorted(answers) == [(), steps("postgres")]
        await first.open()
        await defined(first)
        for store in (first, second):
            await store.close()


async def test_a_client_that_leaves_in_the_middle_leaves_no_transaction_behind(pooler, pooled, sql):
    hands = await claimed(pooled)
    rude = await asyncpg.connect(pooler.url, statement_cache_size=0)
    await rude.execute("BEGIN")
    await rude.execute("SELECT FROM daybell.live FOR UPDATE")
    rude.terminate()

    moves = [success(hands.one)]
    assert await pooled.apply("default", worker=hands.worker, transitions=moves) == []


async def test_a_pooler_that_is_gone_is_unavailable(place):
    async with Pooler(place.url) as pooler:
        store = PostgresStore(pooler.url)
        await store.open()

    with pytest.raises(Unavailable):
        await store.list_tenants()
    await store.close()


PGBOUNCER = shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin")


@pytest.fixture
async def pgbouncer(place):
    """The URL of the same database behind a real PgBouncer."""
    if PGBOUNCER is None:
        pytest.skip("no pgbouncer here; get it by `apt install pgbouncer`")
    target = urlsplit(place.url)
    name, port, folder = target.path.lstrip("/"), free_port(), make_folder(scratch())
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={target.hostname} port={target.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder / 'users'}\n"
        "pool_mode = transaction\ndefault_pool_size = 4\n"
    )
    user: dict[str, Any] = {"user": NOBODY} if os.geteuid() == 0 else {}
    process = await asyncio.create_subprocess_exec(
        PGBOUNCER, str(folder / "pgbouncer.ini"), stderr=asyncio.subprocess.DEVNULL, **user
    )
    assert await asyncio.to_thread(eventually, lambda: is_listening(port), 10.0)
    yield f"postgresql://postgres@127.0.0.1:{port}/{name}"
    process.kill()
    await process.wait()
    shutil.rmtree(folder)


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_everything_works_behind_pgbouncer(pgbouncer, sql):
    stores = [PostgresStore(pgbouncer) for _ in range(CLIENTS)]
    for store in stores:
        await store.open()
        assert store.db.is_pooled

    await asyncio.gather(
        *[live_through_everything(store, f"job-{n}") for n, store in enumerate(stores)]
    )

    assert await violations(sql) == []
    for store in stores:
        await store.close()
