"""`daybell events`: publish events, and list them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, group, run

if TYPE_CHECKING:
    pass


app = group("Events: what executions wait for.")

Text = str | None
Data = Annotated[Text, typer.Option("--data", metavar="JSON", help='Such as {"order_id": 42}.')]
EventName = Annotated[
    str, typer.Argument(metavar="NAME", help="The event's name, as it is waited for.")
]


@app.command("publish")
def publish_event(
    context: typer.Context,
    name: EventName,
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
        actions.events.publish_event,
        name=name,
        data=data,
        source=source,
        id=id,
        tenant=tenant,
        as_json=as_json,
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
    command = partial(
        actions.events.list_events, limit=limit, cursor=cursor, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)
