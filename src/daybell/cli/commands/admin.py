"""`daybell tenants`, `keys` and `audit`: quotas, API keys, and the audit log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from daybell.cli.options import Cursor, DatabaseUrl, Json, KeyTenant, Limit, Tenant, group, run
from daybell.cli.runtime import DONE, FAILED

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient
    from daybell.core.access import Key, Quotas
    from daybell.core.units import Instant
    from daybell.settings import Settings


tenants_app = group("Tenants: isolated spaces, and how much each may use.")

NO_LIMIT: Final = "none"

TenantName = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]


def _quota(flag: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(flag, metavar="N", help=f"{what}; none: no limit.", show_default=False)


Jobs = Annotated[str | None, _quota("--jobs", "How many jobs it may have")]
Queued = Annotated[str | None, _quota("--queued", "How many unfinished executions")]
PerMinute = Annotated[str | None, _quota("--per-minute", "How many executions a minute")]
Running = Annotated[str | None, _quota("--running", "How many may run at the same time")]


@tenants_app.command("create")
def create_tenant(
    context: typer.Context,
    name: TenantName,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a tenant."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(context, partial(_create_tenant, name=name, words=quotas), database_url)


@tenants_app.command("list")
def list_tenants(
    context: typer.Context, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """List tenants with their quotas."""
    run(context, partial(_list_tenants, as_json=as_json), database_url)


@tenants_app.command("update")
def update_tenant(
    context: typer.Context,
    name: TenantName,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a tenant's quotas; those that are not named stay."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(context, partial(_update_tenant, name=name, words=quotas), database_url)


async def _create_tenant(settings: Settings, *, name: str, words: dict[str, str | None]) -> int:
    from daybell.cli.connection import audit_entry, client_for

    quotas = _read_quotas(words)
    async with client_for(settings) as client:
        with audit_entry(client, "tenant.create", name, after=quotas):
            tenant = await client.add_tenant(name, **quotas)
    typer.echo(f"tenant {tenant.name} is created: {_describe_quotas(tenant.quotas)}")
    return DONE


async def _list_tenants(settings: Settings, *, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.cli.output import Column
    from daybell.client import wire
    from daybell.core.views import Page

    async with client_for(settings) as client:
        tenants = await client.tenants()
        now = (await client.health()).now
    if as_json:
        output.echo_json(wire.page(Page(items=tuple(tenants)), wire.tenant))
        return DONE
    rows = [
        (one.name, *_limits(one.quotas).values(), output.format_relative(one.created_at, now=now))
        for one in tenants
    ]
    name = Column("name", least=20, rank=0)
    columns = (name, "jobs", "queued", "per minute", "running", "created")
    output.echo_table(columns, rows, empty="no tenants")
    return DONE


async def _update_tenant(settings: Settings, *, name: str, words: dict[str, str | None]) -> int:
    from msgspec.structs import asdict

    from daybell.cli.connection import audit_entry, client_for
    from daybell.errors import UsageError

    quotas = _read_quotas(words)
    if not quotas:
        raise UsageError("nothing to change; name a quota, such as --queued 1000 or --jobs none")
    async with client_for(settings) as client:
        before = asdict((await client.tenant_record(name)).quotas)
        with audit_entry(client, "tenant.update", name, before=before, after={**before, **quotas}):
            tenant = await client.update_tenant(name, **quotas)
    typer.echo(f"tenant {tenant.name}: {_describe_quotas(tenant.quotas)}")
    return DONE


def _read_quotas(words: dict[str, str | None]) -> dict[str, int | None]:
    """The quotas that were named."""
    from daybell.errors import UsageError, shown

    quotas: dict[str, int | None] = {}
    for name, word in words.items():
        if word is None:
            continue
        if word == NO_LIMIT:
            quotas[name] = None
        elif word.isascii() and word.isdecimal() and len(word) <= len("1000000000"):
            quotas[name] = int(word)
        else:
            flag = name.replace("_", "-")
            if word.startswith("-") and word[1:].isdecimal():
                raise UsageError(f"--{flag} {shown(word)} is not a limit; it is not below 0")
            raise UsageError(f"--{flag} {shown(word)} is neither a number nor {NO_LIMIT!r}")
    return quotas


def _limits(quotas: Quotas) -> dict[str, str]:
    """Quotas as a table shows them."""
    from msgspec.structs import asdict

    return {name: "-" if most is None else f"{most:,}" for name, most in asdict(quotas).items()}


def _describe_quotas(quotas: Quotas) -> str:
    """Quotas in words."""
    limits = {name: most for name, most in _limits(quotas).items() if most != "-"}
    words = [f"{name.replace('_', ' ')} {most}" for name, most in limits.items()]
    return f"at most {', '.join(words)}" if words else "no limits"


# `daybell keys`: tokens that open the HTTP API.

keys_app = group("Keys: who may use the HTTP API, and for what.")


def complete_roles(incomplete: str) -> list[str]:
    """What `--role` may be, for completion."""
    from daybell.core.access import Role

    return [role for role in Role if role.startswith(incomplete)]


def complete_actions(incomplete: str) -> list[str]:
    """What `--action` may be, for completion."""
    from daybell.core.access import Action

    return [action for action in Action if action.startswith(incomplete)]


@keys_app.command("create")
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
            autocompletion=complete_roles,
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
            autocompletion=complete_actions,
        ),
    ] = None,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key, and show its token this once."""
    options = {"name": name, "role": role, "expires": expires}
    options |= {"jobs": jobs or None, "queues": queues or None, "actions": actions or None}
    run(context, partial(_create_key, **options, tenant=tenant, as_json=as_json), database_url)


