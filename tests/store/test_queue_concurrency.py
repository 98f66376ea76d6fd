"""Many at once: tasks of one process on connections of their own, and processes of their own."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from daybell.core.execution import Cancellation, Revival, State
from daybell.core.ids import mint
from daybell.core.lifecycle import Ruling
from daybell.core.views import ExecutionFilter
from daybell.core.worker import WorkerState
from daybell.errors import LeaseLost
from tests.builders import (
    TENANT,
    a_firing,
    a_job,
    a_schedule,
    a_worker,
    an_execution,
    apply,
    claim,
    claimed,
    dead,
    defined,
    enqueued,
    look,
    put,
    registered,
    states,
    success,
)
from tests.store.processes import JOBS, KEYS, REPEATED_BULK, REPEATED_BULKS
from tests.stores import KINDS, POSTGRES, connect
from tests.sweeps import set_gates

ROOT = Path(__file__).parents[2]
EVERYTHING = ExecutionFilter()
SECONDS = 60
STEPS = (1, -1, 1, -1)


async def test_a_key_asked_for_by_many_at_once_is_won_by_one(crowd):
    await defined(crowd[0])
    asked = [an_execution(unique_key="k") for _ in range(16)]

    answers = await asyncio.gather(
        *(crowd[n % 4].queue.enqueue(TENANT, [new]) for n, new in enumerate(asked))
    )

    winners = [answer.id for (answer,) in answers if answer.created]
    assert len(winners) == 1
    assert {answer.id for (answer,) in answers} == set(winners)
    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 1}


async def test_the_same_batch_sent_by_many_at_once_is_created_once(crowd):
    await defined(crowd[0])
    batch = [an_execution() for _ in range(20)]

    answers = await asyncio.gather(
        *(store.queue.enqueue(TENANT, batch[n:] + batch[:n]) for n, store in enumerate(crowd))
    )

    assert all(answer.created for given in answers for answer in given)
    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 20}


async def test_keys_in_opposite_order_do_not_lock_each_other_out(crowd):
    await defined(crowd[0])
    keys = [f"k{n}" for n in range(10)]

    def batch(order):
        return [an_execution(unique_key=key) for key in order]

    for _ in range(3):
        answers = await asyncio.gather(
            *(
                store.queue.enqueue(TENANT, batch(keys[:: -1 if n % 2 else 1]))
                for n, store in enumerate(crowd)
            )
        )
        assert {len({answer.id for answer in given}) for given in answers} == {10}

    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 10}


async def test_claims_at_the_same_time_share_what_there_is(crowd):
    ids = await enqueued(crowd[0], 60)
    workers = [await registered(crowd[0]) for _ in range(8)]

    hands = await asyncio.gather(
        *(claim(crowd[n % 4], 5, worker=worker) for n, worker in enumerate(workers))
    )
    rest = await claim(crowd[0], 100)

    taken = [one.id for given in (*hands, rest) for one in given.executions]
    assert sorted(taken) == sorted(ids)


async def test_the_same_claim_asked_twice_at_once_takes_once(crowd):
    await enqueued(crowd[0], 10)
    worker, lease = await registered(crowd[0]), mint()

    hands = await asyncio.gather(*(claim(store, 4, worker=worker, lease=lease) for store in crowd))

    taken = {one.id for given in hands for one in given.executions}
    assert len(taken) == 4
    (seen,) = await crowd[0].catalog.list_workers(TENANT)
    assert seen.running == 4


async def test_a_job_defined_by_many_at_once_gets_one_answer(crowd):
    answers = await asyncio.gather(
        *(crowd[n % 4].catalog.define_jobs(TENANT, [a_job("b"), a_job("a")]) for n in range(8))
    )

    assert len({(one.id, two.id, one.version, two.version) for one, two in answers}) == 1
    assert answers[0][0].version == 1


async def test_of_many_that_expect_the_same_version_one_wins(crowd):
    await defined(crowd[0])

    answers = await asyncio.gather(
        *(
            crowd[n % 4].catalog.define_jobs(TENANT, [a_job(timeout=float(n + 1), expect=1)])
            for n in range(6)
        ),
        return_exceptions=True,
    )

    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(won) == 1
    assert (await crowd[0].catalog.get_job(TENANT, "resize")).version == 2


async def test_a_move_sent_twice_at_once_is_made_once(crowd):
    hands = await claimed(crowd[0], 5)
    moves = [success(one) for one in hands.executions]

    answers = await asyncio.gather(*(apply(store, hands, *moves) for store in crowd))

    assert answers == [[], [], [], []]
    for one in hands.executions:
        detail = await crowd[0].catalog.get_execution(TENANT, one.id)
        assert len(detail.attempts) == 1


async def test_cancelling_while_it_ends_agrees_with_the_end(crowd):
    hands = await claimed(crowd[0], 12)

    outcomes = await asyncio.gather(
        *(
            asyncio.gather(
                apply(crowd[0], hands, success(one)), crowd[1].queue.cancel(TENANT, [one.id])
            )
            for one in hands.executions
        )
    )

    for one, (verdicts, (cancellation,)) in zip(hands.executions, outcomes, strict=True):
        seen = await look(crowd[2], one.id)
        if cancellation is Cancellation.REQUESTED:
            assert seen.state is State.CANCELLED
            assert [verdict.ruling for verdict in verdicts] == [Ruling.CANCELLED]
        else:
            assert cancellation is Cancellation.FINISHED
            assert (seen.state, verdicts) == (State.SUCCEEDED, [])


async def test_cancelling_while_it_is_claimed_agrees_with_the_claim(crowd):
    ids = await enqueued(crowd[0], 20)
    worker = await registered(crowd[0])

    hands, answers = await asyncio.gather(
        claim(crowd[0], 20, worker=worker), crowd[1].queue.cancel(TENANT, ids)
    )

    taken = {one.id for one in hands.executions}
    for id, answer in zip(ids, answers, strict=True):
        seen = await look(crowd[2], id)
        if id in taken:
            assert (seen.state, answer) == (State.RUNNING, Cancellation.REQUESTED)
        else:
            assert (seen.state, answer) == (State.CANCELLED, Cancellation.CANCELLED)


async def test_a_renewal_that_races_the_reaper_wins_or_finds_itself_dead(crowd, clock):
    for _ in range(10):
        hands = await claimed(crowd[0])
        await clock.advance(61)

        renewal, lost = await asyncio.gather(
            crowd[0].queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=[hands.lease]),
            crowd[1].queue.lost(),
            return_exceptions=True,
        )

        assert not isinstance(lost, BaseException)
        everyone = await crowd[2].catalog.list_workers(TENANT, include_dead=True)
        state = {worker.id: worker.state for worker in everyone}[hands.worker]
        if isinstance(renewal, BaseException):
            assert isinstance(renewal, LeaseLost)
            assert state is WorkerState.DEAD
        else:
            assert state is WorkerState.LIVE
            assert hands.one.id not in {entry.claimed.id for entry in lost.executions}
        await apply(crowd[0], hands, success(hands.one))


async def test_a_cursor_advanced_by_many_at_once_fires_once(crowd, clock):
    schedules = [a_schedule(f"job {n}", next_at=clock.now()) for n in range(5)]
    await put(crowd[0], *schedules)

    answers = await asyncio.gather(
        *(store.schedules.fire([a_firing(schedule) for schedule in schedules]) for store in crowd)
    )

    assert [sum(column) for column in zip(*answers, strict=True)] == [1] * 5
    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: 5}


async def test_many_at_a_gate_never_exceed_its_capacity(crowd):
    await defined(crowd[0])
    await set_gates(crowd[0], TENANT, {"g": 3})
    new = [an_execution(gate="g") for _ in range(16)]

    await asyncio.gather(*(crowd[n % 4].queue.enqueue(TENANT, [one]) for n, one in enumerate(new)))

    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {
        State.QUEUED: 3,
        State.WAITING: 13,
    }


async def test_slots_handed_on_by_many_at_once_are_all_used(crowd):
    await set_gates(crowd[0], TENANT, {"g": 4})
    await enqueued(crowd[0], 12, gate="g")
    hands = await claim(crowd[0])
    assert len(hands.executions) == 4

    await asyncio.gather(
        *(apply(crowd[n], hands, success(one)) for n, one in enumerate(hands.executions))
    )

    assert await crowd[0].catalog.count_executions(TENANT, EVERYTHING) == {
        State.SUCCEEDED: 4,
        State.QUEUED: 4,
        State.WAITING: 4,
    }


async def test_a_dead_letter_revived_by_many_at_once_is_revived_once(crowd):
    (id,) = await dead(crowd[0])

    answers = await asyncio.gather(*(store.queue.revive(TENANT, [id]) for store in crowd))

    assert sorted(answer for (answer,) in answers) == [Revival.NOT_LISTED] * 3 + [Revival.REVIVED]
    assert (await look(crowd[0], id)).attempt == 2


async def test_of_many_that_want_to_lead_one_does(crowd):
    answers = await asyncio.gather(
        *(crowd[n % 4].admin.lead("upkeep", holder=mint(), lease=30.0) for n in range(8))
    )

    assert sum(answer is not None for answer in answers) == 1


async def test_the_same_worker_registered_by_many_at_once_is_one(crowd):
    worker = a_worker()

    await asyncio.gather(*(store.queue.register(TENANT, worker, lease=60.0) for store in crowd))

    assert [seen.id for seen in await crowd[0].catalog.list_workers(TENANT)] == [worker.id]


@asynccontextmanager
async def processes(task, kind, url, count=4):
    """So many processes that begin together; their answers."""
    running = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.store.processes", task, kind, url),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        for _ in range(count)
    ]
    try:
        for process in running:
            assert process.stdout
            assert await process.stdout.readline() == b"ready\n"
        outputs = await asyncio.wait_for(
            asyncio.gather(*(process.communicate(b"\n") for process in running)), SECONDS
        )
        assert [process.returncode for process in running] == [0] * count
        yield [json.loads(output) for output, _ in outputs]
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_four_processes_claim_each_execution_once_and_finish_all(place, store):
    await defined(store)
    new = [an_execution() for _ in range(2000)]
    await store.queue.load(TENANT, new)

    async with processes("drain", place.kind, place.url) as answers:
        taken = [id for answer in answers for id in answer]

    assert sorted(taken) == sorted(str(one.id) for one in new)
    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.SUCCEEDED: 2000}


async def test_four_processes_that_send_the_same_bulks_create_each_execution_once(place, store):
    await defined(store, "a")

    async with processes("send_again", place.kind, place.url) as answers:
        taken = [id for answer in answers for id in answer]

    assert len(taken) == len(set(taken)) == REPEATED_BULKS * REPEATED_BULK
    counts = await store.catalog.count_executions(TENANT, EVERYTHING)
    assert counts == {State.SUCCEEDED: REPEATED_BULKS * REPEATED_BULK}


async def test_four_processes_that_want_the_same_keys_agree_on_the_holders(place, store):
    await defined(store, "a")

    async with processes("enqueue", place.kind, place.url) as answers:
        for column in zip(*answers, strict=True):
            assert len({id for id, _ in column}) == 1
            assert sum(created for _, created in column) == 1

    assert await store.catalog.count_executions(TENANT, EVERYTHING) == {State.QUEUED: len(KEYS)}


async def test_four_processes_that_define_the_same_jobs_agree_on_them(place, store):
    async with processes("define", place.kind, place.url) as answers:
        ids = {tuple(id for id, _ in answer) for answer in answers}
        final = {tuple(version for _, version in answer[3:]) for answer in answers}

    assert len(ids) == 1
    assert final == {(2, 2, 2)}
    assert [len((await store.catalog.list_versions(TENANT, name)).items) for name in JOBS] == [
        2,
        2,
        2,
    ]


@pytest.mark.parametrize("kind", KINDS)
async def test_processes_that_migrate_a_fresh_store_at_once_make_each_step_once(
    kind, tmp_path, servers
):
    async with AsyncExitStack() as stack:
        url = str(tmp_path / "new.db")
        if kind in POSTGRES:
            database = servers.database(POSTGRES[kind])
            url = await stack.enter_async_context(database)
        answers = await stack.enter_async_context(processes("migrate", kind, url, count=3))

        steps = [step for answer in answers for step in answer]
        assert steps
        assert len(steps) == len(set(steps))
        store = connect(kind, url)
        await store.open()
        ids = await enqueued(store)
        assert await states(store, ids) == [State.QUEUED]
        await store.close()
