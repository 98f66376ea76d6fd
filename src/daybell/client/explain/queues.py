"""Why the due executions of a queue are not taken."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec

from daybell.client.context import ClientContext
from daybell.client.executions import count
from daybell.client.explain import remedies
from daybell.client.explain.remedies import Remedy
from daybell.client.workers import describe_lack, describe_start
from daybell.core.units import Instant
from daybell.core.views import Total
from daybell.core.worker import Worker, WorkerState
from daybell.errors import AccessDenied, NotFound


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
    detail = str(describe_lack(needs, queue=name))
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
    busy = sum(one.running for one in able)
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
