"""Rules of alerts: the condition, the subjects, and the receivers of messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.access import WILDCARD, matches
from daybell.core.alerts.notifications import NOTIFY_ON, is_webhook, read_receivers
from daybell.core.job import RecordKind
from daybell.core.kinds.settings import NotifySettings
from daybell.core.kinds.webhook import webhook_settings
from daybell.core.limits import (
    ALERT_PREFIX,
    DESCRIPTION_CHARS_MAX,
    NAME_CHARS_MAX,
    RETRIES_MAX,
    check_name,
)
from daybell.core.options import (
    DEFAULT_QUEUE,
    JobDefinition,
    Keep,
    read_limit,
    read_pattern,
    read_seconds,
    read_text,
    read_whole,
    read_word,
)
from daybell.core.references import read_fields
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.errors import AlertNotFound, UsageError, shown


class AlertCondition(StrEnum):
    """The conditions of rules."""

    DEAD_LETTER = "dead_letter"
    FAILURES = "failures"
    FAILURE_RATE = "failure_rate"
    MISSED_RUN = "missed_run"
    LATE_START = "late_start"
    LONG_RUN = "long_run"
    QUEUE_AGE = "queue_age"
    NO_WORKER = "no_worker"
    LOST_WORKERS = "lost_workers"
    PAUSED = "paused"
    STORE_HEALTH = "store_health"
    SUCCEEDED = "succeeded"
    HEARTBEAT = "heartbeat"


class ConditionFields(NamedTuple):
    """The fields that a condition takes, with their defaults, and its meaning."""

    meaning: str
    fields: Mapping[str, Any]


# A field that is not in the table of a condition is refused: it would have no effect.
CONDITIONS: Final[Mapping[AlertCondition, ConditionFields]] = {
    AlertCondition.DEAD_LETTER: ConditionFields("a job has dead letters", {}),
    AlertCondition.FAILURES: ConditionFields(
        "the last `count` executions of a job that ended are dead", {"count": 3}
    ),
    AlertCondition.FAILURE_RATE: ConditionFields(
        "of the executions of a job that ended within `within`, at least `count`, the part `rate`"
        " or more is dead",
        {"rate": 0.5, "within": 3600.0, "count": 10},
    ),
    AlertCondition.MISSED_RUN: ConditionFields(
        "a time of a schedule is more than `grace` ago, and no execution for it or a later one has"
        " succeeded",
        {"grace": 600.0, "factor": 2.0},
    ),
    AlertCondition.LATE_START: ConditionFields(
        "an execution has not started `grace` after its time", {"grace": 300.0}
    ),
    AlertCondition.LONG_RUN: ConditionFields(
        "an execution runs for longer than `grace`", {"factor": 2.0}
    ),
    AlertCondition.QUEUE_AGE: ConditionFields(
        "the oldest execution that is due waits in a queue for longer than `grace`",
        {"grace": 300.0},
    ),
    AlertCondition.NO_WORKER: ConditionFields(
        "an execution is due for longer than `grace`, and no live worker offers its queue, kind or"
        " task",
        {"grace": 60.0},
    ),
    AlertCondition.LOST_WORKERS: ConditionFields(
        "workers were lost with `count` executions or more within `within`",
        {"count": 1, "within": 900.0},
    ),
    AlertCondition.PAUSED: ConditionFields("a job was paused by its failures", {}),
    AlertCondition.STORE_HEALTH: ConditionFields("a check of the store fails", {}),
    AlertCondition.SUCCEEDED: ConditionFields("an execution of a job has succeeded", {}),
    AlertCondition.HEARTBEAT: ConditionFields(
        "the rules are evaluated: a message every `repeat`, by default a minute, that says so",
        {},
    ),
}
LEARNT: Final = "learnt"
LEARNS: Final = frozenset({AlertCondition.MISSED_RUN, AlertCondition.LONG_RUN})
RULES_MAX: Final = 1_000  # of a tenant
FACTOR_MAX: Final = 1_000.0
HEARTBEAT_SECONDS: Final[Seconds] = 60.0


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule. `grace` None is learnt: the p99 of the job's runs, times `factor`."""

    name: str
    on: AlertCondition
    job: str | None = None  # a name, or a beginning with `*`; None: all
    queue: str | None = None
    to: tuple[Any, ...] = ()  # addresses of messages; none: incidents are only listed
    count: int = 1
    rate: float = 0.5
    within: Seconds = 3600.0
    grace: Seconds | None = None
    factor: float = 2.0
    repeat: Seconds | None = None  # messages while an incident stays open
    message_queue: str = DEFAULT_QUEUE
    description: str = ""
    silenced_until: Instant | None = None
    silence_reason: str = ""
    # Of a rule that a job's `notifications` stand for: the time from which on successes count.
    since: Instant = 0.0

    @classmethod
    def parse(cls, value: Any) -> AlertRule:
        """Parse an object with `name`, `on` and the fields that its condition takes."""
        given = read_fields(value, _Given, "alert")
        name = check_name(given.get("name"), what="alert")
        on = AlertCondition(read_word(given.get("on", ""), tuple(AlertCondition), "on"))
        takes = CONDITIONS[on].fields
        for field in ("count", "rate", "within", "grace", "factor"):
            if field in given and field not in takes and not (field == "grace" and on in LEARNS):
                known = ", ".join(takes) or "no limits"
                raise UsageError(f"{field} has no effect on {on}; it takes {known}", field=field)
        rule = cls(name=name, on=on, **_limits(given, takes), **_subjects(given, on))
        if on is AlertCondition.HEARTBEAT and rule.repeat is None:
            return replace(rule, repeat=HEARTBEAT_SECONDS)
        return rule

    def to_json(self) -> str:
        """Return the rule as a store keeps it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> AlertRule:
        """Read a kept rule."""
        return msgspec.json.decode(text, type=cls)

    def is_silenced(self, now: Instant) -> bool:
        return self.silenced_until is not None and self.silenced_until > now

    @property
    def only_job(self) -> str | None:
        """The single job that it watches; None: several."""
        return None if self.job is None or self.job.endswith(WILDCARD) else self.job

    def watches(self, *, job: str | None = None, queue: str | None = None) -> bool:
        """Return True for a job in a queue that the rule is for. Executions that carry messages of
        alerts are watched only by a rule that names their job: a message that cannot be sent must
        not cause another one.
        """
        if job is not None and job != self.only_job and is_message_job(job):
            return False
        if self.job is not None and (job is None or not matches(job, (self.job,))):
            return False
        return self.queue is None or queue is None or matches(queue, (self.queue,))

    def message_definitions(self) -> list[JobDefinition]:
        """The jobs that send the messages of the rule: one for all addresses, and one for each
        webhook. A heartbeat that comes late would say what is not true.
        """
        plain = tuple(one for one in self.to if not is_webhook(one))
        settings: list[tuple[str, Any]] = [
            ("http", webhook_settings(one["webhook"], one.get("secret")))
            for one in self.to
            if is_webhook(one)
        ]
        if plain:
            settings.insert(0, ("notify", NotifySettings(to=plain, title="alert", body="")))
        is_beat = self.on is AlertCondition.HEARTBEAT
        return [
            JobDefinition(
                name=message_job(self.name, number),
                kind=kind,
                settings=payload.encode(msgspec.to_builtins(one), what=kind),
                queue=self.message_queue,
                description=f"Sends the messages of the alert rule {self.name}.",
                retry=Retry(retries=0 if is_beat else 5),
                expires=self.repeat if is_beat else None,
                keep=Keep(executions=86400.0) if is_beat else Keep(),
            )
            for number, (kind, one) in enumerate(settings)
        ]


class _Given(msgspec.Struct):
    """The fields of a request."""

    name: Any
    on: Any
    job: Any
    queue: Any
    to: Any
    count: Any
    rate: Any
    within: Any
    grace: Any
    factor: Any
    repeat: Any
    message_queue: Any
    description: Any


def _limits(given: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a condition, as given or by default."""
    limits = dict(takes)
    if "count" in given:
        limits["count"] = read_whole(given["count"], "count", least=1, most=RETRIES_MAX)
    if "rate" in given:
        limits["rate"] = _number(given["rate"], "rate", 1.0)
    if "within" in given:
        limits["within"] = read_limit(given["within"], "within")
    if "factor" in given:
        limits["factor"] = _number(given["factor"], "factor", FACTOR_MAX)
    if "grace" in given:
        learnt = given["grace"] == LEARNT
        limits["grace"] = None if learnt else read_seconds(given["grace"], "grace")
        if learnt and "factor" not in takes:
            raise UsageError("this grace cannot be learnt; give a duration", field="grace")
    return limits


