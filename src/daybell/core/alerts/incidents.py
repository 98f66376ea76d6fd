"""Incidents: which of them a round of evaluation opens, repeats and closes, and their messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core import payload
from daybell.core.alerts.findings import Finding
from daybell.core.alerts.rules import AlertCondition, AlertRule, StoredRule
from daybell.core.execution import NewExecution
from daybell.core.job import Job, NewJob
from daybell.core.kinds.webhook import cloud_event
from daybell.core.schedule import delivery_gate
from daybell.core.units import Instant, Seconds, format_duration, to_iso

INCIDENT_SECONDS_KEPT: Final[Seconds] = 90 * 86400.0  # after it closed
OPEN_MAX: Final = 10_000  # open incidents that one round reads
MOVES_MAX: Final = 200  # of one rule in a round


class Incident(msgspec.Struct, frozen=True):
    """One subject that meets, or met, the condition of a rule. Each move raises its version."""

    id: UUID
    tenant: str
    rule: str
    subject: str
    detail: str
    mark: str
    version: int
    opened_at: Instant
    notified_at: Instant | None = None  # the last message; None: there was none
    closed_at: Instant | None = None
    acknowledged_at: Instant | None = None
    acknowledged_by: str = ""


class MoveKind(StrEnum):
    """The moves of an incident."""

    OPEN = "open"
    RECORD = "record"  # opens and closes at once: an event, not a state
    UPDATE = "update"  # a new mark, a repeated message, or one that a silence held back
    CLOSE = "close"
    ACKNOWLEDGE = "acknowledge"
    BEAT = "beat"  # the heartbeat of a rule: one row, which opens and closes at once


class IncidentMove(msgspec.Struct, frozen=True, kw_only=True):
    """One compare-and-set of an incident, and the messages that are enqueued with it.

    OPEN is made if the subject has no open incident of the rule, and none that was closed since
    `read_at`, the time of the facts; RECORD, if no other one has recorded the same mark; BEAT, if
    the last one of the rule was before `read_at`. The others are made if the incident is open and
    at `version`.
    """

    kind: MoveKind
    id: UUID
    rule: str
    subject: str
    detail: str = ""
    mark: str = ""
    version: int = 0
    read_at: Instant = 0.0
    by: str = ""
    jobs: tuple[NewJob, ...] = ()  # that send the messages
    messages: tuple[NewExecution, ...] = ()

    def without_message(self) -> IncidentMove:
        """Return the move for a tenant whose quota has no room for the messages."""
        return msgspec.structs.replace(self, jobs=(), messages=())


class AlertWork(msgspec.Struct, frozen=True, kw_only=True):
    """The rules and open incidents of all tenants, at one moment of the store's time."""

    now: Instant
    rules: tuple[StoredRule, ...]
    jobs: tuple[Job, ...]  # with notifications
    incidents: tuple[Incident, ...]


Mint = Callable[[], UUID]


def decide(
    stored: StoredRule,
    findings: Sequence[Finding],
    incidents: Collection[Incident],
    *,
    now: Instant,
    checked: Collection[str] | None,
    mint: Mint,
) -> Iterator[IncidentMove]:
    """Yield the moves of a rule, given its findings and its open incidents.

    An incident closes if its subject was checked and is not among the findings; `checked` None: all
    subjects were.
    """
    rule = stored.rule
    if rule.on is AlertCondition.HEARTBEAT:
        yield from _beat(rule, findings, now, mint)
        return
    is_heard = bool(rule.to) and not rule.is_silenced(now)
    known = {one.subject: one for one in incidents}
    found: set[str] = set()
    for finding in findings:
        found.add(finding.subject)
        incident = known.get(finding.subject)
        if incident is None:
            kind = MoveKind.RECORD if finding.is_event else MoveKind.OPEN
            new = _move(kind, mint(), rule, finding, read_at=now)
            yield _with_message(new, rule, now, mint) if is_heard else new
        else:
            yield from _update(rule, finding, incident, now, is_heard=is_heard, mint=mint)
    for incident in incidents:
        if incident.subject not in found and (checked is None or incident.subject in checked):
            yield _close(rule, incident, now, is_heard=is_heard, mint=mint)


EARLY_SECONDS: Final[Seconds] = 5.0  # half a round: beats come as often as they should


def _beat(
    rule: AlertRule, findings: Sequence[Finding], now: Instant, mint: Mint
) -> Iterator[IncidentMove]:
    """Yield the heartbeat of a rule, which the store makes if it is due."""
    if not rule.to or rule.is_silenced(now):
        return
    before = now - max(0.0, (rule.repeat or 0.0) - EARLY_SECONDS)
    for finding in findings:
        move = _move(MoveKind.BEAT, mint(), rule, finding, read_at=before)
        yield _with_message(move, rule, now, mint)


