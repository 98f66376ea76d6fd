"""Leases that have ended: who is dead, what is lost with them, and what becomes of it."""

from math import inf as INFINITE

import pytest

from daybell.core.execution import Outcome, State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.worker import Report, WorkerState
from daybell.errors import LeaseLost
from tests.builders import (
    LEASE,
    TENANT,
    a_move,
    a_report,
    a_worker,
    add_tenants,
    an_execution,
    apply,
    claim,
    claimed,
    defined,
    look,
    registered,
    states,
    success,
)


async def test_nothing_is_lost_while_leases_last(store, clock):
    await claimed(store, 2)
    await clock.advance(59)

    assert (await store.queue.lost()).executions == []

    assert [w.state for w in await store.catalog.list_workers(TENANT)] == [WorkerState.LIVE]


async def test_a_worker_whose_lease_ended_is_dead_and_its_work_is_listed(store, clock):
    await defined(store, max_crashes=5)
    hands = await claimed(store, 2)
    await clock.advance(61)

    lost = (await store.queue.lost()).executions

    assert {entry.claimed.id for entry in lost} == {one.id for one in hands.executions}
    assert sorted((entry.claimed for entry in lost), key=by_id) == hands.executions
    assert {(entry.worker, entry.max_crashes, entry.retry) for entry in lost} == {
        (hands.worker, 5, True)
    }
    (worker,) = await store.catalog.list_workers(TENANT, include_dead=True)
    assert (worker.state, worker.running) == (WorkerState.DEAD, 2)


async def test_a_dead_worker_learns_it_at_its_next_call(store, clock):
    hands = await claimed(store)
    await clock.advance(61)
    await store.queue.lost()

    with pytest.raises(LeaseLost):
        await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])
    with pytest.raises(LeaseLost):
        await claim(store, worker=hands.worker)
    with pytest.raises(LeaseLost):
        await claim(store, worker=hands.worker, lease=hands.lease)


async def test_a_renewal_before_the_reaper_comes_keeps_the_worker_alive(store, clock):
    hands = await claimed(store)
    await clock.advance(61)

    await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])

    assert (await store.queue.lost()).executions == []
    assert await apply(store, hands, success(hands.one)) == []


async def test_listing_what_is_lost_changes_no_execution(store, clock):
    hands = await claimed(store)
    await clock.advance(61)

    first = (await store.queue.lost()).executions
    second = (await store.queue.lost()).executions

    assert first == second
    assert await states(store, [hands.one.id]) == [State.RUNNING]


async def test_a_dead_workers_own_report_still_counts_until_somebody_decides(store, clock):
    hands = await claimed(store)
    await clock.advance(61)
    await store.queue.lost()

    assert await apply(store, hands, success(hands.one)) == []

    assert (await store.queue.lost()).executions == []
    assert await states(store, [hands.one.id]) == [State.SUCCEEDED]


async def test_what_was_lost_goes_back_and_is_not_listed_again(store, clock):
    hands = await claimed(store, 2)
    await clock.advance(61)
    lost = (await store.queue.lost()).executions

    moves = [after_loss(entry.claimed, max_crashes=entry.max_crashes) for entry in lost]
    verdicts = await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False)

    assert verdicts == []
    assert (await store.queue.lost()).executions == []
    assert await states(store, [one.id for one in hands.executions]) == [State.QUEUED] * 2
    assert {one.crashes for one in (await claim(store)).executions} == {1}


async def test_what_a_job_says_about_loss_comes_from_the_executions_version(store, clock):
    await defined(store, max_crashes=1, on_lost="dead")
    await claimed(store)
    await defined(store, max_crashes=9, on_lost="retry")
    await clock.advance(61)

    (lost,) = (await store.queue.lost()).executions

    assert (lost.max_crashes, lost.retry) == (1, False)


async def test_items_of_a_batch_have_enough_crashes_to_find_the_cause(store, clock):
    batch = {"settings": '{"batch":{"size":100,"wait":1.0}}'}
    await defined(store, max_crashes=1, **batch)
    await defined(store, "patient", max_crashes=5, **batch)
    await claimed(store)
    await claimed(store, job="patient")
    await clock.advance(61)

    lost = (await store.queue.lost()).executions

    assert sorted(one.max_crashes for one in lost) == [3, 5]


