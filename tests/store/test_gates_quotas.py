"""Quotas of a tenant: jobs, executions, those that run, and dead letters that run again."""

import asyncio
import contextlib

import pytest

from daybell.core.access import Quotas
from daybell.core.execution import Revival, State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from daybell.core.views import ExecutionFilter, Retention
from daybell.errors import DaybellError, DuplicateKey, QuotaExceeded, TenantNotFound, UsageError
from tests.builders import (
    TENANT,
    a_job,
    a_schedule,
    add_tenants,
    an_execution,
    apply,
    claim,
    count,
    dead,
    defined,
    enqueued,
    fired,
    limit,
    put,
    registered,
    success,
    tenant_names,
)
from tests.refusals import refuses
from tests.sweeps import retain, set_gates

OTHER = "acme"


# What is kept of tenants.


async def test_tenants_are_created_once_and_shown_with_their_quotas(store, clock):
    await add_tenants(store, [OTHER, "zeta"])
    with refuses(DuplicateKey):
        await store.admin.add_tenant(OTHER)
    await add_tenants(store, [OTHER, "new"])

    made = await store.admin.get_tenant(OTHER)
    assert (made.name, made.created_at, made.quotas) == (OTHER, clock.now(), Quotas())
    changed = await limit(store, OTHER, jobs=1, queued=2, per_minute=3, running=4)

    assert changed.quotas == Quotas(jobs=1, queued=2, per_minute=3, running=4)
    names = [tenant.name for tenant in await store.admin.list_tenants()]
    assert names == [OTHER, "default", "new", "zeta"]
    assert changed in await store.admin.list_tenants()
    with refuses(TenantNotFound):
        await store.admin.get_tenant("nobody")


async def test_a_tenant_is_created_with_its_quotas_or_not_at_all(store, clock):
    made = await store.admin.add_tenant(OTHER, Quotas(jobs=1, running=4))

    assert (made.name, made.created_at) == (OTHER, clock.now())
    assert made == await store.admin.get_tenant(OTHER)
    assert made.quotas == Quotas(jobs=1, running=4)
    with pytest.raises(DuplicateKey, match=OTHER):
        await store.admin.add_tenant(OTHER, Quotas(jobs=7))
    with refuses(UsageError, field="jobs"):
        await store.admin.add_tenant("new", Quotas(jobs=-1))
    with pytest.raises(UsageError):
        await store.admin.add_tenant("\0")
    assert await tenant_names(store) == (OTHER, "default")
    assert (await store.admin.get_tenant(OTHER)).quotas == Quotas(jobs=1, running=4)


async def test_quotas_that_are_not_named_stay(store):
    await limit(store, jobs=1, queued=2)

    changed = await store.admin.set_quotas(TENANT, running=3)
    assert changed.quotas == Quotas(jobs=1, queued=2, running=3)
    changed = await store.admin.set_quotas(TENANT, queued=None)
    assert changed.quotas == Quotas(jobs=1, running=3)
    assert await store.admin.set_quotas(TENANT) == changed
    with refuses(UsageError, field="days"):
        await store.admin.set_quotas(TENANT, days=3)


async def test_two_who_change_quotas_at_once_do_not_undo_each_other(place, store):
    other = place.connect()
    await other.open()
    try:
        for most in range(20):
            await asyncio.gather(
                store.admin.set_quotas(TENANT, jobs=most, queued=most),
                other.admin.set_quotas(TENANT, running=most),
                other.admin.set_quotas(TENANT, per_minute=most),
            )
            now = (await other.admin.get_tenant(TENANT)).quotas
            assert now == Quotas(jobs=most, queued=most, running=most, per_minute=most)
    finally:
        await other.close()


@pytest.mark.parametrize("name", ["jobs", "queued", "per_minute", "running"])
async def test_a_quota_that_cannot_be_counted_is_refused(store, name):
    for wrong in (-1, 1_000_000_001):
        with pytest.raises(UsageError, match=f"{name}={wrong}"):
            await store.admin.set_quotas(TENANT, **{name: wrong})

    assert (await store.admin.get_tenant(TENANT)).quotas == Quotas()


