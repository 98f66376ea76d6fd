"""Routes of `/jobs/{job}/schedules`, page by page, and of `/schedules/preview`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from daybell.api.caller import Caller, answer_json, answer_page
from daybell.api.fields import JobPath, Paged, Shorter
from daybell.api.router import Reach, Routes
from daybell.client import answers, wire
from daybell.client import schedules as schedule_room
from daybell.core.access import Action, Role
from daybell.core.checks import schedule_cursor
from daybell.core.views import Page
from daybell.core.when import Schedule
from daybell.core.when.zone import just_before, parse_moment
from daybell.errors import UsageError

router: Final = Routes("/jobs/{job}", tag="jobs")


@router.get(
    "/schedules",
    id="list_job_schedules",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NAMES,
    answers=Page[wire.Schedule],
    says="A page of schedules: declared ones, then the others, the next ones first.",
    errors=(404,),
)
async def list_schedules(name: JobPath, caller: Caller, query: Paged) -> Response:
    """List a job's schedules: those that it declares, and those made at run time."""
    job = await caller.client.job_named(name)
    page = await schedule_room.schedules_page(
        caller.client, job.name, limit=query.limit, cursor=query.cursor
    )
    listed = answers.page(page, answers.schedule)
    stored = {one.id: one for one in page.items}  # with their times to the last bit
    return answer_page(listed, cursor=lambda one: schedule_cursor(stored[one.schedule_id]))


# Route of `/schedules/preview`: a schedule in words and its next times.

TIMES_MAX: Final = 1_000

preview_router = Routes("/schedules", tag="schedules")


class PreviewQuery(msgspec.Struct, rename={"start": "from"}):
    """A schedule, and the times to list."""

    cron: Shorter | None = None
    every: Shorter | None = None
    at: Shorter | None = None
    rrule: Annotated[str, Meta(max_length=4_000)] | None = None
    tz: Shorter | None = None
    count: Annotated[int, Meta(ge=1, le=TIMES_MAX)] = 5
    start: Annotated[str, Meta(max_length=100)] | None = None
    dialect: Shorter | None = None
    mode: Shorter | None = None


@preview_router.get(
    "/preview",
    id="preview_schedule",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.Preview,
    says="The schedule in words, and its next times.",
)
async def preview_schedule(
    caller: Caller,
    query: PreviewQuery,
) -> Response:
    """Say what a schedule means, and list its next times: one of cron, every, at and rrule."""
    kinds = {"cron": query.cron, "every": query.every, "at": query.at, "rrule": query.rrule}
    given: dict[str, Any] = {name: text for name, text in kinds.items() if text is not None}
    if len(given) != 1:
        raise UsageError("say which schedule: one of cron, every, at and rrule", field="cron")
    more = {"tz": query.tz, "dialect": query.dialect, "mode": query.mode}
    given |= {name: text for name, text in more.items() if text is not None}
    schedule = Schedule.parse(given)
    now = (await caller.client.health()).now
    first = now if query.start is None else parse_moment(query.start, what="from", tz=schedule.tz)
    times = schedule.preview(query.count, just_before(first))
    return answer_json(
        wire.Preview(description=schedule.describe(), next=[one.isoformat() for one in times])
    )
