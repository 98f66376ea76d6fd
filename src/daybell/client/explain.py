"""Explanations: the reason why an execution has not started or has not ended, with a sentence for
users.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Final

import msgspec

from daybell.client import runs
from daybell.client.context import ClientContext
from daybell.client.executions import count
from daybell.client.executions import executions as list_executions
from daybell.client.requests import Id, read_id
from daybell.client.runs import APPROVAL, DECISION, describe_event, short_name
from daybell.client.when import held_up_by
from daybell.client.workers import (
    describe_lack,
    describe_start,
    find_capable_workers,
    find_live_workers,
)
from daybell.core.event import Step, StepKind
from daybell.core.execution import PENDING, TERMINAL, Execution, Failure, State
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import FOR_EVENT, UNKNOWN_TASK
from daybell.core.schedule import DEPENDENCIES, OVERLAP, UPSTREAM_FAILED, is_schedule_gate
from daybell.core.units import Instant, to_iso
from daybell.core.views import Queue
from daybell.core.worker import Worker, WorkerState
from daybell.core.workflow.graph import Graph
from daybell.core.workflow.node import JOB
from daybell.core.workflow.run import node_name
from daybell.errors import AccessDenied, JobNotFound, NotFound, listed, with_tenant
from daybell.settings import masked_url

# Workers and queues: an overview with rates, and the workers that can run a job.


# Which workers could run a job, and what to do where none can.


def effective_definition(execution: Execution, job: JobDefinition) -> JobDefinition:
    """How an execution is run, by the version of its job that it was created under: a node of a
    workflow as that says.
    """
    if execution.node is None or job.kind != "workflow":
        return job
    graph = _graph_in(job.settings)
    node = graph.by_name.get(node_name(execution.node))
    # A node that is another workflow may have a name that this one has a node of, too.
    is_inline = node is not None and node.kind != JOB
    return graph.definition_of(node, job) if node and is_inline else job


@lru_cache(maxsize=16)  # who looks at one node of a run looks at others
def _graph_in(settings: str) -> Graph:
    return Graph.from_settings(settings)


# Why an execution was skipped: who was in its way, or which dependency had failed.

_LOOKED_AT_MAX: Final = 100  # executions of its job, before it


async def explain_skip(client: ClientContext, execution: Execution) -> str:
    """The end of a sentence that says that it was skipped; empty if no more is known."""
    if execution.reason == OVERLAP:
        return await _explain_overlap(client, execution)
    if execution.reason == UPSTREAM_FAILED:
        return await _explain_failed_dependency(client, execution)
    return ""


async def _explain_overlap(client: ClientContext, skipped: Execution) -> str:
    """Nobody has kept which one it was. But it had begun to be before, and not ended by then."""
    unfinished = await list_executions(
        client, job=skipped.job, status=[*PENDING, State.RUNNING], limit=_LOOKED_AT_MAX
    )
    before = [
        one
        for one in unfinished.items
        if one.created_at <= skipped.created_at and one.gate == skipped.gate
    ]
    of = "schedule" if is_schedule_gate(skipped.gate) else "job"
    if before:
        one = min(before, key=lambda one: (one.state is not State.RUNNING, one.created_at))
        return (
            f": execution {one.id} of the same {of} was in its way, and still is ({one.state});"
            f" `daybell executions why {one.id}` says what it waits for"
        )
    page = await list_executions(
        client, job=skipped.job, until=skipped.created_at, limit=_LOOKED_AT_MAX, status=[*TERMINAL]
    )
    for one in page.items:
        ended_at = one.finished_at
        if one.state is State.SKIPPED or ended_at is None or ended_at < skipped.created_at:
            continue
        if one.gate != skipped.gate:
            continue
        then = f"which ended at {to_iso(ended_at)} ({one.state})"
        return f": execution {one.id} of the same {of} was in its way, {then}"
    return f": another execution of the same {of} had not ended"


async def _explain_failed_dependency(client: ClientContext, skipped: Execution) -> str:
    try:
        held = await held_up_by(client, skipped)
    except JobNotFound:
        return ""
    named = listed(f"{job} ({words})" for job, words in held)
    return f": {named}" if named else ": what had failed then has succeeded since"


# What a durable function waits for, in a sentence for a person.

_MOMENT: Final = 0.001  # times that are told as text are a little shorter


class Suspension(msgspec.Struct, frozen=True):
    """Why it is suspended: a word for programs, a sentence, and when that may change by itself."""

    word: str
    detail: str
    next_at: Instant | None = None


async def _explain_suspension(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    """What an execution waits for by its own wish; None: something else."""
    is_waiting = execution.state is State.WAITING
    found: Suspension | None = None
    if is_waiting and execution.reason == FOR_EVENT:
        found = _explain_event_wait(
            await client.store.runs.steps(client.tenant, execution.id), execution
        )
    elif execution.state is State.SCHEDULED and execution.attempt > 1:
        found = _explain_sleep(
            await client.store.runs.steps(client.tenant, execution.id), execution
        )
    # A wait whose time is over is one until the scheduler's next look.
    if found is None or not (is_waiting or (found.next_at or inf) > now):
        return None
    return Reason(execution=execution, word=found.word, detail=found.detail, next_at=found.next_at)


def _explain_event_wait(steps: list[Step], execution: Execution) -> Suspension:
    waits = [step for step in steps if step.kind is StepKind.WAIT and not step.is_done]
    if not waits:
        return Suspension("event", "it waits for an event")
    told = [
        describe_event(one.name)
        + (f" (until {to_iso(one.wake_at)})" if one.wake_at is not None else "")
        for one in waits
    ]
    decisions = [short_name(one.name) for one in waits if one.name.startswith(APPROVAL)]
    ways: list[str] = []
    if decisions:
        named = "" if decisions[0] == DECISION else f" --name {shlex.quote(decisions[0])}"
        ways.append(f"decide with `daybell executions approve {execution.id}{named}`")
    if len(decisions) < len(waits):
        ways.append("send it with `daybell events publish` or `daybell executions signal`")
    how = ", or ".join(ways)
    next_at = min((one.wake_at for one in waits if one.wake_at is not None), default=None)
    return Suspension("event", f"it waits for {' and '.join(told)}; {how}", next_at)


def _explain_sleep(steps: list[Step], execution: Execution) -> Suspension | None:
    at = execution.run_at
    for step in reversed(steps):
        if step.kind is StepKind.SLEEP and abs((step.wake_at or 0.0) - at) < _MOMENT:
            named = "" if step.name == "sleep" else f" ({step.name})"
            return Suspension("sleep", f"it sleeps until {to_iso(at)}{named}", at)
        if step.kind is StepKind.STEP and step.error is not None and not step.is_done:
            times = "once" if step.failures == 1 else f"{step.failures} times"
            detail = (
                f"its step {step.name!r} has failed {times}, with"
                f" {Failure.of_kept(step.error).type}; it is tried again at {to_iso(at)}"
            )
            return Suspension("step_retry", detail, at)
    return None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why it stands where it stands. `word` is stable, for programs."""

    execution: Execution
    word: str
    detail: str
    next_at: Instant | None = None  # when that may change by itself
    lack: str | None = None  # a worker to start, or a queue to resume, for it or a node of it


