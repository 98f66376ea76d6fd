"""`daybell limits`: list, show, set, pause and resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli import output
from daybell.cli.options import group, on_client
from daybell.cli.output import Column
from daybell.errors import UsageError, shown

if TYPE_CHECKING:
    from daybell.client import wire
    from daybell.client.remote.client import AnyClient

limits_app = group("Limits: how many run at a time, or start in a time.")

LimitName = Annotated[str, typer.Argument(metavar="NAME", help="The limit's name.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="VALUE", help="Only this value of its key.")
]


@limits_app.command("list")
@on_client()
async def list_limits(client: AnyClient, *, as_json: bool) -> None:
    """List limits with their numbers."""
    limits = await client.limits()
    if as_json:
        return output.echo_list(limits)
    rows = [
        (one.name, _state(one), _at_a_time(one.limit), ", ".join(one.rates), one.running,
         one.waiting, one.keys)
        for one in limits
    ]  # fmt: skip
    name = Column("name", least=20, rank=0)
    columns = (name, "state", "at a time", "rate", "running", "waiting", "keys")
    output.echo_table(columns, rows, empty="no limits; a job with concurrency or rate makes one")


@limits_app.command("show")
@on_client()
async def show_limit(client: AnyClient, name: LimitName, *, as_json: bool) -> None:
    """Show a limit by the values of its key."""
    found = await client.limit(name)
    now = (await client.health()).now
    if as_json:
        return output.echo_json(found)
    numbers = [] if found.limit is None else [f"{found.limit:,} at a time"]
    typer.echo(f"limit {found.name}: {', '.join([*numbers, *found.rates])}; {_state(found)}")
    rows = [
        (
            one.key or "(all)",
            "paused" if one.is_paused else "open",
            one.running,
            one.waiting,
            "" if one.tokens is None else one.tokens,
            "" if one.next_at is None else output.format_relative(one.next_at, now=now),
            ", ".join(str(id) for id in one.holders),
        )
        for one in found.buckets
    ]
    columns = (Column("key", least=12, rank=0), "state", "running", "waiting", "tokens", "room",
               Column("held by", least=12, rank=9))  # fmt: skip
    output.echo_table(columns, rows, empty="no execution has asked for it yet")


@limits_app.command("set")
@on_client(as_json=None)
async def set_limit(
    client: AnyClient,
    name: LimitName,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="N", help="How many run at a time; none: as declared."),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="RATE", help="How many start in a time, such as 100/m."),
    ] = None,
) -> None:
    """Change the numbers of a limit. What runs goes on."""
    changes: dict[str, Any] = {}
    if limit is not None:
        if limit != "none" and not (limit.isdecimal() and len(limit) < 10):
            raise UsageError(f"--limit {shown(limit)} must be a whole number from 1, or none")
        changes["limit"] = None if limit == "none" else int(limit)
    if rate:
        changes["rate"] = None if list(rate) == ["none"] else list(rate)
    found = await client.set_limit(name, changes)
    numbers = [] if found.limit is None else [f"{found.limit:,} at a time"]
    typer.echo(f"limit {name}: {', '.join([*numbers, *found.rates])}")


@limits_app.command("pause")
@on_client(as_json=None)
async def pause_limit(
    client: AnyClient,
    name: LimitName,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="End by itself after this time."),
    ] = None,
    key: Key = None,
) -> None:
    """Start nothing that needs a limit; what runs goes on."""
    await client.pause_limit(name, duration=duration, key=key)
    of = "" if key is None else f" of {key}"
    until = "until it is resumed" if duration is None else f"for {duration}"
    typer.echo(f"limit {name}{of} is paused {until}")


@limits_app.command("resume")
@on_client(as_json=None)
async def resume_limit(client: AnyClient, name: LimitName, key: Key = None) -> None:
    """Start what needs a limit again."""
    await client.resume_limit(name, key=key)
    typer.echo(f"limit {name}{'' if key is None else f' of {key}'} is open")


def _state(one: wire.Limit) -> str:
    return "paused" if one.is_paused else "open"


def _at_a_time(limit: int | None) -> str:
    return "" if limit is None else f"{limit:,}"
