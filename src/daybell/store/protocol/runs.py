"""Runs of workflows: graphs of executions that wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.execution import AttemptSpan, Claimed, Enqueued, NewExecution
from daybell.core.run import Plan, RunDetail


class Runs(Protocol):
    """What a workflow's execution consists of, once it has begun.

    A run that was expanded is running in nobody's hands: it has no worker and no lease, and ends
    with its last node. Its nodes' executions have it as `parent` and their label as `node`. However
    one of them ends (`apply`, `cancel`, `expire`, …), the same transaction takes the run's lock,
    drives `core.progress.advance`, and writes what that answers: children that can start are
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
