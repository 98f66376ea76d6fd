"""Steps on their way to the store: together, patiently, and only for who still holds them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from daybell.core.event import NewStep, StepKind
from daybell.core.execution import Claimed, State
from daybell.core.lifecycle import after_loss
from daybell.engine.attempt import Recorder
from daybell.errors import Suspended, Unavailable, UsageError
from daybell.runners.python import Threads
from daybell.sdk.durable import Bridge, run_blocking
from tests.builders import TENANT, a_step, claim, claimed, enqueued
from tests.engine.faults import faulty
from tests.engine.tasks import Tasks, a_store, a_worker
from tests.engine.virtual import VirtualClock, in_virtual_time, turns, until


async def a_recorder(count: int = 1) -> tuple[Recorder, Any, list[Claimed]]:
    store = faulty(await a_store())
    hands = await claimed(store, count)
    clock = VirtualClock()
    recorder = Recorder(
        store, tenant=TENANT, worker=hands.worker, clock=clock, stop_stale=lambda _: None
    )
    return recorder, store, list(hands.executions)


@in_virtual_time
async def test_what_comes_while_one_is_written_goes_together():
    recorder, store, held = await a_recorder(10)
    gate = store.hold("record")

    work = [asyncio.ensure_future(recorder.record([a_step(one, 1)])) for one in held]
    await turns()
    gate.set()
    answers = await asyncio.gather(*work)

    assert [len(call["steps"]) for call in store.asked("record")] == [10]
    again = [asyncio.ensure_future(recorder.record([a_step(held[0], 2)]))]
    gate.clear()
    await turns()
    again += [asyncio.ensure_future(recorder.record([a_step(one, 3)])) for one in held]
    await turns()
    gate.set()
    await asyncio.gather(*again)
    assert [len(call["steps"]) for call in store.asked("record")] == [10, 1, 10]
    assert all(answer is not None and answer[0].n == 1 for answer in answers)


@in_virtual_time
async def test_while_the_store_is_away_who_records_waits_and_nothing_is_lost():
    recorder, store, (held,) = await a_recorder()
    store.fail("record", Unavailable("away"), Unavailable("away"))
    store.fail("record", Unavailable("the answer is lost"), after=True)

    answer = await recorder.record([a_step(held, 1, result="1")])

    assert answer is not None and answer[0].result == "1"
    assert store.count("record") == 4
    store.fail("steps", Unavailable("away"))
    assert [step.n for step in await recorder.recall(held)] == [1]


@in_virtual_time
async def test_one_that_cannot_be_kept_does_not_hurt_its_neighbours():
    recorder, store, (first, second, third) = await a_recorder(3)
    store.fail("record", RuntimeError("broken"), RuntimeError("broken"))
    gate = store.hold("record")

    work = [
        asyncio.ensure_future(recorder.record([a_step(one, 1)])) for one in (first, second, third)
    ]
    await turns()
    gate.set()
    answers = await asyncio.gather(*work, return_exceptions=True)

    assert isinstance(answers[0], RuntimeError)
    assert isinstance(answers[1], list) and isinstance(answers[2], list)
    with pytest.raises(UsageError, match="at most 10,000 steps"):
        await recorder.record([a_step(first, 10_001)])


@in_virtual_time
async def test_who_holds_it_no_more_is_told_so():
    recorder, store, (first, second) = await a_recorder(2)
    stale = NewStep(id=first.id, attempt=first.attempt + 1, lease=first.lease, n=1, name="s",
                    kind=StepKind.STEP)  # fmt: skip

    assert await recorder.record([stale]) is None
    store.is_away = True
    waiting = asyncio.ensure_future(recorder.record([a_step(second, 1)]))
    await turns()
    later = asyncio.ensure_future(recorder.record([a_step(first, 1)]))
    await turns()
    recorder.close()

    assert await later is None and await waiting is None
    assert await recorder.record([a_step(second, 1)]) is None


@in_virtual_time
async def test_a_run_whose_steps_are_refused_is_stopped_and_reports_nothing():
    store = faulty(await a_store())
    went_on: list[str] = []

    async def task(running: Any) -> None:
        # Somebody else has taken it meanwhile: it is another attempt's now.
        await store.store.db.write(lambda tx: tx.execute(_RAISE))
        await running.ledger.record([a_step(running.claimed)])
        went_on.append("yes")

    (made,) = await enqueued(store)
    worker = a_worker(store, Tasks(resize=task))
    await worker.start()
    await until(lambda: worker.current.completer.stale == 1)
    await worker.stop()

    assert went_on == []
    assert await store.runs.steps(TENANT, made) == []


@in_virtual_time
async def test_a_suspension_is_no_failure_and_keeps_the_checkpoint():
    store = faulty(await a_store())

    async def sleeps(running: Any) -> None:
        running.report(checkpoint='{"page":1}')
        raise Suspended("sleep", reason="sleep", delay=3600.0)

    (made,) = await enqueued(store)
    await lost(store)
    worker = a_worker(store, Tasks(resize=sleeps))
    await worker.start()
    await until(lambda: store.count("apply") == 2)
    await worker.stop()

    execution = (await store.catalog.get_execution(TENANT, made)).execution
    assert (execution.state, execution.failures) == (State.SCHEDULED, 0)
    assert execution.crashes == 0  # what it had before is over: it has got so far
    assert execution.checkpoint == '{"page":1}'


@pytest.mark.parametrize("is_in_thread", [False, True])
@in_virtual_time
async def test_a_step_that_was_done_is_on_record_before_a_drain_gives_it_back(is_in_thread: bool):
    store = faulty(await a_store())
    gate = store.hold("record")

    async def task(running: Any) -> None:
        ledger, step = running.ledger, a_step(running.claimed)
        if not is_in_thread:
            await ledger.record([step])
        else:
            ask = Bridge(ledger.loop).ask(lambda: ledger.record([step]))
            await Threads().run(lambda: run_blocking(ask))

    (made,) = await enqueued(store)
    worker = a_worker(store, Tasks(resize=task), drain_timeout=0.0)
    await worker.start()
    await until(lambda: len(worker.executor) == 1 and worker.current.recorder._writer is not None)
    stopping = asyncio.ensure_future(worker.stop())
    await until(lambda: all(run.stop is not None for run in worker.executor))
    await turns()
    gate.set()
    await stopping

    assert [step.n for step in await store.runs.steps(TENANT, made)] == [0]
    execution = (await store.catalog.get_execution(TENANT, made)).execution
    assert (execution.state, execution.attempt) == (State.QUEUED, 2)


@in_virtual_time
async def test_who_lost_its_lease_waits_for_no_answer():
    recorder, store, (held,) = await a_recorder()
    store.hold("record")  # and never lets go
    work = asyncio.ensure_future(recorder.record([a_step(held, 1)]))
    await turns()
    work.cancel()
    await turns()
    assert not work.done()

    recorder.close()

    with pytest.raises(asyncio.CancelledError):
        await work


@in_virtual_time
async def test_the_end_of_the_event_loop_while_the_store_is_away_logs_no_error():
    recorder, store, (held,) = await a_recorder()
    store.hold("record")  # and never lets go
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    work = asyncio.ensure_future(recorder.record([a_step(held, 1)]))
    await turns()
    work.cancel()  # by a drain
    await turns()

    others = asyncio.all_tasks() - {asyncio.current_task()}
    while others:
        others.pop().cancel()  # as asyncio.run does
    with pytest.raises(asyncio.CancelledError):
        await work
    await turns()
    del recorder, work
    gc.collect()

    assert logged == []


@in_virtual_time
async def test_large_results_do_not_all_go_at_once():
    recorder, store, held = await a_recorder(20)
    text = f'"{"x" * 1_000_000}"'

    await asyncio.gather(*(recorder.record([a_step(one, 1, result=text)]) for one in held))

    assert [len(call["steps"]) for call in store.asked("record")] == [8, 8, 4]


_RAISE = "UPDATE execution SET attempt = attempt + 1"


async def lost(store: Any) -> None:
    """Have an execution lose a worker."""
    hands = await claim(store)
    moves = [after_loss(one, max_crashes=3) for one in hands.executions]
    await store.queue.apply(TENANT, worker=hands.worker, transitions=moves)
