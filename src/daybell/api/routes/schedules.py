"""Routes of `/jobs/{job}/schedules`, page by page, and of `/schedules/preview`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from daybell.api.caller import Caller, answer_json, answer_page
from daybell.api.fields import AgoBound, Bound, JobPath, Limit, Paged, Shorter, Text
from daybell.api.router import Reach, Routes
from daybell.api.validation import RequestBody
from daybell.client import answers, wire
from daybell.client import schedules as schedule_room
from daybell.core.access import Action, Role
from daybell.core.checks import schedule_cursor
from daybell.core.limits import PAGE_ITEMS_DEFAULT
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
    stored = {one.id: one for one in page.items}  # with their exact times
    return answer_page(listed, cursor=lambda one: schedule_cursor(stored[one.schedule_id]))


# Route of `/schedules/preview`: a schedule in words and its next times.

TIMES_MAX: Final = 1_000

preview_router = Routes("/schedules", tag="schedules")


class NextQuery(msgspec.Struct):
    """How many to list."""

    limit: Limit = PAGE_ITEMS_DEFAULT


@preview_router.get(
    "/next",
    id="list_next",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.Schedule],
    says="Schedules, those first that fire first. It is one page.",
)
async def list_next(caller: Caller, query: NextQuery) -> Response:
    """List the schedules that fire next, of all jobs."""
    found = await caller.client.next_schedules(limit=query.limit)
    return answer_page(Page(items=tuple(found)), cursor=lambda one: str(one.schedule_id))


class UpcomingQuery(Paged):
    """A range of time."""

    since: AgoBound | None = None
    until: Bound | None = None


@preview_router.get(
    "/upcoming",
    id="list_upcoming",
    role=Role.VIEWER,
    action=Action.READ,
    answers=Page[wire.CalendarEntry],
    says="A page of schedules, each with its ticks.",
)
async def list_upcoming(caller: Caller, query: UpcomingQuery) -> Response:
    """List all schedules with their ticks in a range: those on record, and those that will fire.

    The default is the day from now on; a range has 400 days at most. `limit` counts schedules, of
    which each has 500 ticks of the past and 500 of the future at most. Times are in UTC.
    """
    page = await caller.client.upcoming(
        since=query.since, until=query.until, limit=query.limit, cursor=query.cursor
    )
    return answer_page(page, cursor=lambda one: str(one.schedule_id))


class PreviewBody(RequestBody):
    """A schedule of any kind, as a job would have it."""

    schedule: Annotated[Any, Meta(description="As in `POST /jobs`.", examples=["0 9 * * mon-fri"])]
    count: Annotated[int, Meta(ge=1, le=TIMES_MAX)] = 10
    start: Annotated[Text, Meta(max_length=100)] | None = None


@preview_router.post(
    "/preview",
    id="preview_any_schedule",
    role=Role.VIEWER,
    action=Action.READ,
    reach=Reach.NEUTRAL,
    answers=wire.Preview,
    says="The schedule in words, and its next times.",
    examples={"with a zone": {"schedule": {"cron": "0 9 * * *", "tz": "Europe/Rome"}}},
    changes_nothing=True,
)
async def preview_any_schedule(caller: Caller, body: PreviewBody) -> Response:
    """Say what a schedule of any form means, and list its next times. Nothing is stored."""
    now = (await caller.client.health()).now
    schedule = Schedule.parse(body.schedule, now=now)
    first = now if body.start is None else parse_moment(body.start, what="start", tz=schedule.tz)
    times = schedule.preview(body.count, just_before(first))
    return answer_json(
        wire.Preview(
            description=schedule.describe(),
            next=[one.isoformat() for one in times],
            warnings=list(schedule.warnings()),
        )
    )


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
