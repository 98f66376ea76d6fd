"""Positions of schedules: the first tick, resume after a pause, rewind after a clock change, and
backfill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, assert_never

from daybell.core.execution import TERMINAL, State
from daybell.core.limits import BACKFILL_TICKS_MAX, SCHEDULE_EFFORT_MAX
from daybell.core.schedule import (
    Decision,
    Firing,
    Occurrence,
    Schedule,
    ScheduleRewind,
    Tick,
    TickRecord,
)
from daybell.core.units import Instant
from daybell.core.when import Schedule as Rule
from daybell.core.when.zone import Effort, just_before
from daybell.errors import InvalidSchedule, UsageError

PAUSED: Final = "paused"  # the reason of missed ticks
AHEAD_SECONDS: Final = 2.0  # a tick may fire this early; more means that the clock was set back
RECORDS_MAX: Final = 1_000  # recorded ticks to compare with a cursor
COUNTED_MAX: Final = 1_000  # ticks of a range to count one by one
COUNT_EFFORT: Final = 4 * SCHEDULE_EFFORT_MAX


def first_tick(rule: Rule, now: Instant) -> Instant | None:
    """Return the first tick of a schedule that starts now; None if time does not trigger it.

    A fixed delay starts with a delay, unless it has a start time.
    """
    if rule.delay is None:
        return rule.next_after(now)
    is_later = rule.start_at is not None and rule.start_at > now
    at = rule.start_at if is_later else now + rule.delay
    return None if at is None or (rule.end_at is not None and at > rule.end_at) else at


def first_unrecorded_tick(
    rule: Rule, cursor: Instant, records: Sequence[TickRecord], now: Instant
) -> Instant | None:
    """Return the first tick from the cursor on that is not among the latest records.

    Only the part of a range up to now counts: the rest was recorded while the clock was ahead.
    """
    if rule.delay is not None:
        return cursor
    known = {record.at: record for record in records}
    at: Instant | None = cursor
    while at is not None and (record := known.get(at)) is not None:
        at = rule.next_after(max(at, min(record.until or at, now)))
    return at


def resume_schedule(
    schedule: Schedule, now: Instant, records: Sequence[TickRecord] = ()
) -> Firing | None:
    """Continue from now and record the due ticks as one missed range, except recorded ones.

    `records` are the latest ticks of the schedule. Returns None if no tick is due. Raises
    InvalidSchedule for an unreadable rule.
    """
    if schedule.since is not None:
        # Successes of its dependencies during the pause do not fire it.
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
    start = first_unrecorded_tick(rule, cursor, records, now)
    next_at = first_tick(rule, now)
    if rule.max_executions is not None and schedule.fired >= rule.max_executions:
        next_at = None
    return Firing(
        tenant=schedule.tenant,
        schedule=schedule.id,
        expect=cursor,
        next_at=next_at,
        ticks=() if start is None or start > now else (_missed_tick(rule, start, now),),
        is_over=rule.delay is not None and next_at is None,
    )


def rewind_schedule(
    schedule: Schedule, now: Instant, records: Sequence[TickRecord] = ()
) -> ScheduleRewind | None:
    """Move the cursor back if the schedule advanced while the store's clock was ahead.

    `records` are its latest ticks up to now. The cursor moves to the rule's first tick after now.
    Fired ticks stay on record, so none fires twice; ticks that were missed because of the jump
    can fire. Returns None if the cursor is right. Raises InvalidSchedule for an unreadable rule.
    """
    if schedule.since is not None or schedule.is_reboot:
        return None
    rule = Rule.from_json(schedule.rule)
    if rule.delay is not None and schedule.next_at is None:
        return None  # its next tick comes with the end of its execution, or it is over
    if rule.max_executions is not None and schedule.fired >= rule.max_executions:
        return None
    next_at = first_tick(rule, now)
    if next_at is None or (schedule.next_at is not None and schedule.next_at <= next_at):
        return None
    until, count = None, 0
    last = records[0] if records else None
    if last is not None and last.until is not None and last.until > now:
        until = rule.latest(now, last.at) or last.at
        count = _count(rule, last.at, until)
    return ScheduleRewind(
        tenant=schedule.tenant,
        schedule=schedule.id,
        expect=schedule.next_at,
        next_at=next_at,
        now=now,
        until=until,
        count=count,
    )


def _missed_tick(rule: Rule, first: Instant, now: Instant) -> Tick:
    last = first if rule.delay is not None else rule.latest(now, first) or first
    return Tick(
        at=first,
        decision=Decision.MISSED,
        reason=PAUSED,
        until=last,
        count=_count(rule, first, last),
    )


def _count(rule: Rule, first: Instant, last: Instant) -> int:
    """Count the ticks of a range, up to a limit."""
    count = 1
    with suppress(InvalidSchedule):  # effort exhausted
        for tick in rule.ticks(first, effort=Effort(COUNT_EFFORT)):
            if tick > last or count > COUNTED_MAX:
                break
            count += 1
    return count


# Backfill: the past ticks of a schedule to run now, and their order.


class Only(StrEnum):
    """The ticks to backfill. Ticks with an unfinished execution are always left out."""

    MISSING = "missing"  # no execution, or a skipped one
    FAILED = "failed"  # the last execution is dead and none succeeded
    ALL = "all"


class Order(StrEnum):
    """The order of backfilled ticks."""

    OLDEST = "oldest"
    NEWEST = "newest"


def ticks_between(
    rule: Rule, since: Instant, until: Instant, *, limit: int = BACKFILL_TICKS_MAX
) -> list[Instant]:
    """List the ticks from `since` to before `until`, oldest first; more than `limit` raise."""
    found: list[Instant] = []
    for tick in rule.ticks(just_before(since)):
        if tick >= until:
            break
        if len(found) == limit:
            raise UsageError(
                f"there are more than {limit:,} ticks from since to until; backfill them in"
                " several shorter ranges",
                field="until",
            )
        found.append(tick)
    return found


def choose(
    ticks: Iterable[Instant], occurrences: Iterable[Occurrence], *, only: Only, order: Order
) -> list[Instant]:
    """Select the ticks to run, given their executions, oldest first."""
    states: dict[int, list[State]] = {}
    for occurrence in occurrences:
        states.setdefault(_exact(occurrence.scheduled_for), []).append(occurrence.state)
    chosen = [tick for tick in sorted(ticks) if _is_wanted(states.get(_exact(tick), ()), only)]
    return chosen if order is Order.OLDEST else chosen[::-1]


def _exact(instant: Instant) -> int:
    """Round to microseconds: an instant from a store may differ in the last bit."""
    return round(instant * 1_000_000)


def _is_wanted(states: Sequence[State], only: Only) -> bool:
    if any(state not in TERMINAL for state in states):
        return False
    match only:
        case Only.MISSING:
            return all(state is State.SKIPPED for state in states)
        case Only.FAILED:
            return State.SUCCEEDED not in states and states[-1:] == [State.DEAD]
        case Only.ALL:
            return True
        case _:
            assert_never(only)
