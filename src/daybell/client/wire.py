"""Plain JSON of everything that the client answers: times in ISO 8601 and UTC, ids and priorities
as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from daybell.client.declarations import Change, diff_versions
from daybell.client.explain import Reason
from daybell.client.job_fields import OF_COMMAND, kind_fields
from daybell.client.runs import WorkflowRun, short_name
from daybell.client.schedules import Backfill
from daybell.core import payload
from daybell.core.access import AuditCheck, AuditEntry, Key, Scope, Secret, Tenant
from daybell.core.event import Event, NodeWait, Step, StepKind
from daybell.core.execution import (
    TERMINAL,
    AttemptRecord,
    AttemptSpan,
    Execution,
    ExecutionDetail,
    Outcome,
    State,
)
from daybell.core.job import Job, JobDefinition, JobStatus, Template
from daybell.core.kinds import SETTINGS
from daybell.core.limits import LIST_VALUE_BYTES_MAX, PAYLOAD_DEPTH_MAX
from daybell.core.schedule import Schedule
from daybell.core.units import Instant, from_iso, to_iso
from daybell.core.views import Counts, Page, Queue, is_large
from daybell.core.when import Schedule as Rule
from daybell.core.worker import Leadership, Worker
from daybell.errors import InvalidSchedule, PayloadError

T = TypeVar("T")

DEPTH_MAX: Final = 2 * PAYLOAD_DEPTH_MAX  # of a row: arguments, and what they stand in
# What a job runs, by the names that requests have for it: one is said, and what goes with it.
RUN_FIELDS: Final = ("task", *SETTINGS, *OF_COMMAND, "workflow")


def page(listed: Page[T], item: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """A page of a list."""
    return {"items": [item(one) for one in listed.items], "next_cursor": listed.next_cursor}


def link(*parts: object) -> str:
    """The address of one thing in the HTTP API."""
    return "/api/v1" + "".join(f"/{quote(str(part), safe='')}" for part in parts)


def job(of: Job, *, listed: bool = False) -> dict[str, Any]:
    """A job at one of its versions. A list leaves large values out."""
    definition = msgspec.structs.asdict(of.definition)
    large = {
        name for name in ("settings", "args", "template") if listed and is_large(definition[name])
    }
    definition |= {
        "priority": of.definition.priority.label,
        "retry": value(of.definition.retry.to_json()),
        "settings": value(of.definition.settings),
        "args": value(of.definition.args),
        "schedules": [value(text) for text in of.definition.schedules],
        "misfire": value(of.definition.misfire or "{}"),
        "template": value(of.definition.template or "null"),
    } | dict.fromkeys(large)
    return {
        "job_id": str(of.id),
        "name": definition.pop("name"),
        "version": of.version,
        "tenant": of.tenant,
        **dict.fromkeys(RUN_FIELDS),
        **definition,
        **({} if "settings" in large else _run_fields(of.definition)),
        "author": of.author,
        "created_at": time(of.created_at),
        "is_current": of.is_current,
        "paused_at": time(of.paused_at),
        "pause_note": of.pause_note,
        "truncated": bool(large),
        "link": link("jobs", of.id) if large else None,
    }


def version(of: Job, before: Job | None, *, listed: bool = False) -> dict[str, Any]:
    """A version of a job, with its differences from the one before it."""
    said = job(of, listed=listed)
    changes = [change(one) for one in diff_versions(before, of)]
    if listed:
        for one in changes:
            for side in ("before", "after"):
                if len(msgspec.json.encode(one[side])) > LIST_VALUE_BYTES_MAX:
                    one[side] = None
                    said["truncated"] = True
        if said["truncated"]:
            said["link"] = link("jobs", of.id, "versions", of.version)
    return said | {"changes": changes}


def change(of: Change) -> dict[str, Any]:
    """A field that is not as it was; null stands for what is not said, too."""
    return {
        "field": of.field,
        "before": None if of.before is msgspec.UNSET else of.before,
        "after": None if of.after is msgspec.UNSET else of.after,
    }


def template(of: Template, *, listed: bool = False) -> dict[str, Any]:
    """A template. A list leaves a large job out."""
    large = listed and len(msgspec.json.encode(of.template.job)) > LIST_VALUE_BYTES_MAX
    return {
        "name": of.name,
        "version": of.version,
        "tenant": of.tenant,
        "description": of.template.description,
        "parameters": msgspec.to_builtins(of.template.parameters),
        "job": None if large else of.template.job,
        "author": of.author,
        "created_at": time(of.created_at),
        "updated_at": time(of.updated_at),
        "truncated": large,
        "link": link("templates", of.name) if large else None,
    }


def standing(of: JobStatus, *, listed: bool = False) -> dict[str, Any]:
    """A job with what it does now. Its schedules are as they stand, added ones included."""
    last = of.last_execution
    return job(of.job, listed=listed) | {
        "status": of.status,
        "progress": None if last is None else last.progress,
        "started_at": None if last is None else time(last.started_at),
        "next_run_at": time(of.next_run_at),
        "schedules": [schedule(one) for one in of.schedules],
        "has_more_schedules": of.has_more_schedules,
        "last_execution": None if last is None else execution(last),
        "waits_for": [msgspec.structs.asdict(one) for one in of.waits_for],
    }


def schedule(of: Schedule) -> dict[str, Any]:
    """A schedule, in words too."""
    try:
        described = Rule.from_json(of.rule).describe()
    except InvalidSchedule:
        described = None
    return {
        "schedule_id": str(of.id),
        "tenant": of.tenant,
        "job": of.job,
        "name": of.name,
        "rule": value(of.rule),
        "description": described,
        "args": value(of.args),
        "next_run_at": time(of.next_at),
        "last_run_at": time(of.last_at),
        "last_success_at": time(of.succeeded_for),
        "is_declared": of.is_declared,
        "overlap_by": of.overlap_by,
        "is_paused": of.is_paused,
        "is_reboot": of.is_reboot,
        "delay": of.delay,
        "since": time(of.since),
        "fired": of.fired,
        "skipped": of.skipped,
        "missed": of.missed,
        "failures": of.failures,
        "truncated": of.truncated,
    }


def backfill(of: Backfill) -> dict[str, Any]:
    """What a backfill has done, or would do."""
    return {
        "backfill_id": None if of.is_dry_run else str(of.id),
        "job": of.job,
        "dry_run": of.is_dry_run,
        "ticks": of.looked_at,
        "created": of.created,
        "items": [
            {
                "scheduled_for": time(one.at),
                "schedule": one.name,
                "execution_id": identity(one.execution),
                "created": one.created,
            }
            for one in of.ticks
        ],
    }


def leader(of: Leadership) -> dict[str, Any]:
    """Who does what one node should do."""
    return {
        "role": of.name,
        "holder_id": str(of.holder),
        "epoch": of.epoch,
        "until": time(of.until),
    }


def execution(of: Execution) -> dict[str, Any]:
    """An execution without its attempts."""
    return {
        "execution_id": str(of.id),
        "job": of.job,
        "version": of.version,
        "tenant": of.tenant,
        "status": str(of.state),
        "reason": of.reason,
        "queue": of.queue,
        "priority": of.priority.label,
        "args": value(of.args),
        "attempt": of.attempt,
        "failures": of.failures,
        "crashes": of.crashes,
        "created_at": time(of.created_at),
        "run_at": time(of.run_at),
        "scheduled_for": time(of.scheduled_for),
        "expires_at": time(of.expires_at),
        "started_at": time(of.started_at),
        "finished_at": time(of.finished_at),
        "cancel_requested_at": time(of.cancel_requested_at),
        "worker_id": identity(of.worker),
        "unique_key": of.unique_key,
        "retries": of.retries,
        "timeout": of.timeout,
        "parent_id": identity(of.parent),
        "node": of.node,
        "workflow_id": None if of.node is None else identity(of.parent),
        "schedule_id": identity(of.schedule),
        "progress": of.progress,
        "note": of.note,
        "outcome": None if of.outcome is None else str(of.outcome),
        "result": value(of.result),
        "error": value(of.error),
        "is_discarded": of.is_discarded,
        "truncated": of.truncated,
        "link": link("executions", of.id) if of.truncated else None,
    }


def detail(of: ExecutionDetail) -> dict[str, Any]:
    """An execution with its ended attempts."""
    return execution(of.execution) | {"attempts": [attempt(one) for one in of.attempts]}


def run(of: WorkflowRun) -> dict[str, Any]:
    """The nodes of a workflow's run, and how far it is."""
    return {
        "nodes": [
            {
                "name": one.name,
                "status": str(one.status),
                "reason": one.reason,
                "execution_id": identity(one.execution),
                "kind": one.kind,
                "task": one.runs if one.kind == "task" else None,
                "job": one.runs if one.kind == "job" else None,
                "rule": one.rule,
                "ready_at": time(one.ready_at),
                "started_at": time(one.started_at),
                "finished_at": time(one.finished_at),
                "items": None if one.items is None else msgspec.structs.asdict(one.items),
                "run_at": time(one.run_at),
                "waits": [node_wait(each) for each in one.waits],
                "attempts": [span(each) for each in one.attempts],
            }
            for one in of.nodes
        ],
        "edges": [{"from": one.parent, "to": one.child, "when": one.when} for one in of.edges],
        "progress": {"ended": of.ended, "total": of.total},
        "failed": list(of.failed),
        "fail_fast": of.fail_fast,
        "max_running": of.max_running,
    }


