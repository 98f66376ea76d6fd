"""What a store says of itself, and how it is opened and closed."""

import asyncio

import pytest

from daybell.errors import SchemaError, Unavailable, UsageError
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, an_execution, defined, look, tenant_names
from tests.postgres import free_port
from tests.stores import KINDS, POSTGRES, connect


async def test_a_store_tells_its_product_its_time_and_its_schema(store, clock, place):
    health = await store.health()

    assert health.product.lower().startswith(place.kind.removesuffix("16"))
    assert health.now == clock.now()
    assert health.schema > 0


async def test_a_check_for_writes_changes_nothing(store):
    before = (await store.health()).schema, await store.admin.list_tenants()

    await store.check_writable()

    assert ((await store.health()).schema, await store.admin.list_tenants()) == before


async def test_a_store_looks_at_its_schema_and_its_durability(store):
    checks = (await store.health()).checks

    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert {"schema", "durability"} <= {name.split(":")[0] for name in names}
    assert all(check.found for check in checks)


async def test_whatever_is_not_well_comes_with_advice(store):
    checks = (await store.health()).checks

    assert all(check.advice for check in checks if not check.is_ok)


async def test_memory_admits_that_nothing_survives_the_process():
    store = SqliteStore.in_memory()
    await store.open()

    checks = {check.name: check for check in (await store.health()).checks}

    assert not checks["durability"].is_ok
    assert "nothing survives" in checks["durability"].found


async def test_a_store_that_is_not_open_says_so(place):
    closed = place.connect()

    with pytest.raises((UsageError, Unavailable), match="open"):
        await tenant_names(closed)
    with pytest.raises((UsageError, Unavailable), match="open"):
        await closed.queue.enqueue(TENANT, [an_execution()])


async def test_a_closed_store_can_be_closed_again_and_says_so_when_asked(place):
    store = place.connect()
    await store.open()

    await store.close()
    await store.close()

    with pytest.raises((UsageError, Unavailable)):
        await tenant_names(store)


async def test_what_was_written_is_there_for_whoever_opens_the_store_next(place):
    first = place.connect()
    await first.open()
    await defined(first)
    await first.queue.enqueue(TENANT, [new := an_execution()])
    await first.close()

    second = place.connect()
    await second.open()

    assert (await look(second, new.id)).job == "resize"
    await second.close()


async def test_what_is_under_way_is_finished_before_a_store_closes(place):
    store = place.connect()
    await store.open()
    await defined(store)
    new = [an_execution() for _ in range(200)]
    under_way = asyncio.create_task(store.queue.enqueue(TENANT, new))
    await asyncio.sleep(0)  # lets the task begin

    await store.close()

    assert len(await under_way) == 200
    again = place.connect()
    await again.open()
    assert (await look(again, new[-1].id)).id == new[-1].id
    await again.close()


async def test_a_migrated_store_has_nothing_left_to_migrate(place):
    store = place.connect()

    assert await store.pending_migrations() == ()
    assert await store.migrate() == ()

    await store.open()
    assert await tenant_names(store) == ("default",)
    await store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_empty_database_is_refused_until_it_is_migrated(kind, tmp_path, servers):
    async with an_empty_database(kind, tmp_path, servers) as url:
        store = connect(kind, url)

        with pytest.raises(SchemaError, match="daybell migrate"):
            await store.open()
        await store.close()

        pending = await store.pending_migrations()
        assert pending
        assert await store.migrate() == pending
        assert await store.pending_migrations() == ()
        await store.open()
        assert await tenant_names(store) == ("default",)
        await store.close()


@pytest.mark.postgres
async def test_a_server_that_cannot_be_reached_is_unavailable():
    store = connect("postgres", f"postgresql://postgres@127.0.0.1:{free_port()}/daybell")

    with pytest.raises(Unavailable):
        await store.open()
    with pytest.raises(Unavailable):
        await store.migrate()

    await store.close()


def an_empty_database(kind, folder, servers):
    if kind in POSTGRES:
        return servers.database(POSTGRES[kind])
    return EmptyFolder(folder)


class EmptyFolder:
    def __init__(self, folder):
        self.folder = folder

    async def __aenter__(self):
        return str(self.folder / "new.db")

    async def __aexit__(self, *_):
        pass
