"""Checks what holds work back, and events that start it: no limit has one too many, no window has a
start too many, requests collapse as their rule says, no worker has work that it lacks the labels or
resources for, and each event fires each of its listeners once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec.json import decode

from daybell.core.event import NewEvent
from daybell.core.execution import PENDING, TERMINAL, Claimed, Enqueued, State
from daybell.core.flow import FOR_LIMIT
from daybell.core.schedule import Decision, Schedule
from daybell.core.worker import NewWorker
from tests.simulation.checker import Checker
from tests.simulation.places import Seen
from tests.simulation.rules import broken

if TYPE_CHECKING:
    from tests.simulation.world import Call

ACCOUNTS: Final = ("a", "b", "c")
SHARED: Final = 2  # executions of all jobs with the limit
OWN: Final = 1  # of one account
STARTS: Final = 3  # of one account in a period
PERIOD: Final = 8.0
LATEST_SECONDS: Final = 6.0  # of a debounce
CACHED_SECONDS: Final = 8.0
EVENT: Final = "thing.happened"
HEARD: Final = ("a", "b")
LISTENERS: Final = ("hear", "note", "paid")
LIMITED: Final = {"charge", "refund", "paid", "call"}
SHARING: Final = {"charge", "refund", "paid"}
DEMANDS: Final = {"train", "near"}
EPSILON: Final = 1e-5


class Listening:
    """The schedules, which only events fire."""

    def __init__(self) -> None:
        self.schedules: dict[UUID, Schedule] = {}

    def judge(self, *_: Any) -> bool:
        return False

    def created(self, row: Seen) -> None:
        pass

    def resigned(self, holder: UUID) -> None:
        pass


class ControlChecker(Checker):
    """The observed executions that are held back or collapsed, and the promises that follow."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ticks: Any = Listening()
        self._accounts: dict[UUID, str] = {}
        self._created_at: dict[UUID, float] = {}
        self._succeeded_at: dict[UUID, float] = {}
        self._starts: dict[str, list[float]] = defaultdict(list)  # of `call`, by account
        self._steps_then = 0  # jumps of the clock before these
        self._sites: dict[UUID, NewWorker] = {}
        self._events: dict[str, list[Any]] = {}  # the ticks of each event that is on record
        self._told: set[str] = set()  # events that were acknowledged
        self.overlap = "allow"  # the rule of `hear`

    def learn(self) -> None:
        self.ticks.schedules = self._place.schedules()

    def account(self, id: UUID) -> str:
        if id not in self._accounts:
            args = decode(self._place.args(id))
            args = args["event"]["data"] if "event" in args else args
            self._accounts[id] = args["account"]
        return self._accounts[id]

    # Allowed effects of operations.

    def _broken(self, call: Call, before: Seen | None, after: Seen) -> str | None:
        if before is None:
            return self._created(call, after)
        if call.operation == "enqueue" and after.job == "index":
            return self._moved(before, after)
        if call.operation == "enqueue" and after.job == "lone":
            return None if self._is_cancelled(before, after) else "nothing takes its place"
        if call.operation == "claim" and after.job in LIMITED:
            return self._admitted(call, before, after)
        return super()._broken(call, before, after)

    def _created(self, call: Call, new: Seen) -> str | None:
        self._created_at[new.id] = self._now()
        if call.operation in ("publish", "publish_many"):
            is_first = (new.attempt, new.failures, new.crashes) == (1, 0, 0)
            is_known = new.job in LISTENERS and new.schedule in self.ticks.schedules
            is_fine = is_first and is_known and new.state in (*PENDING, State.SKIPPED)
            return None if is_fine else "no event fires this"
        if new.job == "lone" and (new.state, new.reason) == (State.CANCELLED, "singleton"):
            self.seen["cancelled for another"] += 1
            return None
        return super()._broken(call, None, new)

    def _moved(self, before: Seen, after: Seen) -> str | None:
        """Check a debounced execution that another request gives its arguments and time."""
        if before.state not in PENDING or before.attempt > 1:
            return "it has begun, and another request moves it"
        self.seen["moved"] += 1
        moved = before._replace(run_at=after.run_at, state=after.state)
        latest = max(self._now(), self._created_at[after.id] + LATEST_SECONDS)
        if after.run_at > latest + EPSILON:
            return f"it is put off by {after.run_at - latest} s too long"
        is_pending = after.state in (State.SCHEDULED, State.QUEUED)
        return None if after == moved and is_pending else "more than its time has changed"

    def _is_cancelled(self, before: Seen, after: Seen) -> bool:
        same = {"reason": after.reason, "outcome": after.outcome, "run_at": after.run_at}
        ended = before._replace(state=State.CANCELLED, **same)
        asked = before._replace(is_to_be_cancelled=True)
        self.seen["replaced"] += 1
        return after in (asked, ended)

    def _admitted(self, call: Call, before: Seen, after: Seen) -> str | None:
        """Check a claim, which also decides about those that ask for limits."""
        is_parked = before.state is State.WAITING and before.reason == FOR_LIMIT
        if after.state is State.RUNNING and before.state is not State.RUNNING:
            due = before
            if is_parked:  # it was due then, and the clock may have been set back
                run_at = min(before.run_at, self._now())
                due = before._replace(state=State.QUEUED, reason=None, run_at=run_at)
            return broken(call, due, after, self._now(), self._place)
        # One that no worker claimed in time gives way, and asks again from now on.
        again = before._replace(run_at=self._now())
        parked = [one._replace(state=State.WAITING, reason=FOR_LIMIT) for one in (before, again)]
        if after in parked:
            self.seen["parked"] += 1
            self.seen["gave way"] += after == parked[1]
            return None if before.state in PENDING else "it was parked while it ran"
        if after.state is State.SKIPPED and after.job == "refund" and before.state in PENDING:
            self.seen["no room"] += 1
            return None
        if self._is_cancelled(before, after):
            return None  # the oldest, for a new one
        admitted = before._replace(state=State.QUEUED, reason=None, run_at=after.run_at)
        is_pending = before.state in PENDING
        return None if after == admitted and is_pending else "a claim has changed it"

    # The whole store.

    def _check_whole(self) -> None:
        super()._check_whole()
        shared, own = 0, Counter[str]()
        pending, alone = Counter[str](), Counter[str]()
        heard = Counter[State]()
        for row in self.rows.values():
            if row.job == "hear":
                heard[row.state] += 1
            if row.state is State.RUNNING:
                shared += row.job in SHARING
                own[self.account(row.id)] += row.job == "charge"
            elif row.state not in TERMINAL:
                pending[self.account(row.id)] += row.job == "index" and row.attempt == 1
            if row.state not in TERMINAL and not row.is_to_be_cancelled:
                alone[self.account(row.id)] += row.job == "lone"
        self.seen["limit used up"] += shared == SHARED
        if shared > SHARED or any(count > OWN for count in own.values()):
            self.fail(f"a limit has too many: {shared} share it, {own} have their own")
        self._check_overlap(heard)
        if any(count > 1 for count in (*pending.values(), *alone.values())):
            self.fail(f"an account has several executions: debounced {pending}, alone {alone}")

    def _check_overlap(self, heard: Counter[State]) -> None:
        """Check that events obey the overlap rule of their job."""
        free = {"skip": TERMINAL, "queue_all": TERMINAL | {State.WAITING}}.get(self.overlap)
        if free is not None and sum(heard[state] for state in State if state not in free) > 1:
            self.fail(f"events have fired executions that overlap: {heard}")

    def _note_change(self, call: Call, old: Seen | None, new: Seen) -> None:
        super()._note_change(call, old, new)
        if new.state is State.SUCCEEDED and (old is None or old.state is not State.SUCCEEDED):
            self._succeeded_at[new.id] = self._now()
        if new.state is State.RUNNING and new.job in DEMANDS and new.worker is not None:
            self.seen["placed"] += 1
            if new.job == "near" and self._sites[new.worker].labels["zone"] != "eu":
                self.fail(f"{new.worker} lacks a label for {new}")

    def begun(self, claimed: Claimed, worker: UUID, training: int) -> None:
        """Check the devices of a worker that uses so many, and the windows of a rate, by the store
        between two jumps of its clock.
        """
        if claimed.job == "train" and training >= self._sites[worker].resources.get("gpu", 0):
            self.fail(f"{worker} begins {claimed.id}, and uses {training} devices")
        if claimed.job != "call":
            return
        if len(self.clock_steps) > self._steps_then:
            self._steps_then = len(self.clock_steps)
            self._starts.clear()
        starts = self._starts[self.account(claimed.id)]
        starts.append(self._now())
        self.seen["rate used up"] += _most(starts) == STARTS
        if _most(starts) > STARTS:
            self.fail(f"a window of {PERIOD} s sees too many starts: {starts}")

    # Requests.

    def _check_register(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        super()._check_register(call, old, workers, answer)
        self._sites[call.args[1].id] = call.args[1]

    def _check_enqueue(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        super()._check_enqueue(call, old, workers, answer)
        for new, one in zip(call.args[1], answer, strict=True):
            check = getattr(self, f"_judge_{new.job}", None)
            if check is not None and new.id not in old:
                check(new, one, old)

    def _judge_index(self, new: Any, one: Enqueued, old: Any) -> None:
        """Check that the last arguments win."""
        row = self.rows[one.id]
        if row.state in PENDING and row.attempt == 1 and self._place.args(one.id) != new.args:
            self.fail(f"{one.id} waits with other arguments than those of the last request")

    def _judge_sync(self, new: Any, one: Enqueued, old: Any) -> None:
        self.seen["throttled"] += not one.created
        account = self.account(one.id)
        made = sorted(
            self._created_at[row.id]
            for row in self.rows.values()
            if row.job == "sync" and self.account(row.id) == account
        )
        if _most(made) > STARTS:
            self.fail(f"a period of {PERIOD} s has too many executions of {account}: {made}")
        recent = [at for at in made if at > self._now() - PERIOD]
        if not one.created and len(recent) < STARTS:
            self.fail(f"a request of {account} was dropped after {recent}")

    def _judge_report(self, new: Any, one: Enqueued, old: Any) -> None:
        """Check that a result or an unfinished execution is used, and no other one."""
        account = self.account(one.id)
        usable = {
            row.id
            for row in old.values()
            if row.job == "report" and self.account(row.id) == account and self._is_usable(row)
        }
        self.seen["cached"] += one.id in usable
        if (one.id in usable) is one.created or bool(usable) is one.created:
            self.fail(f"a request was answered {one}; there are results or runs of {usable}")

    def _is_usable(self, row: Seen) -> bool:
        if row.state is State.SUCCEEDED:
            return self._succeeded_at[row.id] > self._now() - CACHED_SECONDS
        return row.state not in TERMINAL and not row.is_to_be_cancelled

    # Events.

    def _check_publish(self, call: Call, old: Any, workers: Any, answer: Any) -> None:
        event: NewEvent = call.args[1]
        ticks = self._place.events().get(event.id)
        if ticks is None:
            self.fail(f"event {event.id} was stored, and is not on record")
            return
        made = tuple(sorted(execution for *_, execution in ticks if execution is not None))
        if answer.executions != made:
            self.fail(f"event {event.id} was answered {answer}, and has fired {made}")
        if event.id in self._events:
            self.seen["event again"] += 1
            if answer.created or ticks != self._events[event.id]:
                self.fail(f"event {event.id} came again, and has fired {ticks}")
            return
        self._events[event.id] = ticks
        self._check_fired(event, ticks, old)

    def _check_fired(self, event: NewEvent, ticks: list[Any], old: Any) -> None:
        """Check that a new event has one tick of each listener that it is for."""
        data = decode(event.data)
        schedules = self._place.schedules()
        wanted = [
            one.id for one in schedules.values() if one.job != "hear" or data["account"] in HEARD
        ]
        if sorted(schedule for schedule, *_ in ticks) != sorted(wanted):
            self.fail(f"event {event.id} has fired {ticks}, and {wanted} listen to it")
        for schedule, decision, execution in ticks:
            is_missed = decision is Decision.MISSED
            if is_missed is not schedules[schedule].is_paused:
                self.fail(f"{schedules[schedule]} was {decision} by event {event.id}")
            self.seen["fired"] += decision is Decision.FIRED
            self.seen["missed"] += is_missed
            if execution is None:
                continue
            self.seen["skipped"] += decision is Decision.SKIPPED
            if (decision is Decision.SKIPPED) is not (self.rows[execution].state is State.SKIPPED):
                self.fail(f"a tick was {decision}, and its execution is {self.rows[execution]}")
            if decode(self._place.args(execution))["event"]["data"] != data:
                self.fail(f"execution {execution} has not the data of event {event.id}")

    def answered(self, call: Call, answer: Any) -> None:
        super().answered(call, answer)
        if call.operation == "publish":
            self._told.add(call.args[1].id)

    def at_the_end(self) -> None:
        super().at_the_end()
        events = self._place.events()
        if lost := self._told - events.keys():
            self.fail(f"events were acknowledged, and are gone: {lost}")
        if events != self._events:
            self.fail(f"events are on record otherwise than they were answered: {events}")


def _most(times: list[float]) -> int:
    """Return how many of these times the fullest window has."""
    ordered = sorted(times)
    return max(
        (sum(at <= one < at + PERIOD for one in ordered) for at in ordered),
        default=0,
    )
