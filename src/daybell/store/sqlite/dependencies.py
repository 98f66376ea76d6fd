"""Jobs that depend on jobs: what waits, and how the others stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.dependencies import (
    DEPENDENCIES,
    LOOKED_AT_MAX,
    UPSTREAM_FAILED,
    Dependent,
    Dependents,
    Ended,
    Upstream,
    Waiting,
    read_fields,
)
from daybell.core.execution import State
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP
from daybell.store.checks import check_limit
from daybell.store.codes import STATES
from daybell.store.sqlite import endings
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.endings import LINKS, Links
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.schedules import SCHEDULE_SQL, read_schedule


class SqliteDependencies(Part):
    """See `protocol.Dependencies`."""

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        check_limit(limit)
        return await self._read(lambda tx: dependents(tx, limit, after))

    async def ended_since(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Ended]:
        return await self._read(lambda tx: [ended_since(tx, tenant, *one) for one in jobs])

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        return await self._read(lambda tx: [upstream(tx, tenant, *one) for one in jobs])

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await self._write(lambda tx: release(tx, tenant, ids))

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await self._write(lambda tx: rule_out(tx, tenant, ids))


_SCHEDULES: Final = f"""
{SCHEDULE_SQL} WHERE s.since IS NOT NULL AND s.is_paused = 0 AND s.id > ? AND j.is_deleted = 0
 ORDER BY s.id LIMIT ?
"""
_DEFINITION: Final = """
SELECT v.definition FROM job j JOIN job_version v ON v.n = j.version
 WHERE j.tenant = ? AND j.name = ?
"""
_WAITING: Final = f"""
SELECT e.tenant, e.id, j.name, ifnull(e.scheduled_for, e.run_at), v.definition
  FROM execution e JOIN job j ON j.n = e.job JOIN job_version v ON v.n = j.version
 WHERE e.state = 4 AND e.reason = '{DEPENDENCIES}' AND e.id > ? AND e.run_at <= ?
 ORDER BY e.id LIMIT ?
"""


def dependents(tx: Transaction, limit: int, after: UUID | None) -> Dependents:
    first = b"" if after is None else after.bytes
    schedules: list[Dependent] = []
    for row in tx.execute(_SCHEDULES, (first, limit)).fetchall():
        one = read_schedule(tx, row)
        fields = read_fields(tx.execute(_DEFINITION, (row[0], one.job)).fetchone()[0])
        schedules.append(
            Dependent(
                schedule=one,
                dependencies=fields.dependencies,
                on_failure=fields.on_dependency_failure,
            )
        )
    waiting: list[Waiting] = []
    for owner, id, job, at, text in tx.execute(_WAITING, (first, tx.now, limit)).fetchall():
        fields = read_fields(text)
        waiting.append(
            Waiting(
                tenant=tx.names.tenant_name(tx, owner),
                id=UUID(bytes=id),
                job=job,
                at=at,
                dependencies=fields.dependencies,
                on_failure=fields.on_dependency_failure,
            )
        )
    return Dependents(now=tx.now, schedules=tuple(schedules), waiting=tuple(waiting))


_JOB: Final = "SELECT n FROM job WHERE tenant = ? AND name = ? AND is_deleted = 0"


def find_job(tx: Transaction, tenant: str, name: str) -> int | None:
    row = tx.execute(_JOB, (tx.names.tenant(tx, tenant), name)).fetchone()
    return row[0] if row else None


# The newest of a job, one by one: whoever finds what he looks for reads no further. Skipped by the
# job's overlap rule is what does not count; another execution was in its way.
_COUNTS: Final = f"node IS NULL AND NOT (state = 9 AND reason IS '{OVERLAP}')"
_NEWEST_ENDED: Final = f"""
SELECT id, state, finished_at, {{due}} AS due FROM execution
 WHERE job = ?1 AND state > 5 AND {_COUNTS} ORDER BY id DESC LIMIT {LOOKED_AT_MAX}
