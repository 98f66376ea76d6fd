"""The work of `daybell tenants`, `keys`, `audit` and `secrets`."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import typer
from msgspec.structs import asdict, replace

from daybell.cli import output
from daybell.cli.actions.selection import none_if_denied
from daybell.cli.connection import audited, client_for
from daybell.cli.output import Column
from daybell.cli.runtime import DONE, FAILED
from daybell.cli.terminal import confirm, current_actor, interruptible
from daybell.client import Client, wire
from daybell.client.admin import login_link, read_role, read_scope
from daybell.client.remote.client import AnyClient
from daybell.client.sealing import NEW_KEY, VARIABLE, check_value, new_key
from daybell.core.access import Action
from daybell.core.limits import SECRET_BYTES_MAX
from daybell.core.options import Keep
from daybell.core.references import check_secret_name
from daybell.core.units import Instant
from daybell.core.views import Page
from daybell.errors import Conflict, NotFound, SecretNotFound, UsageError, shown
from daybell.settings import Settings

NO_LIMIT: Final = "none"


async def create_tenant(settings: Settings, *, name: str, words: dict[str, str | None]) -> int:
    quotas = _read_quotas(words)
    async with client_for(settings) as client:
        recorded = audited(client, "tenant.create", name, after=quotas)
        tenant = await recorded.add_tenant(name, **quotas)
    typer.echo(f"tenant {tenant.name} is created: {_describe_quotas(tenant.quotas)}")
    return DONE


async def list_tenants(settings: Settings, *, as_json: bool) -> int:
    async with client_for(settings) as client:
        tenants = await client.tenants()
        now = (await client.health()).now
    if as_json:
        output.echo_json(Page(items=tuple(tenants)))
        return DONE
    rows = [
        (
            one.name,
            *_limits(one.quotas).values(),
            f"{one.weight:g}",
            output.format_relative(one.created_at, now=now),
        )
        for one in tenants
    ]
    name = Column("name", least=20, rank=0)
    columns = (name, "jobs", "queued", "per minute", "running", "weight", "created")
    output.echo_table(columns, rows, empty="no tenants")
    return DONE


async def update_tenant(
    settings: Settings,
    *,
    name: str,
    words: dict[str, str | None],
    keep: str | None,
    weight: float | None,
) -> int:
    changes: dict[str, Any] = {**_read_quotas(words)}
    if weight is not None:
        changes["weight"] = weight
    if keep is not None:
        changes["keep"] = None if keep == NO_LIMIT else Keep.parse(keep).write()
    if not changes:
        raise UsageError("nothing to change; name a quota, such as --queued 1000 or --jobs none")
    async with client_for(settings) as client:
        tenant = await client.tenant_record(name)
        before = {
            **asdict(tenant.quotas),
            "keep": tenant.keep.write(),
            "weight": tenant.weight,
        }
        after = {**before, **changes}
        recorded = audited(client, "tenant.update", name, before=before, after=after)
        tenant = await recorded.update_tenant(name, **changes)
    kept = ", ".join(f"{what} {time}" for what, time in tenant.keep.write().items())
    more = f"; keeps {kept}" if kept else ""
    more += f"; weight {tenant.weight:g}" if tenant.weight != 1 else ""
    typer.echo(f"tenant {tenant.name}: {_describe_quotas(tenant.quotas)}{more}")
    return DONE


def _read_quotas(words: dict[str, str | None]) -> dict[str, int | None]:
    """Return the quotas that the options name."""
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


def _limits(quotas: wire.Quotas) -> dict[str, str]:
    """Return quotas as a table shows them."""
    return {name: "-" if most is None else f"{most:,}" for name, most in asdict(quotas).items()}


def _describe_quotas(quotas: wire.Quotas) -> str:
    """Describe quotas in words."""
    limits = {name: most for name, most in _limits(quotas).items() if most != "-"}
    words = [f"{name.replace('_', ' ')} {most}" for name, most in limits.items()]
    return f"at most {', '.join(words)}" if words else "no limits"


async def create_key(
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
    limits = {"jobs": jobs, "queues": queues, "actions": actions}
    read_scope(role, **limits)
    asked = {"name": name, "role": str(read_role(role)), "expires": expires}
    asked |= {name: value for name, value in limits.items() if value is not None}
    async with client_for(settings, tenant=tenant) as client:
        recorded = audited(client, "key.create", name, after=asked)
        key = await recorded.create_key(
            name, role=role, expires=expires, created_by=current_actor(), **limits
        )
    if as_json:
        output.echo_json(key)
        return DONE
    until = "" if key.expires_at is None else f", until {output.format_moment(key.expires_at)}"
    limited = "" if key.scope is None else f", limited to {key.scope.describe()}"
    typer.echo(
        f"key {key.name} opens tenant {key.tenant} as {key.role}{limited}{until}. This is its"
        " token; keep"
        " it, it cannot be shown again:",
        err=True,
    )
    typer.echo(key.token)
    if key.scope is not None and not key.scope.allows(Action.READ):
        typer.echo(
            "note: without the action read, commands that list, show or wait are refused to it, and"
            " so are those that look for executions by a filter",
            err=True,
        )
    return DONE


HERE: Final = "http://127.0.0.1:8080"


async def create_login(
    settings: Settings,
    *,
    role: str | None,
    expires: str,
    url: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    place = url or settings.api_url or HERE
    if urlsplit(place).scheme not in ("http", "https"):
        raise UsageError(f"--url {shown(place)} is not one of a server; write {HERE}", field="url")
    given = None if role is None else read_role(role)
    async with client_for(settings, tenant=tenant) as client:
        recorded = audited(client, "login.create", client.tenant or "", after={"role": given})
        key = await recorded.create_login(role=given, expires=expires, created_by=current_actor())
    link = login_link(place, key.token)
    if as_json:
        output.echo_json({**msgspec.to_builtins(key), "link": link})
        return DONE
    until = output.format_moment(key.expires_at)
    typer.echo(f"this opens tenant {key.tenant} as {key.role}, once, until {until}:", err=True)
    typer.echo(link)
    return DONE


async def list_keys(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        keys = await client.keys()
        now = (await client.health()).now
    if as_json:
        output.echo_json(Page(items=tuple(keys)))
        return DONE
    rows = [
        (
            one.key_id,
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


async def revoke_key(settings: Settings, *, wanted: str, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        key = await _find_key(client, wanted)
        if key.revoked_at is None:
            recorded = audited(client, "key.revoke", str(key.key_id), before={"name": key.name})
            await recorded.revoke_key(key.key_id)
    done = "is revoked" if key.revoked_at is None else "was revoked already"
    typer.echo(f"key {key.name} ({key.hint}…) {done}")
    return DONE


async def _find_key(client: AnyClient, wanted: str) -> wire.Key:
    """Return the only key that matches. A revoked key matches only by its id."""
    keys = await client.keys()
    exact = [key for key in keys if str(key.key_id) == wanted.lower()]
    valid = [key for key in keys if key.revoked_at is None]
    named = [key for key in valid if key.name == wanted]
    begun = [key for key in valid if _begins(key, wanted)]
    for found in (exact, named, begun):
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(f"{key.name} {key.hint}… {key.key_id}" for key in found)
            raise UsageError(f"{output.printable(wanted)!r} may be any of {which}; give the id")
    raise NotFound(f"no key {output.printable(wanted)!r}; see daybell keys list")


def _begins(key: wire.Key, wanted: str) -> bool:
    if not wanted:
        return False
    # Of a token only the beginning is known, and a user that has all of it may paste that.
    return key.name.startswith(wanted) or (
        wanted.startswith("dbk_")
        and len(wanted) > len("dbk_")
        and (key.hint.startswith(wanted) or wanted.startswith(key.hint))
    )


def _key_state(key: wire.Key, now: Instant) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_over = key.expires_at is not None and key.expires_at.timestamp() <= now
    return "expired" if is_over else "valid"


Text = str | None


async def verify_entries(settings: Settings, *, after: Text, tenant: Text, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        check = await client.verify_audit(cursor=after)
        while check.next_cursor is not None:
            more = await client.verify_audit(cursor=check.next_cursor)
            entries = check.entries + more.entries
            check = replace(more, entries=entries)
    broken = check.broken
    if as_json:
        output.echo_json(check)
        return DONE if broken is None else FAILED
    if broken is None:
        typer.echo(f"{check.entries} entries checked; head {check.head}")
        return DONE
    place = f"entry {broken.number}" + ("" if broken.entry_id is None else f" ({broken.entry_id})")
    typer.echo(f"the audit log is broken: {place} {broken.problem}", err=True)
    return FAILED


async def list_entries(
    settings: Settings,
    *,
    asked: dict[str, Text],
    span: tuple[Text, Text],
    limit: int,
    cursor: Text,
    tenant: Text,
    as_json: bool,
) -> int:
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
        output.echo_json(page)
        return DONE
    rows = [
        (
            output.format_moment(one.at),
            one.actor,
            one.action,
            one.target,
            "" if one.after is None else wire.encode(one.after).decode(),
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


# `daybell secrets`: encrypted values that jobs refer to by name.


async def list_secrets(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List secrets by name, without their values."""
    async with client_for(settings, tenant=tenant) as client:
        secrets = await client.secrets()
        now = (await client.health()).now
    if as_json:
        output.echo_json(Page(items=tuple(secrets)))
        return DONE
    rows = [
        (
            one.name,
            one.version,
            output.format_relative(one.created_at, now=now),
            output.format_relative(one.updated_at, now=now),
            one.key_id,
            one.author,
        )
        for one in secrets
    ]
    columns = (
        Column("name", least=20, rank=0),
        "version",
        "created",
        "changed",
        "key",
        Column("by", least=8, rank=5),
    )
    output.echo_table(columns, rows, empty="no secrets; daybell secrets set NAME keeps one")
    return DONE


