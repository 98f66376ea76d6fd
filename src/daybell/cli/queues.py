"""`daybell queues`: lanes, how full they are, and stopping them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import DatabaseUrl, Tenant, Yes, group, list_of, run

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient
    from daybell.settings import Settings

app = group("Queues: lanes that workers subscribe to.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


@list_of(app)
async def _list(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List queues with their numbers."""
    from daybell.cli import show
    from daybell.cli.columns import Column
    from daybell.cli.connecting import client_for
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        queues = await client.queues()
        now = (await client.health()).now
    if as_json:
        show.echo_json([wire.queue(one) for one in queues])
        return DONE
    rows = [
        (
            one.name,
            "paused" if one.is_paused else "open",
            *(f"{one.number(name):,}" for name in ("queued", "running", "scheduled", "waiting")),
            show.relative(one.oldest_run_at, now=now),
        )
        for one in queues
    ]
    name = Column("name", least=20, rank=0)
    columns = (name, "state", "queued", "running", "scheduled", "waiting", "oldest due")
    show.echo_table(columns, rows, empty="no queues; the first job makes one")
    return DONE


@app.command("pause")
def pause_queue(
    context: typer.Context, name: Name, tenant: Tenant = None, database_url: DatabaseUrl = None
) -> None:
    """Give out nothing from a queue; what runs goes on."""
    run(context, partial(_pause, name=name, paused=True, tenant=tenant), database_url)


@app.command("resume")
def resume_queue(
    context: typer.Context, name: Name, tenant: Tenant = None, database_url: DatabaseUrl = None
) -> None:
    """Give out work from a queue again."""
    run(context, partial(_pause, name=name, paused=False, tenant=tenant), database_url)


@app.command("purge")
def purge_queue(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel everything that waits in a queue."""
    run(context, partial(_purge, name=name, yes=yes, tenant=tenant), database_url)


async def _pause(settings: Settings, *, name: str, paused: bool, tenant: str | None) -> int:
    from daybell.cli.connecting import client_for

    async with client_for(settings, tenant=tenant) as client:
        await (client.pause_queue(name) if paused else client.resume_queue(name))
        is_used = await _is_used(client, name)
    note = "" if is_used else "; no job uses that queue yet"
    typer.echo(f"queue {name} is {'paused' if paused else 'open'}{note}")
    return DONE


async def _is_used(client: AnyClient, name: str) -> bool:
    """Whether there is a job for a queue, or something in it: a name may be mistyped."""
    from daybell.core.limits import PAGE_ITEMS_MAX

    for queue in await client.queues():
        if queue.name == name and queue.queued + queue.running + queue.scheduled + queue.waiting:
            return True
    cursor = None
    while True:
        page = await client.jobs(limit=PAGE_ITEMS_MAX, cursor=cursor)
        if any(job.definition.queue == name for job in page.items):
            return True
        cursor = page.next_cursor
        if cursor is None:
            return False


async def _purge(settings: Settings, *, name: str, yes: bool, tenant: str | None) -> int:
    from daybell.cli import show
    from daybell.cli.asking import confirm
    from daybell.cli.connecting import client_for
    from daybell.core.limits import check_name

    queue = check_name(name, what="queue")
    async with client_for(settings, tenant=tenant) as client:
        total = (await client.count(queue=queue, status="pending", nodes=True)).total
        if not total:
            typer.echo(f"nothing waits in queue {queue}")
            return DONE
        confirm(f"cancel {show.count(total, 'execution')} in queue {queue}?", yes=yes)
        with show.progress("cancel", total=total if total.is_exact else None) as advance:
            cancelled = await client.purge_queue(queue, on_step=advance)
    typer.echo(f"{show.count(cancelled, 'execution')} cancelled")
    return DONE
