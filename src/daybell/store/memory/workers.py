"""Leases: who is alive, and what is left of those who are not."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core.execution import State
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import check_labels, check_name
from daybell.core.watch import UNWATCHED, Watch
from daybell.core.worker import NewWorker, Offer, Renewal, Worker, WorkerState
from daybell.errors import LeaseLost
from daybell.store.checks import check_limit
from daybell.store.memory import moves
from daybell.store.memory.tables import Part, Row, Tables, claimed
from daybell.store.outcomes import Losses, Lost


class MemoryWorkers(Part):
    """See `protocol.Workers`."""

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        check_name(worker.name, what="worker")
        check_labels(worker.labels)
        with self._begin(tenant) as tables:
            now = self._clock()
            if (tenant, worker.id) not in tables.workers:
                tables.workers[tenant, worker.id] = introduce(tenant, worker, now)
            renewal = prolong(tables, tenant, worker.id, lease, now)
            if replaces is not None and (tenant, replaces) in tables.workers:
                tables.excused.add((tenant, replaces))
            return renewal

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        with self._begin(tenant) as tables:
            now = self._clock()
            living(tables, tenant, worker)
            unknown = [row for row in held(tables, tenant, worker) if row.lease not in leases]
            for row in unknown:
                moves.hand_back(tables, row, now)
            renewal = prolong(tables, tenant, worker, lease, now)
            return replace(renewal, returned=len(unknown))

    async def drain(self, tenant: str, worker: UUID) -> bool:
        with self._begin(tenant) as tables:
            found = tables.workers.get((tenant, worker))
            if found is None or found.state is WorkerState.DEAD:
                return False
            tables.workers[tenant, worker] = replace(found, state=WorkerState.DRAINING)
            return True

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            now = self._clock()
            given_back = [row for row in held(tables, tenant, worker) if row.lease in leases]
            for row in given_back:
                moves.hand_back(tables, row, now)
            return len(given_back)

    async def retire(self, tenant: str, worker: UUID) -> None:
        with self._begin(tenant) as tables:
            found = tables.workers.get((tenant, worker))
            if found is not None:
                tables.workers[tenant, worker] = replace(found, state=WorkerState.DEAD)

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        with self._begin(tenant) as tables:
            found = tables.workers.get((tenant, worker))
            if found is None or found.state is WorkerState.DEAD:
                return False
            tables.soles[tenant, worker] = execution
            return True

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        check_limit(limit)
        with self._begin() as tables:
            now = self._clock()
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
                is_any_waiting=any(
                    row.execution.state is State.WAITING for row in tables.live.values()
                )
                or any(row.run.is_blocked for row in tables.runs.values()),
                is_any_overdue=any(
                    wait.timeout_at is not None and wait.timeout_at <= now
                    for wait in tables.waits.values()
                ),
            )

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        with self._begin(tenant) as tables:
            found = [
                replace(worker, running=len(held(tables, tenant, id)))
                for (owner, id), worker in tables.workers.items()
                if owner == tenant and (include_dead or worker.state is not WorkerState.DEAD)
            ]
            return sorted(found, key=lambda worker: (worker.started_at, worker.id))

    async def offers(self, tenant: str) -> list[Offer]:
        now, found = self._clock(), list[Offer]()
        with self._begin(tenant) as tables:
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
