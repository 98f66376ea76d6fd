"""`daybell subscriptions`: list, create, show, delete and test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from daybell.cli import actions, output
from daybell.cli.options import Yes, gather, group, on_client
from daybell.cli.output import Column
from daybell.errors import JobNotFound

if TYPE_CHECKING:
    from daybell.client import wire
    from daybell.client.remote.client import AnyClient

app = group("Subscriptions: receivers of outgoing events.")

SHOWN_MAX: Final = 10  # of the deliveries of one

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]

Url = Annotated[
    str, typer.Argument(metavar="URL", help="The receiver; @secret:NAME for one kept as a secret.")
]
FIELDS: Final = {
    "secret": Annotated[
        str | None,
        typer.Option(
            "--secret", metavar="NAME", help="The secret that signs, as Standard Webhooks."
        ),
    ],
    "types": Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only this type, such as job.changed or execution.*; may be repeated.",
        ),
    ],
    "status": Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only executions with this status: succeeded, dead, cancelled, skipped, retrying"
            " or lost; may be repeated.",
        ),
    ],
    "job": Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", help="Only this job; a beginning and * for several."),
    ],
    "queue": Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="NAME", help="Only this queue; a beginning and * for several."
        ),
    ],
    "message_queue": Annotated[
        str | None,
        typer.Option("--message-queue", metavar="NAME", help="The queue of the deliveries."),
    ],
    "description": Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="A note, for people.")
    ],
}


@app.command("list")
@on_client()
async def list_subscriptions(client: AnyClient, *, as_json: bool) -> None:
    """List the subscriptions."""
    found = await client.subscriptions()
    if as_json:
        return output.echo_list(found)
    rows = [
        (one.name, actions.references.format_references(one.url), _filter(one), one.secret or "")
        for one in found
    ]
    columns = (
        Column("subscription", least=12, rank=0),
        Column("url", least=20),
        Column("events", rank=2),
        Column("secret", rank=3),
    )
    empty = "no subscriptions; daybell subscriptions create NAME URL makes one"
    output.echo_table(columns, rows, empty=empty)


@app.command("create")
@gather("fields", FIELDS)
@on_client()
async def create_subscription(
    client: AnyClient, name: Name, url: Url, fields: Any, *, as_json: bool
) -> None:
    """Send events to a URL, from now on.

    Each event is a CloudEvent in a POST, which workers repeat until it is answered with 2xx.
    """
    value = {"name": name, "url": actions.references.parse_reference(url)}
    value |= {key: one for key, one in fields.items() if one is not None}
    made = await client.create_subscription(value, author=actions.terminal.current_actor())
    if as_json:
        return output.echo_json(made)
    typer.echo(f"subscription {made.name} sends events: {_filter(made)}")
    if made.secret is None:
        typer.echo("note: deliveries are not signed; --secret NAME signs them", err=True)


@app.command("show")
@on_client()
async def show_subscription(client: AnyClient, name: Name, *, as_json: bool) -> None:
    """Show a subscription, and its last deliveries."""
    found = await client.subscription(name)
    if as_json:
        return output.echo_json(found)
    try:
        items = (await client.executions(job=found.delivery_job, limit=SHOWN_MAX)).items
    except JobNotFound:  # it is made with the first delivery
        items = ()
    output.echo_fields(
        {
            "subscription": found.name,
            "url": actions.references.format_references(found.url),
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


@app.command("delete")
@on_client()
async def delete_subscription(
    client: AnyClient, name: Name, yes: Yes = False, *, as_json: bool
) -> None:
    """Delete a subscription. Enqueued deliveries are made."""
    found = await client.subscription(name)
    actions.terminal.confirm(f"delete subscription {found.name}?", yes=yes)
    await client.delete_subscription(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"subscription {found.name} is deleted")


@app.command("test")
@on_client()
async def test_subscription(client: AnyClient, name: Name, *, as_json: bool) -> None:
    """Send a test event to the receiver."""
    sent = await client.test_subscription(name)
    if as_json:
        output.echo_json(sent)
    else:
        typer.echo(
            f"execution {sent.execution_id} delivers the event; see how it ends:"
            f" daybell executions wait {sent.execution_id}"
        )


def _filter(one: wire.Subscription) -> str:
    parts = [*one.types, *one.status]
    parts += [f"{what} {name}" for what, name in (("job", one.job), ("queue", one.queue)) if name]
    return ", ".join(parts) or "all"
