"""Explanations: the reason why an execution has not started or has not ended, with a sentence for
users.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

import msgspec

from daybell.client import runs
from daybell.client.context import ClientContext
from daybell.client.executions import executions as list_executions
from daybell.client.explain import remedies
from daybell.client.explain.line import (
    NearestWorker,
    describe_lease,
    find_nearest_worker,
    is_silent,
    load_holders,
    start_rate,
    task_name,
)
from daybell.client.explain.needs import find_users, load_definition, needs_of
from daybell.client.explain.queues import (
    explain_busy,
    explain_no_worker,
    explain_paused_queue,
    explain_quota,
    explain_used_resources,
)
from daybell.client.explain.remedies import Remedy, in_tenant
from daybell.client.requests import Id, read_id
from daybell.client.runs import APPROVAL, DECISION, describe_event, short_name
from daybell.client.when import find_firing_event, held_up_by
from daybell.client.workers import (
    describe_lack,
    describe_start,
    find_capable_workers,
    find_live_workers,
)
from daybell.core.event import Step, StepKind
from daybell.core.execution import (
    PENDING,
    TERMINAL,
    AttemptRecord,
    Execution,
    ExecutionDetail,
    Failure,
    Outcome,
    State,
)
from daybell.core.flow import COUNTED, FOR_LIMIT, describe_terms, estimate_start
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import FOR_EVENT, UNKNOWN_TASK
from daybell.core.placement import PREFER_SECONDS
from daybell.core.schedule import (
    DEPENDENCIES,
    OVERLAP,
    UPSTREAM_FAILED,
    is_backfill,
    is_schedule_gate,
)
from daybell.core.units import Instant, Seconds, format_duration, to_iso
from daybell.core.views import HOLDERS_MAX, Total
from daybell.core.workflow.run import node_name
from daybell.errors import AccessDenied, JobNotFound, listed, with_tenant
from daybell.settings import masked_url

_ACTIONS_MAX: Final = 3  # of a kind

# The reason of a skipped execution: the execution in its way, or its failed dependency.

_LOOKED_AT_MAX: Final = 100  # executions of its job, before it


async def explain_skip(client: ClientContext, execution: Execution) -> str:
    """Return the end of a sentence that reports a skipped execution; empty if no more is known."""
    if execution.reason == OVERLAP:
        return await _explain_overlap(client, execution)
    if execution.reason == UPSTREAM_FAILED:
        return await _explain_failed_dependency(client, execution)
    if execution.state is State.CANCELLED:
        return await _explain_replacement(client, execution)
    return ""


async def _explain_replacement(client: ClientContext, cancelled: Execution) -> str:
    """Describe the rule that may have cancelled an execution; the store does not record it."""
    definition = await load_definition(client, cancelled)
    if definition is None or definition.on_full != "cancel_oldest":
        return ""
    names = listed(rule.name for rule in definition.rules)
    return (
        "; if no person cancelled it, a newer execution took its place at limit"
        f" {names} (on_full=cancel_oldest)"
    )


async def _explain_overlap(client: ClientContext, skipped: Execution) -> str:
    """Describe the execution in the way. The store does not record it, but it was created before
    the skipped one, and had not ended by then.
    """
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


# The wait of a durable function, in a sentence for a person.

_MOMENT: Final = 0.001  # times that are shown as text are a little shorter


class Suspension(msgspec.Struct, frozen=True):
    """The reason of a suspension: a code, a sentence, when it may end by itself, and remedies."""

    code: str
    detail: str
    next_at: Instant | None = None
    actions: tuple[Remedy, ...] = ()


async def _explain_suspension(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    """Explain a wait that the execution asked for itself; None: it has no such wait."""
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
    # A wait that is over lasts until the scheduler's next check.
    if found is None or not (is_waiting or (found.next_at or inf) > now):
        return None
    return Reason(
        execution=execution,
        code=found.code,
        detail=found.detail,
        next_at=found.next_at,
        actions=(*found.actions, remedies.cancel(execution.id)),
    )


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
    answers = tuple(remedies.answer_wait(execution.id, one.name) for one in waits[:_ACTIONS_MAX])
    return Suspension("event", f"it waits for {' and '.join(told)}; {how}", next_at, answers)


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


class Delay(msgspec.Struct, frozen=True):
    """A part of the time from the moment at which an execution was wanted until its end."""

    code: str
    seconds: Seconds


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for the state of an execution. `code` is stable, for programs."""

    execution: Execution
    code: str
    detail: str
    next_at: Instant | None = None  # when that may change by itself
    lack: str | None = None  # a worker to start, or a queue to resume, for it or a node of it
    actions: tuple[Remedy, ...] = ()  # that change the situation, the best first
    holders: tuple[Execution, ...] = ()  # of its gate
    nearest: NearestWorker | None = None  # of one that is due
    ahead: Total | None = None  # executions before it, at its gate or in its queue
    starts_at: Instant | None = None  # of one that is due, at the current rate
    delays: tuple[Delay, ...] = ()  # of one that has ended; they add up


