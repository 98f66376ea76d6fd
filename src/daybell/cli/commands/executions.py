"""`daybell executions`, `progress`, `events` and `dead-letters`: the options of each command."""

from __future__ import annotations

import os
import select
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from daybell.cli import actions
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
    OfQuery,
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
from daybell.cli.runtime import FAILED, print_stderr

if TYPE_CHECKING:
    from daybell.client.requests import Filters

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
    q: OfQuery = None,
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
        "q": q,
    }
    command = partial(
        actions.executions.list_executions,
        filters=filters,
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
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
    command = partial(
        actions.executions.show_timeline if timeline else actions.executions.show_execution,
        id=id,
        tenant=tenant,
        as_json=as_json,
    )
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
    command = partial(
        actions.executions.show_log,
        id=id,
        follow=follow,
        attempt=attempt,
        tenant=tenant,
        as_json=as_json,
    )
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
    q: OfQuery = None,
    everything: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Cancel executions; those that run are asked to stop."""
    decision = actions.selection.Selection(
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
            "q": q,
        },
        everything=everything,
        yes=yes,
        as_json=as_json,
    )
    decision.check()
    command = partial(actions.selection.apply_decision, decision=decision, tenant=tenant)
    run(context, command, database_url)


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
    q: OfQuery = None,
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
    decision = actions.selection.Selection(
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
            "q": q,
        },
        everything=everything,
        force=force,
        from_node=from_node,
        yes=yes,
        as_json=as_json,
    )
    decision.check()
    command = partial(actions.selection.apply_decision, decision=decision, tenant=tenant)
    run(context, command, database_url)


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
    command = partial(
        actions.executions.wait_for_execution, id=id, within=timeout, tenant=tenant, as_json=as_json
    )
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
    run(
        context,
        partial(actions.executions.explain_execution, id=id, tenant=tenant, as_json=as_json),
        database_url,
    )


@app.command("signal")
def signal_execution(
    context: typer.Context,
    id: Id,
    name: EventName,
    data: Data = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Send an event to one execution, now or before it waits."""
    command = partial(
        actions.executions.signal_execution,
        id=id,
        name=name,
        data=data,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("approve")
def approve_execution(
    context: typer.Context,
    id: Id,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What is decided on.")
    ] = "approval",
    reject: Annotated[bool, typer.Option("--reject", help="Say no.")] = False,
    note: Annotated[
        Text, typer.Option("--note", metavar="TEXT", help="Why, for the execution.")
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Approve what an execution waits for, or reject it."""
    command = partial(
        actions.executions.approve_execution,
        id=id,
        name=name,
        approved=not reject,
        note=note,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


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


# `daybell events`: publish events, and list them.

events_app = group("Events: what executions wait for.")

Data = Annotated[Text, typer.Option("--data", metavar="JSON", help='Such as {"order_id": 42}.')]
EventName = Annotated[
    str, typer.Argument(metavar="NAME", help="The event's name, as it is waited for.")
]


@events_app.command("publish")
def publish_event(
    context: typer.Context,
    name: EventName,
    data: Data = None,
    source: Annotated[
        Text,
        typer.Option("--source", metavar="TEXT", help="Where it comes from; daybell, if left out."),
    ] = None,
    id: Annotated[
        Text, typer.Option("--id", metavar="TEXT", help="What it counts once by; a new one.")
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Tell of an event: what waits for it goes on."""
    command = partial(
        actions.executions.publish_event,
        name=name,
        data=data,
        source=source,
        id=id,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@events_app.command("list")
def list_events(
    context: typer.Context,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List events that are on record, those that came last first."""
    command = partial(
        actions.executions.list_events, limit=limit, cursor=cursor, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


# `daybell dead-letters`: executions that failed for good and need a decision.

dead_letters_app = group("Dead letters: executions out of tries.")

DeadIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The executions' ids.")]


@dead_letters_app.command("list")
def list_dead_letters(
    context: typer.Context,
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
    q: OfQuery = None,
    grouped: Annotated[
        bool,
        typer.Option("--group", help="Count them by job and class of error; reads all of them."),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=1000,
            help="How many, at most: 50 if left out. With --group, how many groups, the largest"
            " first: all if left out.",
            show_default=False,
        ),
    ] = None,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List dead letters, newest first."""
    filters: Filters = {
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
        "q": q,
    }
    command = partial(
        actions.executions.list_dead_letters,
        filters=filters,
        grouped=grouped,
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@dead_letters_app.command("retry")
def retry_dead_letters(
    context: typer.Context,
    ids: DeadIds = None,
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
    q: OfQuery = None,
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run dead letters again, their tries counted anew."""
    filters: Filters = {
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
        "q": q,
    }
    _check_choice("retry", ids, filters, everything=all_of_them)
    command = partial(
        actions.executions.decide_dead_letters,
        verb="retry",
        ids=ids or None,
        filters=filters,
        yes=yes,
        tenant=tenant,
    )
    run(context, command, database_url)


@dead_letters_app.command("discard")
def discard_dead_letters(
    context: typer.Context,
    ids: DeadIds = None,
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
    q: OfQuery = None,
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Take dead letters off the list; history keeps them."""
    filters: Filters = {
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
        "q": q,
    }
    _check_choice("discard", ids, filters, everything=all_of_them)
    command = partial(
        actions.executions.decide_dead_letters,
        verb="discard",
        ids=ids or None,
        filters=filters,
        yes=yes,
        tenant=tenant,
    )
    run(context, command, database_url)


def _check_choice(verb: str, ids: list[str] | None, filters: Filters, *, everything: bool) -> None:
    ways = bool(ids) + any(one is not None for one in filters.values()) + everything
    if ways > 1:
        raise typer.BadParameter(
            "ids, filters such as --job and --error, and --all exclude each other; give one"
        )
    if ways == 0:
        raise typer.BadParameter(
            f"say what to {verb}: ids, or filters such as --job NAME and --error TEXT, or --all"
        )
