"""Positions of schedules: start, resume after a pause, and ticks of a backfill."""

import pytest

from daybell.core.execution import TERMINAL, State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Occurrence, Schedule, TickRecord
from daybell.core.when import at, cron, every
from daybell.core.when.cursor import (
    COUNTED_MAX,
    Only,
    Order,
    choose,
    first_tick,
    resume_schedule,
    ticks_between,
)
from daybell.errors import UsageError


def paused(rule, *, next_at, **options):
    return Schedule(
        id=mint(), tenant="default", job="report", rule=rule.to_json(), next_at=next_at, **options
    )


def gone_on(schedule, now):
    """The firing with which it goes on."""
    firing = resume_schedule(schedule, now)
    assert firing is not None
    return firing


def test_a_rate_begins_with_its_next_tick():
    assert first_tick(every("1m"), 30.0) == 60.0


def test_a_fixed_delay_begins_with_a_delay():
    assert first_tick(every("1m", mode="delay"), 30.0) == 90.0


def test_a_fixed_delay_begins_when_it_says_so():
    assert first_tick(every("1m", mode="delay", start_at=45.0), 30.0) == 45.0


def test_a_fixed_delay_whose_start_has_passed_begins_with_a_delay():
    assert first_tick(every("1m", mode="delay", start_at=10.0), 30.0) == 90.0


def test_a_fixed_delay_that_would_begin_after_its_end_does_not():
    assert first_tick(every("1m", mode="delay", end_at=80.0), 30.0) is None


def test_what_waits_for_nothing_or_for_later_goes_on_as_it_is():
    assert resume_schedule(paused(every("1m"), next_at=None), 30.0) is None
    assert resume_schedule(paused(every("1m"), next_at=60.0), 30.0) is None


def test_what_came_due_is_missed_in_one_range_and_the_next_is_after_now():
    firing = gone_on(paused(every("1m"), next_at=60.0), 200.0)

    (tick,) = firing.ticks
    assert (tick.at, tick.until, tick.count) == (60.0, 180.0, 3)
    assert (tick.decision, tick.reason, tick.execution) == (Decision.MISSED, "paused", None)
    assert (firing.expect, firing.next_at) == (60.0, 240.0)


def test_a_tick_that_is_due_this_very_moment_is_missed_too():
    firing = gone_on(paused(every("1m"), next_at=60.0), 60.0)

    assert (firing.ticks[0].until, firing.next_at) == (60.0, 120.0)


def test_a_time_that_passed_in_the_pause_is_over():
    firing = gone_on(paused(at(60.0), next_at=60.0), 200.0)

    assert (firing.ticks[0].count, firing.next_at) == (1, None)


def test_a_fixed_delay_begins_anew():
    firing = gone_on(paused(every("1m", mode="delay"), next_at=60.0, delay=60.0), 200.0)

    assert (firing.ticks[0].count, firing.next_at, firing.is_over) == (1, 260.0, False)


def test_a_fixed_delay_that_has_ended_in_the_pause_is_over():
    rule = every("1m", mode="delay", end_at=150.0)

    firing = gone_on(paused(rule, next_at=60.0, delay=60.0), 200.0)

    assert (firing.next_at, firing.is_over) == (None, True)


def test_one_that_fired_as_often_as_it_may_does_not_go_on():
    rule = every("1m", max_executions=3)

    assert gone_on(paused(rule, next_at=60.0, fired=3), 200.0).next_at is None
    assert gone_on(paused(rule, next_at=60.0, fired=2), 200.0).next_at == 240.0


def test_a_long_pause_is_not_counted_to_its_end():
    firing = gone_on(paused(cron("* * * * * *"), next_at=60.0), 1e9)

    assert firing.ticks[0].count == COUNTED_MAX + 1


def test_what_is_on_record_is_not_missed_again():
    schedule = paused(every("1m"), next_at=120.0)
    records = [
        TickRecord(
            schedule=schedule.id,
            at=120.0,
            decision=Decision.MISSED,
            reason=None,
            until=180.0,
            execution=None,
            count=2,
        )
    ]

    firing = resume_schedule(schedule, 310.0, records)

    assert firing is not None
    assert (firing.expect, firing.next_at) == (120.0, 360.0)
    assert [(tick.at, tick.until, tick.count) for tick in firing.ticks] == [(240.0, 300.0, 2)]


def test_if_all_is_on_record_only_the_cursor_goes_on():
    schedule = paused(every("1m"), next_at=60.0)
    record = TickRecord(
        schedule=schedule.id,
        at=60.0,
        decision=Decision.FIRED,
        reason=None,
        until=None,
        execution=None,
    )

    firing = resume_schedule(schedule, 70.0, [record])

    assert firing is not None
    assert (firing.ticks, firing.next_at) == ((), 120.0)


# Which ticks of the past a backfill runs.

TICKS = [60.0, 120.0, 180.0]


def there(*states, at=120.0):
    return [Occurrence(scheduled_for=at, id=mint(), state=state) for state in states]


def chosen(occurrences, only, order=Order.OLDEST):
    return choose(TICKS, occurrences, only=only, order=order)


def test_the_range_has_its_beginning_and_not_its_end():
    assert ticks_between(every("1m"), 60.0, 180.0) == [60.0, 120.0]


def test_a_range_without_ticks_is_empty():
    assert ticks_between(cron("0 0 1 1 *"), 60.0, 180.0) == []


def test_a_range_with_too_many_ticks_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"more than 2 ticks.*shorter ranges"):
        ticks_between(every("1m"), 60.0, 300.0, limit=2)


def test_a_range_with_exactly_the_limit_is_fine():
    assert len(ticks_between(every("1m"), 60.0, 180.0, limit=2)) == 2


def test_a_tick_without_an_execution_is_missing():
    assert chosen(there(State.SUCCEEDED), Only.MISSING) == [60.0, 180.0]


def test_a_tick_whose_execution_was_skipped_is_missing_too():
    assert chosen(there(State.SKIPPED), Only.MISSING) == TICKS


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED, State.SUCCEEDED])
def test_what_ran_or_was_decided_on_is_not_missing(state):
    assert 120.0 not in chosen(there(state), Only.MISSING)


def test_failed_means_that_the_last_one_is_dead_and_none_succeeded():
    assert chosen(there(State.DEAD), Only.FAILED) == [120.0]
    assert chosen(there(State.DEAD, State.SUCCEEDED), Only.FAILED) == []
    assert chosen(there(State.SUCCEEDED, State.DEAD), Only.FAILED) == []
    assert chosen(there(State.DEAD, State.CANCELLED), Only.FAILED) == []


@pytest.mark.parametrize("only", Only)
@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_what_has_not_ended_is_never_run_beside_itself(only, state):
    assert 120.0 not in chosen(there(State.DEAD, state), only)


def test_all_are_all_that_have_ended_or_never_began():
    assert chosen(there(State.SUCCEEDED), Only.ALL) == TICKS


def test_the_newest_come_first_when_asked_for():
    assert chosen([], Only.MISSING, Order.NEWEST) == [180.0, 120.0, 60.0]


def test_a_time_that_differs_in_its_last_bit_is_the_same_tick():
    occurrences = there(State.SUCCEEDED, at=0.1 + 0.2)

    assert choose([0.3], occurrences, only=Only.MISSING, order=Order.OLDEST) == []
