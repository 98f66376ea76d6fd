"""Backfill: which of a schedule's past ticks are run now, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import assert_never

from daybell.core.execution import TERMINAL, State
from daybell.core.instant import Instant
from daybell.core.limits import BACKFILL_TICKS_MAX
from daybell.core.schedule import Occurrence
from daybell.core.when import Schedule as Rule
from daybell.core.when.zone import just_before
from daybell.errors import UsageError


class Only(StrEnum):
    """Which ticks are wanted. One whose execution has not ended is never among them."""

    MISSING = "missing"  # nothing ran: there is no execution, or a rule has skipped it
    FAILED = "failed"  # the last execution is dead, and none has succeeded
    ALL = "all"


class Order(StrEnum):
    """Which of them comes first."""

    OLDEST = "oldest"
    NEWEST = "newest"


def ticks_between(
    rule: Rule, since: Instant, until: Instant, *, limit: int = BACKFILL_TICKS_MAX
) -> list[Instant]:
    """The ticks from `since` to before `until`, oldest first. More than `limit` are refused."""
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
    """The ticks to run, given the executions that there are for them, oldest first."""
    states: dict[int, list[State]] = {}
    for occurrence in occurrences:
        states.setdefault(_exact(occurrence.scheduled_for), []).append(occurrence.state)
    chosen = [tick for tick in sorted(ticks) if _is_wanted(states.get(_exact(tick), ()), only)]
    return chosen if order is Order.OLDEST else chosen[::-1]


def _exact(instant: Instant) -> int:
    """In microseconds: what a store gives back may differ in the last bit."""
    return round(instant * 1_000_000)


def _is_wanted(states: Sequence[State], only: Only) -> bool:
    if any(state not in TERMINAL for state in states):
        return False  # it will run, or does
    match only:
        case Only.MISSING:
            return all(state is State.SKIPPED for state in states)
        case Only.FAILED:
            return State.SUCCEEDED not in states and states[-1:] == [State.DEAD]
        case Only.ALL:
            return True
        case _:
            assert_never(only)