def node_wait(of: NodeWait) -> dict[str, Any]:
    """What a node waits for."""
    name = short_name(of.name)
    return {
        "execution_id": str(of.execution),
        "node": of.label,
        "kind": "event" if name == of.name else "approval",
        "name": name,
        "match": value(of.match),
        "until": time(of.until),
    }


def reason(of: Reason) -> dict[str, Any]:
    """Why an execution stands where it stands."""
    return {
        "execution_id": str(of.execution.id),
        "status": str(of.execution.state),
        "reason": of.word,
        "detail": of.detail,
        "next_at": time(of.next_at),
    }


def attempt(of: AttemptRecord) -> dict[str, Any]:
    """One ended try."""
    return {
        "attempt": of.attempt,
        "outcome": str(of.outcome),
        "worker_id": identity(of.worker),
        "started_at": time(of.started_at),
        "ended_at": time(of.ended_at),
        "error": value(of.error),
    }


def span(of: AttemptSpan) -> dict[str, Any]:
    """A try at a node, ended or not."""
    return {
        "attempt": of.attempt,
        "outcome": None if of.outcome is None else str(of.outcome),
        "worker_id": identity(of.worker),
        "started_at": time(of.started_at),
        "ended_at": time(of.ended_at),
    }


def worker(of: Worker) -> dict[str, Any]:
    """A worker."""
    return {
        "worker_id": str(of.id),
        "name": of.name,
        "tenant": of.tenant,
        "state": str(of.state),
        "host": of.host,
        "pid": of.pid,
        "version": of.version,
        "queues": list(of.queues),
        "kinds": list(of.kinds),
        "labels": of.labels,
        "capacity": of.capacity,
        "running": of.running,
        "started_at": time(of.started_at),
        "renewed_at": time(of.renewed_at),
        "lease_until": time(of.lease_until),
    }