# Obstacles that do not end by themselves: a person has to start, resume or deploy something.
LACKS: Final = frozenset(
    {"no_worker", "no_worker_of_kind", "draining", "queue_paused", UNKNOWN_TASK}
)
_NODES_MAX: Final = 100  # of a run, that are checked
_DEPTH_MAX: Final = 3  # workflows in workflows
ENDED: Final = {
    State.SUCCEEDED: "it has succeeded",
    State.CANCELLED: "it was cancelled",
    State.SKIPPED: "it was skipped",
    State.DEAD: "it is out of tries, or not to be tried again; retry or discard it",
}


async def why(client: ClientContext, id: Id) -> Reason:
    """Explain why an execution has not run, or not ended. Commands in it name the tenant."""
    story = await client.store.catalog.get_execution(client.tenant, read_id(id))
    found = await _find_reason(client, story.execution)
    if story.execution.state in TERMINAL:
        definition = await load_definition(client, story.execution)
        steps = await client.store.runs.steps(client.tenant, story.execution.id)
        found = msgspec.structs.replace(found, delays=split_delay(story, definition, steps))
    tenant = story.execution.tenant
    fired_by = await find_firing_event(client, story.execution)
    because = "" if fired_by is None else f"; the event {fired_by.name} ({fired_by.id}) fired it"
    detail = with_tenant(found.detail, tenant) + because
    lack = detail if found.code in LACKS else found.lack
    actions = in_tenant(found.actions, tenant)
    return msgspec.structs.replace(found, detail=detail, lack=lack, actions=actions)


async def _find_reason(client: ClientContext, execution: Execution) -> Reason:
    now = (await client.health()).now
    if execution.state is State.RUNNING:
        return await _explain_run(client, execution) or await _explain_work(client, execution, now)
    if execution.state in TERMINAL:
        found = await _explain_run(client, execution) or _explain_end(execution)
        because = await explain_skip(client, execution)
        return msgspec.structs.replace(found, detail=found.detail + because)
    for explain in _OBSTACLES:
        if (found := await explain(client, execution, now)) is not None:
            return found
    return await _explain_due(client, execution, now)


