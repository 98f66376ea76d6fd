"""`daybell doctor`: growth of the store, and exports that retention waits for."""

from daybell.cli.doctor.growth import check_export, check_growth, check_size
from daybell.core.monitoring.exports import EXPORTS, ExportPolicy
from tests.builders import TENANT, finished
from tests.sweeps import fold_stats

DAY = 86400.0


async def test_the_growth_is_that_of_the_last_week(store):
    await finished(store, 70)
    while await fold_stats(store):
        pass
    (growth,) = await check_growth(store)
    assert (growth.name, growth.is_ok) == ("growth", True)
    assert "10 executions ended a day" in growth.found
    assert "MB a day" in growth.found


async def test_exports_are_reported_with_what_they_have_not_written(store):
    now = (await store.health()).now
    policy = ExportPolicy(name="warehouse", until=now - 8 * DAY)
    await store.admin.put_record(TENANT, EXPORTS, policy)
    _, found = await check_growth(store)
    assert (found.name, found.is_ok) == ("export warehouse", False)
    assert "8d" in found.found and "--release warehouse" in found.advice


def test_a_disk_that_is_full_within_a_week_is_reported():
    week = 7 * 1_000_000  # executions, of 1 kB each
    assert check_size(week * 1e3, (1e6, 0.0), room=8e9).is_ok
    full = check_size(week * 1e3, (1e6, 0.0), room=6e9)
    assert not full.is_ok
    assert "room for 6.0 days" in full.advice


def test_an_empty_store_and_a_server_are_fine():
    assert check_size(0.0, (0.0, 0.0), room=1.0).is_ok
    assert check_size(1e12, (1e6, 1e6), room=None).is_ok


def test_an_export_that_has_written_nothing_says_so():
    assert "nothing yet" in check_export("a", 20_000 * DAY).found
    assert check_export("a", 120.0).is_ok
