"""The client of a server instead of a database: the same operations over HTTP."""

from __future__ import annotations

from typing import Self, TypeAlias

from daybell.client.client import Client
from daybell.client.remote import admin
from daybell.client.remote import executions as execution_room
from daybell.client.remote import jobs as job_room
from daybell.client.remote.transport import RemoteContext, Transport
from daybell.core.limits import check_name


class RemoteClient(RemoteContext):
    """A tenant's jobs, executions, queues and workers, by way of a `daybell server`.

    It has the verbs of `Client` that a server offers, with the same answers and errors. The key
    decides whose jobs these are; a superadmin's may name another tenant. Entering it connects to
    nobody yet; leaving it closes the connections that were made.
    """

    def __init__(self, url: str, *, key: str | None = None, tenant: str | None = None) -> None:
        self.tenant = None if tenant is None else check_name(tenant, what="tenant")
        super().__init__(Transport(url, key=key, tenant=self.tenant))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    # Executions, workflow runs, events and steps.

    enqueue = execution_room.enqueue
    enqueue_many = execution_room.enqueue_many
    execution = execution_room.execution
    executions = execution_room.executions
    count = execution_room.count
    why = execution_room.why
    retry = execution_room.retry
    cancel = execution_room.cancel
    cancel_many = execution_room.cancel_many
    count_cancellable = execution_room.count_cancellable
    retry_many = execution_room.retry_many
    count_retryable = execution_room.count_retryable
    dead_letters = execution_room.dead_letters
    count_dead_letters = execution_room.count_dead_letters
    discard = execution_room.discard
    discard_dead_letters = execution_room.discard_dead_letters
    retry_dead_letters = execution_room.retry_dead_letters
    log_parts = execution_room.log_parts
    publish = execution_room.publish
    signal = execution_room.signal
    approve = execution_room.approve
    events = execution_room.events

    # Jobs, schedules and templates.

    create = job_room.create
    launch = job_room.launch
    update = job_room.update
    apply_job = job_room.apply_job
    rollback = job_room.rollback
    delete_job = job_room.delete_job
    warnings = job_room.warnings
    job = job_room.job
    job_named = job_room.job_named
    jobs = job_room.jobs
    versions = job_room.versions
    versions_page = job_room.versions_page
    standing = job_room.standing
    standings = job_room.standings
    standings_page = job_room.standings_page
    schedules = job_room.schedules
    schedules_page = job_room.schedules_page
    pause = job_room.pause
    resume = job_room.resume
    trigger = job_room.trigger
    backfill = job_room.backfill
    set_template = job_room.set_template
    template = job_room.template
    templates = job_room.templates
    templates_page = job_room.templates_page
    delete_template = job_room.delete_template

    # Queues and workers.

    queues = execution_room.queues
    pause_queue = execution_room.pause_queue
    resume_queue = execution_room.resume_queue
    purge_queue = execution_room.purge_queue
    workers = execution_room.workers
    drain_worker = execution_room.drain_worker
    leaders = execution_room.leaders
    stats = execution_room.stats
    series = execution_room.series
    job_stats = execution_room.job_stats

    # Keys, tenants, the audit log and secrets.

    create_key = admin.create_key
    create_login = admin.create_login
    keys = admin.keys
    revoke_key = admin.revoke_key
    tenants = admin.tenants
    tenant_record = admin.tenant_record
    add_tenant = admin.add_tenant
    update_tenant = admin.update_tenant
    audit = admin.audit
    verify_audit = admin.verify_audit
    set_secret = admin.set_secret
    secrets = admin.secrets
    delete_secret = admin.delete_secret


AnyClient: TypeAlias = Client | RemoteClient