# Jobs.


async def test_no_more_jobs_than_the_quota(store):
    await limit(store, jobs=2)
    await defined(store, "a")

    with pytest.raises(QuotaExceeded, match=r"tenant 'default' may have 2 jobs") as caught:
        await store.catalog.define_jobs(TENANT, [a_job("b"), a_job("c")])
    await defined(store, "b")

    assert caught.value.quota == "jobs" and caught.value.retry_after > 0
    assert [job.name for job in (await store.catalog.list_jobs(TENANT)).items] == ["a", "b"]


async def test_what_is_there_can_be_changed_though_the_quota_is_used_up(store):
    await defined(store, "a", "b", "c")
    await limit(store, jobs=1)

    (changed,) = await store.catalog.define_jobs(TENANT, [a_job("a", timeout=5.0)])

    assert changed.version == 2
    for name in ("a", "b"):
        await store.catalog.delete_job(TENANT, name)
    with pytest.raises(QuotaExceeded):
        await defined(store, "a")  # a deleted one that comes back is one more
    await store.catalog.delete_job(TENANT, "c")
    await defined(store, "a")


# Executions that have not ended.


async def test_no_more_unfinished_executions_than_the_quota(store):
    await defined(store)
    await limit(store, queued=3)
    await enqueued(store, 2, delay=100.0)

    with pytest.raises(QuotaExceeded, match="3 unfinished executions") as caught:
        await enqueued(store, 2)
    await enqueued(store, 1)

    assert caught.value.quota == "queued" and caught.value.retry_after > 0
    assert await count(store) == 3


async def test_what_runs_or_waits_counts_until_it_has_ended(store):
    await set_gates(store, TENANT, {"narrow": 0})
    await limit(store, queued=2)
    await enqueued(store)
    hands = await claim(store)
    await enqueued(store, gate="narrow")
    with pytest.raises(QuotaExceeded):
        await enqueued(store)

    await apply(store, hands, success(hands.one))

    await enqueued(store)
    with pytest.raises(QuotaExceeded):
        await enqueued(store)


async def test_what_is_there_already_is_answered_though_the_quota_is_used_up(store):
    await defined(store)
    await limit(store, queued=2, per_minute=2)
    new = [an_execution(unique_key="k"), an_execution()]
    first = await store.queue.enqueue(TENANT, new)

    assert await store.queue.enqueue(TENANT, new, repeat=True) == first
    assert await store.queue.enqueue(TENANT, new) == first
    (held,) = await store.queue.enqueue(TENANT, [an_execution(unique_key="k")])

    assert (held.id, held.created) == (new[0].id, False)
    assert await count(store) == 2


async def test_a_load_is_refused_as_a_whole(store):
    await defined(store)
    await limit(store, queued=10)

    with pytest.raises(QuotaExceeded):
        await store.queue.load(TENANT, [an_execution() for _ in range(11)])
    assert await count(store) == 0
    assert await store.queue.load(TENANT, [an_execution() for _ in range(10)]) == 10


# Executions per minute.


async def test_no_more_executions_per_minute_than_the_quota(store, clock):
    await defined(store)
    await limit(store, per_minute=3)
    await clock.advance(60 - clock.now() % 60 + 20)
    await enqueued(store, 3)

    with pytest.raises(QuotaExceeded, match="3 executions per minute") as caught:
        await enqueued(store)
    with pytest.raises(QuotaExceeded):
        await store.queue.load(TENANT, [an_execution()])

    assert (caught.value.quota, caught.value.retry_after) == ("per_minute", 40.0)
    await clock.advance(caught.value.retry_after)
    await enqueued(store, 3)
    assert await count(store) == 6


async def test_what_was_refused_does_not_count(store):
    await defined(store)
    await limit(store, per_minute=3, queued=100)
    with pytest.raises(QuotaExceeded):
        await enqueued(store, 4)

    await enqueued(store, 3)


async def test_minutes_are_forgotten_after_an_hour(store, clock):
    await defined(store)
    await limit(store, per_minute=3)
    await enqueued(store, 3)
    await clock.advance(60)
    assert (await retain(store, Retention())).others == 0

    await clock.advance(3700)
    assert (await retain(store, Retention())).others == 1