# What does not change by itself: a person has to start, resume or deploy something.
LACKS: Final = frozenset(
    {"no_worker", "no_worker_of_kind", "draining", "queue_paused", UNKNOWN_TASK}
)
_NODES_MAX: Final = 100  # of a run, that are looked at
_DEPTH_MAX: Final = 3  # workflows in workflows
ENDED: Final = {
    State.SUCCEEDED: "it has succeeded",
    State.CANCELLED: "it was cancelled",
    State.SKIPPED: "it was skipped",
    State.DEAD: "it is out of tries, or not to be tried again; retry or discard it",
}


async def why(client: ClientContext, id: Id) -> Reason:
    """Why an execution has not run, or has not ended. Commands in the answer name its tenant."""
    execution = (await client.store.catalog.get_execution(client.tenant, read_id(id))).execution
    found = await _find_reason(client, execution)
    detail = with_tenant(found.detail, execution.tenant)
    lack = detail if found.word in LACKS else found.lack
    return msgspec.structs.replace(found, detail=detail, lack=lack)


async def _find_reason(client: ClientContext, execution: Execution) -> Reason:
    if execution.state not in PENDING:
        found = await _explain_run(client, execution) or _explain_started(execution)
        because = await explain_skip(client, execution)
        return msgspec.structs.replace(found, detail=found.detail + because)
    now = (await client.health()).now
    for explain in _OBSTACLES:
        if (found := await explain(client, execution, now)) is not None:
            return found
    return await _explain_due(client, execution, now)


