"""`daybell events`, `executions signal` and `approve`: send events, and list them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.commands import executions
from daybell.cli.commands.executions import Id
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, group, run
from daybell.cli.runtime import DONE

if TYPE_CHECKING:
    from daybell.core.event import Published
    from daybell.settings import Settings


app = group("Events: what executions wait for.")

Text = str | None
Data = Annotated[Text, typer.Option("--data", metavar="JSON", help='Such as {"order_id": 42}.')]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The event's name, as it is waited for.")]


@app.command("publish")
def publish_event(
    context: typer.Context,
    name: Name,
    data: Data = None,
    source: Annotated[
        Text,
        typer.Option("--source", metavar="TEXT", help="Where it comes from; daybell, if left out."),
    ] = None,
    id: Annotated[
        Text, typer.Option("--id", metavar="TEXT", help="What it counts once by; a new one.")
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Tell of an event: what waits for it goes on."""
    command = partial(
        _publish, name=name, data=data, source=source, id=id, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("list")
def list_events(
    context: typer.Context,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List events that are on record, those that came last first."""
    command = partial(_list, limit=limit, cursor=cursor, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@executions.app.command("signal")
def signal_execution(
    context: typer.Context,
    id: Id,
    name: Name,
    data: Data = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Send an event to one execution, now or before it waits."""
    command = partial(_signal, id=id, name=name, data=data, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@executions.app.command("approve")
def approve_execution(
    context: typer.Context,
    id: Id,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What is decided on.")
    ] = "approval",
    reject: Annotated[bool, typer.Option("--reject", help="Say no.")] = False,
    note: Annotated[
        Text, typer.Option("--note", metavar="TEXT", help="Why, for the execution.")
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Approve what an execution waits for, or reject it."""
    command = partial(
        _approve, id=id, name=name, approved=not reject, note=note, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


async def _publish(
    settings: Settings,
    *,
    name: str,
    data: Text,
    source: Text,
    id: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    from daybell.cli.connection import client_for

    said = _read(data)
    async with client_for(settings, tenant=tenant) as client:
        return _told(await client.publish(name, said, source=source, id=id), as_json=as_json)


async def _signal(
    settings: Settings, *, id: str, name: str, data: Text, tenant: Text, as_json: bool
) -> int:
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for

    said = _read(data)
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return _told(await client.signal(found, name, said), as_json=as_json)


async def _approve(
    settings: Settings,
    *,
    id: str,
    name: str,
    approved: bool,
    note: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for, current_actor

    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        by = current_actor()
        said = await client.approve(found, name, approved=approved, by=by, note=note)
        return _told(said, as_json=as_json)


def _read(data: Text) -> object:
    from daybell.core import payload

    return None if data is None else payload.decode(data, what="--data")


def _told(published: Published, *, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.client.wire import identity

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


async def _list(
    settings: Settings, *, limit: int, cursor: Text, tenant: Text, as_json: bool
) -> int:
    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.cli.output import Column
    from daybell.client import wire
    from daybell.client.wire import encode_event

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
