"""The work of `daybell secrets`: list, set, delete and rotate."""

from __future__ import annotations

import sys
from getpass import getpass

import typer

from daybell.cli import output
from daybell.cli.actions.selection import none_if_denied
from daybell.cli.connection import audit_entry, client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.runtime import DONE, FAILED
from daybell.cli.terminal import confirm, interruptible
from daybell.client import Client, wire
from daybell.client.remote.client import AnyClient
from daybell.client.secrets import NEW_KEY, VARIABLE, check_value, new_key
from daybell.core.access import Secret
from daybell.core.limits import SECRET_BYTES_MAX
from daybell.core.references import check_secret_name
from daybell.core.views import Page
from daybell.errors import Conflict, SecretNotFound, UsageError, shown
from daybell.settings import Settings


async def list_secrets(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List secrets by name, without their values."""
    async with client_for(settings, tenant=tenant) as client:
        secrets = await client.secrets()
        now = (await client.health()).now
    if as_json:
        output.echo_json(wire.page(Page(items=tuple(secrets)), wire.secret))
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
        # What is missing is said before a person has typed anything.
        after = {"key_id": client.sealer().key_id} if isinstance(client, Client) else None
        before = await none_if_denied(_find(client, name))
        value = _read_value(name)
        with audit_entry(client, "secret.set", name, before=_told(before), after=after):
            made = await client.set_secret(name, value, author=current_actor())
    if as_json:
        output.echo_json(wire.secret(made))
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
        with audit_entry(client, "secret.delete", name, before=_told(found)):
            await client.delete_secret(name)
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
                    with audit_entry(
                        own, "secret.rotate", one.name, before=_told(one), after=after
                    ):
                        sealed += await own.reseal_secret(one.name, author=one.author) is not None
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


async def _find(client: AnyClient, name: str) -> Secret | None:
    return next((one for one in await client.secrets() if one.name == name), None)


def _told(secret: Secret | None) -> dict[str, object] | None:
    """What the audit log is told of it."""
    return None if secret is None else {"version": secret.version, "key_id": secret.key_id}


def _read_value(name: str) -> str:
    """The value, from a person or from a pipe."""
    if sys.stdin.isatty():
        return check_value(_ask(name))
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


def _ask(name: str) -> str:
    try:
        with interruptible():
            value = getpass(f"Value of {name}: ")
            again = getpass("Once more: ")
    except EOFError:
        raise UsageError("no value was given; nothing was done", field="value") from None
    if value != again:
        raise UsageError("the two are not the same; nothing was done", field="value")
    return value
