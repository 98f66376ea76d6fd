"""A publisher that SIGKILL ends at one of its statements: python -m tests.store.publisher KIND URL.

It reads pairs of a number and an id from its input. For each, a fork publishes an event with that
id, and ends itself at the await of that number, or, on SQLite, before the statement of that number.
It prints 1 if the fork was killed, 0 if it came to its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any, cast

from daybell.store.sqlite.transaction import Transaction
from tests.builders import TENANT, an_event
from tests.store.leader import Ending
from tests.stores import connect


def end_at_statement(number: int) -> None:
    """Have this process end before the statement of this number."""
    left, begin = number, Transaction.__init__

    def counted(run: Any) -> Any:
        def call(*args: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return run(*args)

        return call

    def begun(tx: Transaction, *args: Any) -> None:
        begin(tx, *args)
        tx.execute, tx.executemany = counted(tx.execute), counted(tx.executemany)

    Transaction.__init__ = cast(Any, begun)


async def publish(kind: str, url: str, number: int, id: str) -> None:
    store = connect(kind, url)
    await store.open()
    work = store.runs.publish(TENANT, an_event("paid", id=id))
    if kind.startswith("postgres"):
        await Ending(work, number)
    else:
        end_at_statement(number)
        await work
    await store.close()


def main() -> None:
    kind, url = sys.argv[1:]
    for line in sys.stdin:
        number, id = line.split()
        pid = os.fork()
        if pid == 0:
            asyncio.run(publish(kind, url, int(number), id))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{int(os.WIFSIGNALED(status))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
