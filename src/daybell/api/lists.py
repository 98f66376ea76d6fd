"""What lists take in their addresses, and pages of those that a store answers as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import Field

from daybell.api.answers import answer_page
from daybell.api.rules import (
    AgoBound,
    JobStatusWord,
    Searched,
    StatusWord,
    UniqueKey,
    by,
    plain,
)
from daybell.client.requests import ARGS_PREFIX, Filters
from daybell.core.limits import PAGE_ITEMS_MAX, SEARCH_ARGS_MAX, SEARCH_CHARS_MAX
from daybell.core.view import Page
from daybell.errors import UsageError, shown

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=PAGE_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The next_cursor of the page before.")
]
TextFilter = Annotated[Annotated[str, by(plain), Field(max_length=500)] | None, Query()]
StatusFilter = Annotated[
    list[StatusWord] | None,
    Query(max_length=20, description="A state, or pending; may be repeated."),
]
JobStatusFilter = Annotated[
    list[JobStatusWord] | None,
    Query(max_length=20, description="What jobs do, or pending; may be repeated."),
]
BoundFilter = Annotated[AgoBound | None, Query()]
JobFilter = Annotated[
    Annotated[str, by(plain), Field(max_length=500)] | None,
    Query(description="A job's name or id.", examples=["resize"]),
]
WorkerFilter = Annotated[
    Annotated[str, by(plain), Field(max_length=500)] | None,
    Query(description="A worker's id or name.", examples=["web-1"]),
]
KeyFilter = Annotated[UniqueKey | None, Query(description="Its unique key.", examples=["order-42"])]
ErrorFilter = Annotated[
    Searched | None,
    Query(
        description="The class of its error, also a base class, or a part of its text in any case"
        " of letters. The traceback is not searched.",
        examples=["TimeoutError"],
    ),
]
# Parameters with names of the caller's choice, which the framework has no type for.
ARGS_PARAMETER: Final[dict[str, Any]] = {
    "name": "arg",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`arg.NAME=VALUE`: an argument, by its name or a dotted path; may be repeated"
    " with other names. `42` is the number and the text, `true`, `false` and `null` are both, too.",
    "schema": {
        "type": "object",
        "patternProperties": {
            r"^arg\.[a-z_]+(\.[a-z0-9_]+)*$": {"type": "string", "maxLength": SEARCH_CHARS_MAX}
        },
        "additionalProperties": False,
        "maxProperties": SEARCH_ARGS_MAX,
    },
    "example": {"arg.order_id": "42"},
}


def read_selected(
    request: Request,
    job_id: JobFilter = None,
    job: JobFilter = None,
    worker_id: WorkerFilter = None,
    queue: TextFilter = None,
    since: BoundFilter = None,
    until: BoundFilter = None,
    unique_key: KeyFilter = None,
    error: ErrorFilter = None,
    ended_since: BoundFilter = None,
    ended_until: BoundFilter = None,
) -> Filters:
    """Read the filters that lists of executions share."""
    return {
        "job": either(job, job_id),
        "worker": worker_id,
        "queue": queue,
        "since": since,
        "until": until,
        "unique_key": unique_key,
        "error": error,
        "ended_since": ended_since,
        "ended_until": ended_until,
        "args": _read_args(request),
    }


Selected = Annotated[Filters, Depends(read_selected)]


def either(job: str | None, job_id: str | None) -> str | None:
    """Return the job that is given under one of two names."""
    if job is not None and job_id is not None and job != job_id:
        raise UsageError("job and job_id are two names for the same; give one", field="job")
    return job_id if job is None else job


def _read_args(request: Request) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.startswith(ARGS_PREFIX):
            if name in given:
                raise UsageError(f"{shown(name)} is given twice; give it once", field=name)
            given[name] = plain(value)
    return {name.removeprefix(ARGS_PREFIX): value for name, value in given.items()}


def paged(
    found: Iterable[T],
    told: Callable[[T], dict[str, Any]],
    *,
    key: Callable[[T], Any],
    limit: int,
    cursor: str | None,
    read: Callable[[str], Any] = str,
    write: Callable[[Any], str] = str,
    newest_first: bool = False,
) -> Response:
    """An answer with a page of a list, in the order of a key that is unique and constant.

    The cursor is the key of the last one, as `write` makes it text: so a page goes on at the right
    place even if that one is gone.
    """
    ordered = sorted(found, key=key, reverse=newest_first)
    if cursor is not None:
        last = _read(cursor, read)
        ordered = [one for one in ordered if (key(one) < last if newest_first else key(one) > last)]
    page = ordered[:limit]
    more = len(ordered) > limit
    listed = Page(items=tuple(page), next_cursor=write(key(page[-1])) if more else None)
    return answer_page(listed, map(told, page), cursor=lambda one: write(key(one)))


def _read(cursor: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(cursor)
    except ValueError:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        ) from None
