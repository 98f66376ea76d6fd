"""Workers of several tenants: one registration, one lease, and nothing crosses a tenant."""

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.worker import SHARED, WorkerState
from daybell.errors import LeaseLost, TenantNotFound, UsageError
from tests.builders import (
    LEASE,
    TENANT,
    a_worker,
    add_tenants,
    apply,
    claim,
    enqueued,
    limit,
    states,
    success,
)

A, B, C = "acme", "bolt", "core"


@pytest.fixture(autouse=True)
async def tenants(store):
    await add_tenants(store, [A, B, C])


async def shared(store, *tenants: str):
    worker = a_worker(queues=("default",), tenants=tenants)
    await store.queue.register(SHARED, worker, lease=LEASE)
    return worker.id


async def renew(store, worker, *leases):
    return await store.queue.renew(SHARED, worker=worker, lease=LEASE, leases=leases)


async def test_one_worker_claims_and_ends_work_of_several_tenants(store):
    worker = await shared(store, A, B)
    await enqueued(store, 2, tenant=A)
    await enqueued(store, 1, tenant=B)

    of_a = await claim(store, worker=worker, tenant=A)
    of_b = await claim(store, worker=worker, tenant=B)

    assert [one.tenant for one in of_a.executions + of_b.executions] == [A, A, B]
    for hands, tenant in ((of_a, A), (of_b, B)):
        moves = [success(one) for one in hands.executions]
        assert await apply(store, hands, *moves, tenant=tenant) == []
        assert await states(store, [one.id for one in hands.executions], tenant=tenant) == [
            State.SUCCEEDED
        ] * len(moves)


async def test_a_claim_and_its_end_stay_in_their_tenant(store):
    worker = await shared(store, A, B)
    (id,) = await enqueued(store, tenant=A)
    hands = await claim(store, worker=worker, tenant=A)

    assert (await claim(store, worker=worker, tenant=B)).executions == []
    (verdict,) = await apply(store, hands, success(hands.one), tenant=B)

    assert verdict.ruling == "stale"
    assert await states(store, [id], tenant=A) == [State.RUNNING]


async def test_each_tenant_lists_the_worker_with_its_own_executions(store):
    worker = await shared(store, A, B)
    await enqueued(store, 2, tenant=A)
    await enqueued(store, 1, tenant=B)
    await claim(store, worker=worker, tenant=A)
    await claim(store, worker=worker, tenant=B)

    listed = {name: await store.catalog.list_workers(name) for name in (A, B, C, TENANT)}

    seen = {
        name: [(one.id, one.tenant, one.running, one.is_shared) for one in some]
        for name, some in listed.items()
    }
    assert seen == {A: [(worker, A, 2, True)], B: [(worker, B, 1, True)], C: [], TENANT: []}
    assert [len(await store.catalog.offers(name)) for name in (A, B, C, TENANT)] == [1, 1, 0, 0]


async def test_a_worker_of_all_tenants_serves_those_that_are_created_later(store):
    worker = await shared(store)
    await add_tenants(store, ["late"])
    await enqueued(store, tenant="late")

    (seen,) = await store.catalog.list_workers("late")
    hands = await claim(store, worker=worker, tenant="late")

    assert (seen.id, seen.is_shared) == (worker, True)
    assert len(hands.executions) == 1


async def test_an_unknown_tenant_is_refused_by_name(store):
    with pytest.raises(TenantNotFound, match="nemo"):
        await shared(store, A, "nemo")


async def test_one_renewal_keeps_the_claims_of_all_tenants(store, clock):
    worker = await shared(store, A, B)
    for tenant in (A, B):
        await enqueued(store, tenant=tenant)
    hands = [await claim(store, worker=worker, tenant=tenant) for tenant in (A, B)]
    for _ in range(3):
        await clock.advance(LEASE / 2)
        renewal = await renew(store, worker, *(one.lease for one in hands))

        assert renewal.returned == 0

    assert (await store.queue.lost()).executions == []
    for one, tenant in zip(hands, (A, B), strict=True):
        assert await apply(store, one, success(one.one), tenant=tenant) == []


async def test_a_renewal_returns_the_claims_that_it_does_not_name_to_their_tenants(store):
    worker = await shared(store, A, B)
    ids = {tenant: await enqueued(store, tenant=tenant) for tenant in (A, B)}
    known = await claim(store, worker=worker, tenant=A)
    await claim(store, worker=worker, tenant=B)

    renewal = await renew(store, worker, known.lease)

    assert renewal.returned == 1
    assert await states(store, ids[A], tenant=A) == [State.RUNNING]
    assert await states(store, ids[B], tenant=B) == [State.QUEUED]


