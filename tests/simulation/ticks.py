"""Checks schedules and ticks after every operation against their promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from daybell.core.execution import TERMINAL, State
from daybell.core.schedule import OVERLAP, Decision, Firing, Schedule, TickRecord
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import AHEAD_SECONDS, first_tick
from daybell.core.worker import SCHEDULER
from tests.simulation.places import Place, Seen, TickKey
from tests.simulation.schedules import KINDS, OWN

if TYPE_CHECKING:
    from tests.simulation.world import Call

DEFINING: Final = {"put_schedules", "delete_schedules"}
FIRING: Final = {"fire", "resume_job"}
TURNING: Final = "turn_back"  # the only operation that removes ticks from the record
# The end of an execution updates its schedule: a fixed delay begins, a failure counts.
ENDING: Final = {"apply", "cancel", "expire", "renew", "release", "enqueue", "fire"}


@lru_cache(maxsize=100)
def rule_of(text: str) -> Rule:
    return Rule.from_json(text)


class Ticks:
    """The schedules as last observed, and all records about them."""

    def __init__(
        self,
        place: Place,
        now: Callable[[], float],
        fail: Callable[[str], None],
        seen: Counter[str],
    ) -> None:
        self._place = place
        self._now = now
        self._fail = fail
        self._seen = seen
        self.schedules: dict[UUID, Schedule] = {}
        self._records: dict[TickKey, TickRecord] = {}
        self._before: dict[TickKey, TickRecord] = {}  # the same, before the last operation
        self._executions: dict[TickKey, UUID] = {}  # of each tick
        self._defined: set[UUID] = (
            set()
        )  # schedules with a time computed by a client, perhaps earlier
        self._turned: set[TickKey] = set()  # ticks that were removed from the record
        self._unarmed: set[UUID] = set()  # fixed delays that only the sweep can start
        # Schedulers that have asked to lead: when they came up, and until when they count as alive.
        self._there: dict[UUID, tuple[float, float]] = {}
        self._seen_at: float | None = None  # until when one was alive, without a break

    def late(self, since: float) -> list[Schedule]:
        """Return schedules that were due then, and have not fired."""
        return [
            one
            for one in self.schedules.values()
            if one.next_at is not None and one.next_at <= since and not one.is_paused
        ]

    def ahead(self) -> list[Schedule]:
        """Return schedules that stand at a later time than their rule gives for the present."""
        now = self._now() + AHEAD_SECONDS
        found: list[Schedule] = []
        for one in self.schedules.values():
            if one.next_at is None or one.is_paused or one.is_reboot or one.id in self._defined:
                continue
            rule = rule_of(one.rule)
            if rule.max_executions is not None and one.fired >= rule.max_executions:
                continue  # it will not fire, at any time
            first = first_tick(rule, now)
            if first is not None and one.next_at > first:
                found.append(one)
        return found

    def judge(
        self, call: Call, rows: Mapping[UUID, Seen], answer: Any, error: BaseException | None
    ) -> bool:
        """Check an applied operation; return True if schedulers should be notified."""
        old, new = self.schedules, self._place.schedules()
        self.schedules = new
        changes = [
            (old.get(id), new.get(id))
            for id in old.keys() | new.keys()
            if old.get(id) is not new.get(id) and old.get(id) != new.get(id)
        ]
        if error is not None:
            if changes:
                self._fail(f"{call.operation} raised {error!r}, and yet changed schedules")
            return False
        if call.operation in FIRING:
            self._check_records(call, rows)
            self._check_firings(call, old, answer)
        if call.operation == TURNING:
            self._check_turned(call)
        if call.operation == "lead" and call.args[0] == SCHEDULER:
            self._check_lead(call, old, answer)
        if call.operation == "put_schedules":
            self._defined |= {one.id for one in call.args[1]}
        else:
            self._defined -= {
                one.id for old_one, one in changes if one and _has_moved(old_one, one)
            }
        for before, after in changes:
            if problem := self._broken(call, before, after):
                self._fail(f"{call.operation} by {call.process}: {problem}: {before} -> {after}")
        self._check_armed(call, rows)
        return any(after is not None and after.next_at is not None for _, after in changes)

    # Ticks.

    def _check_records(self, call: Call, rows: Mapping[UUID, Seen]) -> None:
        """Check that each tick is decided once, and that decisions stay."""
        known, self._records = self._records, self._place.ticks()
        self._before = known
        for key, tick in known.items():
            if self._records.get(key) != tick:
                self._fail(f"{call.operation} by {call.process} decided again about {tick}")
        for key in self._records.keys() - known.keys():
            self._check_record(self._records[key], rows)

    def _check_turned(self, call: Call) -> None:
        """Check that only missed ticks in the future of the scheduler's poll are removed.

        Its time counts, not that at which the request arrives: the clock may have been set back
        again meanwhile. Then the schedule still is ahead of it, and the next poll cuts once more.
        """
        polled_at = {turn.schedule: turn.now for turn in call.args[0]}
        known, self._records = self._records, self._place.ticks()
        for key, tick in known.items():
            kept = self._records.get(key)
            if kept == tick:
                continue
            self._seen["missed tick re-armed"] += 1
            self._turned.add(key)
            now = polled_at.get(tick.schedule)
            is_later = now is not None and (tick.until or tick.at) > now
            is_cut = kept is None or (now is not None and tick.at <= (kept.until or kept.at) <= now)
            if tick.decision is not Decision.MISSED or not is_later or not is_cut:
                self._fail(f"{call.process} has turned back {tick} to {kept}")

    def _check_record(self, tick: TickRecord, rows: Mapping[UUID, Seen]) -> None:
        if tick.decision is Decision.MISSED:
            self._seen["range missed"] += 1
            return
        row = None if tick.execution is None else rows.get(tick.execution)
        if row is None or (row.schedule, row.scheduled_for) != (tick.schedule, tick.at):
            self._fail(f"a tick has no execution, or that of another: {tick}: {row}")
        elif (tick.decision is Decision.SKIPPED) != (row.state is State.SKIPPED):
            self._fail(f"a tick was {tick.decision}, and its execution is {row}")
        self._seen["tick skipped"] += tick.decision is Decision.SKIPPED
        if tick.schedule in OWN and tick.reason == OVERLAP:
            self._seen["skipped apart"] += 1
            if not self._unfinished(rows, tick):
                self._fail(f"a tick was skipped, and none of its schedule was before it: {tick}")

    def _unfinished(self, rows: Mapping[UUID, Seen], tick: TickRecord) -> list[Seen]:
        """Return other unfinished executions of its schedule."""
        return [
            row
            for row in rows.values()
            if row.schedule == tick.schedule
            and row.id != tick.execution
            and row.state not in TERMINAL
        ]

    def created(self, row: Seen) -> None:
        """Check a new execution, of a schedule or not."""
        if row.schedule is None or row.scheduled_for is None:
            return
        key = row.schedule, row.scheduled_for
        if self._executions.setdefault(key, row.id) != row.id:
            self._fail(f"a tick has two executions: {self._executions[key]} and {row}")

    def _check_firings(self, call: Call, old: dict[UUID, Schedule], answer: Any) -> None:
        firings: list[Firing] = call.args[0] if call.operation == "fire" else call.args[2]
        answers = answer if call.operation == "fire" else [None] * len(firings)
        for firing, is_ours in zip(firings, answers, strict=True):
            before, after = old.get(firing.schedule), self.schedules.get(firing.schedule)
            stands = before is not None and before.next_at == firing.expect
            self._seen["schedulers collided"] += before is not None and not stands
            if before is not None and before.is_paused and call.operation == "fire":
                stands = False
            if any((firing.schedule, tick.at) in self._before for tick in firing.missed):
                self._seen["range refused"] += stands
                stands = False
            if is_ours not in (None, stands):
                self._fail(f"a firing of {before} was answered {is_ours}: {firing}")
            if stands and before is not None and after is not None:
                self._check_covered(firing, before, after)

    def _check_covered(self, firing: Firing, before: Schedule, after: Schedule) -> None:
        """Check that every time between two cursors is on record, as fired, as skipped or in a
        range.
        """
        rule = rule_of(before.rule)
        recorded = {tick.at: tick for tick in firing.ticks}
        at, end = before.next_at, firing.next_at
        if firing.if_refused_at is not None and after.next_at is not None:
            end = firing.if_refused_at  # its last tick was not fired, so it continues
        while at is not None and (end is None or at < end):
            record = self._records.get((firing.schedule, at))
            if record is None and at > self._now():
                return  # planned while the clock was ahead; `ahead` checks that it is turned back
            if record is None:
                # A firing that was planned around a record may arrive after its removal.
                is_turned = not firing.ticks and (firing.schedule, at) in self._turned
                if not is_turned and not _is_used_up(rule, firing, after):
                    self._fail(f"the tick {at} of {after.job} is lost, by {firing}: {after}")
                return
            tick = recorded.get(at)
            new = None if tick is None else tick.execution
            self._seen["tick on record"] += new is not None and record.execution != new.id
            until = record.until or at  # not the request of the firing: that may have been refused
            if tick is None or tick.until != record.until:
                until = max(at, min(until, self._now()))  # the clock was ahead at that time
            at = end if rule.delay is not None else rule.next_after(until)
        if at != end:
            self._fail(f"{after.job} went on to {end}, and its next time is {at}: {firing}")

    # Schedules.

    def _broken(self, call: Call, before: Schedule | None, after: Schedule | None) -> str | None:
        """Describe the error of a change, if there is one."""
        if before is None or after is None:
            return None if call.operation in DEFINING else "it came or went"
        most = KINDS[after.job].definition.pause_after_failures
        if most is not None and after.failures >= most and not after.is_paused:
            return "it failed too often, and is not paused"
        if after.is_paused != before.is_paused and (problem := self._paused(call, after)):
            return problem
        if call.operation in DEFINING or after.next_at == before.next_at:
            return None
        if call.operation == TURNING:
            self._seen["schedule turned back"] += 1
            return None if after.next_at is not None else "it was turned back to no time"
        is_rate = after.delay is None and not after.is_reboot
        if is_rate and before.next_at is None:
            return "it was over, and goes on"
        if is_rate and after.next_at is not None and after.next_at < (before.next_at or 0):
            return "its cursor went back"
        if before.next_at is None and after.delay is not None:
            return self._armed(call, after)
        allowed = {*FIRING, "lead"} if after.is_reboot else FIRING
        return None if call.operation in allowed else "this operation fires nothing"

    def _paused(self, call: Call, after: Schedule) -> str | None:
        if not after.is_paused:
            self._seen["job resumed"] += 1
            return None if call.operation == "resume_job" else "it was resumed by itself"
        if call.operation in ("pause_job", *DEFINING):
            return None
        most = KINDS[after.job].definition.pause_after_failures
        self._seen["paused by failures"] += 1
        of_job = [one for one in self.schedules.values() if one.job == after.job]
        is_due = most is not None and any(one.failures >= most for one in of_job)
        return None if is_due else "nobody has paused it"

    def _armed(self, call: Call, after: Schedule) -> str | None:
        if call.operation == "rearm_schedules":
            self._seen["rearmed"] += 1
            return None if after.id in self._unarmed else "nothing was there to be swept up"
        if call.operation not in ENDING:
            return "no end has come"
        return None if after.next_at == self._now() + (after.delay or 0) else "not after its delay"

    def _check_armed(self, call: Call, rows: Mapping[UUID, Seen]) -> None:
        """Check that a fixed delay has a next time, or waits for an execution, or is over."""
        idle = {one.id: one for one in self.schedules.values() if one.delay and one.next_at is None}
        waited, at_work = set[UUID](), set[UUID]()
        for row in rows.values() if idle else ():
            schedule = None if row.schedule is None else idle.get(row.schedule)
            if schedule is not None and row.state not in TERMINAL:
                at_work.add(schedule.id)
                # One that came back after a newer tick ends without a next time.
                if not _is_replaced(row, schedule):
                    waited.add(schedule.id)
        if call.operation == "rearm_schedules" and (left := idle.keys() - at_work):
            self._fail(f"{len(left)} fixed delays are not set, and the sweep is over")
        fresh = idle.keys() - waited - self._unarmed
        # A client that stores one without a next time, or fires a recorded time, leaves it to the
        # sweep.
        if fresh and call.operation not in ("put_schedules", "fire"):
            self._fail(f"{call.operation} by {call.process} has ended what a fixed delay waits for")
        self._unarmed = idle.keys() - waited

    def _check_lead(self, call: Call, old: dict[UUID, Schedule], answer: Any) -> None:
        """Check that a reboot schedule is due when a scheduler leads, and none was alive before."""
        now, holder = self._now(), call.kwargs["holder"]
        since = call.kwargs["since"]
        self._there[holder] = since, now + call.kwargs["lease"]
        is_heir = self._seen_at is not None and since <= self._seen_at
        could_speak = [
            other
            for other, (came_up, until) in self._there.items()
            if other != holder
            and until > now
            and self._seen_at is not None
            and came_up <= self._seen_at
        ]
        is_reboot = answer is not None and not is_heir and not could_speak
        # A scheduler that has not asked in time is gone, even if the clock should be set back.
        self._there = {one: seen for one, seen in self._there.items() if seen[1] > now}
        if is_heir or is_reboot:
            self._seen_at = now
        for one in self.schedules.values():
            known = old.get(one.id)
            if not one.is_reboot or known is None:
                continue
            if is_reboot:
                self._seen["reboot"] += 1
            wanted = now if is_reboot else known.next_at
            if one.next_at != wanted:
                self._fail(f"{call.process} leads as {answer}; a reboot: {is_reboot}; yet {one}")

    def resigned(self, holder: UUID) -> None:
        """Record the end of a scheduler, which was alive until now if it was sure to be in time."""
        came_up, _ = self._there.pop(holder, (float("inf"), 0.0))
        if self._seen_at is not None and came_up <= self._seen_at:
            self._seen_at = self._now()


def _has_moved(before: Schedule | None, after: Schedule) -> bool:
    return before is None or before.next_at != after.next_at


def _is_replaced(row: Seen, schedule: Schedule) -> bool:
    """Return True for an execution of an earlier tick than the last one."""
    latest, at = schedule.last_at, row.scheduled_for
    return latest is not None and at is not None and at < latest


def _is_used_up(rule: Rule, firing: Firing, after: Schedule) -> bool:
    """Return True if it is over because it has fired as often as it may."""
    if firing.next_at is not None or rule.max_executions is None:
        return False
    return after.fired >= rule.max_executions
