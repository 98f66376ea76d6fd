"""Reasons why the due executions of a queue are not taken."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import count
from daybell.client.explain import remedies
from daybell.client.explain.line import start_rate
from daybell.client.explain.needs import find_users
from daybell.client.explain.remedies import Remedy, in_tenant
from daybell.client.workers import (
    describe_lack,
    describe_nearest,
    describe_start,
    find_capable_workers,
)
from daybell.core.execution import Execution
from daybell.core.limits import check_name
from daybell.core.placement import format_amounts, split_needs
from daybell.core.units import Instant, to_iso
from daybell.core.views import Backlog, Queue, Total, total_of
from daybell.core.worker import Worker, WorkerState
from daybell.errors import AccessDenied, NotFound, listed, with_tenant

USERS_SHOWN: Final = 3  # executions that use a resource, with an action for each


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A cause, in a sentence, with the actions that remove it."""

    code: str
    detail: str
    next_at: Instant | None = None  # when that may change by itself
    actions: tuple[Remedy, ...] = ()

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values."""
        return msgspec.structs.replace(self, **changes)


def explain_paused_queue(name: str) -> Obstacle:
    """Explain a queue that is paused."""
    return Obstacle(
        code="queue_paused",
        detail=f"queue {name!r} is paused; resume it",
        actions=(remedies.resume_queue(name),),
    )


def explain_no_worker(name: str, there: Sequence[Worker], needs: str) -> Obstacle:
    """Explain a queue with workers of which none can take its executions, if it has any."""
    start = (remedies.start_worker(needs, queue=name),)
    if not there:
        detail = f"no live worker takes queue {name!r}; {describe_start(needs, queue=name)}"
        return Obstacle(code="no_worker", detail=detail, actions=start)
    if all(one.state is not WorkerState.LIVE for one in there):
        detail = f"all workers of queue {name!r} are draining; start another"
        return Obstacle(code="draining", detail=detail, actions=start)
    lack, nearest = describe_lack(needs, queue=name), describe_nearest(there, needs)
    detail = str(lack) if nearest is None else f"{lack.found} ({nearest}); {lack.advice}"
    return Obstacle(code="no_worker_of_kind", detail=detail, actions=start)


async def explain_quota(client: ClientContext) -> Obstacle | None:
    """Explain a tenant that runs as many as it may; None also if that is not known."""
    tenant = client.tenant
    with suppress(NotFound, AccessDenied):
        most = (await client.store.admin.get_tenant(tenant)).quotas.running
        running = 0 if most is None else sum((await count(client, status="running")).values())
        if most is not None and running >= most:
            detail = (
                f"tenant {tenant} runs {running:,} of the {most:,} executions it may (quota"
                " running)"
            )
            raised = (remedies.raise_quota(tenant, most),)
            return Obstacle(code="quota", detail=detail, actions=raised)
    return None


def explain_busy(name: str, able: Sequence[Worker], needs: str, ahead: Total) -> Obstacle:
    """Explain a queue with workers that can take its executions."""
    busy = sum(one.used for one in able)
    room = sum(one.capacity for one in able)
    if busy >= room:
        return Obstacle(
            code="workers_busy",
            detail=(
                f"the workers of queue {name!r} are full ({busy} of {room}), and {ahead:,} others"
                " are before it"
            ),
            actions=(remedies.start_worker(needs, queue=name),),
        )
    detail = f"it is due, and a worker takes it any moment; {ahead:,} others are before it"
    return Obstacle(code="due", detail=detail)


def explain_used_resources(name: str, needs: str, users: Sequence[Execution]) -> Obstacle:
    """Explain workers whose resources are in use, by these executions."""
    demanded = ", ".join(format_amounts(split_needs(needs)[1].resources))
    named = listed(f"{one.id} of {one.job}" for one in users)
    cancels = [remedies.cancel(one.id, what="one that uses it") for one in users[:USERS_SHOWN]]
    return Obstacle(
        code="resources_busy",
        detail=f"no worker of queue {name!r} has {demanded} free; in use by {named}",
        actions=(remedies.start_worker(needs, queue=name), *cancels),
    )


class Need(msgspec.Struct, frozen=True):
    """Due executions that need the same of a worker, and the live workers that offer it."""

    backlog: Backlog
    workers: int


class QueueReason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for the state of a queue."""

    queue: Queue
    obstacle: Obstacle
    needs: tuple[Need, ...]
    workers: tuple[Worker, ...]  # live ones that take it
    rate: float | None  # starts per second, lately