@keys_app.command("list")
def list_keys(
    context: typer.Context,
    tenant: KeyTenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List keys, newest first; expired and revoked ones too."""
    run(context, partial(_list_keys, tenant=tenant, as_json=as_json), database_url)


@keys_app.command("revoke")
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
    run(context, partial(_revoke_key, wanted=key, tenant=tenant), database_url)


async def _create_key(
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
    from daybell.cli import output
    from daybell.cli.connection import audit_entry, client_for, current_actor
    from daybell.client import wire
    from daybell.client.admin import read_role, read_scope
    from daybell.core.access import Action

    limits = {"jobs": jobs, "queues": queues, "actions": actions}
    read_scope(role, **limits)
    asked = {"name": name, "role": str(read_role(role)), "expires": expires}
    asked |= {name: value for name, value in limits.items() if value is not None}
    async with client_for(settings, tenant=tenant) as client:
        with audit_entry(client, "key.create", name, after=asked):
            key, token = await client.create_key(
                name, role=role, expires=expires, created_by=current_actor(), **limits
            )
    if as_json:
        output.echo_json({**wire.key(key), "token": token})
        return DONE
    until = "" if key.expires_at is None else f", until {output.format_moment(key.expires_at)}"
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


async def _list_keys(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.cli.output import Column
    from daybell.client import wire
    from daybell.core.views import Page

    async with client_for(settings, tenant=tenant) as client:
        keys = await client.keys()
        now = (await client.health()).now
    if as_json:
        output.echo_json(wire.page(Page(items=tuple(keys)), wire.key))
        return DONE
    rows = [
        (
            one.id,
            one.name,
            one.role,
            "" if one.scope is None else output.printable(one.scope.describe()),
            f"{one.hint}…",
            _key_state(one, now),
            output.format_relative(one.created_at, now=now),
            output.format_relative(one.expires_at, now=now),
            output.format_relative(one.used_at, now=now) or "never",
        )
        for one in keys
    ]
    name = Column("name", least=20, rank=0)
    scope = Column("scope", least=8, rank=5)
    columns = ("id", name, "role", scope, "token", "state", "created", "expires", "used")
    output.echo_table(
        columns, rows, empty="no keys; daybell keys create NAME --role ROLE makes one"
    )
    return DONE


async def _revoke_key(settings: Settings, *, wanted: str, tenant: str | None) -> int:
    from daybell.cli.connection import audit_entry, client_for

    async with client_for(settings, tenant=tenant) as client:
        key = await _find_key(client, wanted)
        if key.revoked_at is None:
            with audit_entry(client, "key.revoke", str(key.id), before={"name": key.name}):
                await client.revoke_key(key.id)
    done = "is revoked" if key.revoked_at is None else "was revoked already"
    typer.echo(f"key {key.name} ({key.hint}…) {done}")
    return DONE


async def _find_key(client: AnyClient, wanted: str) -> Key:
    """The only key that is meant. One that was revoked is meant only by its id."""
    from daybell.cli import output
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
            raise UsageError(f"{output.printable(wanted)!r} may be any of {which}; give the id")
    raise NotFound(f"no key {output.printable(wanted)!r}; see daybell keys list")


def _begins(key: Key, wanted: str) -> bool:
    if not wanted:
        return False
    # Of a token only how it begins is known, and whoever has all of it may paste that.
    return key.name.startswith(wanted) or (
        wanted.startswith("dbk_")
        and len(wanted) > len("dbk_")
        and (key.hint.startswith(wanted) or wanted.startswith(key.hint))
    )


def _key_state(key: Key, now: Instant) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.is_valid(now) else "expired"


# `daybell audit`: who changed what.

audit_app = group("The audit log: who changed what.")

Text = str | None


@audit_app.command("list")
def list_entries(
    context: typer.Context,
    actor: Annotated[
        Text, typer.Option("--actor", metavar="NAME", help="By whom, as listed.")
    ] = None,
    action: Annotated[
        Text, typer.Option("--action", metavar="WORD", help="Such as job.update, or all of job.")
    ] = None,
    target: Annotated[
        Text, typer.Option("--target", metavar="NAME", help="The name or id changed.")
    ] = None,
    since: Annotated[
        Text,
        typer.Option(
            "--since", metavar="TIME", help="Then or later: 1h for ago, a date, or ISO 8601."
        ),
    ] = None,
    until: Annotated[Text, typer.Option("--until", metavar="TIME", help="Before then.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List what was changed, newest first."""
    asked = {"actor": actor, "action": action, "target": target}
    command = partial(
        _list_entries,
        asked=asked,
        span=(since, until),
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@audit_app.command("verify")
def verify_entries(
    context: typer.Context,
    after: Annotated[
        Text,
        typer.Option(
            "--after",
            metavar="HEAD",
            help="Start after the head that an earlier run printed; the log must still lead on from"
            " it.",
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Check that no entry was altered or removed.

    Exit status 1: the log is broken."""
    command = partial(_verify_entries, after=after, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


async def _verify_entries(settings: Settings, *, after: Text, tenant: Text, as_json: bool) -> int:
    from msgspec.structs import replace

    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        check = await client.verify_audit(cursor=after)
        while check.next_cursor is not None:
            more = await client.verify_audit(cursor=check.next_cursor)
            entries = check.entries + more.entries
            check = replace(more, entries=entries, unchained=check.unchained)
    broken = check.broken
    if as_json:
        output.echo_json(wire.audit_check(check))
        return DONE if broken is None else FAILED
    older = f", {check.unchained} older than the chain not checked" if check.unchained else ""
    if broken is None:
        typer.echo(f"{check.entries} entries checked{older}; head {check.head}")
        return DONE
    place = f"entry {broken.number}" + ("" if broken.id is None else f" ({broken.id})")
    typer.echo(f"the audit log is broken: {place} {broken.problem}", err=True)
    return FAILED


async def _list_entries(
    settings: Settings,
    *,
    asked: dict[str, Text],
    span: tuple[Text, Text],
    limit: int,
    cursor: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.cli.output import Column
    from daybell.client import wire

    since, until = span
    async with client_for(settings, tenant=tenant) as client:
        page = await client.audit(
            **asked,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
        )
    if as_json:
        output.echo_json(wire.page(page, wire.entry))
        return DONE
    rows = [
        (
            output.format_moment(one.at),
            one.actor,
            one.action,
            one.target,
            one.after or "",
            one.source,
        )
        for one in page.items
    ]
    columns = (
        Column("at"),
        Column("actor", least=16, rank=1),
        Column("action"),
        Column("target", least=20, rank=0),
        Column("after", least=16, rank=2),
        Column("from", least=8, rank=3),
    )
    output.echo_table(columns, rows, empty="no entries")
    output.echo_more(page.next_cursor)
    return DONE
