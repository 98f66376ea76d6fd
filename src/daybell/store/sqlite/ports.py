"""Ports of the SQLite store: an operation sends a function of a transaction to a connection."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar
from uuid import UUID

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.execution import Cancellation, Claimed, Enqueued, NewExecution
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.core.worker import Claim
from daybell.core.workflow.run import Plan
from daybell.errors import Unavailable
from daybell.store import run_driver
from daybell.store.sqlite import (
    admin,
    catalog,
    enqueue,
    gates,
    progress,
    queue,
    schedules,
    stats,
    transaction,
    upkeep,
    views,
    workers,
)
from daybell.store.sqlite import enqueue as enqueue_room
from daybell.store.sqlite import steps as steps_room
from daybell.store.sqlite.connection import Database
from daybell.store.sqlite.flow import limits
from daybell.store.sqlite.transaction import RunKey, Transaction
from daybell.store.sqlite.wakeups import Wakeups

P = ParamSpec("P")
R = TypeVar("R")


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


Room = Callable[Concatenate[Transaction, P], R]
Operation = Callable[Concatenate[SqlitePort, P], "CoroutineType[Any, Any, R]"]


def reads(function: Room[P, R]) -> Operation[P, R]:
    """Make a function of a transaction a reading operation of a port."""

    @wraps(function)
    async def call(port: SqlitePort, *args: P.args, **options: P.kwargs) -> R:
        return await port.db.read(lambda tx: function(tx, *args, **options))

    return call


def writes(function: Room[P, R]) -> Operation[P, R]:
    """Make a function of a transaction a writing operation of a port."""

    @wraps(function)
    async def call(port: SqlitePort, *args: P.args, **options: P.kwargs) -> R:
        return await port.db.write(lambda tx: function(tx, *args, **options))

    return call


def wakes(function: Room[P, R]) -> Operation[P, R]:
    """Make a function of a transaction an operation that may make executions claimable."""
    write = writes(function)

    @wraps(function)
    async def call(port: SqlitePort, *args: P.args, **options: P.kwargs) -> R:
        answer = await write(port, *args, **options)
        port.wakeups.wake()
        return answer

    return call


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
        """See the protocol. The store's thread reads the iterable, not the event loop.

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

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        answers, todo = await self.db.write(lambda tx: queue.cancel(tx, tenant, ids))
        await self._continue_runs(todo)
        return answers

    async def drain(self, tenant: str, worker: UUID) -> bool:
        is_drained = await self.db.write(lambda tx: workers.drain(tx, tenant, worker))
        self.wakeups.ask()
        return is_drained

    async def begin(self, worker: UUID) -> NoReturn:
        raise checks.no_transactions("in memory" if self.db.is_in_memory else "SQLite")

    report = writes(queue.report)
    revive = writes(queue.revive)
    discard = writes(queue.discard)
    register = writes(workers.register)
    renew = writes(workers.renew)
    renew_idle = writes(workers.renew_idle)
    release = writes(workers.release)
    retire = writes(workers.retire)
    record_sole = writes(workers.record_sole)
    lost = writes(workers.lost)
    read_traces = reads(enqueue_room.read_traces)
    write_log = writes(steps_room.write_log)


class SqliteSchedules(SqlitePort):
    """Implements `SchedulesPort`."""

    put_schedules = writes(schedules.put_schedules)
    delete_schedules = writes(schedules.delete_schedules)
    list_listeners = reads(steps_room.list_listeners)
    watched_files = reads(steps_room.watched_files)
    note_files = writes(steps_room.note_files)
    list_schedules = reads(schedules.list_schedules)
    list_job_schedules = reads(schedules.list_job_schedules)
    next_schedules = reads(schedules.next_schedules)
    due_schedules = reads(schedules.due_schedules)
    fire = wakes(schedules.fire)
    schedules_ahead = reads(schedules.schedules_ahead)
    turn_back = writes(schedules.turn_back)
    pause_job = writes(schedules.pause_by_name)
    resume_job = wakes(schedules.resume_job)
    list_ticks = reads(schedules.list_ticks)
    list_occurrences = reads(schedules.list_occurrences)
    dependents = reads(schedules.dependents)
    ended_since = reads(schedules.ended_since)
    upstream = reads(schedules.upstream)
    release_dependents = wakes(schedules.release)
    rule_out_dependents = writes(schedules.skip_dependents)


