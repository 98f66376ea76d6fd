"""`daybell executions` and `progress`: list, show, follow, cancel and retry executions."""

from __future__ import annotations

import os
import select
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

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
    group,
    read_args,
    run,
    statuses,
)
from daybell.cli.runtime import DONE, FAILED, print_stderr

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
        "args": read_args(arg),
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
    from daybell.cli.commands.selection import Decision, apply_decision

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
            "args": read_args(arg),
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
    run(context, partial(apply_decision, decision=decision, tenant=tenant), database_url)


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
    from daybell.cli.commands.selection import Decision, apply_decision

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
            "args": read_args(arg),
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
    run(context, partial(apply_decision, decision=decision, tenant=tenant), database_url)


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
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.cli.views.executions import Search, echo_found

    async with client_for(settings, tenant=tenant) as client:
        if (run := filters.get("parent")) is not None:
            filters["parent"] = await find_execution(client, str(run))
        search = Search(client.executions, filters, limit=limit, cursor=cursor, quiet=as_json)
        return await echo_found(client, search, empty="no executions", as_json=as_json)


async def _show(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.cli.views.executions import echo_detail, echo_nodes, echo_steps
    from daybell.client import wire
    from daybell.core.execution import State
    from daybell.core.lifecycle import FOR_EVENT
    from daybell.core.schedule import DEPENDENCIES

    async with client_for(settings, tenant=tenant) as client:
        found = await client.story(await find_execution(client, id))
        one, run = found.detail.execution, found.run
        now = (await client.health()).now
        is_dependent = one.state is State.WAITING and one.reason in (DEPENDENCIES, FOR_EVENT)
        because = (await client.why(one.id)).detail if is_dependent and not as_json else None
    if as_json:
        said = {"timeline": found.timeline, "steps": found.told_steps}
        nodes = None if run is None else wire.run(run)
        output.echo_json({**wire.detail(found.detail), **said, "workflow": nodes})
    else:
        echo_detail(found.detail, now=now, because=because, steps=found.steps)
        echo_steps(found.steps, one)
        echo_nodes(run, now=now, id=one.id, state=one.state)
    return DONE


async def _timeline(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.cli.views.executions import echo_timeline

    async with client_for(settings, tenant=tenant) as client:
        told = (await client.story(await find_execution(client, id))).timeline
    if as_json:
        output.echo_json(told)
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
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.cli.views.transcripts import print_log

    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return await print_log(client, found, follow=follow, attempt=attempt, as_json=as_json)


async def _wait(
    settings: Settings, *, id: str, within: str | None, tenant: str | None, as_json: bool
) -> int:
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.cli.views.transcripts import wait_for_end
    from daybell.core.units import parse_duration

    seconds = None if within is None else parse_duration(within, what="timeout")
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return await wait_for_end(client, found, seconds=seconds, as_json=as_json)


async def _why(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    from daybell.cli import output
    from daybell.cli.commands.selection import find_execution
    from daybell.cli.connection import client_for
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        found = await client.why(await find_execution(client, id))
    if as_json:
        output.echo_json(wire.reason(found))
    else:
        one = found.execution
        typer.echo(output.printable(f"{one.id} is {one.state}: {found.detail}"))
    return DONE


# `daybell progress`: for commands that a worker runs, to report how far they are.

VARIABLE: Final = "DAYBELL_PROGRESS"
TRIES: Final = 20  # to write to a pipe that is full, which the worker reads ten times a second
PAUSE_SECONDS: Final = 0.05


def progress(
    percent: Annotated[
        str, typer.Argument(help="How much is done, from 0 to 100.", show_default=False)
    ],
    note: Annotated[
        str, typer.Argument(help="What is being done, in a few words.", show_default=False)
    ] = "",
) -> None:
    """Report how far the command of a job is, from inside it."""
    line = f"{_read_percent(percent)} {' '.join(note.split())}".rstrip()
    path = os.environ.get(VARIABLE)
    if not path:
        # No error: the script of a job can be tried by hand.
        print_stderr(f"note: no worker runs this, as {VARIABLE} is not set; progress: {line}")
        return
    try:
        # Not to wait for a worker that reads no more.
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            is_written = _write(pipe, line.encode(errors="replace")[:4000] + b"\n")
        finally:
            os.close(pipe)
    except OSError as error:
        print_stderr(f"error: the worker does not listen at {path}: {error.strerror}")
        raise typer.Exit(FAILED) from None
    if not is_written:
        # No error either: the command is to go on, and what it reports next will be read.
        print_stderr(f"note: the worker has not read earlier progress yet; this is dropped: {line}")


def _read_percent(text: str) -> str:
    """Return a percentage as a worker reads it, which takes no exponent."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise typer.BadParameter(
            f"{text!r:.50} is no percentage; a number from 0 to 100 is expected, such as 50"
        )
    return f"{percent:.9f}".rstrip("0").rstrip(".")


def _write(pipe: int, line: bytes) -> bool:
    """Write a line as a whole. False: the pipe was full, and stayed so."""
    for _ in range(TRIES):
        try:
            os.write(pipe, line)
        except BlockingIOError:
            select.select([], [], [], PAUSE_SECONDS)
        else:
            return True
    return False
