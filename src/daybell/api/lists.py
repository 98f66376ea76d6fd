"""What lists take in their addresses, and pages of those that a store answers as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from fastapi import Query, Response
from pydantic import Field

from daybell.api.answers import answer_page
from daybell.api.rules import Bound, Id, JobStatusWord, StatusWord, by, plain
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.view import Page
from daybell.errors import UsageError, shown

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=PAGE_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The next_cursor of the page before.")
]
TextFilter = Annotated[Annotated[str, by(plain), Field(max_length=500)] | None, Query()]
IdFilter = Annotated[Id | None, Query()]
StatusFilter = Annotated[
    list[StatusWord] | None,
    Query(max_length=20, description="A state, or pending; may be repeated."),
]
JobStatusFilter = Annotated[
    list[JobStatusWord] | None,
    Query(max_length=20, description="What jobs do, or pending; may be repeated."),
]
BoundFilter = Annotated[Bound | None, Query()]


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
