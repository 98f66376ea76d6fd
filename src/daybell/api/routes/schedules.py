"""Route of `/jobs/{job}/schedules`: the schedules of a job, page by page."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from daybell.api.caller import Caller, answer_page
from daybell.api.fields import JobPath, Paged
from daybell.api.router import Reach, Routes
from daybell.client import answers, wire
from daybell.core.access import Action, Role
from daybell.core.checks import schedule_cursor
from daybell.core.views import Page

router: Final = Routes("/jobs/{job}", tag="jobs")


@router.get(
    "/schedules",
    id="list_job_schedules",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.Schedule],
    says="A page of schedules, by name.",
    errors=(404,),
)
async def list_schedules(name: JobPath, caller: Caller, query: Paged) -> Response:
    """List a job's schedules: those that it declares, and those made at run time."""
    job = await caller.client.job_named(name)
    page = await caller.client.schedules_page(job.name, limit=query.limit, cursor=query.cursor)
    items = (answers.schedule(one) for one in page.items)
    return answer_page(page, items, cursor=lambda one: schedule_cursor(one.name, one.id))
