"""Jobs that depend on jobs: what waits, and how the others stand."""

from __future__ import annotations

import math
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
from daybell.core.instant import Instant
from daybell.core.overlap import OVERLAP
from daybell.store.checks import check_limit
from daybell.store.codes import STATES
from daybell.store.sqlite import endings
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.schedules import SCHEDULE_SQL, read_schedule


class SqliteDependencies(Part):
    """See `protocol.Dependencies`."""

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        check_limit(limit)
        return await self._read(lambda tx: dependents(tx, limit, after))

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        return await self._read(
            lambda tx: [ended_since(tx, tenant, *one, thoroughly=thoroughly) for one in jobs]
        )

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
        schedules.append(Dependent.of(one, fields.dependencies, fields.on_dependency_failure))
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


# Skipped by the job's overlap rule is what does not count; another execution was in its way.
_COUNTS: Final = f"state > 5 AND node IS NULL AND NOT (state = 9 AND reason IS '{OVERLAP}')"
# There is no index by end for what has succeeded: everybody would pay for it. So the newest are
# looked at, and the rest only if asked for. What has failed is found by its end.
_SUCCEEDED: Final = """
SELECT finished_at, id, state FROM (
    SELECT finished_at, id, state FROM execution
     WHERE job = ?1 AND node IS NULL AND state > 5 ORDER BY id DESC LIMIT {limit})
 WHERE state = 6 AND finished_at > ?2 ORDER BY finished_at DESC, id DESC LIMIT 1
"""
_NEWEST_SUCCEEDED: Final = _SUCCEEDED.format(limit=LOOKED_AT_MAX)
_ANY_SUCCEEDED: Final = _SUCCEEDED.format(limit=-1)
_FAILED: Final = f"""
SELECT finished_at, id, state FROM execution INDEXED BY execution_failed
 WHERE job = ?1 AND {_COUNTS} AND state > 6 AND finished_at > ?2
 ORDER BY finished_at DESC, id DESC LIMIT 1
"""


def ended_since(
    tx: Transaction, tenant: str, job: str, since: Instant, *, thoroughly: bool
) -> Ended:
    n = find_job(tx, tenant, job)
    if n is None:
        return Ended()
    failed = tx.execute(_FAILED, (n, since)).fetchone()
    succeeded = tx.execute(_NEWEST_SUCCEEDED, (n, since)).fetchone()
    if succeeded is None and thoroughly:
        succeeded = tx.execute(_ANY_SUCCEEDED, (n, since)).fetchone()
    last = max((one for one in (failed, succeeded) if one is not None), default=None)
    return Ended(
        succeeded_at=succeeded[0] if succeeded else None,
        ended_at=last[0] if last else None,
        state=STATES[last[2]] if last else None,
    )


# When it was to begin. Once an attempt has ended, only its creation tells.
_DUE: Final = "ifnull(scheduled_for, iif(attempt = 1, run_at, created_at))"
# Due at another time than that of its creation. Only these are in the index by due time, so what
# is enqueued to run at once does not pay for it. In this text the index has them, see 0010.
_TIMED: Final = "(scheduled_for IS NOT NULL OR attempt = 1 AND run_at > created_at)"
_LATEST_TIMED: Final = f"""
SELECT {_DUE} AS due, id, state FROM execution INDEXED BY execution_due
 WHERE job = ?1 AND {_COUNTS} AND {_TIMED} AND {_DUE} <= ?2 ORDER BY {_DUE} DESC, id DESC LIMIT 1
"""
# Of those that had no time of their own, the newest; the other one was due at ?3.
_LATEST_PLAIN: Final = f"""
SELECT created_at, id, state FROM execution
 WHERE job = ?1 AND {_COUNTS} AND NOT {_TIMED} AND created_at <= ?2 AND created_at >= ?3
 ORDER BY id DESC LIMIT 1
"""
# Later than the latest that has ended. The unfinished are few: those of all jobs are looked at.
_UNFINISHED: Final = " UNION ALL ".join(
    f"""
SELECT state FROM execution INDEXED BY {index}
 WHERE {states} AND job = ?1 AND node IS NULL AND {_DUE} <= ?2 AND ({_DUE}, id) > (?3, ?4)"""
    for index, states in (
        ("execution_claimable", "state <= 3"),
        ("execution_waiting", "state = 4"),
        ("execution_running", "state = 5"),
    )
)
_HAS_NEWER: Final = f"""
SELECT 1 FROM execution
 WHERE job = ?1 AND node IS NULL AND state = 6 AND finished_at > ?2 AND {_DUE} > ?2 LIMIT 1
"""
_HAS_FAILED: Final = f"""
SELECT 1 FROM execution INDEXED BY execution_failed
 WHERE job = ?1 AND {_COUNTS} AND state > 6 AND finished_at > ?2 AND {_DUE} > ?2 LIMIT 1
"""
_IS_BEHIND: Final = """
SELECT 1 FROM schedule WHERE job = ? AND next_at <= ? AND next_at IS NOT NULL AND is_paused = 0
"""


def upstream(tx: Transaction, tenant: str, job: str, at: Instant) -> Upstream:
    n = find_job(tx, tenant, job)
    if n is None:
        return Upstream()
    timed = tx.execute(_LATEST_TIMED, (n, at)).fetchone() or (-math.inf, b"", None)
    plain = tx.execute(_LATEST_PLAIN, (n, at, timed[0])).fetchone() or timed
    due, id, state = max(timed, plain)
    unfinished = tx.execute(f"{_UNFINISHED} LIMIT 1", (n, at, due, id)).fetchone()
    if unfinished is not None:
        state = unfinished[0]
    is_asked = state is None or state > 6
    return Upstream(
        state=None if state is None else STATES[state],
        has_newer_success=is_asked and tx.execute(_HAS_NEWER, (n, at)).fetchone() is not None,
        has_newer_failure=state is None and tx.execute(_HAS_FAILED, (n, at)).fetchone() is not None,
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


def rule_out(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> int:
    owner = tx.names.tenant(tx, tenant)
    return sum([endings.rule_out(tx, owner, id, UPSTREAM_FAILED) for id in ids])
