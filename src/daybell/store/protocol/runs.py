"""The runs port: workflow runs, steps of durable functions, and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.event import Event, NewEvent, NewStep, NodeWait, Published, Step
from daybell.core.execution import AttemptSpan, Claimed, Enqueued, NewExecution
from daybell.core.views import Page
from daybell.core.workflow.run import Plan, RunDetail


class Runs(Protocol):
    """What a workflow's execution consists of, once it has begun.

    A run that was expanded is running in nobody's hands: it has no worker and no lease, and ends
    with its last node. Its nodes' executions have it as `parent` and their label as `node`. However
    one of them ends (`apply`, `cancel`, `expire`, …), the same transaction takes the run's lock,
    drives `core.workflow.progress.advance`, and writes the changes: children that can start are
    executions from then on, and the last end is the end of the run. Such an execution is no dead
    letter, and holds no unique key.
    """

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        """Begin a run that `worker` holds: keep its nodes and start the first, in one transaction.

        Under the same fence as `apply`: False if it is in other hands by now, and nothing is
        written. Cancelling that was asked for before makes it end as cancelled, here. It
        stays the same attempt, in nobody's hands: no late report of the claim matches any more, and
        neither a repeated claim nor a reaper finds it.

        A run that was revived, or that takes over from another (`rerun`), has its nodes already: it
        goes on with those, and `plan` is not looked at.

        Raises InvalidWorkflow for one that is deeper inside others than WORKFLOW_LEVELS_MAX, and
        writes nothing: it stays in the worker's hands.
        """
        ...

    async def advance(self, tenant: str, run: UUID) -> bool:
        """Do a bounded part of what is left to do in a run; True: there is more."""
        ...

    async def advance_runs(self, *, limit: int = 100) -> int:
        """The same for runs of all tenants whose helpers have gone, a part for each; answers for
        how many. Runs that wait for their tenant's quota go on, too, if it has room; a store may
        leave those out of the answer. For upkeep.
        """
        ...

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        """The nodes of a run in order, without the items of mapped ones; None: it has none (yet).

        A node that has an execution is shown with that one's state.
        """
        ...

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        """The attempts at the nodes of a run, by their executions: of each the newest, oldest
        first, also the one that goes on. Items of mapped nodes are left out; there are too many.

        The cost is that of the nodes that have begun, however long the history is.
        """
        ...

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        """Begin a new run, under the version of an old one that has ended, which starts with these
        nodes and all that depends on them, and takes over the rest. None: those that did not
        succeed. It is enqueued like any execution, and begins when it is claimed and expanded.
        Raises UsageError for a label that is not in it, and for what is no run or has not ended;
        ExecutionNotFound; and what `enqueue` raises.

        A dead run itself goes on with `revive`, which keeps what has succeeded: it is put back to
        be claimed, like any dead letter, and goes on when it is expanded.
        """
        ...


# Steps of durable functions, and the events that they wait for.


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
        several executions asks `core.event.check_step` before.
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
