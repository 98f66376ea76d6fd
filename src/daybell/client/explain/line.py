"""The line of due executions: holders of a gate, the nearest worker, and the rate of starts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from uuid import UUID

import msgspec

from daybell.client.context import ClientContext
from daybell.client.workers import site_of
from daybell.core.execution import Execution
from daybell.core.job import JobDefinition
from daybell.core.job_request import task_of
from daybell.core.monitoring.stats import MINUTE, StatQuery, total_of
from daybell.core.placement import split_needs
from daybell.core.units import Instant, to_iso
from daybell.core.views import ExecutionFilter
from daybell.core.worker import Worker, WorkerState
from daybell.errors import AccessDenied, NotFound

RATE_SECONDS: Final = 10 * MINUTE  # starts of so long a time make the rate


class NearestWorker(msgspec.Struct, frozen=True):
    """The live worker that comes closest to the needs of an execution."""

    worker: Worker
    lacks: tuple[str, ...]  # in sentences; empty: it can take the execution


def find_nearest_worker(
    workers: Iterable[Worker], *, queue: str, needs: str, task: str | None, now: Instant
) -> NearestWorker | None:
    """Return the worker that lacks least; of several, the one with most room."""
    live = [one for one in workers if one.lease_until > now and one.state is not WorkerState.DEAD]
    found = [NearestWorker(one, _list_lacks(one, queue, needs, task)) for one in live]
    return min(
        found,
        key=lambda one: (len(one.lacks), one.worker.used - one.worker.capacity, one.worker.id),
        default=None,
    )


def _list_lacks(worker: Worker, queue: str, needs: str, task: str | None) -> tuple[str, ...]:
    lacks: list[str] = []
    if queue not in worker.queues:
        lacks.append(f"it does not take queue {queue!r}")
    capability, demands = split_needs(needs)
    if capability not in worker.kinds:
        kind, _, connection = capability.partition(":")
        known = f"does not know the connection {connection!r}" if connection else ""
        lacks.append(f"it {known or f'does not run jobs of the kind {kind!r}'}")
    elif task is not None and worker.tasks is not None and task not in worker.tasks:
        lacks.append(f"its app has no task {task!r}")
    lacks += [f"it has no {one}" for one in site_of(worker).lacks(demands)]
    if worker.state is WorkerState.DRAINING:
        lacks.append("it is draining")
    if worker.used >= worker.capacity:
        others = ", with those of other tenants" if worker.is_shared else ""
        lacks.append(f"it is full ({worker.used} of {worker.capacity}{others})")
    return tuple(lacks)


def task_name(definition: JobDefinition | None) -> str | None:
    """Return the task that a worker's app must have; None: the job runs none, or is unknown."""
    if definition is None or definition.kind != "task":
        return None
    return task_of(definition) or definition.name


async def load_holders(client: ClientContext, ids: Iterable[UUID]) -> tuple[Execution, ...]:
    """Load the executions that hold a gate, oldest first."""
    where = ExecutionFilter(ids=frozenset(ids))
    if not where.ids:
        return ()
    page = await client.store.catalog.list_executions(client.tenant, where, limit=len(where.ids))
    return tuple(sorted(page.items, key=lambda one: one.id))


async def start_rate(client: ClientContext, queue: str, now: Instant) -> float | None:
    """Return the starts of a queue per second, by the statistics of the last minutes. None: there
    were none, or the key may not read them.
    """
    until = now // MINUTE * MINUTE + MINUTE
    query = StatQuery(queue=queue, since=until - RATE_SECONDS, until=until, step=MINUTE)
    with suppress(AccessDenied, NotFound):
        rows = await client.store.catalog.read_stats(client.tenant, query, with_unfinished=False)
        started = total_of(rows).value("started")
        return started / RATE_SECONDS if started else None
    return None


def describe_lease(worker: Worker, now: Instant) -> str:
    """Describe how long ago a worker was heard from, and until when its lease lasts."""
    ago = max(0.0, now - worker.renewed_at)
    return f"heard from {ago:.0f} s ago, its lease lasts until {to_iso(worker.lease_until)}"


def is_silent(worker: Worker, now: Instant) -> bool:
    """Return True if a worker has missed a renewal: it renews each third of its lease."""
    lease = worker.lease_until - worker.renewed_at
    return now - worker.renewed_at > lease * 2 / 3
