"""The queue: enqueue, claim, transitions, leases, and logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.checks import check_limit
from daybell.core.event import NewStep
from daybell.core.execution import (
    AWAY,
    LAST,
    PENDING,
    TERMINAL,
    AttemptRecord,
    Cancellation,
    Claimed,
    Enqueued,
    Execution,
    LogPart,
    Losses,
    Lost,
    NewExecution,
    NewLogPart,
    Outcome,
    Revival,
    State,
)
from daybell.core.job import Job
from daybell.core.lifecycle import EXPIRED, Occasion, Ruling, Transition, Verdict, target
from daybell.core.limits import CLAIM_BATCH_MAX, PAGE_ITEMS_MAX, check_labels, check_name
from daybell.core.schedule import (
    DEPENDENCIES,
    OVERLAP,
    GateDecision,
    Overlap,
    decide_entry,
    gate_for,
    is_job_gate,
)
from daybell.core.units import Instant, Seconds
from daybell.core.worker import (
    UNWATCHED,
    Claim,
    NewWorker,
    Offer,
    Renewal,
    Report,
    Watch,
    Worker,
    WorkerState,
)
from daybell.core.workflow.restart import Restart, restart
from daybell.errors import DuplicateKey, ExecutionNotFound, LeaseLost
from daybell.store.memory import progress, waits
from daybell.store.memory.progress import queued_room
from daybell.store.memory.tables import NodeRow, Row, RunRow, Tables, claimed, shown_state
from daybell.store.run_driver import is_run_over, restart_refusal
from daybell.store.wakeups import Signal

# In: executions are created, unless something is in their way.


def create_all(
    tables: Tables, tenant: str, executions: Sequence[NewExecution], now: Instant
) -> list[Enqueued]:
    """Create these, one after the other, and let in at their gates whoever can be."""
    for new in executions:
        tables.job(tenant, new.job)
        if new.gate is not None:
            progress.find_gate(tables, tenant, new.gate)
    answers = [create(tables, tenant, new, now) for new in executions]
    for gate in {new.gate for new in executions}:
        progress.admit_at(tables, tenant, gate, now)
    return answers


def create(tables: Tables, tenant: str, new: NewExecution, now: Instant) -> Enqueued:
    """Create one execution, unless its id or its unique key is there already."""
    known = tables.rows.get((tenant, new.id))
    if known is not None:
        return Enqueued(new.id, skipped=known.execution.reason == OVERLAP and is_ended(known))
    holder = key_holder(tables, tenant, new.job, new.unique_key)
    if holder is not None:
        return Enqueued(holder, created=False)
    job = tables.job(tenant, new.job).current
    row = Row(execution=describe(job, new, now))
    if new.wait_for_dependencies and job.definition.dependencies:
        row = keep_waiting(row, DEPENDENCIES)
    rule = rule_for(job, new)
    if rule is not Overlap.ALLOW:
        gate = make_gate(tables, tenant, gate_for(new))
        row = replace(row, execution=replace(row.execution, gate=gate))
        return pass_gate(tables, row, new, rule, now)
    if new.gate is None or new.force:
        tables.put(replace(row, has_slot=new.gate is not None))
    else:
        tables.put(keep_waiting(row, "gate"))
    return Enqueued(new.id)


def pass_gate(tables: Tables, row: Row, new: NewExecution, rule: Overlap, now: Instant) -> Enqueued:
    """Do what the job's overlap rule says of an execution at its gate."""
    match decide(tables, row, new, rule, now):
        case GateDecision.IN:
            tables.put(replace(row, has_slot=True))
        case GateDecision.WAIT:
            tables.put(keep_waiting(row, OVERLAP))
        case GateDecision.SKIP if new.schedule is not None:
            skipped = replace(row.execution, state=State.SKIPPED, finished_at=now, reason=OVERLAP)
            tables.put(replace(row, execution=skipped))
            return Enqueued(new.id, skipped=True)
        case GateDecision.SKIP:
            raise checks.overlap_error(new.job, rule, first_in_the_way(tables, row, rule, now))
    return Enqueued(new.id, at_gate=True)


