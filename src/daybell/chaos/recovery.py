"""Recovery after faults: restart times, backlog after an outage, and service. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final

import msgspec

from daybell.chaos.checker import History, Violation
from daybell.chaos.faults import ALONE, SERVES_SECONDS, Kind
from daybell.chaos.fleet import SERVER
from daybell.chaos.load import ANSWER_SECONDS
from daybell.chaos.tasks import START, Effect
from daybell.core.lifecycle import SUSPECT_CRASHES
from daybell.core.schedule import Decision
from daybell.core.units import Seconds
from daybell.core.worker import Worker
from daybell.engine.loop import BACKOFF_MAX_SECONDS

SLACK_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 0.5  # an enqueue that takes longer shows that the store is busy or away
MANY: Final = 100  # that wait for a worker: a restarted execution waits behind these, too
SHRINKS_WITHIN_SECONDS: Final = 10.0
SHOWS_AFTER_SECONDS: Final = 4.0  # without another fault, until that can be judged


class Trouble(msgspec.Struct, frozen=True, order=True):
    """A time in which the store did not answer, or was overloaded."""

    since: Seconds
    until: Seconds


class Orphan(msgspec.Struct, frozen=True):
    """An execution that was running when its worker was lost."""

    start: Effect
    lost_at: Seconds
    counted_from: Seconds  # the same, or the end of a trouble of the store
    restarted_at: Seconds
    losses: int  # losses until it started again; each has its time
    is_suspect: bool  # it had to wait for other suspects

    @property
    def waited(self) -> Seconds:
        return max(0.0, self.restarted_at - self.counted_from) / self.losses


class Sample(msgspec.Struct, frozen=True):
    """The backlog at a moment."""

    at: Seconds
    backlog: int


def find_troubles(
    history: History, samples: Sequence[Sample], *, lengths: Mapping[str, Seconds]
) -> list[Trouble]:
    """Return times of trouble: known ones, and those that the load noticed. `lengths` has the
    duration of each kind of event; an event that ends with another has none.
    """
    found: list[Trouble] = []
    for one in history.happenings:
        if one.what in lengths:
            length = one.length or lengths[one.what]
            # Clients of a store that was away try again after pauses that double.
            found.append(Trouble(one.at, one.at + length + min(BACKOFF_MAX_SECONDS, length)))
    for call in history.calls:
        end = call.answered_at if call.failed_at is None else call.failed_at
        if end is not None and (end - call.asked_at > SLOW_SECONDS or call.failed_at is not None):
            found.append(Trouble(call.asked_at, end))
    found += [Trouble(a.at, b.at) for a, b in pairwise(samples) if a.backlog > MANY]
    return merge_troubles(found)


def merge_troubles(found: Sequence[Trouble]) -> list[Trouble]:
    """Join overlapping troubles, in order."""
    whole: list[Trouble] = []
    for one in sorted(found):
        if whole and one.since <= whole[-1].until:
            whole[-1] = Trouble(whole[-1].since, max(whole[-1].until, one.until))
        else:
            whole.append(one)
    return whole


def find_orphans(history: History, *, troubles: Sequence[Trouble], within: Seconds) -> list[Orphan]:
    """Return executions that ran in a worker when it was killed or frozen, and started again
    elsewhere.

    Each should wait at most `within`. During a trouble of the store no worker was declared dead and
    none could claim, so the time counts from its end.
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
            # An attempt without an effect was claimed by a worker that was also lost, or was
            # drained, before it could start.
            times = max(1, second.attempt - first.attempt)
            since = recovery_start(at, second.at, troubles, times * within)
            is_suspect = crashes + times - 1 >= SUSPECT_CRASHES  # these losses count, too
            found.append(Orphan(first, at, since, second.at, times, is_suspect))
    return found


def recovery_start(
    at: Seconds, until: Seconds, troubles: Sequence[Trouble], within: Seconds
) -> Seconds:
    """Return the start of the time that counts, for an execution that was lost at that moment."""
    since = at
    for one in troubles:
        if one.since <= min(until, since + within) and one.until > since:
            since = min(until, one.until)
    return since


def find_late_orphans(found: Sequence[Orphan], *, within: Seconds) -> Iterator[Violation]:
    """Return orphans that waited too long."""
    for orphan in found:
        if not orphan.is_suspect and orphan.waited > within:
            yield Violation(
                "restarted late",
                f"{orphan.start.execution} waited {orphan.waited:.2f} s for attempt"
                f" {orphan.start.attempt + orphan.losses}, and {within:g} s are promised",
            )


