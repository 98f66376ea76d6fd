"""How much a tenant may use.

Nobody else writes meanwhile, so what is counted stays true until the commit. A tenant without
quotas pays for one look at its row per transaction.
"""

from __future__ import annotations

from math import inf
from typing import Final

from daybell.core.tenant import Quotas
from daybell.store.quotas import (
    JOBS_WAIT_SECONDS,
    QUEUED_WAIT_SECONDS,
    exceeded,
    minute_of,
    rest_of_minute,
)
from daybell.store.sqlite.names import Transaction

_LAST: Final = "SELECT ifnull(max(n), 0) FROM execution"
# What a transaction creates has higher numbers than all that was there.
_MADE: Final = "SELECT count(*) FROM execution WHERE n > ? AND +tenant = ? AND state <= 5"
_UNFINISHED: Final = """
SELECT count(*) FROM (
    SELECT 1 FROM execution WHERE state <= 3 AND lane IN (SELECT n FROM lane WHERE tenant = ?1)
    UNION ALL SELECT 1 FROM execution WHERE state = 4 AND +tenant = ?1
    UNION ALL SELECT 1 FROM execution WHERE state = 5 AND +tenant = ?1
    LIMIT ?2)
"""
_COUNT: Final = """
INSERT INTO tenant_minute (tenant, minute, enqueued) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET enqueued = enqueued + excluded.enqueued
"""
_COUNTED: Final = "SELECT enqueued FROM tenant_minute WHERE tenant = ? AND minute = ?"


class Meter:
    """Counts what a tenant with quotas creates in an operation, from here on."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._quotas = tx.names.quotas(tx, owner)
        self._is_idle = not self._quotas.limits_enqueues
        self._last = 0 if self._is_idle else tx.execute(_LAST).fetchone()[0]

    def charge(self, tenant: str, *, is_refused: bool = True) -> None:
        """Count what was made, and refuse it if that is too many. Ticks are only counted."""
        if self._is_idle:
            return
        tx, owner, quotas = self._tx, self._owner, self._quotas
        (made,) = tx.execute(_MADE, (self._last, owner)).fetchone()
        if made == 0:
            return
        if is_refused and quotas.queued is not None:
            (found,) = tx.execute(_UNFINISHED, (owner, quotas.queued + 1)).fetchone()
            if found > quotas.queued:
                raise exceeded(tenant, "queued", most=quotas.queued, wait=QUEUED_WAIT_SECONDS)
        if quotas.per_minute is None:
            return
        minute = owner, minute_of(tx.now)
        tx.execute(_COUNT, (*minute, made))
        (counted,) = tx.execute(_COUNTED, minute).fetchone()
        if is_refused and counted > quotas.per_minute:
            wait = rest_of_minute(tx.now)
            raise exceeded(tenant, "per_minute", most=quotas.per_minute, wait=wait)


def queued_room(tx: Transaction, owner: int) -> float:
    """How many more unfinished executions a tenant may have."""
    most = tx.names.quotas(tx, owner).queued
    return inf if most is None else most - tx.execute(_UNFINISHED, (owner, most)).fetchone()[0]


# A workflow that waits for its nodes is in nobody's hands.
_RUNNING: Final = """
SELECT count(*) FROM (SELECT 1 FROM execution
                       WHERE state = 5 AND worker IS NOT NULL AND +tenant = ? LIMIT ?)
"""


def room(tx: Transaction, owner: int, limit: int) -> int:
    """How many of these may be claimed."""
    most = tx.names.quotas(tx, owner).running
    if most is None:
        return limit
    (running,) = tx.execute(_RUNNING, (owner, most)).fetchone()
    return min(limit, most - running)


_JOBS: Final = "SELECT count(*) FROM job WHERE tenant = ? AND is_deleted = 0"


class JobMeter:
    """The same for jobs."""

    def __init__(self, tx: Transaction, owner: int) -> None:
        self._tx = tx
        self._owner = owner
        self._quotas: Quotas = tx.names.quotas(tx, owner)
        self._before = 0 if self._quotas.jobs is None else self._count()

    def check(self, tenant: str) -> None:
        """Refuse jobs that are one too many."""
        most = self._quotas.jobs
        if most is not None and self._count() > max(most, self._before):
            raise exceeded(tenant, "jobs", most=most, wait=JOBS_WAIT_SECONDS)

    def _count(self) -> int:
        return self._tx.execute(_JOBS, (self._owner,)).fetchone()[0]
