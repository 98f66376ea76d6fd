"""Where a schedule goes on from: when it is new, when its job is resumed, and when the store's
clock was set back.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from daybell.core.instant import Instant
from daybell.core.limits import SCHEDULE_EFFORT_MAX
from daybell.core.schedule import Decision, Firing, Schedule, Tick, TickRecord, TurnBack
from daybell.core.when import Schedule as Rule
from daybell.core.when.effort import Effort
from daybell.errors import InvalidSchedule

PAUSED: Final = "paused"  # why ticks were missed
AHEAD_SECONDS: Final = (
    2.0  # by so much a tick may be fired early; more is a clock that was set back
)
RECORDS_MAX: Final = 1_000  # ticks on record that are compared with a cursor
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


def after_record(
    rule: Rule, cursor: Instant, records: Sequence[TickRecord], now: Instant
) -> Instant | None:
    """The first tick from the cursor on that is not on record, given the latest that are. Of a
    range only the ticks up to now count: the rest was recorded while the clock was ahead.
    """
    if rule.delay is not None:
        return cursor
    known = {record.at: record for record in records}
    at: Instant | None = cursor
    while at is not None and (record := known.get(at)) is not None:
        at = rule.next_after(max(at, min(record.until or at, now)))
    return at


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
    start = after_record(rule, cursor, records, now)
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


def turned_back(
    schedule: Schedule, now: Instant, records: Sequence[TickRecord] = ()
) -> TurnBack | None:
    """Re-arm a schedule that advanced while the store's clock was ahead. `records` are its latest
    ticks up to now.

    The cursor goes to the first time after now that the rule gives. Ticks on record as fired stay
    there, so none of them fires twice; ticks that were missed because of the jump can fire. None:
    the cursor is where it belongs. Raises InvalidSchedule for a rule that cannot be read.
    """
    if schedule.since is not None or schedule.is_reboot:
        return None
    rule = Rule.from_json(schedule.rule)
    if rule.delay is not None and schedule.next_at is None:
        return None  # the end of its execution sets the next time, or it is over
    if rule.max_executions is not None and schedule.fired >= rule.max_executions:
        return None
    next_at = first_at(rule, now)
    if next_at is None or (schedule.next_at is not None and schedule.next_at <= next_at):
        return None
    until, count = None, 0
    last = records[0] if records else None
    if last is not None and last.until is not None and last.until > now:
        until = rule.latest(now, last.at) or last.at
        count = _count(rule, last.at, until)
    return TurnBack(
        tenant=schedule.tenant,
        schedule=schedule.id,
        expect=schedule.next_at,
        next_at=next_at,
        now=now,
        until=until,
        count=count,
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
