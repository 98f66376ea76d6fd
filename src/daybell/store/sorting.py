"""Pages of sorted lists of executions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.execution import Execution
from daybell.core.limits import (
    ERROR_MESSAGE_BYTES_MAX,
    ERROR_TRACEBACK_BYTES_MAX,
    LIST_VALUE_BYTES_MAX,
    PAGE_BYTES_MAX,
    SCAN_ITEMS_MAX,
)
from daybell.core.units import Instant
from daybell.core.views import Candidate, ExecutionFilter, Found, OrderBy, SortOrder, bytes_of
from daybell.errors import UsageError, shown


class SortPlace(msgspec.Struct, frozen=True, array_like=True):
    """The last item of a page of a sorted list, as its cursor. Durations count until `now`."""

    now: Instant
    key: float | None
    id: UUID

    @classmethod
    def parse(cls, cursor: str | None) -> SortPlace | None:
        """Read the cursor of a page."""
        if cursor is None:
            return None
        try:
            return msgspec.json.decode(cursor, type=cls)
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise UsageError(
                f"{shown(cursor)} is not a cursor of a sorted list; pass next_cursor of the page"
                " before",
                field="cursor",
            ) from None


# Values of executions in a list are short, so that so many fit into a page in any order.
SORTED_ITEMS_MAX: Final = PAGE_BYTES_MAX // (
    2 * (3 * LIST_VALUE_BYTES_MAX + ERROR_MESSAGE_BYTES_MAX + ERROR_TRACEBACK_BYTES_MAX)
)


def sort_page(
    candidates: Iterable[Candidate],
    where: ExecutionFilter,
    limit: int,
    cursor: str | None,
    *,
    now: Instant,
    has_more: bool,
) -> Found:
    """Sort the candidates that match, and return the ids of a page. A sort reads all that the other
    conditions select: SCAN_ITEMS_MAX executions or PAGE_BYTES_MAX bytes. Raises UsageError if there
    are more.
    """
    order, content = where.order or SortOrder(OrderBy.CREATED, is_descending=True), where.content
    place = SortPlace.parse(cursor)
    now = now if place is None else place.now
    places: list[SortPlace] = []
    left = PAGE_BYTES_MAX
    for number, one in enumerate(candidates):
        left -= bytes_of(one.args, one.error)
        has_more = has_more or number == SCAN_ITEMS_MAX or left < 0
        if content is None or content.matches(one):
            places.append(SortPlace(now, order.key(one, now), one.id))
    if has_more:
        raise UsageError(
            f"sort={'-' * order.is_descending}{order.by} reads all executions that match, at most"
            f" {SCAN_ITEMS_MAX:,}, and there are more; name a status, a job or a later since",
            field="sort",
        )
    sign = -1 if order.is_descending else 1

    def rank(one: SortPlace) -> tuple[bool, float, int]:
        return one.key is None, sign * (one.key or 0.0), sign * one.id.int

    places.sort(key=rank)
    start = 0 if place is None else bisect_right(places, rank(place), key=rank)
    stop = start + min(limit, SORTED_ITEMS_MAX)
    shown_here = places[start:stop]
    has_rest = stop < len(places)
    end = msgspec.json.encode(shown_here[-1]).decode() if has_rest else None
    return Found([one.id for one in shown_here], end)


def in_order(found: Iterable[Execution], ids: Sequence[UUID]) -> list[Execution]:
    """Return executions in the order of their ids in a sorted page."""
    by_id = {one.id: one for one in found}
    return [by_id[id] for id in ids if id in by_id]