async def test_a_retired_worker_is_dead_and_what_it_still_holds_is_found(store):
    hands = await claimed(store)

    await store.queue.retire(TENANT, hands.worker)

    (lost,) = (await store.queue.lost()).executions
    assert (lost.worker, lost.claimed) == (hands.worker, hands.one)
    with pytest.raises(LeaseLost):
        await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease])


async def test_retiring_twice_or_a_stranger_does_no_harm(store):
    worker = await registered(store)

    await store.queue.retire(TENANT, worker)
    await store.queue.retire(TENANT, worker)
    await store.queue.retire(TENANT, mint())

    assert len(await store.catalog.list_workers(TENANT, include_dead=True)) == 1


async def test_a_draining_worker_whose_lease_ends_is_dead_too(store, clock):
    hands = await claimed(store)
    await store.queue.drain(TENANT, hands.worker)
    await clock.advance(61)

    (lost,) = (await store.queue.lost()).executions

    assert lost.worker == hands.worker


async def test_work_of_living_workers_is_never_listed_as_lost(store, clock):
    await claimed(store)
    await clock.advance(50)
    alive = await claimed(store)
    await clock.advance(20)

    lost = (await store.queue.lost()).executions

    assert len(lost) == 1
    assert lost[0].claimed.id != alive.one.id


async def test_what_is_lost_is_listed_for_all_tenants(store, clock):
    await add_tenants(store, ["acme"])
    here = await claimed(store)
    there = await claimed(store, tenant="acme")
    await clock.advance(61)

    lost = (await store.queue.lost()).executions

    assert {(entry.claimed.tenant, entry.claimed.id) for entry in lost} == {
        (TENANT, here.one.id),
        ("acme", there.one.id),
    }


async def test_a_list_of_what_is_lost_has_a_limit_and_goes_on_after_it(store, clock):
    for _ in range(5):
        await claimed(store)
    await clock.advance(61)

    found = []
    while batch := (await store.queue.lost(limit=2)).executions:
        assert len(batch) <= 2
        for entry in batch:
            move = after_loss(entry.claimed, max_crashes=9)
            assert await store.queue.apply(TENANT, worker=entry.worker, transitions=[move]) == []
            found.append(entry.claimed.id)

    assert len(found) == len(set(found)) == 5


async def test_a_lost_one_with_a_request_to_cancel_says_so_and_ends_cancelled(store, clock):
    hands = await claimed(store)
    await store.queue.cancel(TENANT, [hands.one.id])
    await clock.advance(61)

    (lost,) = (await store.queue.lost()).executions
    assert lost.claimed.cancel_requested
    await store.queue.apply(
        TENANT, worker=lost.worker, transitions=[after_loss(lost.claimed, max_crashes=9)]
    )

    assert await states(store, [hands.one.id]) == [State.CANCELLED]


async def test_an_execution_lost_too_often_is_dead(store, clock):
    await defined(store, max_crashes=2)
    await store.queue.enqueue(TENANT, [new := an_execution()])
    for _ in range(2):
        hands = await claim(store)
        await clock.advance(61)
        (lost,) = (await store.queue.lost()).executions
        move = after_loss(lost.claimed, max_crashes=lost.max_crashes, retry=lost.retry)
        await store.queue.apply(TENANT, worker=hands.worker, transitions=[move])

    seen = await look(store, new.id)
    assert (seen.state, seen.reason, seen.crashes) == (State.DEAD, "worker_lost", 2)


def by_id(one):
    return one.id


async def test_a_lost_attempt_began_when_it_was_last_seen_to(store, clock):
    hands = await claimed(store, 2)
    seen, unseen = hands.executions
    await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(seen, ran=3.0)])
    began = clock.now() - 3.0
    await clock.advance(LEASE + 1)
    for lost in (await store.queue.lost()).executions:
        move = a_move(lost.claimed, State.QUEUED, Outcome.LOST)
        await store.queue.apply(TENANT, worker=lost.worker, transitions=[move])

    attempts = [
        (await store.catalog.get_execution(TENANT, one.id)).attempts for one in (seen, unseen)
    ]
    assert [[one.started_at for one in ended] for ended in attempts] == [[began], [None]]


async def test_a_lost_one_that_ends_began_when_it_was_last_seen_to(store, clock):
    hands = await claimed(store)
    await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(hands.one, ran=3.0)])
    began = clock.now() - 3.0
    await clock.advance(LEASE + 1)
    (lost,) = (await store.queue.lost()).executions
    move = a_move(lost.claimed, State.DEAD, Outcome.LOST, reason="worker_lost")
    await store.queue.apply(TENANT, worker=lost.worker, transitions=[move])

    assert (await look(store, hands.one.id)).started_at == began


