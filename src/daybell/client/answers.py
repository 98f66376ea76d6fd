"""Answers made from values of the core: one function per struct of `client/wire.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, wraps
from math import inf
from operator import attrgetter
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast
from urllib.parse import quote
from uuid import UUID

import msgspec

from daybell.client import wire
from daybell.client.backfill import Backfill
from daybell.client.context import ClientContext
from daybell.client.declarations import ApplyOutcome, Change, diff_versions
from daybell.client.events import ExecutionHistory
from daybell.client.explain.executions import Reason
from daybell.client.explain.jobs import JobReason
from daybell.client.explain.queues import Obstacle, QueueReason
from daybell.client.explain.remedies import Remedy
from daybell.client.hooks import event_name
from daybell.client.runs import (
    RunNode,
    WorkflowRun,
    describe_node,
    describe_resume,
    short_name,
)
from daybell.client.workers import Overview
from daybell.core import payload
from daybell.core.access import AuditCheck, AuditEntry, Key, Scope, Secret, Tenant
from daybell.core.event import Event, NodeWait, Published, Step, StepKind
from daybell.core.execution import (
    TERMINAL,
    AttemptRecord,
    AttemptSpan,
    Execution,
    LogPart,
    State,
)
from daybell.core.flow import BucketState, LimitState, LimitTerms, format_rate
from daybell.core.job import Job, JobDefinition, JobStatus, Template
from daybell.core.job_request import write_kind
from daybell.core.limits import LIST_VALUE_BYTES_MAX, PAYLOAD_DEPTH_MAX
from daybell.core.logs import FoundLine
from daybell.core.schedule import CalendarEntry, Schedule
from daybell.core.units import Instant, to_datetime
from daybell.core.views import QUEUE_NUMBERS, Counts, LetterGroup, Page, Queue, Term, print_query
from daybell.core.when import Schedule as Rule
from daybell.core.worker import Leadership, Worker
from daybell.errors import InvalidSchedule, PayloadError

C = TypeVar("C", bound=ClientContext)
P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
V = TypeVar("V", bound=wire.JobVersion)

DEPTH_MAX: Final = 2 * PAYLOAD_DEPTH_MAX  # of a row: arguments, and the value that contains them
RESULTS_CHARS_MAX: Final = 256 * 1024  # of all steps in one answer; the rest is left out

JobIds = Mapping[str, UUID]


def page(listed: Page[T], item: Callable[[T], A]) -> Page[A]:
    """Make a page of answers."""
    return Page(items=tuple(map(item, listed.items)), next_cursor=listed.next_cursor)


def page_of(item: Callable[[T], A]) -> Callable[[Page[T]], Page[A]]:
    """Return a maker of pages of answers."""
    return lambda listed: page(listed, item)


def all_of(item: Callable[[T], A]) -> Callable[[Iterable[T]], list[A]]:
    """Return a maker of lists of answers."""
    return lambda found: list(map(item, found))


def answering(
    operation: Callable[Concatenate[C, P], Coroutine[Any, Any, T]], answer: Callable[[T], A]
) -> Callable[Concatenate[C, P], CoroutineType[Any, Any, A]]:
    """Return the verb of a client that performs an operation and answers as `wire` has it."""

    @wraps(operation)
    async def verb(client: C, *args: P.args, **options: P.kwargs) -> A:
        return answer(await operation(client, *args, **options))

    return verb


def link(*parts: object) -> str:
    """The address of one thing in the HTTP API."""
    return "/api/v1" + "".join(f"/{quote(str(part), safe='')}" for part in parts)


def time(instant: Instant | None) -> datetime | None:
    """A time, if there is one."""
    return None if instant is None else to_datetime(instant)


def value(text: str | None) -> Any:
    """Parse JSON text; None for none. Text that is no JSON stays text.

    A client cannot store text that is nested too deeply to be read, but another program that
    writes to the database can. It must not break the list that its row is in.
    """
    if text is None:
        return None
    if text.count("[") + text.count("{") > DEPTH_MAX and payload.is_deeper(
        text.encode(errors="replace"), DEPTH_MAX
    ):
        return {"unreadable": f"nested deeper than {DEPTH_MAX} levels"}
    try:
        return json.loads(text)
    except ValueError:
        return text


def fill(answer: type[A], of: object, **own: Any) -> A:
    """Make an answer of a value: fields as given, and all others from the attributes of that name.

    A field such as `worker_id` is the attribute `worker`. Times, lists and JSON are converted as
    the type of the field needs it.
    """
    names, read, conversions = _filling(answer, type(of), tuple(own))
    found = list(read(of))
    for place, convert in conversions:
        found[place] = convert(found[place])
    own.update(zip(names, found, strict=True))
    return answer(**own)


@cache
def _filling(
    answer: type[Any], kind: type[Any], own: tuple[str, ...]
) -> tuple[list[str], attrgetter[tuple[Any, ...]], list[tuple[int, Callable[[Any], Any]]]]:
    """Return the fields to fill, how their values are read, and the conversions by place."""
    names: list[str] = []
    attributes: list[str] = []
    conversions: list[tuple[int, Callable[[Any], Any]]] = []
    for field in msgspec.structs.fields(answer):
        attribute = field.name if hasattr(kind, field.name) else field.name.removesuffix("_id")
        if field.name in own or not (hasattr(kind, attribute) or field.required):
            continue
        parts = wire.parts_of(field.type)
        convert = next((_CONVERSIONS[one] for one in parts if one in _CONVERSIONS), None)
        if convert is not None:
            conversions.append((len(names), convert))
        names.append(field.name)
        attributes.append(attribute)
    return names, attrgetter(*attributes), conversions


def _parsed(one: Any) -> Any:
    return value(one) if isinstance(one, str) else one


_CONVERSIONS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    datetime: time,
    list: lambda one: None if one is None else list(one),
    dict: _parsed,
    Any: _parsed,
}


# Executions.


def _execution_fields(of: Execution, job_id: UUID) -> dict[str, Any]:
    return {
        "execution_id": of.id,
        "job_id": job_id,
        "status": of.state,
        "priority": of.priority.label,
        "workflow_id": None if of.node is None else of.parent,
        "link": link("executions", of.id) if of.truncated else None,
    }


def execution(of: Execution, job_id: UUID) -> wire.Execution:
    """An execution without its attempts."""
    return fill(wire.Execution, of, **_execution_fields(of, job_id))


def executions(found: Iterable[Execution], ids: JobIds) -> list[wire.Execution]:
    """Executions with the ids of their jobs."""
    return [execution(one, ids[one.job]) for one in found]


def dead_letter_groups(of: Page[LetterGroup], ids: JobIds) -> Page[wire.DeadLetterGroup]:
    """Groups of dead letters with the queries that select them."""
    return page(
        of, lambda one: fill(wire.DeadLetterGroup, one, job_id=ids[one.job], q=_query_of(one))
    )


def _query_of(one: LetterGroup) -> str | None:
    if one.fingerprint is None:
        return None
    return print_query([Term("job", one.job), Term("fingerprint", one.fingerprint)])


def detail(of: ExecutionHistory, job_id: UUID) -> wire.ExecutionDetail:
    """An execution with its ended attempts, its steps or nodes, and its timeline."""
    run = of.run
    fields = _execution_fields(of.detail.execution, job_id)
    if run is not None:
        fields["progress"] = run.percent
    return fill(
        wire.ExecutionDetail,
        of.detail.execution,
        **fields,
        attempts=[attempt(one) for one in of.detail.attempts],
        timeline=of.timeline,
        fired_by=None if of.fired_by is None else firing_event(of.fired_by),
        workflow=None if run is None else workflow(run),
        steps=encode_steps(of.steps, of.detail.execution),
    )


def firing_event(of: Event) -> wire.FiringEvent:
    """The event that fired an execution."""
    return wire.FiringEvent(event_id=of.id, source=of.source, type=of.name)


def attempt(of: AttemptRecord) -> wire.Attempt:
    """An attempt that has ended."""
    return fill(wire.Attempt, of)


def workflow(of: WorkflowRun) -> wire.WorkflowRun:
    """The nodes of a run."""
    return wire.WorkflowRun(
        nodes=[node(one) for one in of.nodes],
        edges=[wire.RunEdge(from_=one.parent, to=one.child, when=one.when) for one in of.edges],
        progress=wire.RunProgress(ended=of.ended, total=of.total),
        failed=list(of.failed),
        fail_fast=of.fail_fast,
        max_running=of.max_running,
    )


def node(of: RunNode) -> wire.RunNode:
    """A node of a run."""
    items = of.items
    return fill(
        wire.RunNode,
        of,
        task=of.runs if of.kind == "task" else None,
        job=of.runs if of.kind == "job" else None,
        note=describe_node(of),
        items=None if items is None else fill(wire.ItemCounts, items),
        waits=[node_wait(one) for one in of.waits],
        attempts=[span(one) for one in of.attempts],
    )


def node_wait(of: NodeWait) -> wire.NodeWait:
    """An event that a node waits for."""
    name = short_name(of.name)
    kind = "event" if name == of.name else "approval"
    resume = describe_resume(of)
    return fill(wire.NodeWait, of, node=of.label, kind=kind, name=name, resume=resume)


def span(of: AttemptSpan) -> wire.NodeAttempt:
    """An attempt of a node."""
    return fill(wire.NodeAttempt, of)


def log_lines(part: LogPart) -> list[wire.LogLine]:
    """The lines of a part of a log."""
    return [fill(wire.LogLine, line, attempt=part.attempt) for line in part.lines]


def found_line(of: FoundLine) -> wire.FoundLine:
    """A line that a search found."""
    about = {"execution_id": of.execution, "job": of.job, "attempt": of.attempt}
    return fill(wire.FoundLine, of.line, **about)


def state_counts(of: Counts) -> wire.StateCounts:
    """Executions by state."""
    return wire.StateCounts(executions=dict(of), at_least=sorted(of.at_least))


def counts(answers: Mapping[Any, int], *, next_cursor: str | None = None) -> wire.Counts:
    """Executions by outcome. Those that are unknown, or on no list, do not count as matched."""
    found: dict[str, Any] = {str(word): number for word, number in answers.items() if number}
    others = found.get("unknown", 0) + found.get("not_listed", 0)
    matched = sum(found.values()) - others
    return wire.Counts(matched=matched, next_cursor=next_cursor, **found)


def step_status(step: Step, execution: Execution) -> wire.StepStatus:
    """The status of a step of an execution."""
    match step.kind:
        case StepKind.SLEEP:
            is_asleep = execution.state is State.SCHEDULED and _wake_at(step) >= execution.run_at
            return "sleeping" if is_asleep else "done"
        case StepKind.WAIT if not step.is_done:
            return "done" if execution.state in TERMINAL else "waiting"
        case StepKind.WAIT:
            return "timed_out" if step.result is None else "done"
        case _:
            return "done" if step.error is None else "failed"


def _wake_at(step: Step) -> float:
    return step.wake_at or 0.0


def encode_steps(steps: Sequence[Step], execution: Execution) -> list[wire.Step]:
    """The steps of an execution, in their order. Results beyond a total size are left out."""
    told: list[wire.Step] = []
    room = RESULTS_CHARS_MAX
    for step in steps:
        status, size = step_status(step, execution), len(step.result or "")
        room -= size
        is_over = status not in ("sleeping", "waiting")
        told.append(
            fill(
                wire.Step,
                step,
                status=status,
                finished_at=time(step.finished_at) if is_over else None,
                result=value(step.result) if room >= 0 else None,
                is_result_left_out=room < 0 and size > 0,
            )
        )
    return told


# Jobs, their schedules and templates.


def _version_fields(of: Job) -> dict[str, Any]:
    """The fields of a job at one of its versions."""
    definition = msgspec.structs.asdict(of.definition) | {
        "priority": of.definition.priority.label,
        "retry": value(of.definition.retry.to_json()),
        "settings": value(of.definition.settings),
        "args": value(of.definition.args),
        "schedules": [value(text) for text in of.definition.schedules],
        "misfire": value(of.definition.misfire or "{}"),
        "dependencies": list(of.definition.dependencies),
        "template": value(of.definition.template or "null"),
        "signature": value(of.definition.signature or "null"),
    }
    return {
        "job_id": of.id,
        "version": of.version,
        "tenant": of.tenant,
        **definition,
        **_run_fields(of.definition),
        "author": of.author,
        "created_at": to_datetime(of.created_at),
        "is_current": of.is_current,
        "paused_at": time(of.paused_at),
        "pause_note": of.pause_note,
        "truncated": False,
        "link": None,
    }


def _run_fields(of: JobDefinition) -> dict[str, Any]:
    """Return the fields that describe the work of a job, as far as they can be read."""
    try:
        return write_kind(of)
    except PayloadError:
        return {}


def job_version(of: Job) -> wire.JobVersion:
    """A job at one of its versions."""
    return wire.JobVersion(**_version_fields(of))


def listed_version(of: Job, before: Job | None) -> wire.ListedVersion:
    """A version of a job, with its differences from the one before it."""
    changes = [change(one) for one in diff_versions(before, of)]
    return wire.ListedVersion(**_version_fields(of), changes=changes)


# The fields that a list leaves out if they are large, and those that follow from `settings`.
LARGE_FIELDS: Final = ("settings", "args", "template")
RUN_FIELDS: Final = ("task", "command", "shell", "env", "http", "sql", "notify", "workflow")


def shorten_version(of: V) -> V:
    """Return a job, or a version of one, as a list has it: without large values."""
    fields: dict[str, Any] = {name: None for name in LARGE_FIELDS if _is_large(getattr(of, name))}
    if "settings" in fields:
        fields |= dict.fromkeys(RUN_FIELDS)
    path: tuple[object, ...] = ("jobs", of.job_id)
    if isinstance(of, wire.ListedVersion):
        path = (*path, "versions", of.version)
        changes = [_shorten_change(one) for one in of.changes]
        if changes != of.changes:
            fields["changes"] = changes
    if not fields:
        return of
    return msgspec.structs.replace(of, **fields, truncated=True, link=link(*path))


def _is_large(one: Any) -> bool:
    return len(wire.encode(one)) > LIST_VALUE_BYTES_MAX


def _shorten_change(of: wire.FieldChange) -> wire.FieldChange:
    """Leave large values out of a change."""
    large = {side: None for side in ("before", "after") if _is_large(getattr(of, side))}
    return msgspec.structs.replace(of, **large) if large else of


def change(of: Change) -> wire.FieldChange:
    """A field that differs."""
    return wire.FieldChange(
        field=of.field,
        before=None if of.before is msgspec.UNSET else of.before,
        after=None if of.after is msgspec.UNSET else of.after,
    )


def job(
    of: JobStatus,
    *,
    execution_id: UUID | msgspec.UnsetType = msgspec.UNSET,
) -> wire.Job:
    """Return a job with its status. Its schedules are the current ones, added ones included."""
    last = of.last_execution
    fields = _version_fields(of.job)
    fields["schedules"] = [schedule(one) for one in of.schedules]
    return wire.Job(
        **fields,
        status=cast("wire.JobWord", of.status),
        progress=None if last is None else last.progress,
        started_at=None if last is None else time(last.started_at),
        next_run_at=time(of.next_run_at),
        has_more_schedules=of.has_more_schedules,
        last_execution=None if last is None else execution(last, of.job.id),
        waits_for=[
            wire.WaitsFor(job=one.job, is_met=one.is_met, detail=one.detail) for one in of.waits_for
        ],
        execution_id=execution_id,
    )


def applied(of: ApplyOutcome, there: JobStatus | None) -> wire.AppliedJob:
    """Return the result of declaring a job, or of a dry run of that."""
    return wire.AppliedJob(
        action=cast("Any", of.action),
        before=of.before,
        after=of.after,
        job=None if there is None else job(there),
        warnings=of.warnings,
    )


def schedule(of: Schedule) -> wire.Schedule:
    """A schedule, in words too."""
    try:
        described = Rule.from_json(of.rule).describe()
    except InvalidSchedule:
        described = None
    return fill(
        wire.Schedule,
        of,
        schedule_id=of.id,
        description=described,
        next_run_at=time(of.next_at),
        last_run_at=time(of.last_at),
        last_success_at=time(of.succeeded_for),
    )


def calendar_entry(of: CalendarEntry) -> wire.CalendarEntry:
    """A schedule with its ticks in a range."""
    told = schedule(of.schedule)
    past = [fill(wire.Fire, one, decision=one.decision.value) for one in reversed(of.past)]
    future = [wire.Fire(at=to_datetime(one), decision="upcoming") for one in of.future]
    return fill(wire.CalendarEntry, told, fires=past + future, has_more=of.has_more)


def backfill(of: Backfill) -> wire.Backfill:
    """Return the result of a backfill, or of a dry run of one."""
    return wire.Backfill(
        backfill_id=None if of.is_dry_run else of.id,
        job=of.job,
        dry_run=of.is_dry_run,
        ticks=of.looked_at,
        created=of.created,
        items=[
            wire.BackfilledTick(
                scheduled_for=to_datetime(one.at),
                schedule=one.name,
                execution_id=one.execution,
                created=one.created,
            )
            for one in of.ticks
        ],
    )


def template(of: Template) -> wire.Template:
    """A template."""
    return fill(
        wire.Template,
        of,
        description=of.template.description,
        parameters=msgspec.to_builtins(of.template.parameters),
        job=of.template.job,
        truncated=False,
        link=None,
    )


def shorten_template(of: wire.Template) -> wire.Template:
    """Return a template as a list has it, without a large job."""
    if not _is_large(of.job):
        return of
    return msgspec.structs.replace(of, job=None, truncated=True, link=link("templates", of.name))


# Events.


def event(of: Event) -> wire.Event:
    """An event on record."""
    return fill(wire.Event, of, event_id=of.id, type=of.name)


def published(of: Published, event_id: str) -> wire.Published:
    """The answer to an event."""
    return fill(wire.Published, of, event_id=event_id)


# Workers, queues and the whole at a glance.


def worker(of: Worker) -> wire.Worker:
    """A worker."""
    return fill(wire.Worker, of, worker_id=of.id, shared=of.is_shared)


def queue(of: Queue) -> wire.Queue:
    """A queue with its numbers."""
    return fill(wire.Queue, of)


def limit(of: LimitState) -> wire.Limit:
    """A limit with its numbers."""
    is_paused, paused_until = _pause(of.paused_until)
    return wire.Limit(
        name=of.name,
        limit=of.terms.limit,
        rates=_rates(of.terms),
        declared=wire.LimitNumbers(limit=of.declared.limit, rates=_rates(of.declared)),
        is_paused=is_paused,
        paused_until=paused_until,
        running=of.held,
        waiting=of.waiting,
        keys=of.items,
        next_at=time(of.next_at),
        at_least=[_LIMIT_NUMBERS[name] for name in of.at_least],
        buckets=[_limit_key(one, of.terms) for one in of.buckets],
    )


_LIMIT_NUMBERS: Final = {"held": "running", "waiting": "waiting", "items": "keys"}


def _limit_key(of: BucketState, terms: LimitTerms) -> wire.LimitKey:
    is_paused, paused_until = _pause(of.paused_until)
    left = [most - used for (most, _), used in zip(terms.windows, of.starts, strict=True)]
    return wire.LimitKey(
        key=of.item,
        running=of.held,
        waiting=of.waiting,
        tokens=max(0, min(left)) if left else None,
        next_at=None if of.room_at == inf else time(of.room_at),
        paused_until=paused_until,
        is_paused=is_paused,
        holders=list(of.holders),
    )


def _pause(until: Instant | None) -> tuple[bool, datetime | None]:
    """Return whether there is a pause, and its known end."""
    return until is not None, None if until == inf else time(until)


def _rates(terms: LimitTerms) -> list[str]:
    return [
        format_rate(count, seconds) + (f" (burst {burst})" if burst is not None else "")
        for count, seconds, burst in terms.rates or ()
    ]


def leader(of: Leadership) -> wire.Leader:
    """The leader of a role."""
    return wire.Leader(
        role=of.name, holder_id=of.holder, epoch=of.epoch, until=to_datetime(of.until)
    )


def stats(of: Overview, ids: JobIds) -> wire.Stats:
    """Queues, workers, rates and the last dead letters."""
    bounded = {name for one in of.queues for name in one.at_least}
    rates = of.rates
    return wire.Stats(
        now=to_datetime(of.now),
        totals=wire.Totals(
            **{name: sum(getattr(one, name) for one in of.queues) for name in QUEUE_NUMBERS},
            at_least=[name for name in QUEUE_NUMBERS if name in bounded],
        ),
        queues=[queue(one) for one in of.queues],
        workers=[worker(one) for one in of.workers],
        rates=None if rates is None else wire.Rates(**msgspec.structs.asdict(rates)),
        dead_letters=executions(of.letters, ids),
        has_more_dead_letters=of.has_more_letters,
    )


# Answers to "why".


def why(of: Reason) -> wire.Why:
    """Return the answer to why an execution has not run, or not ended."""
    nearest = of.nearest
    return wire.Why(
        execution_id=of.execution.id,
        status=of.execution.state,
        code=of.code,
        detail=of.detail,
        next_at=time(of.next_at),
        lack=of.lack,
        actions=[remedy(one) for one in of.actions],
        holders=[
            wire.Holder(
                execution_id=one.id, job=one.job, status=one.state, url=link("executions", one.id)
            )
            for one in of.holders
        ],
        nearest_worker=None
        if nearest is None
        else wire.NearestWorker(
            worker_id=nearest.worker.id, name=nearest.worker.name, lacks=list(nearest.lacks)
        ),
        ahead=None if of.ahead is None else int(of.ahead),
        at_least=of.ahead is not None and not of.ahead.is_exact,
        estimated_start=time(of.starts_at),
        delays=[fill(wire.Delay, one) for one in of.delays],
    )


def queue_why(of: QueueReason) -> wire.QueueWhy:
    """Return the answer to why the due executions of a queue are not taken."""
    return wire.QueueWhy(
        queue=of.queue.name,
        **_obstacle_fields(of.obstacle),
        needs=[
            wire.QueueNeed(
                needs=one.backlog.needs,
                queued=int(one.backlog.due),
                at_least=not one.backlog.due.is_exact,
                oldest_run_at=to_datetime(one.backlog.oldest_run_at),
                workers=one.workers,
            )
            for one in of.needs
        ],
        workers=len(of.workers),
        capacity=sum(one.capacity for one in of.workers),
        running=sum(one.running for one in of.workers),
        starts_per_second=of.rate,
    )


def job_why(of: JobReason) -> wire.JobWhy:
    """Return the answer to why a job does not run now."""
    return wire.JobWhy(
        job_id=of.status.job.id,
        job=of.status.job.name,
        status=cast("wire.JobWord", of.status.status),
        **_obstacle_fields(of.obstacle),
        next_run_at=time(of.status.next_run_at),
        schedules=[
            wire.ScheduleWhy(
                schedule_id=one.schedule.id,
                name=one.schedule.name,
                **_obstacle_fields(one.obstacle),
            )
            for one in of.schedules
        ],
        executions=[why(one) for one in of.executions],
        ticks=[
            fill(
                wire.ExplainedTick,
                one.tick,
                schedule=one.schedule.name,
                detail=one.detail,
                decision=one.tick.decision.value,
            )
            for one in of.ticks
        ],
    )


def _obstacle_fields(of: Obstacle) -> dict[str, Any]:
    return {
        "code": of.code,
        "detail": of.detail,
        "next_at": time(of.next_at),
        "actions": [remedy(one) for one in of.actions],
    }


def remedy(of: Remedy) -> wire.Remedy:
    """A command that removes a cause, and the request that does the same."""
    request = None
    if of.method is not None and of.path is not None:
        request = wire.RemedyRequest(method=of.method, path=of.path, body=of.body)
    return wire.Remedy(label=of.label, command=of.command, request=request)


# Access.


def _key_fields(of: Key) -> dict[str, Any]:
    scope = Scope() if of.scope is None else of.scope
    return {
        "key_id": of.id,
        "jobs": list(scope.jobs) or None,
        "queues": list(scope.queues) or None,
        "actions": list(scope.actions) or None,
    }


def key(of: Key) -> wire.Key:
    """A key, without its token."""
    return fill(wire.Key, of, **_key_fields(of))


def new_key(of: tuple[Key, str]) -> wire.NewKeyAnswer:
    """A key with its token."""
    made, token = of
    return fill(wire.NewKeyAnswer, made, **_key_fields(made), token=token)


def hook(of: Key) -> wire.Hook:
    """A hook, without its token."""
    return fill(wire.Hook, of, **_hook_fields(of))


def new_hook(of: tuple[Key, str]) -> wire.NewHookAnswer:
    """A hook with its token."""
    made, token = of
    path = f"/api/v1/hooks/{token}"
    return fill(wire.NewHookAnswer, made, **_hook_fields(made), token=token, path=path)


def _hook_fields(of: Key) -> dict[str, Any]:
    assert of.hook is not None, "it is a hook"
    is_hmac = of.hook.signature == "hmac"
    return {
        "hook_id": of.id,
        "job": of.hook.job,
        "event": event_name(of.hook.job),
        "signature": of.hook.signature,
        "secret": of.hook.secret,
        "header": of.hook.header,
        "algorithm": str(of.hook.algorithm) if is_hmac else None,
        "encoding": str(of.hook.encoding) if is_hmac else None,
    }


def tenant(of: Tenant) -> wire.Tenant:
    """A tenant with its quotas."""
    return fill(wire.Tenant, of, quotas=fill(wire.Quotas, of.quotas))


def secret(of: Secret) -> wire.Secret:
    """A secret, without its value."""
    return fill(wire.Secret, of)


def audit_entry(of: AuditEntry) -> wire.AuditEntry:
    """An entry of the audit log."""
    return fill(wire.AuditEntry, of, entry_id=of.id)


def audit_check(of: AuditCheck) -> wire.AuditCheck:
    """The result of checking the audit log."""
    found = of.broken
    broken = None if found is None else fill(wire.AuditBreak, found, entry_id=found.id)
    return fill(wire.AuditCheck, of, broken=broken)
