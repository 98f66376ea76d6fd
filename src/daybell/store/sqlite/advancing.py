"""What a transaction has left to do in runs of workflows."""

from __future__ import annotations

from asyncio import Future
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
        """Do what a transaction has left to do in runs, if it is not too much. What was asked for
        is done, so nobody is told of it if this fails: then it is left to upkeep.
        """
        with suppress(Unavailable):
            for key in runs:
                left = driving.ADVANCE_ROUNDS
                while left > 0 and await self._go_on_with(key, min(left, TOGETHER)):
                    left -= TOGETHER

    def _go_on_with(self, key: RunKey, parts: int) -> Future[bool]:
        return self._write(lambda tx: go_on(tx, key, parts))


def go_on(tx: Transaction, key: RunKey, parts: int = 1) -> bool:
    """Do so many parts of it in a transaction of its own; True: there is more."""
    progress.go_on(tx, key, parts=parts)
    return key in progress.left_to_do(tx)
