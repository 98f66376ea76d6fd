"""The catalog port: tenants, jobs, queues, logs, and all reading views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.execution import (
    Enqueued,
    Execution,
    ExecutionDetail,
    LogPart,
    NewExecution,
    NewLogPart,
)
from daybell.core.job import Job, JobActivity, NewJob
from daybell.core.views import ALL_JOBS, Activity, Counts, ExecutionFilter, JobFilter, Page, Queue


class Definitions(Protocol):
    """Tenants, jobs and queues: what there is to run."""

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        """Create these tenants; ones that exist are left as they are. Answers those that it has
        created, by name. `default` always exists.
        """
        ...

    async def list_tenants(self) -> tuple[str, ...]:
        """All tenants, by name."""
        ...

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        """Store these definitions and return the current version of each, in the order given;
        all or nothing.

        A new name becomes version 1. An equal definition changes nothing. A different one
        becomes the next version, unless it equals a superseded one and `promote` is not set:
        then the current one stays, which the caller sees from the answer. With a definition that
        becomes the current one, or comes back after the job was deleted, its `schedules` take the
        place of the declared ones that the job has; those with the same id keep their counts.
        Raises VersionConflict where `expect` does not hold. Several callers defining the same job
        at once get the same answer. A deleted job that is defined again lives on under its old id,
        and is what it is defined as, be that superseded.
        """
        ...

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        """Store a definition as `define_jobs` does and create an execution of that job as `enqueue`
        does, both or neither.
        """
        ...

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        """The current version of a job, or the one asked for. Raises JobNotFound; a deleted job
        is not found without a version.
        """
        ...

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        """The current version of the job with this id. Raises JobNotFound; for a deleted one too,
        unless it is asked for.
        """
        ...

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        """Jobs that a filter lets through, by name, with complete definitions. Deleted ones are
        not shown. A page ends at PAGE_BYTES_MAX bytes, with one job at least.
        """
        ...

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        """Versions of a job, newest first; of a deleted one too. A page ends at PAGE_BYTES_MAX
        bytes, with one version at least. Raises JobNotFound.
        """
        ...

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Let the job fire and be enqueued no more: its schedules are gone, its versions and
        executions stay. Raises JobNotFound; VersionConflict if it is not at the version `expect`.
        """
        ...

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue, at once and for all workers. Enqueueing goes on."""
        ...


# What people look at.


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

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
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


# Logs: what tasks said while they ran.


class Logs(Protocol):
    """Parts of logs. They are kept as long as what is finished, also those of dead letters."""

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        """Keep these parts, of executions that `worker` has in hand under these leases: what
        was given to others is not written about. A part that is there already stays as it is.
        """
        ...

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        """Parts in the order of attempt and number, beginning after such a pair. Empty for an
        execution that said nothing or is unknown.
        """
        ...
