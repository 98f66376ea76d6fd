"""Checks jobs that depend on jobs: none begins before its dependencies allow it, and each round
fires once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from daybell.core.execution import TERMINAL, State
from daybell.core.schedule import Schedule
from tests.simulation.checker import Checker
from tests.simulation.places import Seen
from tests.simulation.rules import ADMITTING, is_admission
from tests.simulation.ticks import TURNING, Ticks

if TYPE_CHECKING:
    from tests.simulation.world import Call

WAITS = "dependencies"
FAILED = TERMINAL - {State.SUCCEEDED}


class Cursors(Ticks):
    """Cursors of both kinds: moved by schedulers, from the position that they read."""

    def judge(
        self, call: Call, rows: Mapping[UUID, Seen], answer: Any, error: BaseException | None
    ) -> bool:
        old, new = self.schedules, self._place.schedules()
        self.schedules = new
        changes = [(one, new[id]) for id, one in old.items() if new[id].cursor != one.cursor]
        if error is not None:
            return False
        if call.operation in ("fire", TURNING):
            self._before, self._records = self._records, self._place.ticks()
        if call.operation == "fire":
            self._check_cursors(call, old, answer)
        elif call.operation == TURNING:
            self._check_rewinds(call, changes)
        elif changes:
            self._fail(f"{call.operation} by {call.process} fires nothing, and yet: {changes}")
        return any(one.next_at is not None for _, one in changes)

    def _check_rewinds(self, call: Call, changes: list[tuple[Schedule, Schedule]]) -> None:
        """Check that a schedule too far ahead of a clock that was set back goes back."""
        for before, after in changes:
            self._seen["schedule turned back"] += 1
            if after.next_at is None or before.next_at is None or after.next_at >= before.next_at:
                self._fail(f"{call.process} turned {before} back to {after.next_at}")

    def _check_cursors(self, call: Call, old: dict[UUID, Schedule], answer: Any) -> None:
        for firing, is_ours in zip(call.args[0], answer, strict=True):
            before, after = old[firing.schedule], self.schedules[firing.schedule]
            stands = before.cursor == firing.expect and not before.is_paused
            self._seen["schedulers collided"] += not stands
            if any((firing.schedule, tick.at) in self._before for tick in firing.missed):
                self._seen["range refused"] += stands  # it begins with a tick that is on record
                stands = False
            if is_ours is not stands:
                self._fail(f"a firing of {before} was answered {is_ours}: {firing}")
            if stands and after.cursor != firing.next_at:
                self._fail(f"{before} was fired by {firing}, and is {after}")
            if stands and before.since is not None:
                self._seen["round passed" if firing.ticks[0].ruled_out else "round fired"] += 1


class DependentChecker(Checker):
    """The observed executions that wait, and the promises that follow."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        place, now, _, fail = self._place, self._now, self._time, self.fail
        self.ticks = Cursors(place, now, fail, self.seen)
        self._needs: dict[str, tuple[tuple[str, ...], str]] = {}  # of each job, and its rule
        self._due: dict[UUID, float] = {}
        self._created_at: dict[UUID, float] = {}
        self._ended: dict[UUID, float] = {}
        # Executions that could begin, or be skipped, at some moment: the decision may be made a
        # little later.
        self._free: set[UUID] = set()
        self._ruled_out: set[UUID] = set()

    def learn(self, job: str, needs: tuple[str, ...], policy: str) -> None:
        self._needs[job] = needs, policy

    def has_to_begin(self) -> list[Any]:
        """Return waiting executions and complete rounds that must begin."""
        waiting: list[Any] = [row for row in self.rows.values() if _waits(row)]
        return waiting + [one for one in self.ticks.schedules.values() if self._is_due(one)]

    def judge(self, call: Call, workers: Any, answer: Any, error: BaseException | None) -> None:
        super().judge(call, workers, answer, error)
        for row in self.rows.values():
            if _waits(row):
                entries = list(self._entries(row))
                if all(one == "begins" for one in entries):
                    self._free.add(row.id)
                if "skipped" in entries:
                    self._ruled_out.add(row.id)

    # Allowed effects of operations.

    def _broken(self, call: Call, before: Seen | None, after: Seen) -> str | None:
        if before is None:
            return super()._broken(call, before, after) or self._created(call, after)
        if before._replace(has_slot=True) == after and _waits(before):
            allowed = {*ADMITTING, "rule_out_dependents"}
            self.seen["slot while it waits"] += 1
            return None if call.operation in allowed else "it was let through a gate"
        if _waits(before) and call.operation == "release_dependents":
            return self._released(call, before, after)
        if _waits(before) and call.operation == "rule_out_dependents":
            return self._skipped(call, before, after)
        if _waits(before) and after.state not in (State.CANCELLED, State.SKIPPED):
            return "it waits for dependencies, and nobody has let it go"
        if call.operation == "rule_out_dependents" and before.state is State.WAITING:
            return None if is_admission(before, after) else "it was not to be skipped"
        return super()._broken(call, before, after)

    def _note_change(self, call: Call, old: Seen | None, new: Seen) -> None:
        super()._note_change(call, old, new)
        if old is None:
            self._created_at[new.id] = self._now()
            self._due[new.id] = new.run_at if new.scheduled_for is None else new.scheduled_for
        elif is_admission(old, new) and new.attempt == 1 and new.scheduled_for is None:
            self._due[new.id] = new.run_at
        elif new.attempt > 1 and new.scheduled_for is None:
            # The time that it was enqueued for is not kept any more: see the guide.
            self._due[new.id] = self._created_at[new.id]
        if new.state in TERMINAL and (old is None or old.state not in TERMINAL):
            self._ended[new.id] = self._now()

    def _created(self, call: Call, new: Seen) -> str | None:
        """Check an execution of a schedule that fires after others, or of one that has times."""
        if new.schedule is None or new.job not in self._needs or new.state is State.SKIPPED:
            return None
        since = self.ticks.schedules[new.schedule].since
        if since is None:
            return None if _waits(new) else "it does not wait for its dependencies"
        assert new.scheduled_for is not None
        for job in self._needs[new.job][0]:
            if not any(since < at <= new.scheduled_for for at in self._ends(new.job, job)):
                return f"{job} has not ended as it should between {since} and its tick"
        return None

    def _released(self, call: Call, before: Seen, after: Seen) -> str | None:
        if before.id not in call.args[1]:
            return "nobody asked for it"
        if before.id not in self._free:
            return f"it begins too early: {list(self._entries(before))}"
        is_outside = before.gate is not None and not before.has_slot
        wanted = before._replace(state=State.QUEUED, reason=None)
        if is_outside:
            wanted = before._replace(reason="overlap")
        self.seen["released outside" if is_outside else "released"] += 1
        return None if after == wanted else f"it should be {wanted}"

    def _skipped(self, call: Call, before: Seen, after: Seen) -> str | None:
        if before.id not in call.args[1] or before.id not in self._ruled_out:
            return "it was not to be skipped"
        self.seen["upstream failed"] += 1
        is_over = (after.state, after.reason) == (State.SKIPPED, "upstream_failed")
        return None if is_over else "it is not skipped"

    # The state of dependencies, by observation.

    def _of(self, job: str) -> list[Seen]:
        rows = (row for row in self.rows.values() if row.job == job)
        return [row for row in rows if (row.state, row.reason) != (State.SKIPPED, "overlap")]

    def _ends(self, dependent: str, job: str) -> list[float]:
        policy = self._needs[dependent][1]
        counted = TERMINAL if policy == "run" else {State.SUCCEEDED}
        return [self._ended[row.id] for row in self._of(job) if row.state in counted]

    def _is_due(self, schedule: Schedule) -> bool:
        if schedule.since is None or schedule.is_paused:
            return False
        needs, since = self._needs[schedule.job][0], schedule.since
        return all(any(at > since for at in self._ends(schedule.job, job)) for job in needs)

    def _entries(self, row: Seen) -> Iterator[str]:
        at = self._due[row.id]
        needs, policy = self._needs[row.job]
        for job in needs:
            cursors = [one for one in self.ticks.schedules.values() if one.job == job]
            if any(
                one.next_at is not None and one.next_at <= at and not one.is_paused
                for one in cursors
            ):
                yield "its tick is still to come"
                continue
            found = self._of(job)
            by_then = [(self._due[one.id], one.id, one) for one in found if self._due[one.id] <= at]
            newer = [one for one in found if self._due[one.id] > at]
            state = max(by_then)[2].state if by_then else None
            is_made_up_for = any(one.state is State.SUCCEEDED for one in newer)
            has_failed = state in TERMINAL
            if state is None:  # nothing was due by then: later executions decide
                failed = [one for one in newer if one.state in FAILED]
                has_failed = any(self._ended[one.id] > at for one in failed)
            if state is State.SUCCEEDED or (state is None and is_made_up_for):
                yield "begins"
            elif has_failed and policy != "wait":
                self.seen["only a later failure"] += state is None
                yield "begins" if policy == "run" else "skipped"
            elif has_failed and is_made_up_for:
                yield "begins"
            else:
                yield f"{job} is {state}"


def _waits(row: Seen) -> bool:
    return row.state is State.WAITING and row.reason == WAITS