async def find_lack(
    client: ClientContext, execution: Execution, *, depth: int = 0
) -> Reason | None:
    """Return the obstacle of an execution, or of a node of it, that only a person can remove.

    The answer is then about the node. None: no such obstacle is known.
    """
    if execution.state in PENDING:
        found = await why(client, execution.id)
        return found if found.code in LACKS else None
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
    """Return one node per common obstacle: the first that is due. An obstacle of one is that of
    all, and each explanation takes several requests.
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
            definitions[version] = await load_definition(client, one)
        needs = needs_of(one, definitions[version])
        found.setdefault((one.state, one.reason, one.queue, needs), one)
    return list(found.values())


async def _explain_work(client: ClientContext, execution: Execution, now: Instant) -> Reason:
    """Explain why an execution that was claimed has not ended."""
    asked = execution.cancel_requested_at
    told = "it runs" if asked is None else "it runs, and was asked to stop"
    cancel = () if asked is not None else (remedies.cancel(execution.id),)
    workers = await client.store.catalog.list_workers(client.tenant)
    worker = next((one for one in workers if one.id == execution.worker), None)
    if worker is not None and not is_silent(worker, now):
        return Reason(
            execution=execution,
            code="running" if asked is None else "cancelling",
            detail=f"{told}, on worker {worker.name} {worker.id} ({describe_lease(worker, now)})",
            actions=cancel,
        )
    definition = await load_definition(client, execution)
    then = _describe_loss(execution, definition)
    others = [one for one in workers if one.id != execution.worker]
    needs, queue = needs_of(execution, definition), execution.queue
    able = find_capable_workers(others, queue=queue, needs=needs, now=now)
    start = () if able else (remedies.start_worker(needs, queue=queue),)
    missing = "" if able else f"; {describe_start(needs, queue=queue)}, as no other can take it"
    if worker is None or worker.lease_until <= now:
        detail = (
            f"its worker {execution.worker} is gone, and its lease has ended; the next worker or"
            f" scheduler that looks takes the execution back, within seconds: {then}{missing}"
        )
        return Reason(execution=execution, code="worker_lost", detail=detail, actions=start)
    detail = (
        f"it was started on worker {worker.name} {worker.id}, which is silent"
        f" ({describe_lease(worker, now)}). If it does not come back by then, {then}{missing}"
    )
    until = worker.lease_until
    return Reason(
        execution=execution, code="worker_silent", detail=detail, next_at=until, actions=start
    )


def _describe_loss(execution: Execution, definition: JobDefinition | None) -> str:
    """Describe the fate of an execution that loses its worker."""
    if definition is None or (
        definition.on_lost == "retry" and execution.crashes + 1 < definition.crashes_allowed
    ):
        return f"it is queued again, and starts as attempt {execution.attempt + 1}"
    if definition.on_lost == "dead":
        return "it becomes a dead letter, as on_lost is dead"
    return f"it becomes a dead letter, as it has lost {execution.crashes + 1} workers then"


def describe_death(execution: Execution) -> str:
    """Describe the end of a dead execution: why it was given up, and its last error."""
    error = "" if execution.error is None else f": {_first_line(execution.error)}"
    return f"is dead ({execution.reason or 'failed'}){error}"


def _explain_end(execution: Execution) -> Reason:
    because = f" ({execution.reason})" if execution.reason else ""
    if execution.state is State.DEAD and execution.error is not None:
        because += f"; its error: {_first_line(execution.error)}"
    again: tuple[Remedy, ...] = ()
    if execution.node is None:
        match execution.state:
            case State.DEAD if not execution.is_discarded:
                again = remedies.retry(execution.id), remedies.discard(execution.id)
            case State.CANCELLED:
                again = (remedies.retry(execution.id),)
            case State.SKIPPED:
                again = (remedies.trigger(execution.job, force=execution.reason == OVERLAP),)
            case _:
                pass
    code, detail = str(execution.state), ENDED[execution.state] + because
    if execution.is_discarded:
        code, detail = "discarded", f"it was out of tries, and was discarded{because}"
    return Reason(execution=execution, code=code, detail=detail, actions=again)


async def _explain_run(client: ClientContext, execution: Execution) -> Reason | None:
    """Explain the waits of a workflow's run, or the failures in one that succeeded. None: a worker
    has it, or it has simply ended.
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
        code="cancelling" if asked else "running",
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
    return Reason(execution=execution, code=str(State.SUCCEEDED), detail=detail)