def decide(
    tables: Tables, row: Row, new: NewExecution, rule: Overlap, now: Instant
) -> GateDecision:
    """Look at the gate, and ask the rule; `replace` first makes room."""
    tenant, gate = row.execution.tenant, row.execution.gate
    assert gate is not None, "it came to a gate"
    if new.force:
        return GateDecision.IN
    if new.schedule is None and row.execution.run_at > now:
        return GateDecision.WAIT
    if rule is Overlap.REPLACE:
        before = progress.inside(tables, tenant, gate) + progress.waiting(tables, tenant, gate, now)
        for other in sorted(before, key=lambda row: row.execution.id):
            if other.execution.job == new.job:
                progress.cancel(tables, tables.rows[other.key], now)
    return decide_entry(
        rule,
        inside=len(progress.inside(tables, tenant, gate)),
        waiting=len(progress.waiting(tables, tenant, gate, now)),
    )


def first_in_the_way(tables: Tables, row: Row, rule: Overlap, now: Instant) -> UUID:
    """Whom to name: who has the slot; for `queue`, who waits for it already."""
    tenant, gate = row.execution.tenant, row.execution.gate
    assert gate is not None, "it came to a gate"
    found = progress.waiting(tables, tenant, gate, now)
    if rule is Overlap.SKIP:
        found = progress.inside(tables, tenant, gate) or found
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


def keep_waiting(row: Row, reason: str) -> Row:
    """One that has to wait. Whoever waits for dependencies, too, says so until they let it go."""
    if row.execution.reason == DEPENDENCIES:
        return row
    return replace(row, execution=replace(row.execution, state=State.WAITING, reason=reason))


def is_ended(row: Row) -> bool:
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


# How an execution changes: the few moves that all operations of the memory store are made of.
#
# Each asks the lifecycle's table, so that an illegal one raises instead of being written.

# What happened to a running execution, by where it went.
EVENTS: Final[dict[State, Occasion]] = {
    State.SUCCEEDED: Occasion.SUCCEEDED,
    State.DEAD: Occasion.EXHAUSTED,
    State.CANCELLED: Occasion.CANCELLED,
    State.SKIPPED: Occasion.EXPIRED,
    State.RETRYING: Occasion.RETRYING,
    State.QUEUED: Occasion.HANDED_BACK,
    State.SCHEDULED: Occasion.SNOOZED,
    State.WAITING: Occasion.WAITED,
}


def start(row: Row, worker: UUID, lease: UUID, now: Instant) -> Row:
    """Put a due execution into a worker's hands."""
    running = target(shown_state(row.execution, now), Occasion.CLAIMED)
    return replace(row, execution=replace(row.execution, state=running, worker=worker), lease=lease)


def leave(tables: Tables, row: Row, move: Transition, now: Instant) -> None:
    """Take a running execution out of its worker's hands, to where the move says."""
    if row.execution.cancel_requested_at is not None:
        move = replace(
            move, target=State.CANCELLED, outcome=Outcome.CANCELLED, result=None, reason=None
        )
    elif move.target is State.WAITING and not waits.has_reason(tables, row, move.reason):
        move = replace(move, target=State.QUEUED, reason=None)
    state = target(row.execution.state, EVENTS[move.target])
    execution = replace(
        row.execution,
        state=state,
        failures=move.failures,
        crashes=move.crashes,
        error=move.error if move.error is not None else row.execution.error,
        checkpoint=move.checkpoint if move.checkpoint is not None else row.execution.checkpoint,
        started_at=row.execution.started_at if move.ran is None else now - move.ran,
        finished_at=now,
        outcome=move.outcome,
        result=move.result if state is State.SUCCEEDED else None,
        reason=move.reason,
    )
    if state is State.SUCCEEDED:
        execution = replace(execution, error=None)
    ended = replace(row, execution=execution, lease=None)
    if move.log is not None:
        tables.logs[(*row.key, move.attempt, LAST)] = now, move.log
    if state in TERMINAL:
        progress.finish(tables, ended, now)
    else:
        # The log has this attempt's own error; the execution may still show an earlier one.
        log = replace(final_attempt(execution), error=move.error)
        logged = replace(ended, attempts=(*row.attempts, log))
        tables.put(back(logged, state, due(now, move.delay, move.at), now))
        if state is not State.WAITING:
            tables.signals[Signal.CLAIM] = None


