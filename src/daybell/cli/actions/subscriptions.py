"""The work of `daybell subscriptions`."""

from __future__ import annotations

from typing import Any

import typer

from daybell.cli import output
from daybell.cli.connection import client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.references import format_references, parse_reference
from daybell.cli.runtime import DONE
from daybell.cli.terminal import confirm
from daybell.client import wire
from daybell.core.views import Page
from daybell.errors import JobNotFound
from daybell.settings import Settings

SHOWN_MAX = 10


async def list_subscriptions(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.subscriptions()
    if as_json:
        output.echo_json(Page(items=tuple(found)))
        return DONE
    rows = [(one.name, format_references(one.url), _filter(one), one.secret or "") for one in found]
    columns = (
        Column("subscription", least=12, rank=0),
        Column("url", least=20),
        Column("events", rank=2),
        Column("secret", rank=3),
    )
    empty = "no subscriptions; daybell subscriptions create NAME URL makes one"
    output.echo_table(columns, rows, empty=empty)
    return DONE


def _filter(one: wire.Subscription) -> str:
    parts = [*one.types, *one.status]
    parts += [f"{what} {name}" for what, name in (("job", one.job), ("queue", one.queue)) if name]
    return ", ".join(parts) or "all"


async def create_subscription(
    settings: Settings,
    *,
    name: str,
    url: str,
    fields: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    value = {"name": name, "url": parse_reference(url)}
    value |= {key: one for key, one in fields.items() if one is not None}
    async with client_for(settings, tenant=tenant) as client:
        made = await client.create_subscription(value, author=current_actor())
    if as_json:
        output.echo_json(made)
        return DONE
    typer.echo(f"subscription {made.name} sends events: {_filter(made)}")
    if made.secret is None:
        typer.echo("note: deliveries are not signed; --secret NAME signs them", err=True)
    return DONE


async def show_subscription(
    settings: Settings, *, name: str, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.subscription(name)
        if as_json:
            output.echo_json(found)
            return DONE
        try:
            items = (await client.executions(job=found.delivery_job, limit=SHOWN_MAX)).items
        except JobNotFound:  # it is made with the first delivery
            items = ()
    output.echo_fields(
        {
            "subscription": found.name,
            "url": format_references(found.url),
            "events": _filter(found),
            "signed by": found.secret,
            "queue of deliveries": found.message_queue,
            "description": found.description or None,
            "created": output.format_moment(found.created_at),
        }
    )
    rows = [
        (str(one.execution_id), str(one.status), output.format_moment(one.created_at))
        for one in items
    ]
    output.echo_table(("delivery", "status", "created"), rows, empty="no deliveries yet")
    return DONE


async def delete_subscription(
    settings: Settings, *, name: str, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.subscription(name)
        confirm(f"delete subscription {found.name}?", yes=yes)
        await client.delete_subscription(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"subscription {found.name} is deleted")
    return DONE


async def test_subscription(
    settings: Settings, *, name: str, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        sent = await client.test_subscription(name)
    if as_json:
        output.echo_json(sent)
    else:
        typer.echo(
            f"execution {sent.execution_id} delivers the event; see how it ends:"
            f" daybell executions wait {sent.execution_id}"
        )
    return DONE
