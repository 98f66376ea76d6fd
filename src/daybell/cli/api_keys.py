"""`daybell keys`: tokens that open the HTTP API."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import DatabaseUrl, Json, KeyTenant, group, run

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient
    from daybell.core.access import Key
    from daybell.core.instant import Instant
    from daybell.settings import Settings

app = group("Keys: who may use the HTTP API, and for what.")


def roles(incomplete: str) -> list[str]:
    """What `--role` may be, for completion."""
    from daybell.core.access import Role

    return [role for role in Role if role.startswith(incomplete)]


def all_actions(incomplete: str) -> list[str]:
    """What `--action` may be, for completion."""
    from daybell.core.access import Action

    return [action for action in Action if action.startswith(incomplete)]


@app.command("create")
def create_key(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you will know it by.")],
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="What it may do: viewer, operator, admin, superadmin or worker.",
            show_default=False,
            autocompletion=roles,
        ),
    ],
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="DURATION",
            help="Let it end by itself, such as after 30d.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="PATTERN",
            help="Limit it to this job, or to those that begin so: billing-*. Repeatable.",
            show_default=False,
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="PATTERN",
            help="Limit it to this queue, or to those that begin so. Repeatable.",
            show_default=False,
        ),
    ] = None,
    actions: Annotated[
        list[str] | None,
        typer.Option(
            "--action",
            metavar="ACTION",
            help="Limit it to this action, such as read or trigger. Repeatable.",
            show_default=False,
            autocompletion=all_actions,
        ),
    ] = None,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key, and show its token this once."""
    options = {"name": name, "role": role, "expires": expires}
    options |= {"jobs": jobs or None, "queues": queues or None, "actions": actions or None}
    run(context, partial(_create, **options, tenant=tenant, as_json=as_json), database_url)


@app.command("list")
def list_keys(
    context: typer.Context,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List keys, newest first; expired and revoked ones too."""
    run(context, partial(_list, tenant=tenant, as_json=as_json), database_url)


@app.command("revoke")
def revoke_key(
    context: typer.Context,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="Its id, or how its name or its token begins, if only one does so."
        ),
    ],
    tenant: KeyTenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a key open nothing any more, within 5 seconds."""
    run(context, partial(_revoke, wanted=key, tenant=tenant), database_url)


async def _create(
    settings: Settings,
    *,
    name: str,
    role: str,
    expires: str | None,
    jobs: list[str] | None,
    queues: list[str] | None,
    actions: list[str] | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.cli.recording import on_record, whoever_types
    from daybell.client import wire
    from daybell.client.access import read_role, read_scope
    from daybell.core.access import Action

    limits = {"jobs": jobs, "queues": queues, "actions": actions}
    read_scope(role, **limits)
    asked = {"name": name, "role": str(read_role(role)), "expires": expires}
    asked |= {name: value for name, value in limits.items() if value is not None}
    async with client_for(settings, tenant=tenant) as client:
        with on_record(client, "key.create", name, after=asked):
            key, token = await client.create_key(
                name, role=role, expires=expires, created_by=whoever_types(), **limits
            )
    if as_json:
        show.echo_json({**wire.key(key), "token": token})
        return DONE
    until = "" if key.expires_at is None else f", until {show.moment(key.expires_at)}"
    limited = "" if key.scope is None else f", limited to {key.scope.describe()}"
    typer.echo(
        f"key {key.name} opens tenant {key.tenant} as {key.role}{limited}{until}. This is its"
        " token; keep"
        " it, it cannot be shown again:",
        err=True,
    )
    typer.echo(token)
    if key.scope is not None and not key.scope.allows(Action.READ):
        typer.echo(
            "note: without the action read, commands that list, show or wait are refused to it, and"
            " so are those that look for executions by a filter",
            err=True,
        )
    return DONE


async def _list(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.connecting import client_for
    from daybell.client import wire
    from daybell.core.view import Page

    async with client_for(settings, tenant=tenant) as client:
        keys = await client.keys()
        now = (await client.health()).now
    if as_json:
        show.echo_json(wire.page(Page(items=tuple(keys)), wire.key))
        return DONE
    rows = [
        (
            one.id,
            one.name,
            one.role,
            "" if one.scope is None else show.printable(one.scope.describe()),
            f"{one.hint}…",
            _state(one, now),
            show.relative(one.created_at, now=now),
            show.relative(one.expires_at, now=now),
            show.relative(one.used_at, now=now) or "never",
        )
        for one in keys
    ]
    name = Column("name", least=20, rank=0)
    scope = Column("scope", least=8, rank=5)
    columns = ("id", name, "role", scope, "token", "state", "created", "expires", "used")
    show.echo_table(columns, rows, empty="no keys; daybell keys create NAME --role ROLE makes one")
    return DONE


async def _revoke(settings: Settings, *, wanted: str, tenant: str | None) -> int:
    from daybell.cli.connecting import client_for
    from daybell.cli.recording import on_record

    async with client_for(settings, tenant=tenant) as client:
        key = await _find(client, wanted)
        if key.revoked_at is None:
            with on_record(client, "key.revoke", str(key.id), before={"name": key.name}):
                await client.revoke_key(key.id)
    done = "is revoked" if key.revoked_at is None else "was revoked already"
    typer.echo(f"key {key.name} ({key.hint}…) {done}")
    return DONE


async def _find(client: AnyClient, wanted: str) -> Key:
    """The only key that is meant. One that was revoked is meant only by its id."""
    from daybell.cli import show
    from daybell.errors import NotFound, UsageError

    keys = await client.keys()
    exact = [key for key in keys if str(key.id) == wanted.lower()]
    valid = [key for key in keys if key.revoked_at is None]
    named = [key for key in valid if key.name == wanted]
    begun = [key for key in valid if _begins(key, wanted)]
    for found in (exact, named, begun):
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(f"{key.name} {key.hint}… {key.id}" for key in found)
            raise UsageError(f"{show.printable(wanted)!r} may be any of {which}; give the id")
    raise NotFound(f"no key {show.printable(wanted)!r}; see daybell keys list")


def _begins(key: Key, wanted: str) -> bool:
    if not wanted:
        return False
    # Of a token only how it begins is known, and whoever has all of it may paste that.
    return key.name.startswith(wanted) or (
        wanted.startswith("dbk_")
        and len(wanted) > len("dbk_")
        and (key.hint.startswith(wanted) or wanted.startswith(key.hint))
    )


def _state(key: Key, now: Instant) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.is_valid(now) else "expired"
