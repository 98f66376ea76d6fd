"""Dependencies: what waits for other jobs, and how those stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.dependencies import Dependents, Ended, Upstream
from daybell.core.instant import Instant


class Dependencies(Protocol):
    """Jobs that depend on jobs. Only executions of the job itself count, not those of the nodes of
    a workflow, and not what its overlap rule has skipped.
    """

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        """What may be ready, of any tenant: schedules that fire after others and are not paused,
        and executions that wait for dependencies and whose time has come. At most `limit` of
        each, by id, beginning after this one. Locks nothing.
        """
        ...

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        """What has ended of each job since then. Of one that does not exist, nothing has.

        A success may be overlooked that is not among the newest executions of the job that have
        ended, of which there are `core.dependencies.LOOKED_AT_MAX`; but not by who asks
        `thoroughly`, for which all may be read that the job has done since.
        """
        ...

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        """How each job stood at a time: the latest of its executions that were due by then.

        One of a schedule was due at its tick. Any other was due when it could be claimed first;
        once that attempt has ended, when it was created. Of two that were due at the same time,
        the one counts that was created later. If an unfinished one is later than all that have
        ended, the state is that of any such. A job that was deleted has no execution.
        """
        ...

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Let these begin, if they still wait for dependencies: they can be claimed, or wait only
        for a slot of their gate now. Answers how many there were.
        """
        ...

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Skip these, if they still wait for dependencies. Answers how many there were."""
        ...
