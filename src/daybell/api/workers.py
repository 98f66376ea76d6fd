"""`/workers`: processes that run executions."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from daybell.api import sights
from daybell.api.answers import answer
from daybell.api.body import read_body
from daybell.api.caller import Operator, Viewer
from daybell.api.contract import operation
from daybell.api.lists import Cursor, Limit, paged
from daybell.api.schema import Nothing
from daybell.client import wire
from daybell.client.requests import read_id
from daybell.core.instant import Instant
from daybell.core.limits import PAGE_ITEMS_DEFAULT

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


@router.get("", **operation("list_workers", answers=sights.Workers, says="Workers, oldest first."))
async def list_workers(
    caller: Viewer,
    include_dead: Annotated[bool, Query(description="Also those that are gone.")] = False,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """List workers."""
    found = await caller.client.workers(include_dead=include_dead)
    return paged(
        found,
        wire.worker,
        key=lambda one: (one.started_at, one.id),
        read=_read_place,
        write=_written_place,
        limit=limit,
        cursor=cursor,
    )


def _written_place(place: tuple[Instant, UUID]) -> str:
    return f"{place[0]!r} {place[1]}"


def _read_place(cursor: str) -> tuple[Instant, UUID]:
    started_at, id = cursor.split(" ")
    return float(started_at), UUID(id)


@router.post(
    "/{id}/drain",
    **operation(
        "drain_worker",
        answers=sights.Drained,
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
    return answer({"worker_id": str(known), "state": "draining"}, status=202)