def _first_line(error: str) -> str:
    failure = Failure.of_kept(error)
    line = next((one for one in failure.message.splitlines() if one.strip()), "").strip()
    return f"{failure.type}: {line.rstrip(':')}" if line else failure.type


async def _explain_gate(client: ClientContext, execution: Execution, now: Instant) -> Reason | None:
    del now
    if execution.state is not State.WAITING:
        return None
    place = await client.store.catalog.get_position(client.tenant, execution.id)
    holders = await load_holders(client, place.holders)
    # Only gates keep executions waiting so far: an overlap rule's, or a backfill's.
    if is_backfill(execution.gate):
        code, detail = "backfill", "it waits for its turn in a backfill, which runs a few at a time"
    else:
        own = is_schedule_gate(execution.gate)
        of = f"the same schedule of {execution.job}" if own else execution.job
        code = "overlap"
        detail = f"it waits until another execution of {of} has ended: its overlap rule"
    if holders:
        detail += f". In its way: {listed(f'{one.id} ({one.state})' for one in holders)}"
    if place.ahead:
        detail += f"; {place.ahead:,} others wait before it"
    return Reason(
        execution=execution,
        code=code,
        detail=detail,
        holders=holders,
        ahead=place.ahead,
        actions=tuple(
            remedies.cancel(one.id, what="the one in its way") for one in holders[:_ACTIONS_MAX]
        ),
    )


