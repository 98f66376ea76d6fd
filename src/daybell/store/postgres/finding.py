"""Events that came before the waits that they end.

An event may be large, and a thousand waits may want the same one. So keys are looked up first,
and each event is read once.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from daybell.core.event import Facts
from daybell.core.instant import Instant
from daybell.core.limits import INSTANT_MAX
from daybell.core.step import NewStep
from daybell.store.postgres.connection import Link, Row
from daybell.store.postgres.events import EVENT, Publishing

EARLIER_MAX: Final = 20  # events that a wait looks at in one go

NOTHING: Final = (None, Facts("null"))

Place: TypeAlias = tuple[UUID, int]  # an execution, and a step of it


class Search(NamedTuple):
    """Where a wait looks for an event that came before it."""

    wait: NewStep
    key: str
    since: Instant
    until: Instant | None
    after: int = 0  # the number of the last one that was received just then


class Choice(NamedTuple):
    """What a search has found, and is still to be looked at."""

    search: Search
    events: list[tuple[Instant, int]]
    last: tuple[Instant, int] | None  # behind which there may be more


class Finding(Publishing):
    """What a wait finds on record."""

    # Each key of each wait is a probe of its own.
    EARLIER_EVENTS = f"""
    SELECT u.place, k.received_at, k.number
      FROM unnest($2::int[], $3::text[], $4::text[], $5::float8[], $6::bigint[],
                  $7::float8[])
           u(place, name, key, since, after, until),
           LATERAL (SELECT k.received_at, k.number FROM daybell.event_key k
                     WHERE k.tenant = $1 AND k.name = u.name AND k.key = u.key
                       AND (k.received_at, k.number) > (u.since, u.after)
                       AND k.received_at <= u.until
                     ORDER BY k.received_at, k.number LIMIT {EARLIER_MAX}) k
     ORDER BY u.place, k.received_at, k.number
    """

    async def earlier(
        self, link: Link, owner: int, left: list[Search], taken: set[tuple[UUID, int | None]]
    ) -> dict[Place, Row]:
        """For each wait the first event that fits and that no other wait of its execution got."""
        found: dict[Place, Row] = {}
        while left:
            rows = await link.fetch(
                self.EARLIER_EVENTS,
                owner,
                list(range(len(left))),
                [search.wait.event for search in left],
                [search.key for search in left],
                [search.since for search in left],
                [search.after for search in left],
                [INSTANT_MAX if search.until is None else search.until for search in left],
            )
            searches, left = left, list[Search]()
            choices: list[Choice] = []
            for place, some in groupby(rows, key=itemgetter("place")):
                events, search = [_age(row) for row in some], searches[int(place)]
                free = [it for it in events if (search.wait.id, it[1]) not in taken]
                choices.append(
                    Choice(search, free, events[-1] if len(events) == EARLIER_MAX else None)
                )
            left += await self._choose(link, choices, found)
        return found

    EVENTS_BY_NUMBER = f"SELECT {EVENT} FROM daybell.event e WHERE e.number = ANY($1::bigint[])"

    async def _choose(
        self, link: Link, choices: list[Choice], found: dict[Place, Row]
    ) -> list[Search]:
        """Look at what each may get, the first of all, then the second: they are large, but often
        the same. Answers where to look on.
        """
        left: list[Search] = []
        while choices:
            numbers = {choice.events[0][1] for choice in choices if choice.events}
            rows = await link.fetch(self.EVENTS_BY_NUMBER, list(numbers)) if numbers else []
            events = {row["number"]: (row, Facts(row["data"])) for row in rows}
            again: list[Choice] = []
            for choice in choices:
                wait = choice.search.wait
                event, facts = events.get(choice.events[0][1] if choice.events else 0, NOTHING)
                if event is not None and facts.meet(wait.match):
                    best = found.get((wait.id, wait.n))
                    if best is None or _age(event) < _age(best):
                        found[wait.id, wait.n] = event
                elif choice.events:
                    again.append(choice._replace(events=choice.events[1:]))
                elif choice.last is not None:
                    since, after = choice.last
                    left.append(choice.search._replace(since=since, after=after))
            choices = again
        return left


def _age(event: Row) -> tuple[Instant, int]:
    return event["received_at"], event["number"]