def back(row: Row, state: State, run_at: Instant, now: Instant) -> Row:
    """An execution whose attempt has ended, as it is when it can be claimed again."""
    if state is State.QUEUED and run_at > now:
        state = State.SCHEDULED
    execution = replace(
        row.execution,
        state=state,
        attempt=row.execution.attempt + 1,
        run_at=run_at,
        worker=None,
        started_at=None,
        finished_at=None,
        outcome=None,
        result=None,
        reason=row.execution.reason if state in AWAY else None,
        progress=None,
        note=None,
    )
    return replace(row, execution=execution)


def hand_back(tables: Tables, row: Row, now: Instant) -> None:
    """Give a running execution back, uncharged."""
    execution = row.execution
    assert row.lease is not None, "only a running execution can be handed back"
    move = Transition(
        id=execution.id,
        attempt=execution.attempt,
        lease=row.lease,
        target=State.QUEUED,
        outcome=Outcome.RELEASED,
        failures=execution.failures,
        crashes=execution.crashes,
    )
    leave(tables, row, move, now)


def final_attempt(execution: Execution) -> AttemptRecord:
    """The last attempt of an execution, as the finished execution itself tells it."""
    assert execution.outcome is not None and execution.finished_at is not None, "it has not ended"
    return AttemptRecord(
        attempt=execution.attempt,
        outcome=execution.outcome,
        worker=execution.worker,
        started_at=execution.started_at,
        ended_at=execution.finished_at,
        error=execution.error,
    )


# Runs that have ended, and begin again.

RunKey = tuple[str, UUID]


def revive_run(tables: Tables, key: RunKey) -> None:
    """Have a dead run begin again with what did not succeed, once it is claimed."""
    row = tables.runs.get(key)
    if row is not None and is_run_over(row.run):
        nodes = [one.node for one in row.nodes.values()]
        tables.runs[key] = begun_again(row, restart(row.run, nodes))


def rerun(
    tables: Tables, key: RunKey, new: NewExecution, labels: Sequence[str] | None, now: Instant
) -> Enqueued:
    """Begin a new run with nodes of an old one."""
    old = tables.rows.get(key)
    if old is None:
        raise ExecutionNotFound(f"no execution {key[1]}")
    row = tables.runs.get(key)
    if row is None or old.execution.state not in TERMINAL:
        raise restart_refusal(key[1], old.execution.state)
    nodes = [one.node for one in row.nodes.values()]
    again = restart(row.run, nodes, labels=labels, id=new.id)
    new, before = replace(new, job=old.execution.job), len(tables.rows)
    checks.check_batch([new])
    (answer,) = create_all(tables, key[0], [new], now)
    progress.charge(tables, key[0], len(tables.rows) - before, now)
    if len(tables.rows) > before and not answer.skipped:
        tables.runs[key[0], new.id] = begun_again(row, again)
        made = tables.rows[key[0], new.id]
        execution = replace(made.execution, version=old.execution.version)
        tables.put(replace(made, execution=execution))
    return answer


def begun_again(row: RunRow, again: Restart) -> RunRow:
    """A run with its nodes as they are to be."""
    nodes: dict[str, NodeRow] = {}
    for node in (*again.kept, *again.changed):
        kept = replace(row.nodes[node.label], node=node)
        nodes[node.label] = replace(kept, result=None) if node.label in again.forgotten else kept
    return RunRow(again.run, nodes)


# Leases: who is alive, and what is left of those who are not.


