"""The PostgreSQL store: its life cycle, wake-ups and upkeep, and its ports.

A port lists its operations. Each is a function of its room over the context of the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from copy import copy
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from daybell.core.access import NewAuditEntry
from daybell.core.checks import check_limit
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.limits import POOL_SIZE
from daybell.core.units import Seconds
from daybell.core.views import (
    DEFAULT_RETENTION,
    SWEEPS,
    Folded,
    Health,
    Removed,
    Retention,
    SweepKind,
    Swept,
)
from daybell.core.worker import LEASE_SECONDS, last_reports
from daybell.store.admin import PendingEntry
from daybell.store.postgres import (
    admin,
    catalog,
    gates,
    interventions,
    queue,
    runs,
    schedules,
    stats,
    transactions,
    upkeep,
    views,
    workers,
)
from daybell.store.postgres import enqueue as enqueue_room
from daybell.store.postgres import steps as steps_room
from daybell.store.postgres.connection import Database
from daybell.store.postgres.context import ALL_TENANTS, SCHEDULES, WORKERS, Listener, StoreContext
from daybell.store.postgres.flow import limit_views

P = ParamSpec("P")
R = TypeVar("R")


class PostgresPort:
    """A port: operations over one context, audited or not."""

    def __init__(self, context: StoreContext) -> None:
        self.context = context

    def over(self, context: StoreContext) -> Self:
        """Return the same port on another view of the store."""
        port = copy(self)
        port.context = context
        return port


def operation(
    function: Callable[Concatenate[StoreContext, P], R],
) -> Callable[Concatenate[PostgresPort, P], R]:
    """Make a function over the context a method of a port."""

    @wraps(function)
    def call(port: PostgresPort, *args: P.args, **options: P.kwargs) -> R:
        return function(port.context, *args, **options)

    return call


async def apply(
    pg: StoreContext,
    tenant: str,
    *,
    worker: UUID,
    transitions: Sequence[Transition],
    wait: bool = True,
) -> list[Verdict]:
    """Make moves. The last progress of an attempt is written before its end."""
    if reports := last_reports(transitions):
        await queue.report(pg, tenant, worker=worker, reports=reports)
    return await queue.apply(pg, tenant, worker=worker, transitions=transitions, wait=wait)


class PostgresQueue(PostgresPort):
    """Implements `QueuePort`."""

    enqueue = operation(enqueue_room.enqueue)
    resolve = operation(enqueue_room.resolve)
    load = operation(enqueue_room.load)
    claim = operation(queue.claim)
    apply = operation(apply)
    report = operation(queue.report)
    cancel = operation(interventions.cancel)
    revive = operation(interventions.revive)
    discard = operation(interventions.discard)
    begin = operation(transactions.begin)
    register = operation(workers.register)
    renew = operation(workers.renew)
    renew_idle = operation(workers.renew_idle)
    drain = operation(workers.drain)
    release = operation(workers.release)
    retire = operation(workers.retire)
    record_sole = operation(workers.record_sole)
    lost = operation(workers.lost)
    read_traces = operation(enqueue_room.read_traces)
    write_log = operation(steps_room.write_log)


class PostgresSchedules(PostgresPort):
    """Implements `SchedulesPort`."""

    put_schedules = operation(schedules.put_schedules)
    delete_schedules = operation(schedules.delete_schedules)
    list_listeners = operation(steps_room.list_listeners)
    watched_files = operation(steps_room.watched_files)
    note_files = operation(steps_room.note_files)
    list_schedules = operation(schedules.list_schedules)
    list_job_schedules = operation(schedules.list_job_schedules)
    next_schedules = operation(schedules.next_schedules)
    due_schedules = operation(schedules.due_schedules)
    fire = operation(schedules.fire)
    schedules_ahead = operation(schedules.schedules_ahead)
    turn_back = operation(schedules.turn_back)
    pause_job = operation(schedules.pause_job)
    resume_job = operation(schedules.resume_job)
    list_ticks = operation(schedules.list_ticks)
    list_occurrences = operation(schedules.list_occurrences)
    dependents = operation(schedules.dependents)
    ended_since = operation(schedules.ended_since)
    upstream = operation(schedules.upstream)
    release_dependents = operation(schedules.release_dependents)
    rule_out_dependents = operation(schedules.rule_out_dependents)


class PostgresRuns(PostgresPort):
    """Implements `RunsPort`."""

    expand = operation(runs.expand)
    get_run = operation(runs.get_run)
    node_attempts = operation(views.node_attempts)
    rerun = operation(runs.rerun)
    steps = operation(steps_room.steps)
    record = operation(steps_room.record)
    publish = operation(steps_room.publish)
    publish_many = operation(steps_room.publish_many)
    firing_events = operation(steps_room.firing_events)
    node_waits = operation(steps_room.node_waits)
    list_events = operation(steps_room.list_events)


class PostgresCatalog(PostgresPort):
    """Implements `CatalogPort`."""

    define_jobs = operation(catalog.define_jobs)
    launch = operation(catalog.launch)
    get_job = operation(catalog.get_job)
    get_jobs = operation(catalog.get_jobs)
    find_job = operation(catalog.find_job)
    list_jobs = operation(catalog.list_jobs)
    list_versions = operation(catalog.list_versions)
    delete_job = operation(catalog.delete_job)
    pause_queue = operation(catalog.pause_queue)
    get_execution = operation(views.get_execution)
    list_executions = operation(views.list_executions)
    count_executions = operation(views.count_executions)
    estimate_executions = operation(views.estimate_executions)
    job_activity = operation(views.job_activity)
    job_ids = operation(views.job_ids)
    list_queues = operation(views.list_queues)
    list_limits = operation(limit_views.list_limits)
    change_limit = operation(limit_views.change_limit)
    limit_wait = operation(limit_views.limit_wait)
    get_position = operation(views.get_position)
    list_backlogs = operation(views.list_backlogs)
    list_demands = operation(views.list_demands)
    activity = operation(views.activity)
    read_stats = operation(stats.read_stats)
    read_totals = operation(stats.read_totals)
    read_log = operation(steps_room.read_log)
    read_logs = operation(steps_room.read_logs)
    miscounts = operation(gates.miscounts)
    list_workers = operation(workers.list_workers)
    offers = operation(workers.offers)
    list_tenant_work = operation(workers.list_tenant_work)


class PostgresAdmin(PostgresPort):
    """Implements `AdminPort`."""

    add_tenant = operation(admin.add_tenant)
    get_tenant = operation(admin.get_tenant)
    list_tenants = operation(admin.list_tenants)
    set_quotas = operation(admin.set_quotas)
    add_key = operation(admin.add_key)
    add_session = operation(admin.add_session)
    find_key = operation(admin.find_key)
    has_keys = operation(admin.has_keys)
    list_keys = operation(admin.list_keys)
    revoke_key = operation(admin.revoke_key)
    touch_keys = operation(admin.touch_keys)
    set_secret = operation(admin.set_secret)
    list_secrets = operation(admin.list_secrets)
    delete_secret = operation(admin.delete_secret)
    fetch_secrets = operation(admin.fetch_secrets)
    put_record = operation(admin.put_record)
    get_record = operation(admin.get_record)
    list_records = operation(admin.list_records)
    delete_record = operation(admin.delete_record)
    alert_work = operation(admin.alert_work)
    outbox_work = operation(admin.outbox_work)
    dispatch = operation(admin.dispatch)
    list_incidents = operation(admin.list_incidents)
    move_incident = operation(admin.move_incident)
    write_audit = operation(admin.write_audit)
    list_audit = operation(admin.list_audit)
    read_audit_chain = operation(admin.read_audit_chain)
    begin_request = operation(admin.begin_request)
    answer_request = operation(admin.answer_request)
    lead = operation(upkeep.lead)
    resign = operation(upkeep.resign)
    list_leaders = operation(upkeep.list_leaders)


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
        self.queue = PostgresQueue(self.context)
        self.schedules = PostgresSchedules(self.context)
        self.runs = PostgresRuns(self.context)
        self.catalog = PostgresCatalog(self.context)
        self.admin = PostgresAdmin(self.context)

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
            await upkeep.check_schema(self.context)  # it reports the fault
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

    def audited(self, tenant: str, entry: NewAuditEntry) -> Self:
        view = copy(self)
        view.context = context = self.context.with_entry(PendingEntry(tenant, entry))
        view.queue = self.queue.over(context)
        view.schedules = self.schedules.over(context)
        view.runs = self.runs.over(context)
        view.catalog = self.catalog.over(context)
        view.admin = self.admin.over(context)
        return view

    async def pending_migrations(self) -> tuple[str, ...]:
        return await upkeep.pending_migrations(self.context)

    async def migrate(self) -> tuple[str, ...]:
        return await upkeep.migrate(self.context)

    async def grant(self, role: str) -> None:
        await upkeep.grant(self.context, role)

    async def check_writable(self) -> None:
        # Room that runs out needs no write to be found:
        await upkeep.check_writable(self.context)

    @property
    def connections_made(self) -> int:
        return self.context.db.connections_made

    async def figures(self) -> dict[str, float]:
        return await stats.figures(self.context)

    async def health(self) -> Health:
        return await upkeep.health(self.context)

    async def upkeep(
        self,
        limit: int = 1000,
        *,
        sweeps: Collection[SweepKind] = SWEEPS,
        policy: Retention = DEFAULT_RETENTION,
    ) -> Swept:
        pg = self.context
        check_limit(limit)
        return Swept(
            expired=await interventions.expire(pg, limit) if SweepKind.EXPIRE in sweeps else 0,
            rearmed=await schedules.rearm_schedules(pg, limit) if SweepKind.REARM in sweeps else 0,
            advanced=await runs.advance_runs(pg, limit) if SweepKind.ADVANCE in sweeps else 0,
            admitted=await gates.admit(pg, limit) if SweepKind.ADMIT in sweeps else 0,
            miscounts=await gates.recount_gates(pg) if SweepKind.RECOUNT in sweeps else (),
            folded=await stats.fold_stats(pg, limit) if SweepKind.FOLD in sweeps else Folded(),
            removed=await upkeep.retain(pg, policy) if SweepKind.RETAIN in sweeps else Removed(),
        )
