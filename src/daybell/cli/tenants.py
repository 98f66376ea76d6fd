"""`daybell tenants`: isolated spaces, and how much each may use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import DatabaseUrl, Json, group, run

if TYPE_CHECKING:
    from daybell.core.tenant import Quotas
    from daybell.settings import Settings

app = group("Tenants: isolated spaces, and how much each may use.")

NO_LIMIT: Final = "none"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]


def _quota(flag: str, what: str) -> typer.models.OptionInfo:
    return typer.Option(flag, metavar="N", help=f"{what}; none: no limit.", show_default=False)


Jobs = Annotated[str | None, _quota("--jobs", "How many jobs it may have")]
Queued = Annotated[str | None, _quota("--queued", "How many unfinished executions")]
PerMinute = Annotated[str | None, _quota("--per-minute", "How many executions a minute")]
Running = Annotated[str | None, _quota("--running", "How many may run at the same time")]


@app.command("create")
def create_tenant(
    context: typer.Context,
    name: Name,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a tenant."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(context, partial(_create, name=name, words=quotas), database_url)


@app.command("list")
def list_tenants(
    context: typer.Context, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """List tenants with their quotas."""
    run(context, partial(_list, as_json=as_json), database_url)


@app.command("update")
def update_tenant(
    context: typer.Context,
    name: Name,
    jobs: Jobs = None,
    queued: Queued = None,
    per_minute: PerMinute = None,
    running: Running = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a tenant's quotas; those that are not named stay."""
    quotas = {"jobs": jobs, "queued": queued, "per_minute": per_minute, "running": running}
    run(context, partial(_update, name=name, words=quotas), database_url)


async def _create(settings: Settings, *, name: str, words: dict[str, str | None]) -> int:
    from daybell.cli.connecting import client_for
    from daybell.cli.recording import on_record

    quotas = _read(words)
    async with client_for(settings) as client:
        with on_record(client, "tenant.create", name, after=quotas):
            tenant = await client.add_tenant(name, **quotas)
    typer.echo(f"tenant {tenant.name} is created: {_shown(tenant.quotas)}")
    return DONE


async def _list(settings: Settings, *, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.connecting import client_for
    from daybell.client import wire
    from daybell.core.view import Page

    async with client_for(settings) as client:
        tenants = await client.tenants()
        now = (await client.health()).now
    if as_json:
        show.echo_json(wire.page(Page(items=tuple(tenants)), wire.tenant))
        return DONE
    rows = [
        (one.name, *_limits(one.quotas).values(), show.relative(one.created_at, now=now))
        for one in tenants
    ]
    name = Column("name", least=20, rank=0)
    columns = (name, "jobs", "queued", "per minute", "running", "created")
    show.echo_table(columns, rows, empty="no tenants")
    return DONE


async def _update(settings: Settings, *, name: str, words: dict[str, str | None]) -> int:
    from msgspec.structs import asdict

    from daybell.cli.connecting import client_for
    from daybell.cli.recording import on_record
    from daybell.errors import UsageError

    quotas = _read(words)
    if not quotas:
        raise UsageError("nothing to change; name a quota, such as --queued 1000 or --jobs none")
    async with client_for(settings) as client:
        before = asdict((await client.tenant_record(name)).quotas)
        with on_record(client, "tenant.update", name, before=before, after={**before, **quotas}):
            tenant = await client.update_tenant(name, **quotas)
    typer.echo(f"tenant {tenant.name}: {_shown(tenant.quotas)}")
    return DONE


def _read(words: dict[str, str | None]) -> dict[str, int | None]:
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


def _shown(quotas: Quotas) -> str:
    """Quotas in words."""
    limits = {name: most for name, most in _limits(quotas).items() if most != "-"}
    words = [f"{name.replace('_', ' ')} {most}" for name, most in limits.items()]
    return f"at most {', '.join(words)}" if words else "no limits"
