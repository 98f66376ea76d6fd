"""The work of `daybell hooks`."""

from __future__ import annotations

from typing import Any

import typer

from daybell.cli import output
from daybell.cli.connection import client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.runtime import DONE
from daybell.client import wire
from daybell.core.views import Page
from daybell.settings import Settings


async def create_hook(
    settings: Settings,
    *,
    job: str,
    name: str,
    fields: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        made = await client.create_hook(job, name, created_by=current_actor(), **fields)
    return _show(made, as_json=as_json)


async def rotate_hook(
    settings: Settings, *, job: str, name: str, overlap: str, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        made = await client.rotate_hook(job, name, overlap=overlap, created_by=current_actor())
    return _show(made, as_json=as_json)


def _show(made: wire.NewHookAnswer, *, as_json: bool) -> int:
    if as_json:
        output.echo_json(made)
        return DONE
    until = "" if made.expires_at is None else f", until {output.format_moment(made.expires_at)}"
    signed = "" if made.signature is None else f" signed as {made.signature} and"
    typer.echo(
        f"what is posted to this address of a server,{signed} up to 1 MiB, fires job"
        f" {made.job}{until}. Keep it, it cannot be shown again:",
        err=True,
    )
    typer.echo(made.path)
    if made.signature is None:
        typer.echo("note: requests are not signed; --signature and --secret ask for it", err=True)
    return DONE


async def list_hooks(settings: Settings, *, job: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.hooks(job)
    if as_json:
        output.echo_json(Page(items=tuple(found)))
        return DONE
    rows = [
        (
            one.name,
            one.hint,
            one.signature or "none",
            output.format_moment(one.created_at),
            None if one.used_at is None else output.format_moment(one.used_at),
            _end(one),
        )
        for one in found
    ]
    columns = (
        Column("hook", least=8, rank=0),
        Column("token", rank=2),
        Column("signature", rank=1),
        Column("created", rank=4),
        Column("used", rank=3),
        Column("ends", rank=1),
    )
    empty = f"job {job} has no hooks; daybell hooks create {job} NAME makes one"
    output.echo_table(columns, rows, empty=empty)
    return DONE


def _end(one: wire.Hook) -> str | None:
    if one.revoked_at is not None:
        return f"revoked {output.format_moment(one.revoked_at)}"
    return None if one.expires_at is None else output.format_moment(one.expires_at)


async def revoke_hook(
    settings: Settings, *, job: str, name: str, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        gone = await client.revoke_hook(job, name)
    if as_json:
        output.echo_json(gone)
        return DONE
    typer.echo(output.printable(f"hook {gone.name} of job {gone.job} takes nothing any more"))
    return DONE
