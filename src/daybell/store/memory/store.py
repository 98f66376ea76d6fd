"""The memory store: each operation is a transaction around a function of its tables."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Any, NoReturn
from uuid import UUID

from daybell.core import checks
from daybell.core.access import (
    ALL_ENTRIES,
    NO_QUOTAS,
    AuditEntry,
    AuditFilter,
    ChainSegment,
    Key,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    Quotas,
    Request,
    SealedSecret,
    Secret,
    Tenant,
)
from daybell.core.event import (
    Event,
    NewEvent,
    NewStep,
    NodeWait,
    Published,
    Step,
)
from daybell.core.execution import (
    AttemptSpan,
    Cancellation,
    Claimed,
    Enqueued,
    Execution,
    ExecutionDetail,
    LogPart,
    Losses,
    NewExecution,
    NewLogPart,
    Revival,
)
from daybell.core.job import DEFAULT_TENANT, Job, JobActivity, NewJob, NewTemplate, Template
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.schedule import (
    Dependents,
    Due,
    Ended,
    Firing,
    Miscount,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    TickRecord,
    Upstream,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    ALL_JOBS,
    Activity,
    Counts,
    ExecutionFilter,
    Health,
    JobFilter,
    Page,
    Queue,
    Removed,
    Retention,
)
from daybell.core.worker import (
    Claim,
    Leadership,
    NewWorker,
    Offer,
    Renewal,
    Report,
    Worker,
)
from daybell.core.workflow.run import Plan, RunDetail
from daybell.errors import TenantNotFound, UsageError, shown
from daybell.store import admin as audit
from daybell.store import run_driver
from daybell.store.memory import admin, catalog, progress, queue, runs, upkeep
from daybell.store.memory import schedules as schedules_room
from daybell.store.memory.tables import Clock, Row, Tables
from daybell.store.wakeups import Listeners, Signal, Wake

StopListening = Callable[[], Awaitable[None]]


class MemoryStore:
    """A store that lives and dies with its process. It serves one event loop."""

    def __init__(self, *, clock: Clock = time.time) -> None:
        self._clock = clock
        self._tables = Tables(
            {DEFAULT_TENANT: Tenant(name=DEFAULT_TENANT, created_at=self._clock())}
        )
        self._is_open = False
        self._depth = 0  # of transactions: one may be opened inside another
        self._listeners = Listeners()
        self._schedule_listeners = Listeners()

    @contextmanager
    def _begin(self, tenant: str | None = None) -> Generator[Tables]:
        """Open a transaction: the tables, which are as before if the block raises."""
        if not self._is_open:
            raise UsageError("the store is not open; call open() first")
        if tenant is not None and tenant not in self._tables.tenants:
            raise TenantNotFound(f"no tenant named {shown(tenant)}")
        before = self._tables.mark()
        self._depth += 1
        try:
            yield self._tables
            progress.settle_runs(self._tables, self._clock())
            self._record(before)
        except BaseException:
            self._tables.go_back(before)
            raise
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._tables.forget()
        signals, self._tables.signals = self._tables.signals, {}
        for signal in signals:
            self._give(signal)

    def _record(self, before: list[Any]) -> None:
        """Add the pending audit entry to a transaction that has changed something."""
        wanted = audit.pending_entry(self)
        if wanted is not None and self._tables.is_changed(before):
            self._tables.record(wanted.tenant, wanted.entry, self._clock())
            wanted.committed()

    def _give(self, signal: Signal) -> None:
        if signal is Signal.ASK:
            self._listeners.ask()
        elif signal is Signal.CLAIM:
            self._listeners.wake()
        else:
            self._schedule_listeners.wake()

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def pending_migrations(self) -> tuple[str, ...]:
        return ()

    async def migrate(self) -> tuple[str, ...]:
        return ()

    async def begin(self, worker: UUID) -> NoReturn:
        raise checks.no_transactions("in memory")

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> StopListening:
        with self._begin(tenant):
            return self._listeners.add(wake, ask)

    async def listen_schedules(self, wake: Wake) -> StopListening:
        with self._begin():
            return self._schedule_listeners.add(wake)

    # Definitions and views.

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        with self._begin() as tables:
            return catalog.add_tenants(tables, self._clock(), names)

    async def list_tenants(self) -> tuple[str, ...]:
        with self._begin() as tables:
            return catalog.list_tenants(tables)

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        with self._begin(tenant) as tables:
            return catalog.define_jobs(tables, self._clock(), tenant, jobs)

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        with self._begin(tenant) as tables:
            return catalog.launch(tables, self._clock(), tenant, job, execution)

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        with self._begin(tenant) as tables:
            return catalog.get_job(tables, tenant, name, version)

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        with self._begin(tenant) as tables:
            return catalog.find_job(tables, tenant, id, or_deleted)

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        with self._begin(tenant) as tables:
            return catalog.list_jobs(tables, tenant, where, limit, cursor)

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        with self._begin(tenant) as tables:
            return catalog.list_versions(tables, tenant, name, limit, cursor)

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        with self._begin(tenant) as tables:
            catalog.delete_job(tables, self._clock(), tenant, name, expect)

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        with self._begin(tenant) as tables:
            catalog.pause_queue(tables, tenant, queue, paused)

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        with self._begin(tenant) as tables:
            return catalog.get_execution(tables, self._clock(), tenant, id)

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        with self._begin(tenant) as tables:
            return catalog.list_executions(tables, self._clock(), tenant, where, limit, cursor)

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        with self._begin(tenant) as tables:
            return catalog.count_executions(tables, self._clock(), tenant, where)

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        with self._begin(tenant) as tables:
            return catalog.job_activity(tables, self._clock(), tenant, names)

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        with self._begin(tenant) as tables:
            return catalog.job_ids(tables, tenant, names)

    async def list_queues(self, tenant: str) -> list[Queue]:
        with self._begin(tenant) as tables:
            return catalog.list_queues(tables, self._clock(), tenant)

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        with self._begin(tenant) as tables:
            return catalog.activity(tables, self._clock(), tenant, since)

    # Queue and workers.

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        with self._begin(tenant) as tables:
            return queue.register(tables, self._clock(), tenant, worker, lease, replaces)

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        with self._begin(tenant) as tables:
            return queue.renew(tables, self._clock(), tenant, worker, lease, leases)

    async def drain(self, tenant: str, worker: UUID) -> bool:
        with self._begin(tenant) as tables:
            answer = queue.drain(tables, tenant, worker)
        self._listeners.ask()
        return answer

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            return queue.release(tables, self._clock(), tenant, worker, leases)

    async def retire(self, tenant: str, worker: UUID) -> None:
        with self._begin(tenant) as tables:
            queue.retire(tables, tenant, worker)

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        with self._begin(tenant) as tables:
            return queue.record_sole(tables, tenant, worker, execution)

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        with self._begin() as tables:
            return queue.lost(tables, self._clock(), limit, since, not_after, record_every)

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        with self._begin(tenant) as tables:
            return queue.list_workers(tables, tenant, include_dead)

    async def offers(self, tenant: str) -> list[Offer]:
        with self._begin(tenant) as tables:
            return queue.offers(tables, self._clock(), tenant)

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        # Finished ids are recognised anyway: they are in the same table.
        with self._begin(tenant) as tables:
            answer = queue.enqueue(tables, self._clock(), tenant, executions, entries)
        self._listeners.wake()
        return answer

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        with self._begin(tenant) as tables:
            answer = queue.load(tables, self._clock(), tenant, executions)
        self._listeners.wake()
        return answer

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
        with self._begin(tenant) as tables:
            return queue.claim(
                tables, self._clock(), tenant, worker, lease, queues, limit, kinds, self._claimable
            )

    def _claimable(
        self, tables: Tables, tenant: str, queues: Sequence[str], kinds: Sequence[str]
    ) -> list[Row]:
        return queue.claimable(tables, tenant, queues, kinds)

    async def next_due(
        self, tenant: str, *, queues: Sequence[str], kinds: Sequence[str] = ("task",)
    ) -> Instant | None:
        with self._begin(tenant) as tables:
            return queue.next_due(tables, tenant, queues, kinds)

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        with self._begin(tenant) as tables:
            answer = queue.apply(tables, self._clock(), tenant, worker, transitions)
        await self._go_on()
        return answer

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        with self._begin(tenant) as tables:
            return queue.report(tables, self._clock(), tenant, worker, reports)

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        with self._begin(tenant) as tables:
            answer = queue.cancel(tables, self._clock(), tenant, ids)
        await self._go_on()
        return answer

    async def expire(self, *, limit: int = 1000) -> int:
        with self._begin() as tables:
            return queue.expire(tables, self._clock(), limit)

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        with self._begin(tenant) as tables:
            return queue.revive(tables, self._clock(), tenant, ids)

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        with self._begin(tenant) as tables:
            return queue.discard(tables, tenant, ids)

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        with self._begin(tenant) as tables:
            queue.write_log(tables, self._clock(), tenant, worker, parts)

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        with self._begin(tenant) as tables:
            return queue.read_log(tables, tenant, id, after, limit)

    # Schedules and dependencies.

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        with self._begin(tenant) as tables:
            schedules_room.put_schedules(tables, self._clock(), tenant, schedules)

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            return schedules_room.delete_schedules(tables, tenant, ids)

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        with self._begin(tenant) as tables:
            return schedules_room.list_schedules(tables, tenant, job, ids)

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        with self._begin(tenant) as tables:
            return schedules_room.list_job_schedules(tables, tenant, job, limit, cursor)

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        with self._begin() as tables:
            return schedules_room.due_schedules(tables, self._clock(), limit, free, after)

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        with self._begin() as tables:
            answer = schedules_room.fire(tables, self._clock(), firings)
        self._listeners.wake()
        return answer

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        with self._begin() as tables:
            return schedules_room.rearm_schedules(tables, self._clock(), limit)

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        with self._begin() as tables:
            return schedules_room.schedules_ahead(tables, self._clock(), by, limit, after)

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        with self._begin() as tables:
            return schedules_room.turn_back(tables, turns)

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        with self._begin(tenant) as tables:
            schedules_room.pause_job(tables, self._clock(), tenant, name, note)

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        with self._begin(tenant) as tables:
            schedules_room.resume_job(tables, self._clock(), tenant, name, firings)
        self._listeners.wake()

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        with self._begin(tenant) as tables:
            return schedules_room.list_ticks(tables, tenant, schedule, limit, before)

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        with self._begin(tenant) as tables:
            return schedules_room.list_occurrences(
                tables, self._clock(), tenant, schedule, since, until, limit
            )

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        with self._begin() as tables:
            return schedules_room.dependents(tables, self._clock(), limit, after)

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        with self._begin(tenant) as tables:
            return schedules_room.ended_since(tables, tenant, jobs)

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        with self._begin(tenant) as tables:
            return schedules_room.upstream(tables, tenant, jobs)

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            answer = schedules_room.release_dependents(tables, tenant, ids)
        self._listeners.wake()
        return answer

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        with self._begin(tenant) as tables:
            return schedules_room.rule_out_dependents(tables, self._clock(), tenant, ids)

    # Runs, steps and events.

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        with self._begin(tenant) as tables:
            answer = runs.expand(tables, self._clock(), tenant, worker, claimed, plan)
        if answer:
            await self._go_on()
        return answer

    async def _go_on(self) -> None:
        """Continue the runs that the last transaction has left, up to a limit."""
        for _ in range(run_driver.ADVANCE_ROUNDS):
            if not runs.todo(self._tables):
                break
            await self.advance_runs()

    async def advance(self, tenant: str, run: UUID) -> bool:
        with self._begin(tenant) as tables:
            return runs.advance(tables, self._clock(), tenant, run)

    async def advance_runs(self, *, limit: int = 100) -> int:
        with self._begin() as tables:
            return runs.advance_runs(tables, self._clock(), limit)

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        with self._begin(tenant) as tables:
            return runs.get_run(tables, self._clock(), tenant, id)

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        with self._begin(tenant) as tables:
            return runs.node_attempts(tables, tenant, id, limit)

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        with self._begin(tenant) as tables:
            return runs.rerun(tables, self._clock(), tenant, id, new, labels)

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        with self._begin(tenant) as tables:
            return runs.steps(tables, tenant, id)

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        with self._begin(tenant) as tables:
            return runs.record(tables, self._clock(), tenant, worker, steps)

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        with self._begin(tenant) as tables:
            return runs.publish(tables, self._clock(), tenant, event)

    async def time_out_waits(self, *, limit: int = 1000) -> int:
        with self._begin() as tables:
            return runs.time_out_waits(tables, self._clock(), limit)

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        with self._begin(tenant) as tables:
            return runs.node_waits(tables, self._clock(), run, event, limit)

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        with self._begin(tenant) as tables:
            return runs.list_events(tables, tenant, limit, cursor)

    # Gates.

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        with self._begin(tenant) as tables:
            progress.set_gates(tables, self._clock(), tenant, capacities)

    async def admit(self, *, limit: int = 1000) -> int:
        with self._begin() as tables:
            return progress.admit(tables, self._clock(), limit)

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        with self._begin() as tables:
            return progress.recount_gates(tables)

    # Access, audit, secrets, templates.

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        with self._begin(tenant) as tables:
            return admin.add_key(tables, self._clock(), tenant, key)

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        with self._begin() as tables:
            return admin.find_key(tables, self._clock(), digest)

    async def has_keys(self) -> bool:
        with self._begin() as tables:
            return admin.has_keys(tables, self._clock())

    async def list_keys(self, tenant: str) -> list[Key]:
        with self._begin(tenant) as tables:
            return admin.list_keys(tables, tenant)

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        with self._begin(tenant) as tables:
            return admin.revoke_key(tables, self._clock(), tenant, id)

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        with self._begin() as tables:
            admin.touch_keys(tables, self._clock(), used)

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        with self._begin() as tables:
            return admin.add_tenant(tables, self._clock(), name, quotas)

    async def get_tenant(self, name: str) -> Tenant:
        with self._begin() as tables:
            return admin.get_tenant(tables, name)

    async def list_tenant_records(self) -> list[Tenant]:
        with self._begin() as tables:
            return admin.list_tenant_records(tables)

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        with self._begin(tenant) as tables:
            return admin.set_quotas(tables, tenant, changes)

    def auditing(self, tenant: str, entry: NewAuditEntry) -> AbstractContextManager[None]:
        return audit.auditing(self, tenant, entry)

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        with self._begin(tenant) as tables:
            admin.write_audit(tables, self._clock(), tenant, entries)

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        with self._begin(tenant) as tables:
            return admin.list_audit(tables, tenant, where, limit, cursor)

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        with self._begin(tenant) as tables:
            return admin.read_audit_chain(tables, tenant, after, limit)

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        with self._begin(tenant) as tables:
            return admin.begin_request(tables, self._clock(), tenant, request)

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        with self._begin(tenant) as tables:
            admin.answer_request(tables, tenant, key, status, answer)

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        with self._begin(tenant) as tables:
            return admin.set_secret(tables, self._clock(), tenant, secret)

    async def list_secrets(self, tenant: str) -> list[Secret]:
        with self._begin(tenant) as tables:
            return admin.list_secrets(tables, tenant)

    async def delete_secret(self, tenant: str, name: str) -> None:
        with self._begin(tenant) as tables:
            admin.delete_secret(tables, tenant, name)

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        with self._begin(tenant) as tables:
            return admin.fetch_secrets(tables, tenant, names)

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        with self._begin(tenant) as tables:
            return admin.set_template(tables, self._clock(), tenant, template, author, expect)

    async def get_template(self, tenant: str, name: str) -> Template:
        with self._begin(tenant) as tables:
            return admin.get_template(tables, tenant, name)

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        with self._begin(tenant) as tables:
            return admin.list_templates(tables, tenant, limit, cursor)

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        with self._begin(tenant) as tables:
            admin.delete_template(tables, tenant, name, expect)

    # Upkeep.

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        with self._begin() as tables:
            return upkeep.lead(tables, self._clock(), name, holder, lease, since)

    async def resign(self, name: str, *, holder: UUID) -> None:
        with self._begin() as tables:
            upkeep.resign(tables, self._clock(), name, holder)

    async def list_leaders(self) -> list[Leadership]:
        with self._begin() as tables:
            return upkeep.list_leaders(tables, self._clock())

    async def retain(self, policy: Retention) -> Removed:
        with self._begin() as tables:
            return upkeep.retain(tables, self._clock(), policy)

    async def check_writable(self) -> None:
        with self._begin():
            pass

    async def health(self) -> Health:
        with self._begin() as tables:
            return upkeep.health(tables, self._clock())
