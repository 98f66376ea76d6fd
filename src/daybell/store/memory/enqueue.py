"""In: executions are created, unless something is in their way."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.dependencies import DEPENDENCIES
from daybell.core.execution import TERMINAL, Enqueued, Execution, NewExecution, State
from daybell.core.instant import Instant, Seconds
from daybell.core.job import Job
from daybell.core.overlap import OVERLAP, Entry, Overlap, enter, gate_for
from daybell.store import checks
from daybell.store.memory import cancelling, gates
from daybell.store.memory.tables import Row, Tables


def enqueue(
    tables: Tables, tenant: str, executions: Sequence[NewExecution], now: Instant
) -> list[Enqueued]:
    """Create these, one after the other, and let in at their gates whoever can be."""
    for new in executions:
        tables.job(tenant, new.job)
        if new.gate is not None:
            gates.find_gate(tables, tenant, new.gate)
    answers = [create(tables, tenant, new, now) for new in executions]
    for gate in {new.gate for new in executions}:
        gates.admit(tables, tenant, gate, now)
    return answers


def create(tables: Tables, tenant: str, new: NewExecution, now: Instant) -> Enqueued:
    """Create one execution, unless its id or its unique key is there already."""
    known = tables.rows.get((tenant, new.id))
    if known is not None:
        return Enqueued(new.id, skipped=known.execution.reason == OVERLAP and is_over(known))
    holder = key_holder(tables, tenant, new.job, new.unique_key)
    if holder is not None:
        return Enqueued(holder, created=False)
    job = tables.job(tenant, new.job).current
    row = Row(execution=describe(job, new, now))
    if new.awaits and job.definition.dependencies:
        row = waits(row, DEPENDENCIES)
    rule = rule_for(job, new)
    if rule is not Overlap.ALLOW:
        gate = make_gate(tables, tenant, gate_for(new))
        row = replace(row, execution=replace(row.execution, gate=gate))
        return pass_gate(tables, row, new, rule, now)
    if new.gate is None or new.force:
        tables.put(replace(row, has_slot=new.gate is not None))
    else:
        tables.put(waits(row, "gate"))
    return Enqueued(new.id)


def pass_gate(tables: Tables, row: Row, new: NewExecution, rule: Overlap, now: Instant) -> Enqueued:
    """Do what the job's overlap rule says of an execution at its gate."""
    match decide(tables, row, new, rule, now):
        case Entry.IN:
            tables.put(replace(row, has_slot=True))
        case Entry.WAIT:
            tables.put(waits(row, OVERLAP))
        case Entry.SKIP if new.schedule is not None:
            skipped = replace(row.execution, state=State.SKIPPED, finished_at=now, reason=OVERLAP)
            tables.put(replace(row, execution=skipped))
            return Enqueued(new.id, skipped=True)
        case Entry.SKIP:
            raise checks.in_the_way(new.job, rule, first_in_the_way(tables, row, rule, now))
    return Enqueued(new.id, at_gate=True)


def decide(tables: Tables, row: Row, new: NewExecution, rule: Overlap, now: Instant) -> Entry:
    """Look at the gate, and ask the rule; `replace` first makes room."""
    tenant, gate = row.execution.tenant, row.execution.gate
    assert gate is not None, "it came to a gate"
    if new.force:
        return Entry.IN
    if new.schedule is None and row.execution.run_at > now:
        return Entry.WAIT
    if rule is Overlap.REPLACE:
        before = gates.inside(tables, tenant, gate) + gates.waiting(tables, tenant, gate, now)
        for other in sorted(before, key=lambda row: row.execution.id):
            if other.execution.job == new.job:
                cancelling.cancel(tables, tables.rows[other.key], now)
    return enter(
        rule,
        inside=len(gates.inside(tables, tenant, gate)),
        waiting=len(gates.waiting(tables, tenant, gate, now)),
    )


def first_in_the_way(tables: Tables, row: Row, rule: Overlap, now: Instant) -> UUID:
    """Whom to name: who has the slot; for `queue`, who waits for it already."""
    tenant, gate = row.execution.tenant, row.execution.gate
    assert gate is not None, "it came to a gate"
    found = gates.waiting(tables, tenant, gate, now)
    if rule is Overlap.SKIP:
        found = gates.inside(tables, tenant, gate) or found
    return min(row.execution.id for row in found)


def rule_for(job: Job, new: NewExecution) -> Overlap:
    """What the job says of an execution that names no gate itself."""
    if new.gate is not None:
        return Overlap.ALLOW
    return job.definition.overlap_rule(is_scheduled=new.schedule is not None)


def make_gate(tables: Tables, tenant: str, gate: str) -> str:
    """The gate of a job, or of a schedule, with its one slot."""
    tables.gates.setdefault((tenant, gate), 1)
    return gate


def waits(row: Row, reason: str) -> Row:
    """One that has to wait. Whoever waits for dependencies, too, says so until they let it go."""
    if row.execution.reason == DEPENDENCIES:
        return row
    return replace(row, execution=replace(row.execution, state=State.WAITING, reason=reason))


def is_over(row: Row) -> bool:
    return row.execution.state in TERMINAL


def describe(job: Job, new: NewExecution, now: Instant) -> Execution:
    """An execution as it is when nothing is in its way."""
    definition = job.definition
    run_at = due(now, new.delay or 0.0, new.at)
    expires_in = definition.expires if new.expires_in is None else new.expires_in
    return Execution(
        id=new.id,
        tenant=job.tenant,
        job=new.job,
        version=job.version,
        state=State.SCHEDULED if run_at > now else State.QUEUED,
        queue=new.queue or definition.queue,
        priority=definition.priority if new.priority is None else new.priority,
        args=new.args,
        attempt=1,
        failures=0,
        crashes=0,
        created_at=now,
        run_at=run_at,
        expires_at=None if expires_in is None else run_at + expires_in,
        scheduled_for=new.scheduled_for,
        unique_key=new.unique_key,
        retries=new.retries,
        timeout=new.timeout,
        gate=new.gate,
        schedule=new.schedule,
        parent=new.parent,
    )


def key_holder(tables: Tables, tenant: str, job: str, key: str | None) -> UUID | None:
    """The unfinished execution of the job that has this unique key."""
    if key is None:
        return None
    for row in tables.live.values():
        held = row.execution
        name = held.tenant, held.job, held.unique_key
        if name == (tenant, job, key) and held.state not in TERMINAL:
            return held.id
    return None


def due(now: Instant, delay: Seconds, at: Instant | None) -> Instant:
    """When it may be claimed: never earlier than now."""
    return max(now, now + delay if at is None else at)
