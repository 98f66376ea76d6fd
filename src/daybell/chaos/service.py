"""How soon workers, schedulers and servers serve again after a fault of their connections, and
which leases were lost without need. Pure, as the other rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from daybell.chaos.checker import History, Violation
from daybell.chaos.effects import START, Effect
from daybell.chaos.fleet import SERVER
from daybell.chaos.plan import ALONE, SERVES_SECONDS, Kind
from daybell.chaos.submissions import ANSWER_SECONDS
from daybell.core.instant import Seconds
from daybell.core.schedule import Decision
from daybell.core.worker import Worker

SILENCE_SECONDS: Final = 3.0  # of all schedules, while one process keeps its locks
SETTLES_SECONDS: Final = 5.0  # after the store was away, until a fault shows its own effect alone
SEEN_SECONDS: Final = 2.0  # before a fault: what was at work then is to go on
HITS: Final = frozenset({"killed", "frozen", "drained"})
STALL: Final = "stall"  # of the run's own process, through which all connections go
STALL_SECONDS: Final = 0.25  # shorter ones do not matter
STALLED_SHARE: Final = 0.2  # of a lease: with longer stalls in it a window shows nothing


class Window(msgspec.Struct, frozen=True):
    """The time of a fault in which no other is to disturb its effect."""

    since: Seconds
    until: Seconds


def judge_service(history: History, *, lease: Seconds) -> Iterator[Violation]:
    """All rules of this module."""
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
    """The faults of a kind, as far as the load went on. Those are left out in which the machine was
    too busy to say anything about promises, or the store was away for all.
    """
    for one in history.happenings:
        if one.what != kind or one.at >= history.over_at:
            continue
        until = min(one.at + one.length, history.over_at)
        is_busy = stalled(history, one.at - SEEN_SECONDS, until) > STALLED_SHARE * lease
        if not is_busy and not store_was_away(history, one.at - SETTLES_SECONDS, until):
            yield Window(one.at, until)


def unjudged(history: History, *, lease: Seconds) -> int:
    """The number of faults that are left out."""
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


def stalled(history: History, since: Seconds, until: Seconds) -> Seconds:
    """How long the machine gave no time to the run, all in all."""
    return sum(
        one.length
        for one in history.happenings
        if one.what == STALL and one.at < until and one.at + one.length > since
    )


def deaf_workers(history: History, window: Window, *, within: Seconds) -> Iterator[Violation]:
    """Workers that started nothing new in time after their connections had gone deaf. What was
    claimed before does not count.
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
    """Servers that accepted nothing in time after their connections had gone deaf."""
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
    """Times in which no schedule fired at all."""
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
    """Ticks of the window on record as missed: a lock of another is no reason."""
    for course in history.courses:
        for tick in course.ticks:
            if tick.decision is Decision.MISSED and (
                window.since < tick.at - history.clock < window.until
            ):
                yield Violation(
                    "tick missed", f"{course.name} missed {tick.count} ticks behind a held commit"
                )


def lost_leases(history: History, window: Window, *, lease: Seconds) -> Iterator[Violation]:
    """Processes whose lease ended in the window, although nothing was done to them but that answers
    took longer: each had to register as a worker once more.
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
    """Requests that a server did not answer in time, not even that the store is away."""
    for bulk in history.submissions:
        for one in bulk.tries:
            if one.ended_at is None or one.ended_at - one.asked_at <= ANSWER_SECONDS:
                continue
            is_stalled = stalled(history, one.asked_at, one.ended_at) > 0
            if not is_stalled and not was_hit(history, one.pid, one.asked_at, one.ended_at):
                yield Violation(
                    "answered late",
                    f"{SERVER} process {one.pid} did not answer within {ANSWER_SECONDS:g} s",
                )


def was_hit(history: History, pid: int, since: Seconds, until: Seconds) -> bool:
    """True if something else was done to a process in between, or it ended."""
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
