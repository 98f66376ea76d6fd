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
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List workers, oldest first."""
    command = partial(_list, include_dead=include_dead, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("drain")
def drain_worker(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Let a worker finish what it has, and end."""
    run(context, partial(_drain, id=id, tenant=tenant), database_url)


async def _list(settings: Settings, *, include_dead: bool, tenant: str, as_json: bool) -> int:
    from daybell.cli import show, wire
    from daybell.cli.columns import Column
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        workers = await client.workers(include_dead=include_dead)
        now = (await client.health()).now
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
        Column("host and pid", least=12, rank=7),
        Column("started", rank=6),
        Column("renewed", rank=5),
    )
    show.echo_table(columns, rows, empty="no workers; start one: daybell worker module:app")
    return DONE


async def _drain(settings: Settings, *, id: str, tenant: str) -> int:
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        await client.drain_worker(id)
    typer.echo(f"worker {id} finishes what it has, and ends")
    return DONE
