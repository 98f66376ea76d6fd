"""Rules for workflows, durable functions and events: pure functions of the history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from daybell.chaos.checker import History, Violation
from daybell.chaos.load import TURNS
from daybell.chaos.recovery import Trouble, recovery_start
from daybell.chaos.tasks import END, FAIL, STEP, STEPS, durable_waiting, weight
from daybell.chaos.workflows import OUTER, FlowRun, WorkflowFigures, is_durable
from daybell.core import payload
from daybell.core.event import Step, StepKind
from daybell.core.execution import TERMINAL, Cancellation, Execution, State
from daybell.core.units import Seconds
from daybell.core.workflow.run import NodeState

RAN: Final = {NodeState.SUCCEEDED, NodeState.FAILED}  # fates of nodes that should start


def _run_ended_otherwise(history: History) -> Iterator[str]:
    """A run and each of its nodes end as the graph specifies, unless the run was cancelled."""
    for run in _whole(history):
        said = _named(run)
        if run.execution.state is not run.flow.end:
            yield f"{said} is {run.execution.state} ({run.execution.reason}), not {run.flow.end}"
        if run.detail is None:
            yield f"{said} has no nodes"
            continue
        found = {view.node.label: view.node.state for view in run.detail.nodes}
        for name, fate in run.flow.fates.items():
            if found.get(name) is not fate:
                yield f"{name} of {said} is {found.get(name)}, not {fate}"


def _run_left_behind(history: History) -> Iterator[str]:
    """A run that has ended has no open node, and every run ends."""
    for run in history.runs.values():
        said = _named(run)
        if run.execution.state not in TERMINAL:
            yield f"{said} is {run.execution.state}, and {_left(run)}"
        elif run.detail is not None:
            row = run.detail.run
            if row.is_todo or row.left or row.running or row.ready:
                yield f"{said} is {run.execution.state}, and {_left(run)}"


def _run_never_asked_for(history: History) -> Iterator[str]:
    """There are no more runs than were enqueued."""
    known = {call.id for call in history.calls}
    unanswered = Counter(call.job for call in history.calls if call.id is None)
    for run in history.runs.values():
        if run.execution.node is None and run.id not in known:
            unanswered[run.flow.name] -= 1
    for name, count in unanswered.items():
        if count < 0:
            yield f"{-count} runs of {name} that nobody has asked for"


def _node_doubled(history: History) -> Iterator[str]:
    """A node of a run has one execution: a join is started once, however many parents end."""
    for run in history.runs.values():
        for label, found in run.nodes.items():
            if len(found) > 1:
                ids = ", ".join(str(one.id) for one in found)
                yield f"{label} of {_named(run)} has {len(found)} executions: {ids}"


def _node_did_not_run(history: History) -> Iterator[str]:
    """Each node that should run has run, with all its items, and returned the expected result."""
    for run in _whole(history):
        for name, fate in run.flow.fates.items():
            if fate not in RAN:
                continue
            wanted = State.SUCCEEDED if fate is NodeState.SUCCEEDED else State.DEAD
            for label in run.flow.labels(name):
                states = {one.state for one in run.nodes.get(label, ())}
                if states != {wanted}:
                    yield f"{label} of {_named(run)} is {', '.join(states) or 'nowhere'}"
            if (expected := run.flow.weights.get(name)) is None:
                continue
            got = sum(weight(_decoded(one.result)) for one in run.executions(name))
            if got != expected:
                yield f"{name} of {_named(run)} returned {got}, not {expected}: what was it given?"


def _node_ran_unasked(history: History) -> Iterator[str]:
    """No skipped node has run, and no node outside of the graph."""
    for run in history.runs.values():
        known = {
            label
            for name, fate in run.flow.fates.items()
            if fate in RAN
            for label in run.flow.labels(name)
        }
        for label, found in run.nodes.items():
            if label not in known:
                started = sum(one.id in history.starts for one in found)
                yield f"{label} of {_named(run)} is not to run, and was started {started} times"


def _node_before_its_parents(history: History) -> Iterator[str]:
    """A node starts after the end of all nodes that it waits for."""
    ended = _ended(history)
    for run in history.runs.values():
        for name, parents in run.flow.parents.items():
            begun = [at for one in run.executions(name) for at in _begun(one, history)]
            for parent in parents if begun else ():
                last = [at for one in run.executions(parent) for at in _over(one, history, ended)]
                if last and min(begun) < max(last):
                    early = max(last) - min(begun)
                    yield f"{name} of {_named(run)} started {early:.3f} s before {parent} had ended"
                if not last and run.flow.fates[parent] in RAN:
                    yield f"{name} of {_named(run)} started, and {parent} never ended"


def _begun_after_a_cancel(history: History) -> Iterator[str]:
    """No node starts after the answer that its run is cancelled, or will be."""
    clock = history.clock
    for cancel in history.cancels:
        if cancel.answer not in (Cancellation.CANCELLED, Cancellation.REQUESTED):
            continue
        for run in history.runs.values():
            for one in _nodes(run) if run.root == cancel.id else ():
                late = one.created_at - clock - cancel.answered_at
                if late > 0:
                    yield f"{one.node} of {_named(run)} came {late:.3f} s after it was cancelled"


def _step_repeated(history: History) -> Iterator[str]:
    """A recorded step is not done again. A step is repeated only if its worker was lost between its
    effect and its record, so before anything else was done in that attempt.
    """
    for id, marks in _step_marks(history).items():
        recorded = _attempts(history, id)
        for place, attempts in marks.items():
            later = {one for other in marks if other > place for one in marks[other]}
            for attempt, count in Counter(attempts).items():
                said = f"step {place} of {id}, attempt {attempt},"
                if count > 1:
                    yield f"{said} was done {count} times"
                elif place not in recorded:
                    if attempt in later:
                        yield f"{said} is not on record, and the function went on"
                elif attempt > recorded[place]:
                    yield f"{said} was done although attempt {recorded[place]} has recorded it"
                elif attempt < recorded[place] and attempt in later:
                    yield f"{said} was not recorded, and the function went on"


def _step_not_on_record(history: History) -> Iterator[str]:
    """A durable function that has succeeded has all its steps on record, with the values that it
    received.
    """
    marks = _step_marks(history)
    for one in history.executions.values():
        if one.state is not State.SUCCEEDED or not is_durable(one):
            continue
        recorded = _attempts(history, one.id)
        told = dict(enumerate(cast("list[int]", _decoded(one.result)["attempts"])))
        if len(told) != len(STEPS) or recorded != told:
            yield f"{one.id} was told {told} of its steps, and {recorded} is on record"
        for place, attempt in recorded.items():
            if attempt not in marks[one.id].get(place, ()):
                yield f"step {place} of {one.id} is on record, and attempt {attempt} never did it"


FLOW_RULES: Final = (
    _run_ended_otherwise,
    _run_left_behind,
    _run_never_asked_for,
    _node_doubled,
    _node_did_not_run,
    _node_ran_unasked,
    _node_before_its_parents,
    _begun_after_a_cancel,
    _step_repeated,
    _step_not_on_record,
)


def find_late_nodes(
    history: History, *, troubles: Sequence[Trouble], within: Seconds
) -> Iterator[Violation]:
    """Return nodes that became executions long after their last parent, and runs that ended long
    after their last node. Trouble of the store does not count, as with orphans.
    """
    clock = history.clock
    for run in history.runs.values():
        for what, since, until in _node_waits(run):
            at = recovery_start(since - clock, until - clock, troubles, within)
            if until - clock - at > within:
                yield Violation(
                    "went on late",
                    f"{what} of {_named(run)} came {until - since:.2f} s after all before it had"
                    f" ended, and {within:g} s are promised",
                )


def count_workflows(history: History) -> WorkflowFigures:
    """Count runs, nodes and steps."""
    calls = [call for call in history.calls if call.job in OUTER]
    states = Counter(str(run.execution.state) for run in history.runs.values())
    nodes = sum(
        one.node is not None and one.id not in history.runs for one in history.executions.values()
    )
    marks = _step_marks(history)
    again = sum(len(some) - 1 for by_place in marks.values() for some in by_place.values())
    return WorkflowFigures(
        asked=len(calls),
        acknowledged=sum(call.id is not None for call in calls),
        states=dict(states),
        nodes=nodes,
        steps=sum(len(_attempts(history, id)) for id in history.steps),
        steps_again=again,
    )


def _whole(history: History) -> Iterator[FlowRun]:
    """Return runs that were not cancelled."""
    cut = {one.id for one in history.cancels if one.answer != Cancellation.FINISHED}
    return (run for run in history.runs.values() if run.root not in cut)


def _nodes(run: FlowRun) -> Iterator[Execution]:
    return (one for found in run.nodes.values() for one in found)


def _named(run: FlowRun) -> str:
    return f"{run.flow.name} {run.id}"


def _left(run: FlowRun) -> str:
    if run.detail is None:
        return "has not begun"
    row = run.detail.run
    todo = ", and is todo" if row.is_todo else ""
    return f"has {row.left} nodes left, {row.ready} ready, {row.running} running{todo}"


def _ended(history: History) -> dict[tuple[UUID, int], Seconds]:
    """Return when attempts ended by themselves."""
    return {
        (one.execution, one.attempt): one.at for one in history.effects if one.what in (END, FAIL)
    }


def _begun(execution: Execution, history: History) -> list[Seconds]:
    """Return the first start of an execution, or of a node in it, if it is a run."""
    run = history.runs.get(execution.id)
    if run is None:
        return [start.at for start in history.starts.get(execution.id, ())[:1]]
    return [at for one in _nodes(run) for at in _begun(one, history)]


def _over(
    execution: Execution, history: History, ended: dict[tuple[UUID, int], Seconds]
) -> list[Seconds]:
    """Return the end of the attempt in the store; of a run, those of its nodes."""
    run = history.runs.get(execution.id)
    if run is not None:
        return [at for one in _nodes(run) for at in _over(one, history, ended)]
    at = ended.get((execution.id, execution.attempt))
    return [] if at is None else [at]


def _node_waits(run: FlowRun) -> Iterator[tuple[str, float, float]]:
    """Return when each execution started, by the store's clock, and since when it could have."""
    if run.detail is None:
        return
    over = {view.node.label: view.node.finished_at for view in run.detail.nodes}
    for name, parents in run.flow.parents.items():
        since = [over.get(parent) for parent in parents]
        # With a limit, nodes wait for other nodes, too.
        if not since or run.flow.graph.max_running is not None:
            continue
        for one in run.executions(name):
            yield f"{one.node}", max(at or 0.0 for at in since), one.created_at
    last = max((at or 0.0 for at in over.values()), default=0.0)
    if run.execution.finished_at is not None and last:
        yield "the end", last, run.execution.finished_at


