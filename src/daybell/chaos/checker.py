"""Rules for every run: a pure function from the recorded history to violations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final, Protocol
from uuid import UUID

import msgspec

from daybell.chaos.fleet import FLEET, FleetEvent
from daybell.chaos.load import Cancel, EnqueueCall, Publication, SentEvent, Submission
from daybell.chaos.tasks import END, ENDS, EXIT, NO_NUMBER, START, Effect, listening
from daybell.chaos.tasks import alone as alone_task
from daybell.chaos.workflows import FlowRun, lineage
from daybell.client import Client
from daybell.client.schedules import schedules
from daybell.core import payload
from daybell.core.event import Step
from daybell.core.execution import Cancellation, Execution, State
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.schedule import Decision, Schedule, TickRecord
from daybell.core.units import Instant, Seconds, to_iso
from daybell.core.when import Schedule as Rule
from daybell.core.worker import Worker

# The history of schedules in a run, from their first cursors to their last ones.

WHOLE: Final = float("inf")


class ScheduleHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule: its rule, its first and its last cursor, and the records in between."""

    name: str
    rule: str
    first: Instant
    last: Instant | None
    ticks: Sequence[TickRecord]  # oldest first
    is_stuck: bool = False  # it was due and did not fire

    def gaps(self) -> Iterator[Instant]:
        """Return due times without a record."""
        rule = Rule.from_json(self.rule)
        known = {tick.at: tick for tick in self.ticks}
        at: Instant | None = self.first
        while at is not None and at < (WHOLE if self.last is None else self.last):
            tick = known.get(at)
            if tick is None:
                yield at
            at = rule.next_after(at if tick is None or tick.until is None else tick.until)


def count_decisions(courses: Sequence[ScheduleHistory]) -> dict[str, int]:
    """Count the decisions about ticks, by kind."""
    counts: Counter[str] = Counter()
    for course in courses:
        for tick in course.ticks:
            counts[str(tick.decision)] += tick.count
    return dict(counts)


async def cursors(client: Client, jobs: Sequence[str]) -> dict[UUID, Schedule]:
    """Return the schedules of these jobs, as they are now."""
    return {one.id: one for job in jobs for one in await schedules(client, job)}


async def courses(
    client: Client, first: Mapping[UUID, Schedule], last: Mapping[UUID, Schedule], due: Instant
) -> list[ScheduleHistory]:
    """Return the history of each; all ticks that were due by then should have fired."""
    found: list[ScheduleHistory] = []
    for id, begun in first.items():
        ended = last.get(id)
        if begun.next_at is None or ended is None:
            continue
        found.append(
            ScheduleHistory(
                name=f"schedule {begun.name} of {begun.job}",
                rule=begun.rule,
                first=begun.next_at,
                last=ended.next_at,
                ticks=await _ticks(client, id, since=begun.next_at),
                is_stuck=ended.next_at is not None and ended.next_at <= due,
            )
        )
    return found


async def _ticks(client: Client, schedule: UUID, *, since: Instant) -> list[TickRecord]:
    found: list[TickRecord] = []
    before: Instant | None = None
    while True:
        page = await client.store.schedules.list_ticks(
            client.tenant, schedule, limit=PAGE_ITEMS_MAX, before=before
        )
        found += [tick for tick in page if tick.at >= since]
        if len(page) < PAGE_ITEMS_MAX or page[-1].at < since:
            return found[::-1]
        before = page[-1].at


OVER: Final = {State.SUCCEEDED, State.CANCELLED}  # states that an execution of a run may have


class Judge(Protocol):
    """A function that describes violations, named like its rule."""

    __name__: str

    def __call__(self, history: History, /) -> Iterator[str]: ...


class Violation(msgspec.Struct, frozen=True):
    """A broken promise."""

    rule: str
    what: str


