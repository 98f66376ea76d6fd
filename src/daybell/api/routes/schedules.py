"""Route of `/jobs/{job}/schedules`: the schedules of a job, page by page."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response

from daybell.api.caller import Viewer, answer_page
from daybell.api.contract import operation
from daybell.api.requests import Cursor, Limit
from daybell.api.routes.jobs import JobPath
from daybell.client import answers, wire
from daybell.core.checks import schedule_cursor
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.core.views import Page

router: Final = APIRouter(prefix="/jobs/{job}", tags=["jobs"])


@router.get(
    "/schedules",
    **operation(
        "list_job_schedules",
        answers=Page[wire.Schedule],
        says="A page of schedules, by name.",
        errors=(404,),
    ),
)
async def list_schedules(
    name: JobPath, caller: Viewer, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List a job's schedules: those that it declares, and those made at run time."""
    job = await caller.client.job_named(name)
    page = await caller.client.schedules_page(job.name, limit=limit, cursor=cursor)
    items = (answers.schedule(one) for one in page.items)
    return answer_page(page, items, cursor=lambda one: schedule_cursor(one.name, one.id))
