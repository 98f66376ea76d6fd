"""The client of a store: a tenant's jobs, executions, queues and workers, as verbs.

An operation is a function over a `ClientContext`, in the module of its room. It reads its arguments
as users write them, checks them, and calls the store. It repeats a call with a lost answer once,
under the same ids, so that its effect happens exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, Unpack, cast
from uuid import UUID

import msgspec

from daybell.client import (
    admin,
    answers,
    declarations,
    job_checks,
    retries,
    runs,
    when,
    wire,
)
from daybell.client import alerts as alert_room
from daybell.client import backfill as backfill_room
from daybell.client import events as event_room
from daybell.client import executions as execution_room
from daybell.client import hooks as hook_room
from daybell.client import jobs as job_room
from daybell.client import limits as limit_room
from daybell.client import logs as log_room
from daybell.client import schedules as schedule_room
from daybell.client import stats as stats_room
from daybell.client import subscriptions as subscription_room
from daybell.client import workers as worker_room
from daybell.client.answers import all_of, answering, page_of
from daybell.client.context import ClientContext
from daybell.client.explain import executions as explain_room
from daybell.client.explain import jobs as explain_jobs
from daybell.client.explain import queues as explain_queues
from daybell.client.requests import EnqueueOptions, Filters, Id, copies, read_pattern
from daybell.core.access import Scope
from daybell.core.execution import Enqueued, Execution, NewExecution
from daybell.core.job import DEFAULT_TENANT, Job
from daybell.core.limits import (
    ENQUEUE_BATCH_MAX,
    PAGE_ITEMS_DEFAULT,
    POOL_SIZE,
    check_key,
    check_name,
)
from daybell.core.monitoring import observers
from daybell.core.options import Arguments, JobFields
from daybell.core.units import Seconds
from daybell.core.views import Page
from daybell.core.worker import LEASE_SECONDS
from daybell.errors import UsageError
from daybell.store.open import as_postgres, load_postgres, store_for
from daybell.store.protocol import Store
from daybell.store.scope import ScopedStore

if TYPE_CHECKING:
    from daybell.store.postgres.transactions import SqlCall


class Client(ClientContext):
    """A tenant's jobs, executions, queues and workers, in one store.

    Made from a URL, it opens its store on entry and closes it on exit; `migrate=True` brings the
    schema up to date first. A store that is passed in belongs to its opener. The timeouts of
    connections follow from `lease`, that of the workers.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        tenant: str = DEFAULT_TENANT,
        migrate: bool = False,
        listen_url: str | None = None,
        secrets_key: str | None = None,
        lease: Seconds = LEASE_SECONDS,
        pool_size: int = POOL_SIZE,
    ) -> None:
        check_name(tenant, what="tenant")
        self._is_owner = isinstance(store, str)
        place = "this store"
        if isinstance(store, str):
            place = explain_room.describe_store(store)
            store = store_for(store, listen_url=listen_url, lease=lease, pool_size=pool_size)
        super().__init__(store, tenant=tenant, place=place, secrets_key=secrets_key)
        self._migrates = migrate
        self._others: dict[str, Client] = {}

    async def __aenter__(self) -> Self:
        try:
            if self._migrates:
                await self.store.migrate()
            if self._is_owner:
                await self.store.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._is_owner:
            await self.store.close()

    def for_tenant(self, tenant: str) -> Client:
        """Return a client for another tenant of the same store."""
        if tenant not in self._others:
            other = Client(self.store, tenant=tenant, secrets_key=self.secrets_key)
            other.on_wait, other.place = self.on_wait, self.place
            other.known_job_ids, other.last_overviews = self.known_job_ids, self.last_overviews
            self._others[tenant] = other
        return self._others[tenant]

    def within(self, scope: Scope) -> Client:
        """Return a client that sees and changes only the jobs and queues of a scope."""
        store = cast("Store", ScopedStore(self.store, scope))
        scoped = Client(store, tenant=self.tenant, secrets_key=self.secrets_key)
        scoped.known_job_ids = self.known_job_ids
        if not scope.limits_names:
            scoped.last_overviews = self.last_overviews
        return scoped

    # The store.

    pending_migrations = admin.pending_migrations
    migrate = admin.migrate
    check_ready = admin.check_ready

    # Executions.

    async def execution(self, id: Id) -> wire.ExecutionDetail:
        """An execution, with its ended attempts, its steps or nodes, and its timeline."""
        found = await event_room.story(self, id)
        job = found.detail.execution.job
        return answers.detail(found, (await self.job_ids([job]))[job])

    async def executions(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        sort: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[wire.Execution]:
        """Executions, newest first. A status is a state, or "pending": not started, not ended.

        A page of a search by content (`args`, `unique_key`, `error`, `ended_since`, `ended_until`)
        may be short or empty, and its cursor continues the search. `sort` is created, started,
        ended or duration; -duration has the longest first. It reads all that match, 5,000 at most.
        """
        page = await execution_room.executions(
            self, limit=limit, cursor=cursor, sort=sort, **filters
        )
        return await self._answer_page(page)

    async def dead_letters(
        self,
        *,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
        **filters: Unpack[Filters],
    ) -> Page[wire.Execution]:
        """Dead letters, newest first."""
        return await self._answer_page(
            await execution_room.dead_letters(self, limit=limit, cursor=cursor, **filters)
        )

    async def dead_letter_groups(
        self, *, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> Page[wire.DeadLetterGroup]:
        """Dead letters by job and fingerprint of the error, the largest group first. One call reads
        1,000 letters; with a cursor, the groups of the next page add to these.
        """
        found = await execution_room.dead_letter_groups(self, cursor=cursor, **filters)
        return answers.dead_letter_groups(
            found, await self.job_ids({one.job for one in found.items})
        )

    async def _answer_page(self, page: Page[Execution]) -> Page[wire.Execution]:
        ids = await self.job_ids(one.job for one in page.items)
        items = tuple(answers.executions(page.items, ids))
        return Page(items=items, next_cursor=page.next_cursor)

    why = answering(explain_room.why, answers.why)
    signature = job_room.signature
    why_job = answering(explain_jobs.why_job, answers.job_why)
    why_queue = answering(explain_queues.why_queue, answers.queue_why)
    enqueue = execution_room.enqueue
    enqueue_many = execution_room.enqueue_many
    submit = execution_room.submit
    submit_many = execution_room.submit_many
    where = execution_room.where
    count = answering(execution_room.count, answers.state_counts)
    estimate = execution_room.estimate
    cancel = execution_room.cancel
    cancel_picked = execution_room.cancel_picked
    cancel_many = execution_room.cancel_many
    count_cancellable = execution_room.count_cancellable
    count_dead_letters = execution_room.count_dead_letters
    discard = execution_room.discard
    discard_dead_letters = execution_room.discard_dead_letters
    retry_dead_letters = execution_room.retry_dead_letters
    log = log_room.log
    log_parts = log_room.log_parts
    search_logs = answering(log_room.search_logs, page_of(answers.found_line))

    retry = retries.retry
    retry_picked = retries.retry_picked
    retry_many = retries.retry_many
    count_retryable = retries.count_retryable

    # Jobs and templates.

    define = answering(job_room.define, answers.job_version)
    define_jobs = job_room.define_jobs
    declared = job_room.declared

    async def create(
        self,
        name: str,
        *,
        author: str = "",
        id: UUID | None = None,
        **fields: Unpack[JobFields],
    ) -> wire.Job:
        """Create a job. One of `task`, `command`, `http`, `sql`, `notify`, `workflow` and
        `template` is its work; without a schedule it runs when it is triggered.

        An option of a task that is not named is as in the task's own job; its schedules and
        arguments are not taken over. A name that exists is refused, unless it has the `id` that the
        caller chose: then it is the same request again.
        """
        made = await job_room.create(self, name, author=author, id=id, **fields)
        return await self.standing(made.name)

    async def update(
        self, name: str, *, author: str = "", expect: int | None = None, **fields: Unpack[JobFields]
    ) -> wire.Job:
        """Change options of a job; all others stay. Return its new version.

        `core.options` has the merge rule of each option. Code that has an older definition of the
        job does not change it back. With `expect`, it must be at that version.
        """
        await job_room.update(self, name, author=author, expect=expect, **fields)
        return await self.standing(name)

    async def rollback(
        self, name: str, version: int, *, author: str = "", expect: int | None = None
    ) -> wire.Job:
        """Make an older version of a job current again, as a new version, with the schedules that
        it declared, from now on; schedules made at run time stay.

        With `expect`, it must be at that version.
        """
        await job_room.rollback(self, name, version, author=author, expect=expect)
        return await self.standing(name)

    delete_job = job_room.delete_job
    job = answering(job_room.job, answers.job_version)
    job_named = answering(job_room.job_named, answers.job_version)
    jobs = answering(schedule_room.standings_page, page_of(answers.job))

    async def versions_page(
        self, name: str, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[wire.ListedVersion]:
        """Return versions of a job, newest first, each with its changes since the one before it."""
        page = await job_room.versions_page(self, name, limit=limit, cursor=cursor)
        before = list[Job | None](page.items[1:])
        if page.items:
            before.append(await job_room.previous_version(self, page.items[-1]))
        pairs = zip(page.items, before, strict=True)
        items = tuple(answers.listed_version(one, older) for one, older in pairs)
        return Page(items=items, next_cursor=page.next_cursor)

    make_job = job_room.make_job
    change_job = job_room.change_job
    resolve = job_room.resolve

    async def launch(
        self,
        name: str,
        run: NewExecution,
        *,
        author: str = "",
        id: UUID | None = None,
        **fields: Unpack[JobFields],
    ) -> wire.Job:
        """Make a job without a schedule as `create` does, and have it run: both or neither."""
        _, made = await job_room.launch(self, name, run, author=author, id=id, **fields)
        return answers.job(await schedule_room.standing(self, name), execution_id=made.id)

    async def apply_job(
        self,
        name: str,
        *,
        author: str = "",
        expect: int | None = None,
        dry_run: bool = False,
        **fields: Unpack[JobFields],
    ) -> wire.AppliedJob:
        """Make a job match this declaration exactly. Without a schedule the job never starts by
        itself. A job that already matches stays unchanged.

        With `expect`, the job must be at that version; 0 requires a new name. A job that code
        defines is refused.
        """
        made = await declarations.apply_job(
            self, name, author=author, expect=expect, dry_run=dry_run, **fields
        )
        there = None if made.job is None else await schedule_room.standing(self, name)
        return answers.applied(made, there)

    plan_job = declarations.plan_job
    make_planned = declarations.make_planned
    warnings = declarations.warnings
    set_template = answering(declarations.set_template, answers.template)
    template = answering(declarations.template, answers.template)
    templates = answering(declarations.templates, all_of(answers.template))
    templates_page = answering(declarations.templates_page, page_of(answers.template))
    delete_template = declarations.delete_template

    note_params = job_checks.note_params
    params_of = job_checks.params_of
    check_calls = job_checks.check_calls
    checked_calls = job_checks.checked_calls

    # Schedules.

    schedule = answering(schedule_room.schedule, answers.schedule)
    schedule_many = answering(schedule_room.schedule_many, all_of(answers.schedule))
    unschedule = schedule_room.unschedule
    schedules = answering(schedule_room.schedules, all_of(answers.schedule))
    next_schedules = answering(when.next_schedules, all_of(answers.schedule))
    upcoming = answering(when.upcoming, page_of(answers.calendar_entry))
    schedules_page = answering(schedule_room.schedules_page, page_of(answers.schedule))
    pause = schedule_room.pause
    resume = schedule_room.resume
    trigger = schedule_room.trigger
    backfill = answering(backfill_room.backfill, answers.backfill)
    standing = answering(schedule_room.standing, answers.job)
    job_ids = schedule_room.job_ids
    abandoned = schedule_room.abandoned

    held_up_by = when.held_up_by

    # Workflow runs, events and steps.

    run_of = runs.run_of
    rerun = runs.rerun
    rerun_as = runs.rerun_as
    rerun_cancelled = runs.rerun_cancelled

    publish = event_room.publish
    publish_many = event_room.publish_many
    signal = event_room.signal
    approve = event_room.approve
    send = event_room.send
    keep = event_room.keep
    keep_many = event_room.keep_many
    addressed = event_room.addressed

    create_hook = answering(hook_room.create_hook, answers.new_hook)
    hooks = answering(hook_room.hooks, all_of(answers.hook))
    rotate_hook = answering(hook_room.rotate_hook, answers.new_hook)
    revoke_hook = answering(hook_room.revoke_hook, answers.hook)

    events = answering(event_room.events, page_of(answers.event))

    # Queues and workers.

    limits = answering(limit_room.limits, all_of(answers.limit))
    limit = answering(limit_room.limit, answers.limit)
    set_limit = answering(limit_room.set_limit, answers.limit)
    pause_limit = answering(limit_room.pause_limit, answers.limit)
    resume_limit = answering(limit_room.resume_limit, answers.limit)

    queues = answering(worker_room.queues, all_of(answers.queue))
    pause_queue = worker_room.pause_queue
    resume_queue = worker_room.resume_queue
    purge_queue = worker_room.purge_queue
    workers = answering(worker_room.workers, all_of(answers.worker))
    drain_worker = worker_room.drain_worker
    leaders = answering(worker_room.leaders, all_of(answers.leader))

    async def stats(self) -> wire.Stats:
        """Return queues, workers, the last dead letters, and rates since the last overview."""
        seen = await worker_room.look(self)
        return answers.stats(seen, await self.job_ids(one.job for one in seen.letters))

    series = stats_room.series
    job_stats = stats_room.job_stats

    # Alerts.

    set_alert = alert_room.set_alert
    alert = alert_room.alert
    alerts = alert_room.alerts
    alerts_page = alert_room.alerts_page
    delete_alert = alert_room.delete_alert
    silence_alert = alert_room.silence_alert
    test_alert = alert_room.test_alert
    incidents = alert_room.incidents
    acknowledge_incident = alert_room.acknowledge_incident

    # Subscriptions to outgoing events.

    create_subscription = subscription_room.create_subscription
    update_subscription = subscription_room.update_subscription
    subscription = subscription_room.subscription
    subscriptions = subscription_room.subscriptions
    subscriptions_page = subscription_room.subscriptions_page
    delete_subscription = subscription_room.delete_subscription
    test_subscription = subscription_room.test_subscription

    export_policies = admin.export_policies
    hold_export = admin.hold_export
    release_export = admin.release_export

    # Keys, tenants, the audit log, requests and secrets.

    create_key = answering(admin.create_key, answers.new_key)
    create_login = answering(admin.create_login, answers.new_key)
    open_session = admin.open_session
    keys = answering(admin.keys, all_of(answers.key))
    revoke_key = answering(admin.revoke_key, answers.key)
    authenticate = admin.authenticate
    has_keys = admin.has_keys
    note_use = admin.note_use
    tenants = answering(admin.tenants, all_of(answers.tenant))
    tenant_record = answering(admin.tenant_record, answers.tenant)
    ensure_tenant = admin.ensure_tenant
    add_tenant = answering(admin.add_tenant, answers.tenant)
    update_tenant = answering(admin.update_tenant, answers.tenant)
    audit = answering(admin.audit, page_of(answers.audit_entry))
    verify_audit = answering(admin.verify_audit, answers.audit_check)
    record = admin.record
    begin_request = admin.begin_request
    answer_request = admin.answer_request
    set_secret = answering(admin.set_secret, answers.secret)
    reseal_secret = admin.reseal_secret
    secrets = answering(admin.secrets, all_of(answers.secret))
    delete_secret = admin.delete_secret


class BorrowedConnection:
    """A connection of the caller, and enqueueing inside its transaction."""

    def __init__(self, connection: Any, *, is_async: bool) -> None:
        postgres = load_postgres()
        postgres.transactions.check_connection(connection, is_async=is_async)
        self._connection = connection
        self._transactions = postgres.transactions

    async def prepare(
        self,
        client: Client,
        job: str,
        args: Iterable[Arguments],
        *,
        unique_key: str | None = None,
        parent: UUID | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> SqlCall:
        """Check one execution per item as any enqueue does, and make its queue known to the store.

        That is done over the client's own connection and committed. In the caller's transaction a
        new queue would keep others waiting until it ends.
        """
        store = as_postgres(client.store)
        if store is None:
            raise UsageError(
                "connection= needs the PostgreSQL store, in the database that the connection is to;"
                f" this app keeps its executions in a {type(client.store).__name__}",
                field="connection",
            )
        pattern = read_pattern(job, **options)
        if pattern.force:
            raise UsageError(
                "force is not available with connection=; enqueue it outside of the transaction",
                field="force",
            )
        executions = list(islice(copies(pattern, args), ENQUEUE_BATCH_MAX + 1))
        if len(executions) > ENQUEUE_BATCH_MAX:
            raise UsageError(
                f"more than {ENQUEUE_BATCH_MAX:,} executions at once; with a connection, call it"
                " several times in the same transaction",
                field="items",
            )
        await store.queue.resolve(client.tenant, [pattern])
        if observers.are_traced():
            with observers.enqueueing([pattern]) as (pattern,):
                pass  # the transaction of the caller is not over when this ends
        return self._transactions.SqlCall(
            job=job,
            args=[execution.args for execution in executions],
            options=_call_options(pattern, unique_key, client.tenant),
            parent=None if parent is None else str(parent),
        )

    async def send(self, call: SqlCall) -> list[Enqueued]:
        """Enqueue in the caller's transaction, over an asynchronous connection."""
        return await self._transactions.send(self._connection, call)

    def send_sync(self, call: SqlCall) -> list[Enqueued]:
        """Enqueue in the caller's transaction, over a connection of the calling thread."""
        return self._transactions.send_sync(self._connection, call)


def _call_options(pattern: NewExecution, unique_key: str | None, tenant: str) -> str:
    """Return the options as `daybell.enqueue` takes them, without those that were not given."""
    options = {
        "tenant": tenant,
        "delay": pattern.delay,
        "at": pattern.at,
        "expires": pattern.expires_in,
        "priority": pattern.priority,
        "queue": pattern.queue,
        "unique_key": None if unique_key is None else check_key(unique_key),
        "retries": pattern.retries,
        "timeout": pattern.timeout,
        "cache": "refresh" if pattern.refresh else None,
        "traceparent": pattern.trace,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return msgspec.json.encode(given).decode()
