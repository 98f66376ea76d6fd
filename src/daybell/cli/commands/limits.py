"""`daybell limits`: list, show, set, pause and resume."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Action, group, shared

limits_app = group("Limits: how many run at a time, or start in a time.")

LimitName = Annotated[str, typer.Argument(metavar="NAME", help="The limit's name.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="VALUE", help="Only this value of its key.")
]


@limits_app.command("list")
@shared()
def list_limits() -> Action:
    """List limits with their numbers."""
    return actions.limits.list_limits


@limits_app.command("show")
@shared()
def show_limit(name: LimitName) -> Action:
    """Show a limit by the values of its key."""
    return partial(actions.limits.show_limit, name=name)


@limits_app.command("set")
@shared(as_json=None)
def set_limit(
    name: LimitName,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="N", help="How many run at a time; none: as declared."),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="RATE", help="How many start in a time, such as 100/m."),
    ] = None,
) -> Action:
    """Change the numbers of a limit. What runs goes on."""
    return partial(actions.limits.set_limit, name=name, limit=limit, rate=rate)


@limits_app.command("pause")
@shared(as_json=None)
def pause_limit(
    name: LimitName,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="End by itself after this time."),
    ] = None,
    key: Key = None,
) -> Action:
    """Start nothing that needs a limit; what runs goes on."""
    return partial(actions.limits.pause_limit, name=name, duration=duration, key=key)


@limits_app.command("resume")
@shared(as_json=None)
def resume_limit(name: LimitName, key: Key = None) -> Action:
    """Start what needs a limit again."""
    return partial(actions.limits.resume_limit, name=name, key=key)
