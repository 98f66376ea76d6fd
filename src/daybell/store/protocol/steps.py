"""Steps of durable functions, and the events that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.event import Event, NewEvent, Published
from daybell.core.step import NewStep, NodeWait, Step
from daybell.core.view import Page


class Steps(Protocol):
    """What executions have done so far, and what they wait for."""

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        """The steps of an execution, by their place. An unknown one has none."""
        ...

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        """Write these steps in one transaction, and answer what is on record for each now.

        None: the execution is not running under (attempt, lease, worker) any more, and nothing was
        written for it. A step that is on record as done stays as it is, and is answered so; one
        that is not is replaced, but for its beginning: `started_at`, and the `wake_at` of a sleep
        or a wait.

        A sleep is done at once; its `wake_at` is the store's now and its delay. A wait is done if
        an event fits that was received since the execution was created, in the time of the wait,
        and that no other wait of it got, the oldest of those; its result is
        `core.event.result_of` it. Otherwise it is open until an event fits or its time is over
        (done, without a result). Whatever ends a wait of an execution that runs or can be claimed
        closes its others: each attempt records the waits that it comes to anew, also those it finds
        on record as not done, before it moves to `waiting`.

        Raises UsageError for a step that cannot be kept, with nothing written: who sends those of
        several executions asks `core.step.check_step` before.
        """
        ...

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        """Keep an event, and let go on what waits for it, in one transaction.

        One with the same source and id that is on record changes nothing (`created=False`). The
        results of the waits that it fits are written, also of executions that still run or are
        anywhere else on their way; those that are `waiting` for an event become `queued`, and
        workers are woken. Each execution gets it for one wait, the first in its order. With
        `execution`, only that one gets it; an unknown one raises ExecutionNotFound, and one that
        has ended keeps it for nothing. Events are kept for `EVENT_SECONDS_KEPT`.
        Raises UsageError for one that cannot be kept.
        """
        ...

    async def time_out_waits(self, *, limit: int = 1000) -> int:
        """End the waits of all tenants whose time is over, without a result, and let their
        executions go on. At most so many a call; answers how many. `expire` does the same in
        passing, so that who calls that need not call this; and `lost` says whether there are any.
        """
        ...

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        """The events that nodes of a run wait for now, by their executions: also the items of
        mapped nodes, and nodes of runs inside. With `event`, those that it would end; the limit
        counts only these.

        The cost is that of the nodes that have begun and not ended.
        """
        ...

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        """Events on record, those that came last first."""
        ...