class Return(msgspec.Struct, frozen=True):
    """The time after a return of the database."""

    first_start: Seconds  # until an execution started
    backlog: int  # the largest backlog
    shrinks: Seconds | None  # until the backlog was smaller; None: not in time; 0: no backlog


def find_returns(
    samples: Sequence[Sample],
    starts: Sequence[Seconds],
    back_at: Sequence[Seconds],
    *,
    few: int,
    away_at: Sequence[Seconds] = (),
) -> list[Return]:
    """Return the course of each return, until the next outage; `few` are no backlog."""
    found: list[Return] = []
    for at in back_at:
        after = _after(samples, at, away_at)
        most = max((one.backlog for one in after), default=0)
        peak = next((one.at for one in after if one.backlog == most), at)
        less = next((one.at for one in after if one.at > peak and one.backlog < most), None)
        first = next((one - at for one in starts if one > at), inf)
        found.append(Return(first, most, 0.0 if most <= few else less and less - at))
    return found


def find_stuck_returns(
    samples: Sequence[Sample],
    back_at: Sequence[Seconds],
    *,
    few: int,
    away_at: Sequence[Seconds] = (),
) -> Iterator[Violation]:
    """Return returns of the database after which the backlog did not shrink in time."""
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
    """Return samples after the return. In the next outage the backlog grows again."""
    until = min((one for one in away_at if one > at), default=inf)
    return [one for one in samples if at <= one.at <= min(until, at + SHRINKS_WITHIN_SECONDS)]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# Service of workers, schedulers and servers after a fault of their connections, and leases that
# were lost without need. Pure, as the other rules.

SILENCE_SECONDS: Final = 3.0  # of all schedules, while one process keeps its locks
SETTLES_SECONDS: Final = 5.0  # after the store was away, until a fault shows its own effect alone
SEEN_SECONDS: Final = 2.0  # before a fault: the processes at work then should continue
HITS: Final = frozenset({"killed", "frozen", "drained"})
STALL: Final = "stall"  # of the run's own process, through which all connections go
STALL_SECONDS: Final = 0.25  # shorter ones do not matter
STALLED_SHARE: Final = 0.2  # of a lease: longer stalls make a window meaningless


class Window(msgspec.Struct, frozen=True):
    """The time of a fault that no other fault should disturb."""

    since: Seconds
    until: Seconds


def judge_service(history: History, *, lease: Seconds) -> Iterator[Violation]:
    """Apply all rules of this module."""
    within = lease + SERVES_SECONDS
    for window in windows(history, Kind.DEAF, lease=lease):
        yield from deaf_workers(history, window, within=within)
        yield from deaf_servers(history, window, within=within)
        yield from silent_schedules(history, window, within=within)
    for window in windows(history, Kind.HOLD, lease=lease):
        yield from silent_schedules(history, window, within=SILENCE_SECONDS)
        yield from missed_ticks(history, window)
    for window in windows(history, Kind.SLOW, lease=lease):
        yield from lost_leases(history, window, lease=lease)
    yield from late_answers(history)


def windows(history: History, kind: Kind, *, lease: Seconds) -> Iterator[Window]:
    """Return the windows of a kind of fault during the load, without those in which the machine was
    too busy, or the store was away for all.
    """
    for one in history.happenings:
        if one.what != kind or one.at >= history.over_at:
            continue
        until = min(one.at + one.length, history.over_at)
        if is_busy(history, one.at - SEEN_SECONDS, until, lease=lease):
            continue
        if not store_was_away(history, one.at - SETTLES_SECONDS, until):
            yield Window(one.at, until)


def is_busy(history: History, since: Seconds, until: Seconds, *, lease: Seconds) -> bool:
    """Return whether the machine was too busy to judge anything in this time."""
    return stalled_seconds(history, since, until) > STALLED_SHARE * lease


def count_unjudged(history: History, *, lease: Seconds) -> int:
    """Return the number of faults that are left out."""
    return sum(
        sum(one.what == kind and one.at < history.over_at for one in history.happenings)
        - len(list(windows(history, kind, lease=lease)))
        for kind in ALONE
    )


def store_was_away(history: History, since: Seconds, until: Seconds) -> bool:
    """Return whether all processes have lost the store in this time, and have a backlog for it."""
    return any(
        one.what in (Kind.RESTART, Kind.OUTAGE, Kind.CUT)
        and one.at < until
        and one.at + one.length > since
        for one in history.happenings
    )


def stalled_seconds(history: History, since: Seconds, until: Seconds) -> Seconds:
    """Return how long the machine gave no time to the run, in sum."""
    return sum(
        one.length
        for one in history.happenings
        if one.what == STALL and one.at < until and one.at + one.length > since
    )