async def test_nobody_is_marked_dead_by_a_clock_that_has_jumped(store, clock):
    hands = await claimed(store)
    expected = clock.now() + 5.0
    await clock.advance(3600)

    assert (await store.queue.lost(not_after=expected)).executions == []
    (worker,) = await store.catalog.list_workers(TENANT)
    assert (worker.id, worker.state) == (hands.worker, WorkerState.LIVE)
    assert len((await store.queue.lost(not_after=clock.now())).executions) == 1


async def test_a_lease_counts_from_when_the_clock_is_known_to_run_evenly(store, clock):
    hands = await claimed(store)
    await clock.advance(3600)
    since = clock.now()

    losses = await store.queue.lost(since=since)
    assert (losses.now, losses.executions) == (since, [])
    assert (await store.queue.lost(since=float("inf"))).executions == []
    await clock.advance(LEASE - 1)
    assert (await store.queue.lost(since=since)).executions == []
    await clock.advance(2)

    (lost,) = (await store.queue.lost(since=since)).executions
    assert lost.worker == hands.worker


async def test_what_is_lost_says_whether_it_had_begun(store, clock):
    hands = await claimed(store, 2)
    begun = hands.executions[0]
    report = Report(id=begun.id, attempt=begun.attempt, lease=begun.lease, ran=0.0)
    assert await store.queue.report(TENANT, worker=hands.worker, reports=[report]) == []
    await clock.advance(LEASE + 1)

    found = {lost.claimed.id: lost.ran for lost in (await store.queue.lost()).executions}

    assert found == {one.id: 0.0 if one.id == begun.id else None for one in hands.executions}


async def test_what_is_lost_has_run_until_its_worker_was_last_heard_of(store, clock):
    hands = await claimed(store)
    await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(hands.one, ran=3.0)])
    await clock.advance(10)
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])
    await clock.advance(LEASE + 1)

    (lost,) = (await store.queue.lost()).executions

    assert lost.ran == 13.0


async def test_what_is_lost_says_whether_it_was_the_only_suspect(store, clock):
    hands, others = await claimed(store, 2), await claimed(store)
    sole, other = hands.executions
    assert await store.queue.record_sole(TENANT, worker=others.worker, execution=other.id)
    assert await store.queue.record_sole(TENANT, worker=hands.worker, execution=other.id)
    assert await store.queue.record_sole(TENANT, worker=hands.worker, execution=sole.id)
    await clock.advance(LEASE + 1)

    found = {lost.claimed.id: lost.is_sole for lost in (await store.queue.lost()).executions}

    assert found == {sole.id: True, other.id: False, others.one.id: False}


async def test_a_record_of_the_only_suspect_is_withdrawn(store, clock):
    hands = await claimed(store)
    assert await store.queue.record_sole(TENANT, worker=hands.worker, execution=hands.one.id)
    assert await store.queue.record_sole(TENANT, worker=hands.worker, execution=None)
    await clock.advance(LEASE + 1)

    (lost,) = (await store.queue.lost()).executions
    assert not lost.is_sole


async def test_a_dead_or_unknown_worker_records_no_suspect(store, clock):
    hands = await claimed(store)
    await store.queue.retire(TENANT, hands.worker)

    assert not await store.queue.record_sole(TENANT, worker=hands.worker, execution=hands.one.id)
    assert not await store.queue.record_sole(TENANT, worker=mint(), execution=hands.one.id)
    (lost,) = (await store.queue.lost()).executions
    assert not lost.is_sole


async def watched(store, clock, seconds, *, step=1.0, every=0.0):
    """Somebody looks for the dead for so long, and is gone; answers all that was found."""
    found, since = [], INFINITE
    for _ in range(int(seconds / step)):
        losses = await store.queue.lost(since=since, record_every=every)
        since = min(since, losses.now)
        found += losses.executions
        await clock.advance(step)
    return found


async def test_lives_that_are_shorter_than_a_lease_add_up(store, clock):
    hands = await claimed(store)
    await clock.advance(LEASE / 2)

    assert await watched(store, clock, LEASE / 2) == []
    await clock.advance(3600)
    assert await watched(store, clock, LEASE / 2) == []
    await clock.advance(3600)

    assert {one.claimed for one in await watched(store, clock, 5)} == {hands.one}


