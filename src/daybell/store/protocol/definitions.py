"""Tenants, jobs and queues, as every store keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.execution import Enqueued, NewExecution
from daybell.core.job import Job, NewJob
from daybell.core.view import ALL_JOBS, JobFilter, Page


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