async def test_a_renewal_names_the_attempts_to_cancel_of_all_tenants(store):
    worker = await shared(store, A, B)
    hands = []
    for tenant in (A, B):
        await enqueued(store, tenant=tenant)
        hands.append(await claim(store, worker=worker, tenant=tenant))
        await store.queue.cancel(tenant, [hands[-1].one.id])

    renewal = await renew(store, worker, *(one.lease for one in hands))

    assert {id for id, _ in renewal.cancel} == {one.one.id for one in hands}


async def test_a_dead_worker_loses_the_executions_of_all_its_tenants(store, clock):
    worker = await shared(store)
    for tenant in (A, B):
        await enqueued(store, tenant=tenant)
        await claim(store, worker=worker, tenant=tenant)
    await clock.advance(LEASE + 1)

    lost = (await store.queue.lost()).executions

    assert sorted((one.claimed.tenant, one.worker) for one in lost) == [(A, worker), (B, worker)]
    for one in lost:
        tenant = one.claimed.tenant
        move = after_loss(one.claimed, max_crashes=5)
        assert await store.queue.apply(tenant, worker=worker, transitions=[move]) == []
        assert await states(store, [one.claimed.id], tenant=tenant) == [State.QUEUED]
    with pytest.raises(LeaseLost):
        await claim(store, worker=worker, tenant=A)
    with pytest.raises(LeaseLost):
        await renew(store, worker)


async def test_a_tenant_neither_drains_nor_ends_a_worker_that_serves_others(store):
    worker = await shared(store, A, B)

    assert not await store.queue.drain(A, worker)
    await store.queue.retire(A, worker)

    assert (await renew(store, worker)).state is WorkerState.LIVE
    assert await store.queue.drain(SHARED, worker)
    assert (await renew(store, worker)).state is WorkerState.DRAINING


async def test_a_quota_of_running_executions_counts_those_of_a_shared_worker(store):
    worker = await shared(store, A, B)
    await limit(store, tenant=A, running=2)
    await enqueued(store, 5, tenant=A)

    first = await claim(store, worker=worker, tenant=A)
    second = await claim(store, worker=worker, tenant=A)

    assert (len(first.executions), len(second.executions)) == (2, 0)


async def test_the_work_of_tenants_is_listed_with_its_time_and_weight(store, clock):
    await store.admin.set_quotas(B, weight=3.0)
    await enqueued(store, tenant=A)
    await enqueued(store, tenant=B, delay=60.0)
    await enqueued(store, tenant=C, job="elsewhere")
    await enqueued(store, tenant=TENANT)

    found = await store.catalog.list_tenant_work([A, B, C, "nemo"], queues=["default"])
    everywhere = await store.catalog.list_tenant_work([], queues=["default", "mail"])

    now = clock.now()
    by_name = {one.tenant: (one.weight, one.next_at and one.next_at - now) for one in found}
    assert by_name == {A: (1.0, 0.0), B: (3.0, 60.0), C: (1.0, 0.0)}
    assert {one.tenant for one in everywhere} == {TENANT, A, B, C}


async def test_a_tenant_without_work_in_these_queues_has_no_time(store):
    worker = await shared(store, A)
    await enqueued(store, tenant=A)
    hands = await claim(store, worker=worker, tenant=A)
    await apply(store, hands, success(hands.one), tenant=A)
    await enqueued(store, tenant=B)

    found = await store.catalog.list_tenant_work([A], queues=["default"])
    other = await store.catalog.list_tenant_work([B], queues=["mail"])

    assert [one.next_at for one in (*found, *other)] == [None, None]


async def test_a_weight_is_kept_and_checked(store):
    assert (await store.admin.get_tenant(A)).weight == 1.0

    assert (await store.admin.set_quotas(A, weight=2.5)).weight == 2.5
    assert (await store.admin.set_quotas(A, running=3)).weight == 2.5
    for wrong in (0, -1, 1e9):
        with pytest.raises(UsageError, match="weight"):
            await store.admin.set_quotas(A, weight=wrong)


async def test_a_repeated_claim_of_a_shared_worker_takes_nothing_more(store):
    worker = await shared(store, A)
    await enqueued(store, 3, tenant=A)
    lease = mint()

    first = await claim(store, 2, worker=worker, lease=lease, tenant=A)
    again = await claim(store, 2, worker=worker, lease=lease, tenant=A)

    assert {one.id for one in first.executions} == {one.id for one in again.executions}


async def test_a_tenant_cannot_renew_a_worker_of_several(store):
    worker = await shared(store, A, B)

    with pytest.raises(LeaseLost):
        await store.queue.renew(A, worker=worker, lease=LEASE, leases=())


async def test_a_worker_takes_nothing_of_a_tenant_that_it_does_not_serve(store):
    worker = await shared(store, A, B)
    (id,) = await enqueued(store, tenant=C)

    with pytest.raises(LeaseLost):
        await claim(store, worker=worker, tenant=C)

    assert await states(store, [id], tenant=C) == [State.QUEUED]
