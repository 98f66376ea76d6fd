"""Where a schedule goes on from, when it is new and when its job is resumed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from daybell.core.instant import Instant
from daybell.core.limits import SCHEDULE_EFFORT_MAX
from daybell.core.schedule import Decision, Firing, Schedule, Tick, TickRecord
from daybell.core.when import Schedule as Rule
from daybell.core.when.effort import Effort
from daybell.errors import InvalidSchedule

PAUSED: Final = "paused"  # why ticks were missed
COUNTED_MAX: Final = 1_000  # ticks that are worth counting one by one
COUNT_EFFORT: Final = 4 * SCHEDULE_EFFORT_MAX


def first_at(rule: Rule, now: Instant) -> Instant | None:
    """The first time of a schedule that begins now; None: it does not fire by itself.

    A fixed delay begins with a delay, unless it says when.
    """
    if rule.delay is None:
        return rule.next_after(now)
    is_later = rule.start_at is not None and rule.start_at > now
    at = rule.start_at if is_later else now + rule.delay
    return None if at is None or (rule.end_at is not None and at > rule.end_at) else at


def after_record(rule: Rule, cursor: Instant, records: Sequence[TickRecord]) -> Instant | None:
    """The first tick from the cursor on that is not on record, given the latest that are."""
    if rule.delay is not None or not records or records[0].at < cursor:
        return cursor
    return rule.next_after(records[0].until or records[0].at)


def resumed(schedule: Schedule, now: Instant, records: Sequence[TickRecord] = ()) -> Firing | None:
    """Go on from now: what came due in the meantime is recorded as missed, in one range, except
    for what is on record. `records` are the schedule's latest.

    None: nothing did. Raises InvalidSchedule for a rule that cannot be read.
    """
    if schedule.since is not None:
        # What its dependencies did in the meantime does not fire it.
        return Firing(
            tenant=schedule.tenant,
            schedule=schedule.id,
            expect=schedule.since,
            next_at=max(now, schedule.since),
            ticks=(),
        )
    cursor = schedule.next_at
    if cursor is None or cursor > now:
        return None
    rule = Rule.from_json(schedule.rule)
    start = after_record(rule, cursor, records)
    next_at = first_at(rule, now)
    if rule.max_executions is not None and schedule.fired >= rule.max_executions:
        next_at = None
    return Firing(
        tenant=schedule.tenant,
        schedule=schedule.id,
        expect=cursor,
        next_at=next_at,
        ticks=() if start is None or start > now else (_missed(rule, start, now),),
        is_over=rule.delay is not None and next_at is None,
    )


def _missed(rule: Rule, first: Instant, now: Instant) -> Tick:
    last = first if rule.delay is not None else rule.latest(now, first) or first
    return Tick(
        at=first,
        decision=Decision.MISSED,
        reason=PAUSED,
        until=last,
        count=_count(rule, first, last),
    )


def _count(rule: Rule, first: Instant, last: Instant) -> int:
    """How many ticks a range has; beyond what is worth counting, as many as were counted."""
    count = 1
    with suppress(InvalidSchedule):  # the effort has been spent
        for tick in rule.ticks(first, effort=Effort(COUNT_EFFORT)):
            if tick > last or count > COUNTED_MAX:
                break
            count += 1
    return count
