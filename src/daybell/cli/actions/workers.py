"""The work of `daybell workers` and `daybell queues`."""

from __future__ import annotations

import typer

from daybell.cli import output
from daybell.cli.connection import client_for
from daybell.cli.output import Column
from daybell.cli.runtime import DONE
from daybell.cli.terminal import confirm
from daybell.cli.views.reasons import echo_queue_why
from daybell.client.remote.client import AnyClient
from daybell.core.limits import PAGE_ITEMS_MAX, check_name
from daybell.core.views import Page
from daybell.core.worker import SCHEDULER
from daybell.settings import Settings


async def list_workers(
    settings: Settings, *, include_dead: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        workers = await client.workers(include_dead=include_dead)
        now = (await client.health()).now
        leaders = await client.leaders()
    if as_json:
        output.echo_json(Page(items=tuple(workers)))
        return DONE
    rows = [
        (
            one.worker_id,
            one.name,
            one.state,
            f"{one.running} of {one.capacity}",
            ", ".join(one.queues),
            ", ".join(one.kinds),
            f"{one.host} {one.pid}",
            output.format_relative(one.started_at, now=now),
            output.format_relative(one.renewed_at, now=now),
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
    output.echo_table(columns, rows, empty="no workers; start one: daybell worker module:app")
    for one in leaders:
        if one.role == SCHEDULER:
            typer.echo(f"scheduler {one.holder_id} leads")
    if not any(one.role == SCHEDULER for one in leaders):
        typer.echo("no scheduler: schedules do not fire; run daybell scheduler")
    return DONE


async def list_leaders(settings: Settings, *, as_json: bool) -> int:
    async with client_for(settings) as client:
        leaders = await client.leaders()
        now = (await client.health()).now
    if as_json:
        output.echo_json(Page(items=tuple(leaders)))
        return DONE
    rows = [
        (one.role, one.holder_id, one.epoch, output.format_relative(one.until, now=now))
        for one in leaders
    ]
    output.echo_table(("role", "holder", "epoch", "until"), rows, empty="no process has a role yet")
    return DONE


async def drain_worker(settings: Settings, *, id: str, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        await client.drain_worker(id)
    typer.echo(f"worker {id} finishes what it has, and ends")
    return DONE


async def list_queues(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List queues with their numbers."""
    async with client_for(settings, tenant=tenant) as client:
        queues = await client.queues()
        now = (await client.health()).now
    if as_json:
        output.echo_json(Page(items=tuple(queues)))
        return DONE
    rows = [
        (
            one.name,
            "paused" if one.is_paused else "open",
            *(f"{one.number(name):,}" for name in ("queued", "running", "scheduled", "waiting")),
            output.format_relative(one.oldest_run_at, now=now),
        )
        for one in queues
    ]
    name = Column("name", least=20, rank=0)
    columns = (name, "state", "queued", "running", "scheduled", "waiting", "oldest due")
    output.echo_table(columns, rows, empty="no queues; the first job makes one")
    return DONE


async def pause_queue(settings: Settings, *, name: str, paused: bool, tenant: str | None) -> int:
    async with client_for(settings, tenant=tenant) as client:
        await (client.pause_queue(name) if paused else client.resume_queue(name))
        is_used = await _is_used(client, name)
    note = "" if is_used else "; no job uses that queue yet"
    typer.echo(f"queue {name} is {'paused' if paused else 'open'}{note}")
    return DONE


async def explain_queue(settings: Settings, *, name: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.why_queue(name)
    if as_json:
        output.echo_json(found)
    else:
        echo_queue_why(found)
    return DONE


async def _is_used(client: AnyClient, name: str) -> bool:
    """Return true if a job uses a queue, or an execution is in it: a name may be mistyped."""
    for queue in await client.queues():
        if queue.name == name and queue.queued + queue.running + queue.scheduled + queue.waiting:
            return True
    cursor = None
    while True:
        page = await client.jobs(limit=PAGE_ITEMS_MAX, cursor=cursor)
        if any(job.queue == name for job in page.items):
            return True
        cursor = page.next_cursor
        if cursor is None:
            return False


async def purge_queue(settings: Settings, *, name: str, yes: bool, tenant: str | None) -> int:
    queue = check_name(name, what="queue")
    async with client_for(settings, tenant=tenant) as client:
        total = (await client.count(queue=queue, status="pending", nodes=True)).total
        if not total:
            typer.echo(f"nothing waits in queue {queue}")
            return DONE
        confirm(f"cancel {output.format_count(total, 'execution')} in queue {queue}?", yes=yes)
        with output.show_progress("cancel", total=total if total.is_exact else None) as advance:
            cancelled = await client.purge_queue(queue, on_step=advance)
    typer.echo(f"{output.format_count(cancelled, 'execution')} cancelled")
    return DONE
