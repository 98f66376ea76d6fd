"""Retention waits for repeated exports."""

from daybell.core.monitoring.exports import EXPORTS, ExportPolicy
from daybell.core.options import Keep
from daybell.core.views import DEFAULT_RETENTION
from tests.builders import TENANT, add_tenants, count, defined, finished
from tests.sweeps import retain

DAY = 86400.0


async def exported(store, until, tenant=TENANT):
    policy = ExportPolicy(name="warehouse", until=until)
    return await store.admin.put_record(tenant, EXPORTS, policy)


async def retained(store):
    while not (await retain(store)).is_complete:
        pass


async def test_what_an_export_has_not_written_is_kept_past_its_time(store, clock):
    await add_tenants(store, ["acme"])
    await finished(store, 2)
    ended = clock.now()
    await exported(store, ended - 2 * DAY)
    await exported(store, ended + 99 * DAY, tenant="acme")
    await clock.advance(DEFAULT_RETENTION.finished + 3 * DAY)
    await retained(store)
    assert await count(store) == 2

    await exported(store, ended + 2 * DAY)
    await retained(store)
    assert await count(store) == 0


async def test_a_shorter_time_of_a_job_waits_for_exports_too(store, clock):
    await defined(store, "resize", keep=Keep(succeeded=3600.0))
    await finished(store, 2)
    ended = clock.now()
    await exported(store, ended - 2 * DAY)
    await clock.advance(4 * DAY)
    await retained(store)
    assert await count(store) == 2

    await exported(store, ended + 2 * DAY)
    await clock.advance(7200)
    await retained(store)
    assert await count(store) == 0


async def test_a_released_export_holds_nothing(store, clock):
    await finished(store, 1)
    await exported(store, 0.0)
    await clock.advance(DEFAULT_RETENTION.finished + 3 * DAY)
    await retained(store)
    assert await count(store) == 1
    await store.admin.delete_record(TENANT, EXPORTS, "warehouse")
    await retained(store)
    assert await count(store) == 0
