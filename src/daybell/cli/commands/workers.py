"""`daybell workers` and `daybell queues`: list, drain, pause, resume and purge."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, group, run

workers_app = group("Workers: processes that run executions.")


@workers_app.command("list")
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
        return run(context, partial(actions.workers.list_leaders, as_json=as_json), database_url)
    command = partial(
        actions.workers.list_workers, include_dead=include_dead, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@workers_app.command("drain")
def drain_worker(
    context: typer.Context,
    id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a worker finish what it has, and end."""
    run(context, partial(actions.workers.drain_worker, id=id, tenant=tenant), database_url)


# `daybell queues`: lanes, how full they are, and stopping them.

queues_app = group("Queues: lanes that workers subscribe to.")

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


@queues_app.command("list")
def list_queues(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List queues with their numbers."""
    command = partial(actions.workers.list_queues, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@queues_app.command("pause")
def pause_queue(
    context: typer.Context, name: QueueName, tenant: Tenant = None, database_url: DatabaseUrl = None
) -> None:
    """Give out nothing from a queue; what runs goes on."""
    run(
        context,
        partial(actions.workers.pause_queue, name=name, paused=True, tenant=tenant),
        database_url,
    )


@queues_app.command("resume")
def resume_queue(
    context: typer.Context, name: QueueName, tenant: Tenant = None, database_url: DatabaseUrl = None
) -> None:
    """Give out work from a queue again."""
    run(
        context,
        partial(actions.workers.pause_queue, name=name, paused=False, tenant=tenant),
        database_url,
    )


@queues_app.command("why")
def explain_queue(
    context: typer.Context,
    name: QueueName,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Explain why executions of a queue are not taken."""
    command = partial(actions.workers.explain_queue, name=name, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@queues_app.command("purge")
def purge_queue(
    context: typer.Context,
    name: QueueName,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel everything that waits in a queue."""
    run(
        context,
        partial(actions.workers.purge_queue, name=name, yes=yes, tenant=tenant),
        database_url,
    )
