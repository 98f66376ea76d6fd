"""Where schedules begin, and go on after a pause."""

from daybell.core.ids import mint
from daybell.core.schedule import Decision, Schedule, TickRecord
from daybell.core.when import at, cron, every
from daybell.core.when.cursor import COUNTED_MAX, first_tick, resume_schedule


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