def deaf_workers(history: History, window: Window, *, within: Seconds) -> Iterator[Violation]:
    """Report workers that started nothing new in time after their connections went deaf. Executions
    that were claimed before do not count.
    """
    if window.until < window.since + within:
        return
    last: dict[int, Seconds] = {}
    back: set[int] = set()
    for one in history.effects:
        if one.what != START or one.at > window.until:
            continue
        if one.at < window.since:
            last[one.pid] = one.at
        elif _created(history, one) > window.since:
            back.add(one.pid)
    for pid, at in last.items():
        if at < window.since - SEEN_SECONDS or pid in back:
            continue
        if not was_hit(history, pid, at, window.until):
            yield Violation(
                "deaf for too long",
                f"worker process {pid} started nothing new within {within:g} s after its"
                " connections went deaf",
            )


def deaf_servers(history: History, window: Window, *, within: Seconds) -> Iterator[Violation]:
    """Report servers that accepted nothing in time after their connections went deaf."""
    if window.until < window.since + within:
        return
    answers = [one for bulk in history.submissions for one in bulk.answers]
    asked = {
        one.pid
        for bulk in history.submissions
        for one in bulk.tries
        if window.since < one.asked_at < window.until - SEEN_SECONDS
    }
    for pid in sorted(asked):
        if any(one.pid == pid and window.since < one.asked_at < window.until for one in answers):
            continue
        if not was_hit(history, pid, window.since, window.until):
            yield Violation(
                "deaf for too long",
                f"server process {pid} accepted no request within {within:g} s after its"
                " connections went deaf",
            )


def silent_schedules(history: History, window: Window, *, within: Seconds) -> Iterator[Violation]:
    """Report times in which no schedule fired."""
    if not history.courses:
        return
    fired = sorted(
        one.created_at - history.clock
        for one in history.executions.values()
        if one.schedule is not None
    )
    inside = [at for at in fired if window.since < at < window.until]
    for since, until in pairwise([window.since, *inside, window.until]):
        if until - since > within:
            yield Violation(
                "schedules silent",
                f"no schedule fired for {until - since:.1f} s, from"
                f" {since - window.since:.1f} s after the fault on; {within:g} s are promised",
            )


def missed_ticks(history: History, window: Window) -> Iterator[Violation]:
    """Report ticks of the window that are recorded as missed: a lock of another process is no
    reason.
    """
    for course in history.courses:
        for tick in course.ticks:
            if tick.decision is Decision.MISSED and (
                window.since < tick.at - history.clock < window.until
            ):
                yield Violation(
                    "tick missed", f"{course.name} missed {tick.count} ticks behind a held commit"
                )


def lost_leases(history: History, window: Window, *, lease: Seconds) -> Iterator[Violation]:
    """Report processes that lost their lease in the window only because answers took longer: each
    had to register a worker again.
    """
    by_process: dict[int, list[Worker]] = defaultdict(list)
    for one in sorted(history.workers, key=lambda worker: worker.started_at):
        by_process[one.pid].append(one)
    for pid, workers in by_process.items():
        for first, _ in pairwise(workers):
            at = first.lease_until - history.clock
            if not window.since < at < window.until:
                continue
            since = max(first.started_at - history.clock, at - lease - SEEN_SECONDS)
            if not was_hit(history, pid, since, at):
                yield Violation(
                    "lease lost",
                    f"{first.name}, process {pid}, lost its lease {at - window.since:.1f} s after"
                    " the store had become slow",
                )


def late_answers(history: History) -> Iterator[Violation]:
    """Report requests without a timely answer, not even that the store is away."""
    for bulk in history.submissions:
        for one in bulk.tries:
            if one.ended_at is None:
                continue
            if one.ended_at - one.asked_at - one.starved <= ANSWER_SECONDS:
                continue
            is_stalled = stalled_seconds(history, one.asked_at, one.ended_at) > 0
            if not is_stalled and not was_hit(history, one.pid, one.asked_at, one.ended_at):
                yield Violation(
                    "answered late",
                    f"{SERVER} process {one.pid} did not answer within {ANSWER_SECONDS:g} s",
                )


def was_hit(history: History, pid: int, since: Seconds, until: Seconds) -> bool:
    """True if another fault hit a process in between, or it ended."""
    for one in history.happenings:
        is_end = one.what in HITS or one.what.startswith("ended")
        if one.pid == pid and is_end and since <= one.at <= until:
            return True
    ended_at = history.exits.get(pid)
    if ended_at is not None and since <= ended_at <= until:
        return True
    return history.was_frozen(pid, since, until)


def _created(history: History, start: Effect) -> Seconds:
    execution = history.executions.get(start.execution)
    return 0.0 if execution is None else execution.created_at - history.clock