def counts(of: Counts) -> dict[str, Any]:
    """Executions by state."""
    return {
        "executions": {str(state): number for state, number in of.items()},
        "at_least": sorted(map(str, of.at_least)),
    }


def queue(of: Queue) -> dict[str, Any]:
    """A queue with its numbers."""
    fields = msgspec.structs.asdict(of)
    return fields | {"oldest_run_at": time(of.oldest_run_at)}


def key(of: Key) -> dict[str, Any]:
    """A key, without its secret."""
    return {
        "key_id": str(of.id),
        "tenant": of.tenant,
        "name": of.name,
        "role": str(of.role),
        **_limits(of.scope),
        "hint": of.hint,
        "created_at": time(of.created_at),
        "created_by": of.created_by,
        "expires_at": time(of.expires_at),
        "used_at": time(of.used_at),
        "revoked_at": time(of.revoked_at),
    }


def _limits(of: Scope | None) -> dict[str, Any]:
    """What a key is limited to; null: nothing limits it there."""
    given = Scope() if of is None else of
    return {name: list(value) or None for name, value in msgspec.structs.asdict(given).items()}


def tenant(of: Tenant) -> dict[str, Any]:
    """A tenant with its quotas."""
    return {
        "name": of.name,
        "created_at": time(of.created_at),
        "quotas": msgspec.structs.asdict(of.quotas),
    }


def secret(of: Secret) -> dict[str, Any]:
    """A secret, without its value."""
    return {
        "name": of.name,
        "tenant": of.tenant,
        "version": of.version,
        "key_id": of.key_id,
        "created_at": time(of.created_at),
        "updated_at": time(of.updated_at),
        "author": of.author,
    }


def entry(of: AuditEntry) -> dict[str, Any]:
    """An entry of the audit log."""
    return {
        "entry_id": str(of.id),
        "tenant": of.tenant,
        "at": time(of.at),
        "actor": of.actor,
        "action": of.action,
        "target": of.target,
        "before": value(of.before),
        "after": value(of.after),
        "source": of.source,
    }