async def find_lack(
    client: ClientContext, execution: Execution, *, depth: int = 0
) -> Reason | None:
    """What keeps it, or a node of it, until somebody does something; None: nothing that is known.

    The answer is about the node, then.
    """
    if execution.state in PENDING:
        found = await why(client, execution.id)
        return found if found.word in LACKS else None
    if execution.state is not State.RUNNING or execution.worker is not None or depth > _DEPTH_MAX:
        return None
    page = await list_executions(
        client, parent=str(execution.id), status=[*PENDING, State.RUNNING], limit=_NODES_MAX
    )
    for one in await _select_distinct(client, page.items):
        if (found := await find_lack(client, one, depth=depth + 1)) is not None:
            return found
    return None


async def _select_distinct(client: ClientContext, nodes: Iterable[Execution]) -> list[Execution]:
    """One of those that wait for the same: the first that is due. What keeps it keeps them all, and
    to ask why takes several requests each.
    """
    found: dict[object, Execution] = {}
    definitions: dict[tuple[str, int], JobDefinition | None] = {}
    for one in sorted(nodes, key=lambda node: node.run_at):
        if one.node is None:
            continue
        if one.state not in PENDING:
            found[node_name(one.node)] = one
            continue
        version = one.job, one.version
        if version not in definitions:
            definitions[version] = await _definition(client, one)
        needs = _needs(one, definitions[version])
        found.setdefault((one.state, one.reason, one.queue, needs), one)
    return list(found.values())


async def find_needs(client: ClientContext, execution: Execution) -> str:
    """What a worker must offer to run it, under the version that it was created under."""
    return _needs(execution, await _definition(client, execution))


def _needs(execution: Execution, definition: JobDefinition | None) -> str:
    return "task" if definition is None else effective_definition(execution, definition).needs


async def _definition(client: ClientContext, execution: Execution) -> JobDefinition | None:
    try:
        return (
            await client.store.catalog.get_job(
                client.tenant, execution.job, version=execution.version
            )
        ).definition
    except NotFound:
        return None


def _explain_started(execution: Execution) -> Reason:
    if execution.state is State.RUNNING:
        asked = execution.cancel_requested_at
        word = "running" if asked is None else "cancelling"
        told = "it runs" if asked is None else "it runs, and was asked to stop"
        return Reason(
            execution=execution, word=word, detail=f"{told}, on worker {execution.worker}"
        )
    told = ENDED[execution.state]
    because = f" ({execution.reason})" if execution.reason else ""
    if execution.state is State.DEAD and execution.error is not None:
        because += f"; its error: {_first_line(execution.error)}"
    return Reason(execution=execution, word=str(execution.state), detail=told + because)


