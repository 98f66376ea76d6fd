"""Retries on request: executions that have ended run again, one or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from daybell.client.context import ClientContext
from daybell.client.executions import (
    ProgressCallback,
    Sweep,
    clone_execution,
    count_matching,
    ignore_progress,
    is_dead_letter,
    join_states,
    load_truncated,
    split_batches,
    submit_many,
    sweep_pages,
    where,
)
from daybell.client.requests import Filters, Id, read_id
from daybell.client.runs import rerun_as, rerun_cancelled, run_of
from daybell.core.access import NewAuditEntry
from daybell.core.execution import Enqueued, Execution, NewExecution, Revival, State
from daybell.core.views import ExecutionFilter, Total
from daybell.errors import (
    Conflict,
    DaybellError,
    DuplicateKey,
    QuotaExceeded,
    Unavailable,
    UsageError,
    listed,
)
from daybell.store.admin import QUEUED_WAIT_SECONDS, quota_error


class RetryOutcome(StrEnum):
    """The result of retrying one execution."""

    REVIVED = "revived"  # the dead execution itself
    RENEWED = "renewed"  # a new execution with the same arguments
    KEY_HELD = "key_held"  # another unfinished execution of the job has its unique key
    OVER_QUOTA = "over_quota"  # the tenant's quota has no room for it now
    CHANGED = "changed"  # it had changed meanwhile
    NEEDS_FORCE = "needs_force"  # it has succeeded or was discarded: only `force` runs it again
    NOT_RETRYABLE = "not_retryable"  # it has not ended, was skipped, or is a node of a run
    REFUSED = "refused"  # its job is gone, or no longer takes it
    UNKNOWN = "unknown"


RETRY_OUTCOMES: Final = {
    Revival.REVIVED: RetryOutcome.REVIVED,
    Revival.KEY_HELD: RetryOutcome.KEY_HELD,
    Revival.OVER_QUOTA: RetryOutcome.OVER_QUOTA,
    Revival.NOT_LISTED: RetryOutcome.CHANGED,  # it was when it was looked up
    Revival.UNKNOWN: RetryOutcome.CHANGED,
}
RETRYABLE_STATES: Final = frozenset({State.DEAD, State.CANCELLED})
_HANDLED: Final = (Revival.REVIVED, Revival.KEY_HELD, Revival.OVER_QUOTA)
AuditEntryMaker = Callable[
    [UUID], NewAuditEntry
]  # makes the audit log entry of an execution that runs again


# Executions by their ids.


async def retry(
    client: ClientContext,
    id: Id,
    *,
    force: bool = False,
    request: UUID | None = None,
    repeat: bool = False,
    told: AuditEntryMaker | None = None,
    from_: str | None = None,
) -> Enqueued:
    """Run an execution again: a dead one itself, a cancelled one as a new execution with the same
    arguments. `force` does the latter for one that succeeded, or was discarded.

    A workflow's run keeps its succeeded nodes, unless `force` is used. `from_` names a node of it
    to begin with, as a new execution; then the run may have ended in any way.

    The id of a new one follows from that of a `request`; `repeat` says that it may have been asked
    for before. `told` makes an audit log entry in the same transaction.
    """
    old = (await client.store.catalog.get_execution(client.tenant, read_id(id))).execution
    if old.node is not None:
        raise Conflict(
            f"execution {old.id} is node {old.node} of run {old.parent}; retry that, which goes"
            f" on with what failed (or from this node: --from {old.node})"
        )
    if from_ is not None:
        new = clone_execution(old, request)
        client = _audited(client, told, new.id)
        return await rerun_as(client, old, new, from_=from_, repeat=repeat)
    if is_dead_letter(old):
        return await _revive(_audited(client, told, old.id), old)
    is_over = old.state is State.SUCCEEDED or old.is_discarded
    if old.state is State.CANCELLED or (is_over and force):
        new = clone_execution(old, request)
        client = _audited(client, told, new.id)
        if not is_over and await client.store.runs.get_run(client.tenant, old.id) is not None:
            return await rerun_as(client, old, new, from_=None, repeat=repeat)
        return await _run_again(client, old, new, repeat=repeat)
    if is_over:
        what = "was discarded" if old.is_discarded else "has succeeded"
        failed = await _failed_in(client, old)
        raise Conflict(
            f"execution {old.id} {what}{failed}; force=True (or --force) runs it again, as a"
            " new one"
        )
    raise Conflict(
        f"execution {old.id} is {old.state}; only a dead, cancelled or succeeded one can be retried"
    )


async def _failed_in(client: ClientContext, old: Execution) -> str:
    """Describe the failures in a run that succeeded all the same, and how to begin with them."""
    run = await run_of(client, old) if old.state is State.SUCCEEDED else None
    if run is None or not run.failed:
        return ""
    first = run.failed[0]
    return (
        f", with failed nodes: {listed(run.failed)}; from_={first!r} (or --from"
        f" {first}) runs that and what depends on it again"
    )


def _audited(client: ClientContext, told: AuditEntryMaker | None, id: UUID) -> ClientContext:
    return client if told is None else client.audited(told(id))


async def _revive(client: ClientContext, old: Execution) -> Enqueued:
    (answer,) = await client.store.queue.revive(client.tenant, [old.id])
    if answer is Revival.KEY_HELD:
        raise key_held_error(old)
    if answer is Revival.OVER_QUOTA:
        most = (await client.store.admin.get_tenant(client.tenant)).quotas.queued or 0
        raise quota_error(client.tenant, "queued", most=most, wait=QUEUED_WAIT_SECONDS)
    if answer is not Revival.REVIVED:
        raise Conflict(f"execution {old.id} is not dead any more; look at it again")
    return Enqueued(old.id, created=False)


async def _run_again(
    client: ClientContext, old: Execution, new: NewExecution, *, repeat: bool
) -> Enqueued:
    (answer,) = await submit_many(client, [new], repeat=repeat)
    if not answer.created:
        raise key_held_error(old)
    return answer


def key_held_error(execution: Execution) -> DuplicateKey:
    return DuplicateKey(
        f"another unfinished execution of {execution.job} holds the unique key of {execution.id};"
        " wait for its end, or cancel it"
    )


async def retry_picked(
    client: ClientContext,
    ids: Iterable[Id],
    *,
    force: bool = False,
    request: UUID | None = None,
    repeat: bool = False,
) -> Counter[RetryOutcome]:
    """Run these executions again, each as `retry` would; return the number per result. One that
    cannot run stops no other. `request` and `repeat` as there.
    """
    answers: Counter[RetryOutcome] = Counter()
    for some in split_batches(ids):
        revivals = await client.store.queue.revive(client.tenant, some)
        handled = [one for one in revivals if one in _HANDLED]
        answers.update(RETRY_OUTCOMES[one] for one in handled)
        others = [id for id, one in zip(some, revivals, strict=True) if one not in _HANDLED]
        olds, rest = await _renewable(client, others, force=force)
        answers += rest
        olds, begun = await rerun_cancelled(client, olds, request, repeat=repeat)
        answers += Counter({RetryOutcome.RENEWED: begun})
        answers += await _renew(
            client, [clone_execution(old, request) for old in olds], repeat=repeat
        )
    return answers


async def _renewable(
    client: ClientContext, ids: Sequence[UUID], *, force: bool
) -> tuple[list[Execution], Counter[RetryOutcome]]:
    """Return the executions of a batch that can run again as new ones, and the obstacles of the
    rest.
    """
    rest: Counter[RetryOutcome] = Counter()
    if not ids:
        return [], rest
    where = ExecutionFilter(ids=frozenset(ids))
    pages = sweep_pages(client.store, client.tenant, [where])
    found = [one async for page in pages for one in page]
    rest[RetryOutcome.UNKNOWN] = len(ids) - len(found)
    olds: list[Execution] = []
    for old in found:
        obstacle = _find_obstacle(old, force=force)
        if obstacle is None:
            olds.append(old)
        else:
            rest[obstacle] += 1
    return await load_truncated(client.store, client.tenant, olds), +rest


def _find_obstacle(old: Execution, *, force: bool) -> RetryOutcome | None:
    """Return the obstacle to running an execution, no dead letter, again as a new one."""
    if old.node is not None:
        return RetryOutcome.NOT_RETRYABLE  # it runs with its run
    if old.state is State.CANCELLED:
        return None
    if old.state is State.SUCCEEDED or old.is_discarded:
        return None if force else RetryOutcome.NEEDS_FORCE
    return RetryOutcome.CHANGED if old.state is State.DEAD else RetryOutcome.NOT_RETRYABLE


# Executions by filters.


async def count_retryable(
    client: ClientContext,
    *,
    force: bool = False,
    sweep: Sweep | None = None,
    **filters: Unpack[Filters],
) -> Total:
    """Return the number of executions that `retry_many` would run again."""
    chosen = split_retryable(await where(client, **filters), force=force)
    return await count_matching(client, chosen, sweep)


async def retry_many(
    client: ClientContext,
    *,
    force: bool = False,
    request: UUID | None = None,
    repeat: bool = False,
    sweep: Sweep | None = None,
    on_step: ProgressCallback = ignore_progress,
    **filters: Unpack[Filters],
) -> Counter[RetryOutcome]:
    """Run ended executions again, each as `retry` would; return the number per result.

    Without a status only dead ones are meant: others become new executions, again with every call.
    So cancelled ones have to be named, and succeeded ones need `force` as well. `request` and
    `repeat` are as `retry` has them.
    """
    answers: Counter[RetryOutcome] = Counter()
    wheres = split_retryable(await where(client, **filters), force=force)
    async for some in sweep_pages(client.store, client.tenant, wheres, sweep):
        dead = [one.id for one in some if is_dead_letter(one)]
        others = await load_truncated(
            client.store, client.tenant, (one for one in some if not is_dead_letter(one))
        )
        revivals = await client.store.queue.revive(client.tenant, dead) if dead else []
        answers.update(RETRY_OUTCOMES[answer] for answer in revivals)
        others, begun = await rerun_cancelled(client, others, request, repeat=repeat)
        answers += Counter({RetryOutcome.RENEWED: begun})
        news = [clone_execution(one, request) for one in others]
        answers += await _renew(client, news, repeat=repeat)
        on_step(len(some))
    return answers


async def _renew(
    client: ClientContext, executions: Sequence[NewExecution], *, repeat: bool = False
) -> Counter[RetryOutcome]:
    if not executions:
        return Counter()
    try:
        made = await submit_many(client, executions, repeat=repeat)
    except Unavailable:
        raise
    except DaybellError as error:
        # One of them is at fault, and the batch was all or nothing: by halves, then.
        is_full = isinstance(error, QuotaExceeded)
        if len(executions) == 1:
            return Counter({RetryOutcome.OVER_QUOTA if is_full else RetryOutcome.REFUSED: 1})
        # As repeats: the refusal may be the answer to the second of two tries.
        middle = len(executions) // 2
        first = await _renew(client, executions[:middle], repeat=True)
        if first[RetryOutcome.OVER_QUOTA]:
            return first + Counter({RetryOutcome.OVER_QUOTA: len(executions) - middle})
        return first + await _renew(client, executions[middle:], repeat=True)
    return Counter(RetryOutcome.RENEWED if one.created else RetryOutcome.KEY_HELD for one in made)


def split_retryable(where: ExecutionFilter, *, force: bool) -> list[ExecutionFilter]:
    """Return a filter per state that can be retried: of the dead, only letters unless forced."""
    allowed = RETRYABLE_STATES | {State.SUCCEEDED} if force else RETRYABLE_STATES
    states = frozenset({State.DEAD}) if where.states is None else where.states
    if others := states - allowed:
        more = "" if force else ", and succeeded ones with force"
        raise UsageError(
            f"what is {join_states(others)} cannot be retried; dead and cancelled ones can{more}",
            field="status",
        )
    return [
        replace(where, states=frozenset({state}), dead_letters=state is State.DEAD and not force)
        for state in sorted(states)
    ]