async def _explain_limit(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    """Explain the wait for a limit: its numbers, what has it, and the place in its line."""
    if execution.state is not State.WAITING or execution.reason != FOR_LIMIT:
        return None
    wait = await client.store.catalog.limit_wait(client.tenant, execution.id)
    if wait is None:  # it was admitted a moment ago
        return None
    holders = await load_holders(client, wait.holders)
    of = f" of {wait.item}" if wait.item else ""
    detail = f"it waits for room in limit {wait.name}{of}, {describe_terms(wait.terms)}"
    if wait.paused_until is not None:
        known = "" if wait.paused_until == inf else f" until {to_iso(wait.paused_until)}"
        detail += f"; the limit is paused{known}"
        actions = (remedies.resume_limit(wait.name),)
    else:
        is_full = wait.terms.limit is not None and wait.held >= wait.terms.limit
        actions = remedies.raise_limit(wait.name, wait.terms, is_full=is_full)
        if is_full:  # a start counts for its rate, however soon it ends
            actions += tuple(
                remedies.cancel(one.id, what="one that has it") for one in holders[:_ACTIONS_MAX]
            )
        if holders:
            detail += f"; {wait.held:,} have it: {listed(str(one.id) for one in holders)}"
    if wait.ahead:
        detail += f"; {wait.ahead:,} others wait before it"
    known_at = None if wait.room_at in (None, inf) else wait.room_at
    starts = await start_rate(client, execution.queue, now)
    starts_at = estimate_start(wait, now=now, starts_per_second=starts)
    if starts_at is not None:
        detail += f"; it may start at about {to_iso(starts_at)}"
    return Reason(
        execution=execution,
        code=FOR_LIMIT,
        detail=detail,
        next_at=known_at,
        holders=holders,
        ahead=Total(wait.ahead, is_exact=wait.ahead < COUNTED),
        starts_at=starts_at,
        actions=actions,
    )


async def _explain_dependency(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    del now
    if execution.state is not State.WAITING or execution.reason != DEPENDENCIES:
        return None
    held = await held_up_by(client, execution)
    named = ", ".join(f"{job} ({words})" for job, words in held)
    detail = f"it waits for what {execution.job} depends on" + (f": {named}" if named else "")
    return Reason(
        execution=execution,
        code=DEPENDENCIES,
        detail=detail,
        actions=await _release(client, [job for job, _ in held[:_ACTIONS_MAX]]),
    )


async def _release(client: ClientContext, jobs: Iterable[str]) -> tuple[Remedy, ...]:
    """List actions that let jobs succeed on which others wait."""
    found: list[Remedy] = []
    for name in jobs:
        with suppress(JobNotFound):
            if (await client.store.catalog.get_job(client.tenant, name)).paused_at is not None:
                found.append(remedies.resume_job(name))
            found.append(remedies.trigger(name))
    return tuple(found)


async def _explain_delay(
    client: ClientContext, execution: Execution, now: Instant
) -> Reason | None:
    at = execution.run_at
    if execution.state not in (State.SCHEDULED, State.RETRYING) or at <= now:
        return None
    cancel = (remedies.cancel(execution.id),)
    if execution.state is State.RETRYING:
        detail = f"attempt {execution.attempt - 1} failed; the next one is due at {to_iso(at)}"
        return Reason(
            execution=execution, code="backoff", detail=detail, next_at=at, actions=cancel
        )
    if execution.reason == UNKNOWN_TASK:
        detail = (
            "the worker that took it has no such task; start one whose app has it, or give that one"
            f" a queue of its own. It is tried again at {to_iso(at)}"
        )
        queue, definition = execution.queue, await load_definition(client, execution)
        workers = await client.store.catalog.list_workers(client.tenant)
        return Reason(
            execution=execution,
            code=UNKNOWN_TASK,
            detail=detail,
            next_at=at,
            actions=(remedies.start_worker("task", queue=queue), *cancel),
            nearest=find_nearest_worker(
                workers, queue=queue, needs="task", task=task_name(definition), now=now
            ),
        )
    detail = f"it is not due before {to_iso(at)}"
    definition = await load_definition(client, execution)
    rule = None if definition is None else definition.collapse
    if rule is not None and rule.kind == "debounce" and execution.attempt == 1:
        most = (
            "" if rule.most is None else f", at {to_iso(execution.created_at + rule.most)} latest"
        )
        detail = (
            f"it is debounced until {to_iso(at)}: each further request of its key gives it other"
            f" arguments and {format_duration(rule.wait)} more{most}"
        )
        return Reason(
            execution=execution, code="debounced", detail=detail, next_at=at, actions=cancel
        )
    return Reason(execution=execution, code="not_due", detail=detail, next_at=at, actions=cancel)


# Obstacles of an execution that is not due, in the order of their precedence.
_OBSTACLES: Final = (
    _explain_dependency,
    _explain_suspension,
    _explain_limit,
    _explain_gate,
    _explain_delay,
)


async def _explain_due(client: ClientContext, execution: Execution, now: Instant) -> Reason:
    """Explain why no worker has claimed an execution that is due."""
    catalog, name = client.store.catalog, execution.queue
    is_paused = any(
        one.name == name and one.is_paused for one in await catalog.list_queues(client.tenant)
    )
    workers = await catalog.list_workers(client.tenant)
    there = [one for one in workers if name in one.queues and one.lease_until > now]
    definition = await load_definition(client, execution)
    needs = needs_of(execution, definition)
    able = find_capable_workers(there, queue=name, needs=needs, now=now)
    place = await catalog.get_position(client.tenant, execution.id)
    users: Sequence[Execution] = ()
    if is_paused:
        found = explain_paused_queue(name)
    elif not able:
        found = explain_no_worker(name, there, needs)
    else:
        rate = await start_rate(client, name, now)
        users = await find_users(client, able, needs)
        found = await explain_quota(client)
        if found is None and users:
            found = explain_used_resources(name, needs, users)
        found = found or explain_busy(name, able, needs, place.ahead)
        if rate:
            found = found.replaced(next_at=now + (place.ahead + 1) / rate)
    task = task_name(definition) if needs == "task" and execution.node is None else None
    lost = "" if not execution.crashes else "it has lost its worker and was queued again; "
    turns = ""
    if definition is not None and definition.share is not None:
        turns = f"; its queue takes turns by {' and '.join(definition.share.key)}, not by age"
    elif definition is not None and definition.near is not None and execution.parent is not None:
        is_kept = now - execution.run_at < PREFER_SECONDS
        turns = "; it prefers the worker of its parent" if is_kept else ""
    return Reason(
        execution=execution,
        code=found.code,
        detail=lost + found.detail + turns,
        actions=found.actions,
        holders=tuple(users[:HOLDERS_MAX]),
        ahead=place.ahead,
        starts_at=found.next_at,
        nearest=find_nearest_worker(workers, queue=name, needs=needs, task=task, now=now),
    )


# The delay of an execution that has ended, in parts.

_AWAY: Final = {StepKind.WAIT: "event", StepKind.SLEEP: "sleep", StepKind.STEP: "retry"}


def split_delay(
    of: ExecutionDetail, definition: JobDefinition | None, steps: Sequence[Step] = ()
) -> tuple[Delay, ...]:
    """Split the time from the moment at which an execution was wanted until its end.

    The row keeps only the last time at which it became claimable. So the time before an earlier
    attempt is one part: `start` before the first, which includes the wait for a worker.
    """
    one = of.execution
    if one.finished_at is None:
        return ()
    parts: dict[str, Seconds] = {}

    def add(code: str, since: Instant, until: Instant) -> Instant:
        until = max(since, until)  # a worker's account of its start may be a little earlier
        parts[code] = parts.get(code, 0.0) + until - since
        return until

    at = one.created_at if one.scheduled_for is None else min(one.scheduled_for, one.finished_at)
    code = _first_wait(one, definition)
    for attempt in of.attempts:
        begin = attempt.ended_at if attempt.started_at is None else attempt.started_at
        if attempt.attempt == one.attempt:
            ready = min(max(at, one.run_at), begin)
            at = add("worker", add(code, at, ready), begin)
        else:
            at = add("start" if code not in _LATER else code, at, begin)
        lost = attempt.outcome is Outcome.LOST
        at = add("lost" if lost else "run", at, attempt.ended_at)
        code = _later_wait(attempt, steps)
    if at < one.finished_at:
        add(code, at, one.finished_at)
    total = (part for part in parts.items() if part[1])
    return tuple(Delay(name, seconds) for name, seconds in total)


_LATER: Final = frozenset({"retry", "worker", "event", "sleep"})


def _first_wait(one: Execution, definition: JobDefinition | None) -> str:
    """Return the cause of the time between the creation of an execution and its first queueing."""
    if one.schedule is not None and definition is not None and definition.dependencies:
        return "dependency"
    if one.gate is not None:
        return "slot"
    # Admission by a limit moves `run_at`, so a delay of the request is in the same part.
    return "limit" if definition is not None and definition.is_limited else "delay"


def _later_wait(attempt: AttemptRecord, steps: Sequence[Step]) -> str:
    """Return the cause of the time between the end of an attempt and the next queueing."""
    match attempt.outcome:
        case Outcome.FAILED | Outcome.TIMED_OUT:
            return "retry"
        case Outcome.RELEASED:
            at = attempt.ended_at
            kinds = {s.kind for s in steps if s.started_at <= at <= (s.finished_at or inf)}
            return next((code for kind, code in _AWAY.items() if kind in kinds), "worker")
        case _:
            return "worker"


# Warnings for a caller that waits for an execution, perhaps in vain.

_RELATIVE: Final = "sqlite:///"


def describe_store(url: str) -> str:
    """Describe a store for people. A file is named with its folder: each has its own."""
    shown = masked_url(url)
    if url.startswith(_RELATIVE) and not url.startswith(f"{_RELATIVE}/"):
        return f"{shown} in {os.getcwd()}"
    return shown


async def explain_idle(client: ClientContext, execution: Execution) -> str | None:
    """Report that no worker is there to start an execution that has not started."""
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
    needs = needs_of(execution, await load_definition(client, execution))
    if find_capable_workers(there, queue=queue, needs=needs, now=now):
        return None
    return str(describe_lack(needs, queue=queue))
