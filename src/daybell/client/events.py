"""Events, decisions and steps, and the timeline of an execution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from daybell.client import wire
from daybell.client.context import ClientContext
from daybell.client.explain.needs import effective_definition
from daybell.client.requests import Id, Time, check_options, read_id, read_time
from daybell.client.runs import (
    APPROVAL,
    DECISION,
    RESERVED,
    RunNode,
    WorkflowRun,
    run_of,
    select_wait,
    short_name,
)
from daybell.client.when import find_firing_event
from daybell.core import payload
from daybell.core.event import (
    Event,
    NewEvent,
    Published,
    Step,
    StepKind,
    check_event,
    check_events,
)
from daybell.core.execution import (
    TERMINAL,
    AttemptRecord,
    Execution,
    ExecutionDetail,
    Outcome,
    State,
)
from daybell.core.ids import mint
from daybell.core.lifecycle import FOR_EVENT
from daybell.core.limits import ARGS_BYTES_MAX, EVENT_BATCH_MAX, PAGE_ITEMS_DEFAULT, check_name
from daybell.core.units import Instant, to_datetime
from daybell.core.views import Page
from daybell.errors import (
    Conflict,
    DaybellError,
    InvalidItems,
    InvalidName,
    JobNotFound,
    Unavailable,
    UsageError,
)

WORKFLOW: Final = "workflow"
SOURCE: Final = "daybell"  # of events that do not specify their source


def approval_event(name: str) -> str:
    """Return the name of the event that brings the decision of this name."""
    return APPROVAL + name


def read_event(
    name: str,
    data: Any = None,
    *,
    source: str | None = None,
    id: str | None = None,
    time: Time | None = None,
    execution: Id | None = None,
) -> NewEvent:
    """Return an event that a caller specified. Without an id it gets one of its own."""
    if isinstance(name, str) and name.startswith(RESERVED):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidName(
            f"names of events that begin with {RESERVED!r} are reserved; decisions are sent with"
            " approve",
            field="name",
        )
    return check_event(
        NewEvent(
            id=str(mint()) if id is None else id,
            source=SOURCE if source is None else source,
            name=name,
            data=payload.encode(data, what="data", bytes_max=ARGS_BYTES_MAX),
            time=None if time is None else read_time(time, "time"),
            execution=None if execution is None else read_id(execution),
        )
    )


def read_decision(
    execution: Id, name: str, *, approved: bool, by: str | None, note: str | None
) -> NewEvent:
    """Return a person's decision as an event for the execution that waits for it."""
    said = {"approved": approved, "by": by, "note": note}
    return check_event(
        NewEvent(
            id=str(mint()),
            source=SOURCE,
            name=approval_event(check_name(name, what="approval")),
            data=payload.encode(said, what="note", bytes_max=ARGS_BYTES_MAX),
            execution=read_id(execution),
        )
    )


async def publish(
    client: ClientContext,
    name: str,
    data: Any = None,
    *,
    source: str | None = None,
    id: str | None = None,
    time: Time | None = None,
) -> Published:
    """Publish an event. Jobs that listen to it are fired, and executions that wait for it continue.
    Executions that exist by now and start to wait for it within seven days find it.

    An event with the same source and id as a stored one changes nothing.
    """
    event = read_event(name, data, source=source, id=id, time=time)
    return await send(client, event, is_own=id is None)


# The keys of an item of `publish_many`.
ITEM_KEYS: Final = frozenset(("name", "data", "source", "id", "time"))


async def publish_many(
    client: ClientContext, items: Iterable[Mapping[str, Any]]
) -> list[Published]:
    """Publish up to 1,000 events in one transaction, all or nothing; return the answers in their
    order. An item has the arguments of `publish`: `name` and, if wanted, `data`, `source`, `id` and
    `time`.

    Raises InvalidItems, which names every item that is wrong.
    """
    given = list(items)
    errors: dict[int, DaybellError] = {}
    events: list[NewEvent] = []
    for index, item in enumerate(given[: EVENT_BATCH_MAX + 1]):
        try:
            said = dict(item)
            check_options(said, ITEM_KEYS, "an event")
            if "name" not in said:
                raise UsageError("name is missing", field="name")
            events.append(read_event(**said))
        except UsageError as error:
            errors[index] = error
    if errors:
        raise InvalidItems(errors, count=len(given))
    own = [item.get("id") is None for item in given]
    return await keep_many(client, events, own=own)


async def keep_many(
    client: ClientContext, events: Sequence[NewEvent], *, own: Sequence[bool] = ()
) -> list[Published]:
    """Store events. `own`: see `send`."""
    check_events(events)
    try:
        return await client.store.runs.publish_many(client.tenant, events)
    except Unavailable:
        # Perhaps only the answer is lost, see `keep`.
        found = await client.store.runs.publish_many(client.tenant, events)
        owned = [*own, *[False] * (len(found) - len(own))]
        pairs = zip(found, owned, strict=True)
        return [replace(one, created=one.created or is_own) for one, is_own in pairs]


