"""Logs of executions: of one, and a search in those of many."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from math import inf
from typing import Final, TypedDict, Unpack
from uuid import UUID

from msgspec.structs import replace

from daybell.client.context import ClientContext
from daybell.client.executions import check_job_is_known, now_for, where
from daybell.client.requests import (
    Id,
    Status,
    Time,
    check_options,
    check_range,
    read_bound,
    read_id,
    read_searched,
)
from daybell.core.execution import LogPart
from daybell.core.limits import PAGE_ITEMS_DEFAULT, text_fault
from daybell.core.logs import LEVELS, FoundLine, LinePattern, LogPlace
from daybell.core.options import read_word
from daybell.core.views import Content, ExecutionFilter, Page
from daybell.errors import UsageError, shown

# A part may be as large as an attempt's whole log: a handful at a time is enough of them.
PARTS_PER_READ: Final = 10
START: Final = (0, 0)  # before the first part of the first attempt
EXECUTIONS_PER_SEARCH: Final = 200  # whose logs one page of a search reads


async def log(
    client: ClientContext, id: Id, *, after: tuple[int, int] = START, limit: int = PARTS_PER_READ
) -> list[LogPart]:
    """Return parts of an execution's log by attempt and number, starting after such a pair.

    Empty for an execution without log lines, and for one that is unknown.
    """
    return await client.store.catalog.read_log(client.tenant, read_id(id), after=after, limit=limit)


async def log_parts(
    client: ClientContext, id: Id, *, after: tuple[int, int] = START
) -> AsyncGenerator[LogPart]:
    """Yield all parts that exist by now, a few in memory at a time."""
    while parts := await log(client, id, after=after):
        for part in parts:
            yield part
        after = (parts[-1].attempt, parts[-1].number)
        if len(parts) < PARTS_PER_READ:
            return


class LogFilters(TypedDict, total=False):
    """The conditions of a search in logs."""

    level: str | None  # this one or a higher one
    job: str | None  # by name or id
    queue: str | None
    status: Status | None
    since: Time | None  # of the lines; a length of time such as "1h" means so long ago
    until: Time | None


async def search_logs(
    client: ClientContext,
    text: str | None = None,
    *,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
    **filters: Unpack[LogFilters],
) -> Page[FoundLine]:
    """Search the log lines of executions: those created last first, the lines of each in order.

    A page reads the logs of 200 executions and 8 MiB at most. It may be short or empty, and its
    cursor continues the search.
    """
    wanted, asked = await _read_search(client, text, filters)
    at = None if cursor is None else _read_place(cursor)
    after = None
    if at is not None:  # a list begins after the id of its cursor
        after = str(UUID(int=min(at.execution.int + bool(at.attempt), 2**128 - 1)))
    page = await client.store.catalog.list_executions(
        client.tenant, asked, limit=EXECUTIONS_PER_SEARCH, cursor=after
    )
    if not page.items:
        await check_job_is_known(client, asked)
        return Page(items=(), next_cursor=page.next_cursor)
    jobs = {one.id: one.job for one in page.items}
    parts = await client.store.catalog.read_logs(client.tenant, list(jobs), start=at)
    found: list[FoundLine] = []
    end = LogPlace(page.items[0].id)
    for one in parts.items:
        place = LogPlace(one.execution, one.part.attempt, one.part.number)
        skip = at.lines if at is not None and at[:3] == place[:3] else 0
        for number, line in wanted.find(one.part, skip):
            if len(found) == limit:
                return Page(items=tuple(found), next_cursor=str(place._replace(lines=number)))
            found.append(FoundLine(one.execution, jobs[one.execution], one.part.attempt, line))
        end = place._replace(lines=one.part.text.count("\n") + 1)
    more = page.next_cursor if parts.next_cursor is None else str(end)
    return Page(items=tuple(found), next_cursor=more)


async def _read_search(
    client: ClientContext, text: str | None, filters: LogFilters
) -> tuple[LinePattern, ExecutionFilter]:
    check_options(filters, frozenset(LogFilters.__optional_keys__), "a search in logs")
    if text is not None and (fault := text_fault(read_searched(text, "q"))):
        raise UsageError(f"q={shown(text)} {fault}", field="q")
    level, since, until = filters.get("level"), filters.get("since"), filters.get("until")
    now = await now_for(client.store, since, until)
    begin = None if since is None else read_bound(since, "since", now=now)
    end = None if until is None else read_bound(until, "until", now=now)
    check_range(begin, end)
    wanted = LinePattern(
        text=text or "",
        level="debug" if level is None else read_word(level, tuple(LEVELS), "level"),
        since=-inf if begin is None else begin,
        until=inf if end is None else end,
    )
    asked = await where(
        client,
        status=filters.get("status"),
        job=filters.get("job"),
        queue=filters.get("queue"),
        until=end,
        nodes=True,
    )
    if begin is not None:
        asked = replace(asked, content=Content(active_since=begin))
    return wanted, asked


def _read_place(cursor: str) -> LogPlace:
    try:
        return LogPlace.parse(cursor)
    except (ValueError, TypeError):
        raise UsageError(
            "cursor is not one that came with a page of logs", field="cursor"
        ) from None
