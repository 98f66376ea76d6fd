"""`daybell workers` and `daybell queues`: list, drain, pause, resume, explain and purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from daybell.cli import actions, output
from daybell.cli.options import Yes, group, on_client
from daybell.cli.output import Column
from daybell.cli.views.reasons import echo_queue_why
from daybell.core.limits import PAGE_ITEMS_MAX, check_name

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient

SCHEDULER: Final = "scheduler"  # the role; `core.worker` has it, and takes long to import

workers_app = group("Workers: processes that run executions.")


@workers_app.command("list")
@on_client()
async def list_workers(
    client: AnyClient,
    include_dead: Annotated[bool, typer.Option("--dead", help="Dead ones too.")] = False,
    leaders: Annotated[
        bool, typer.Option("--leaders", help="Only the leaders of schedulers and upkeep.")
    ] = False,
    *,
    as_json: bool,
) -> None:
    """List workers, oldest first, and name the leading scheduler."""
    if leaders:
        return await _list_leaders(client, as_json=as_json)
    workers = await client.workers(include_dead=include_dead)
    now = (await client.health()).now
    if as_json:
        return output.echo_list(workers)
    rows = [
        (
            one.worker_id,
            one.name,
            one.state,
            f"{one.running} of {one.capacity}{', shared' if one.shared else ''}",
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
    leading = [one for one in await client.leaders() if one.role == SCHEDULER]
    for one in leading:
        typer.echo(f"scheduler {one.holder_id} leads")
    if not leading:
        typer.echo("no scheduler: schedules do not fire; run daybell scheduler")


async def _list_leaders(client: AnyClient, *, as_json: bool) -> None:
    leaders = await client.leaders()
    now = (await client.health()).now
    if as_json:
        return output.echo_list(leaders)
    rows = [
        (one.role, one.holder_id, one.epoch, output.format_relative(one.until, now=now))
        for one in leaders
    ]
    output.echo_table(("role", "holder", "epoch", "until"), rows, empty="no process has a role yet")


@workers_app.command("drain")
@on_client(as_json=None)
async def drain_worker(
    client: AnyClient,
    id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
) -> None:
    """Let a worker finish what it has, and end."""
    await client.drain_worker(id)
    typer.echo(f"worker {id} finishes what it has, and ends")


# `daybell queues`: lanes, how full they are, and stopping them.

queues_app = group("Queues: lanes that workers subscribe to.")

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


@queues_app.command("list")
@on_client()
async def list_queues(client: AnyClient, *, as_json: bool) -> None:
    """List queues with their numbers."""
    queues = await client.queues()
    now = (await client.health()).now
    if as_json:
        return output.echo_list(queues)
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


@queues_app.command("pause")
@on_client(as_json=None)
async def pause_queue(client: AnyClient, name: QueueName) -> None:
    """Give out nothing from a queue; what runs goes on."""
    await client.pause_queue(name)
    typer.echo(f"queue {name} is paused{await _note_of(client, name)}")


@queues_app.command("resume")
@on_client(as_json=None)
async def resume_queue(client: AnyClient, name: QueueName) -> None:
    """Give out work from a queue again."""
    await client.resume_queue(name)
    typer.echo(f"queue {name} is open{await _note_of(client, name)}")


@queues_app.command("why")
@on_client()
async def explain_queue(client: AnyClient, name: QueueName, *, as_json: bool) -> None:
    """Explain why executions of a queue are not taken."""
    found = await client.why_queue(name)
    if as_json:
        output.echo_json(found)
    else:
        echo_queue_why(found)


@queues_app.command("purge")
@on_client(as_json=None)
async def purge_queue(client: AnyClient, name: QueueName, yes: Yes = False) -> None:
    """Cancel everything that waits in a queue."""
    queue = check_name(name, what="queue")
    total = (await client.count(queue=queue, status="pending", nodes=True)).total
    if not total:
        typer.echo(f"nothing waits in queue {queue}")
        return
    actions.terminal.confirm(
        f"cancel {output.format_count(total, 'execution')} in queue {queue}?", yes=yes
    )
    with output.show_progress("cancel", total=total if total.is_exact else None) as advance:
        cancelled = await client.purge_queue(queue, on_step=advance)
    typer.echo(f"{output.format_count(cancelled, 'execution')} cancelled")


async def _note_of(client: AnyClient, name: str) -> str:
    """Return a note if no job uses a queue, and no execution is in it: a name may be mistyped."""
    for queue in await client.queues():
        if queue.name == name and queue.queued + queue.running + queue.scheduled + queue.waiting:
            return ""
    cursor = None
    while True:
        page = await client.jobs(limit=PAGE_ITEMS_MAX, cursor=cursor)
        if any(job.queue == name for job in page.items):
            return ""
        cursor = page.next_cursor
        if cursor is None:
            return "; no job uses that queue yet"
