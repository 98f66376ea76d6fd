"""Workers: registration, leases, drain, release, and offers."""

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.ids import mint
from daybell.core.worker import Offer, WorkerState
from daybell.errors import LeaseLost, UsageError
from tests.builders import (
    TENANT,
    a_worker,
    apply,
    claim,
    claimed,
    look,
    registered,
    retry,
    states,
    success,
)


async def test_a_registered_worker_is_live_until_its_lease_ends(store, clock):
    worker = a_worker()

    renewal = await store.queue.register(TENANT, worker, lease=30.0)

    assert renewal.now == clock.now()
    assert renewal.lease_until == clock.now() + 30
    assert renewal.state is WorkerState.LIVE
    assert (renewal.cancel, renewal.returned) == ((), 0)


async def test_a_worker_is_listed_as_it_introduced_itself(store, clock):
    worker = a_worker(
        name="ada",
        host="web-1",
        pid=4711,
        version="1.2.3",
        queues=("mail", "default"),
        kinds=("task", "http"),
        labels={"zone": "eu", "größe": "xl"},
        capacity=8,
    )

    await store.queue.register(TENANT, worker, lease=30.0)

    (seen,) = await store.catalog.list_workers(TENANT)
    assert (seen.id, seen.tenant, seen.name) == (worker.id, TENANT, "ada")
    assert (seen.host, seen.pid, seen.version) == ("web-1", 4711, "1.2.3")
    assert (seen.queues, seen.kinds) == (("mail", "default"), ("task", "http"))
    assert (seen.labels, seen.capacity) == ({"zone": "eu", "größe": "xl"}, 8)
    assert (seen.state, seen.running) == (WorkerState.LIVE, 0)
    assert seen.started_at == seen.renewed_at == clock.now()
    assert seen.lease_until == clock.now() + 30


async def test_workers_are_listed_oldest_first_with_what_they_run(store, clock):
    older = await claimed(store, 2)
    await clock.advance(1)
    younger = await claimed(store, 1)

    seen = await store.catalog.list_workers(TENANT)

    assert [(worker.id, worker.running) for worker in seen] == [
        (older.worker, 2),
        (younger.worker, 1),
    ]


async def test_a_finished_or_returned_execution_is_in_nobodys_hands(store):
    hands = await claimed(store, 3)

    await apply(store, hands, success(hands.executions[0]), retry(hands.executions[1]))

    (seen,) = await store.catalog.list_workers(TENANT)
    assert seen.running == 1


async def test_dead_workers_are_listed_only_if_asked_for(store):
    gone, alive = await registered(store), await registered(store)

    await store.queue.retire(TENANT, gone)

    assert [worker.id for worker in await store.catalog.list_workers(TENANT)] == [alive]
    everyone = await store.catalog.list_workers(TENANT, include_dead=True)
    assert {worker.id: worker.state for worker in everyone} == {
        gone: WorkerState.DEAD,
        alive: WorkerState.LIVE,
    }


async def test_registering_again_is_a_renewal_that_returns_nothing(store, clock):
    worker = a_worker()
    await store.queue.register(TENANT, worker, lease=30.0)
    hands = await claimed(store, worker=worker.id)
    await clock.advance(10)

    renewal = await store.queue.register(TENANT, worker, lease=30.0)

    assert (renewal.lease_until, renewal.returned) == (clock.now() + 30, 0)
    (seen,) = await store.catalog.list_workers(TENANT)
    assert (seen.started_at, seen.renewed_at) == (clock.now() - 10, clock.now())
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_registering_a_dead_worker_again_is_refused(store):
    worker = a_worker()
    await store.queue.register(TENANT, worker, lease=30.0)
    await store.queue.retire(TENANT, worker.id)

    with pytest.raises(LeaseLost):
        await store.queue.register(TENANT, worker, lease=30.0)


async def test_a_worker_needs_a_proper_name(store):
    with pytest.raises(UsageError):
        await store.queue.register(TENANT, a_worker(name="a\nb"), lease=30.0)


@pytest.mark.parametrize(
    "labels", [{f"label-{number}": "x" for number in range(33)}, {"zone": "x" * 101}]
)
async def test_a_worker_has_few_and_short_labels(store, labels):
    with pytest.raises(UsageError, match="the limit is") as refused:
        await store.queue.register(TENANT, a_worker(labels=labels), lease=30.0)

    assert refused.value.field == "labels"
    assert await store.catalog.list_workers(TENANT) == []


