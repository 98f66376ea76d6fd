"""The schedules port: cursors, ticks, and dependencies between jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.schedule import (
    Dependents,
    Due,
    Ended,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    TickRecord,
    Upstream,
)
from daybell.core.units import Instant, Seconds


class Schedules(Protocol):
    """Cursors and ticks."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        """Create or replace these schedules, all or nothing; counts and last firing are kept.
        One of a paused job is paused. One with `own_gate` has a gate of its own,
        `core.schedule.gate_of(job, id)`; `retain` removes it some time after the schedule.
        Wakes who waits for a schedule. Raises JobNotFound.
        """
        ...

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        """Remove schedules; their ticks stay on record. Answers how many there were."""
        ...

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        """Schedules of a tenant, or of one of its jobs, by id. With `ids`, those of them that there
        are; the cost does not depend on how many others the job has.
        """
        ...

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        """Schedules of any tenant whose cursor has come, earliest first, and when the next one
        will be due. Locks nothing: `fire` finds out who was first. With `free`, what somebody
        else has in his hands just now is left out, which costs more. With `after`, only those that
        come after that one in this order.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance each schedule whose cursor still is `expect`, recording its ticks and
        creating their executions with it.

        True for those that were advanced here; False: somebody else did, or has it in his hands
        just now, or it is paused or gone, and nothing was written for it. Nobody is waited for.
        False, too, if a missed tick of it is on record already, as when the cursor was set back:
        the range that it stands for would be lost, so it has to begin after what is on record.
        Cursor, tick and execution of one firing are one transaction. A tick that is on record
        already creates no execution. One whose execution is not let in by the job's overlap rule
        is recorded as skipped, and so is the execution; a fixed delay then begins anew.
        """
        ...

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        """Set the next time of fixed delays that wait for the end of an execution which is not
        there: the sweep behind `apply`. Answers how many.
        """
        ...

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        """Schedules that are not paused and whose cursor was set while the store's clock was ahead
        of now by more than `by`. By id, from the one after `after` on.
        """
        ...

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        """Set back each cursor that still is `expect`, and take its missed ticks after `now` off
        the record and out of the counts. Ticks that were fired or skipped stay on record. Wakes
        schedulers. True for each that was set back.
        """
        ...

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        """Let the job's schedules fire no more until it is resumed; it can still be enqueued. A
        paused one gets the new note. Raises JobNotFound.
        """
        ...

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        """Let a paused job's schedules fire again, once these have gone on from where they stood:
        nothing that came due in the meantime fires unless `firings` say so. Those that `fire`
        would not advance, though resumed, are left alone. Raises JobNotFound.
        """
        ...

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        """The ticks on record of one schedule, newest first."""
        ...

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        """Executions of a schedule for ticks from `since` to `until`, both included: by tick,
        then in the order they were created.
        """
        ...


# Dependencies: what waits for other jobs, and how those stand.


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
        ended, of which there are `core.schedule.LOOKED_AT_MAX`; but not by who asks
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