async def test_what_nobody_watched_does_not_count(store, clock):
    hands = await claimed(store)
    for _ in range(5):
        assert await watched(store, clock, 5) == []
        await clock.advance(3600)

    (worker,) = await store.catalog.list_workers(TENANT)
    assert (worker.id, worker.state) == (hands.worker, WorkerState.LIVE)


async def test_several_who_watch_at_the_same_time_count_once(store, clock):
    await claimed(store)
    await clock.advance(3600)
    since = clock.now()
    for _ in range(int(LEASE / 2)):
        await clock.advance(1)
        for begun in (since, since + 1, since + 2):
            losses = await store.queue.lost(since=begun, record_every=0.0)
            assert losses.executions == []


async def test_a_renewal_ends_the_silence_that_was_watched(store, clock):
    hands = await claimed(store)
    assert await watched(store, clock, LEASE - 5) == []
    await store.queue.renew(TENANT, worker=hands.worker, lease=LEASE, leases=[hands.lease])

    assert await watched(store, clock, LEASE - 5) == []


@pytest.mark.parametrize("back", [10, 3600])
async def test_a_clock_that_was_set_back_has_not_been_watched(store, clock, back):
    await watched(store, clock, 2 * LEASE)
    await clock.advance(-back)
    await claimed(store)

    assert await watched(store, clock, 2) == []
    await clock.advance(LEASE + back)
    assert await watched(store, clock, 5) == []


async def test_a_jump_or_an_absence_begins_the_record_anew(store, clock):
    hands = await claimed(store)
    assert await watched(store, clock, LEASE - 5) == []
    assert (await store.queue.lost(not_after=clock.now() - 1)).executions == []

    await clock.advance(30)
    assert await watched(store, clock, LEASE - 5) == []
    assert {one.claimed for one in await watched(store, clock, 10)} == {hands.one}


async def test_the_record_is_written_now_and_then(store, clock):
    hands = await claimed(store)
    assert await watched(store, clock, LEASE / 2, every=5.0) == []
    await clock.advance(LEASE)

    assert {one.claimed for one in await watched(store, clock, LEASE, every=5.0)} == {hands.one}


async def replaced(store, hands, **options):
    """Register the worker that takes the place of another."""
    await store.queue.register(TENANT, a_worker(), lease=LEASE, replaces=hands.worker, **options)


async def test_a_worker_that_another_one_replaces_is_excused(store, clock):
    hands, others = await claimed(store), await claimed(store)

    await replaced(store, hands)
    assert (await store.queue.lost()).executions == []  # its lease lasts as long as before
    await clock.advance(61)

    found = {entry.worker: entry.is_excused for entry in (await store.queue.lost()).executions}
    assert found == {hands.worker: True, others.worker: False}


async def test_a_worker_is_excused_after_its_death_as_long_as_nobody_has_decided(store, clock):
    hands = await claimed(store)
    await clock.advance(61)
    (before,) = (await store.queue.lost()).executions

    await replaced(store, hands)

    (after,) = (await store.queue.lost()).executions
    assert (before.is_excused, after.is_excused) == (False, True)


async def test_a_dead_worker_excuses_no_other(store, clock):
    hands, again = await claimed(store), a_worker()
    await store.queue.register(TENANT, again, lease=LEASE)
    await clock.advance(61)
    await store.queue.lost()

    with pytest.raises(LeaseLost):
        await store.queue.register(TENANT, again, lease=LEASE, replaces=hands.worker)

    (lost,) = (await store.queue.lost()).executions
    assert not lost.is_excused


async def test_workers_of_other_tenants_are_not_excused(store, clock):
    hands = await claimed(store)

    await add_tenants(store, ["other"])
    await store.queue.register("other", a_worker(), lease=LEASE, replaces=hands.worker)
    await clock.advance(61)

    (lost,) = (await store.queue.lost()).executions
    assert not lost.is_excused


async def test_what_an_excused_worker_held_goes_back_uncharged(store, clock):
    hands = await claimed(store)
    await replaced(store, hands)
    await clock.advance(61)
    (lost,) = (await store.queue.lost()).executions

    move = after_loss(lost.claimed, max_crashes=lost.max_crashes, is_excused=lost.is_excused)
    await store.queue.apply(TENANT, worker=hands.worker, transitions=[move], wait=False)

    (back,) = (await claim(store)).executions
    assert (back.crashes, back.attempt) == (0, 2)