class SqliteRuns(SqlitePort):
    """Implements `RunsPort`."""

    async def expand(self, tenant: str, *, worker: UUID, claimed: Claimed, plan: Plan) -> bool:
        is_made, todo = await self.db.write(
            lambda tx: steps_room.expand(tx, tenant, worker, claimed, plan)
        )
        await self._continue_runs(todo)
        return is_made

    get_run = reads(steps_room.get_run)
    node_attempts = reads(steps_room.node_attempts)
    rerun = writes(steps_room.rerun)
    steps = reads(steps_room.list_steps)
    record = writes(steps_room.record)
    publish = writes(steps_room.publish)
    publish_many = writes(steps_room.publish_many)
    firing_events = reads(steps_room.firing_events)
    node_waits = reads(gates.node_waits)
    list_events = reads(steps_room.list_events)


class SqliteCatalog(SqlitePort):
    """Implements `CatalogPort`."""

    define_jobs = writes(catalog.define_jobs)
    launch = writes(catalog.launch)
    get_job = reads(catalog.get_job)
    get_jobs = reads(catalog.get_jobs)
    find_job = reads(catalog.find_job)
    list_jobs = reads(catalog.list_jobs)
    list_versions = reads(catalog.list_versions)
    delete_job = writes(catalog.delete_job)
    pause_queue = writes(catalog.pause_queue)
    list_limits = reads(limits.list_limits)
    change_limit = wakes(limits.change_limit)
    limit_wait = reads(limits.limit_wait)
    get_execution = reads(views.get_execution)
    list_executions = reads(views.list_executions)
    count_executions = reads(views.count_executions)
    estimate_executions = reads(views.estimate_executions)
    job_activity = reads(views.job_activity)
    job_ids = reads(views.job_ids)
    list_queues = reads(views.list_queues)
    get_position = reads(views.get_position)
    list_backlogs = reads(views.list_backlogs)
    list_demands = reads(workers.list_demands)
    activity = reads(views.activity)
    read_stats = reads(stats.read_stats)
    read_totals = reads(stats.read_totals)
    read_log = reads(steps_room.read_log)
    read_logs = reads(steps_room.read_logs)
    miscounts = reads(gates.miscounts)
    list_workers = reads(workers.list_workers)
    offers = reads(workers.list_offers)
    list_tenant_work = reads(workers.list_tenant_work)


class SqliteAdmin(SqlitePort):
    """Implements `AdminPort`."""

    add_tenant = writes(admin.add_tenant)
    get_tenant = reads(admin.get_tenant)
    list_tenants = reads(admin.list_tenants)
    set_quotas = writes(admin.set_quotas)
    add_key = writes(admin.add_key)
    add_session = writes(admin.add_session)
    find_key = reads(admin.find_key)
    has_keys = reads(admin.has_keys)
    list_keys = reads(admin.list_keys)
    revoke_key = writes(admin.revoke_key)
    touch_keys = writes(admin.touch_keys)
    set_secret = writes(admin.set_secret)
    list_secrets = reads(admin.list_secrets)
    delete_secret = writes(admin.delete_secret)
    fetch_secrets = reads(admin.fetch_secrets)
    put_record = writes(admin.put_record)
    get_record = reads(admin.get_record)
    list_records = reads(admin.list_records)
    delete_record = writes(admin.delete_record)
    alert_work = reads(admin.alert_work)
    list_incidents = reads(admin.list_incidents)
    move_incident = wakes(admin.move_incident)
    outbox_work = reads(admin.outbox_work)
    dispatch = wakes(admin.dispatch)
    write_audit = writes(transaction.write_audit)
    list_audit = reads(admin.list_audit)
    read_audit_chain = reads(admin.read_audit_chain)
    begin_request = writes(admin.begin_request)
    answer_request = writes(admin.answer_request)
    lead = writes(upkeep.lead)
    resign = writes(upkeep.resign)
    list_leaders = reads(upkeep.list_leaders)
