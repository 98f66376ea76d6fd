"""Queues and workers, the workers that can run a job, and an overview with rates."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import (
    ProgressCallback,
    cancel_where,
    count_cancelled,
    ignore_progress,
)
from daybell.client.requests import Id, read_id
from daybell.core.execution import PENDING, Execution
from daybell.core.kinds.settings import PRIVATE
from daybell.core.limits import check_name
from daybell.core.options import DEFAULT_QUEUE
from daybell.core.placement import NO_DEMANDS, Demands, Site, format_amounts, split_needs
from daybell.core.units import Instant
from daybell.core.views import Activity, ExecutionFilter, Queue
from daybell.core.worker import SHARED, STORE_ROLES, Leadership, Worker, WorkerState
from daybell.errors import NotFound

# Queues.


async def queues(client: ClientContext) -> list[Queue]:
    """Queues with their numbers, by name."""
    return await client.store.catalog.list_queues(client.tenant)


async def pause_queue(client: ClientContext, name: str) -> None:
    """Pause a queue until it is resumed. Running executions go on."""
    await client.store.catalog.pause_queue(
        client.tenant, check_name(name, what="queue"), paused=True
    )


async def resume_queue(client: ClientContext, name: str) -> None:
    """Resume a queue: workers claim its executions again."""
    await client.store.catalog.pause_queue(
        client.tenant, check_name(name, what="queue"), paused=False
    )


async def purge_queue(
    client: ClientContext, name: str, *, on_step: ProgressCallback = ignore_progress
) -> int:
    """Cancel all that waits in a queue and was there when this began, nodes of workflows as well;
    return their number.
    """
    queue = check_name(name, what="queue")
    where = ExecutionFilter(queue=queue, states=PENDING, with_nodes=True)
    return count_cancelled(await cancel_where(client, where, on_step))


# Workers.


async def workers(client: ClientContext, *, include_dead: bool = False) -> list[Worker]:
    """Workers, oldest first."""
    return await client.store.catalog.list_workers(client.tenant, include_dead=include_dead)


async def drain_worker(client: ClientContext, id: Id) -> None:
    """Ask a worker to finish its executions, and claim no more."""
    known = read_id(id)
    there = await client.store.catalog.list_workers(client.tenant)
    is_shared = any(one.id == known and one.is_shared for one in there)
    if not await client.store.queue.drain(SHARED if is_shared else client.tenant, known):
        raise NotFound(f"no live worker {id}")


async def leaders(client: ClientContext) -> list[Leadership]:
    """Return the elected leader of each role that serves all tenants, by name. Leaders for one
    tenant are left out: they would show its name to the others.
    """
    return [one for one in await client.store.admin.list_leaders() if one.name in STORE_ROLES]


def find_capable_workers(
    workers: Iterable[Worker], *, queue: str, needs: str, now: Instant
) -> list[Worker]:
    """Return the live workers that take such jobs of a queue."""
    capability, demands = split_needs(needs)
    return [
        one
        for one in find_live_workers(workers, queue=queue, now=now)
        if capability in one.kinds and not site_of(one).lacks(demands)
    ]


def site_of(worker: Worker) -> Site:
    """Return the labels and resources of a worker."""
    return Site(labels=worker.labels, resources=worker.resources)


def describe_nearest(workers: Iterable[Worker], needs: str) -> str | None:
    """Describe the worker that lacks the least of some demands, of those with the capability. None:
    there is no such worker, or no demand.
    """
    capability, demands = split_needs(needs)
    able = [one for one in workers if capability in one.kinds]
    if not able or demands == NO_DEMANDS:
        return None
    nearest = min(able, key=lambda one: len(site_of(one).lacks(demands)))
    lacks = site_of(nearest).lacks(demands)
    return f"the nearest, {nearest.name}, lacks {', '.join(lacks)}" if lacks else None


def find_live_workers(workers: Iterable[Worker], *, queue: str, now: Instant) -> list[Worker]:
    """Return the live workers that take a queue. A killed worker counts as live until a process
    checks its lease.
    """
    return [
        one
        for one in workers
        if one.state is WorkerState.LIVE and queue in one.queues and one.lease_until > now
    ]


async def count_unmet(client: ClientContext, queue: str) -> int:
    """Return the number of due executions whose demands no live worker of a queue meets, if it has
    any: another worker like those could not run them.
    """
    backlogs = [
        one
        for one in await client.store.catalog.list_backlogs(client.tenant, queue)
        if split_needs(one.needs)[1] != NO_DEMANDS
    ]
    if not backlogs:
        return 0
    now = (await client.store.health()).now
    workers = await client.store.catalog.list_workers(client.tenant)
    live = find_live_workers(workers, queue=queue, now=now)
    return sum(
        int(one.due)
        for one in backlogs
        if live and not find_capable_workers(live, queue=queue, needs=one.needs, now=now)
    )


# Advice where no worker can run a job.


class Lack(NamedTuple):
    """The needs that no worker meets, and the remedy."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


_LACKS: Final = {
    "command": ("runs commands", "start one with `daybell worker --allow-command{queues}`"),
    "http": ("makes requests", "start one with `daybell worker{queues}`"),
    PRIVATE: (
        "sends requests to private addresses",
        "start one with `daybell worker --allow-private-http{queues}`",
    ),
    "notify": ("can notify", "install daybell[notify] there"),
    "workflow": ("begins workflows", "start one with `daybell worker{queues}`"),
    "task": ("runs tasks", "start one with their app: `daybell worker APP{queues}`"),
}
# The same where there is no worker at all, so that "there" is nowhere.
_STARTS: Final = {
    **{kind: advice for kind, (_, advice) in _LACKS.items()},
    "notify": "start one with `daybell worker{queues}`, where daybell[notify] is installed",
    "sql": "start one with `daybell worker{queues}`, with {variable} in its environment",
}


