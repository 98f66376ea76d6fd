"""`daybell executions`: what runs, ran and will run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import (
    Args,
    Cursor,
    DatabaseUrl,
    EndedSince,
    EndedUntil,
    Json,
    Limit,
    OfError,
    OfJob,
    OfKey,
    OfQueue,
    OfWorker,
    Since,
    Tenant,
    Text,
    Timeout,
    Until,
    Yes,
    args_of,
    group,
    run,
    statuses,
)

if TYPE_CHECKING:
    from daybell.client.requests import Filters
    from daybell.settings import Settings

app = group("Executions: what runs, ran and will run.")

_PART = "or six or more characters of a recent one's beginning or end"
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help=f"The executions' ids, {_PART}.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help=f"The execution's id, {_PART}.")]
Status = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATE",
        help="Such as running, dead or pending; may be repeated.",
        autocompletion=statuses,
    ),
]
RetriedStatus = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATE",
        help="Dead (the default), cancelled or succeeded; may be repeated.",
    ),
]
FromNode = Annotated[
    Text,
    typer.Option(
        "--from",
        metavar="NODE",
        help="Of a workflow's run: begin with this node, as a new execution.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="All there are.")]


@app.command("list")
def list_executions(
    context: typer.Context,
    status: Status = None,
    job: OfJob = None,
    queue: OfQueue = None,
    worker: OfWorker = None,
    workflow: Annotated[
        Text, typer.Option("--workflow", metavar="ID", help="The nodes of this workflow's run.")
    ] = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Also nodes of workflows' runs, whichever.")
    ] = False,
    since: Since = None,
    until: Until = None,
    arg: Args = None,
    unique_key: OfKey = None,
    error: OfError = None,
    ended_since: EndedSince = None,
    ended_until: EndedUntil = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List executions, newest first.

    --arg, --unique-key, --error and --ended-… search, newest first, until --limit are found.
    """
    filters: Filters = {
        "status": status or None,
        "job": job,
        "queue": queue,
        "worker": worker,
        "parent": workflow,
        "nodes": nodes,
        "since": since,
        "until": until,
        "args": args_of(arg),
        "unique_key": unique_key,
        "error": error,
        "ended_since": ended_since,
        "ended_until": ended_until,
    }
    command = partial(
        _list, filters=filters, limit=limit, cursor=cursor, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("show")
def show_execution(
    context: typer.Context,
    id: Id,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="What happened to it, and to its nodes, and when.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show an execution: its attempts, its steps or its nodes."""
    command = partial(_timeline if timeline else _show, id=id, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("logs")
def show_log(
    context: typer.Context,
    id: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the execution has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Only of this attempt.")
    ] = None,
    tenant: Tenant = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what an execution said: its log, and what it printed."""
    command = partial(_log, id=id, follow=follow, attempt=attempt, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("cancel")
def cancel_executions(
    context: typer.Context,
    ids: Ids = None,
    status: Status = None,
    job: OfJob = None,
    queue: OfQueue = None,
    worker: OfWorker = None,
    since: Since = None,
    until: Until = None,
    arg: Args = None,
    unique_key: OfKey = None,
    error: OfError = None,
    ended_since: EndedSince = None,
    ended_until: EndedUntil = None,
    everything: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel executions; those that run are asked to stop."""
    from daybell.cli.deciding import Decision, decide

    decision = Decision(
        verb="cancel",
        ids=ids,
        filters={
            "status": status or None,
            "job": job,
            "queue": queue,
            "worker": worker,
            "since": since,
            "until": until,
            "args": args_of(arg),
            "unique_key": unique_key,
            "error": error,
            "ended_since": ended_since,
            "ended_until": ended_until,
        },
        everything=everything,
        yes=yes,
        as_json=as_json,
    )
    decision.check()
    run(context, partial(decide, decision=decision, tenant=tenant), database_url)


@app.command("retry")
def retry_executions(
    context: typer.Context,
    ids: Ids = None,
    status: RetriedStatus = None,
    job: OfJob = None,
    queue: OfQueue = None,
    worker: OfWorker = None,
    since: Since = None,
    until: Until = None,
    arg: Args = None,
    unique_key: OfKey = None,
    error: OfError = None,
    ended_since: EndedSince = None,
    ended_until: EndedUntil = None,
    everything: All = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also those that succeeded, as new executions.")
    ] = False,
    from_node: FromNode = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Run executions again: dead and cancelled ones.

    Of workflows, what has not succeeded.
    """
    from daybell.cli.deciding import Decision, decide

    decision = Decision(
        verb="retry",
        ids=ids,
        filters={
            "status": status or None,
            "job": job,
            "queue": queue,
            "worker": worker,
            "since": since,
            "until": until,
            "args": args_of(arg),
            "unique_key": unique_key,
            "error": error,
            "ended_since": ended_since,
            "ended_until": ended_until,
        },
        everything=everything,
        force=force,
        from_node=from_node,
        yes=yes,
        as_json=as_json,
    )
    decision.check()
    run(context, partial(decide, decision=decision, tenant=tenant), database_url)


@app.command("wait")
def wait_for_execution(
    context: typer.Context,
    id: Id,
    timeout: Timeout = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Wait for its end; exit with 0 if it succeeded."""
    command = partial(_wait, id=id, within=timeout, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("why")
def explain_execution(
    context: typer.Context,
    id: Id,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say why an execution has not run, or has not ended."""
    run(context, partial(_why, id=id, tenant=tenant, as_json=as_json), database_url)


async def _list(
    settings: Settings,
    *,
    filters: Filters,
    limit: int,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.cli.found import Search, echo_found

    async with client_for(settings, tenant=tenant) as client:
        if (run := filters.get("parent")) is not None:
            filters["parent"] = await find(client, str(run))
        search = Search(client.executions, filters, limit=limit, cursor=cursor, quiet=as_json)
        return await echo_found(client, search, empty="no executions", as_json=as_json)


async def _show(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.cli.describing import echo_detail
    from daybell.cli.nodes import echo_nodes
    from daybell.cli.steps import echo_steps
    from daybell.client import wire
    from daybell.core.dependencies import DEPENDENCIES
    from daybell.core.execution import State
    from daybell.core.lifecycle import FOR_EVENT

    async with client_for(settings, tenant=tenant) as client:
        found = await client.story(await find(client, id))
        one, run = found.detail.execution, found.run
        now = (await client.health()).now
        is_dependent = one.state is State.WAITING and one.reason in (DEPENDENCIES, FOR_EVENT)
        because = (await client.why(one.id)).detail if is_dependent and not as_json else None
    if as_json:
        said = {"timeline": found.timeline, "steps": found.told_steps}
        nodes = None if run is None else wire.run(run)
        show.echo_json({**wire.detail(found.detail), **said, "workflow": nodes})
    else:
        echo_detail(found.detail, now=now, because=because, steps=found.steps)
        echo_steps(found.steps, one)
        echo_nodes(run, now=now, id=one.id, state=one.state)
    return DONE


async def _timeline(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.cli.timelines import echo_timeline

    async with client_for(settings, tenant=tenant) as client:
        told = (await client.story(await find(client, id))).timeline
    if as_json:
        show.echo_json(told)
    else:
        echo_timeline(told)
    return DONE


async def _log(
    settings: Settings,
    *,
    id: str,
    follow: bool,
    attempt: int | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.cli.transcript import tell

    async with client_for(settings, tenant=tenant) as client:
        found = await find(client, id)
        return await tell(client, found, follow=follow, attempt=attempt, as_json=as_json)


async def _wait(
    settings: Settings, *, id: str, within: str | None, tenant: str | None, as_json: bool
) -> int:
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.cli.waiting import wait_for_end
    from daybell.core.duration import parse_duration

    seconds = None if within is None else parse_duration(within, what="timeout")
    async with client_for(settings, tenant=tenant) as client:
        found = await find(client, id)
        return await wait_for_end(client, found, seconds=seconds, as_json=as_json)


async def _why(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import show
    from daybell.cli.choosing import find
    from daybell.cli.connecting import client_for
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        found = await client.why(await find(client, id))
    if as_json:
        show.echo_json(wire.reason(found))
    else:
        one = found.execution
        typer.echo(show.printable(f"{one.id} is {one.state}: {found.detail}"))
    return DONE
