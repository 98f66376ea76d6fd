"""Subscriptions to outgoing events: the filter of each, and the deliveries that send its events.

An event is a change of an execution, a job or a schedule. The store keeps it in its outbox until
one transaction has removed it and enqueued its deliveries: executions of a job of the kind `http`,
one for each subscription that matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.access import matches
from daybell.core.alerts.rules import is_message_job
from daybell.core.execution import Failure, NewExecution
from daybell.core.job import NewJob, RecordKind
from daybell.core.kinds.webhook import cloud_event, webhook_settings
from daybell.core.limits import DELIVERY_PREFIX, DESCRIPTION_CHARS_MAX, check_name
from daybell.core.options import DEFAULT_QUEUE, JobDefinition, Keep, read_pattern, read_text
from daybell.core.references import read_fields
from daybell.core.retry import Retry
from daybell.core.schedule import delivery_gate
from daybell.core.units import Instant, Seconds, to_iso
from daybell.errors import SubscriptionNotFound, UsageError, shown

STATUSES: Final = ("succeeded", "dead", "cancelled", "skipped", "retrying", "lost")
EXECUTION: Final = "execution."
TYPES: Final = (*(EXECUTION + status for status in STATUSES), "job.changed", "schedule.missed")
TEST: Final = "subscription.test"
SUBSCRIPTIONS_MAX: Final = 100  # of a tenant
OUTBOX_BATCH_MAX: Final = 500  # events that one transaction takes out
RETRY: Final = Retry(retries=9, base=5.0, factor=4.0, cap=6 * 3600.0)  # for about 20 hours
KEEP: Final = Keep(succeeded=86400.0)
CHARS_MAX: Final = 2_000  # of an error

Mint = Callable[[], UUID]


class Subscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A receiver of events, and the events that it receives."""

    name: str
    url: Any
    secret: str | None = None  # the name of the secret that signs; None: no signature
    types: tuple[str, ...] = ()  # of events, or beginnings with `*`; none: all
    status: tuple[str, ...] = ()  # of executions; none: all
    job: str | None = None  # a name, or a beginning with `*`; None: all
    queue: str | None = None
    message_queue: str = DEFAULT_QUEUE
    description: str = ""

    @classmethod
    def parse(cls, value: Any) -> Subscription:
        """Parse an object with `name`, `url` and other fields."""
        given = read_fields(value, cls, "subscription")
        if "url" not in given:
            raise UsageError("a subscription needs the url of its receiver", field="url")
        name = check_name(given.get("name"), what="subscription")
        delivery_job(name)  # its name must not be too long either
        read: dict[str, Any] = {"name": name}
        read |= {field: read_pattern(given[field], field) for field in _PATTERNS if field in given}
        read |= {field: _read_words(given[field], field) for field in _WORDS if field in given}
        if "message_queue" in given:
            read["message_queue"] = check_name(given["message_queue"], what="queue")
        if "description" in given:
            read["description"] = read_text(
                given["description"], "description", most=DESCRIPTION_CHARS_MAX
            )
        settings = webhook_settings(given["url"], given.get("secret"))
        subscription = cls(**read, url=settings.url, secret=given.get("secret"))
        if not any(map(subscription.may_match, TYPES)):
            raise UsageError("no event has such a type, status and queue", field="types")
        return subscription

    def to_json(self) -> str:
        """Return the subscription as a store keeps it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Subscription:
        """Read a kept subscription."""
        return msgspec.json.decode(text, type=cls)

    def may_match(self, type: str) -> bool:
        """Return True if events of a type may be for it. Others than those of executions have no
        status and no queue: a filter for these leaves them out.
        """
        is_of_execution = type.startswith(EXECUTION)
        if not is_of_execution and (self.status or self.queue is not None):
            return False
        is_wanted = not self.status or type.removeprefix(EXECUTION) in self.status
        return is_wanted and matches(type, self.types)

    def takes(self, event: OutgoingEvent) -> bool:
        """Return True for an event of its tenant that it is for. Deliveries cause no events: one
        that fails would cause the next. Messages of alerts do so only if it names their job.
        """
        job, queue = event.job or "", event.queue or ""
        return (
            self.may_match(event.type)
            and not is_delivery_job(job)
            and not (is_message_job(job) and job != self.job)
            and (self.job is None or matches(job, (self.job,)))
            and (self.queue is None or matches(queue, (self.queue,)))
        )

    def delivery_job(self, mint: Mint) -> NewJob:
        """Return the job that delivers its events, to be defined with each batch of them."""
        settings = webhook_settings(self.url, self.secret)
        definition = JobDefinition(
            name=delivery_job(self.name),
            kind="http",
            settings=payload.encode(msgspec.to_builtins(settings), what="http"),
            queue=self.message_queue,
            description=f"Delivers the events of the subscription {self.name}.",
            retry=RETRY,
            keep=KEEP,
        )
        return NewJob(id=mint(), definition=definition, author="subscriptions", promote=True)

    def delivery(self, tenant: str, event: OutgoingEvent, mint: Mint) -> NewExecution:
        """Return the execution that delivers an event. Events about one thing pass a gate with one
        slot, which a delivery holds through its retries: they arrive in their order.
        """
        args = payload.encode(event.to_cloud(tenant), what="args")
        gate = None if event.is_alone else delivery_gate(self.name, event.about)
        return NewExecution(id=mint(), job=delivery_job(self.name), args=args, gate=gate)


_PATTERNS: Final = ("job", "queue")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"types": TYPES, "status": STATUSES}


def _read_words(value: Any, what: str) -> tuple[str, ...]:
    """Return words, each one that is known, or a beginning with `*` of some."""
    known = _WORDS[what]
    words = cast("list[Any]", value if isinstance(value, list | tuple) else [value])
    for word in words:
        is_word = isinstance(word, str) and (word in known or what == "types")
        if not is_word or not any(matches(one, (str(word),)) for one in known):
            raise UsageError(f"{what}: {shown(word)} is not one of {', '.join(known)}", field=what)
    return tuple(dict.fromkeys(map(str, words)))


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A stored subscription. The version rises with every change."""

    tenant: str
    subscription: Subscription
    version: int
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last change

    @property
    def name(self) -> str:
        return self.subscription.name