async def why_queue(client: ClientContext, name: str) -> QueueReason:
    """Explain why the due executions of a queue are not taken. An unknown queue is empty."""
    catalog, name = client.store.catalog, check_name(name, what="queue")
    now = (await client.health()).now
    nothing = Queue(name=name, is_paused=False, queued=0, scheduled=0, running=0, waiting=0)
    queues = await catalog.list_queues(client.tenant)
    queue = next((one for one in queues if one.name == name), nothing)
    there = [
        one
        for one in await catalog.list_workers(client.tenant)
        if name in one.queues and one.lease_until > now
    ]
    needs = [
        Need(one, len(find_capable_workers(there, queue=name, needs=one.needs, now=now)))
        for one in await catalog.list_backlogs(client.tenant, name)
    ]
    rate = await start_rate(client, name, now) if needs else None
    obstacle = await _explain_queue(client, queue, there, needs, now)
    due = total_of(one.backlog.due for one in needs)
    if rate and due.is_exact and obstacle.code in ("workers_busy", "due"):
        obstacle = obstacle.replaced(next_at=now + due / rate)
    detail = with_tenant(obstacle.detail, client.tenant)
    actions = in_tenant(obstacle.actions, client.tenant)
    return QueueReason(
        queue=queue,
        obstacle=obstacle.replaced(detail=detail, actions=actions),
        needs=tuple(needs),
        workers=tuple(there),
        rate=rate,
    )


async def _explain_queue(
    client: ClientContext,
    queue: Queue,
    there: Sequence[Worker],
    needs: Sequence[Need],
    now: Instant,
) -> Obstacle:
    name, due = queue.name, total_of(one.backlog.due for one in needs)
    are_due = "1 execution is due" if due == 1 else f"{due:,} executions are due"
    if queue.is_paused:
        found = explain_paused_queue(name)
        return found.replaced(detail=f"{found.detail}. {are_due} in it")
    if not needs:
        others = ", ".join(
            f"{queue.number(one):,} {one}"
            for one in ("running", "scheduled", "waiting")
            if queue.number(one)
        )
        beside = f"; {others}" if others else ""
        return Obstacle(code="empty", detail=f"nothing is due in queue {name!r}{beside}")
    oldest = min(one.backlog.oldest_run_at for one in needs)
    since = f"{are_due}, the oldest since {to_iso(oldest)}"
    lacking = [one for one in needs if not one.workers]
    if lacking:
        worst = min(lacking, key=lambda one: one.backlog.oldest_run_at).backlog
        found = explain_no_worker(name, there, worst.needs)
        stuck = f"; {worst.due:,} of {due:,} due executions wait for one"
        return found.replaced(detail=found.detail + stuck)
    if (quota := await explain_quota(client)) is not None:
        return quota.replaced(detail=f"{quota.detail}. {since}")
    live = [one for one in there if one.state is WorkerState.LIVE]
    busy, room = sum(one.used for one in live), sum(one.capacity for one in live)
    if busy >= room:
        most = max(needs, key=lambda one: one.backlog.due).backlog.needs
        return Obstacle(
            code="workers_busy",
            detail=f"the workers of queue {name!r} are full ({busy} of {room}). {since}",
            actions=(remedies.start_worker(most, queue=name),),
        )
    for one in needs:
        able = find_capable_workers(there, queue=name, needs=one.backlog.needs, now=now)
        if users := await find_users(client, able, one.backlog.needs):
            found = explain_used_resources(name, one.backlog.needs, users)
            stuck = f"; {one.backlog.due:,} of {due:,} due executions wait for it"
            return found.replaced(detail=found.detail + stuck)
    return Obstacle(code="due", detail=f"{since}; workers with room take them any moment")