def _step_marks(history: History) -> dict[UUID, dict[int, list[int]]]:
    """Return the attempts that have done each step: by execution and number."""
    found: dict[UUID, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in history.effects:
        if one.what == STEP:
            found[one.execution][one.number].append(one.attempt)
    return found


def _attempts(history: History, id: UUID) -> dict[int, int]:
    """Return the attempts that have recorded a step, by number."""
    return {
        STEPS.index(one.name): _decoded(one.result)
        for one in history.steps.get(id, ())
        if one.kind is StepKind.STEP and one.is_done
    }


def _decoded(text: str | None) -> Any:
    return None if text is None else payload.decode(text)


# Rules for durable functions that wait for events. Pure. Other rules cover that all of them end,
# and that no step is done twice.


class EventFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of events."""

    asked: int
    acknowledged: int
    taken: int  # ended a wait
    early: int  # of the acknowledged ones, before the wait began


def _event_lost(history: History) -> Iterator[str]:
    """An acknowledged event has ended a wait of its execution, even if it came first."""
    taken = _taken(history)
    for one in history.sends:
        if one.is_refused:
            yield f"event {one.token} was refused: {one.execution} had ended without it"
        elif one.answered_at is not None and one.token not in taken.get(one.execution, ()):
            found = history.executions.get(one.execution)
            state = "nowhere" if found is None else found.state
            yield f"event {one.token} was acknowledged, not taken; {one.execution} is {state}"


def _event_taken_twice(history: History) -> Iterator[str]:
    """An event ends one wait, though the next wait asks for the same."""
    for id, tokens in _taken(history).items():
        for token, count in Counter(tokens).items():
            if count > 1:
                yield f"event {token} has ended {count} waits of {id}"


def _event_of_another(history: History) -> Iterator[str]:
    """An event that ends a wait was sent to this execution."""
    sent = {(one.execution, one.token) for one in history.sends}
    for id, tokens in _taken(history).items():
        for token in tokens:
            if (id, token) not in sent:
                yield f"a wait of {id} has ended with {token}, which nobody has sent to it"


def _event_told_otherwise(history: History) -> Iterator[str]:
    """A function that has succeeded received the recorded answer of each wait, in all attempts the
    same.
    """
    taken = _taken(history)
    for one in history.executions.values():
        if one.job != durable_waiting.name or one.state is not State.SUCCEEDED:
            continue
        told = _decoded(one.result)["tokens"]
        recorded = taken.get(one.id, [])
        if told != recorded or len(recorded) != TURNS:
            yield f"{one.id} was told of {told}, and {recorded} is on record"


WAIT_RULES: Final = (
    _event_lost,
    _event_taken_twice,
    _event_of_another,
    _event_told_otherwise,
)


def count_events(history: History) -> EventFigures:
    """Count events, and when they were sent."""
    began = {
        (id, _token(wait)): wait.started_at - history.clock
        for id in history.steps
        for wait in _event_waits(history, id)
    }
    answers = [
        (one.answered_at, began.get((one.execution, one.token)))
        for one in history.sends
        if one.answered_at is not None
    ]
    return EventFigures(
        asked=len(history.sends),
        acknowledged=len(answers),
        taken=sum(map(len, _taken(history).values())),
        early=sum(since is not None and at < since for at, since in answers),
    )


def _taken(history: History) -> dict[UUID, list[str | None]]:
    """Return the events that ended the waits of each function, in order."""
    return {id: [_token(wait) for wait in _event_waits(history, id)] for id in history.steps}


def _event_waits(history: History, id: UUID) -> list[Step]:
    return [one for one in history.steps[id] if one.kind is StepKind.WAIT and one.is_done]


def _token(wait: Step) -> str | None:
    """Return the content of the event that ended a wait; none after a timeout."""
    event = _decoded(wait.result)
    return None if event is None else event["data"]["note"]
