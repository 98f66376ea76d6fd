"""Dependencies: what waits for other jobs, and how those stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.dependencies import Dependents, Ended, Upstream
from daybell.core.instant import Instant


class Dependencies(Protocol):
    """Jobs that depend on jobs. Only executions of the job itself count, not those of the nodes of
    a workflow, and not what its overlap rule has skipped. Of each job the newest
    `core.dependencies.LOOKED_AT_MAX` that are unfinished, and that have ended, are looked at.
    """

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        """What may be ready, of any tenant: schedules that fire after others and are not paused,
        and executions that wait for dependencies and whose time has come. At most `limit` of
        each, by id, beginning after this one. Locks nothing.
        """
        ...

    async def ended_since(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Ended]:
        """What has ended of each job since then. Of one that does not exist, nothing has."""
        ...

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        """How each job stood at a time: the latest of its executions that were due by then.

        One of a schedule was due at its tick. Any other was due when it could be claimed first;
        once that attempt has ended, when it was created. Of two that were due at the same time,
        the one counts that was created later. A job that was deleted has no execution.
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
