"""Requests that collapse into the latest execution of their key: see `core.collapse`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.collapse import CollapseRule, Verb, adapt, conflict_error
from daybell.core.execution import Enqueued, NewExecution, State
from daybell.store.postgres.context import WORKERS, Tx
from daybell.store.postgres.flow.cache import COLLAPSE
from daybell.store.postgres.names import Outdated, Specs
from daybell.store.postgres.progress import end_pending, request_cancel


class Collapsed(msgspec.Struct):
    """The decisions about requests of keys."""

    executions: list[NewExecution]  # to be created
    answers: dict[UUID, Enqueued]  # of the others
    cancelled: list[NewExecution]  # to be recorded as that


async def collapse(tx: Tx, specs: Specs, executions: Sequence[NewExecution]) -> Collapsed:
    """Decide about a batch. Requests of jobs without such a rule are to be created. Raises
    Outdated, and ExecutionInTheWay.
    """
    found = Collapsed([], {}, [])
    keyed = {e.id: e for e in executions if specs.of(e).collapses(e)}
    todo = list(keyed.values())
    new: dict[UUID, NewExecution] = {}
    while todo:
        replaced = await _decide(tx, specs, todo, found, new)
        await cancel_others(tx, specs, list(replaced.values()))
        todo = [e for e in todo if e.id in replaced]
    found.executions = [new.get(e.id, e) for e in executions if e.id in new or e.id not in keyed]
    return found


async def _decide(
    tx: Tx,
    specs: Specs,
    executions: Sequence[NewExecution],
    found: Collapsed,
    new: dict[UUID, NewExecution],
) -> dict[UUID, UUID]:
    """Add the decisions to `found` and `new`. Return the executions to cancel, by the request that
    replaces them.
    """
    keyed = {e.id: e for e in executions}
    rows = await tx.fetch(
        COLLAPSE,
        specs.tenant,
        *map(list, zip(*(_row(specs, one) for one in executions), strict=True)),
        [*new, *keyed],
    )
    replaced: dict[UUID, UUID] = {}
    for id, verb, holder in rows:
        execution = keyed[id]
        if verb == "outdated":
            raise Outdated
        if verb == Verb.NEW:
            new[id] = adapt(execution, _rule(specs, execution))
        elif verb == Verb.REPLACE:
            replaced[id] = holder
        elif verb == Verb.REFUSED:
            raise conflict_error(execution.job, holder)
        elif verb == Verb.CANCELLED:
            found.cancelled.append(execution)
        else:
            if verb == Verb.MOVED and holder in new:  # of this batch
                new[holder] = replace(new[holder], args=execution.args)
            elif verb == Verb.MOVED:
                specs.moved.add(holder)
            found.answers[id] = Enqueued(holder, created=holder == id)
    return replaced


async def cancel_others(tx: Tx, specs: Specs, ids: Sequence[UUID]) -> None:
    """Cancel executions that a request replaces."""
    if not ids:
        return
    live, pending = await end_pending(tx, specs.tenant, sorted(set(ids)), State.CANCELLED)
    if live - pending:
        runs = await request_cancel(tx, specs.tenant, live - pending)
        tx.after.stop_runs |= {(specs.tenant, run): None for run in runs}
        specs.news.add(WORKERS)


def _rule(specs: Specs, execution: NewExecution) -> CollapseRule:
    rule = specs.of(execution).job.collapse
    assert rule is not None, "it collapses"
    return rule


def _row(specs: Specs, execution: NewExecution) -> tuple[object, ...]:
    job, rule = specs.of(execution).job, _rule(specs, execution)
    return (
        job.key,
        job.version,
        msgspec.json.encode(rule).decode(),
        execution.id,
        execution.args,
        execution.unique_key,
        execution.at,
        execution.delay,
        job.expires if execution.expires_in is None else execution.expires_in,
        execution.force or execution.refresh,
    )
