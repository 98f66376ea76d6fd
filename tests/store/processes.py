"""What the processes of `test_concurrency.py` do: python -m tests.store.processes TASK KIND URL.

Each says "ready", waits for a line so that all begin together, and prints its answer as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from daybell.store.protocol import Store
from tests.builders import TENANT, a_job, an_execution, claim, registered, success
from tests.stores import connect

JOBS: Final = ["a", "b", "c"]
KEYS: Final = [f"key {n}" for n in range(20)]


async def drain(store: Store) -> list[str]:
    """Claim and finish until nothing is left; the ids, as often as they were claimed."""
    worker = await registered(store, lease=600.0)
    taken: list[str] = []
    while True:
        hands = await claim(store, 50, worker=worker)
        taken += [str(one.id) for one in hands.executions]
        moves = [success(one) for one in hands.executions]
        assert await store.apply(TENANT, worker=worker, transitions=moves) == []
        if not moves and await store.next_due(TENANT, queues=["default"]) is None:
            return taken


async def enqueue(store: Store) -> list[tuple[str, bool]]:
    """Ask for an execution of each key, in batches; who holds it, and whether by us."""
    answers = []
    for start in range(0, len(KEYS), 5):
        new = [an_execution("a", unique_key=key) for key in KEYS[start : start + 5]]
        answers += await store.enqueue(TENANT, new)
    return [(str(answer.id), answer.created) for answer in answers]


async def define(store: Store) -> list[tuple[str, int]]:
    """Define the same jobs as the others do, twice."""
    answers = []
    for timeout in (1.0, 2.0):
        jobs = [a_job(name, timeout=timeout) for name in JOBS]
        answers += await store.define_jobs(TENANT, jobs)
    return [(str(job.id), job.version) for job in answers]


TASKS: Final[dict[str, Callable[[Store], Awaitable[Any]]]] = {
    "drain": drain,
    "enqueue": enqueue,
    "define": define,
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
