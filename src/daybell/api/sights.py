"""What answers look like, continued: queues, workers, schedules, access."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from daybell.api.rules import Id
from daybell.api.shapes import LINK, TRUNCATED, LastExecution, Time


class Health(BaseModel):
    """Whether a process, or its store, is well."""

    status: Literal["ok", "ready", "unavailable"]
    error: str | None = None


class Worker(BaseModel):
    """A worker."""

    worker_id: Id
    name: str
    tenant: str
    state: Literal["live", "draining", "dead"]
    host: str
    pid: int
    version: str
    queues: list[str]
    kinds: list[str]
    labels: dict[str, str]
    capacity: int
    running: int
    started_at: Time
    renewed_at: Time
    lease_until: Time


class Workers(BaseModel):
    """A page of workers, oldest first."""

    items: list[Worker]
    next_cursor: str | None


class Drained(BaseModel):
    """The answer to a drain."""

    worker_id: Id
    state: Literal["draining"]


class Queue(BaseModel):
    """A queue with its numbers; those that `at_least` names may be larger."""

    name: str
    is_paused: bool
    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    oldest_run_at: Time | None
    at_least: list[str]


class Queues(BaseModel):
    """A page of queues, by name."""

    items: list[Queue]
    next_cursor: str | None


class QueueState(BaseModel):
    """The answer to a pause or a resume."""

    name: str
    is_paused: bool


class Purged(BaseModel):
    """The answer to a purge."""

    name: str
    cancelled: int


class Scaling(BaseModel):
    """How much work a queue has, for those who start workers by it (KEDA reads `value`). Numbers
    that `at_least` names may be larger.
    """

    queue: str
    value: int
    queued: int
    running: int
    workers: int
    capacity: int
    is_paused: bool
    at_least: list[str]


class Preview(BaseModel):
    """What a schedule means, and when it fires."""

    description: str
    next: list[Time]


class Rates(BaseModel):
    """What happened lately, per second. `finished` is null if a queue has too many to count."""

    enqueued: float
    finished: float | None
    failed: float


class Totals(BaseModel):
    """All queues together; numbers that `at_least` names may be larger."""

    queued: int
    scheduled: int
    retrying: int
    running: int
    waiting: int
    at_least: list[str]


class Stats(BaseModel):
    """All that goes on, at a glance."""

    now: Time
    totals: Totals
    queues: list[Queue]
    workers: list[Worker]
    rates: Rates | None
    dead_letters: list[LastExecution]
    has_more_dead_letters: bool


class Leader(BaseModel):
    """Who does what one node should do."""

    role: str
    holder_id: Id
    epoch: int
    until: Time


class Status(BaseModel):
    """The store's time, and who does the upkeep."""

    now: Time
    leaders: list[Leader]


class Quotas(BaseModel):
    """How much a tenant may use; null: as much as it likes."""

    jobs: int | None
    queued: int | None
    per_minute: int | None
    running: int | None


class Tenant(BaseModel):
    """A tenant."""

    name: str
    created_at: Time
    quotas: Quotas


class Tenants(BaseModel):
    """A page of tenants, by name."""

    items: list[Tenant]
    next_cursor: str | None


class Key(BaseModel):
    """A key, without its secret."""

    key_id: Id
    tenant: str
    name: str
    role: Literal["viewer", "operator", "admin", "superadmin", "worker"]
    jobs: list[str] | None
    queues: list[str] | None
    actions: list[str] | None
    hint: str
    created_at: Time
    created_by: str
    expires_at: Time | None
    used_at: Time | None
    revoked_at: Time | None


class NewKeyAnswer(Key):
    """A key with its secret, which is shown this once."""

    token: str


class Keys(BaseModel):
    """A page of keys, newest first."""

    items: list[Key]
    next_cursor: str | None


class Secret(BaseModel):
    """A secret, without its value."""

    name: str
    tenant: str
    version: int
    key_id: str
    created_at: Time
    updated_at: Time
    author: str


class SecretPage(BaseModel):
    """A page of secrets, by name."""

    items: list[Secret]
    next_cursor: str | None


class DeletedSecret(BaseModel):
    """The answer to a delete."""

    name: str
    status: Literal["deleted"]


class Entry(BaseModel):
    """An entry of the audit log."""

    entry_id: Id
    tenant: str
    at: Time
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    source: str


class Entries(BaseModel):
    """A page of the audit log, newest first."""

    items: list[Entry]
    next_cursor: str | None


class AuditBreak(BaseModel):
    """The first place where the chain does not hold. Without an `entry_id`, entries are missing."""

    number: int
    entry_id: Id | None
    problem: str


class AuditCheck(BaseModel):
    """The result of checking a part of the audit log. `head` is the last entry that was checked,
    `NUMBER:HASH`; `unchained` entries are older than the chain.
    """

    entries: int
    unchained: int
    head: str
    broken: AuditBreak | None
    next_cursor: str | None


class Template(BaseModel):
    """A job with blanks."""

    name: str
    version: int
    tenant: str
    description: str
    parameters: dict[str, dict[str, Any]]
    job: dict[str, Any] | None = Field(description="Null if the list leaves it out.")
    author: str
    created_at: Time
    updated_at: Time
    truncated: bool = TRUNCATED
    link: str | None = LINK


class TemplatePage(BaseModel):
    """A page of templates, by name."""

    items: list[Template]
    next_cursor: str | None


class DeletedTemplate(BaseModel):
    """The answer to a template's end."""

    name: str
    status: Literal["deleted"]