def describe_lack(needs: str, *, queue: str) -> Lack:
    """Describe the needs that no live worker meets, and the remedy."""
    capability, demands = split_needs(needs)
    if demands != NO_DEMANDS:
        wanted = ", ".join(Site().lacks(demands))
        advice = f"start one with `daybell worker{_queues(queue)}{_demand_flags(demands)}`"
        return Lack(f"no live worker of queue {queue!r} has {wanted}", advice)
    kind, _, connection = capability.partition(":")
    if kind == "sql":
        does = f"knows the connection {connection!r}"
        advice = f"give a worker {_variable(connection)}"
    else:
        other = f"runs jobs of the kind {kind!r}", "start one that does: `daybell worker{queues}`"
        does, advice = _LACKS.get(needs) or _LACKS.get(kind, other)
    advice = advice.replace("{queues}", _queues(queue))
    return Lack(f"no live worker of queue {queue!r} {does}", advice)


def describe_start(needs: str, *, queue: str) -> str:
    """Describe the start of a worker that meets such needs, for a queue that has none."""
    capability, demands = split_needs(needs)
    kind, _, connection = capability.partition(":")
    advice = _STARTS.get(kind, "start one that does: `daybell worker{queues}`")
    flags = _queues(queue) + _demand_flags(demands)
    return advice.replace("{queues}", flags).replace("{variable}", _variable(connection))


def _demand_flags(demands: Demands) -> str:
    """Return the flags of a worker that meets demands."""
    labels = ",".join(f"{name}={values[0]}" for name, values in demands.requires.items())
    amounts = ",".join(format_amounts(demands.resources))
    said = f" --labels {shlex.quote(labels)}" if labels else ""
    return said + (f" --resources {shlex.quote(amounts)}" if amounts else "")


def _queues(queue: str) -> str:
    return "" if queue == DEFAULT_QUEUE else f" --queues {shlex.quote(queue)}"


def _variable(connection: str) -> str:
    return f"DAYBELL_CONNECTION_{connection.upper()}"


# An overview with rates.


LETTERS_MAX: Final = 50  # dead letters of an overview
LOOKS_MAX: Final = 1_000  # tenants with an overview in memory
LOOK_SECONDS: Final = 1.0


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """The changes between two overviews, per second."""

    enqueued: float
    finished: float | None  # None: a queue was too long to be counted
    failed: float  # attempts


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """An overview of a tenant's work."""

    activity: Activity
    queues: tuple[Queue, ...]
    workers: tuple[Worker, ...]  # live ones
    letters: tuple[Execution, ...]  # dead letters, the last to die first
    has_more_letters: bool = False
    rates: Rates | None = None  # None: there was no earlier overview to compare with

    @property
    def now(self) -> Instant:
        return self.activity.now

    @property
    def unfinished(self) -> int:
        return sum(one.queued + one.scheduled + one.running + one.waiting for one in self.queues)

    @property
    def is_counted(self) -> bool:
        """True if that is exact."""
        return not any(one.at_least for one in self.queues)


async def overview(client: ClientContext, *, earlier: Overview | None = None) -> Overview:
    """Return an overview of everything; rates are those since an earlier overview.

    That is four statements. They read unfinished executions, and of the rest only the last seconds
    and a page of dead letters.
    """
    since = None if earlier is None else earlier.activity
    activity = await client.store.catalog.activity(client.tenant, since=since)
    queues = await client.store.catalog.list_queues(client.tenant)
    workers = await client.store.catalog.list_workers(client.tenant)
    dead = ExecutionFilter(dead_letters=True)
    page = await client.store.catalog.list_executions(client.tenant, dead, limit=LETTERS_MAX)
    seen = Overview(
        activity=activity,
        queues=tuple(queues),
        workers=tuple(workers),
        letters=tuple(sorted(page.items, key=_died_at, reverse=True)),
        has_more_letters=page.next_cursor is not None,
    )
    rates = None if earlier is None else rates_between(earlier, seen)
    return msgspec.structs.replace(seen, rates=rates)


async def look(client: ClientContext) -> Overview:
    """Return an overview with the rates since the last one of the tenant. Looks that are less than
    LOOK_SECONDS apart are compared with the same earlier one.
    """
    last: Overview | None = client.last_overviews.get(client.tenant)
    seen = await overview(client, earlier=last)
    if last is None or seen.now - last.now >= LOOK_SECONDS:
        client.last_overviews[client.tenant] = seen
        client.last_overviews.move_to_end(client.tenant)
        if len(client.last_overviews) > LOOKS_MAX:
            client.last_overviews.popitem(last=False)
    return seen


def rates_between(earlier: Overview, later: Overview) -> Rates | None:
    """Return the changes between two overviews, per second.

    Finished executions are not counted: their number is that of enqueued executions that are gone.
    Rows that the store did not see come (a bulk of old ids, dead letters that were revived) show as
    growth.
    """
    seconds = later.now - earlier.now
    if seconds <= 0:
        return None
    is_counted = earlier.is_counted and later.is_counted
    grown = later.unfinished - earlier.unfinished if is_counted else 0
    enqueued = max(later.activity.enqueued, grown)
    return Rates(
        enqueued=enqueued / seconds,
        finished=(enqueued - grown) / seconds if is_counted else None,
        failed=later.activity.failed / seconds,
    )


def _died_at(letter: Execution) -> Instant:
    return letter.finished_at or letter.run_at