async def signal(client: ClientContext, id: Id, name: str, data: Any = None) -> Published:
    """Send an event to one execution alone. Raises ExecutionNotFound, or Conflict if it has ended.

    A workflow's run passes the event on to the node that waits for it, also a node of a run inside;
    Conflict if there is none, or more than one.
    """
    return await send(client, read_event(name, data, execution=id), is_own=True)


async def approve(
    client: ClientContext,
    id: Id,
    name: str = DECISION,
    *,
    approved: bool = True,
    by: str | None = None,
    note: str | None = None,
) -> Published:
    """Send a decision to an execution that waits or will wait for it. A workflow's run passes it
    on, see `signal`.
    """
    decision = read_decision(id, name, approved=approved, by=by, note=note)
    return await send(client, decision, is_own=True)


async def send(client: ClientContext, event: NewEvent, *, is_own: bool = False) -> Published:
    """Store an event. `is_own`: its id was made here, so that no other caller can have sent it."""
    event, node = await addressed(client, event)
    return await keep(client, event, node, is_own=is_own)


async def keep(
    client: ClientContext, event: NewEvent, node: str | None, *, is_own: bool = False
) -> Published:
    """Store an event that already has its recipient."""
    try:
        found = await client.store.runs.publish(client.tenant, event)
    except Unavailable:
        # Perhaps only the answer is lost: then it is on record now.
        found = await client.store.runs.publish(client.tenant, event)
        found = replace(found, created=found.created or is_own)
    return replace(found, execution=event.execution, node=node)


async def addressed(client: ClientContext, event: NewEvent) -> tuple[NewEvent, str | None]:
    """Return an event with its recipient: an event for a workflow's run goes to a node of it, and
    the name of that node is returned, too. Refuse an event that would be stored without effect.
    """
    if event.execution is None:
        return event, None
    one = (await client.store.catalog.get_execution(client.tenant, event.execution)).execution
    if one.state in TERMINAL:
        again = "; retry it first" if one.state is State.DEAD else ""
        raise Conflict(f"execution {one.id} has ended ({one.state}), and waits for nothing{again}")
    if not await _is_run(client, one):
        return event, None
    waits = await client.store.runs.node_waits(client.tenant, one.id, event=event)
    found = select_wait(one.id, event, waits)
    return replace(event, execution=found.execution), found.label


async def _is_run(client: ClientContext, one: Execution) -> bool:
    if one.state is State.RUNNING and one.worker is None:
        return True
    if one.state is State.WAITING and one.reason == FOR_EVENT:
        return False
    with suppress(JobNotFound):
        job = await client.store.catalog.get_job(client.tenant, one.job, version=one.version)
        return effective_definition(one, job.definition).kind == WORKFLOW
    return False


