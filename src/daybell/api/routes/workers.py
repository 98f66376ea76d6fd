"""Routes of `/workers` and `/queues`."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from daybell.api import responses
from daybell.api.caller import Caller, Operator, Viewer
from daybell.api.contract import operation
from daybell.api.encoding import answer_json
from daybell.api.requests import Cursor, Limit, answer_list, read_body
from daybell.api.schema import Nothing
from daybell.client import wire
from daybell.client.requests import read_id
from daybell.core.limits import PAGE_ITEMS_DEFAULT, check_name
from daybell.core.units import Instant
from daybell.core.views import Queue
from daybell.core.worker import WorkerState

router = APIRouter(prefix="/workers", tags=["workers"])

WorkerPath = Annotated[
    str,
    Path(
        alias="id",
        description="A worker's id.",
        max_length=100,
        json_schema_extra={"format": "uuid"},
    ),
]


@router.get(
    "", **operation("list_workers", answers=responses.Workers, says="Workers, oldest first.")
)
async def list_workers(
    caller: Viewer,
    include_dead: Annotated[bool, Query(description="Also those that are gone.")] = False,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """List workers."""
    found = await caller.client.workers(include_dead=include_dead)
    return answer_list(
        found,
        wire.worker,
        key=lambda one: (one.started_at, one.id),
        read=_read_cursor,
        write=_write_cursor,
        limit=limit,
        cursor=cursor,
    )


def _write_cursor(place: tuple[Instant, UUID]) -> str:
    return f"{place[0]!r} {place[1]}"


def _read_cursor(cursor: str) -> tuple[Instant, UUID]:
    started_at, id = cursor.split(" ")
    return float(started_at), UUID(id)


@router.post(
    "/{id}/drain",
    **operation(
        "drain_worker",
        answers=responses.Drained,
        status=202,
        says="It finishes what it has, and claims nothing more.",
        body=Nothing,
        is_optional=True,
        errors=(404,),
    ),
)
async def drain_worker(request: Request, id: WorkerPath, caller: Operator) -> Response:
    """Ask a worker to finish what it has, and to claim nothing more."""
    await read_body(request, Nothing, optional=True)
    known = read_id(id)
    with caller.auditing("worker.drain", known):
        await caller.client.drain_worker(known)
    return answer_json({"worker_id": str(known), "state": "draining"}, status=202)


# `/queues`: lanes that workers take work from.

queues_router = APIRouter(prefix="/queues", tags=["queues"])

QueuePath = Annotated[str, Path(alias="name", description="A queue's name.", max_length=200)]


@queues_router.get(
    "", **operation("list_queues", answers=responses.Queues, says="Queues, by name.")
)
async def list_queues(
    caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List queues with their numbers."""
    found = await caller.client.queues()
    return answer_list(found, wire.queue, key=lambda one: one.name, limit=limit, cursor=cursor)


@queues_router.post(
    "/{name}/pause",
    **operation(
        "pause_queue",
        answers=responses.QueueState,
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
    return answer_json({"name": name, "is_paused": True})


@queues_router.post(
    "/{name}/resume",
    **operation(
        "resume_queue",
        answers=responses.QueueState,
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
    return answer_json({"name": name, "is_paused": False})


@queues_router.post(
    "/{name}/purge",
    **operation(
        "purge_queue",
        answers=responses.Purged,
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
    return answer_json({"name": name, "cancelled": cancelled})


@queues_router.get(
    "/{name}/scaling",
    **operation("get_queue_scaling", answers=responses.Scaling, says="How much work it has."),
)
async def get_scaling(name: QueuePath, caller: Viewer) -> Response:
    """Say how much work a queue has, for those who start workers by it.

    `value` is what is due or runs. A queue that nobody has used is empty, not unknown: whoever
    scales by it may ask before its first job.
    """
    return answer_json(await _scaling(caller, check_name(name, what="queue")))


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
