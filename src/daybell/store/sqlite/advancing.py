"""What a transaction has left to do in runs of workflows."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from daybell.errors import Unavailable
from daybell.store import driving
from daybell.store.sqlite import progress
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import RunKey, Transaction

# Parts of a run that are done as one. A part takes less than ten milliseconds, and a commit may
# take as long; whoever else wants to write waits for both.
TOGETHER: Final = 4


class Advancing(Part):
    """A part of the store whose operations end executions, so that runs go on."""

    async def _go_on(self, runs: Iterable[RunKey]) -> None:
        """Do what a transaction has left to do in runs, and what this leaves in others in its turn,
        if it is not too much for each of them. What was asked for is done, so nobody is told of it
        if this fails: then it is left to upkeep.
        """
        todo = dict.fromkeys(runs)
        done: Counter[RunKey] = Counter()  # parts of each run
        with suppress(Unavailable):
            while todo:
                key = next(iter(todo))
                del todo[key]
                parts = min(TOGETHER, driving.ADVANCE_ROUNDS - done[key])
                if parts > 0:
                    done[key] += parts
                    todo |= dict.fromkeys(await self._go_on_with(key, parts))

    def _go_on_with(self, key: RunKey, parts: int) -> Future[list[RunKey]]:
        return self._write(lambda tx: go_on(tx, key, parts))


def go_on(tx: Transaction, key: RunKey, parts: int = 1) -> list[RunKey]:
    """Do so many parts of it in a transaction of its own; answers the runs in which there is more
    to do: this one, those inside it, or those around it.
    """
    progress.go_on(tx, key, parts=parts)
    return progress.left_to_do(tx, key[0])
