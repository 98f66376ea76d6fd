"""The PostgreSQL store: all operations on one pool of connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from math import inf
from typing import Self
from uuid import UUID

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
from daybell.core.event import Event, NewEvent, NewStep, NodeWait, Published, Step
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
from daybell.core.job import Job, JobActivity, NewJob, NewTemplate, Template
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.limits import POOL_SIZE
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
    LEASE_SECONDS,
    Claim,
    Leadership,
    NewWorker,
    Offer,
    Renewal,
    Report,
    Worker,
)
from daybell.core.workflow.run import Plan, RunDetail
from daybell.store.admin import PendingEntry
from daybell.store.postgres import (
    admin,
    catalog,
    enqueue,
    gates,
    interventions,
    queue,
    runs,
    transactions,
    upkeep,
    views,
    workers,
)
from daybell.store.postgres import schedules as schedules_room
from daybell.store.postgres import steps as steps_room
from daybell.store.postgres.connection import Database
from daybell.store.postgres.context import ALL_TENANTS, SCHEDULES, WORKERS, Listener, StoreContext
from daybell.store.postgres.names import Specs
from daybell.store.postgres.queue import Fence
from daybell.store.postgres.transactions import TaskTransaction


class PostgresStore:
    """Executions in the schema `daybell` of a PostgreSQL database, 15 or later."""

    def __init__(
        self,
        url: str,
        *,
        listen_url: str | None = None,
        lease: Seconds = LEASE_SECONDS,
        pool_size: int = POOL_SIZE,
    ) -> None:
        self.context = StoreContext(
            Database(url, lease=lease, pool_size=pool_size), listen_url=listen_url
        )
        self._listeners: set[Listener] = set()

    @property
    def db(self) -> Database:
        return self.context.db

    @db.setter
    def db(self, db: Database) -> None:
        self.context.db = db

    async def open(self) -> None:
        if await self.db.open(upkeep.fits()):
            return
        try:
            await upkeep.check_schema(self.context)  # which says what is wrong
        except BaseException:
            await self.db.close()
            raise

    async def close(self) -> None:
        for listener in list(self._listeners):
            await listener.stop()
        await self.context.notifier.close()
        await transactions.close_task_connections(self.context)
        await self.db.close()

    async def listen(
        self,
        tenant: str,
        queues: Collection[str],
        wake: Callable[[], None],
        *,
        ask: Callable[[], None] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        # A worker that starts claims at this moment, and would have to open a second connection.
        if (key := self.context.names.known_tenant(tenant)) is None:
            async with self.db.link() as link:
                key = await self.context.names.tenant(link, tenant)
        wanted = {f"{key}:{queue}": wake for queue in queues}
        if ask is not None:
            wanted[f"{key}:{WORKERS}"] = ask
        return await self._listen(wanted)

    async def listen_schedules(self, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        return await self._listen({f"{ALL_TENANTS}:{SCHEDULES}": wake})

    async def _listen(self, wanted: dict[str, Callable[[], None]]) -> Callable[[], Awaitable[None]]:
        near = self.context.notifier.near
        near.append(wanted)
        listener: Listener | None = None
        if not self.db.is_pooled or self.context.listen_url is not None:
            # A pooler passes no notifications on.
            listener = Listener(
                self.context.listen_url or self.db.url,
                wanted,
                lineage=self.db.lineage,
                timeouts=self.db.timeouts,
                interval=2 * self.db.lease,
                takes_settings=self.context.listen_url is not None or not self.db.is_session_pooled,
            )
            self._listeners.add(listener)

        async def stop() -> None:
            near[:] = [one for one in near if one is not wanted]
            if listener is not None:
                self._listeners.discard(listener)
                await listener.stop()

        if listener is not None:
            await listener.start()
        return stop

    # Enqueue.

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        return await enqueue.enqueue(
            self.context, tenant, executions, repeat=repeat, entries=entries
        )

    async def resolve(
        self, tenant: str, executions: Iterable[NewExecution], *, fresh: bool = False
    ) -> Specs:
        return await enqueue.resolve(self.context, tenant, executions, fresh=fresh)

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        return await enqueue.load(self.context, tenant, executions)

    # Queue.

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
        return await queue.claim(
            self.context,
            tenant,
            worker=worker,
            lease=lease,
            queues=queues,
            limit=limit,
            kinds=kinds,
        )

    async def report(self, tenant: str, *, worker: UUID, reports: Sequence[Report]) -> list[Fence]:
        return await queue.report(self.context, tenant, worker=worker, reports=reports)

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        return await queue.apply(
            self.context, tenant, worker=worker, transitions=transitions, wait=wait
        )

    # Interventions.

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        return await interventions.cancel(self.context, tenant, ids)

    async def expire(self, *, limit: int = 1000) -> int:
        return await interventions.expire(self.context, limit=limit)

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        return await interventions.revive(self.context, tenant, ids)

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        return await interventions.discard(self.context, tenant, ids)

    # Workers.

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        return await workers.register(self.context, tenant, worker, lease=lease, replaces=replaces)

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        return await workers.renew(self.context, tenant, worker=worker, lease=lease, leases=leases)

    async def drain(self, tenant: str, worker: UUID) -> bool:
        return await workers.drain(self.context, tenant, worker)

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        return await workers.record_sole(self.context, tenant, worker=worker, execution=execution)

    async def retire(self, tenant: str, worker: UUID) -> None:
        await workers.retire(self.context, tenant, worker)

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        return await workers.release(self.context, tenant, worker=worker, leases=leases)

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        return await workers.lost(
            self.context, limit=limit, since=since, not_after=not_after, record_every=record_every
        )

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        return await workers.list_workers(self.context, tenant, include_dead=include_dead)

    async def offers(self, tenant: str) -> list[Offer]:
        return await workers.offers(self.context, tenant)

    # Transactions of tasks.

    async def begin(self, worker: UUID) -> TaskTransaction:
        return await transactions.begin(self.context, worker)

    # Gates.

    async def set_gates(self, tenant: str, capacities: dict[str, int]) -> None:
        await gates.set_gates(self.context, tenant, capacities)

    async def admit(self, *, limit: int = 1000) -> int:
        return await gates.admit(self.context, limit=limit)

    # Schedules and dependencies.

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await schedules_room.fire(self.context, firings)

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        await schedules_room.put_schedules(self.context, tenant, schedules)

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await schedules_room.delete_schedules(self.context, tenant, ids)

    async def list_schedules(
        self, tenant: str, *, job: str | None = None, ids: Collection[UUID] | None = None
    ) -> list[Schedule]:
        return await schedules_room.list_schedules(self.context, tenant, job=job, ids=ids)

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        return await schedules_room.list_job_schedules(
            self.context, tenant, job, limit=limit, cursor=cursor
        )

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        return await schedules_room.due_schedules(self.context, limit=limit, free=free, after=after)

    async def rearm_schedules(self, *, limit: int = 1000) -> int:
        return await schedules_room.rearm_schedules(self.context, limit=limit)

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        return await schedules_room.schedules_ahead(self.context, by=by, limit=limit, after=after)

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        return await schedules_room.turn_back(self.context, turns)

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        await schedules_room.pause_job(self.context, tenant, name, note=note)

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        await schedules_room.resume_job(self.context, tenant, name, firings)

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        return await schedules_room.list_ticks(
            self.context, tenant, schedule, limit=limit, before=before
        )

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        return await schedules_room.list_occurrences(
            self.context, tenant, schedule, since=since, until=until, limit=limit
        )

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        return await schedules_room.dependents(self.context, limit=limit, after=after)

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        return await schedules_room.ended_since(self.context, tenant, jobs, thoroughly=thoroughly)

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        return await schedules_room.upstream(self.context, tenant, jobs)

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await schedules_room.release_dependents(self.context, tenant, ids)

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await schedules_room.rule_out_dependents(self.context, tenant, ids)

    # Runs of workflows.

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        return await runs.expand(self.context, tenant, worker=worker, claimed=claimed, plan=plan)

    async def advance_runs(self, *, limit: int = 100) -> int:
        return await runs.advance_runs(self.context, limit=limit)

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        return await runs.get_run(self.context, tenant, id)

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        return await runs.rerun(self.context, tenant, id, new, labels=labels)

    # Steps, events and logs.

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        return await steps_room.publish(self.context, tenant, event)

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        return await steps_room.node_waits(self.context, tenant, run, event=event, limit=limit)

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        return await steps_room.list_events(self.context, tenant, limit=limit, cursor=cursor)

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        return await steps_room.steps(self.context, tenant, id)

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        return await steps_room.record(self.context, tenant, worker=worker, steps=steps)

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        await steps_room.write_log(self.context, tenant, worker=worker, parts=parts)

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        return await steps_room.read_log(self.context, tenant, id, after=after, limit=limit)

    # Definitions.

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        return await catalog.add_tenants(self.context, names)

    async def list_tenants(self) -> tuple[str, ...]:
        return await catalog.list_tenants(self.context)

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        return await catalog.define_jobs(self.context, tenant, jobs)

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        return await catalog.launch(self.context, tenant, job, execution)

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        return await catalog.get_job(self.context, tenant, name, version=version)

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        return await catalog.find_job(self.context, tenant, id, or_deleted=or_deleted)

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        return await catalog.list_jobs(self.context, tenant, where, limit=limit, cursor=cursor)

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        return await catalog.list_versions(self.context, tenant, name, limit=limit, cursor=cursor)

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        await catalog.delete_job(self.context, tenant, name, expect=expect)

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        await catalog.pause_queue(self.context, tenant, queue, paused=paused)

    # Views.

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        return await views.activity(self.context, tenant, since=since)

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        return await views.get_execution(self.context, tenant, id)

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        return await views.list_executions(self.context, tenant, where, limit=limit, cursor=cursor)

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        return await views.count_executions(self.context, tenant, where)

    async def list_queues(self, tenant: str) -> list[Queue]:
        return await views.list_queues(self.context, tenant)

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        return await views.job_activity(self.context, tenant, names)

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        return await views.job_ids(self.context, tenant, names)

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        return await views.node_attempts(self.context, tenant, id, limit=limit)

    # Access, audit, secrets and templates.

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        return await admin.add_key(self.context, tenant, key)

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        return await admin.find_key(self.context, digest)

    async def has_keys(self) -> bool:
        return await admin.has_keys(self.context)

    async def list_keys(self, tenant: str) -> list[Key]:
        return await admin.list_keys(self.context, tenant)

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        return await admin.revoke_key(self.context, tenant, id)

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        await admin.touch_keys(self.context, used)

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        return await admin.add_tenant(self.context, name, quotas)

    async def get_tenant(self, name: str) -> Tenant:
        return await admin.get_tenant(self.context, name)

    async def list_tenant_records(self) -> list[Tenant]:
        return await admin.list_tenant_records(self.context)

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        return await admin.set_quotas(self.context, tenant, **changes)

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        return await admin.begin_request(self.context, tenant, request)

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        await admin.answer_request(self.context, tenant, key, status=status, answer=answer)

    def audited(self, tenant: str, entry: NewAuditEntry) -> Self:
        view = copy(self)
        view.context = self.context.with_entry(PendingEntry(tenant, entry))
        return view

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        await admin.write_audit(self.context, tenant, entries)

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        return await admin.list_audit(self.context, tenant, where, limit=limit, cursor=cursor)

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        return await admin.read_audit_chain(self.context, tenant, after=after, limit=limit)

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        return await admin.set_secret(self.context, tenant, secret)

    async def list_secrets(self, tenant: str) -> list[Secret]:
        return await admin.list_secrets(self.context, tenant)

    async def delete_secret(self, tenant: str, name: str) -> None:
        await admin.delete_secret(self.context, tenant, name)

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        return await admin.fetch_secrets(self.context, tenant, names)

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        return await admin.set_template(
            self.context, tenant, template, author=author, expect=expect
        )

    async def get_template(self, tenant: str, name: str) -> Template:
        return await admin.get_template(self.context, tenant, name)

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        return await admin.list_templates(self.context, tenant, limit=limit, cursor=cursor)

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        await admin.delete_template(self.context, tenant, name, expect=expect)

    # Upkeep and migration.

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        return await upkeep.lead(self.context, name, holder=holder, lease=lease, since=since)

    async def resign(self, name: str, *, holder: UUID) -> None:
        await upkeep.resign(self.context, name, holder=holder)

    async def list_leaders(self) -> list[Leadership]:
        return await upkeep.list_leaders(self.context)

    async def recount_gates(self, *, mend: bool = False) -> list[Miscount]:
        return await upkeep.recount_gates(self.context, mend=mend)

    async def remove_gates(self, now: Instant) -> int:
        return await upkeep.remove_gates(self.context, now)

    async def retain(self, policy: Retention) -> Removed:
        return await upkeep.retain(self.context, policy)

    async def pending_migrations(self) -> tuple[str, ...]:
        return await upkeep.pending_migrations(self.context)

    async def migrate(self) -> tuple[str, ...]:
        return await upkeep.migrate(self.context)

    async def grant(self, role: str) -> None:
        await upkeep.grant(self.context, role)

    async def check_writable(self) -> None:
        # Room that runs out needs no write to be found:
        await upkeep.check_writable(self.context)

    async def health(self) -> Health:
        return await upkeep.health(self.context)
