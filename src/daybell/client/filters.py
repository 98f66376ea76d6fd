"""Filters of executions as stores take them: with ids for names, and times for lengths of time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Protocol, cast
from uuid import UUID

import msgspec

from daybell.client.requests import (
    BOUNDS,
    Filters,
    Time,
    id_in,
    read_ago,
    read_bound,
    read_filter,
)
from daybell.core.execution import Execution
from daybell.core.instant import Instant, to_iso
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import ExecutionFilter, Health
from daybell.errors import NotFound, UsageError, shown
from daybell.store.protocol import Store


async def resolve_filter(store: Store, tenant: str, filters: Filters) -> ExecutionFilter:
    """Return which executions are asked for. A job may be given by its id, a worker by its name.

    Raises JobNotFound for an unknown id, NotFound for an unknown name of a worker.
    """
    given: dict[str, Any] = {**filters}
    job = None if given.get("job") is None else id_in(given["job"])
    if job is not None:
        given["job"] = (await store.find_job(tenant, job, or_deleted=True)).name
    worker = given.get("worker")
    if worker is not None and id_in(worker) is None:
        known = await find_workers(store, tenant, worker)
        # One of them is a condition of its own; several are compared with what is read.
        given["worker"] = next(iter(known)) if len(known) == 1 else None
        given["workers"] = known if len(known) > 1 else None
    now = await now_for(store, *(given.get(name) for name in BOUNDS))
    return read_filter(now=now, **given)


async def find_workers(store: Store, tenant: str, name: str) -> frozenset[UUID]:
    """Find the workers of a name: several processes of one machine may share it."""
    workers = await store.list_workers(tenant, include_dead=True)
    found = frozenset(one.id for one in workers if one.name == name)
    if not found:
        raise NotFound(
            f"no worker named {shown(name)}; `daybell workers list` shows their names, and one that"
            " died more than a day ago is found by its id only"
        )
    return found


class Clock(Protocol):
    """A store, or a client of one: both tell the store's time."""

    async def health(self) -> Health: ...


async def fix_bounds(clock: Clock, filters: Filters) -> Filters:
    """Return the filters with times in place of lengths of time, by the store's clock. A count and
    the action that follows it, in one request or many, then concern the same executions.
    """
    lengths = {
        name: value for name in BOUNDS if read_ago(value := filters.get(name)) is not None and value
    }
    if not lengths:
        return filters
    now = (await clock.health()).now
    fixed: dict[str, Any] = {
        name: to_iso(read_bound(value, name, now=now)) for name, value in lengths.items()
    }
    return cast("Filters", {**filters, **fixed})


async def now_for(store: Clock, *bounds: Time | None) -> Instant:
    """The store's time, if one of these bounds counts from it."""
    is_relative = any(read_ago(one) is not None for one in bounds)
    return (await store.health()).now if is_relative else 0.0


class Sweep(msgspec.Struct):
    """A walk through all that filters let through. A search by content that has a number of pages
    ends there, and leaves the cursor with which the next one continues.
    """

    cursor: str | None = None
    pages: int | None = None  # None: to the end


async def sweep_pages(
    store: Store, tenant: str, wheres: Iterable[ExecutionFilter], sweep: Sweep | None = None
) -> AsyncGenerator[Sequence[Execution]]:
    """Read executions filter by filter, each newest first, a page in memory at a time. What leaves
    the list meanwhile does not shift the rest: pages go by id.
    """
    sweep = sweep or Sweep()
    first, cursor = _read_place(sweep.cursor)
    sweep.cursor = None
    for number, where in enumerate(wheres):
        if number < first:
            continue
        while True:
            if sweep.pages is not None and where.content is not None:
                if sweep.pages == 0:
                    sweep.cursor = f"{number}.{cursor or ''}"
                    return
                sweep.pages -= 1
            page = await store.list_executions(
                tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor or None
            )
            if page.items:
                yield page.items
            cursor = page.next_cursor
            if cursor is None:
                break


def _read_place(cursor: str | None) -> tuple[int, str | None]:
    """The number of the filter, and the cursor in what it lets through."""
    if cursor is None:
        return 0, None
    number, dot, rest = cursor.partition(".")
    if not dot or not (number.isascii() and number.isdecimal()) or len(number) > 1:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the answer before",
            field="cursor",
        )
    return int(number), rest
