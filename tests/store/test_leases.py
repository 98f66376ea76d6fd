"""Workers and their leases: who is alive, and what becomes of the work of those who are not."""

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.lifecycle import after_loss
from daybell.core.worker import Report, WorkerState
from daybell.errors import LeaseLost, UsageError
from daybell.store.ids import mint
from tests.builders import (
    LEASE,
    TENANT,
    a_move,
    a_report,
    a_worker,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    look,
    registered,
    retry,
    states,
    success,
)


async def test_a_registered_worker_is_live_until_its_lease_ends(store, clock):
    worker = a_worker()

    renewal = await store.register(TENANT, worker, lease=30.0)

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

    await store.register(TENANT, worker, lease=30.0)

    (seen,) = await store.list_workers(TENANT)
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

    seen = await store.list_workers(TENANT)

    assert [(worker.id, worker.running) for worker in seen] == [
        (older.worker, 2),
        (younger.worker, 1),
    ]


async def test_a_finished_or_returned_execution_is_in_nobodys_hands(store):
    hands = await claimed(store, 3)

    await apply(store, hands, success(hands.executions[0]), retry(hands.executions[1]))

    (seen,) = await store.list_workers(TENANT)
    assert seen.running == 1


async def test_dead_workers_are_listed_only_if_asked_for(store):
    gone, alive = await registered(store), await registered(store)

    await store.retire(TENANT, gone)

    assert [worker.id for worker in await store.list_workers(TENANT)] == [alive]
    everyone = await store.list_workers(TENANT, include_dead=True)
    assert {worker.id: worker.state for worker in everyone} == {
        gone: WorkerState.DEAD,
        alive: WorkerState.LIVE,
    }


async def test_registering_again_is_a_renewal_that_returns_nothing(store, clock):
    worker = a_worker()
    await store.register(TENANT, worker, lease=30.0)
    hands = await claimed(store, worker=worker.id)
    await clock.advance(10)

    renewal = await store.register(TENANT, worker, lease=30.0)

    assert (renewal.lease_until, renewal.returned) == (clock.now() + 30, 0)
    (seen,) = await store.list_workers(TENANT)
    assert (seen.started_at, seen.renewed_at) == (clock.now() - 10, clock.now())
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_registering_a_dead_worker_again_is_refused(store):
    worker = a_worker()
    await store.register(TENANT, worker, lease=30.0)
    await store.retire(TENANT, worker.id)

    with pytest.raises(LeaseLost):
        await store.register(TENANT, worker, lease=30.0)


async def test_a_worker_needs_a_proper_name(store):
    with pytest.raises(UsageError):
        await store.register(TENANT, a_worker(name="a\nb"), lease=30.0)


@pytest.mark.parametrize(
    "labels", [{f"label-{number}": "x" for number in range(33)}, {"zone": "x" * 101}]
)
async def test_a_worker_has_few_and_short_labels(store, labels):
    with pytest.raises(UsageError, match="the limit is") as refused:
        await store.register(TENANT, a_worker(labels=labels), lease=30.0)

    assert refused.value.field == "labels"
    assert await store.list_workers(TENANT) == []


async def test_a_renewal_prolongs_the_lease_for_all_that_a_worker_runs(store, clock):
    hands = await claimed(store, 3)
    await clock.advance(50)

    renewal = await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert (renewal.now, renewal.lease_until) == (clock.now(), clock.now() + 60)
    assert (renewal.state, renewal.cancel, renewal.returned) == (WorkerState.LIVE, (), 0)
    await clock.advance(50)
    assert (await store.lost()).executions == []
    assert await apply(store, hands, *(success(one) for one in hands.executions)) == []


async def test_a_renewal_of_an_unknown_worker_is_refused(store):
    with pytest.raises(LeaseLost):
        await store.renew(TENANT, worker=mint(), lease=60.0, leases=[])


async def test_a_renewal_tells_what_somebody_wants_cancelled(store):
    hands = await claimed(store, 3)
    other = await claimed(store)
    wanted = hands.executions[1]
    await store.cancel(TENANT, [wanted.id, other.one.id])

    renewal = await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert renewal.cancel == ((wanted.id, 1),)