"""
_NEWEST_LIVE: Final = f"""
SELECT id, state, NULL, {{due}} AS due FROM execution
 WHERE job = ?1 AND state <= 5 AND node IS NULL ORDER BY id DESC LIMIT {LOOKED_AT_MAX}
"""
# When it was to begin. Once an attempt has ended, only its creation tells.
_DUE: Final = "ifnull(scheduled_for, iif(attempt = 1, run_at, created_at))"
_ENDED: Final = f"""
SELECT finished_at, state FROM ({_NEWEST_ENDED.format(due="NULL")}) WHERE finished_at > ?2 LIMIT 1
"""
_SUCCEEDED: Final = f"""
SELECT finished_at FROM ({_NEWEST_ENDED.format(due="NULL")})
 WHERE finished_at > ?2 AND state = 6 LIMIT 1
"""


def ended_since(tx: Transaction, tenant: str, job: str, since: Instant) -> Ended:
    n = find_job(tx, tenant, job)
    ended = None if n is None else tx.execute(_ENDED, (n, since)).fetchone()
    if ended is None:
        return Ended()
    succeeded = tx.execute(_SUCCEEDED, (n, since)).fetchone()
    return Ended(
        succeeded_at=succeeded[0] if succeeded else None,
        ended_at=ended[0],
        state=STATES[ended[1]],
    )


_LATEST: Final = f"""
SELECT state FROM (
    SELECT * FROM ({_NEWEST_ENDED.format(due=_DUE)})
     UNION ALL
    SELECT * FROM ({_NEWEST_LIVE.format(due=_DUE)}))
 WHERE due <= ?2 ORDER BY due DESC, id DESC LIMIT 1
"""
_HAS_NEWER: Final = f"""
SELECT 1 FROM ({_NEWEST_ENDED.format(due=_DUE)}) WHERE due > ?2 AND state = 6 LIMIT 1
"""
_IS_BEHIND: Final = """
SELECT 1 FROM schedule WHERE job = ? AND next_at <= ? AND next_at IS NOT NULL AND is_paused = 0
"""


def upstream(tx: Transaction, tenant: str, job: str, at: Instant) -> Upstream:
    n = find_job(tx, tenant, job)
    if n is None:
        return Upstream()
    latest = tx.execute(_LATEST, (n, at)).fetchone()
    return Upstream(
        state=STATES[latest[0]] if latest else None,
        has_newer_success=tx.execute(_HAS_NEWER, (n, at)).fetchone() is not None,
        is_behind=tx.execute(_IS_BEHIND, (n, at)).fetchone() is not None,
    )


# One at a gate has no slot yet, or it has one: see `gates.admit`.
_IS_OF_JOB: Final = "(SELECT g.name FROM gate g WHERE g.n = execution.gate) GLOB 'job:*'"
_RELEASE: Final = f"""
UPDATE execution
   SET state = iif(slot IS 0, 4, 1),
       reason = iif(slot IS 0, iif({_IS_OF_JOB}, '{OVERLAP}', 'gate'), NULL)
 WHERE tenant = ? AND id = ? AND state = 4 AND reason = '{DEPENDENCIES}'
"""


def release(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    rows = [(owner, id.bytes) for id in ids]
    return tx.executemany(_RELEASE, rows).rowcount if rows else 0


_STILL_WAITING: Final = f"""
SELECT n, {LINKS} FROM execution
 WHERE tenant = ? AND id = ? AND state = 4 AND reason = '{DEPENDENCIES}'
"""


def rule_out(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner, count = tx.names.tenant(tx, tenant), 0
    for id in ids:
        row = tx.execute(_STILL_WAITING, (owner, id.bytes)).fetchone()
        if row is not None:
            n, *links = row
            endings.end(tx, n, Links(*links), State.SKIPPED, UPSTREAM_FAILED)
            count += 1
    return count
