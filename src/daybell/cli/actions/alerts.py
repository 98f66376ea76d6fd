"""The work of `daybell alerts`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer

from daybell.cli import output
from daybell.cli.connection import client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.references import parse_reference
from daybell.cli.runtime import DONE
from daybell.cli.terminal import confirm
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.units import format_duration
from daybell.core.views import Page, read_pages
from daybell.errors import DuplicateKey, UsageError, VersionConflict
from daybell.settings import Settings


async def list_alerts(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        rules = await client.alerts()
        if as_json:
            output.echo_json(Page(items=tuple(rules)))
            return DONE
        pages = read_pages(
            lambda at: client.incidents(is_open=True, limit=PAGE_ITEMS_MAX, cursor=at)
        )
        counts = Counter([one.rule async for page in pages for one in page])
    rows = [
        (
            one.name,
            one.on,
            _scope(one),
            _limits(one),
            str(len(one.to)),
            str(counts.pop(one.name, 0)),
            "" if one.silenced_until is None else output.format_moment(one.silenced_until),
        )
        for one in rules
    ]
    # Rules of jobs: their option `notifications`.
    rows += [(name, "", "", "notifications", "", str(n), "") for name, n in counts.items()]
    columns = (
        Column("rule", least=16, rank=0),
        "on",
        Column("watches", least=8),
        Column("limits", least=12, rank=2),
        Column("addresses", rank=3),
        "open",
        Column("silenced until", rank=4),
    )
    output.echo_table(columns, rows, empty="no alerts; daybell alerts create NAME makes one")
    return DONE


def _scope(rule: wire.Alert) -> str:
    parts = (("job", rule.job), ("queue", rule.queue))
    return ", ".join(f"{what} {name}" for what, name in parts if name is not None) or "all"


def _limits(rule: wire.Alert) -> str:
    words = [] if rule.grace is None else [f"grace {format_duration(rule.grace)}"]
    if rule.repeat is not None:
        words.append(f"repeat {format_duration(rule.repeat)}")
    return ", ".join(words)


async def create_alert(
    settings: Settings,
    *,
    name: str,
    fields: dict[str, Any],
    replace: bool,
    tenant: str | None,
    as_json: bool,
) -> int:
    value = {"name": name, **{key: one for key, one in fields.items() if one is not None}}
    secret = value.pop("webhook_secret", None)
    if secret is not None and "webhook" not in value:
        raise UsageError("--webhook-secret signs events; --webhook names their receiver")
    to: list[Any] = [parse_reference(one) for one in value.pop("to", ())]
    to += [{"webhook": parse_reference(one), "secret": secret} for one in value.pop("webhook", ())]
    if to:
        value["to"] = to
    async with client_for(settings, tenant=tenant) as client:
        try:
            expect = None if replace else 0
            made = await client.set_alert(value, author=current_actor(), expect=expect)
        except (VersionConflict, DuplicateKey):
            if replace:
                raise
            raise DuplicateKey(
                f"there is an alert rule named {name!r} already; --replace takes its place"
            ) from None
    if as_json:
        output.echo_json(made)
        return DONE
    typer.echo(f"alert rule {made.name} is at version {made.version}; it watches {_scope(made)}")
    if not made.to:
        typer.echo("note: it has no receivers, so it sends nothing; --to adds one", err=True)
    return DONE


async def delete_alert(
    settings: Settings, *, name: str, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.alert(name)
        confirm(f"delete alert rule {found.name}? Its open incidents close.", yes=yes)
        await client.delete_alert(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"alert rule {found.name} is deleted")
    return DONE


async def silence_alert(
    settings: Settings,
    *,
    name: str,
    duration: str | None,
    until: str | None,
    reason: str,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        silenced = await client.silence_alert(
            name, duration=duration, until=until, reason=reason, author=current_actor()
        )
    if as_json:
        output.echo_json(silenced)
    elif silenced.silenced_until is None:
        typer.echo(f"alert rule {name} sends messages again")
    else:
        typer.echo(
            f"alert rule {name} is silent until {output.format_moment(silenced.silenced_until)}"
        )
    return DONE


async def test_alert(settings: Settings, *, name: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        sent = await client.test_alert(name)
    if as_json:
        output.echo_json(sent)
    else:
        typer.echo(
            f"execution {sent.execution_id} sends the message; see how it ends:"
            f" daybell executions wait {sent.execution_id}"
        )
    return DONE


async def list_incidents(
    settings: Settings,
    *,
    rule: str | None,
    is_open: bool | None,
    limit: int,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        page = await client.incidents(rule=rule, is_open=is_open, limit=limit, cursor=cursor)
    if as_json:
        output.echo_json(page)
        return DONE
    rows = [
        (
            str(one.incident_id),
            one.rule,
            _state(one),
            output.format_moment(one.opened_at),
            one.subject,
            one.detail,
        )
        for one in page.items
    ]
    columns = (
        Column("incident", rank=1),
        Column("rule", least=12, rank=0),
        "state",
        "opened",
        Column("subject", least=12),
        Column("detail", least=20, rank=3),
    )
    output.echo_table(columns, rows, empty="no incidents")
    output.echo_more(page.next_cursor)
    return DONE


def _state(one: wire.Incident) -> str:
    if one.closed_at is not None:
        return "closed"
    return "open" if one.acknowledged_at is None else "acknowledged"


async def acknowledge(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.acknowledge_incident(id, author=current_actor())
    if as_json:
        output.echo_json(found)
    else:
        typer.echo(f"incident of {found.rule} about {found.subject} is acknowledged")
    return DONE