async def _explain_run(client: ClientContext, execution: Execution) -> Reason | None:
    """What a workflow's run waits for, or what failed although it has succeeded; None: it is in a
    worker's hands, or has simply ended.
    """
    if execution.state not in (State.RUNNING, State.SUCCEEDED) or execution.worker is not None:
        return None
    run = await runs.run(client, execution.id)
    if run is None:
        return None
    if execution.state is State.SUCCEEDED:
        return _explain_partial_success(execution, run.failed) if run.failed else None
    begun = [one for one in run.nodes if one.is_begun and not one.is_ended]
    named = f"; it waits for {listed(f'{one.name} ({one.status})' for one in begun)}"
    asked = "" if execution.cancel_requested_at is None else ", and it was asked to stop"
    lack = await find_lack(client, execution)
    because = "" if lack is None else f". {lack.execution.node}: {lack.detail}"
    ended = f"{run.ended:,} of its {run.total:,} nodes have ended{asked}{named if begun else ''}"
    return Reason(
        execution=execution,
        word="cancelling" if asked else "running",
        detail=f"{ended}{because}{runs.describe_waits(begun)}",
        next_at=runs.next_wake_time(begun),
        lack=None if lack is None else f"node {lack.execution.node}: {lack.detail}",
    )


def _explain_partial_success(execution: Execution, failed: Sequence[str]) -> Reason:
    detail = (
        f"it has succeeded, with failed nodes: {listed(failed)}. None of them"
        f" was a last one; `daybell executions retry {execution.id} --from {failed[0]}` begins"
        " there again"
    )
    return Reason(execution=execution, word=str(State.SUCCEEDED), detail=detail)


def _first_line(error: str) -> str:
    failure = Failure.of_kept(error)
    line = next((one for one in failure.message.splitlines() if one.strip()), "").strip()
    return f"{failure.type}: {line.rstrip(':')}" if line else failure.type


async def _explain_gate(client: ClientContext, execution: Execution, now: Instant) -> Reason | None:
    del client, now
    if execution.state is not State.WAITING:
        return None
    # Only gates keep executions waiting so far: an overlap rule's, or a backfill's.
    if execution.schedule is not None and (execution.unique_key or "").startswith("backfill "):
        detail = "it waits for its turn in a backfill, which runs a few at a time"
        return Reason(execution=execution, word="backfill", detail=detail)
    of = f"the same schedule of {execution.job}"
    if not is_schedule_gate(execution.gate):
        of = execution.job
    detail = f"it waits until another execution of {of} has ended: its overlap rule"
    return Reason(execution=execution, word="overlap", detail=detail)


