"""What a transaction has left to do in runs of workflows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from daybell.errors import Unavailable
from daybell.store import driving
from daybell.store.sqlite import progress
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import RunKey, Transaction


class Advancing(Part):
    """A part of the store whose operations end executions, so that runs go on."""

    async def _go_on(self, runs: Iterable[RunKey]) -> None:
        """Do what a transaction has left to do in runs, if it is not too much. What was asked for
        is done, so nobody is told of it if this fails: then it is left to upkeep.
        """
        with suppress(Unavailable):
            for key in runs:
                for _ in range(driving.ADVANCE_ROUNDS):
                    if not await self._write(lambda tx, key=key: go_on(tx, key)):
                        break


def go_on(tx: Transaction, key: RunKey) -> bool:
    """Do a part of it in a transaction of its own; True: there is more."""
    progress.go_on(tx, key)
    return key in progress.left_to_do(tx)