def register(
    tables: Tables,
    now: Instant,
    tenant: str,
    worker: NewWorker,
    lease: Seconds,
    replaces: UUID | None,
) -> Renewal:
    check_name(worker.name, what="worker")
    check_labels(worker.labels)
    if (tenant, worker.id) not in tables.workers:
        tables.workers[tenant, worker.id] = introduce(tenant, worker, now)
    renewal = prolong(tables, tenant, worker.id, lease, now)
    if replaces is not None and (tenant, replaces) in tables.workers:
        tables.excused.add((tenant, replaces))
    return renewal


def renew(
    tables: Tables, now: Instant, tenant: str, worker: UUID, lease: Seconds, leases: Sequence[UUID]
) -> Renewal:
    living(tables, tenant, worker)
    unknown = [row for row in held(tables, tenant, worker) if row.lease not in leases]
    for row in unknown:
        hand_back(tables, row, now)
    renewal = prolong(tables, tenant, worker, lease, now)
    return replace(renewal, returned=len(unknown))


def drain(tables: Tables, tenant: str, worker: UUID) -> bool:
    found = tables.workers.get((tenant, worker))
    if found is None or found.state is WorkerState.DEAD:
        return False
    tables.workers[tenant, worker] = replace(found, state=WorkerState.DRAINING)
    return True


def release(tables: Tables, now: Instant, tenant: str, worker: UUID, leases: Sequence[UUID]) -> int:
    given_back = [row for row in held(tables, tenant, worker) if row.lease in leases]
    for row in given_back:
        hand_back(tables, row, now)
    return len(given_back)


def retire(tables: Tables, tenant: str, worker: UUID) -> None:
    found = tables.workers.get((tenant, worker))
    if found is not None:
        tables.workers[tenant, worker] = replace(found, state=WorkerState.DEAD)


def record_sole(tables: Tables, tenant: str, worker: UUID, execution: UUID | None) -> bool:
    found = tables.workers.get((tenant, worker))
    if found is None or found.state is WorkerState.DEAD:
        return False
    tables.soles[tenant, worker] = execution
    return True


def lost(
    tables: Tables,
    now: Instant,
    limit: int,
    since: Instant,
    not_after: Instant,
    record_every: Seconds,
) -> Losses:
    check_limit(limit)
    known = tables.watch[0] if tables.watch else UNWATCHED
    is_even = now <= not_after
    watch = known.seen(now, since=since, every=record_every) if is_even else UNWATCHED
    tables.watch[:] = [watch]
    for key, worker in tables.workers.items():
        if is_even and is_silent(worker, watch, since, now):
            tables.workers[key] = replace(worker, state=WorkerState.DEAD)
    found = [row for row in tables.live.values() if is_lost(tables, row)]
    return Losses(
        now=now,
        executions=[describe_lost(tables, row) for row in found[:limit]],
        is_any_waiting=any(row.execution.state is State.WAITING for row in tables.live.values())
        or any(row.run.is_blocked for row in tables.runs.values()),
        is_any_overdue=any(
            wait.timeout_at is not None and wait.timeout_at <= now for wait in tables.waits.values()
        ),
    )


def list_workers(tables: Tables, tenant: str, include_dead: bool) -> list[Worker]:
    found = [
        replace(worker, running=len(held(tables, tenant, id)))
        for (owner, id), worker in tables.workers.items()
        if owner == tenant and (include_dead or worker.state is not WorkerState.DEAD)
    ]
    return sorted(found, key=lambda worker: (worker.started_at, worker.id))


def offers(tables: Tables, now: Instant, tenant: str) -> list[Offer]:
    found = list[Offer]()
    for (owner, _), one in tables.workers.items():
        offer = Offer(queues=one.queues, kinds=one.kinds, tasks=one.tasks)
        is_there = one.state is WorkerState.LIVE and one.lease_until > now
        if owner == tenant and is_there and offer not in found:
            found.append(offer)
    return found


def introduce(tenant: str, worker: NewWorker, now: Instant) -> Worker:
    return Worker(
        **asdict(worker),
        tenant=tenant,
        state=WorkerState.LIVE,
        started_at=now,
        renewed_at=now,
        lease_until=now,
        running=0,
    )


