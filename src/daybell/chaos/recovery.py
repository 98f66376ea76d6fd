"""How long what a lost worker ran had to wait, and whether the backlog shrank after an outage."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from daybell.chaos.checker import History, Violation
from daybell.chaos.effects import Effect
from daybell.core.instant import Seconds

SLACK_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 0.5  # an enqueue that takes longer shows that the store is busy or away
SHRINKS_WITHIN_SECONDS: Final = 10.0
SUSPECT_CRASHES: Final = 2  # from then on they wait for each other, on purpose


class Orphan(msgspec.Struct, frozen=True):
    """Something that was running when its worker was lost."""

    start: Effect
    lost_at: Seconds
    waited: Seconds  # until its next attempt started
    is_undisturbed: bool  # nothing else went wrong meanwhile that explains a delay


class Sample(msgspec.Struct, frozen=True):
    """How much was waiting at a moment."""

    at: Seconds
    backlog: int


def troubles(history: History, *, kinds: Collection[str]) -> list[Seconds]:
    """When the store itself did not answer: known, or seen by the load."""
    known = [one.at for one in history.happenings if one.what in kinds]
    slow = [
        call.asked_at
        for call in history.calls
        if call.answered_at is None or call.answered_at - call.asked_at > SLOW_SECONDS
    ]
    return sorted(known + slow)


def orphans(history: History, *, troubles: Sequence[Seconds], settling: Seconds) -> list[Orphan]:
    """What was running in a worker when it was killed or frozen, and started again elsewhere.

    `settling` is how long a store's trouble can delay what is lost after it.
    """
    losses: dict[int, list[Seconds]] = defaultdict(list)
    for one in history.happenings:
        if one.what in ("killed", "frozen"):
            losses[one.pid].append(one.at)
    found: list[Orphan] = []
    for starts in history.starts.values():
        for crashes, (first, second) in enumerate(pairwise(starts)):
            end = history.end_of(first)
            at = next((at for at in losses[first.pid] if at >= first.at), None)
            if at is None or second.at < at or (end is not None and end.at < at):
                continue
            is_disturbed = (
                second.attempt > first.attempt + 1
                or crashes >= SUSPECT_CRASHES
                or _any_between(troubles, at - settling, second.at)
                or history.was_frozen(second.pid, at, second.at)
            )
            found.append(Orphan(first, at, second.at - at, not is_disturbed))
    return found


def _any_between(times: Sequence[Seconds], since: Seconds, until: Seconds) -> bool:
    place = bisect_left(times, since)
    return place < len(times) and times[place] <= until


def late(found: Sequence[Orphan], *, within: Seconds) -> Iterator[Violation]:
    """Those that had to wait for too long."""
    for orphan in found:
        if orphan.is_undisturbed and orphan.waited > within:
            yield Violation(
                "restarted late",
                f"{orphan.start.execution} waited {orphan.waited:.2f} s for its next attempt,"
                f" and {within:g} s are promised",
            )


def stuck(
    samples: Sequence[Sample], back_at: Sequence[Seconds], *, few: int
) -> Iterator[Violation]:
    """Returns of the database after which the backlog did not shrink in time."""
    for at in back_at:
        after = [one for one in samples if at <= one.at <= at + SHRINKS_WITHIN_SECONDS]
        if not after or after[-1].backlog <= few:
            continue
        if after[-1].backlog >= max(one.backlog for one in after):
            yield Violation(
                "backlog grows",
                f"{after[-1].backlog} wait {after[-1].at - at:.1f} s after the database is back",
            )


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