async def test_a_renewal_prolongs_the_lease_for_all_that_a_worker_runs(store, clock):
    hands = await claimed(store, 3)
    await clock.advance(50)

    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert (renewal.now, renewal.lease_until) == (clock.now(), clock.now() + 60)
    assert (renewal.state, renewal.cancel, renewal.returned) == (WorkerState.LIVE, (), 0)
    await clock.advance(50)
    assert (await store.queue.lost()).executions == []
    assert await apply(store, hands, *(success(one) for one in hands.executions)) == []


async def test_a_renewal_of_an_unknown_worker_is_refused(store):
    with pytest.raises(LeaseLost):
        await store.queue.renew(TENANT, worker=mint(), lease=60.0, leases=[])


async def test_a_renewal_tells_what_somebody_wants_cancelled(store):
    hands = await claimed(store, 3)
    other = await claimed(store)
    wanted = hands.executions[1]
    await store.queue.cancel(TENANT, [wanted.id, other.one.id])

    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert renewal.cancel == ((wanted.id, 1),)


async def test_a_renewal_returns_what_came_from_a_claim_whose_answer_was_lost(store, clock):
    known = await claimed(store, 2)
    unheard = await claimed(store, 3, worker=known.worker)
    await clock.advance(5)

    renewal = await store.queue.renew(TENANT, worker=known.worker, lease=60.0, leases=[known.lease])

    assert renewal.returned == 3
    assert await states(store, [one.id for one in known.executions]) == [State.RUNNING] * 2
    for one in unheard.executions:
        detail = await store.catalog.get_execution(TENANT, one.id)
        assert (detail.execution.state, detail.execution.attempt) == (State.QUEUED, 2)
        assert (detail.execution.failures, detail.execution.crashes) == (0, 0)
        assert detail.execution.run_at == clock.now()
        assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, Outcome.RELEASED)]
    assert len((await claim(store)).executions) == 3


async def test_a_renewal_returns_an_unheard_one_as_cancelled_if_that_was_asked_for(store):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])

    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[])

    assert renewal.returned == 1
    assert renewal.cancel == ()
    assert await states(store, [hands.one.id]) == [State.CANCELLED]


async def test_many_idle_workers_are_renewed_in_one_write(store, clock):
    idle, draining, dead = [await registered(store, lease=10) for _ in range(3)]
    busy = await claimed(store)
    foreign = await registered(store, lease=10)
    await store.queue.drain(TENANT, draining)
    await store.queue.retire(TENANT, dead)
    before = {one.id: one.lease_until for one in await store.catalog.list_workers(TENANT)}
    await clock.advance(5)

    asked = [idle, draining, dead, busy.worker, mint()]
    found = await store.queue.renew_idle(TENANT, workers=asked, lease=30.0)

    assert found.keys() == {idle, draining}
    assert {one.lease_until for one in found.values()} == {clock.now() + 30}
    assert found[idle].state is WorkerState.LIVE
    assert found[draining].state is WorkerState.DRAINING
    after = {one.id: one.lease_until for one in await store.catalog.list_workers(TENANT)}
    assert after[idle] == clock.now() + 30
    assert {id: after[id] for id in (busy.worker, foreign)} == {
        id: before[id] for id in (busy.worker, foreign)
    }


async def test_leases_that_are_unknown_here_do_no_harm(store):
    hands = await claimed(store)

    renewal = await store.queue.renew(
        TENANT, worker=hands.worker, lease=60.0, leases=[mint(), hands.lease, mint()]
    )

    assert renewal.returned == 0
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_draining_worker_learns_it_at_its_next_renewal(store):
    hands = await claimed(store)

    assert await store.queue.drain(TENANT, hands.worker) is True

    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    assert renewal.state is WorkerState.DRAINING
    assert (await store.catalog.list_workers(TENANT))[0].state is WorkerState.DRAINING


async def test_a_draining_worker_finishes_what_it_has(store):
    hands = await claimed(store)
    await store.queue.drain(TENANT, hands.worker)

    assert await apply(store, hands, success(hands.one)) == []

    assert await states(store, [hands.one.id]) == [State.SUCCEEDED]


async def test_a_draining_worker_stays_so_when_it_is_asked_or_registers_again(store):
    worker = a_worker()
    await store.queue.register(TENANT, worker, lease=60.0)
    await store.queue.drain(TENANT, worker.id)

    assert await store.queue.drain(TENANT, worker.id) is True

    assert (await store.queue.register(TENANT, worker, lease=60.0)).state is WorkerState.DRAINING


