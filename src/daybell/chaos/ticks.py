"""What became of schedules in a run: from where they stood at first to where they stand then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from daybell.client import Client
from daybell.core.instant import Instant
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.schedule import Schedule, TickRecord
from daybell.core.when import Schedule as Rule

WHOLE: Final = float("inf")


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule: its rule, its first and its last cursor, and what is on record in between."""

    name: str
    rule: str
    first: Instant
    last: Instant | None
    ticks: Sequence[TickRecord]  # oldest first
    is_stuck: bool = False  # it was due, and nobody fired it

    def gaps(self) -> Iterator[Instant]:
        """Times that came, and about which nothing is on record."""
        rule = Rule.from_json(self.rule)
        known = {tick.at: tick for tick in self.ticks}
        at: Instant | None = self.first
        while at is not None and at < (WHOLE if self.last is None else self.last):
            tick = known.get(at)
            if tick is None:
                yield at
            at = rule.next_after(at if tick is None or tick.until is None else tick.until)


def counted(courses: Sequence[Course]) -> dict[str, int]:
    """How many ticks were decided, and how."""
    counts: Counter[str] = Counter()
    for course in courses:
        for tick in course.ticks:
            counts[str(tick.decision)] += tick.count
    return dict(counts)


async def cursors(client: Client, jobs: Sequence[str]) -> dict[UUID, Schedule]:
    """The schedules of these jobs, as they are now."""
    found = [
        one for job in jobs for one in await client.store.list_schedules(client.tenant, job=job)
    ]
    return {one.id: one for one in found}


async def courses(
    client: Client, first: Mapping[UUID, Schedule], last: Mapping[UUID, Schedule], due: Instant
) -> list[Course]:
    """What became of each; what was due by then should have fired."""
    found: list[Course] = []
    for id, begun in first.items():
        ended = last.get(id)
        if begun.next_at is None or ended is None:
            continue
        found.append(
            Course(
                name=f"schedule {begun.name} of {begun.job}",
                rule=begun.rule,
                first=begun.next_at,
                last=ended.next_at,
                ticks=await _ticks(client, id, since=begun.next_at),
                is_stuck=ended.next_at is not None and ended.next_at <= due,
            )
        )
    return found


async def _ticks(client: Client, schedule: UUID, *, since: Instant) -> list[TickRecord]:
    found: list[TickRecord] = []
    before: Instant | None = None
    while True:
        page = await client.store.list_ticks(
            client.tenant, schedule, limit=PAGE_ITEMS_MAX, before=before
        )
        found += [tick for tick in page if tick.at >= since]
        if len(page) < PAGE_ITEMS_MAX or page[-1].at < since:
            return found[::-1]
        before = page[-1].at