# Ticks of schedules.


async def test_ticks_are_never_refused_and_count(store, clock):
    await clock.advance(60 - clock.now() % 60)
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap=Overlap.ALLOW)
    await limit(store, queued=1, per_minute=2)

    for _ in range(3):
        await fired(store, schedule)

    assert await count(store) == 3
    for quotas in ({"queued": 3, "per_minute": None}, {"queued": None, "per_minute": 3}):
        await store.admin.set_quotas(TENANT, **quotas)
        with pytest.raises(QuotaExceeded):
            await enqueued(store)
    await limit(store, queued=4, per_minute=4)
    await enqueued(store)


async def test_a_tick_that_is_skipped_does_not_count(store, clock):
    schedule = a_schedule(next_at=clock.now())
    await put(store, schedule, overlap=Overlap.SKIP)
    await limit(store, queued=2, per_minute=2)

    for _ in range(3):
        await fired(store, schedule)

    await enqueued(store, job="other")


# In general.


async def test_quotas_are_of_one_tenant(store):
    await add_tenants(store, [OTHER])
    await limit(store, OTHER, jobs=1, queued=1, per_minute=1, running=0)

    await defined(store, "resize", "other")
    await enqueued(store, 5)
    await enqueued(store, 1, tenant=OTHER)

    assert len((await claim(store)).executions) == 5
    assert (await claim(store, tenant=OTHER)).executions == []
    with pytest.raises(QuotaExceeded, match=r"'acme'"):
        await enqueued(store, 1, tenant=OTHER)


async def test_a_quota_that_is_taken_away_limits_nothing(store):
    await defined(store)
    await limit(store, queued=1)
    await enqueued(store)
    await limit(store)

    await enqueued(store, 5)


async def test_many_at_once_never_exceed_the_quota(crowd):
    store = crowd[0]
    await defined(store)
    await limit(store, queued=20, per_minute=30)

    async def enqueue_one(one):
        try:
            return len(await one.queue.enqueue(TENANT, [an_execution() for _ in range(3)]))
        except QuotaExceeded:
            return 0

    made = await asyncio.gather(*(enqueue_one(one) for one in crowd for _ in range(5)))

    assert sum(made) == await count(store) == 18


async def test_many_who_define_at_once_never_exceed_the_quota(crowd):
    await limit(crowd[0], jobs=5)

    async def define(one, name):
        with contextlib.suppress(QuotaExceeded):
            await defined(one, name)

    await asyncio.gather(
        *(define(one, f"{i} {j}") for i, one in enumerate(crowd) for j in range(4))
    )

    assert len((await crowd[0].catalog.list_jobs(TENANT)).items) == 5


async def test_another_process_heeds_a_change_within_seconds(place, store, monkeypatch):
    other = place.connect()
    await other.open()
    try:
        await enqueued(other)
        await limit(store, queued=1)
        loop = asyncio.get_running_loop()
        later = loop.time() + 5.0
        monkeypatch.setattr(loop, "time", lambda: later)

        with pytest.raises(QuotaExceeded):
            await enqueued(other)
    finally:
        monkeypatch.undo()
        await other.close()


# Quotas and dead letters that should run again.


async def test_dead_letters_come_back_as_far_as_there_is_room(store):
    (held,) = await dead(store, unique_key="k")
    letters = await dead(store, 3)
    await enqueued(store, unique_key="k")
    await limit(store, queued=2)

    answers = await store.queue.revive(TENANT, [held, *letters, mint()])

    no_room = [Revival.OVER_QUOTA] * 2
    assert answers == [Revival.KEY_HELD, Revival.REVIVED, *no_room, Revival.UNKNOWN]
    assert await store.queue.revive(TENANT, letters[1:]) == no_room
    found = [(await store.catalog.get_execution(TENANT, id)).execution for id in letters]
    assert [one.state for one in found] == [State.QUEUED, State.DEAD, State.DEAD]
    await limit(store, queued=4)
    assert await store.queue.revive(TENANT, letters[1:]) == [Revival.REVIVED] * 2


