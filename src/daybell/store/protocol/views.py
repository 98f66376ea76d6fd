"""What people look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.execution import Execution, ExecutionDetail
from daybell.core.standing import Look
from daybell.core.view import Activity, Counts, ExecutionFilter, Page, Queue


class Views(Protocol):
    """What people look at. One statement each, so a page is consistent in itself."""

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        """One execution with its ended attempts. Raises ExecutionNotFound."""
        ...

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        """Executions by id, newest first. Whatever happens between two pages, nothing that was
        there all along is missed or shown twice. Arguments, results and checkpoints of more than
        LIST_VALUE_BYTES_MAX bytes are left out (`truncated`), and are not read. A page ends at
        PAGE_BYTES_MAX bytes, with one execution at least. Raises UsageError for a cursor that is
        none of ours.

        A page reads no more than SCAN_ITEMS_MAX executions of a kind: unfinished ones, dead
        letters, or those that ended in one state, of the job, schedule, parent or tenant. If few of
        them fit the filter, it is short or empty, and has a cursor. Only the memory store reads to
        the end. With `where.content`, a page is the result of one scan of SCAN_ITEMS_MAX executions
        at most, those of the other conditions, with their arguments and errors as a whole.
        """
        ...

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        """Count executions by state; states without any are left out. Raises UsageError for a
        filter by content.

        A count reads no more than COUNT_ITEMS_MAX executions of a kind, the newest. If there are
        more, the numbers of their states are lower bounds: `Counts.at_least`. The memory store
        counts all.
        """
        ...

    async def look_at_jobs(self, tenant: str, names: Sequence[str]) -> dict[str, Look]:
        """What the jobs of these names do now, all at one moment; deleted ones too. Names that
        never were a job's are left out.

        The cost is that of the jobs asked for, not of what they have ever run. So of a job with
        very many unfinished executions only the newest thousand are looked at, and all that run.
        Large values of the last execution and of schedules are left out, as in lists.
        """
        ...

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        """The ids of the jobs of these names; of deleted ones too. Names that never were a job's
        are left out.
        """
        ...

    async def list_queues(self, tenant: str) -> list[Queue]:
        """Queues that have work, or were paused, or are a job's, by name. A number above
        COUNT_ITEMS_MAX is a lower bound: `Queue.at_least`. The memory store counts all.
        """
        ...

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        """How much was enqueued and has failed since an earlier answer; without one, nothing.

        It reads only what is about as young as that answer, however long the history. What was
        enqueued is found by the times in the ids. One that is seen more than ten seconds after
        its id was made, by the store's clock, is missed. Dead letters that were decided on
        meanwhile do not count.
        """
        ...
