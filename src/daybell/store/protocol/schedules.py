"""Schedules: cursors and ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.instant import Instant
from daybell.core.schedule import Firing, NewSchedule, Schedule, TickRecord


class Schedules(Protocol):
    """Cursors and ticks."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        """Create or replace these schedules, all or nothing; counts and last firing are kept.
        Raises JobNotFound.
        """
        ...

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Remove schedules; their ticks stay on record. Answers how many there were."""
        ...

    async def list_schedules(self, tenant: str, *, job: str | None = None) -> list[Schedule]:
        """Schedules of a tenant, or of one of its jobs, by id."""
        ...

    async def due_schedules(self, *, limit: int = 1000) -> list[Schedule]:
        """Schedules of any tenant whose cursor has come, earliest first. Locks nothing: `fire`
        finds out who was first.
        """
        ...

    async def next_tick(self) -> Instant | None:
        """When the next schedule of any tenant is due."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule whose cursor still is `expect`, recording its ticks and
        creating their executions with it.

        True for those that were advanced here; False: somebody else did, or it is paused or
        gone, and nothing was written for it. Cursor, tick and execution of one firing are one
        transaction. A tick that is on record already creates no execution.
        """
        ...

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        """The ticks on record of one schedule, newest first."""
        ...
