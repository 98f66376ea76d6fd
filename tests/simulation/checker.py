"""Checks the store after every operation against its promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from daybell.core.execution import TERMINAL, Cancellation, Outcome, Revival, State
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import COMPANY_CRASHES_MAX, SUSPECT_CRASHES, Ruling, Transition
from daybell.core.subscription import is_delivery_job
from daybell.core.worker import SCHEDULER, WorkerState
from daybell.engine.loop import JUMP_SECONDS
from daybell.errors import LeaseLost
from tests.simulation.loop import Process
from tests.simulation.places import Place, Seen, WorkerSeen
from tests.simulation.rules import broken, holds
from tests.simulation.schedules import OWN
from tests.simulation.ticks import Ticks
from tests.simulation.weather import LEASE

if TYPE_CHECKING:
    from tests.simulation.world import Call

GATE_CAPACITY = 1
MAX_CRASHES_IN_COMPANY = JobDefinition(name="any").max_crashes + COMPANY_CRASHES_MAX
Workers = dict[UUID, WorkerSeen]


class Checker:
    """The observations so far, and the promises that follow from them."""

    piecemeal: frozenset[str] = frozenset()  # operations that are several transactions

    def __init__(
        self,
        place: Place,
        now: Callable[[], float],
        time: Callable[[], float],
        fail: Callable[[str], None],
    ) -> None:
        self._place = place
        self._now = now  # by the store's clock
        self._time = time  # in real time
        self.fail = fail
        self.seen: Counter[str] = Counter()  # rare paths that were taken
        self.ticks = Ticks(place, now, fail, self.seen)
        self.rows: dict[UUID, Seen] = {}
        self.given: dict[tuple[UUID, int], tuple[UUID, UUID]] = {}  # each start: worker and lease
        self.started: set[tuple[UUID, int]] = set()
        self.company: set[tuple[UUID, int]] = set()  # suspects that ran beside another one
        self._begun: set[tuple[UUID, int]] = set()  # suspects that are recorded as begun
        self._recorded_beside: set[tuple[UUID, int]] = set()  # and were recorded beside another one
        self.renewals: dict[UUID, float] = {}  # of workers: when the last good one was sent
        self.draining: set[Process] = set()
        self.clock_steps: list[tuple[float, float]] = []  # jumps of the store: time, distance
        self.acknowledged: set[UUID] = set()
        self._owners: dict[UUID, Process] = {}  # of workers
        self._heard: dict[UUID, float] = {}  # of workers: the last sign that reached the store
        self._excused: dict[UUID, int] = {}  # workers, and their number of registrations
        self._registered = 0
        self._looked: dict[Process, int] = {}  # of dead workers: the number of registrations
        self._led: set[tuple[Process, str]] = set()
        self._forced: set[UUID] = set()  # that need no slot of their own
        self.has_news = False  # for processes that fire schedules
        self._unheard: set[tuple[str, Any]] = set()  # committed, and the caller does not know
        self._logs: set[tuple[UUID, int, int]] = set()
        self._asked: dict[str, UUID] = {}  # requests that were made once, and their results

    # Reports of the world.

    def before(self, call: Call) -> Workers:
        return self._place.workers() if call.operation in ("lost", "renew", "apply") else {}

    def judge(self, call: Call, workers: Workers, answer: Any, error: BaseException | None) -> None:
        """Check an operation that has been applied."""
        if call.operation == "enqueue":
            self._forced |= {one.id for one in call.args[1] if one.force}
        old, new = self.rows, self._place.executions()
        self.rows = new
        changes = [(old.get(id), row) for id, row in new.items() if row is not old.get(id)]
        changes = [(before, after) for before, after in changes if before != after]
        if len(new) < len(old) or not new.keys() >= old.keys():
            self.fail(f"{call.operation} by {call.process}: executions are gone")
        if error is not None and not (changes and call.operation in self.piecemeal):
            if changes:
                self.fail(f"{call.operation} raised {error!r}, and yet changed executions")
            self._note_error(call, error)
            self.ticks.judge(call, new, answer, error)
            return
        for before, after in changes:
            if problem := self._broken(call, before, after):
                self.fail(f"{call.operation} by {call.process}: {problem}: {before} -> {after}")
            self._note_change(call, before, after)
        if changes:
            self._check_whole()
        self.has_news = self.ticks.judge(call, new, answer, error)
        check = getattr(self, f"_check_{call.operation}", None)
        if check is not None and error is None:
            check(call, old, workers, answer)

    def _broken(self, call: Call, before: Seen | None, after: Seen) -> str | None:
        """Describe the error of a change, if there is one."""
        return broken(call, before, after, self._now(), self._place)

    def answered(self, call: Call, answer: Any) -> None:
        """Record an answer that reached a living process: from now on it is a promise."""
        if call.operation == "enqueue":
            for one in answer:
                self.acknowledged.add(one.id)
                if one.id not in self.rows:
                    self.fail(f"{call.process} was told of an execution that does not exist")

    def answer_lost(self, call: Call, error: BaseException | None) -> None:
        if error is not None:
            return
        if call.operation == "enqueue":
            self._unheard |= {("enqueue", new.id) for new in call.args[1]}
        elif call.operation == "claim":
            self._unheard.add(("claim", call.kwargs["lease"]))

    def renewed(self, process: Process, worker: UUID, sent: float) -> None:
        """Record since when the lease of a worker is good, as the worker knows it."""
        if worker not in self._owners and process in self._owners.values():
            self.seen["begun anew"] += 1
        self._owners[worker] = process
        self.renewals[worker] = sent

    def died(self, process: Process) -> None:
        for (id, attempt), (worker, lease) in self.given.items():
            row = self.rows.get(id)
            is_held = row is not None and row.state is State.RUNNING and row.lease == lease
            is_its = self._owners.get(worker) is process
            if is_its and is_held and (id, attempt) not in self.started:
                self.seen["crash before start"] += 1
                return

    def is_dead(self, worker: UUID) -> bool:
        """Return True if the store has declared this worker dead."""
        known = self._place.workers().get(worker)
        return known is None or known.state is WorkerState.DEAD

    def at_the_end(self) -> None:
        """Check the end: everything should be finished."""
        for id in self.acknowledged:
            if id not in self.rows:
                self.fail(f"execution {id} was acknowledged, and is gone")
        for id, attempt, number in self._place.logs():
            if (id, attempt) not in self.given:
                self.fail(f"part {number} of the log of attempt {attempt} of {id} is nobody's")

    def statistics(self, counted: Mapping[State, int]) -> None:
        """Compare the ends that are counted, when all are folded, with those that were seen."""
        revived = self.seen["revived"]
        for state in TERMINAL:
            there_are = sum(row.state is state for row in self.rows.values())
            more = revived if state is State.DEAD else 0
            if counted[state] != there_are + more:
                self.fail(f"{counted[state]} ends as {state} are counted, not {there_are + more}")

    def events(self) -> None:
        """Compare the events that were enqueued with the ends and retries that were seen."""
        told = Counter((about, attempt) for _, about, attempt, _ in self._place.deliveries())
        rows = [row for row in self.rows.values() if not is_delivery_job(row.job)]
        ends = {(row.id, row.attempt) for row in rows if row.state in TERMINAL}
        ends |= {
            (id, attempt)
            for id, attempt, outcome in self._place.ended_attempts()
            if outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST)
        }
        if told != Counter(ends):
            lost, more = Counter(ends) - told, told - Counter(ends)
            self.fail(f"events without a change, or twice: {more}; changes without: {lost}")
        self.seen["told"] += len(told)

    def _check_order(self, id: UUID) -> None:
        """Check that a delivery starts after all earlier ones about the same execution."""
        deliveries = {one: (about, n) for one, about, n, _ in self._place.deliveries()}
        about, attempt = deliveries[id]
        for other, (same, earlier) in deliveries.items():
            is_before = same == about and earlier < attempt
            if is_before and self.rows[other].state not in TERMINAL:
                self.fail(f"delivery {id} starts before {other}, of an earlier event")
            self.seen["told in order"] += is_before

    # The whole store.

    def _check_whole(self) -> None:
        keys: set[tuple[str, str]] = set()
        slots: Counter[str] = Counter()
        apart: Counter[UUID | None] = Counter()  # begun, by schedules with gates of their own
        beside: Counter[str] = Counter()  # the same by job
        for row in self.rows.values():
            if row.unique_key is not None and row.state not in TERMINAL:
                if (row.job, row.unique_key) in keys:
                    self.fail(f"two unfinished executions of {row.job} hold {row.unique_key}")
                keys.add((row.job, row.unique_key))
            if row.gate is not None and row.has_slot:
                slots[row.gate] += 1
                if row.state in TERMINAL:
                    self.fail(f"it is over, and holds a slot: {row}")
            if row.schedule in OWN and row.state not in (State.WAITING, *TERMINAL):
                apart[row.schedule] += 1
                beside[row.job] += 1
            said = None if row.state is not State.RUNNING else row.note
            if said not in (None, f"attempt {row.attempt}"):
                self.fail(f"attempt {row.attempt} of {row.id} shows what {said} said")
        for gate, holders in self._place.holders().items():
            if holders != slots[gate]:
                self.fail(f"gate {gate} counts {holders} inside, and there are {slots[gate]}")
        for row in self.rows.values():
            if row.id in self._forced and row.gate is not None and row.has_slot:
                slots[row.gate] -= 1
        if any(count > GATE_CAPACITY for count in slots.values()):
            self.fail(f"more executions are inside a gate than fit: {slots}")
        if any(count > 1 for count in apart.values()):
            self.fail(f"a schedule with a gate of its own has more than one begun: {apart}")
        self.seen["side by side"] += any(count > 1 for count in beside.values())

    def _note_change(self, call: Call, old: Seen | None, new: Seen) -> None:
        if old is None and call.operation == "fire":  # another one may be a requested retry
            self.ticks.created(new)
        if old is None or old.state is new.state:
            return
        if new.state is State.QUEUED and old.state is State.WAITING and call.operation == "apply":
            self.seen["slot handed on"] += 1
            self.seen["replaced"] += new.job == "newest"
        if new.state is State.SKIPPED:
            self.seen["expired"] += 1
        if new.outcome is Outcome.TIMED_OUT:
            self.seen["timed out"] += 1
        if new.state is State.DEAD and new.reason == "worker_lost":
            self.seen["at most once" if new.job == "fragile" else "poison"] += 1
            had_company = (old.id, old.attempt) in self.company
            if new.job != "fragile" and had_company and new.crashes < MAX_CRASHES_IN_COMPANY:
                self.fail(f"it ended dead, and another one may have killed its worker: {new}")
        if new.state is State.SUCCEEDED and new.result != str(new.attempt):
            self.fail(f"attempt {new.attempt} of {new.id} succeeded with {new.result}")

    def _note_error(self, call: Call, error: BaseException) -> None:
        if isinstance(error, LeaseLost) and call.operation == "renew":
            self.seen["reaper first"] += 1
        if "disk I/O" in str(error):
            self.seen["commit failed"] += 1

    # The answer of each operation.

    def _check_enqueue(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        for new, one in zip(call.args[1], answer, strict=True):
            if one.id not in self.rows:
                self.fail(f"the answer names an execution that does not exist: {one}")
            if not one.created:
                self.seen["key held"] += 1
            elif new.id in old and ("enqueue", new.id) in self._unheard:
                self.seen["enqueue repeated"] += 1
            if new.parent is not None:
                self.seen["child"] += 1
            elif new.id in self.rows and new.schedule is None:
                first = self.rows[self._asked.setdefault(new.args, new.id)]
                if first.id != new.id and first.state is not State.CANCELLED:  # else: a retry
                    self.fail(f"what was asked for once was created twice: {new.args}")

    def _check_claim(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        holder = call.kwargs["worker"], call.kwargs["lease"]
        for one in answer.executions:
            row = self.rows[one.id]
            if not holds(row, holder[0], one):
                self.fail(f"a claim was answered with what it does not hold: {row}")
            if is_delivery_job(one.job):
                self._check_order(one.id)
            if self.given.setdefault((one.id, one.attempt), holder) != holder:
                self.fail(f"attempt {one.attempt} of {one.id} was given to two claims")
        if answer.executions and ("claim", holder[1]) in self._unheard:
            self.seen["claim repeated"] += 1

    def _check_apply(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        verdicts = {(one.id, one.attempt): one.ruling for one in answer}
        worker = call.kwargs["worker"]
        is_reaper = self._owners.get(worker) is not call.process
        for move in call.kwargs["transitions"]:
            ruling = verdicts.get((move.id, move.attempt))
            before = old.get(move.id)
            if holds(before, worker, move):
                self._check_made(call, before, move, ruling)
                if is_reaper:
                    self._check_charge(call, before, move)
            elif ruling is None:
                self._check_on_record(worker, move)
                self.seen["reapers collided" if is_reaper else "end repeated"] += 1
            elif ruling is Ruling.STALE and not is_reaper:
                self.seen["stale end"] += 1

    def _check_made(
        self, call: Call, before: Seen, move: Transition, ruling: Ruling | None
    ) -> None:
        after = self.rows[move.id]
        wanted = Ruling.CANCELLED if before.is_to_be_cancelled else None
        if ruling is not wanted or after == before:
            self.fail(f"a move that holds was answered {ruling}: {move}: {after}")
        if ruling is Ruling.CANCELLED:
            won = move.target is State.SUCCEEDED
            self.seen["cancel won" if won else "cancel heard"] += 1
        if move.outcome is Outcome.RELEASED and call.process in self.draining:
            self.seen["released in drain"] += 1

    def _check_charge(self, call: Call, before: Seen, move: Transition) -> None:
        """Check that the loss of a worker is charged, unless the store was late and the reaper
        could know.
        """
        assert before.worker is not None
        excused_at = self._excused.get(before.worker)
        if excused_at is None:
            if move.outcome is Outcome.RELEASED:
                self._check_spared(before)
        elif move.outcome is Outcome.RELEASED:
            self.seen["excused"] += 1
        elif excused_at <= self._looked[call.process] and before.job != "fragile":
            self.fail(f"it is charged with the loss of a worker that is excused: {before}")

    def _check_spared(self, before: Seen) -> None:
        """Check that a suspect is not charged with a lost worker if it had not begun, or had
        company.
        """
        self.seen["spared"] += 1
        start = before.id, before.attempt
        has_company = start in self.company or start in self._recorded_beside
        is_begun = start in self.started and not has_company
        if before.crashes < SUSPECT_CRASHES or is_begun:
            self.fail(f"the loss of its worker was not counted: {before}")

    def _check_on_record(self, worker: UUID, move: Transition) -> None:
        """Check that a move that was answered as made, and was not made now, was made before."""
        row = self.rows.get(move.id)
        record = None
        if row is not None and row.attempt == move.attempt and row.outcome is not None:
            record = row.outcome, row.worker
        elif row is not None:
            record = self._place.attempt(move.id, move.attempt)
        if record != (move.outcome, worker):
            self.fail(f"a late report was answered as made: {move}; on record is {record}")

    def _check_report(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        worker = call.kwargs["worker"]
        stale = [
            (one.id, one.attempt)
            for one in call.kwargs["reports"]
            if not holds(old.get(one.id), worker, one)
        ]
        if stale != answer:
            self.fail(f"progress that is stale: {stale}; the store says {answer}")
        self.seen["stale progress"] += bool(stale)
        self._note_begun(worker, old, {(one.id, one.attempt) for one in call.kwargs["reports"]})

    def _note_begun(self, worker: UUID, old: Any, reported: set[tuple[UUID, int]]) -> None:
        """Record the suspects of a worker that are recorded as begun, side by side. A worker that
        stops between the record and the start has them in company, too.
        """
        running = {
            (row.id, row.attempt)
            for row in old.values()
            if row.worker == worker and row.crashes >= SUSPECT_CRASHES
        }
        self._begun |= reported & running
        beside = self._begun & running
        if len(beside) > 1:
            self._recorded_beside |= beside

    def _check_write_log(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        parts = self._place.logs()
        for part in call.kwargs["parts"]:
            key = part.id, part.attempt, part.number
            is_new = key in parts and key not in self._logs
            if is_new and not holds(old.get(part.id), call.kwargs["worker"], part):
                self.fail(f"what attempt {part.attempt} of {part.id} said was written too late")
        self._logs = set(parts)

    def _check_lost(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        self._looked[call.process] = self._registered
        for id, after in self._place.workers().items():
            before = workers[id]
            if after.state is before.state:
                continue
            if before.lease_until >= self._now():
                self.fail(f"worker {id} was declared dead {before.lease_until - self._now()} early")
            if self._is_clock_to_blame(call, self._heard[id]):
                self.fail(f"worker {id} was declared dead because the store's clock has jumped")
        for one in answer.executions:
            before = workers[one.worker]
            if before.state is not WorkerState.DEAD and before.lease_until >= self._now():
                self.fail(f"an execution of a live worker was listed as lost: {one}")

    def _is_clock_to_blame(self, call: Call, heard: float) -> bool:
        """Return True if the store has heard of a worker less than a lease ago, in real time."""
        # A small step looks like drift, and a step between two answers cannot be noticed.
        drift = sum(
            step for at, step in self.clock_steps if at >= heard and 0 < step <= JUMP_SECONDS
        )
        if self._time() - heard >= LEASE - max(JUMP_SECONDS, drift):
            return False
        if len(self.clock_steps) - call.steps_known > 1:
            self.seen["two steps unseen"] += 1
            return False
        return True

    def _check_register(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        self._registered += 1
        if (replaced := call.kwargs["replaces"]) is not None:
            self._excused.setdefault(replaced, self._registered)
        self._heard[call.args[1].id] = self._time()

    def _check_renew(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        self._heard[call.kwargs["worker"]] = self._time()
        before = workers[call.kwargs["worker"]]
        if before.state is WorkerState.DEAD:
            self.fail(f"a dead worker renewed its lease: {call.kwargs['worker']}")
        if before.lease_until < self._now():
            self.seen["renewal first"] += 1
        if answer.state is WorkerState.DRAINING:
            self.seen["drained from afar"] += 1

    def _check_cancel(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        for id, said in zip(call.args[1], answer, strict=True):
            row = self.rows.get(id)
            is_true = {
                Cancellation.UNKNOWN: row is None,
                Cancellation.CANCELLED: row is not None and row.state is State.CANCELLED,
                Cancellation.REQUESTED: row is not None and row.is_to_be_cancelled,
                Cancellation.FINISHED: row is not None and row.state in TERMINAL,
            }[said]
            if not is_true:
                self.fail(f"a cancel was answered {said}: {row}")

    def _check_revive(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        for id, said in zip(call.args[1], answer, strict=True):
            if said is Revival.REVIVED:
                self.seen["revived"] += 1
                if self.rows[id].state in TERMINAL:
                    self.fail(f"a revival was answered as made: {self.rows[id]}")

    def _check_lead(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        leader = call.process, call.args[0]
        if answer is not None:
            self._led.add(leader)
        elif leader in self._led:
            self._led.discard(leader)
            self.seen["leaders collided"] += 1

    def _check_resign(self, call: Call, old: Any, workers: Workers, answer: Any) -> None:
        if call.args[0] == SCHEDULER:
            self.ticks.resigned(call.kwargs["holder"])
