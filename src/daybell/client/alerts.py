"""Alert rules and incidents: define, silence and test rules, acknowledge incidents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from daybell.client import wire
from daybell.client.answers import fill
from daybell.client.context import ClientContext
from daybell.client.requests import Id, Time, read_bound, read_id
from daybell.core.alerts.incidents import Incident, IncidentMove, Message, MoveKind, messages_for
from daybell.core.alerts.rules import ALERT_RULES, AlertRule, StoredRule
from daybell.core.ids import mint
from daybell.core.limits import (
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    PAUSE_NOTE_CHARS_MAX,
    check_name,
)
from daybell.core.options import read_limit, read_text
from daybell.core.units import Duration, Instant, to_datetime
from daybell.core.views import Page, read_pages
from daybell.errors import AlertNotFound, UsageError, shown

OWN_FIELDS = frozenset({"silenced_until", "silence_reason", "since"})


async def set_alert(
    client: ClientContext, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
) -> wire.Alert:
    """Store a rule: an object with `name`, `on` and the fields of that condition. One of the same
    name is replaced, and its silence goes on.

    With `expect`, it must be at that version; 0 is for a name that must be new.
    """
    rule = AlertRule.parse(value)
    try:
        known = await client.store.admin.get_record(client.tenant, ALERT_RULES, rule.name)
    except AlertNotFound:
        pass
    else:
        silence = {name: getattr(known.rule, name) for name in OWN_FIELDS}
        rule = replace(rule, **silence)
    store = client.store.admin
    return _alert(
        await store.put_record(client.tenant, ALERT_RULES, rule, author=author, expect=expect)
    )


async def alert(client: ClientContext, name: str) -> wire.Alert:
    """A rule. Raises AlertNotFound."""
    return _alert(await _rule(client, name))


async def _rule(client: ClientContext, name: str) -> StoredRule:
    return await client.store.admin.get_record(
        client.tenant, ALERT_RULES, check_name(name, what="alert")
    )


async def alerts_page(
    client: ClientContext, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
) -> Page[wire.Alert]:
    """Rules, by name."""
    page = await client.store.admin.list_records(
        client.tenant, ALERT_RULES, limit=limit, cursor=cursor
    )
    return Page(items=tuple(map(_alert, page.items)), next_cursor=page.next_cursor)


async def alerts(client: ClientContext) -> list[wire.Alert]:
    """All rules, by name."""
    pages = read_pages(lambda at: alerts_page(client, limit=PAGE_ITEMS_MAX, cursor=at))
    return [one async for page in pages for one in page]


async def delete_alert(client: ClientContext, name: str, *, expect: int | None = None) -> None:
    """Delete a rule. Its incidents close without a message."""
    check_name(name, what="alert")
    await client.store.admin.delete_record(client.tenant, ALERT_RULES, name, expect=expect)


async def silence_alert(
    client: ClientContext,
    name: str,
    *,
    duration: Duration | None = None,
    until: Time | None = None,
    reason: str = "",
    author: str = "",
) -> wire.Alert:
    """Send no messages of a rule for some time, or until some time; without both, end its silence.

    Incidents open and close meanwhile. One that is still open at the end gets its message then.
    """
    if duration is not None and until is not None:
        raise UsageError("name either a duration or an end, not both", field="until")
    end = await _end_of(client, duration, until)
    known = await _rule(client, name)
    text = read_text(reason, "reason", most=PAUSE_NOTE_CHARS_MAX) if end is not None else ""
    rule = replace(known.rule, silenced_until=end, silence_reason=text)
    return _alert(
        await client.store.admin.put_record(
            client.tenant, ALERT_RULES, rule, author=author, expect=known.version
        )
    )


async def _end_of(
    client: ClientContext, duration: Duration | None, until: Time | None
) -> Instant | None:
    if duration is None and until is None:
        return None
    now = (await client.store.health()).now
    if until is not None:
        end = read_bound(until, "until")
        if end <= now:
            raise UsageError(f"until={shown(until)} is over", field="until")
        return end
    return now + (read_limit(duration, "duration") or 0.0)


async def test_alert(client: ClientContext, name: str) -> wire.AlertTest:
    """Send a test message to the receivers of a rule, also if it is silenced. Returns the
    execution that sends it to the addresses, or the one for the first webhook.
    """
    rule = (await _rule(client, name)).rule
    if not rule.to:
        raise UsageError(f"alert rule {shown(name)} has no addresses in `to`", field="to")
    title, body = f"[TEST] {rule.name}", f"A test of the alert rule {rule.name} ({rule.on})."
    now = (await client.store.health()).now
    jobs, messages = messages_for(rule, Message("test", title, body, now), mint)
    for job, message in zip(jobs, messages, strict=True):
        await client.store.catalog.launch(client.tenant, job, message)
    return wire.AlertTest(name=rule.name, execution_id=messages[0].id, job=messages[0].job)


async def incidents(
    client: ClientContext,
    *,
    rule: str | None = None,
    is_open: bool | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
) -> Page[wire.Incident]:
    """Incidents, newest first: all, or those that are open or closed."""
    page = await client.store.admin.list_incidents(
        client.tenant, rule=rule, is_open=is_open, limit=limit, cursor=cursor
    )
    return Page(items=tuple(map(_incident, page.items)), next_cursor=page.next_cursor)


async def acknowledge_incident(
    client: ClientContext, id: Id, *, author: str = ""
) -> wire.Acknowledged:
    """Acknowledge an open incident: it sends no further messages but that of its end."""
    wanted = read_id(id)
    while True:
        found = await _open_incident(client, wanted)
        move = IncidentMove(
            kind=MoveKind.ACKNOWLEDGE,
            id=wanted,
            rule=found.rule,
            subject=found.subject,
            detail=found.detail,
            mark=found.mark,
            version=found.version,
            by=author,
        )
        is_known = found.acknowledged_at is not None
        if is_known or await client.store.admin.move_incident(client.tenant, move):
            return wire.Acknowledged(
                incident_id=wanted, rule=found.rule, subject=found.subject, status="acknowledged"
            )


async def _open_incident(client: ClientContext, id: Any) -> Incident:
    """Return an open incident. Raises AlertNotFound."""
    pages = read_pages(
        lambda at: client.store.admin.list_incidents(
            client.tenant, is_open=True, limit=PAGE_ITEMS_MAX, cursor=at
        )
    )
    async for page in pages:
        for one in page:
            if one.id == id:
                return one
    raise AlertNotFound(f"no open incident {id}")


def _alert(of: StoredRule) -> wire.Alert:
    return fill(
        wire.Alert,
        of.rule,
        on=str(of.rule.on),
        tenant=of.tenant,
        version=of.version,
        author=of.author,
        created_at=to_datetime(of.created_at),
        updated_at=to_datetime(of.updated_at),
    )


def _incident(of: Incident) -> wire.Incident:
    return fill(wire.Incident, of, incident_id=of.id)
