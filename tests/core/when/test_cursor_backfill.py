"""Which ticks of the past a backfill runs."""

import pytest

from daybell.core.execution import TERMINAL, State
from daybell.core.ids import mint
from daybell.core.schedule import Occurrence
from daybell.core.when import cron, every
from daybell.core.when.cursor import Only, Order, choose, ticks_between
from daybell.errors import UsageError

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
