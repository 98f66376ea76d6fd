"""The fast lane in: very many executions by COPY."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.execution import NewExecution
from daybell.core.instant import Instant
from daybell.errors import DuplicateKey, Unavailable, UsageError
from daybell.store import checks
from daybell.store.postgres.connection import Link
from daybell.store.postgres.enqueue import Enqueueing
from daybell.store.postgres.specs import Spec, Specs
from daybell.store.postgres.timeouts import Pace

COPY_ROWS: Final = 5_000
LOAD_COLUMNS: Final = [
    "tenant",
    "id",
    "job",
    "version",
    "lane",
    "priority",
    "state",
    "created_at",
    "run_at",
    "args",
    "retries",
    "timeout",
    "scheduled_for",
    "expires_at",
    "schedule",
    "parent",
]
LOADED_BEFORE: Final = (
    "some of these executions exist already: an earlier load of them was committed"
)
AGENDA_COLUMNS: Final = ("run_at", "lane", "priority", "id")


class Loading(Enqueueing):
    """Loads."""

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        with self.db.at_pace(Pace.LOAD):
            return await self._load(tenant, executions)

    async def _load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        source = iter(executions)
        loaded, heads = 0, list[NewExecution]()
        chunk = list(islice(source, COPY_ROWS))
        specs = await self.resolve(tenant, chunk)
        is_limited = (await self.quotas(specs.tenant)).limits_enqueues
        try:
            async with self.db.transaction() as link:
                while chunk:
                    for position, execution in enumerate(chunk, loaded):
                        rule = specs.of(execution).rule(execution)
                        checks.check_loadable(execution, position, overlap=rule)
                    await self._copy(link, specs, chunk)
                    loaded += len(chunk)
                    heads.append(chunk[0])
                    chunk = list(islice(source, COPY_ROWS))
                    if not specs.cover(chunk):
                        specs = await self.resolve(tenant, chunk)
                # A load is all or nothing, so the first of each chunk stands for the others.
                if await self.finished(link, specs, heads):
                    raise DuplicateKey(LOADED_BEFORE)
                if is_limited:
                    await self.charge(link, specs.tenant, loaded)
        except UsageError as error:
            if isinstance(error.__cause__, asyncpg.UniqueViolationError):
                raise DuplicateKey(LOADED_BEFORE) from error
            raise
        self.notifier.touch(specs.tenant, specs.queues)
        return loaded

    # Locked, so that no new version comes in while the rows are on their way.
    LOCK_VERSIONS = """
    SELECT daybell.now() AS now, count(*) AS current
      FROM (SELECT FROM daybell.job j JOIN unnest($1::int[], $2::int[]) u(key, version)
                ON j.key = u.key AND j.version = u.version AND j.deleted_at IS NULL
               FOR SHARE OF j) j
    """

    async def _copy(self, link: Link, specs: Specs, executions: list[NewExecution]) -> None:
        jobs = {spec.job.key: spec.job.version for spec in specs.found.values()}
        locked = await link.fetchrow(self.LOCK_VERSIONS, list(jobs), list(jobs.values()))
        assert locked is not None
        if locked["current"] != len(jobs):
            raise Unavailable("a job was changed while its executions were loaded; try again")
        rows = [
            _load_row(execution, specs.of(execution), locked["now"]) for execution in executions
        ]
        await link.copy_records_to_table(
            "live", schema_name="daybell", columns=LOAD_COLUMNS, records=rows
        )
        await link.copy_records_to_table(
            "agenda",
            schema_name="daybell",
            columns=AGENDA_COLUMNS,
            records=((row[8], row[4], row[5], row[1]) for row in rows),
        )


def _load_row(execution: NewExecution, spec: Spec, now: Instant) -> tuple[object, ...]:
    """An execution as LOAD_COLUMNS name it."""
    e, job = execution, spec.job
    run_at = now
    if e.at is not None:
        run_at = max(now, e.at)
    elif e.delay is not None:
        run_at = now + e.delay
    expires_in = job.expires if e.expires_in is None else e.expires_in
    return (
        spec.tenant,
        e.id,
        job.key,
        job.version,
        spec.lane,
        job.priority if e.priority is None else e.priority,
        2 if run_at > now else 1,
        now,
        run_at,
        e.args,
        e.retries,
        e.timeout,
        e.scheduled_for,
        None if expires_in is None else run_at + expires_in,
        e.schedule,
        e.parent,
    )
