"""A leader that SIGKILL ends at one of its awaits: python -m tests.store.leader KIND URL.

It reads numbers from its input. For each, a fork evaluates the alert rules and enqueues the
outgoing events once, and ends itself at that await. It prints 1 if the fork was killed, 0 if it had
less awaits and came to its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

from daybell.core.ids import mint
from daybell.core.views import SweepKind
from daybell.engine.alerts import Alerts
from daybell.engine.upkeep import Outbox
from tests.stores import connect


class Ending:
    """A coroutine, until SIGKILL at its await of this number."""

    def __init__(self, coroutine: Any, number: int) -> None:
        self._coroutine = coroutine
        self._left = number

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        sent = None
        while True:
            try:
                future = steps.send(sent)
            except StopIteration as end:
                return end.value
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            sent = yield future


async def lead(kind: str, url: str, number: int) -> None:
    store = connect(kind, url)
    await store.open()
    await Ending(work(store), number)
    await store.close()


async def work(store: Any) -> None:
    await Alerts(store, mint=mint).tick()
    await store.upkeep(sweeps=(SweepKind.FOLD,))
    await Outbox(store, mint=mint).tick()


def main() -> None:
    kind, url = sys.argv[1:]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(lead(kind, url, int(line)))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            sys.exit("a leader has failed; its error is above")
        sys.stdout.write(f"{int(os.WIFSIGNALED(status))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
