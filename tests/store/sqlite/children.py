"""Processes of `test_connection_processes.py`: python -m tests.store.sqlite.children TASK PATH.

They tell what the store has answered, line by line, as soon as it has.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys

from daybell.errors import Unavailable
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, an_execution, claim, registered, success

BATCHES = (1, 1, 7, 1, 40, 3)


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def enqueue(store: SqliteStore) -> None:
    """Enqueue some batches."""
    for size in BATCHES * 5:
        new = [an_execution() for _ in range(size)]
        await store.queue.enqueue(TENANT, new)
        tell(*(one.id for one in new))


async def live(store: SqliteStore) -> None:
    """Enqueue, claim and finish, several at once, until killed."""
    worker = await registered(store, lease=3600.0)

    async def produce() -> None:
        while True:
            new = [an_execution() for _ in range(3)]
            await store.queue.enqueue(TENANT, new)
            tell("enqueued", *(one.id for one in new))

    async def consume() -> None:
        while True:
            hands = await claim(store, 10, worker=worker)
            moves = [success(one) for one in hands.executions]
            await store.queue.apply(TENANT, worker=worker, transitions=moves)
            tell("finished", *(one.id for one in hands.executions))

    await asyncio.gather(produce(), produce(), consume(), consume())


async def fill(store: SqliteStore) -> None:
    """Write until the disk is full, as far as this process can tell; then with room again."""
    new = [an_execution(args=f'"{"x" * 20_000}"') for _ in range(8)]
    limit = os.stat(f"{store.db.path}-wal").st_size + 50_000
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    answers = await asyncio.gather(
        *(store.queue.enqueue(TENANT, [one]) for one in new), return_exceptions=True
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    for one, answer in zip(new, answers, strict=True):
        tell("failed" if isinstance(answer, Unavailable) else "enqueued", one.id)
    one = an_execution()
    await store.queue.enqueue(TENANT, [one])
    tell("enqueued", one.id)


async def main(task: str, path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await {"enqueue": enqueue, "live": live, "fill": fill}[task](store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