def living(tables: Tables, tenant: str, worker: UUID) -> Worker:
    """A worker that may act; a dead one learns here that it is."""
    found = tables.workers.get((tenant, worker))
    if found is None or found.state is WorkerState.DEAD:
        raise LeaseLost(f"worker {worker} is not alive here; start again as a new worker")
    return found


def prolong(tables: Tables, tenant: str, worker: UUID, lease: Seconds, now: Instant) -> Renewal:
    found = living(tables, tenant, worker)
    until = now + lease
    tables.workers[tenant, worker] = replace(found, renewed_at=now, lease_until=until)
    cancel = tuple(
        (row.execution.id, row.execution.attempt)
        for row in held(tables, tenant, worker)
        if row.execution.cancel_requested_at is not None
    )
    return Renewal(now=now, lease_until=until, state=found.state, cancel=cancel)


def held(tables: Tables, tenant: str, worker: UUID) -> list[Row]:
    """What is in a worker's hands."""
    return [
        row
        for row in tables.live.values()
        if row.execution.state is State.RUNNING
        and (row.execution.tenant, row.execution.worker) == (tenant, worker)
    ]


def is_silent(worker: Worker, watch: Watch, since: Instant, now: Instant) -> bool:
    """Whether its lease has ended, in watched time."""
    silence = watch.silence(worker.renewed_at, now, since=since)
    return silence > worker.lease_until - worker.renewed_at


def is_lost(tables: Tables, row: Row) -> bool:
    execution = row.execution
    if execution.state is not State.RUNNING or execution.worker is None:
        return False
    return tables.workers[execution.tenant, execution.worker].state is WorkerState.DEAD


def describe_lost(tables: Tables, row: Row) -> Lost:
    definition = tables.definition(row.execution)
    assert row.execution.worker is not None, "only a running execution can be lost"
    key, began = (row.execution.tenant, row.execution.worker), row.execution.started_at
    return Lost(
        worker=row.execution.worker,
        claimed=claimed(tables, row),
        max_crashes=definition.max_crashes,
        retry=definition.on_lost != "dead",
        ran=None if began is None else max(0.0, tables.workers[key].renewed_at - began),
        is_sole=tables.soles.get(key) == row.execution.id,
        is_excused=key in tables.excused,
    )


def enqueue(
    tables: Tables,
    now: Instant,
    tenant: str,
    executions: Sequence[NewExecution],
    entries: Sequence[NewAuditEntry],
) -> list[Enqueued]:
    checks.check_batch(executions)
    before = len(tables.rows)
    answers = create_all(tables, tenant, executions, now)
    progress.charge(tables, tenant, len(tables.rows) - before, now)
    for entry in entries:
        tables.record(tenant, checks.check_entry(entry), now)
    return answers


def load(tables: Tables, now: Instant, tenant: str, executions: Iterable[NewExecution]) -> int:
    count = 0
    for new in executions:
        rule = rule_for(tables.job(tenant, new.job).current, new)
        checks.check_loadable(new, count, overlap=rule)
        if (tenant, new.id) in tables.rows:
            raise DuplicateKey(f"execution {new.id} exists; an earlier load was committed")
        create(tables, tenant, new, now)
        count += 1
    progress.charge(tables, tenant, count, now)
    return count