def _update(
    rule: AlertRule,
    finding: Finding,
    incident: Incident,
    now: Instant,
    *,
    is_heard: bool,
    mint: Mint,
) -> Iterator[IncidentMove]:
    """Yield the move of an incident that goes on, if there is news or a message is due."""
    is_news = finding.mark > incident.mark
    last = incident.notified_at
    is_due = last is None or (rule.repeat is not None and last + rule.repeat <= now)
    is_sent = is_heard and incident.acknowledged_at is None and (is_news or is_due)
    if is_news or is_sent:
        move = _move(MoveKind.UPDATE, incident.id, rule, finding, version=incident.version)
        yield _with_message(move, rule, now, mint, since=incident.opened_at) if is_sent else move


def _close(
    rule: AlertRule, incident: Incident, now: Instant, *, is_heard: bool, mint: Mint
) -> IncidentMove:
    """Close an incident. It recovers with a message if its opening had one."""
    move = close_silently(incident)
    if not is_heard or incident.notified_at is None:
        return move
    return _with_message(move, rule, now, mint, since=incident.opened_at)


def close_silently(incident: Incident) -> IncidentMove:
    """Close an incident without a message, as when its rule is gone."""
    return IncidentMove(
        kind=MoveKind.CLOSE,
        id=incident.id,
        rule=incident.rule,
        subject=incident.subject,
        detail=incident.detail,
        mark=incident.mark,
        version=incident.version,
    )


def _move(
    kind: MoveKind,
    id: UUID,
    rule: AlertRule,
    finding: Finding,
    *,
    version: int = 0,
    read_at: Instant = 0.0,
) -> IncidentMove:
    return IncidentMove(
        kind=kind,
        id=id,
        rule=rule.name,
        subject=finding.subject,
        detail=finding.detail,
        mark=finding.mark,
        version=version,
        read_at=read_at,
    )


_WORDS: Final = {
    MoveKind.OPEN: "ALERT",
    MoveKind.UPDATE: "STILL OPEN",
    MoveKind.CLOSE: "RECOVERED",
    MoveKind.RECORD: "NOTE",
    MoveKind.BEAT: "ALIVE",
}


def _with_message(
    move: IncidentMove, rule: AlertRule, now: Instant, mint: Mint, *, since: Instant | None = None
) -> IncidentMove:
    """Return the move with the executions that send its message."""
    lines = [move.detail]
    if since is not None:
        lasted = format_duration(max(1.0, round(now - since)))
        lines.append(f"Open since {to_iso(since)}, for {lasted}.")
    lines += [rule.description] if rule.description else []
    lines.append(f"Rule {rule.name} ({rule.on}), incident {move.id}.")
    title = f"[{_WORDS[move.kind]}] {rule.name}: {move.subject}"
    message = Message(
        str(move.kind), title, "\n".join(lines), now, move.subject, move.detail, since, move.id
    )
    jobs, messages = messages_for(rule, message, mint)
    return msgspec.structs.replace(move, jobs=jobs, messages=messages)


class Message(NamedTuple):
    """The news about an incident: for people a title and a text, for webhooks an event."""

    kind: str
    title: str
    body: str
    at: Instant
    subject: str = ""
    detail: str = ""
    since: Instant | None = None
    incident: UUID | None = None

    def to_cloud(self, rule: AlertRule, id: UUID) -> dict[str, Any]:
        """Return it as a CloudEvent."""
        data = {
            "rule": rule.name,
            "on": str(rule.on),
            "subject": self.subject,
            "detail": self.detail,
            "title": self.title,
            "text": self.body,
            "incident_id": None if self.incident is None else str(self.incident),
            "opened_at": None if self.since is None else to_iso(self.since),
        }
        kept = {name: value for name, value in data.items() if value}
        return cloud_event(
            f"alert.{self.kind}", str(id), source="alerts", subject=rule.name, at=self.at, data=kept
        )


def messages_for(
    rule: AlertRule, message: Message, mint: Mint
) -> tuple[tuple[NewJob, ...], tuple[NewExecution, ...]]:
    """Return the jobs that send a message of a rule, to be defined with each, and the executions
    that do so. Messages of one incident to one webhook arrive in their order.
    """
    jobs: list[NewJob] = []
    executions: list[NewExecution] = []
    for definition in rule.message_definitions():
        id, gate = mint(), None
        args: dict[str, Any] = {"title": message.title, "body": message.body}
        if definition.kind == "http":
            args = message.to_cloud(rule, id)
            if message.kind in (MoveKind.OPEN, MoveKind.UPDATE, MoveKind.CLOSE):
                gate = delivery_gate(definition.name, message.incident)
        jobs.append(NewJob(id=mint(), definition=definition, author="alerts", promote=True))
        text = payload.encode(args, what="args")
        executions.append(NewExecution(id=id, job=definition.name, args=text, gate=gate))
    return tuple(jobs), tuple(executions)
