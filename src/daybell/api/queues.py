"""`/queues`: lanes that workers take work from."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from daybell.api import sights
from daybell.api.answers import answer
from daybell.api.body import read_body
from daybell.api.caller import Caller, Operator, Viewer
from daybell.api.contract import operation
from daybell.api.lists import Cursor, Limit, paged
from daybell.api.schema import Nothing
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_DEFAULT, check_name
from daybell.core.view import Queue
from daybell.core.worker import WorkerState

router = APIRouter(prefix="/queues", tags=["queues"])

QueuePath = Annotated[str, Path(alias="name", description="A queue's name.", max_length=200)]


@router.get("", **operation("list_queues", answers=sights.Queues, says="Queues, by name."))
async def list_queues(
    caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List queues with their numbers."""
    found = await caller.client.queues()
    return paged(found, wire.queue, key=lambda one: one.name, limit=limit, cursor=cursor)


@router.post(
    "/{name}/pause",
    **operation(
        "pause_queue",
        answers=sights.QueueState,
        says="Nothing is given out from it.",
        body=Nothing,
        is_optional=True,
    ),
)
async def pause_queue(request: Request, name: QueuePath, caller: Operator) -> Response:
    """Give out nothing from a queue until it is resumed. What runs goes on."""
    await read_body(request, Nothing, optional=True)
    with caller.auditing("queue.pause", name):
        await caller.client.pause_queue(name)
    return answer({"name": name, "is_paused": True})


@router.post(
    "/{name}/resume",
    **operation(
        "resume_queue",
        answers=sights.QueueState,
        says="Work is given out from it.",
        body=Nothing,
        is_optional=True,
    ),
)
async def resume_queue(request: Request, name: QueuePath, caller: Operator) -> Response:
    """Give out work from a queue again."""
    await read_body(request, Nothing, optional=True)
    with caller.auditing("queue.resume", name):
        await caller.client.resume_queue(name)
    return answer({"name": name, "is_paused": False})


@router.post(
    "/{name}/purge",
    **operation(
        "purge_queue",
        answers=sights.Purged,
        says="All that waited in it is cancelled.",
        body=Nothing,
        is_optional=True,
    ),
)
async def purge_queue(request: Request, name: QueuePath, caller: Operator) -> Response:
    """Cancel all that waits in a queue. What runs goes on."""
    await read_body(request, Nothing, optional=True)
    with caller.auditing("queue.purge", name):
        cancelled = await caller.client.purge_queue(name)
    return answer({"name": name, "cancelled": cancelled})


@router.get(
    "/{name}/scaling",
    **operation("get_queue_scaling", answers=sights.Scaling, says="How much work it has."),
)
async def get_scaling(name: QueuePath, caller: Viewer) -> Response:
    """Say how much work a queue has, for those who start workers by it.

    `value` is what is due or runs. A queue that nobody has used is empty, not unknown: whoever
    scales by it may ask before its first job.
    """
    return answer(await _scaling(caller, check_name(name, what="queue")))


async def _scaling(caller: Caller, name: str) -> dict[str, Any]:
    found: list[Queue] = [one for one in await caller.client.queues() if one.name == name]
    queued = sum(one.queued for one in found)
    running = sum(one.running for one in found)
    bounded = [name for one in found for name in one.at_least if name in ("queued", "running")]
    workers = [
        one
        for one in await caller.client.workers()
        if name in one.queues and one.state is WorkerState.LIVE
    ]
    return {
        "queue": name,
        "value": queued + running,
        "queued": queued,
        "running": running,
        "workers": len(workers),
        "capacity": sum(one.capacity for one in workers),
        "is_paused": any(one.is_paused for one in found),
        "at_least": ["value", *bounded] if bounded else [],
    }