def audit_check(of: AuditCheck) -> dict[str, Any]:
    """The result of checking the audit log."""
    broken = None
    if of.broken is not None:
        broken = {
            "number": of.broken.number,
            "entry_id": identity(of.broken.id),
            "problem": of.broken.problem,
        }
    return {
        "entries": of.entries,
        "head": of.head,
        "broken": broken,
        "next_cursor": of.next_cursor,
    }


def time(instant: Instant | None) -> str | None:
    """A time, if there is one."""
    return None if instant is None else to_iso(instant)


def identity(id: UUID | None) -> str | None:
    """An id, if there is one."""
    return None if id is None else str(id)


def value(text: str | None) -> Any:
    """What JSON text says; None for none. Text that is no JSON stays text.

    A client cannot store text that is nested too deeply to be read, but whoever writes to the
    database can. It must not break the list that its row is in.
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


def _run_fields(of: JobDefinition) -> dict[str, Any]:
    """What a job runs, as far as it can be read."""
    try:
        return kind_fields(of)
    except PayloadError:
        return {}


# Steps and events as plain JSON, and as they are read from it again.

Status = Literal["done", "failed", "sleeping", "waiting", "timed_out"]
RESULTS_CHARS_MAX: Final = 256 * 1024  # of all steps in one answer; the rest is left out


def step_status(step: Step, execution: Execution) -> Status:
    """What a step of an execution has come to."""
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


def attempt_outcome(attempt: AttemptRecord, steps: Sequence[Step]) -> str:
    """How an attempt ended, as people see it. One of a durable function may have been given back
    by its own wish: the steps that were open when it ended say so.
    """
    if attempt.outcome is not Outcome.RELEASED:
        return str(attempt.outcome)
    at = attempt.ended_at
    open_ones = [
        step
        for step in steps
        if step.started_at <= at and (step.finished_at is None or step.finished_at > at)
    ]
    for kind, word in _WISHES.items():
        if any(step.kind is kind for step in open_ones):
            return word
    return str(attempt.outcome)


# What is waited for comes before what is slept for at the same time: it may come any moment.
_WISHES: Final = {
    StepKind.WAIT: "waited",
    StepKind.SLEEP: "slept",
    StepKind.STEP: "step_failed",
}


def encode_steps(steps: Sequence[Step], execution: Execution) -> list[dict[str, Any]]:
    """The steps of an execution, in their order. What is too much of their results is left out."""
    told: list[dict[str, Any]] = []
    room = RESULTS_CHARS_MAX
    for step in steps:
        status, size = step_status(step, execution), len(step.result or "")
        room -= size
        is_over = status not in ("sleeping", "waiting")
        told.append(
            {
                "n": step.n,
                "name": step.name,
                "kind": str(step.kind),
                "status": status,
                "failures": step.failures,
                "started_at": time(step.started_at),
                "finished_at": time(step.finished_at) if is_over else None,
                "wake_at": time(step.wake_at),
                "result": value(step.result) if room >= 0 else None,
                "is_result_left_out": room < 0 and size > 0,
                "error": value(step.error),
            }
        )
    return told


def decode_step(of: Mapping[str, Any]) -> Step:
    """A step as a server has told it."""
    finished, wake_at, result = of["finished_at"], of["wake_at"], of["result"]
    # A wait without a result has timed out; one whose result was left out has not.
    has_result = result is not None or (of["kind"] == "wait" and of["is_result_left_out"])
    return Step(
        n=int(of["n"]),
        name=str(of["name"]),
        kind=StepKind(of["kind"]),
        result=payload.encode(result) if has_result else None,
        error=None if of["error"] is None else payload.encode(of["error"]),
        failures=int(of["failures"]),
        wake_at=None if wake_at is None else from_iso(wake_at),
        started_at=from_iso(of["started_at"]),
        finished_at=None if finished is None else from_iso(finished),
        is_done=of["status"] not in ("waiting", "failed"),
    )


def encode_event(of: Event) -> dict[str, Any]:
    """An event, under the names that CloudEvents has."""
    return {
        "id": of.id,
        "source": of.source,
        "type": of.name,
        "data": value(of.data),
        "time": time(of.time),
        "received_at": time(of.received_at),
        "execution_id": identity(of.execution),
    }


def decode_event(of: Mapping[str, Any]) -> Event:
    """An event as a server has told it."""
    time, execution = of["time"], of["execution_id"]
    return Event(
        id=str(of["id"]),
        source=str(of["source"]),
        name=str(of["type"]),
        data=payload.encode(of["data"]),
        time=None if time is None else from_iso(time),
        received_at=from_iso(of["received_at"]),
        execution=None if execution is None else UUID(execution),
    )
