"""`daybell subscriptions`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

from daybell.cli import actions
from daybell.cli.options import Action, Yes, gather, group, shared

app = group("Subscriptions: receivers of outgoing events.")

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
@shared()
def list_subscriptions() -> Action:
    """List the subscriptions."""
    return actions.subscriptions.list_subscriptions


@app.command("create")
@gather("fields", FIELDS)
@shared()
def create_subscription(name: Name, url: Url, fields: Any) -> Action:
    """Send events to a URL, from now on.

    Each event is a CloudEvent in a POST, which workers repeat until it is answered with 2xx.
    """
    return partial(actions.subscriptions.create_subscription, name=name, url=url, fields=fields)


@app.command("show")
@shared()
def show_subscription(name: Name) -> Action:
    """Show a subscription, and its last deliveries."""
    return partial(actions.subscriptions.show_subscription, name=name)


@app.command("delete")
@shared()
def delete_subscription(name: Name, yes: Yes = False) -> Action:
    """Delete a subscription. Enqueued deliveries are made."""
    return partial(actions.subscriptions.delete_subscription, name=name, yes=yes)


@app.command("test")
@shared()
def test_subscription(name: Name) -> Action:
    """Send a test event to the receiver."""
    return partial(actions.subscriptions.test_subscription, name=name)