async def test_a_quota_that_was_lowered_keeps_dead_letters_back(store):
    letters = await dead(store, 1)
    await enqueued(store, 2)
    await limit(store, queued=1)

    assert await store.queue.revive(TENANT, letters) == [Revival.OVER_QUOTA]


async def test_to_run_again_is_not_to_be_enqueued(store):
    letters = await dead(store, 2)
    await limit(store, per_minute=0)

    assert await store.queue.revive(TENANT, letters) == [Revival.REVIVED] * 2


async def test_no_more_dead_letters_come_back_than_fit_however_many_ask(place, store):
    letters = await dead(store, 12)
    await limit(store, queued=5)
    others = [place.connect() for _ in range(3)]
    for other in others:
        await other.open()
    try:
        asked = [
            other.queue.revive(TENANT, [id]) for other, id in zip(others * 4, letters, strict=True)
        ]
        answers = [answer for (answer,) in await asyncio.gather(*asked)]
    finally:
        for other in others:
            await other.close()

    assert answers.count(Revival.REVIVED) == 5
    assert answers.count(Revival.OVER_QUOTA) == 7


# Quotas of executions that run at the same time.


async def test_no_more_run_at_the_same_time_than_the_quota(store):
    await enqueued(store, 10)
    await limit(store, running=3)

    first = await claim(store, 2)
    second = await claim(store, 5)
    third = await claim(store, 5)

    assert [len(hands.executions) for hands in (first, second, third)] == [2, 1, 0]
    await apply(store, first, *(success(one) for one in first.executions))
    assert len((await claim(store, 5)).executions) == 2


async def test_a_claim_says_whether_the_quota_made_it_short(store):
    await enqueued(store, 4)
    await limit(store, running=3)
    worker = await registered(store)

    async def ask(most):
        return await store.queue.claim(
            TENANT, worker=worker, lease=mint(), queues=["default"], limit=most
        )

    assert not (await ask(2)).is_limited
    assert (await ask(2)).is_limited
    assert (await ask(2)).is_limited
    await limit(store)
    assert not (await ask(2)).is_limited
    await limit(store, running=3)
    await enqueued(store, delay=60.0)
    assert not (await ask(2)).is_limited  # there is nothing that could be taken


async def test_a_claim_that_is_asked_again_answers_what_it_took(store):
    await enqueued(store, 10)
    await limit(store, running=3)
    hands = await claim(store, 5)

    again = await claim(store, 5, worker=hands.worker, lease=hands.lease)

    assert again.executions == hands.executions and len(hands.executions) == 3
    none = await claim(store, 5, worker=hands.worker)
    assert (await claim(store, 5, worker=hands.worker, lease=none.lease)).executions == []


async def test_who_is_over_a_new_quota_finishes_and_gets_no_more(store):
    await enqueued(store, 10)
    hands = await claim(store, 5)
    await limit(store, running=2)

    assert (await claim(store, 5)).executions == []
    await apply(store, hands, *(success(one) for one in hands.executions[:3]))
    assert (await claim(store, 5)).executions == []
    await apply(store, hands, *(success(one) for one in hands.executions[3:]))
    assert len((await claim(store, 5)).executions) == 2


async def test_a_quota_of_nothing_lets_nothing_run(store):
    await enqueued(store)
    await limit(store, running=0)
    worker = await registered(store)

    assert (await claim(store, worker=worker)).executions == []
    with pytest.raises(DaybellError):
        await claim(store, worker=mint())


async def test_many_who_claim_at_once_never_exceed_the_quota(crowd):
    await enqueued(crowd[0], 100)
    await limit(crowd[0], running=7)
    workers = [await registered(crowd[0]) for _ in range(12)]

    claims = [claim(crowd[i % 4], 3, worker=worker) for i, worker in enumerate(workers)]
    hands = await asyncio.gather(*claims)

    assert sum(len(one.executions) for one in hands) == 7
    counts = await crowd[0].catalog.count_executions(TENANT, ExecutionFilter())
    assert counts[State.RUNNING] == 7
