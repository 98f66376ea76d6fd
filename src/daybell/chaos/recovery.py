"""How long what a lost worker ran had to wait, and whether the backlog shrank after an outage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final

import msgspec

from daybell.chaos.checker import History, Violation
from daybell.chaos.effects import Effect
from daybell.core.instant import Seconds
from daybell.core.lifecycle import SUSPECT_CRASHES
from daybell.engine.loop import BACKOFF_MAX_SECONDS

SLACK_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 0.5  # an enqueue that takes longer shows that the store is busy or away
MANY: Final = 100  # that wait for a worker: what comes back has to wait for these, too
SHRINKS_WITHIN_SECONDS: Final = 10.0
SHOWS_AFTER_SECONDS: Final = 4.0  # without another fault, until that can be judged


class Trouble(msgspec.Struct, frozen=True, order=True):
    """A time in which the store itself did not answer, or had too much to do."""

    since: Seconds
    until: Seconds


class Orphan(msgspec.Struct, frozen=True):
    """Something that was running when its worker was lost."""

    start: Effect
    lost_at: Seconds
    counted_from: Seconds  # the same, or when the store was well again
    restarted_at: Seconds
    losses: int  # how often it was lost until it started again; then each has its time
    is_suspect: bool  # it had to wait for others of its kind, on purpose

    @property
    def waited(self) -> Seconds:
        return max(0.0, self.restarted_at - self.counted_from) / self.losses


class Sample(msgspec.Struct, frozen=True):
    """How much was waiting at a moment."""

    at: Seconds
    backlog: int


def troubles(
    history: History, samples: Sequence[Sample], *, lengths: Mapping[str, Seconds]
) -> list[Trouble]:
    """When the store was not well: known, or seen by the load. `lengths` says of happenings how
    long they last; a happening that ends with another has none.
    """
    found: list[Trouble] = []
    for one in history.happenings:
        if one.what in lengths:
            length = one.length or lengths[one.what]
            # Who found the store away asks again after pauses that double.
            found.append(Trouble(one.at, one.at + length + min(BACKOFF_MAX_SECONDS, length)))
    for call in history.calls:
        end = call.answered_at if call.failed_at is None else call.failed_at
        if end is not None and (end - call.asked_at > SLOW_SECONDS or call.failed_at is not None):
            found.append(Trouble(call.asked_at, end))
    found += [Trouble(a.at, b.at) for a, b in pairwise(samples) if a.backlog > MANY]
    return merged(found)


def merged(found: Sequence[Trouble]) -> list[Trouble]:
    """The same, in order, and none inside another."""
    whole: list[Trouble] = []
    for one in sorted(found):
        if whole and one.since <= whole[-1].until:
            whole[-1] = Trouble(whole[-1].since, max(whole[-1].until, one.until))
        else:
            whole.append(one)
    return whole


def orphans(history: History, *, troubles: Sequence[Trouble], within: Seconds) -> list[Orphan]:
    """What was running in a worker when it was killed or frozen, and started again elsewhere.

    Each is to wait no longer than `within`. If the store was in trouble meanwhile, that counts from
    its end: nobody was declared dead, and nobody could claim.
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
            # An attempt that nobody has seen was claimed by a worker that was lost, too, or was
            # drained, before it could start it.
            times = max(1, second.attempt - first.attempt)
            since = well_again(at, second.at, troubles, times * within)
            is_suspect = crashes >= SUSPECT_CRASHES
            found.append(Orphan(first, at, since, second.at, times, is_suspect))
    return found


def well_again(
    at: Seconds, until: Seconds, troubles: Sequence[Trouble], within: Seconds
) -> Seconds:
    """From when on the time counts, for something that was lost at that moment."""
    since = at
    for one in troubles:
        if one.since <= min(until, since + within) and one.until > since:
            since = min(until, one.until)
    return since


def late(found: Sequence[Orphan], *, within: Seconds) -> Iterator[Violation]:
    """Those that had to wait for too long."""
    for orphan in found:
        if not orphan.is_suspect and orphan.waited > within:
            yield Violation(
                "restarted late",
                f"{orphan.start.execution} waited {orphan.waited:.2f} s for attempt"
                f" {orphan.start.attempt + orphan.losses}, and {within:g} s are promised",
            )


class Return(msgspec.Struct, frozen=True):
    """What followed when the database was back."""

    first_start: Seconds  # until something was started
    backlog: int  # the most that was waiting
    shrinks: Seconds | None  # until less was waiting than that; None: not in time; 0: only few did


def returns(
    samples: Sequence[Sample],
    starts: Sequence[Seconds],
    back_at: Sequence[Seconds],
    *,
    few: int,
    away_at: Sequence[Seconds] = (),
) -> list[Return]:
    """How it went each time, until it went away again; so few are no backlog."""
    found: list[Return] = []
    for at in back_at:
        after = _after(samples, at, away_at)
        most = max((one.backlog for one in after), default=0)
        peak = next((one.at for one in after if one.backlog == most), at)
        less = next((one.at for one in after if one.at > peak and one.backlog < most), None)
        first = next((one - at for one in starts if one > at), inf)
        found.append(Return(first, most, 0.0 if most <= few else less and less - at))
    return found


def stuck(
    samples: Sequence[Sample],
    back_at: Sequence[Seconds],
    *,
    few: int,
    away_at: Sequence[Seconds] = (),
) -> Iterator[Violation]:
    """Returns of the database after which the backlog did not shrink in time."""
    for at in back_at:
        after = _after(samples, at, away_at)
        if not after or after[-1].backlog <= few:
            continue
        if after[-1].at - at < SHOWS_AFTER_SECONDS:
            continue  # another fault came too soon to tell
        if after[-1].backlog >= max(one.backlog for one in after):
            yield Violation(
                "backlog grows",
                f"{after[-1].backlog} wait {after[-1].at - at:.1f} s after the database is back",
            )


def _after(samples: Sequence[Sample], at: Seconds, away_at: Sequence[Seconds]) -> Sequence[Sample]:
    """Those in which the database was back. In the next outage the backlog grows again."""
    until = min((one for one in away_at if one > at), default=inf)
    return [one for one in samples if at <= one.at <= min(until, at + SHRINKS_WITHIN_SECONDS)]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