def claim(
    tables: Tables,
    now: Instant,
    tenant: str,
    worker: UUID,
    lease: UUID,
    queues: Sequence[str],
    limit: int,
    kinds: Sequence[str],
    find: Callable[[Tables, str, Sequence[str], Sequence[str]], list[Row]],
) -> Claim:
    checks.check_limit(limit, most=CLAIM_BATCH_MAX)
    claimer = living(tables, tenant, worker)
    room = progress.room(tables, tenant, limit)
    is_limited = False
    if lease in tables.leases:
        taken = [
            row
            for row in tables.live.values()
            if (row.lease, row.execution.worker) == (lease, worker)
        ]
    elif claimer.state is WorkerState.DRAINING:
        taken = []
    else:
        found = find(tables, tenant, queues, kinds)
        due = [row for row in found if row.execution.run_at <= now]
        due.sort(key=lambda row: claim_order(row, queues))
        is_limited = room < min(limit, len(due))
        taken = [start(row, worker, lease, now) for row in due[:room]]
    for row in taken:
        tables.put(row)
        tables.leases[lease] = tenant, worker
    left = find(tables, tenant, queues, kinds)
    coming = [row.execution.run_at for row in left]
    return Claim(
        lease=lease,
        now=now,
        executions=[claimed(tables, row) for row in taken],
        next_due=min((at for at in coming if at > now and len(taken) < limit), default=None),
        is_limited=is_limited,
    )


def next_due(
    tables: Tables, tenant: str, queues: Sequence[str], kinds: Sequence[str]
) -> Instant | None:
    found = claimable(tables, tenant, queues, kinds)
    return min((row.execution.run_at for row in found), default=None)


def apply(
    tables: Tables, now: Instant, tenant: str, worker: UUID, transitions: Sequence[Transition]
) -> list[Verdict]:
    verdicts = [apply_one(tables, tenant, worker, move, now) for move in transitions]
    return [verdict for verdict in verdicts if verdict is not None]


def report(
    tables: Tables, now: Instant, tenant: str, worker: UUID, reports: Sequence[Report]
) -> list[tuple[UUID, int]]:
    stale: list[tuple[UUID, int]] = []
    for position, report in enumerate(reports):
        checks.check_report(report, position)
        row = tables.rows.get((tenant, report.id))
        if row is not None and holds(row, worker, report):
            tables.put(reported(row, report, now))
        else:
            stale.append((report.id, report.attempt))
    return stale