async def events(
    client: ClientContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[Event]:
    """Return events on record, those that came last first."""
    return await client.store.runs.list_events(client.tenant, limit=limit, cursor=cursor)


async def steps(client: ClientContext, id: Id) -> list[Step]:
    """Return the durable steps of an execution, in their order."""
    return await client.store.runs.steps(client.tenant, read_id(id))


# The timeline of an execution, in order of time.

TimelineEntry: TypeAlias = tuple[Instant, dict[str, Any]]

_BEGINNINGS: Final = ("created", "fired", "due", "started")


def attempt_outcome(attempt: AttemptRecord, steps: Sequence[Step]) -> str:
    """Return the outcome of an attempt for people. An attempt of a durable function may have
    released its execution itself: the steps that were open at its end show why.
    """
    if attempt.outcome is not Outcome.RELEASED:
        return str(attempt.outcome)
    at = attempt.ended_at
    open_steps = [
        step
        for step in steps
        if step.started_at <= at and (step.finished_at is None or step.finished_at > at)
    ]
    for kind, word in _RELEASES.items():
        if any(step.kind is kind for step in open_steps):
            return word
    return str(attempt.outcome)


# A wait comes before a sleep of the same time: its event may arrive at any moment.
_RELEASES: Final = {
    StepKind.WAIT: "waited",
    StepKind.SLEEP: "slept",
    StepKind.STEP: "step_failed",
}


class ExecutionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with all that is kept of it."""

    detail: ExecutionDetail
    steps: Sequence[Step]
    run: WorkflowRun | None  # None: it is of another kind
    fired_by: Event | None  # the event of its schedule
    timeline: list[wire.Moment]


async def story(client: ClientContext, id: Id) -> ExecutionHistory:
    """Return one execution with its steps or nodes and its timeline."""
    known = read_id(id)
    detail = await client.store.catalog.get_execution(client.tenant, known)
    steps = await client.store.runs.steps(client.tenant, known)
    run = await run_of(client, detail.execution, detail.attempts)
    fired_by = await find_firing_event(client, detail.execution)
    return ExecutionHistory(
        detail=detail,
        steps=steps,
        run=run,
        fired_by=fired_by,
        timeline=timeline(detail, run, steps, fired_by),
    )


def timeline(
    of: ExecutionDetail,
    run: WorkflowRun | None = None,
    steps: Sequence[Step] = (),
    fired_by: Event | None = None,
) -> list[wire.Moment]:
    """Return the moments of an execution, oldest first: as far as they are kept. Of a workflow's
    run, also those of its nodes; of a durable function, its steps, sleeps and waits.
    """
    one = of.execution
    moments: list[TimelineEntry] = [(one.created_at, {"event": "created"})]
    if fired_by is not None:
        moments[0][1].update(event="fired", type=fired_by.name, event_id=fired_by.id)
    if one.run_at > one.created_at and not of.attempts and one.started_at is None:
        moments.append((one.run_at, {"event": "due"}))
    for attempt in of.attempts:
        about = {"attempt": attempt.attempt, "worker_id": attempt.worker}
        if attempt.started_at is not None:
            moments.append((attempt.started_at, {"event": "started", **about}))
        moments.append((attempt.ended_at, {"event": attempt_outcome(attempt, steps), **about}))
    ended = {attempt.attempt for attempt in of.attempts}
    if one.started_at is not None and one.attempt not in ended:
        about = {"attempt": one.attempt, "worker_id": one.worker}
        moments.append((one.started_at, {"event": "started", **about}))
    if one.cancel_requested_at is not None:
        moments.append((one.cancel_requested_at, {"event": "cancel_requested"}))
    if one.finished_at is not None and one.state in TERMINAL:
        moments.append((one.finished_at, {"event": "ended", "status": one.state}))
    if run is None:
        # The end of a wait comes before the attempt that continues after it, also in one moment.
        ends = [end for step in steps for end in _of_wait(step)]
        inside = [moment for step in steps for moment in _of_step(step)]
        moments = sorted([*ends, *_enclose_entries(moments, inside)], key=lambda pair: pair[0])
    else:
        moments = _enclose_entries(moments, _of_nodes(run))
    return [wire.Moment(at=to_datetime(at), **said) for at, said in moments]


def _of_nodes(run: WorkflowRun) -> list[TimelineEntry]:
    moments: list[TimelineEntry] = []
    for node in run.nodes:
        if node.ready_at is not None:
            moments.append((node.ready_at, {"event": "ready", "node": node.name}))
        moments.extend(_of_attempts(node))
        if node.finished_at is not None:
            moments.append((node.finished_at, {"event": str(node.status), "node": node.name}))
    return moments


def _of_attempts(node: RunNode) -> Iterator[TimelineEntry]:
    """Yield each start of a node, and each end but that of the node itself."""
    if not node.attempts and node.started_at is not None:
        yield node.started_at, {"event": "started", "node": node.name}
    for one in node.attempts:
        about = {"node": node.name, "attempt": one.attempt, "worker_id": one.worker}
        if one.started_at is not None:
            yield one.started_at, {"event": "started", **about}
        is_last = node.is_ended and one is node.attempts[-1]
        if one.ended_at is not None and not is_last:
            yield one.ended_at, {"event": str(one.outcome), **about}


def _of_step(step: Step) -> Iterator[TimelineEntry]:
    """Yield the end of a step, or the start of a sleep or a wait. Values that have only to be the
    same again (`ctx.now`) are left out.
    """
    about: dict[str, Any] = {"step": short_name(step.name), "n": step.n}
    match step.kind:
        case StepKind.STEP:
            event = "step_done" if step.error is None else "step_failed"
            yield step.finished_at or step.started_at, {"event": event, **about}
        case StepKind.SLEEP:
            yield step.started_at, {"event": "sleep", **about, "until": _until(step)}
        case StepKind.WAIT:
            yield step.started_at, {"event": "wait", **about, "until": _until(step)}
            if step.finished_at == step.started_at:  # it had come before
                yield step.started_at, {"event": _wait_outcome(step), **about}
        case StepKind.NOW:
            pass


def _until(step: Step) -> datetime | None:
    return None if step.wake_at is None else to_datetime(step.wake_at)


def _of_wait(step: Step) -> Iterator[TimelineEntry]:
    """Return the end of a wait, if the execution had to wait."""
    at = step.finished_at
    if step.kind is StepKind.WAIT and step.is_done and at is not None and at != step.started_at:
        yield at, {"event": _wait_outcome(step), "step": short_name(step.name), "n": step.n}


def _wait_outcome(wait: Step) -> str:
    if wait.result is None:
        return "wait_timed_out"
    if not wait.name.startswith(APPROVAL):
        return "event_received"
    return "approved" if payload.decode(wait.result)["data"]["approved"] else "rejected"


def _enclose_entries(own: list[TimelineEntry], inside: list[TimelineEntry]) -> list[TimelineEntry]:
    """Put a run's start before its nodes, and its end after the last of them, if only by the order;
    the same for attempts and their steps.
    """
    begins = [one for one in own if one[1]["event"] in _BEGINNINGS]
    ends = [one for one in own if one[1]["event"] not in _BEGINNINGS]
    return sorted([*begins, *inside, *ends], key=lambda pair: pair[0])