async def _explain_dependency(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    del now
    if execution.state is not State.WAITING or execution.reason != DEPENDENCIES:
        return None
    held = await held_up_by(client, execution)
    named = ", ".join(f"{job} ({words})" for job, words in held)
    detail = f"it waits for what {execution.job} depends on" + (f": {named}" if named else "")
    return Reason(execution=execution, word=DEPENDENCIES, detail=detail)


async def _explain_delay(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    del client
    at = execution.run_at
    if execution.state not in (State.SCHEDULED, State.RETRYING) or at <= now:
        return None
    if execution.state is State.RETRYING:
        detail = f"attempt {execution.attempt - 1} failed; the next one is due at {to_iso(at)}"
        return Reason(execution=execution, word="backoff", detail=detail, next_at=at)
    if execution.reason == UNKNOWN_TASK:
        detail = (
            "the worker that took it has no such task; start one whose app has it, or give that one"
            f" a queue of its own. It is tried again at {to_iso(at)}"
        )
        return Reason(execution=execution, word=UNKNOWN_TASK, detail=detail, next_at=at)
    detail = f"it is not due before {to_iso(at)}"
    return Reason(execution=execution, word="not_due", detail=detail, next_at=at)


# Obstacles of an execution that is not due, in the order of their precedence.
_OBSTACLES: Final = (_explain_dependency, _explain_suspension, _explain_gate, _explain_delay)


async def _explain_due(client: ClientContext, execution: Execution, now: Instant) -> Reason:
    """Why no worker has claimed an execution that is due."""
    queues = {one.name: one for one in await client.store.catalog.list_queues(client.tenant)}
    queue = queues.get(execution.queue)
    workers = await client.store.catalog.list_workers(client.tenant)
    there = [one for one in workers if execution.queue in one.queues and one.lease_until > now]
    needs = await find_needs(client, execution)
    able = find_capable_workers(there, queue=execution.queue, needs=needs, now=now)
    if queue is not None and queue.is_paused:
        detail = f"queue {queue.name!r} is paused; resume it"
        return Reason(execution=execution, word="queue_paused", detail=detail)
    if not able:
        return _explain_no_worker(execution, there, needs)
    return await _explain_quota(client, execution) or _explain_busy(execution, queue, able)


async def _explain_quota(client: ClientContext, execution: Execution) -> Reason | None:
    """Return the reason if the tenant runs as many as it may; None also if that is not known."""
    tenant = execution.tenant
    with suppress(NotFound, AccessDenied):
        most = (await client.store.admin.get_tenant(tenant)).quotas.running
        running = 0 if most is None else sum((await count(client, status="running")).values())
        if most is not None and running >= most:
            detail = (
                f"tenant {tenant} runs {running:,} of the {most:,} executions it may (quota"
                " running)"
            )
            return Reason(execution=execution, word="quota", detail=detail)
    return None


def _explain_no_worker(execution: Execution, there: Sequence[Worker], needs: str) -> Reason:
    """Nobody is there who could take it."""
    name = execution.queue
    if not there:
        detail = f"no live worker takes queue {name!r}; {describe_start(needs, queue=name)}"
        return Reason(execution=execution, word="no_worker", detail=detail)
    if all(one.state is not WorkerState.LIVE for one in there):
        detail = f"all workers of queue {name!r} are draining; start another"
        return Reason(execution=execution, word="draining", detail=detail)
    detail = str(describe_lack(needs, queue=name))
    return Reason(execution=execution, word="no_worker_of_kind", detail=detail)


def _explain_busy(execution: Execution, queue: Queue | None, able: Sequence[Worker]) -> Reason:
    name = execution.queue
    ahead = max(0, (queue.queued if queue is not None else 1) - 1)
    busy = sum(one.running for one in able)
    room = sum(one.capacity for one in able)
    if busy >= room:
        detail = (
            f"the workers of queue {name!r} are full ({busy} of {room}), and {ahead:,} others are"
            " due in it"
        )
        return Reason(execution=execution, word="workers_busy", detail=detail)
    detail = f"it is due, and a worker takes it any moment; {ahead:,} others are due in its queue"
    return Reason(execution=execution, word="due", detail=detail)


# What to tell somebody who waits for an execution, perhaps in vain.

_RELATIVE: Final = "sqlite:///"


def describe_store(url: str) -> str:
    """A store as people are told of it. A file is named with its folder: each has its own."""
    shown = masked_url(url)
    if url.startswith(_RELATIVE) and not url.startswith(f"{_RELATIVE}/"):
        return f"{shown} in {os.getcwd()}"
    return shown


async def explain_idle(client: ClientContext, execution: Execution) -> str | None:
    """Say it if nobody is there to start an execution that has not started."""
    if execution.state not in PENDING:
        return None
    now, queue = (await client.health()).now, execution.queue
    try:
        there = find_live_workers(
            await client.store.catalog.list_workers(client.tenant), queue=queue, now=now
        )
    except AccessDenied:  # the key is limited; this is a hint, and the wait goes on without it
        return None
    if not there:
        return f"no live worker takes queue {queue!r} of {client.place}"
    needs = await find_needs(client, execution)
    if find_capable_workers(there, queue=queue, needs=needs, now=now):
        return None
    return str(describe_lack(needs, queue=queue))
