"""Metrics of one process, counted at the border to its store."""

import pytest

from daybell.core.ids import mint
from daybell.core.schedule import Decision, Firing, Tick
from daybell.engine.events import Fired
from daybell.engine.loop import ManualClock
from daybell.engine.metrics import Meter
from daybell.errors import LeaseLost
from tests.builders import (
    LEASE,
    TENANT,
    a_report,
    a_worker,
    an_entry,
    apply,
    claim,
    death,
    enqueued,
    registered,
    success,
)
from tests.engine.tasks import a_store


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def meter(clock):
    return Meter(clock)


@pytest.fixture
async def store(clock, meter):
    return meter.metered(await a_store(clock))


def values(meter):
    return {(name, *labels): value for name, labels, value in meter.readings()}


async def test_claims_and_what_they_took_are_counted(store, meter):
    await enqueued(store, 3)
    await claim(store)
    await claim(store)

    found = values(meter)
    assert (found["claims_total", "some"], found["claims_total", "none"]) == (1, 1)
    assert found["claimed_executions_total",] == 3


async def test_a_report_that_comes_too_late_is_stale(store, meter):
    await enqueued(store)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    await apply(store, hands, death(hands.one))
    await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(hands.one)])

    assert values(meter)["stale_reports_total",] == 2


async def test_what_the_reaper_does_not_get_is_not_stale(store, meter):
    await enqueued(store)
    hands = await claim(store)
    await apply(store, hands, success(hands.one))
    again = [success(hands.one, result='"other"')]
    await store.queue.apply(TENANT, worker=mint(), transitions=again, wait=False)

    assert values(meter).get(("stale_reports_total",), 0) == 0


async def test_a_lost_lease_is_counted_once(store, meter, clock):
    worker = await registered(store)
    await store.queue.renew(TENANT, worker=worker, lease=LEASE, leases=[])
    clock.advance(LEASE + 1)
    await store.queue.lost()
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await store.queue.renew(TENANT, worker=worker, lease=LEASE, leases=[])
    await store.queue.register(TENANT, a_worker(), lease=LEASE, replaces=worker)

    found = values(meter)
    assert (found["lost_leases_total",], found["lease_renewals_total",]) == (1, 1)
    assert found["store_errors_total", "renew", "lease-lost"] == 2


async def test_operations_are_timed_by_their_names(store, meter):
    await enqueued(store)

    found = values(meter)
    assert sum(found["store_operation_seconds", "enqueue"].buckets.values()) == 1


async def test_the_slots_of_a_worker_are_used_or_free(meter):
    meter.watch_slots(lambda: 3, 10)

    found = values(meter)
    assert (found["worker_slots", "used"], found["worker_slots", "free"]) == (3, 7)


async def test_ticks_and_their_lateness_are_counted(meter):
    ticks = (Tick(at=1.0), Tick(at=2.0, until=5.0, decision=Decision.MISSED, count=4))
    meter(
        Fired(
            Firing(tenant=TENANT, schedule=mint(), expect=1.0, ticks=ticks, next_at=None),
            0.5,
            "job",
        )
    )

    found = values(meter)
    assert (found["ticks_total", "fired"], found["ticks_total", "missed"]) == (1, 4)
    assert found["schedule_lateness_seconds",].seconds == 0.5


async def test_an_audited_store_still_records(store):
    await store.audited(TENANT, an_entry()).catalog.pause_queue(TENANT, "mail", paused=True)

    assert len((await store.admin.list_audit(TENANT)).items) == 1
