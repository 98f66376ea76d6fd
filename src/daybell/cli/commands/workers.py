"""`daybell workers` and `daybell queues`: list, drain, pause, resume and purge."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import Action, DatabaseUrl, Json, Tenant, Yes, group, run, shared

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
@shared(as_json=None)
def drain_worker(
    id: Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")],
) -> Action:
    """Let a worker finish what it has, and end."""
    return partial(actions.workers.drain_worker, id=id)


# `daybell queues`: lanes, how full they are, and stopping them.

queues_app = group("Queues: lanes that workers subscribe to.")

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]


@queues_app.command("list")
@shared()
def list_queues() -> Action:
    """List queues with their numbers."""
    return actions.workers.list_queues


@queues_app.command("pause")
@shared(as_json=None)
def pause_queue(name: QueueName) -> Action:
    """Give out nothing from a queue; what runs goes on."""
    return partial(actions.workers.pause_queue, name=name, paused=True)


@queues_app.command("resume")
@shared(as_json=None)
def resume_queue(name: QueueName) -> Action:
    """Give out work from a queue again."""
    return partial(actions.workers.pause_queue, name=name, paused=False)


@queues_app.command("why")
@shared()
def explain_queue(name: QueueName) -> Action:
    """Explain why executions of a queue are not taken."""
    return partial(actions.workers.explain_queue, name=name)


@queues_app.command("purge")
@shared(as_json=None)
def purge_queue(name: QueueName, yes: Yes = False) -> Action:
    """Cancel everything that waits in a queue."""
    return partial(actions.workers.purge_queue, name=name, yes=yes)
