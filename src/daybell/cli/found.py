"""Lists of executions at a terminal: pages of a search are followed until enough are found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Protocol
from uuid import UUID

import msgspec
import typer

from daybell.cli import show
from daybell.cli.columns import Column
from daybell.cli.describing import echo_executions
from daybell.cli.edge import DONE, INTERRUPTED, complain
from daybell.cli.in_workflows import workflows_of
from daybell.client import wire
from daybell.client.remote.client import AnyClient
from daybell.client.requests import Filters
from daybell.core.execution import Execution
from daybell.core.failure import Failure
from daybell.core.instant import Instant
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import Page

CONTENT = ("args", "unique_key", "error", "ended_since", "ended_until", "worker")


class Read(Protocol):
    """A verb of the client that lists executions."""

    async def __call__(
        self, *, limit: int, cursor: str | None, **filters: Any
    ) -> Page[Execution]: ...


class Search:
    """A list that is read page by page. Ctrl-C ends it and keeps what was found."""

    def __init__(
        self,
        read: Read,
        filters: Filters,
        *,
        limit: int | None,
        cursor: str | None = None,
        quiet: bool = False,
    ) -> None:
        self._read = read
        self._filters = filters
        self._limit = limit  # None: all
        self._quiet = quiet
        self.cursor = cursor
        self.is_interrupted = False
        # The first page of any other list that has items is shown as it is.
        self.goes_on = limit is None or any(filters.get(name) is not None for name in CONTENT)

    async def pages(self) -> AsyncGenerator[tuple[Execution, ...]]:
        """Read until the limit is reached or the list ends."""
        count, has_begun = 0, False
        quiet = self._quiet or not self.goes_on
        with show.status("searching; Ctrl-C shows what was found", quiet=quiet) as say:
            try:
                while True:
                    most = PAGE_ITEMS_MAX if self._limit is None else self._limit - count
                    page = await self._read(limit=most, cursor=self.cursor, **self._filters)
                    has_begun = True
                    count += len(page.items)
                    self.cursor = page.next_cursor
                    yield page.items
                    is_enough = count == self._limit or (count > 0 and not self.goes_on)
                    if self.cursor is None or is_enough:
                        break
                    say(f"{count:,} found, searched back to {_time_of(self.cursor)}")
            except asyncio.CancelledError:
                if not has_begun:
                    raise
                self.is_interrupted = True

    @property
    def code(self) -> int:
        """The exit code of the command."""
        return INTERRUPTED if self.is_interrupted else DONE


def _time_of(cursor: str) -> str:
    """The time inside of an id."""
    return show.moment((UUID(cursor).int >> 80) / 1000)


async def echo_found(client: AnyClient, search: Search, *, empty: str, as_json: bool) -> int:
    """Print what a search finds; answers the exit code."""
    items = tuple([one async for page in search.pages() for one in page])
    if as_json:
        page = Page(items=items, next_cursor=search.cursor)
        show.echo_json(wire.page(page, wire.execution))
        return search.code
    now = (await client.health()).now
    workflows = await workflows_of(client, items)
    if search.is_interrupted:
        complain(f"stopped before the end of the list; {show.count(len(items), 'execution')} found")
    echo_executions(items, now=now, empty=empty, workflows=workflows)
    show.echo_more(search.cursor, is_search=search.goes_on)
    return search.code


class Group(msgspec.Struct, kw_only=True):
    """Dead letters of one job with one class of error."""

    job: str
    error: str  # the name of the class
    message: str  # of the newest
    count: int = 0
    newest: Instant
    oldest: Instant
    execution_id: str  # of the newest

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            **msgspec.structs.asdict(self),
            "newest": wire.time(self.newest),
            "oldest": wire.time(self.oldest),
        }


class Groups:
    """Dead letters by job and class of error. Nothing else is kept of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Group] = {}

    def add(self, one: Execution) -> None:
        """Count a dead letter."""
        failure = None if one.error is None else Failure.of_kept(one.error)
        error = (one.reason or "") if failure is None else failure.type
        ended = one.finished_at or one.created_at
        known = self._found.get((one.job, error))
        if known is None or ended > known.newest:
            message = "" if failure is None else failure.message.partition("\n")[0]
            newest = Group(
                job=one.job,
                error=error,
                message=message,
                count=0 if known is None else known.count,
                newest=ended,
                oldest=ended if known is None else known.oldest,
                execution_id=str(one.id),
            )
            known = self._found[one.job, error] = newest
        known.count += 1
        known.oldest = min(known.oldest, ended)

    def ranked(self) -> list[Group]:
        """The largest group first."""
        return sorted(self._found.values(), key=lambda one: (-one.count, one.job, one.error))


async def echo_groups(
    client: AnyClient, search: Search, *, limit: int | None, as_json: bool
) -> int:
    """Print dead letters by job and class of error, the largest groups up to a limit; answers the
    exit code.
    """
    found = Groups()
    async for page in search.pages():
        for one in page:
            found.add(one)
    every = found.ranked()
    groups = every[:limit]
    if as_json:
        items = [one.as_json() for one in groups]
        show.echo_json({"items": items, "next_cursor": search.cursor})
        return search.code
    now = (await client.health()).now
    if search.is_interrupted:
        complain("stopped before the end of the list; there are more")
    columns = (
        Column("count", rank=0),
        Column("job", least=10, rank=0),
        Column("error", least=10, rank=0),
        Column("newest", rank=2),
        Column("oldest", rank=3),
        Column("message of the newest", least=10, rank=1),
    )
    rows = [
        (
            f"{one.count:,}",
            one.job,
            one.error,
            show.relative(one.newest, now=now),
            show.relative(one.oldest, now=now),
            one.message,
        )
        for one in groups
    ]
    show.echo_table(columns, rows, empty="no dead letters")
    if more := len(every) - len(groups):
        typer.echo(f"and {show.count(more, 'smaller group')}; a larger --limit prints more")
    return search.code