SUBSCRIPTIONS: Final = RecordKind[Subscription, StoredSubscription](
    table="subscription",
    what="subscription",
    error=SubscriptionNotFound,
    read=lambda name, text: Subscription.from_json(text),
    make=StoredSubscription,
    field="subscription",
    most=SUBSCRIPTIONS_MAX,
)


def delivery_job(subscription: str) -> str:
    """Return the name of the job that delivers the events of a subscription."""
    return check_name(DELIVERY_PREFIX + subscription, what="subscription")


def is_delivery_job(name: str) -> bool:
    """Return True for a job that delivers events."""
    return name.startswith(DELIVERY_PREFIX)


class OutgoingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change that some subscription of its tenant may be for."""

    number: int  # in the outbox, in the order of the changes of one thing
    tenant: str
    type: str
    at: Instant
    job: str | None = None
    queue: str | None = None
    execution: UUID | None = None
    attempt: int | None = None
    data: str = "{}"  # JSON: what else the store knows of it

    @property
    def about(self) -> str:
        """The thing that has changed."""
        return str(self.job if self.execution is None else self.execution)

    @property
    def is_alone(self) -> bool:
        """True for the only event of an execution, as nearly all are, and for a test."""
        return self.type == TEST or (self.attempt == 1 and self.type in _LAST)

    @property
    def id(self) -> str:
        """The id of the event, the same for all subscriptions."""
        if self.execution is None:
            return f"{self.type}:{self.number}"
        return f"{self.execution}:{self.attempt}:{self.type.removeprefix(EXECUTION)}"

    def to_cloud(self, tenant: str) -> dict[str, Any]:
        """Return it as a CloudEvent."""
        data = msgspec.json.decode(self.data, type=dict[str, Any])
        named: dict[str, Any] = {"job": self.job}
        if self.execution is not None:
            named |= {
                "execution_id": str(self.execution),
                "queue": self.queue,
                "status": self.type.removeprefix(EXECUTION),
                "attempt": self.attempt,
            }
        more = {name: _read(name, value) for name, value in data.items() if value not in (None, "")}
        return cloud_event(
            self.type,
            self.id,
            source=tenant,
            subject=self.job or tenant,
            at=self.at,
            data={name: value for name, value in named.items() if value is not None} | more,
        )


_LAST: Final = frozenset({"execution.succeeded", "execution.skipped"})


def _read(name: str, value: Any) -> Any:
    """Return a value that the store has recorded as the event has it."""
    if name == "error":
        failure = Failure.of_kept(value)
        return {"type": failure.type, "message": failure.message[:CHARS_MAX]}
    if name == "until" or name == "at" or name.endswith(("_at", "_for")):
        return to_iso(value)
    return str(UUID(value)) if name.endswith("_id") else value


class OutboxWork(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest events of the outbox, and all subscriptions, at one moment."""

    events: tuple[OutgoingEvent, ...] = ()
    subscriptions: tuple[StoredSubscription, ...] = ()


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a tenant to take out of the outbox, and their deliveries to enqueue: both in one
    transaction, if all of the events are still there.
    """

    tenant: str
    numbers: tuple[int, ...]
    jobs: tuple[NewJob, ...] = ()
    executions: tuple[NewExecution, ...] = ()


def dispatches(work: OutboxWork, mint: Mint) -> list[Dispatch]:
    """Return the executions that deliver events to their subscriptions."""
    events: dict[str, list[OutgoingEvent]] = {}
    for event in work.events:
        events.setdefault(event.tenant, []).append(event)
    found: list[Dispatch] = []
    for tenant, own in events.items():
        jobs: dict[str, NewJob] = {}
        executions: list[NewExecution] = []
        subscribers = [one for one in work.subscriptions if one.tenant == tenant]
        for event in own:
            for one in subscribers:
                if one.subscription.takes(event):
                    if one.name not in jobs:
                        jobs[one.name] = one.subscription.delivery_job(mint)
                    executions.append(one.subscription.delivery(tenant, event, mint))
        found.append(
            Dispatch(
                tenant=tenant,
                numbers=tuple(event.number for event in own),
                jobs=tuple(jobs.values()),
                executions=tuple(executions),
            )
        )
    return found


_STEP: Final[Seconds] = 1e-6


def place_behind(
    deliveries: Iterable[NewExecution], last: Mapping[str, Instant]
) -> list[NewExecution]:
    """Return deliveries with times after those of the last ones that wait at their gates. A gate
    admits in the order of these times, and the clock may have been set back between two of them.
    """
    return [
        one if (at := last.get(one.gate or "")) is None else replace(one, at=at + _STEP)
        for one in deliveries
    ]


def wanted_pairs(rows: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the tenants and status of executions that kept subscriptions may be for. A store puts
    only these into the outbox.
    """
    pairs = {
        (tenant, status): None
        for tenant, text in rows
        for one in (Subscription.from_json(text),)
        for status in STATUSES
        if one.may_match(EXECUTION + status)
    }
    return list(pairs)
