"""What the client answers, where the store's own answer is not enough."""

from __future__ import annotations

import msgspec

from daybell.core.execution import Enqueued, Execution
from daybell.errors import DuplicateKey


class EnqueuedMany(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to many enqueues at once. What was streamed is counted, but not listed."""

    count: int
    executions: tuple[Enqueued, ...] = ()


def key_held(execution: Execution) -> DuplicateKey:
    return DuplicateKey(
        f"another unfinished execution of {execution.job} holds the unique key of {execution.id};"
        " wait for its end, or cancel it"
    )
