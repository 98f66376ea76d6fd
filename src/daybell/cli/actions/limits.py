"""The work of `daybell limits`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from daybell.cli import output
from daybell.cli.connection import client_for
from daybell.cli.output import Column
from daybell.cli.runtime import DONE
from daybell.client import wire
from daybell.core.views import Page
from daybell.errors import UsageError, shown
from daybell.settings import Settings


async def list_limits(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        limits = await client.limits()
    if as_json:
        output.echo_json(Page(items=tuple(limits)))
        return DONE
    rows = [
        (one.name, _state(one), _at_a_time(one.limit), ", ".join(one.rates), one.running,
         one.waiting, one.keys)
        for one in limits
    ]  # fmt: skip
    name = Column("name", least=20, rank=0)
    columns = (name, "state", "at a time", "rate", "running", "waiting", "keys")
    output.echo_table(columns, rows, empty="no limits; a job with concurrency or rate makes one")
    return DONE


async def show_limit(settings: Settings, *, name: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.limit(name)
        now = (await client.health()).now
    if as_json:
        output.echo_json(found)
        return DONE
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
    return DONE


async def set_limit(
    settings: Settings,
    *,
    name: str,
    limit: str | None,
    rate: Sequence[str] | None,
    tenant: str | None,
) -> int:
    changes: dict[str, Any] = {}
    if limit is not None:
        if limit != "none" and not (limit.isdecimal() and len(limit) < 10):
            raise UsageError(f"--limit {shown(limit)} must be a whole number from 1, or none")
        changes["limit"] = None if limit == "none" else int(limit)
    if rate:
        changes["rate"] = None if list(rate) == ["none"] else list(rate)
    async with client_for(settings, tenant=tenant) as client:
        found = await client.set_limit(name, changes)
    numbers = [] if found.limit is None else [f"{found.limit:,} at a time"]
    typer.echo(f"limit {name}: {', '.join([*numbers, *found.rates])}")
    return DONE


async def pause_limit(
    settings: Settings, *, name: str, duration: str | None, key: str | None, tenant: str | None
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        await client.pause_limit(name, duration=duration, key=key)
    of = "" if key is None else f" of {key}"
    until = "until it is resumed" if duration is None else f"for {duration}"
    typer.echo(f"limit {name}{of} is paused {until}")
    return DONE


async def resume_limit(
    settings: Settings, *, name: str, key: str | None, tenant: str | None
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        await client.resume_limit(name, key=key)
    typer.echo(f"limit {name}{'' if key is None else f' of {key}'} is open")
    return DONE


def _state(one: wire.Limit) -> str:
    return "paused" if one.is_paused else "open"


def _at_a_time(limit: int | None) -> str:
    return "" if limit is None else f"{limit:,}"