async def test_a_renewal_returns_what_came_from_a_claim_whose_answer_was_lost(store, clock):
    known = await claimed(store, 2)
    unheard = await claimed(store, 3, worker=known.worker)
    await clock.advance(5)

    renewal = await store.renew(TENANT, worker=known.worker, lease=60.0, leases=[known.lease])

    assert renewal.returned == 3
    assert await states(store, [one.id for one in known.executions]) == [State.RUNNING] * 2
    for one in unheard.executions:
        detail = await store.get_execution(TENANT, one.id)
        assert (detail.execution.state, detail.execution.attempt) == (State.QUEUED, 2)
        assert (detail.execution.failures, detail.execution.crashes) == (0, 0)
        assert detail.execution.run_at == clock.now()
        assert [(a.attempt, a.outcome) for a in detail.attempts] == [(1, Outcome.RELEASED)]
    assert len((await claim(store)).executions) == 3


async def test_a_renewal_returns_an_unheard_one_as_cancelled_if_that_was_asked_for(store):
    hands = await claimed(store)
    await store.cancel(TENANT, [hands.one.id])

    renewal = await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[])

    assert renewal.returned == 1
    assert renewal.cancel == ()
    assert await states(store, [hands.one.id]) == [State.CANCELLED]


async def test_leases_that_are_unknown_here_do_no_harm(store):
    hands = await claimed(store)

    renewal = await store.renew(
        TENANT, worker=hands.worker, lease=60.0, leases=[mint(), hands.lease, mint()]
    )

    assert renewal.returned == 0
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_draining_worker_learns_it_at_its_next_renewal(store):
    hands = await claimed(store)

    assert await store.drain(TENANT, hands.worker) is True

    renewal = await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    assert renewal.state is WorkerState.DRAINING
    assert (await store.list_workers(TENANT))[0].state is WorkerState.DRAINING


async def test_a_draining_worker_finishes_what_it_has(store):
    hands = await claimed(store)
    await store.drain(TENANT, hands.worker)

    assert await apply(store, hands, success(hands.one)) == []

    assert await states(store, [hands.one.id]) == [State.SUCCEEDED]


async def test_a_draining_worker_stays_so_when_it_is_asked_or_registers_again(store):
    worker = a_worker()
    await store.register(TENANT, worker, lease=60.0)
    await store.drain(TENANT, worker.id)

    assert await store.drain(TENANT, worker.id) is True

    assert (await store.register(TENANT, worker, lease=60.0)).state is WorkerState.DRAINING


async def test_only_a_live_worker_can_be_drained(store):
    worker = await registered(store)
    await store.retire(TENANT, worker)

    assert await store.drain(TENANT, worker) is False
    assert await store.drain(TENANT, mint()) is False


async def test_a_release_gives_back_what_is_unfinished_under_these_leases(store, clock):
    first = await claimed(store, 3)
    second = await claimed(store, 2, worker=first.worker)
    await apply(store, first, success(first.executions[0]))
    await clock.advance(5)

    released = await store.release(TENANT, worker=first.worker, leases=[first.lease, mint()])

    assert released == 2
    seen = [await look(store, one.id) for one in first.executions[1:]]
    assert [(e.state, e.attempt, e.failures) for e in seen] == [(State.QUEUED, 2, 0)] * 2
    assert {e.run_at for e in seen} == {clock.now()}
    assert await states(store, [one.id for one in second.executions]) == [State.RUNNING] * 2
    assert len((await claim(store)).executions) == 2


async def test_releasing_twice_gives_back_once(store):
    hands = await claimed(store, 2)
    await store.release(TENANT, worker=hands.worker, leases=[hands.lease])

    assert await store.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 0

    assert {(await look(store, one.id)).attempt for one in hands.executions} == {2}


async def test_what_was_released_cannot_be_finished_any_more(store):
    hands = await claimed(store)
    await store.release(TENANT, worker=hands.worker, leases=[hands.lease])

    (verdict,) = await apply(store, hands, success(hands.one))

    assert verdict.id == hands.one.id
    assert await states(store, [hands.one.id]) == [State.QUEUED]


async def test_only_ones_own_leases_can_be_released(store):
    hands = await claimed(store)
    other = await registered(store)

    assert await store.release(TENANT, worker=other, leases=[hands.lease]) == 0

    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_released_one_that_should_be_cancelled_ends_so(store):
    hands = await claimed(store)
    await store.cancel(TENANT, [hands.one.id])

    assert await store.release(TENANT, worker=hands.worker, leases=[hands.lease]) == 1

    seen = await look(store, hands.one.id)
    assert (seen.state, seen.outcome) == (State.CANCELLED, Outcome.CANCELLED)


async def test_nothing_is_lost_while_leases_last(store, clock):
    await claimed(store, 2)
    await clock.advance(59)

    assert (await store.lost()).executions == []

    assert [w.state for w in await store.list_workers(TENANT)] == [WorkerState.LIVE]


