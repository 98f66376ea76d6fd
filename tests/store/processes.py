"""Processes of `test_queue_concurrency.py`: python -m tests.store.processes TASK KIND URL.

Each says "ready", waits for a line so that all begin together, and prints its answer as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from daybell.client.executions import derive_id
from daybell.core.execution import State
from daybell.core.schedule import Schedule
from daybell.core.views import ExecutionFilter
from daybell.errors import ExecutionInTheWay
from daybell.store.protocol import Store
from tests.builders import TENANT, a_firing, a_job, an_execution, claim, registered, success
from tests.stores import connect

QUEUED: Final = ExecutionFilter(states=frozenset({State.QUEUED}))

JOBS: Final = ["a", "b", "c"]
TICKS: Final = 10
REPEATED_BULKS: Final = 60
REPEATED_BULK: Final = 50
KEYS: Final = [f"key {n}" for n in range(20)]


async def drain(store: Store) -> list[str]:
    """Claim and finish until nothing is left; the ids, as often as they were claimed."""
    worker = await registered(store, lease=600.0)
    taken: list[str] = []
    while True:
        hands = await claim(store, 50, worker=worker)
        taken += [str(one.id) for one in hands.executions]
        moves = [success(one) for one in hands.executions]
        assert await store.queue.apply(TENANT, worker=worker, transitions=moves) == []
        if not moves and not await store.catalog.count_executions(TENANT, QUEUED):
            return taken


async def enqueue(store: Store) -> list[tuple[str, bool]]:
    """Ask for an execution of each key, in batches; who holds it, and whether by us."""
    answers = []
    for start in range(0, len(KEYS), 5):
        new = [an_execution("a", unique_key=key) for key in KEYS[start : start + 5]]
        answers += await store.queue.enqueue(TENANT, new)
    return [(str(answer.id), answer.created) for answer in answers]


async def send_again(store: Store) -> list[str]:
    """Send the same bulks as the other processes do, as repeats, and run what there is; the ids
    that were claimed here.
    """
    worker = await registered(store, lease=600.0)
    taken: list[str] = []
    for number in range(REPEATED_BULKS):
        news = [an_execution("a", id=repeated_id(number, n)) for n in range(REPEATED_BULK)]
        await store.queue.enqueue(TENANT, news, repeat=True)
        hands = await claim(store, REPEATED_BULK // 3, worker=worker)
        taken += [str(one.id) for one in hands.executions]
        moves = [success(one) for one in hands.executions]
        assert await store.queue.apply(TENANT, worker=worker, transitions=moves) == []
    return taken + await drain(store)


def repeated_id(bulk: int, n: int) -> UUID:
    """An id that every process knows."""
    return derive_id(UUID(int=0), bulk, n)


async def define(store: Store) -> list[tuple[str, int]]:
    """Define the same jobs as the others do, twice."""
    answers = []
    for timeout in (1.0, 2.0):
        jobs = [a_job(name, timeout=timeout) for name in JOBS]
        answers += await store.catalog.define_jobs(TENANT, jobs)
    return [(str(job.id), job.version) for job in answers]


async def overlap(store: Store) -> list[str]:
    """Ask again and again for an execution of each job, which runs one at a time, and end it at
    once; the ids of those that got in.
    """
    worker = await registered(store, lease=600.0)
    inside: list[str] = []
    for _ in range(20):
        for job in JOBS:
            new = an_execution(job)
            try:
                await store.queue.enqueue(TENANT, [new])
            except ExecutionInTheWay:
                continue
            inside.append(str(new.id))
        hands = await claim(store, 1, worker=worker)
        moves = [success(one) for one in hands.executions]
        assert await store.queue.apply(TENANT, worker=worker, transitions=moves) == []
    return inside


async def fire(store: Store) -> list[int]:
    """Fire whatever is due until every schedule has come to its end; how many we were first at."""
    won = 0
    while (due := await store.schedules.due_schedules()).schedules or due.next_at is not None:
        firings = [a_firing(one, next_at=next_of(one)) for one in due.schedules]
        won += sum(await store.schedules.fire(firings))
    return [won]


def next_of(schedule: Schedule) -> float | None:
    """A tick a second later, nine times."""
    return None if schedule.fired + schedule.skipped == TICKS - 1 else due_at(schedule) + 1.0


def due_at(schedule: Schedule) -> float:
    assert schedule.next_at is not None, "it was due"
    return schedule.next_at


TASKS: Final[dict[str, Callable[[Store], Awaitable[Any]]]] = {
    "drain": drain,
    "enqueue": enqueue,
    "send_again": send_again,
    "define": define,
    "overlap": overlap,
    "fire": fire,
}


async def main(task: str, kind: str, url: str) -> None:
    store = connect(kind, url)
    if task != "migrate":
        await store.open()
    await asyncio.to_thread(wait_for_start)
    answer = await store.migrate() if task == "migrate" else await TASKS[task](store)
    await store.close()
    sys.stdout.write(json.dumps(answer))


def wait_for_start() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
