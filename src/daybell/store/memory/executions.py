"""The hot path: in, out, and every change of state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from daybell.core.audit import NewEntry
from daybell.core.execution import (
    PENDING,
    TERMINAL,
    Claimed,
    Enqueued,
    NewExecution,
    Outcome,
    State,
)
from daybell.core.instant import Instant
from daybell.core.lifecycle import EXPIRED, Event, Ruling, Transition, Verdict, target
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.core.log import NewLogPart
from daybell.core.overlap import OVERLAP, is_job_gate
from daybell.core.step import NewStep
from daybell.core.worker import Claim, Report, WorkerState
from daybell.errors import DuplicateKey
from daybell.store import checks
from daybell.store.memory import cancelling, endings, gates, moves, quotas, restarting, waits
from daybell.store.memory.enqueue import create, enqueue, key_holder, rule_for
from daybell.store.memory.quotas import queued_room
from daybell.store.memory.tables import Part, Row, Tables, claimed
from daybell.store.memory.workers import living
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.wakeups import Signal


class MemoryExecutions(Part):
    """See `protocol.Executions`."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewEntry] = (),
    ) -> list[Enqueued]:
        # Finished ids are recognised anyway: they are in the same table.
        del repeat
        with self._begin(tenant) as tables:
            checks.check_batch(executions)
            before, now = len(tables.rows), self._clock()
            answers = enqueue(tables, tenant, executions, now)
            quotas.charge(tables, tenant, len(tables.rows) - before, now)
            for entry in entries:
                tables.record(tenant, checks.check_entry(entry), now)
            return answers

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        with self._begin(tenant) as tables:
            now = self._clock()
            count = 0
            for new in executions:
                rule = rule_for(tables.job(tenant, new.job).current, new)
                checks.check_loadable(new, count, overlap=rule)
                if (tenant, new.id) in tables.rows:
                    raise DuplicateKey(f"execution {new.id} exists; an earlier load was committed")
                create(tables, tenant, new, now)
                count += 1
            quotas.charge(tables, tenant, count, now)
            return count

    async def claim(
        self,
        tenant: str,
        *,
        worker: UUID,
        lease: UUID,
        queues: Sequence[str],
        limit: int,
        kinds: Sequence[str] = ("task",),
    ) -> Claim:
        checks.check_limit(limit, most=CLAIM_BATCH_MAX)
        with self._begin(tenant) as tables:
            now = self._clock()
            claimer = living(tables, tenant, worker)
            room = quotas.room(tables, tenant, limit)
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
                found = self._claimable(tables, tenant, queues, kinds)
                due = [row for row in found if row.execution.run_at <= now]
                due.sort(key=lambda row: claim_order(row, queues))
                is_limited = room < min(limit, len(due))
                taken = [moves.start(row, worker, lease, now) for row in due[:room]]
            for row in taken:
                tables.put(row)
                tables.leases[lease] = tenant, worker
            left = self._claimable(tables, tenant, queues, kinds)
            coming = [row.execution.run_at for row in left]
            return Claim(
                lease=lease,
                now=now,
                executions=[claimed(tables, row) for row in taken],
                next_due=min(
                    (at for at in coming if at > now and len(taken) < limit), default=None
                ),
                is_limited=is_limited,
            )

    def _claimable(
        self, tables: Tables, tenant: str, queues: Sequence[str], kinds: Sequence[str]
    ) -> list[Row]:
        return claimable(tables, tenant, queues, kinds)

    async def next_due(
        self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str] = ("task",)
    ) -> Instant | None:
        with self._begin(tenant) as tables:
            found = claimable(tables, tenant, queues, kinds)
            return min((row.execution.run_at for row in found), default=None)

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        del wait  # nobody else holds a lock here
        with self._begin(tenant) as tables:
            now = self._clock()
            verdicts = [apply(tables, tenant, worker, move, now) for move in transitions]
            return [verdict for verdict in verdicts if verdict is not None]

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        with self._begin(tenant) as tables:
            stale: list[tuple[UUID, int]] = []
            for position, report in enumerate(reports):
                checks.check_report(report, position)
                row = tables.rows.get((tenant, report.id))
                if row is not None and holds(row, worker, report):
                    tables.put(reported(row, report, self._clock()))
                else:
                    stale.append((report.id, report.attempt))
            return stale

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        with self._begin(tenant) as tables:
            now = self._clock()
            return [cancelling.cancel(tables, tables.rows.get((tenant, id)), now) for id in ids]

    async def expire(self, *, limit: int = 1000) -> int:
        with self._begin() as tables:
            now = self._clock()
            expired = [row for row in tables.live.values() if has_expired(row, now)][:limit]
            for row in expired:
                endings.end(tables, row, Event.EXPIRED, now, reason=EXPIRED)
            return len(expired) + waits.time_out(tables, limit, now)

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        with self._begin(tenant) as tables:
            now, room = self._clock(), queued_room(tables, tenant)
            answers: list[Revival] = []
            for id in ids:
                row = tables.rows.get((tenant, id))
                answers.append(revive(tables, row, now, is_full=room <= 0))
                room -= answers[-1] is Revival.REVIVED
            return answers

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        with self._begin(tenant) as tables:
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


def apply(
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
    moves.leave(tables, row, move, now)
    if row.execution.cancel_requested_at is not None:
        return Verdict(move.id, move.attempt, Ruling.CANCELLED)
    return None


def repeated(row: Row, worker: UUID, move: Transition) -> Verdict | None:
    """Judge a move that cannot be made: its first answer was lost, or it comes too late."""
    execution = row.execution
    ended = list(row.attempts)
    if execution.outcome is not None:
        ended.append(moves.final_attempt(execution))
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


def revive(tables: Tables, row: Row | None, now: Instant, *, is_full: bool) -> Revival:
    if row is None:
        return Revival.UNKNOWN
    if not is_dead_letter(row):
        return Revival.NOT_LISTED
    if is_full:
        return Revival.OVER_QUOTA
    dead = row.execution
    if key_holder(tables, dead.tenant, dead.job, dead.unique_key) is not None:
        return Revival.KEY_HELD
    state = target(dead.state, Event.REVIVED)
    logged = replace(row, attempts=(*row.attempts, moves.final_attempt(dead)))
    revived = moves.back(logged, state, now, now)
    # A person wants it run, however late it is by now.
    execution = replace(revived.execution, failures=0, crashes=0, expires_at=None)
    if dead.gate is not None:
        reason = OVERLAP if is_job_gate(dead.gate) else "gate"
        execution = replace(execution, state=State.WAITING, reason=reason)
    tables.put(replace(revived, execution=execution))
    restarting.revive(tables, row.key)
    gates.admit(tables, dead.tenant, dead.gate, now)
    tables.signals[Signal.CLAIM] = None
    return Revival.REVIVED