async def test_a_worker_whose_lease_ended_is_dead_and_its_work_is_listed(store, clock):
    await defined(store, max_crashes=5)
    hands = await claimed(store, 2)
    await clock.advance(61)

    lost = (await store.lost()).executions

    assert {entry.claimed.id for entry in lost} == {one.id for one in hands.executions}
    assert sorted((entry.claimed for entry in lost), key=by_id) == hands.executions
    assert {(entry.worker, entry.max_crashes, entry.retry) for entry in lost} == {
        (hands.worker, 5, True)
    }
    (worker,) = await store.list_workers(TENANT, include_dead=True)
    assert (worker.state, worker.running) == (WorkerState.DEAD, 2)


async def test_a_dead_worker_learns_it_at_its_next_call(store, clock):
    hands = await claimed(store)
    await clock.advance(61)
    await store.lost()

    with pytest.raises(LeaseLost):
        await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    with pytest.raises(LeaseLost):
        await claim(store, worker=hands.worker)
    with pytest.raises(LeaseLost):
        await claim(store, worker=hands.worker, lease=hands.lease)


async def test_a_renewal_before_the_reaper_comes_keeps_the_worker_alive(store, clock):
    hands = await claimed(store)
    await clock.advance(61)

    await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert (await store.lost()).executions == []
    assert await apply(store, hands, success(hands.one)) == []


async def test_listing_what_is_lost_changes_no_execution(store, clock):
    hands = await claimed(store)
    await clock.advance(61)

    first = (await store.lost()).executions
    second = (await store.lost()).executions

    assert first == second
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_dead_workers_own_report_still_counts_until_somebody_decides(store, clock):
    hands = await claimed(store)
    await clock.advance(61)
    await store.lost()

    assert await apply(store, hands, success(hands.one)) == []

    assert (await store.lost()).executions == []
    assert await states(store, [hands.one.id]) == [State.SUCCEEDED]


async def test_what_was_lost_goes_back_and_is_not_listed_again(store, clock):
    hands = await claimed(store, 2)
    await clock.advance(61)
    lost = (await store.lost()).executions

    moves = [after_loss(entry.claimed, max_crashes=entry.max_crashes) for entry in lost]
    verdicts = await store.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)

    assert verdicts == []
    assert (await store.lost()).executions == []
    assert await states(store, [one.id for one in hands.executions]) == [State.QUEUED] * 2
    assert {one.crashes for one in (await claim(store)).executions} == {1}


async def test_what_a_job_says_about_loss_comes_from_the_executions_version(store, clock):
    await defined(store, max_crashes=1, on_lost="dead")
    await claimed(store)
    await defined(store, max_crashes=9, on_lost="retry")
    await clock.advance(61)

    (lost,) = (await store.lost()).executions

    assert (lost.max_crashes, lost.retry) == (1, False)


async def test_a_retired_worker_is_dead_and_what_it_still_holds_is_found(store):
    hands = await claimed(store)

    await store.retire(TENANT, hands.worker)

    (lost,) = (await store.lost()).executions
    assert (lost.worker, lost.claimed) == (hands.worker, hands.one)
    with pytest.raises(LeaseLost):
        await store.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])


async def test_retiring_twice_or_a_stranger_does_no_harm(store):
    worker = await registered(store)

    await store.retire(TENANT, worker)
    await store.retire(TENANT, worker)
    await store.retire(TENANT, mint())

    assert len(await store.list_workers(TENANT, include_dead=True)) == 1


async def test_a_draining_worker_whose_lease_ends_is_dead_too(store, clock):
    hands = await claimed(store)
    await store.drain(TENANT, hands.worker)
    await clock.advance(61)

    (lost,) = (await store.lost()).executions

    assert lost.worker == hands.worker


async def test_work_of_living_workers_is_never_listed_as_lost(store, clock):
    await claimed(store)
    await clock.advance(50)
    alive = await claimed(store)
    await clock.advance(20)

    lost = (await store.lost()).executions

    assert len(lost) == 1
    assert lost[0].claimed.id != alive.one.id


async def test_what_is_lost_is_listed_for_all_tenants(store, clock):
    await store.add_tenants(["acme"])
    here = await claimed(store)
    there = await claimed(store, tenant="acme")
    await clock.advance(61)

    lost = (await store.lost()).executions

    assert {(entry.claimed.tenant, entry.claimed.id) for entry in lost} == {
        (TENANT, here.one.id),
        ("acme", there.one.id),
    }


