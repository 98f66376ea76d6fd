"""One of everything that a store does, for stores that are reached in some unusual way."""

from __future__ import annotations

from daybell.core.execution import State
from daybell.core.ids import mint
from daybell.core.lifecycle import after_loss
from daybell.core.views import ExecutionFilter, Retention
from daybell.store.protocol import Store
from tests.builders import (
    TENANT,
    a_firing,
    a_report,
    a_schedule,
    an_execution,
    apply,
    claim,
    claimed,
    death,
    defined,
    enqueued,
    registered,
    retry,
    states,
    success,
)
from tests.sweeps import admit, retain, set_gates


async def live_through_everything(store: Store, job: str = "resize") -> None:
    """Use every operation, in a queue of its own, so that several can do so at once."""
    queue = f"queue-{job}"
    await defined(store, job, queue=queue)
    await _run(store, job, queue)
    await _intervene(store, job, queue)
    await _fire(store, job, queue)
    await _look(store, job, queue)
    await retain(store, Retention())
    leader = mint()
    assert await store.admin.lead(f"lead-{job}", holder=leader, lease=60.0)
    await store.admin.resign(f"lead-{job}", holder=leader)
    assert (await store.health()).schema >= 1


async def _run(store: Store, job: str, queue: str) -> None:
    hands = await claimed(store, 5, job=job, queue=queue)
    first, second, third, *rest = hands.executions
    assert await store.queue.report(TENANT, worker=hands.worker, reports=[a_report(first)]) == []
    assert await apply(store, hands, success(first), retry(second), death(third)) == []
    known = [hands.lease]
    renewal = await store.queue.renew(TENANT, worker=hands.worker, lease=60.0, leases=known)
    assert (renewal.cancel, renewal.returned) == ((), 0)
    assert await store.queue.release(TENANT, worker=hands.worker, leases=known) == len(rest)
    again = await claim(store, worker=hands.worker, queues=[queue])
    assert [one.attempt for one in again.executions] == [2] * len(rest)
    await store.queue.retire(TENANT, hands.worker)
    mine = [lost for lost in (await store.queue.lost()).executions if lost.worker == hands.worker]
    moves = [after_loss(lost.claimed, max_crashes=3) for lost in mine]
    assert await store.queue.apply(TENANT, worker=hands.worker, transitions=moves, wait=False) == []
    assert await states(store, [first.id, second.id, third.id]) == [
        State.SUCCEEDED,
        State.RETRYING,
        State.DEAD,
    ]
    assert await store.queue.revive(TENANT, [third.id]) == ["revived"]
    assert await store.queue.load(TENANT, (an_execution(job, queue=queue) for _ in range(20))) == 20


async def _intervene(store: Store, job: str, queue: str) -> None:
    gate = f"gate-{job}"
    await set_gates(store, TENANT, {gate: 1})
    held, parked = await enqueued(store, 2, job=job, queue=queue, gate=gate)
    assert await states(store, [held, parked]) == [State.QUEUED, State.WAITING]
    assert await store.queue.cancel(TENANT, [held, mint()]) == ["cancelled", "unknown"]
    assert await states(store, [parked]) == [State.QUEUED]
    await admit(store)
    key = an_execution(job, queue=queue, unique_key="k")
    assert (await store.queue.enqueue(TENANT, [key]))[0].created
    assert (await store.queue.enqueue(TENANT, [key], repeat=True))[0].created
    other = an_execution(job, queue=queue, unique_key="k")
    assert (await store.queue.enqueue(TENANT, [other]))[0].id == key.id
    hands = await claim(store, 1, queues=[queue])
    await apply(store, hands, death(hands.one))
    assert await store.queue.discard(TENANT, [hands.one.id]) == [True]


async def _fire(store: Store, job: str, queue: str) -> None:
    now = (await store.health()).now
    schedule = a_schedule(job, next_at=now - 1)
    await store.schedules.put_schedules(TENANT, [schedule])
    assert schedule.id in [due.id for due in (await store.schedules.due_schedules()).schedules]
    assert await store.schedules.fire([a_firing(schedule)]) == [True]
    assert await store.schedules.fire([a_firing(schedule)]) == [False]
    assert len(await store.schedules.list_ticks(TENANT, schedule.id)) == 1
    assert await store.schedules.delete_schedules(TENANT, [schedule.id]) == 1


async def _look(store: Store, job: str, queue: str) -> None:
    where = ExecutionFilter(job=job)
    counts = await store.catalog.count_executions(TENANT, where)
    page = await store.catalog.list_executions(TENANT, where, limit=10)
    assert len(page.items) == 10
    following = await store.catalog.list_executions(
        TENANT, where, limit=100, cursor=page.next_cursor
    )
    assert len(page.items) + len(following.items) == sum(counts.values())
    assert queue in [one.name for one in await store.catalog.list_queues(TENANT)]
    await store.catalog.pause_queue(TENANT, queue, paused=True)
    worker = await registered(store)
    assert (await claim(store, worker=worker, queues=[queue])).executions == []
    await store.catalog.pause_queue(TENANT, queue, paused=False)
    assert await store.queue.drain(TENANT, worker)
    assert worker in [one.id for one in await store.catalog.list_workers(TENANT)]
