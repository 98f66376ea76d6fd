"""`daybell workers`: who runs what."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import DatabaseUrl, Json, Tenant, group, run

if TYPE_CHECKING:
    from daybell.settings import Settings

app = group("Workers: processes that run executions.")


@app.command("list")
def list_workers(
    context: typer.Context,
    include_dead: Annotated[bool, typer.Option("--dead", help="Dead ones too.")] = False,
    leaders: Annotated[
        bool, typer.Option("--leaders", help="Only who leads among schedulers and in upkeep.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List workers, oldest first, and say which scheduler leads."""
    if leaders:
        return run(context, partial(_list_leaders, as_json=as_json), database_url)
    command = partial(_list, include_dead=include_dead, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("drain")
def drain_worker(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a worker finish what it has, and end."""
    run(context, partial(_drain, id=id, tenant=tenant), database_url)


async def _list(
    settings: Settings, *, include_dead: bool, tenant: str | None, as_json: bool
) -> int:
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.connecting import client_for
    from daybell.client import wire
    from daybell.core.worker import SCHEDULER

    async with client_for(settings, tenant=tenant) as client:
        workers = await client.workers(include_dead=include_dead)
        now = (await client.health()).now
        leaders = await client.leaders()
    if as_json:
        show.echo_json([wire.worker(one) for one in workers])
        return DONE
    rows = [
        (
            one.id,
            one.name,
            one.state,
            f"{one.running} of {one.capacity}",
            ", ".join(one.queues),
            ", ".join(one.kinds),
            f"{one.host} {one.pid}",
            show.relative(one.started_at, now=now),
            show.relative(one.renewed_at, now=now),
        )
        for one in workers
    ]
    columns = (
        Column("id", rank=0),
        Column("name", least=10, rank=2),
        Column("state"),
        Column("running", rank=3),
        Column("queues", least=10, rank=4),
        Column("kinds", least=10, rank=5),
        Column("host and pid", least=12, rank=8),
        Column("started", rank=7),
        Column("renewed", rank=6),
    )
    show.echo_table(columns, rows, empty="no workers; start one: daybell worker module:app")
    for one in leaders:
        if one.name == SCHEDULER:
            typer.echo(f"scheduler {one.holder} leads")
    if not any(one.name == SCHEDULER for one in leaders):
        typer.echo("no scheduler: schedules do not fire; run daybell scheduler")
    return DONE


async def _list_leaders(settings: Settings, *, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.client import wire

    async with client_for(settings) as client:
        leaders = await client.leaders()
        now = (await client.health()).now
    if as_json:
        show.echo_json([wire.leader(one) for one in leaders])
        return DONE
    rows = [(one.name, one.holder, one.epoch, show.relative(one.until, now=now)) for one in leaders]
    show.echo_table(("role", "holder", "epoch", "until"), rows, empty="nobody leads")
    return DONE


async def _drain(settings: Settings, *, id: str, tenant: str | None) -> int:
    from daybell.cli.connecting import client_for

    async with client_for(settings, tenant=tenant) as client:
        await client.drain_worker(id)
    typer.echo(f"worker {id} finishes what it has, and ends")
    return DONE
