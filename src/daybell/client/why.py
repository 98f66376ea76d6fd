"""Why an execution has not run, or has not ended: one reason, and a sentence for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from daybell.client import node_waits, offers
from daybell.client.dependencies import Dependencies
from daybell.client.skipped import skipped_because
from daybell.client.suspended import suspension_of
from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import PENDING, Execution, State
from daybell.core.failure import Failure
from daybell.core.instant import Instant, to_iso
from daybell.core.job import JobDefinition
from daybell.core.lifecycle import UNKNOWN_TASK
from daybell.core.overlap import is_schedule_gate
from daybell.core.run import node_name
from daybell.core.view import Queue
from daybell.core.worker import Worker, WorkerState
from daybell.errors import AccessDenied, NotFound, listed, with_tenant

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why it stands where it stands. `word` is stable, for programs."""

    execution: Execution
    word: str
    detail: str
    next_at: Instant | None = None  # when that may change by itself


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


async def why(client: AnyClient, id: str) -> Reason:
    """Why an execution has not run, or has not ended. Commands in the answer name its tenant."""
    execution = (await client.execution(id)).execution
    found = await _why(client, execution)
    detail = with_tenant(found.detail, execution.tenant)
    return msgspec.structs.replace(found, detail=detail)


async def _why(client: AnyClient, execution: Execution) -> Reason:
    if execution.state not in PENDING:
        found = await _in_run(client, execution) or _begun(execution)
        because = await skipped_because(client, execution)
        return msgspec.structs.replace(found, detail=found.detail + because)
    now = (await client.health()).now
    if execution.state is State.WAITING and execution.reason == DEPENDENCIES:
        return await _dependent(client, execution)
    suspended = await suspension_of(client, execution)
    # A wait whose time is over is one until the scheduler's next look.
    is_waiting = execution.state is State.WAITING
    if suspended is not None and (is_waiting or (suspended.next_at or inf) > now):
        return Reason(
            execution=execution,
            word=suspended.word,
            detail=suspended.detail,
            next_at=suspended.next_at,
        )
    if is_waiting:
        return _waiting(execution)
    if execution.state in (State.SCHEDULED, State.RETRYING) and execution.run_at > now:
        return _early(execution)
    queues = {one.name: one for one in await client.queues()}
    queue = queues.get(execution.queue)
    workers = await client.workers()
    there = [one for one in workers if execution.queue in one.queues and one.lease_until > now]
    needs = await needs_of(client, execution)
    able = offers.able(there, queue=execution.queue, needs=needs, now=now)
    if queue is not None and queue.is_paused:
        detail = f"queue {queue.name!r} is paused; resume it"
        return Reason(execution=execution, word="queue_paused", detail=detail)
    if not able:
        return _unable(execution, there, needs)
    return await _at_quota(client, execution) or _due(execution, queue, able)


async def lacking(client: AnyClient, execution: Execution, *, depth: int = 0) -> Reason | None:
    """What keeps it, or a node of it, until somebody does something; None: nothing that is known.

    The answer is about the node, then.
    """
    if execution.state in PENDING:
        found = await why(client, str(execution.id))
        return found if found.word in LACKS else None
    if execution.state is not State.RUNNING or execution.worker is not None or depth > _DEPTH_MAX:
        return None
    page = await client.executions(
        parent=str(execution.id), status=[*PENDING, State.RUNNING], limit=_NODES_MAX
    )
    for one in await _unlike(client, page.items):
        if (found := await lacking(client, one, depth=depth + 1)) is not None:
            return found
    return None


async def _unlike(client: AnyClient, nodes: Iterable[Execution]) -> list[Execution]:
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


async def needs_of(client: AnyClient, execution: Execution) -> str:
    """What a worker must offer to run it, under the version that it was created under."""
    return _needs(execution, await _definition(client, execution))


def _needs(execution: Execution, definition: JobDefinition | None) -> str:
    return "task" if definition is None else offers.definition_of(execution, definition).needs


