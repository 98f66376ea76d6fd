"""What happened since an earlier look, for rates."""

from uuid import UUID

import pytest

from daybell.core.ids import LATE_SECONDS, first_id_at
from daybell.core.lifecycle import after_loss
from daybell.errors import TenantNotFound
from tests.builders import (
    TENANT,
    add_tenants,
    apply,
    claim,
    claimed,
    dead,
    death,
    defined,
    enqueued,
    finished,
    retry,
    success,
)


def made(clock, *, ago=0.0, number=0):
    """An id as it would be made so long ago, by the store's clock."""
    return UUID(int=first_id_at(clock.now() - ago).int + number)


async def put(store, clock, count=1, *, ago=0.0, start=0, **options):
    for number in range(start, start + count):
        await enqueued(store, id=made(clock, ago=ago, number=number), **options)


async def test_a_first_look_tells_only_the_time(store, clock):
    await put(store, clock, 3)

    first = await store.catalog.activity(TENANT)

    assert (first.now, first.enqueued, first.failed) == (clock.now(), 0, 0)


async def test_what_was_enqueued_since_is_counted_once(store, clock):
    await put(store, clock, 3)
    looks = [await store.catalog.activity(TENANT)]

    for count in (2, 0, 5):
        await clock.advance(1)
        await put(store, clock, count)
        looks.append(await store.catalog.activity(TENANT, since=looks[-1]))

    assert [look.enqueued for look in looks] == [0, 2, 0, 5]


async def test_what_is_over_already_was_enqueued_all_the_same(store, clock):
    look = await store.catalog.activity(TENANT)
    await clock.advance(1)
    await finished(store, id=made(clock))
    await dead(store, id=made(clock, number=1))
    await enqueued(store, id=made(clock, number=2))
    await store.queue.cancel(TENANT, [made(clock, number=2)])
    await put(store, clock, delay=3600.0, start=3)

    assert (await store.catalog.activity(TENANT, since=look)).enqueued == 4


async def test_what_ends_between_two_looks_is_not_counted_again(store, clock):
    first = await store.catalog.activity(TENANT)
    await clock.advance(1)
    await put(store, clock, 3)
    second = await store.catalog.activity(TENANT, since=first)
    await clock.advance(1)
    hands = await claim(store)
    await apply(store, hands, *map(success, hands.executions))

    assert (await store.catalog.activity(TENANT, since=second)).enqueued == 0


async def test_an_id_that_was_made_before_the_last_look_may_come_late(store, clock):
    first = await store.catalog.activity(TENANT)
    await clock.advance(1)

    await put(store, clock, 2, ago=LATE_SECONDS - 1)
    second = await store.catalog.activity(TENANT, since=first)
    await put(store, clock, 2, ago=LATE_SECONDS + 100, start=2)

    assert second.enqueued == 2
    assert (await store.catalog.activity(TENANT, since=second)).enqueued == 0


async def test_a_clock_that_is_ahead_is_no_trouble(store, clock):
    look = await store.catalog.activity(TENANT)
    for count in (2, 3):
        await clock.advance(1)
        await put(store, clock, count, ago=-3600.0)
        hands = await claim(store)
        await apply(store, hands, *map(success, hands.executions))
        look = await store.catalog.activity(TENANT, since=look)

        assert look.enqueued == count


async def test_every_attempt_that_went_wrong_is_a_failure(store, clock):
    await dead(store)
    await clock.advance(1)
    look = await store.catalog.activity(TENANT)
    await clock.advance(1)

    hands = await claimed(store, 4)
    failing, dying, fine, released = hands.executions
    await apply(store, hands, retry(failing, delay=60.0), death(dying), success(fine))
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])
    again = await store.catalog.activity(TENANT, since=look)
    await clock.advance(1)

    assert (again.failed, released.attempt) == (2, 1)
    assert (await store.catalog.activity(TENANT, since=again)).failed == 0


async def test_a_lost_worker_is_a_failure(store, clock):
    look = await store.catalog.activity(TENANT)
    await clock.advance(1)
    hands = await claimed(store)
    await store.queue.retire(TENANT, hands.worker)
    (lost,) = (await store.queue.lost()).executions

    move = after_loss(lost.claimed, max_crashes=3)
    await store.queue.apply(TENANT, worker=hands.worker, transitions=[move], wait=False)

    assert (await store.catalog.activity(TENANT, since=look)).failed == 1


async def test_another_tenants_work_is_not_counted(store, clock):
    await add_tenants(store, ["other"])
    look = await store.catalog.activity("other")
    await defined(store)
    await clock.advance(1)
    await put(store, clock)
    await dead(store, queue="q")
    hands = await claimed(store, queue="r")
    await apply(store, hands, retry(hands.one))

    seen = await store.catalog.activity("other", since=look)

    assert (seen.enqueued, seen.failed) == (0, 0)
    with pytest.raises(TenantNotFound):
        await store.catalog.activity("nobody")
