"""Behind a pooler in transaction mode: nothing is kept between two transactions."""

import asyncio
import os
import re
import shutil
import socket
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from daybell.errors import Unavailable, UsageError
from daybell.store.open import check_pooler
from daybell.store.postgres import PostgresStore
from tests.builders import claim, claimed, defined, enqueued, steps, success, tenant_names
from tests.cli.terminal import Running, daybell
from tests.pooler import Pooler
from tests.postgres import NOBODY, eventually, free_port, make_folder, scratch
from tests.store.postgres.invariants import violations
from tests.store.postgres.lifecycle import live_through_everything
from tests.stores import POSTGRES, execute

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
            assert await store.queue.apply("default", worker=hands.worker, transitions=moves) == []
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
    assert await pooled.queue.apply("default", worker=hands.worker, transitions=moves) == []


async def test_a_pooler_that_is_gone_is_unavailable(place):
    async with Pooler(place.url) as pooler:
        store = PostgresStore(pooler.url)
        await store.open()

    with pytest.raises(Unavailable):
        await tenant_names(store)
    await store.close()


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_pooler_in_session_mode_is_used_like_a_server(place, store, is_strict):
    async with Pooler(place.url, servers=20, is_strict=is_strict, keeps_servers=True) as pooler:
        pooled = PostgresStore(pooler.url)
        await pooled.open()
        assert not pooled.db.is_pooled
        (check,) = [one for one in (await pooled.health()).checks if one.name == "pooler"]
        assert check.found == "a pooler in session mode"
        async with pooled.db.link() as link:  # as on a direct connection
            assert await link.fetchval("SHOW enable_seqscan") == "off"
            assert await link.fetchval("SHOW statement_timeout") != "0"
        woken = asyncio.Event()
        stop = await pooled.listen("default", ["default"], woken.set)
        woken.clear()
        await enqueued(store)
        await asyncio.wait_for(woken.wait(), 300)
        await stop()
        await live_through_everything(pooled)
        await pooled.close()


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_pooler_in_transaction_mode_is_known_by_any_number_of_servers(place, count):
    async with Pooler(place.url, servers=count) as pooler:
        for _ in range(3):
            store = PostgresStore(pooler.url)
            await store.open()
            assert store.db.is_pooled
            await store.close()


async def test_a_pooler_in_session_mode_with_one_server_is_refused_with_the_remedy(place):
    async with Pooler(place.url, servers=1, keeps_servers=True) as pooler:
        store = PostgresStore(pooler.url, lease=1.0)
        with pytest.raises(Unavailable, match=r"in session mode.*default_pool_size of PgBouncer"):
            await store.open()
        await store.close()


async def test_a_pooler_in_session_mode_that_has_too_few_servers_is_reported(place):
    async with Pooler(place.url, servers=3, keeps_servers=True) as pooler:
        store = PostgresStore(pooler.url, lease=1.0)
        await store.open()

        (check,) = await check_pooler(store)
        assert not check.is_ok
        assert "servers for 3 of 16 connections" in check.found
        assert "pool size (default_pool_size of PgBouncer) to 16" in check.advice

        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(store.db.link())
            with pytest.raises(Unavailable, match=r"no free server.*It is in session mode"):
                await tenant_names(store)
        await store.close()


async def test_a_worker_and_doctor_warn_of_a_pooler_with_too_few_servers(place, tmp_path):
    async with Pooler(place.url, servers=8, keeps_servers=True) as pooler:
        told: Any = {"DAYBELL_DATABASE_URL": pooler.url, "DAYBELL_LEASE": "3s"}
        with Running("worker", folder=tmp_path, **told) as worker:
            await asyncio.to_thread(worker.wait_for, "a process may need; when it runs out, leases")
        doctor = await asyncio.to_thread(partial(daybell, "doctor", folder=tmp_path, **told))

    assert re.search("problem +pool +the pooler is in session mode.* for 8 of 16", doctor.out)


async def test_a_database_in_another_encoding_is_refused_with_the_remedy(kind, servers):
    async with servers.database(POSTGRES[kind]) as url:
        await execute(url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            store = PostgresStore(url.rpartition("/")[0] + "/latin")
            with pytest.raises(UsageError, match=r"encoded in LATIN1.*ENCODING 'UTF8' TEMPLATE"):
                await store.migrate()
            await store.close()
        finally:
            await execute(url, "DROP DATABASE latin WITH (FORCE)")


SIZES = {"transaction": 4, "session": 60}
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin")


@pytest.fixture(params=["transaction", "session"])
async def pgbouncer(request, place):
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
        f"pool_mode = {request.param}\ndefault_pool_size = {SIZES[request.param]}\n"
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


async def test_everything_works_behind_pgbouncer(pgbouncer, sql, request):
    stores = [PostgresStore(pgbouncer) for _ in range(CLIENTS)]
    for store in stores:
        await store.open()
        assert store.db.is_pooled is (request.node.callspec.params["pgbouncer"] == "transaction")

    await asyncio.gather(
        *[live_through_everything(store, f"job-{n}") for n, store in enumerate(stores)]
    )

    assert await violations(sql) == []
    for store in stores:
        await store.close()