async def test_only_a_live_worker_can_be_drained(store):
    worker = await registered(store)
    await store.queue.retire(TENANT, worker)

    assert await store.queue.drain(TENANT, worker) is False
    assert await store.queue.drain(TENANT, mint()) is False


async def test_a_release_gives_back_what_is_unfinished_under_these_leases(store, clock):
    first = await claimed(store, 3)
    second = await claimed(store, 2, worker=first.worker)
    await apply(store, first, success(first.executions[0]))
    await clock.advance(5)

    released = await store.queue.release(TENANT, worker=first.worker, leases=[first.lease, mint()])

    assert released == 2
    seen = [await look(store, one.id) for one in first.executions[1:]]
    assert [(e.state, e.attempt, e.failures) for e in seen] == [(State.QUEUED, 2, 0)] * 2
    assert {e.run_at for e in seen} == {clock.now()}
    assert await states(store, [one.id for one in second.executions]) == [State.RUNNING] * 2
    assert len((await claim(store)).executions) == 2


async def test_releasing_twice_gives_back_once(store):
    hands = await claimed(store, 2)
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])

    assert await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 0

    assert {(await look(store, one.id)).attempt for one in hands.executions} == {2}


async def test_what_was_released_cannot_be_finished_any_more(store):
    hands = await claimed(store)
    await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease])

    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.id == hands.one.id
    assert await states(store, [hands.one.id]) == [State.QUEUED]


async def test_only_ones_own_leases_can_be_released(store):
    hands = await claimed(store)
    other = await registered(store)

    assert await store.queue.release(TENANT, worker=other, leases=[hands.lease]) == 0

    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_released_one_that_should_be_cancelled_ends_so(store):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])

    assert await store.queue.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 1

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.outcome) == (State.CANCELLED, Outcome.CANCELLED)


# What live workers offer, as others are told who cannot run something.

QUEUES = ("default", "mail")


async def test_live_workers_that_are_alike_are_one_offer(store, clock):
    shop, mail = {"größe": "default", "sell": "default"}, {"send": "mail"}
    for _ in range(3):
        await store.queue.register(TENANT, a_worker(queues=QUEUES, tasks=shop), lease=60.0)
    other = a_worker(queues=("mail",), kinds=("task", "http"), tasks=mail)
    await store.queue.register(TENANT, other, lease=60.0)
    await store.queue.register(TENANT, a_worker(queues=QUEUES), lease=60.0)  # it does not say
    await store.admin.add_tenant("globex")
    await store.queue.register("globex", a_worker(queues=QUEUES, tasks=mail), lease=60.0)

    found = await store.catalog.offers(TENANT)

    assert len(found) == 3
    assert Offer(queues=QUEUES, kinds=("task",), tasks=shop) in found
    assert Offer(queues=("mail",), kinds=("task", "http"), tasks=mail) in found
    assert Offer(queues=QUEUES, kinds=("task",), tasks=None) in found
    seen = {worker.id: worker.tasks for worker in await store.catalog.list_workers(TENANT)}
    assert seen[other.id] == mail


async def test_who_drains_is_dead_or_has_lost_its_lease_offers_nothing(store, clock):
    drained, retired, silent = (a_worker(queues=(name,)) for name in ("a", "b", "c"))
    for one in (drained, retired):
        await store.queue.register(TENANT, one, lease=60.0)
    await store.queue.register(TENANT, silent, lease=10.0)
    assert len(await store.catalog.offers(TENANT)) == 3

    await store.queue.drain(TENANT, drained.id)
    await store.queue.retire(TENANT, retired.id)
    assert [one.queues for one in await store.catalog.offers(TENANT)] == [("c",)]
    await clock.advance(11)
    assert await store.catalog.offers(TENANT) == []


def test_an_offer_is_for_its_queues_and_has_tasks_and_kinds():
    offer = Offer(queues=("mail",), kinds=("task", "http:private"), tasks={"send": "mail"})

    assert offer.has("task:send", queue="mail")
    assert offer.has("http:private", queue="mail")
    assert not offer.has("task:send", queue="default")
    assert not offer.has("task:sell", queue="mail")
    assert not offer.has("http:private", queue="default")
    assert not Offer(queues=("mail",), kinds=("http",), tasks={"send": "mail"}).has(
        "task:send", queue="mail"
    )
    assert not Offer(queues=("mail",), kinds=("task",), tasks=None).has("task:send", queue="mail")
