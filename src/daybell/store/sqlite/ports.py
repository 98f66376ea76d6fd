"""Ports of the SQLite store: an operation sends a function of a transaction to a connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from math import inf
from typing import NoReturn, Self
from uuid import UUID

from msgspec.structs import asdict

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
    NewSession,
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
    check_event,
    check_steps,
)
from daybell.core.event import check_cursor as check_event_cursor
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
from daybell.core.limits import CLAIM_BATCH_MAX, PAGE_ITEMS_MAX, check_labels, check_name
from daybell.core.references import check_secret_name
from daybell.core.schedule import (
    Dependents,
    Due,
    Ended,
    Firing,
    NewSchedule,
    Occurrence,
    Schedule,
    ScheduleRewind,
    TickRecord,
    Upstream,
)
from daybell.core.stats import StatQuery, StatRows
from daybell.core.units import Instant, Seconds
from daybell.core.views import (
    ALL_JOBS,
    Activity,
    Counts,
    ExecutionFilter,
    JobFilter,
    Miscount,
    Page,
    Queue,
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
from daybell.errors import Unavailable
from daybell.store import run_driver
from daybell.store.sqlite import (
    admin,
    catalog,
    enqueue,
    gates,
    progress,
    queue,
    stats,
    transaction,
    upkeep,
    views,
    workers,
)
from daybell.store.sqlite import schedules as schedules_room
from daybell.store.sqlite import steps as steps_room
from daybell.store.sqlite.connection import (
    Database,
)
from daybell.store.sqlite.transaction import RunKey
from daybell.store.sqlite.wakeups import Wakeups


class SqlitePort:
    """A port: operations on one database, audited or not."""

    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self.db = db
        self.wakeups = wakeups

    def over(self, db: Database) -> Self:
        """Return the same port on another view of the database."""
        port = copy(self)
        port.db = db
        return port

    async def _continue_runs(self, runs: Iterable[RunKey]) -> None:
        """Continue runs, each in transactions of its own, and the runs that these have to continue.

        A run gets only so many parts; upkeep continues the rest. The caller's operation is
        committed, so an error here is not reported to the caller: upkeep continues then, too.
        """
        todo = dict.fromkeys(runs)
        done: Counter[RunKey] = Counter()  # parts of each run
        with suppress(Unavailable):
            while todo:
                key = next(iter(todo))
                del todo[key]
                parts = min(progress.TOGETHER, run_driver.ADVANCE_ROUNDS - done[key])
                if parts > 0:
                    done[key] += parts
                    todo |= dict.fromkeys(await self._continue_run(key, parts))

    def _continue_run(self, key: RunKey, parts: int) -> asyncio.Future[list[RunKey]]:
        return self.db.write(lambda tx: progress.continue_run(tx, key, parts))


class SqliteQueue(SqlitePort):
    """Implements `QueuePort`."""

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        del repeat  # finished ids are recognised anyway: they are in the same table
        for entry in entries:
            checks.check_entry(entry)
        answers = await self.db.write(lambda tx: enqueue.enqueue(tx, tenant, executions, entries))
        self.wakeups.wake()
        return answers

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        """See the protocol. The iterable is read by the store's thread, not by the event loop.

        All other writers wait until it is done. Those of other processes give up after a minute:
        split loads that take longer.
        """
        count = await self.db.write(lambda tx: enqueue.load(tx, tenant, executions), is_alone=True)
        self.wakeups.wake()
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
        return await self.db.write(
            lambda tx: queue.claim(tx, tenant, worker, lease, queues, kinds, limit)
        )

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        del wait  # there are no locks on rows here
        verdicts, todo = await self.db.write(
            lambda tx: queue.apply(tx, tenant, worker, transitions)
        )
        if todo:
            await self._continue_runs(todo)
        return verdicts

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        return await self.db.write(
            lambda tx: queue.report(tx, tx.names.tenant(tx, tenant), worker.bytes, reports)
        )

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        answers, todo = await self.db.write(lambda tx: queue.cancel(tx, tenant, ids))
        await self._continue_runs(todo)
        return answers

    async def revive(self, tenant: str, ids: Sequence[UUID]) -> list[Revival]:
        return await self.db.write(lambda tx: queue.revive(tx, tenant, ids))

    async def discard(self, tenant: str, ids: Sequence[UUID]) -> list[bool]:
        return await self.db.write(lambda tx: queue.discard(tx, tenant, ids))

    async def begin(self, worker: UUID) -> NoReturn:
        raise checks.no_transactions("in memory" if self.db.is_in_memory else "SQLite")

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        check_name(worker.name, what="worker")
        check_labels(worker.labels)
        return await self.db.write(lambda tx: workers.register(tx, tenant, worker, lease, replaces))

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        return await self.db.write(lambda tx: workers.renew(tx, tenant, worker, lease, leases))

    async def drain(self, tenant: str, worker: UUID) -> bool:
        is_drained = await self.db.write(
            lambda tx: workers.drain(tx, tx.names.tenant(tx, tenant), worker)
        )
        self.wakeups.ask()
        return is_drained

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        return await self.db.write(lambda tx: workers.release(tx, tenant, worker, leases))

    async def retire(self, tenant: str, worker: UUID) -> None:
        await self.db.write(lambda tx: workers.retire(tx, tx.names.tenant(tx, tenant), worker))

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        return await self.db.write(
            lambda tx: workers.record_sole(tx, tx.names.tenant(tx, tenant), worker, execution)
        )

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        checks.check_limit(limit)
        return await self.db.write(
            lambda tx: workers.lost(tx, limit, since, not_after, record_every)
        )

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        await self.db.write(lambda tx: steps_room.write_log(tx, tenant, worker, parts))


class SqliteSchedules(SqlitePort):
    """Implements `SchedulesPort`."""

    async def put_schedules(self, tenant: str, schedules: Sequence[NewSchedule]) -> None:
        await self.db.write(lambda tx: schedules_room.put_schedules(tx, tenant, schedules))

    async def delete_schedules(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await self.db.write(lambda tx: schedules_room.delete_schedules(tx, tenant, ids))

    async def list_schedules(
        self,
        tenant: str,
        *,
        ids: Collection[UUID] | None = None,
        job: str | None = None,
        after: UUID | None = None,
        limit: int = 1000,
    ) -> list[Schedule]:
        checks.check_limit(limit)
        return await self.db.read(
            lambda tx: schedules_room.list_schedules(tx, tenant, ids, job, after, limit)
        )

    async def list_job_schedules(
        self, tenant: str, job: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Schedule]:
        checks.check_limit(limit)
        after = checks.check_schedule_cursor(cursor)
        return await self.db.read(
            lambda tx: schedules_room.list_job_schedules(tx, tenant, job, limit, after)
        )

    async def due_schedules(
        self, *, limit: int = 1000, free: bool = False, after: Schedule | None = None
    ) -> Due:
        checks.check_limit(limit)  # `free` has no effect: no transaction holds a schedule for long
        return await self.db.read(lambda tx: schedules_room.due_schedules(tx, limit, after))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        answers = await self.db.write(lambda tx: schedules_room.fire(tx, firings))
        self.wakeups.wake()
        return answers

    async def schedules_ahead(
        self, *, by: Seconds, limit: int = 1000, after: UUID | None = None
    ) -> Due:
        checks.check_limit(limit)
        return await self.db.read(lambda tx: schedules_room.schedules_ahead(tx, by, limit, after))

    async def turn_back(self, turns: Sequence[ScheduleRewind]) -> list[bool]:
        return await self.db.write(lambda tx: schedules_room.turn_back(tx, turns))

    async def pause_job(self, tenant: str, name: str, *, note: str = "") -> None:
        await self.db.write(lambda tx: schedules_room.pause_by_name(tx, tenant, name, note))

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        await self.db.write(lambda tx: schedules_room.resume_job(tx, tenant, name, firings))
        self.wakeups.wake()

    async def list_ticks(
        self, tenant: str, schedule: UUID, *, limit: int = 100, before: Instant | None = None
    ) -> list[TickRecord]:
        checks.check_limit(limit)
        return await self.db.read(
            lambda tx: schedules_room.list_ticks(tx, tenant, schedule, limit, before)
        )

    async def list_occurrences(
        self, tenant: str, schedule: UUID, *, since: Instant, until: Instant, limit: int = 10_000
    ) -> list[Occurrence]:
        checks.check_limit(limit, most=checks.OCCURRENCES_MAX)
        return await self.db.read(
            lambda tx: schedules_room.list_occurrences(tx, tenant, schedule, (since, until), limit)
        )

    async def dependents(self, *, limit: int = 1000, after: UUID | None = None) -> Dependents:
        checks.check_limit(limit)
        return await self.db.read(lambda tx: schedules_room.dependents(tx, limit, after))

    async def ended_since(
        self, tenant: str, jobs: Sequence[tuple[str, Instant]], *, thoroughly: bool = False
    ) -> list[Ended]:
        return await self.db.read(
            lambda tx: [
                schedules_room.ended_since(tx, tenant, *one, thoroughly=thoroughly) for one in jobs
            ]
        )

    async def upstream(self, tenant: str, jobs: Sequence[tuple[str, Instant]]) -> list[Upstream]:
        return await self.db.read(
            lambda tx: [schedules_room.upstream(tx, tenant, *one) for one in jobs]
        )

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        count = await self.db.write(lambda tx: schedules_room.release(tx, tenant, ids))
        self.wakeups.wake()
        return count

    async def rule_out_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        return await self.db.write(lambda tx: schedules_room.skip_dependents(tx, tenant, ids))


class SqliteRuns(SqlitePort):
    """Implements `RunsPort`."""

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        is_made, todo = await self.db.write(
            lambda tx: steps_room.expand(tx, tenant, worker, claimed, plan)
        )
        await self._continue_runs(todo)
        return is_made

    async def get_run(self, tenant: str, id: UUID) -> RunDetail | None:
        return await self.db.read(
            lambda tx: steps_room.get_run(tx, tx.names.tenant(tx, tenant), id)
        )

    async def node_attempts(
        self, tenant: str, id: UUID, *, limit: int = 20
    ) -> dict[UUID, tuple[AttemptSpan, ...]]:
        checks.check_limit(limit)
        return await self.db.read(
            lambda tx: steps_room.node_attempts(tx, tx.names.tenant(tx, tenant), id, limit)
        )

    async def rerun(
        self, tenant: str, id: UUID, new: NewExecution, *, labels: Sequence[str] | None = None
    ) -> Enqueued:
        return await self.db.write(lambda tx: steps_room.rerun(tx, tenant, id, new, labels))

    async def steps(self, tenant: str, id: UUID) -> list[Step]:
        return await self.db.read(lambda tx: steps_room.list_steps(tx, tenant, id))

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        check_steps(steps)
        return await self.db.write(lambda tx: steps_room.record(tx, tenant, worker, steps))

    async def publish(self, tenant: str, event: NewEvent) -> Published:
        check_event(event)
        return await self.db.write(
            lambda tx: steps_room.publish(tx, tx.names.tenant(tx, tenant), event)
        )

    async def node_waits(
        self, tenant: str, run: UUID, *, event: NewEvent | None = None, limit: int = 1000
    ) -> list[NodeWait]:
        checks.check_limit(limit)
        return await self.db.read(
            lambda tx: gates.waits_of_nodes(tx, tx.names.tenant(tx, tenant), run, event, limit)
        )

    async def list_events(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Event]:
        checks.check_limit(limit)
        before = check_event_cursor(cursor)
        return await self.db.read(
            lambda tx: steps_room.list_events(tx, tx.names.tenant(tx, tenant), limit, before)
        )


class SqliteCatalog(SqlitePort):
    """Implements `CatalogPort`."""

    async def define_jobs(self, tenant: str, jobs: Sequence[NewJob]) -> list[Job]:
        return await self.db.write(lambda tx: catalog.define_jobs(tx, tenant, jobs))

    async def launch(
        self, tenant: str, job: NewJob, execution: NewExecution
    ) -> tuple[Job, Enqueued]:
        return await self.db.write(lambda tx: catalog.launch(tx, tenant, job, execution))

    async def get_job(self, tenant: str, name: str, *, version: int | None = None) -> Job:
        return await self.db.read(lambda tx: catalog.get_job(tx, tenant, name, version))

    async def find_job(self, tenant: str, id: UUID, *, or_deleted: bool = False) -> Job:
        return await self.db.read(lambda tx: catalog.find_job(tx, tenant, id, or_deleted))

    async def list_jobs(
        self,
        tenant: str,
        where: JobFilter = ALL_JOBS,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Job]:
        checks.check_limit(limit)
        checks.check_job_filter(where, cursor)
        return await self.db.read(lambda tx: catalog.list_jobs(tx, tenant, where, limit, cursor))

    async def list_versions(
        self, tenant: str, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Job]:
        checks.check_limit(limit)
        before = checks.check_version(cursor)
        return await self.db.read(lambda tx: catalog.list_versions(tx, tenant, name, limit, before))

    async def delete_job(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        await self.db.write(lambda tx: catalog.delete_job(tx, tenant, name, expect))

    async def pause_queue(self, tenant: str, queue: str, *, paused: bool) -> None:
        check_name(queue, what="queue")
        await self.db.write(lambda tx: catalog.pause_queue(tx, tenant, queue, paused))

    async def get_execution(self, tenant: str, id: UUID) -> ExecutionDetail:
        return await self.db.read(lambda tx: views.get_execution(tx, tenant, id))

    async def list_executions(
        self, tenant: str, where: ExecutionFilter, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Execution]:
        checks.check_limit(limit)
        after = checks.check_cursor(cursor)
        return await self.db.read(lambda tx: views.list_executions(tx, tenant, where, limit, after))

    async def count_executions(self, tenant: str, where: ExecutionFilter) -> Counts:
        return await self.db.read(lambda tx: views.count_executions(tx, tenant, where))

    async def job_activity(self, tenant: str, names: Sequence[str]) -> dict[str, JobActivity]:
        checks.check_names(names)
        return await self.db.read(lambda tx: views.job_activity(tx, tenant, names))

    async def job_ids(self, tenant: str, names: Sequence[str]) -> dict[str, UUID]:
        checks.check_names(names)
        return await self.db.read(lambda tx: views.job_ids(tx, tenant, names))

    async def list_queues(self, tenant: str) -> list[Queue]:
        return await self.db.read(lambda tx: views.list_queues(tx, tenant))

    async def activity(self, tenant: str, *, since: Activity | None = None) -> Activity:
        return await self.db.read(lambda tx: views.activity(tx, tenant, since))

    async def read_stats(self, tenant: str, query: StatQuery, *, with_unfinished: bool) -> StatRows:
        return await self.db.read(
            lambda tx: stats.read_stats(tx, tenant, query, with_unfinished=with_unfinished)
        )

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        checks.check_limit(limit, most=PAGE_ITEMS_MAX)
        return await self.db.read(lambda tx: steps_room.read_log(tx, tenant, id, after, limit))

    async def miscounts(self) -> list[Miscount]:
        return [one for _, one in await self.db.read(gates.miscounts)]

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        return await self.db.read(lambda tx: workers.list_workers(tx, tenant, include_dead))

    async def offers(self, tenant: str) -> list[Offer]:
        return await self.db.read(lambda tx: workers.list_offers(tx, tenant))


class SqliteAdmin(SqlitePort):
    """Implements `AdminPort`."""

    async def add_tenants(self, names: Sequence[str]) -> tuple[str, ...]:
        wanted = sorted({check_name(name, what="tenant") for name in names})
        return await self.db.write(lambda tx: catalog.add_tenants(tx, wanted))

    async def list_tenants(self) -> tuple[str, ...]:
        return await self.db.read(catalog.list_tenants)

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        checks.check_quotas(asdict(quotas))
        checked = check_name(name, what="tenant")
        return await self.db.write(lambda tx: admin.add_tenant(tx, checked, quotas))

    async def get_tenant(self, name: str) -> Tenant:
        return await self.db.read(lambda tx: admin.get_tenant(tx, name))

    async def list_tenant_records(self) -> list[Tenant]:
        return await self.db.read(admin.list_tenant_records)

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        checks.check_quotas(changes)
        return await self.db.write(lambda tx: admin.set_quotas(tx, tenant, changes))

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        checks.check_new_key(key)
        return await self.db.write(lambda tx: admin.add_key(tx, tenant, key))

    async def add_session(self, tenant: str, digest: bytes, session: NewSession) -> Key:
        return await self.db.write(lambda tx: admin.add_session(tx, tenant, digest, session))

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        return await self.db.read(lambda tx: admin.find_key(tx, digest))

    async def has_keys(self) -> bool:
        return await self.db.read(admin.has_keys)

    async def list_keys(self, tenant: str) -> list[Key]:
        return await self.db.read(lambda tx: admin.list_keys(tx, tenant))

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        return await self.db.write(lambda tx: admin.revoke_key(tx, tenant, id))

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        ages = {id.bytes: age for id, age in used.items()}
        await self.db.write(lambda tx: admin.touch_keys(tx, ages))

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        checks.check_secret(secret)
        return await self.db.write(lambda tx: admin.set_secret(tx, tenant, secret))

    async def list_secrets(self, tenant: str) -> list[Secret]:
        return await self.db.read(lambda tx: admin.list_secrets(tx, tenant))

    async def delete_secret(self, tenant: str, name: str) -> None:
        check_secret_name(name)
        await self.db.write(lambda tx: admin.delete_secret(tx, tenant, name))

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        return await self.db.read(lambda tx: admin.fetch_secrets(tx, tenant, names))

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        text = checks.check_template(template, author)
        return await self.db.write(
            lambda tx: admin.set_template(tx, tenant, template.name, text, author, expect)
        )

    async def get_template(self, tenant: str, name: str) -> Template:
        check_name(name, what="template")
        return await self.db.read(lambda tx: admin.get_template(tx, tenant, name))

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        checks.check_limit(limit)
        after = checks.check_name_cursor(cursor)
        return await self.db.read(lambda tx: admin.list_templates(tx, tenant, limit, after))

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        check_name(name, what="template")
        await self.db.write(lambda tx: admin.delete_template(tx, tenant, name, expect))

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        for entry in entries:
            checks.check_entry(entry)
        await self.db.write(lambda tx: transaction.record_entries(tx, tenant, entries))

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        checks.check_limit(limit)
        last = checks.check_cursor(cursor)
        return await self.db.read(lambda tx: admin.list_entries(tx, tenant, where, limit, last))

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        return await self.db.read(lambda tx: admin.read_stretch(tx, tenant, after, limit))

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        checks.check_request(request)
        return await self.db.write(lambda tx: admin.begin_request(tx, tenant, request))

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        await self.db.write(lambda tx: admin.answer_request(tx, tenant, key, status, answer))

    async def lead(
        self, name: str, *, holder: UUID, lease: Seconds, since: Instant | None = None
    ) -> Leadership | None:
        return await self.db.write(lambda tx: upkeep.lead(tx, name, holder, lease, since))

    async def resign(self, name: str, *, holder: UUID) -> None:
        await self.db.write(lambda tx: upkeep.resign(tx, name, holder))

    async def list_leaders(self) -> list[Leadership]:
        return await self.db.read(upkeep.list_leaders)