def cancel(tables: Tables, now: Instant, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
    return [progress.cancel(tables, tables.rows.get((tenant, id)), now) for id in ids]


def expire(tables: Tables, now: Instant, limit: int) -> int:
    expired = [row for row in tables.live.values() if has_expired(row, now)][:limit]
    for row in expired:
        progress.end_unstarted(tables, row, Occasion.EXPIRED, now, reason=EXPIRED)
    return len(expired) + waits.time_out(tables, limit, now)


def revive(tables: Tables, now: Instant, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
    room = queued_room(tables, tenant)
    answers: list[Revival] = []
    for id in ids:
        row = tables.rows.get((tenant, id))
        answers.append(revive_one(tables, row, now, is_full=room <= 0))
        room -= answers[-1] is Revival.REVIVED
    return answers


def discard(tables: Tables, tenant: str, ids: Sequence[UUID]) -> list[bool]:
    answers: list[bool] = []
    for id in ids:
        row = tables.rows.get((tenant, id))
        answers.append(row is not None and is_dead_letter(row))
        if row is not None and is_dead_letter(row):
            tables.put(replace(row, execution=replace(row.execution, is_discarded=True)))
    return answers


def claimable(
    tables: Tables, tenant: str, queues: Sequence[str], kinds: Sequence[str]
) -> list[Row]:
    """What such a claim could take, now or later."""
    return [
        row
        for row in tables.live.values()
        if row.execution.tenant == tenant
        and row.execution.state in PENDING - {State.WAITING}
        and row.execution.queue in queues
        and (tenant, row.execution.queue) not in tables.paused
        and (row.needs or tables.definition(row.execution).needs) in kinds
    ]


def claim_order(row: Row, queues: Sequence[str]) -> tuple[int, int, Instant, UUID]:
    execution = row.execution
    return execution.priority, queues.index(execution.queue), execution.run_at, execution.id


def holds(
    row: Row, worker: UUID, move: Claimed | Transition | Report | NewLogPart | NewStep
) -> bool:
    """The fence: whether this very start of the execution is still in this worker's hands."""
    execution = row.execution
    return (
        execution.state is State.RUNNING
        and execution.attempt == move.attempt
        and row.lease == move.lease
        and execution.worker == worker
    )


def apply_one(
    tables: Tables, tenant: str, worker: UUID, move: Transition, now: Instant
) -> Verdict | None:
    """Make one move; answer if it was not simply made."""
    row = tables.rows.get((tenant, move.id))
    if row is None:
        return Verdict(move.id, move.attempt, Ruling.STALE)
    if not holds(row, worker, move):
        return repeated(row, worker, move)
    fault = checks.transition_fault(move)
    if fault is not None:
        return Verdict(move.id, move.attempt, Ruling.REFUSED, fault)
    leave(tables, row, move, now)
    if row.execution.cancel_requested_at is not None:
        return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return None


def repeated(row: Row, worker: UUID, move: Transition) -> Verdict | None:
    """Judge a move that cannot be made: its first answer was lost, or it comes too late."""
    execution = row.execution
    ended = list(row.attempts)
    if execution.outcome is not None:
        ended.append(final_attempt(execution))
    for attempt in ended:
        if (attempt.attempt, attempt.worker) == (move.attempt, worker):
            if attempt.outcome is move.outcome:
                return None
            if attempt.outcome is Outcome.CANCELLED:
                return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return Verdict(move.id, move.attempt, Ruling.STALE, current=execution.attempt)


def reported(row: Row, report: Report, now: Instant) -> Row:
    """A running execution with what its task says; what it does not say stays."""
    execution = row.execution
    return replace(
        row,
        execution=replace(
            execution,
            started_at=now - report.ran,
            progress=execution.progress if report.progress is None else report.progress,
            note=execution.note if report.note is None else report.note,
            checkpoint=execution.checkpoint if report.checkpoint is None else report.checkpoint,
        ),
    )


def has_expired(row: Row, now: Instant) -> bool:
    execution = row.execution
    if execution.state in TERMINAL or execution.state is State.RUNNING:
        return False
    return execution.expires_at is not None and execution.expires_at <= now


def is_dead_letter(row: Row) -> bool:
    return row.execution.state is State.DEAD and not row.execution.is_discarded


def revive_one(tables: Tables, row: Row | None, now: Instant, *, is_full: bool) -> Revival:
    if row is None:
        return Revival.UNKNOWN
    if not is_dead_letter(row):
        return Revival.NOT_LISTED
    if is_full:
        return Revival.OVER_QUOTA
    dead = row.execution
    if key_holder(tables, dead.tenant, dead.job, dead.unique_key) is not None:
        return Revival.KEY_HELD
    state = target(dead.state, Occasion.REVIVED)
    logged = replace(row, attempts=(*row.attempts, final_attempt(dead)))
    revived = back(logged, state, now, now)
    # A person wants it run, however late it is by now.
    execution = replace(revived.execution, failures=0, crashes=0, expires_at=None)
    if dead.gate is not None:
        reason = OVERLAP if is_job_gate(dead.gate) else "gate"
        execution = replace(execution, state=State.WAITING, reason=reason)
    tables.put(replace(revived, execution=execution))
    revive_run(tables, row.key)
    progress.admit_at(tables, dead.tenant, dead.gate, now)
    tables.signals[Signal.CLAIM] = None
    return Revival.REVIVED


# What tasks said.


def write_log(
    tables: Tables, now: Instant, tenant: str, worker: UUID, parts: Sequence[NewLogPart]
) -> None:
    for part in parts:
        row = tables.rows.get((tenant, part.id))
        if row is not None and holds(row, worker, part):
            key = tenant, part.id, part.attempt, part.number
            tables.logs.setdefault(key, (now, part.text))


def read_log(
    tables: Tables, tenant: str, id: UUID, after: tuple[int, int], limit: int
) -> list[LogPart]:
    checks.check_limit(limit, most=PAGE_ITEMS_MAX)
    parts = sorted(
        LogPart(attempt, number, text)
        for (owner, execution, attempt, number), (_, text) in tables.logs.items()
        if (owner, execution) == (tenant, id) and (attempt, number) > after
    )
    return parts[:limit]
