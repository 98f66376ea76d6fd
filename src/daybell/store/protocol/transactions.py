"""Transactions of tasks: what a task writes itself, committed with its end or not at all."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

from daybell.core.lifecycle import Transition


class TaskTransaction(Protocol):
    """A transaction that a running task writes in, on a connection of its own."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the task to use."""
        ...

    async def finish(self, tenant: str, *, worker: UUID, move: Transition) -> bool:
        """Make this move to `succeeded` and commit, both or neither. False: the move cannot be made
        any more, or cancelling was requested; nothing is written. Raises Unavailable if nobody can
        tell.
        """
        ...

    async def close(self) -> None:
        """Undo everything, unless it was committed, and let go of the connection."""
        ...


class Transactions(Protocol):
    """See above."""

    async def begin(self, worker: UUID) -> TaskTransaction:
        """Begin a transaction for a task of this worker. It ends with the worker's lease: when the
        worker is declared dead, what it wrote is undone and its locks are free. Raises UsageError
        where the store has no transaction to give.
        """
        ...
