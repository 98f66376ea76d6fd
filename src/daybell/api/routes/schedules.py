"""Route of `/schedules/preview`: a schedule in words and its next times."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from daybell.api import responses
from daybell.api.caller import Viewer
from daybell.api.contract import operation
from daybell.api.encoding import answer_json
from daybell.api.requests import TextFilter
from daybell.core.when import Schedule
from daybell.core.when.zone import just_before, parse_moment
from daybell.errors import UsageError

TIMES_MAX: Final = 1_000

router = APIRouter(prefix="/schedules", tags=["schedules"])


@router.get(
    "/preview",
    **operation(
        "preview_schedule",
        answers=responses.Preview,
        says="The schedule in words, and its next times.",
    ),
)
async def preview_schedule(
    caller: Viewer,
    cron: TextFilter = None,
    every: TextFilter = None,
    at: TextFilter = None,
    rrule: Annotated[str | None, Query(max_length=4_000)] = None,
    tz: TextFilter = None,
    count: Annotated[int, Query(ge=1, le=TIMES_MAX)] = 5,
    start: Annotated[str | None, Query(alias="from", max_length=100)] = None,
    dialect: TextFilter = None,
    mode: TextFilter = None,
) -> Response:
    """Say what a schedule means, and list its next times: one of cron, every, at and rrule."""
    kinds = {"cron": cron, "every": every, "at": at, "rrule": rrule}
    given: dict[str, Any] = {name: text for name, text in kinds.items() if text is not None}
    if len(given) != 1:
        raise UsageError("say which schedule: one of cron, every, at and rrule", field="cron")
    more = {"tz": tz, "dialect": dialect, "mode": mode}
    given |= {name: text for name, text in more.items() if text is not None}
    schedule = Schedule.parse(given)
    now = (await caller.client.health()).now
    first = now if start is None else parse_moment(start, what="from", tz=schedule.tz)
    times = schedule.preview(count, just_before(first))
    return answer_json(
        {"description": schedule.describe(), "next": [one.isoformat() for one in times]}
    )
