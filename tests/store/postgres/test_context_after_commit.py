"""Work after a commit belongs to its transaction: a rollback leaves none, no neighbour takes it."""

import asyncio
from contextlib import suppress

import pytest

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.schedule import Overlap
from daybell.errors import Unavailable
from daybell.store.postgres import progress
from daybell.store.postgres.context import AfterCommit
from tests.builders import TENANT, an_execution, apply, claim, success
from tests.store.postgres.invariants import violations
from tests.store.postgres.steps import Fate, Stop
from tests.store.runs import a_plan, begun, state

LEASE = "SELECT count(*) FROM daybell.lease WHERE id = $1"


async def broken(store, operation, statement, beside=None):
    """Break an operation before its commit, after this statement. False: it has fewer."""
    store.pace.stop = stop = Stop(statement, Fate.BREAKS)
    task = asyncio.create_task(operation)
    arrival = asyncio.create_task(stop.reached.wait())
    await asyncio.wait([task, arrival], return_when=asyncio.FIRST_COMPLETED)
    arrival.cancel()
    store.pace.stop = Stop()
    if stop.reached.is_set() and beside is not None:
        await beside()
    stop.resumed.set()
    with suppress(Unavailable):
        await task
    return stop.reached.is_set()


@pytest.mark.parametrize("is_beside", [False, True])
async def test_a_run_goes_on_if_the_enqueue_that_would_replace_it_was_rolled_back(
    slow, sql, is_beside
):
    run = await begun(slow, a_plan({"a": ["b"]}), overlap=Overlap.REPLACE)
    found = "SELECT count(*) FROM daybell.live WHERE id = $1"

    async def neighbour():
        await slow.queue.cancel(TENANT, [mint()])

    statement = 0
    for statement in range(1, 50):
        execution = an_execution("etl")
        enqueue = slow.queue.enqueue(TENANT, [execution])
        assert await broken(slow, enqueue, statement, neighbour if is_beside else None)
        await neighbour()
        if await sql.fetchval(found, execution.id):
            break  # that statement came after the commit
        assert (await slow.runs.get_run(TENANT, run)).run.stopping is None, statement
    assert statement > 5
    assert await violations(sql) == []


async def test_leases_that_a_rolled_back_transaction_has_deleted_are_deleted_by_the_next(slow, sql):
    await begun(slow, a_plan({"a": [], "b": []}))
    first = await claim(slow, 1)
    second = await claim(slow, 1, worker=first.worker)
    await apply(slow, first, success(first.one))

    statement = 0
    for statement in range(1, 50):
        assert await sql.fetchval(LEASE, first.one.lease) == 1
        if not await broken(slow, apply(slow, second, success(second.one)), statement):
            break  # it is committed

    assert await state(slow, second.one.id) is State.SUCCEEDED
    assert statement > 3
    assert await sql.fetchval(LEASE, first.one.lease) == 0
    assert await violations(sql) == []


async def test_a_neighbour_does_not_hear_that_a_run_has_more_to_do(store, sql, monkeypatch):
    run = await begun(store, a_plan({f"n{number}": [] for number in range(3)}, max_running=1))
    await sql.execute("UPDATE daybell.run SET is_todo = true")
    after, beside = AfterCommit(), AfterCommit()
    follow_up = progress.follow_up

    async def interrupted(tx, tenant, *args, **options):
        await follow_up(tx, tenant, *args, **options)
        tx.after.continue_runs[tenant, run] = None
        await progress.after_commit(store.context, beside, None)

    monkeypatch.setattr(progress, "follow_up", interrupted)

    assert await progress.advance_run(store.context, after, 1, run) is True
    assert list(after.continue_runs) == [(1, run)]
    assert not beside.continue_runs


async def test_a_transaction_that_fails_hands_over_nothing(store):
    after = AfterCommit()

    with pytest.raises(ZeroDivisionError):
        async with store.context.transaction(after=after) as tx:
            tx.after.claimable.add((1, "default"))
            tx.after.is_rearmed = True
            tx.after.stop_runs[1, mint()] = None
            raise ZeroDivisionError

    assert not after.claimable and not after.stop_runs and not after.is_rearmed
