"""The work of `daybell events`, `executions signal` and `approve`."""

from __future__ import annotations

import typer

from daybell.cli import output
from daybell.cli.actions.selection import find_execution
from daybell.cli.connection import client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.runtime import DONE
from daybell.client import wire
from daybell.client.wire import encode_event, identity
from daybell.core import payload
from daybell.core.event import Published
from daybell.settings import Settings

Text = str | None


async def publish_event(
    settings: Settings,
    *,
    name: str,
    data: Text,
    source: Text,
    id: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    said = _read(data)
    async with client_for(settings, tenant=tenant) as client:
        return _told(await client.publish(name, said, source=source, id=id), as_json=as_json)


async def signal_execution(
    settings: Settings, *, id: str, name: str, data: Text, tenant: Text, as_json: bool
) -> int:
    said = _read(data)
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return _told(await client.signal(found, name, said), as_json=as_json)


async def approve_execution(
    settings: Settings,
    *,
    id: str,
    name: str,
    approved: bool,
    note: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        by = current_actor()
        said = await client.approve(found, name, approved=approved, by=by, note=note)
        return _told(said, as_json=as_json)


def _read(data: Text) -> object:
    return None if data is None else payload.decode(data, what="--data")


def _told(published: Published, *, as_json: bool) -> int:
    if published.node is not None and not as_json:
        whom = f"{published.node} ({published.execution})"
        typer.echo(output.printable(f"passed on to its node {whom}, which waited for it"))
    if as_json:
        told = {"created": published.created, "resumed": published.resumed}
        told |= {"execution_id": identity(published.execution), "node": published.node}
        output.echo_json(told)
    elif not published.created:
        typer.echo("it was on record already; nothing was done")
    else:
        count = published.resumed
        typer.echo(
            "on record; nothing waits for it yet"
            if not count
            else f"{count:,} execution{'s' if count > 1 else ''} went on"
        )
    return DONE


async def list_events(
    settings: Settings, *, limit: int, cursor: Text, tenant: Text, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        page = await client.events(limit=limit, cursor=cursor)
    if as_json:
        output.echo_json(wire.page(page, encode_event))
        return DONE
    rows = [
        (
            output.format_moment(one.received_at),
            one.name,
            one.data,
            one.execution,
            one.source,
            one.id,
        )
        for one in page.items
    ]
    columns = (
        Column("received"),
        Column("name", least=16, rank=0),
        Column("data", least=16, rank=1),
        Column("execution", rank=2),
        Column("source", rank=3),
        Column("id", rank=4),
    )
    output.echo_table(columns, rows, empty="no events")
    output.echo_more(page.next_cursor)
    return DONE