def _number(value: Any, what: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise UsageError(
            f"{what}={shown(value)} must be a number above 0, at most {most:g}", field=what
        )
    return float(value)


_OF_NO_QUEUE: Final = (AlertCondition.STORE_HEALTH, AlertCondition.HEARTBEAT)


def _subjects(given: Mapping[str, Any], on: AlertCondition) -> dict[str, Any]:
    """The subjects and the receivers of a rule."""
    names: dict[str, Any] = {
        field: read_pattern(given[field], field) for field in ("job", "queue") if field in given
    }
    if "job" in names and on in (AlertCondition.QUEUE_AGE, *_OF_NO_QUEUE):
        raise UsageError(f"{on} is not about jobs; leave job out", field="job")
    if "queue" in names and on in _OF_NO_QUEUE:
        raise UsageError(f"{on} is not about queues; leave queue out", field="queue")
    if "message_queue" in given:
        names["message_queue"] = check_name(given["message_queue"], what="queue")
    if given.get("to"):
        names["to"] = read_receivers(given["to"], "to")
    if "description" in given:
        names["description"] = read_text(
            given["description"], "description", most=DESCRIPTION_CHARS_MAX
        )
    if "repeat" in given:
        names["repeat"] = read_limit(given["repeat"], "repeat")
    return names


# A job whose name is too long for the prefix gets a part of a digest in place of the rest.


def message_job(rule: str, number: int = 0) -> str:
    """Return the name of a job that sends the messages of a rule: the first, or a further one."""
    name = ALERT_PREFIX + rule.replace("/", ":") + (f":{number}" if number else "")
    if len(name) <= NAME_CHARS_MAX:
        return name
    return name[: NAME_CHARS_MAX - 17] + ":" + sha256(name.encode()).hexdigest()[:16]


def is_message_job(name: str) -> bool:
    """Return True for a job that sends messages of alerts."""
    return name.startswith(ALERT_PREFIX)


class StoredRule(msgspec.Struct, frozen=True, kw_only=True):
    """A stored rule. The version rises with every change."""

    tenant: str
    rule: AlertRule
    version: int
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last change

    @property
    def name(self) -> str:
        return self.rule.name


ALERT_RULES: Final = RecordKind[AlertRule, StoredRule](
    table="alert_rule",
    what="alert rule",
    error=AlertNotFound,
    read=lambda name, text: AlertRule.from_json(text),
    make=StoredRule,
    field="rule",
    most=RULES_MAX,
)


# The option `notifications` of a job: rules in a short form.

_ON: Final[Mapping[str, AlertCondition]] = {
    "dead": AlertCondition.DEAD_LETTER,
    "succeeded": AlertCondition.SUCCEEDED,
    "late": AlertCondition.MISSED_RUN,
}
assert tuple(_ON) == NOTIFY_ON


def rules_of_job(
    tenant: str, definition: JobDefinition, *, version: int, since: Instant
) -> list[StoredRule]:
    """Return the rules that the notifications of a job stand for. Their names have a "/", which
    other names cannot have.
    """
    rules: list[StoredRule] = []
    for number, one in enumerate(definition.notifications, 1):
        for on in one.on:
            condition = _ON[on]
            rule = AlertRule(
                name=f"{definition.name}/{number}/{on}",
                on=condition,
                job=definition.name,
                to=one.to,
                since=since,
            )
            rule = replace(rule, **CONDITIONS[condition].fields)
            stored = StoredRule(
                tenant=tenant, rule=rule, version=version, created_at=since, updated_at=since
            )
            rules.append(stored)
    return rules