async def test_a_list_of_what_is_lost_has_a_limit_and_goes_on_after_it(store, clock):
    for _ in range(5):
        await claimed(store)
    await clock.advance(61)

    found = []
    while batch := (await store.lost(limit=2)).executions:
        assert len(batch) <= 2
        for entry in batch:
            move = after_loss(entry.claimed, max_crashes=9)
            assert await store.apply(TENANT, worker=entry.worker, transitions=[move]) == []
            found.append(entry.claimed.id)

    assert len(found) == len(set(found)) == 5


async def test_a_lost_one_with_a_request_to_cancel_says_so_and_ends_cancelled(store, clock):
    hands = await claimed(store)
    await store.cancel(TENANT, [hands.one.id])
    await clock.advance(61)

    (lost,) = (await store.lost()).executions
    assert lost.claimed.cancel_requested
    await store.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=9)]
    )

    assert await states(store, [hands.one.id]) == [State.CANCELLED]


async def test_an_execution_lost_too_often_is_dead(store, clock):
    await defined(store, max_crashes=2)
    await store.enqueue(TENANT, [new := an_execution()])
    for _ in range(2):
        hands = await claim(store)
        await clock.advance(61)
        (lost,) = (await store.lost()).executions
        move = after_loss(lost.claimed, max_crashes=lost.max_crashes, retry=lost.retry)
        await store.apply(TENANT, worker=hands.worker, transitions=[move])

    seen = await look(store, new.id)
    assert (seen.state, seen.reason, seen.crashes) == (State.DEAD, "worker_lost", 2)


def by_id(one):
    return one.id


async def test_a_lost_attempt_began_when_it_was_last_seen_to(store, clock):
    hands = await claimed(store, 2)
    seen, unseen = hands.executions
    await store.report(TENANT, worker=hands.worker, reports=[a_report(seen, ran=3.0)])
    began = clock.now() - 3.0
    await clock.advance(LEASE + 1)
    for lost in (await store.lost()).executions:
        move = a_move(lost.claimed, State.QUEUED, Outcome.LOST)
        await store.apply(TENANT, worker=lost.worker, transitions=[move])

    attempts = [(await store.get_execution(TENANT, one.id)).attempts for one in (seen, unseen)]
    assert [[one.started_at for one in ended] for ended in attempts] == [[began], [None]]


async def test_a_lost_one_that_ends_began_when_it_was_last_seen_to(store, clock):
    hands = await claimed(store)
    await store.report(TENANT, worker=hands.worker, reports=[a_report(hands.one, ran=3.0)])
    began = clock.now() - 3.0
    await clock.advance(LEASE + 1)
    (lost,) = (await store.lost()).executions
    move = a_move(lost.claimed, State.DEAD, Outcome.LOST, reason="worker_lost")
    await store.apply(TENANT, worker=lost.worker, transitions=[move])

    assert (await look(store, hands.one.id)).started_at == began


async def test_nobody_is_marked_dead_by_a_clock_that_has_jumped(store, clock):
    hands = await claimed(store)
    expected = clock.now() + 5.0
    await clock.advance(3600)

    assert (await store.lost(not_after=expected)).executions == []
    (worker,) = await store.list_workers(TENANT)
    assert (worker.id, worker.state) == (hands.worker, WorkerState.LIVE)
    assert len((await store.lost(not_after=clock.now())).executions) == 1


async def test_a_lease_counts_from_when_the_clock_is_known_to_run_evenly(store, clock):
    hands = await claimed(store)
    await clock.advance(3600)
    since = clock.now()

    losses = await store.lost(since=since)
    assert (losses.now, losses.executions) == (since, [])
    assert (await store.lost(since=float("inf"))).executions == []
    await clock.advance(LEASE - 1)
    assert (await store.lost(since=since)).executions == []
    await clock.advance(2)

    (lost,) = (await store.lost(since=since)).executions
    assert lost.worker == hands.worker


async def test_what_is_lost_says_whether_it_had_begun(store, clock):
    hands = await claimed(store, 2)
    begun = hands.executions[0]
    report = Report(id=begun.id, attempt=begun.attempt, lease=begun.lease, ran=0.0)
    assert await store.report(TENANT, worker=hands.worker, reports=[report]) == []
    await clock.advance(LEASE + 1)

    found = {lost.claimed.id: lost.is_begun for lost in (await store.lost()).executions}

    assert found == {one.id: one.id == begun.id for one in hands.executions}