class History(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All facts about a run."""

    calls: Sequence[EnqueueCall]
    cancels: Sequence[Cancel]
    effects: Sequence[Effect]  # in order of time
    executions: Mapping[UUID, Execution]
    happenings: Sequence[FleetEvent] = ()
    courses: Sequence[ScheduleHistory] = ()  # of schedules
    runs: Mapping[UUID, FlowRun] = {}  # of workflows
    steps: Mapping[UUID, Sequence[Step]] = {}  # of durable functions
    sends: Sequence[SentEvent] = ()  # of events for these functions
    submissions: Sequence[Submission] = ()  # of bulks that were sent several times
    publications: Sequence[Publication] = ()  # of events that fire a job
    doubled: Sequence[UUID] = ()  # executions that the store has more than once
    workers: Sequence[Worker] = ()  # all registered workers, dead ones included
    missing: Sequence[str] = ()  # workers that should be alive at the end
    over_at: Seconds = inf  # the end of load and faults

    @cached_property
    def starts(self) -> dict[UUID, list[Effect]]:
        """Return the starts of each execution, in order."""
        found: dict[UUID, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            if effect.what == START:
                found[effect.execution].append(effect)
        return found

    @cached_property
    def ends(self) -> dict[tuple[UUID, int, int], Effect]:
        """Return the end of each start, if it has one: by execution, attempt and process."""
        return {
            (effect.execution, effect.attempt, effect.pid): effect
            for effect in self.effects
            if effect.what in ENDS
        }

    @cached_property
    def exits(self) -> dict[int, Seconds]:
        """Return the times at which a task ended its process."""
        return {one.pid: one.at for one in self.effects if one.what == EXIT}

    @cached_property
    def clock(self) -> Seconds:
        """Return the store's time at the zero of the machine's clock, which effects have."""
        return median(one.now - one.at for one in self.effects) if self.effects else 0.0

    def end_of(self, start: Effect) -> Effect | None:
        return self.ends.get((start.execution, start.attempt, start.pid))

    def was_frozen(self, pid: int, since: Seconds, until: Seconds) -> bool:
        """True if a process was frozen at some time in between."""
        frozen_at: Seconds | None = None
        for one in self.happenings:
            if one.pid != pid:
                continue
            if one.what == "frozen":
                frozen_at = one.at
            elif one.what in ("resumed", "killed") and frozen_at is not None:
                if frozen_at <= until and one.at >= since:
                    return True
                frozen_at = None
        return frozen_at is not None and frozen_at <= until


def check_history(history: History, rules: Sequence[Judge] | None = None) -> list[Violation]:
    """Return all violations of these rules, or of all rules."""
    return [
        Violation(rule.__name__.removeprefix("_").replace("_", " "), what)
        for rule in (RULES if rules is None else rules)
        for what in rule(history)
    ]


def _lost(history: History) -> Iterator[str]:
    """Every acknowledged execution exists and has ended."""
    for call in history.calls:
        if call.id is None:
            continue
        execution = history.executions.get(call.id)
        if execution is None:
            yield f"{call.job} {call.id} was acknowledged and is nowhere"
        elif execution.state not in OVER and call.id not in history.runs:
            yield f"{call.job} {call.id} is {execution.state} at the end ({execution.reason})"


def _started_twice(history: History) -> Iterator[str]:
    """(execution, attempt) identifies one start."""
    for id, starts in history.starts.items():
        for attempt, count in Counter(start.attempt for start in starts).items():
            if count > 1:
                pids = [start.pid for start in starts if start.attempt == attempt]
                yield (
                    f"attempt {attempt} of {id}, enqueue {starts[0].number}, started {count}"
                    f" times, by {pids}"
                )


def _never_asked_for(history: History) -> Iterator[str]:
    """Every started execution was enqueued, and the store knows it."""
    numbers = {call.number for call in history.calls}
    for id, starts in history.starts.items():
        if id not in history.executions:
            yield f"{id} ran and is nowhere"
        if starts[0].number not in numbers and starts[0].number != NO_NUMBER:
            yield f"{id} ran for number {starts[0].number}, which nobody asked for"


def _enqueued_twice(history: History) -> Iterator[str]:
    """One enqueue makes one execution, however often it was sent."""
    found: dict[int, list[UUID]] = defaultdict(list)
    for execution in history.executions.values():
        if execution.schedule is not None or any(
            one.id in history.runs for one in lineage(execution, history.executions)
        ):
            continue
        found[payload.decode(execution.args)["number"]].append(execution.id)
    for number, ids in found.items():
        if len(ids) > 1:
            yield f"enqueue {number} made {len(ids)} executions: {', '.join(map(str, ids))}"


def _kept_twice(history: History) -> Iterator[str]:
    """An id identifies one execution, however often it was sent."""
    for id in history.doubled:
        yield f"{id} is in the store more than once"


def _answered_otherwise(history: History) -> Iterator[str]:
    """A request that is repeated under its key gets the same answer."""
    for one in history.submissions:
        first, *others = one.answers or (None,)
        for other in others:
            if first is not None and list(other.ids) != list(first.ids):
                count = len(set(other.ids) - set(first.ids))
                yield f"{one.key} was answered with {count} other executions by {other.pid}"
        for refused in one.tries:
            if 400 <= refused.status < 500:
                yield f"{one.key} was refused with {refused.status} by {refused.pid}"


def _fired_otherwise(history: History) -> Iterator[str]:
    """An event fires its job once, however often it comes, and each answer names the execution."""
    fired: dict[str, list[UUID]] = defaultdict(list)
    for execution in history.executions.values():
        if execution.job == listening.name:
            fired[payload.decode(execution.args)["event"]["id"]].append(execution.id)
    for one in history.publications:
        ids = fired.pop(one.id, [])
        if len(ids) > 1 or (not ids and one.answers):
            yield f"event {one.id}, answered {len(one.answers)} times, fired {len(ids)} executions"
        for answer in one.answers:
            if list(answer) != ids:
                yield f"event {one.id} fired {ids}, and an answer names {list(answer)}"
    for id, ids in fired.items():
        yield f"event {id} was not published, and fired {ids}"


def _fleet_ended(history: History) -> Iterator[str]:
    """A supervisor ends only on request, whatever the exit codes of its processes."""
    for one in history.happenings:
        if one.role == FLEET and one.what.startswith("ended by itself"):
            yield f"supervisor {one.pid} {one.what}"


def _worker_missing(history: History) -> Iterator[str]:
    """Each worker is alive again after the faults."""
    for name in history.missing:
        yield f"{name} did not come back"


def _succeeded_without_running(history: History) -> Iterator[str]:
    """A success belongs to the attempt in the store, and that attempt ran to its end."""
    ended = {(one.execution, one.attempt) for one in history.effects if one.what == END}
    for execution in history.executions.values():
        if execution.id in history.runs:  # of a run, its nodes run
            continue
        if execution.state is State.SUCCEEDED and (execution.id, execution.attempt) not in ended:
            yield (
                f"{execution.job} {execution.id} succeeded with attempt {execution.attempt}, which"
                " did not run to its end"
            )


def _started_after_success(history: History) -> Iterator[str]:
    """An execution that has succeeded is not started again."""
    for execution in history.executions.values():
        if execution.state is State.SUCCEEDED:
            for start in history.starts.get(execution.id, ()):
                if start.attempt > execution.attempt:
                    yield (
                        f"{execution.id} succeeded with attempt {execution.attempt}, and attempt"
                        f" {start.attempt} started"
                    )


def _ran_although_cancelled(history: History) -> Iterator[str]:
    """An execution never starts after the answer that it is cancelled; one that was asked to stop
    ends as cancelled.
    """
    for cancel in history.cancels:
        execution = history.executions.get(cancel.id)
        state = None if execution is None else execution.state
        if cancel.answer == Cancellation.CANCELLED:
            for start in history.starts.get(cancel.id, ()):
                if start.at > cancel.answered_at:
                    late = start.at - cancel.answered_at
                    yield f"{cancel.id} started {late:.3f} s after it was cancelled"
        if cancel.answer in (Cancellation.CANCELLED, Cancellation.REQUESTED):
            if state is not State.CANCELLED:
                yield f"{cancel.id} was answered {cancel.answer} and is {state}"
        elif cancel.answer not in (None, Cancellation.FINISHED):
            yield f"{cancel.id} could not be cancelled: {cancel.answer}"


def _cancelled_unasked(history: History) -> Iterator[str]:
    """No execution is cancelled without a request."""
    asked = {cancel.id for cancel in history.cancels}
    for execution in history.executions.values():
        if execution.state is not State.CANCELLED:
            continue
        if not any(one.id in asked for one in lineage(execution, history.executions)):
            yield f"{execution.job} {execution.id} was cancelled, and nobody asked for it"


def _two_of_a_key(history: History) -> Iterator[str]:
    """The next holder of a unique key starts after the end of the last one."""
    holders: dict[str, list[tuple[Seconds, Seconds, UUID]]] = defaultdict(list)
    for execution in history.executions.values():
        starts = history.starts.get(execution.id)
        if execution.unique_key is None or execution.state is not State.SUCCEEDED or not starts:
            continue
        last = [start for start in starts if start.attempt == execution.attempt]
        end = history.end_of(last[0]) if last else None
        if end is not None:
            holders[execution.unique_key].append((starts[0].at, end.at, execution.id))
    for key, spans in holders.items():
        spans.sort()
        for (_, end, first), (start, _, second) in pairwise(spans):
            if start < end:
                yield f"{key}: {second} started while {first} held it"


def _ran_side_by_side(history: History) -> Iterator[str]:
    """A process that has lost an execution stops it before another process starts it, unless it was
    frozen.
    """
    for id, starts in history.starts.items():
        for first, second in pairwise(starts):
            end = history.end_of(first)
            if end is None or end.at <= second.at or first.attempt == second.attempt:
                continue
            if not history.was_frozen(first.pid, first.at, end.at):
                yield (
                    f"attempt {second.attempt} of {id} started {end.at - second.at:.3f} s before"
                    f" attempt {first.attempt} ended in process {first.pid}"
                )


def _tick_doubled(history: History) -> Iterator[str]:
    """A tick has one execution in the store, and no other one ran for it."""
    found: dict[tuple[UUID, Instant], list[UUID]] = defaultdict(list)
    for execution in history.executions.values():
        if execution.schedule is not None and execution.scheduled_for is not None:
            found[execution.schedule, execution.scheduled_for].append(execution.id)
    for (_, at), ids in found.items():
        if len(ids) > 1:
            ran = sum(id in history.starts for id in ids)
            yield f"the tick {to_iso(at)} has {len(ids)} executions, of which {ran} ran"


def _tick_lost(history: History) -> Iterator[str]:
    """Each time of a schedule is on record: fired, skipped, or in a missed range."""
    for course in history.courses:
        for at in course.gaps():
            yield f"{course.name} has nothing on record for {to_iso(at)}"
        if course.is_stuck:
            yield f"{course.name} does not go on"


def _tick_not_run(history: History) -> Iterator[str]:
    """A tick that is recorded as fired has an execution that succeeded."""
    for course in history.courses:
        for tick in course.ticks:
            if tick.decision is not Decision.FIRED:
                continue
            execution = history.executions.get(tick.execution) if tick.execution else None
            state = None if execution is None else execution.state
            if execution is None or state is not State.SUCCEEDED:
                yield f"{course.name} fired at {to_iso(tick.at)}, and its execution is {state}"
            elif (execution.schedule, execution.scheduled_for) != (tick.schedule, tick.at):
                yield f"{course.name} fired at {to_iso(tick.at)} what is another's"


def _ran_beside_itself(history: History) -> Iterator[str]:
    """A job that runs one at a time starts after the end of the last one, unless the process of
    that one was frozen.
    """
    jobs = {one.id: one.job for one in history.executions.values()}
    spans: list[tuple[Seconds, Seconds, Effect]] = []
    for id, starts in history.starts.items():
        for start in starts if jobs.get(id) == alone_task.name else ():
            end = history.end_of(start)
            spans.append((start.at, start.at if end is None else end.at, start))
    spans.sort(key=lambda span: span[:2])
    for (since, end, first), (start, _, second) in pairwise(spans):
        if start < end and not history.was_frozen(first.pid, since, end):
            yield f"{second.execution} started {end - start:.3f} s before {first.execution} ended"


RULES: Final[Sequence[Judge]] = (
    _lost,
    _started_twice,
    _never_asked_for,
    _enqueued_twice,
    _kept_twice,
    _answered_otherwise,
    _fired_otherwise,
    _fleet_ended,
    _worker_missing,
    _succeeded_without_running,
    _started_after_success,
    _ran_although_cancelled,
    _cancelled_unasked,
    _two_of_a_key,
    _ran_side_by_side,
    _tick_doubled,
    _tick_lost,
    _tick_not_run,
    _ran_beside_itself,
)
