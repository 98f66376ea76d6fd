"""How much a tenant may use."""

from __future__ import annotations

from math import inf

from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.instant import Instant
from daybell.store.memory.tables import Tables
from daybell.store.quotas import (
    JOBS_WAIT_SECONDS,
    QUEUED_WAIT_SECONDS,
    exceeded,
    minute_of,
    rest_of_minute,
)


def unfinished(tables: Tables, tenant: str) -> int:
    """How many executions a tenant has that have not ended."""
    rows = (row.execution for row in tables.live.values())
    return sum(one.tenant == tenant and one.state not in TERMINAL for one in rows)


def charge(
    tables: Tables, tenant: str, made: int, now: Instant, *, is_refused: bool = True
) -> None:
    """Count executions that were made just now, and refuse them if that is too many. Ticks of
    schedules are only counted.
    """
    quotas = tables.tenants[tenant].quotas
    if made == 0:
        return
    if is_refused and quotas.queued is not None and unfinished(tables, tenant) > quotas.queued:
        raise exceeded(tenant, "queued", most=quotas.queued, wait=QUEUED_WAIT_SECONDS)
    if quotas.per_minute is None:
        return
    minute = tenant, minute_of(now)
    tables.minutes[minute] = tables.minutes.get(minute, 0) + made
    if is_refused and tables.minutes[minute] > quotas.per_minute:
        raise exceeded(tenant, "per_minute", most=quotas.per_minute, wait=rest_of_minute(now))


def queued_room(tables: Tables, tenant: str) -> float:
    """How many more unfinished executions a tenant may have."""
    most = tables.tenants[tenant].quotas.queued
    return inf if most is None else most - unfinished(tables, tenant)


def room(tables: Tables, tenant: str, limit: int) -> int:
    """How many of these may be claimed."""
    most = tables.tenants[tenant].quotas.running
    if most is None:
        return limit
    rows = (row.execution for row in tables.live.values())
    # A workflow that waits for its nodes is in nobody's hands.
    running = sum(one.tenant == tenant and is_held(one) for one in rows)
    return max(0, min(limit, most - running))


def is_held(one: Execution) -> bool:
    return one.state is State.RUNNING and one.worker is not None


def count_jobs(tables: Tables, tenant: str) -> int:
    """How many jobs a tenant has that are not deleted."""
    return sum(owner == tenant and not row.is_deleted for (owner, _), row in tables.jobs.items())


def check_jobs(tables: Tables, tenant: str, before: int) -> None:
    """Refuse jobs that are one too many; `before` is how many there were."""
    most = tables.tenants[tenant].quotas.jobs
    after = count_jobs(tables, tenant)
    if most is not None and after > before and after > most:
        raise exceeded(tenant, "jobs", most=most, wait=JOBS_WAIT_SECONDS)