def make_key() -> None:
    """Print a new key, and on stderr how it is used."""
    typer.echo(
        f"a key that seals and opens secrets; it is kept nowhere: `{NEW_KEY}`, for whoever sets"
        f" secrets and for all workers. To change a key, set {VARIABLE}=old,new everywhere, then"
        " new,old, then run `daybell secrets rotate`",
        err=True,
    )
    typer.echo(new_key())


async def set_secret(settings: Settings, *, name: str, tenant: str | None, as_json: bool) -> int:
    check_secret_name(name)
    async with client_for(settings, tenant=tenant) as client:
        # Report missing rights or a missing key before the user types the value.
        after = {"key_id": client.sealer().key_id} if isinstance(client, Client) else None
        before = await none_if_denied(_find_secret(client, name))
        value = _read_value(name)
        recorded = audited(client, "secret.set", name, before=_audited(before), after=after)
        made = await recorded.set_secret(name, value, author=current_actor())
    if as_json:
        output.echo_json(made)
    else:
        typer.echo(f"secret {made.name} is at version {made.version}")
    return DONE


async def delete_secret(
    settings: Settings, *, name: str, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        known = await none_if_denied(client.secrets())
        found = next((one for one in known or () if one.name == name), None)
        if known is not None and found is None:
            raise SecretNotFound(f"there is no secret named {shown(name)}")
        confirm(f"delete secret {name}? Jobs that refer to it fail without it.", yes=yes)
        recorded = audited(client, "secret.delete", name, before=_audited(found))
        await recorded.delete_secret(name)
    if as_json:
        output.echo_json({"name": name})
    else:
        typer.echo(f"secret {name} is deleted")
    return DONE


async def rotate_secrets(settings: Settings, *, as_json: bool) -> int:
    sealed, failed = 0, list[dict[str, str]]()
    async with client_for(settings) as client:
        if not isinstance(client, Client):
            raise UsageError(
                "secrets are sealed again with a connection to the database and its keys; run this"
                " there, with DAYBELL_DATABASE_URL and without DAYBELL_API_URL"
            )
        after = {"key_id": client.sealer().key_id}
        for tenant in await client.tenants():
            own = client.for_tenant(tenant.name)
            for one in await own.secrets():
                if one.key_id == after["key_id"]:
                    continue
                try:
                    recorded = audited(
                        own, "secret.rotate", one.name, before=_audited(one), after=after
                    )
                    sealed += await recorded.reseal_secret(one.name, author=one.author) is not None
                except (UsageError, Conflict) as error:
                    told = {"tenant": tenant.name, "name": one.name, "error": str(error)}
                    failed.append(told)
    if as_json:
        output.echo_json({"key_id": after["key_id"], "sealed": sealed, "failed": failed})
    else:
        for one in failed:
            typer.echo(f"tenant {one['tenant']}: {one['error']}", err=True)
        typer.echo(f"{sealed} sealed with key {after['key_id']}, {len(failed)} failed")
    return FAILED if failed else DONE


async def _find_secret(client: AnyClient, name: str) -> wire.Secret | None:
    return next((one for one in await client.secrets() if one.name == name), None)


def _audited(secret: wire.Secret | None) -> dict[str, object] | None:
    """Return the fields of a secret for the audit log."""
    return None if secret is None else {"version": secret.version, "key_id": secret.key_id}


def _read_value(name: str) -> str:
    """Read the value from a person or from a pipe."""
    if sys.stdin.isatty():
        return check_value(_ask_value(name))
    most = SECRET_BYTES_MAX + len("\r\n")
    raw = sys.stdin.buffer.read(most + 1)
    if len(raw) > most:
        raise UsageError(
            f"a secret's value has at most {SECRET_BYTES_MAX:,} bytes; this one has more",
            field="value",
        )
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UsageError(
            "standard input is not UTF-8; keep what is not text in base64", field="value"
        ) from None
    if not text:
        raise UsageError(
            f"standard input is empty; give the value there: daybell secrets set {name} < file",
            field="value",
        )
    return check_value(text.removesuffix("\n").removesuffix("\r"))


def _ask_value(name: str) -> str:
    try:
        with interruptible():
            value = getpass(f"Value of {name}: ")
            again = getpass("Once more: ")
    except EOFError:
        raise UsageError("no value was given; nothing was done", field="value") from None
    if value != again:
        raise UsageError("the two are not the same; nothing was done", field="value")
    return value