async def _definition(client: AnyClient, execution: Execution) -> JobDefinition | None:
    try:
        return (await client.job(execution.job, version=execution.version)).definition
    except NotFound:
        return None


def _begun(execution: Execution) -> Reason:
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


async def _in_run(client: AnyClient, execution: Execution) -> Reason | None:
    """What a workflow's run waits for, or what failed although it has succeeded; None: it is in a
    worker's hands, or has simply ended.
    """
    if execution.state not in (State.RUNNING, State.SUCCEEDED) or execution.worker is not None:
        return None
    run = await client.run(execution.id)
    if run is None:
        return None
    if execution.state is State.SUCCEEDED:
        return _succeeded_all_the_same(execution, run.failed) if run.failed else None
    begun = [one for one in run.nodes if one.is_begun and not one.is_ended]
    named = f"; it waits for {listed(f'{one.name} ({one.status})' for one in begun)}"
    asked = "" if execution.cancel_requested_at is None else ", and it was asked to stop"
    lack = await lacking(client, execution)
    because = "" if lack is None else f". {lack.execution.node}: {lack.detail}"
    ended = f"{run.ended:,} of its {run.total:,} nodes have ended{asked}{named if begun else ''}"
    return Reason(
        execution=execution,
        word="cancelling" if asked else "running",
        detail=f"{ended}{because}{node_waits.sentences(begun)}",
        next_at=node_waits.next_time(begun),
    )


def _succeeded_all_the_same(execution: Execution, failed: Sequence[str]) -> Reason:
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


def _waiting(execution: Execution) -> Reason:
    # Only gates keep executions waiting so far: an overlap rule's, or a backfill's.
    if execution.schedule is not None and (execution.unique_key or "").startswith("backfill "):
        detail = "it waits for its turn in a backfill, which runs a few at a time"
        return Reason(execution=execution, word="backfill", detail=detail)
    of = f"the same schedule of {execution.job}"
    if not is_schedule_gate(execution.gate):
        of = execution.job
    detail = f"it waits until another execution of {of} has ended: its overlap rule"
    return Reason(execution=execution, word="overlap", detail=detail)


async def _dependent(client: AnyClient, execution: Execution) -> Reason:
    held = await client.held_up_by(execution) if isinstance(client, Dependencies) else []
    named = ", ".join(f"{job} ({words})" for job, words in held)
    detail = f"it waits for what {execution.job} depends on" + (f": {named}" if named else "")
    return Reason(execution=execution, word=DEPENDENCIES, detail=detail)


def _early(execution: Execution) -> Reason:
    at = execution.run_at
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


async def _at_quota(client: AnyClient, execution: Execution) -> Reason | None:
    """Whether its tenant runs as many as it may, if that may be known."""
    tenant = execution.tenant
    with suppress(NotFound, AccessDenied):
        most = (await client.tenant_record(tenant)).quotas.running
        running = 0 if most is None else sum((await client.count(status="running")).values())
        if most is not None and running >= most:
            detail = (
                f"tenant {tenant} runs {running:,} of the {most:,} executions it may (quota"
                " running)"
            )
            return Reason(execution=execution, word="quota", detail=detail)
    return None


def _unable(execution: Execution, there: Sequence[Worker], needs: str) -> Reason:
    """Nobody is there who could take it."""
    name = execution.queue
    if not there:
        detail = f"no live worker takes queue {name!r}; {offers.start_for(needs, queue=name)}"
        return Reason(execution=execution, word="no_worker", detail=detail)
    if all(one.state is not WorkerState.LIVE for one in there):
        detail = f"all workers of queue {name!r} are draining; start another"
        return Reason(execution=execution, word="draining", detail=detail)
    detail = str(offers.lack_of(needs, queue=name))
    return Reason(execution=execution, word="no_worker_of_kind", detail=detail)


def _due(execution: Execution, queue: Queue | None, able: Sequence[Worker]) -> Reason:
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
