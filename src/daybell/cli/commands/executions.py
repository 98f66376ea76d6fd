"""`daybell executions`, `progress`, `events` and `dead-letters`: the options of each command."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer

from daybell.cli import actions
from daybell.cli.options import (
    Action,
    Args,
    Cursor,
    EndedSince,
    EndedUntil,
    Limit,
    OfError,
    OfJob,
    OfKey,
    OfQuery,
    OfQueue,
    OfWorker,
    Since,
    Text,
    Timeout,
    Until,
    Yes,
    gather,
    group,
    read_args,
    shared,
    statuses,
)
from daybell.cli.runtime import FAILED, print_stderr

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
Sort = Annotated[
    Text,
    typer.Option(
        "--sort",
        metavar="TIME",
        help="By created, started, ended or duration; -duration: the longest first.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="All there are.")]
Data = Annotated[Text, typer.Option("--data", metavar="JSON", help='Such as {"order_id": 42}.')]
EventName = Annotated[
    str, typer.Argument(metavar="NAME", help="The event's name, as it is waited for.")
]

# Filters of executions, by their names.
PLACES: Final = {"job": OfJob, "queue": OfQueue, "worker": OfWorker}
RUNS: Final = {
    "parent": Annotated[
        Text, typer.Option("--workflow", metavar="ID", help="The nodes of this workflow's run.")
    ],
    "nodes": Annotated[
        bool, typer.Option("--nodes", help="Also nodes of workflows' runs, whichever.")
    ],
}
SEARCH: Final = {
    "since": Since,
    "until": Until,
    "args": Args,
    "unique_key": OfKey,
    "error": OfError,
    "ended_since": EndedSince,
    "ended_until": EndedUntil,
    "q": OfQuery,
}


def _read_filters(typed: dict[str, Any]) -> dict[str, Any]:
    return {**typed, "args": read_args(typed["args"])}


filtered: Final = partial(gather, "filters", read=_read_filters)


@app.command("list")
@filtered({"status": Status, **PLACES, **RUNS, **SEARCH})
@shared()
def list_executions(
    filters: Any = None, sort: Sort = None, limit: Limit = 50, cursor: Cursor = None
) -> Action:
    """List executions, newest first.

    --arg, --unique-key, --error and --ended-… search, newest first, until --limit are found.
    --sort reads all that match, 5,000 at most.
    """
    return partial(
        actions.executions.list_executions, filters=filters, limit=limit, cursor=cursor, sort=sort
    )


@app.command("show")
@shared()
def show_execution(
    id: Id,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="What happened to it, and to its nodes, and when.")
    ] = False,
) -> Action:
    """Show an execution: its attempts, its steps or its nodes."""
    return partial(
        actions.executions.show_timeline if timeline else actions.executions.show_execution, id=id
    )


@app.command("logs")
@shared(as_json=Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")])
def show_log(
    id: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the execution has ended.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Only of this attempt.")
    ] = None,
) -> Action:
    """Show what an execution said: its log, and what it printed."""
    return partial(actions.executions.show_log, id=id, follow=follow, attempt=attempt)


@app.command("cancel")
@filtered({"status": Status, **PLACES, **SEARCH})
@shared()
def cancel_executions(
    ids: Ids = None,
    filters: Any = None,
    everything: All = False,
    yes: Yes = False,
) -> Action:
    """Cancel executions; those that run are asked to stop."""
    decision = actions.selection.Selection(
        verb="cancel", ids=ids, filters=filters, everything=everything, yes=yes
    )
    decision.check()
    return partial(actions.selection.apply_decision, decision=decision)


@app.command("retry")
@filtered({"status": RetriedStatus, **PLACES, **SEARCH})
@shared()
def retry_executions(
    ids: Ids = None,
    filters: Any = None,
    everything: All = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also those that succeeded, as new executions.")
    ] = False,
    from_node: FromNode = None,
    yes: Yes = False,
) -> Action:
    """Run executions again: dead and cancelled ones.

    Of workflows, what has not succeeded.
    """
    decision = actions.selection.Selection(
        verb="retry",
        ids=ids,
        filters=filters,
        everything=everything,
        force=force,
        from_node=from_node,
        yes=yes,
    )
    decision.check()
    return partial(actions.selection.apply_decision, decision=decision)


@app.command("wait")
@shared()
def wait_for_execution(id: Id, timeout: Timeout = None) -> Action:
    """Wait for its end; exit with 0 if it succeeded."""
    return partial(actions.executions.wait_for_execution, id=id, within=timeout)


@app.command("why")
@shared()
def explain_execution(id: Id) -> Action:
    """Say why an execution has not run, or has not ended."""
    return partial(actions.executions.explain_execution, id=id)


@app.command("signal")
@shared()
def signal_execution(id: Id, name: EventName, data: Data = None) -> Action:
    """Send an event to one execution, now or before it waits."""
    return partial(actions.executions.signal_execution, id=id, name=name, data=data)


@app.command("approve")
@shared()
def approve_execution(
    id: Id,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What is decided on.")
    ] = "approval",
    reject: Annotated[bool, typer.Option("--reject", help="Say no.")] = False,
    note: Annotated[
        Text, typer.Option("--note", metavar="TEXT", help="Why, for the execution.")
    ] = None,
) -> Action:
    """Approve what an execution waits for, or reject it."""
    return partial(
        actions.executions.approve_execution, id=id, name=name, approved=not reject, note=note
    )


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


# `daybell logs`: search in the logs of many executions.

logs_app = group("Logs: lines that executions wrote.")


@logs_app.command("search")
@shared()
def search_logs(
    text: Annotated[
        Text,
        typer.Argument(
            metavar="TEXT",
            help="A part of the message, in any case of letters.",
            show_default=False,
        ),
    ] = None,
    job: OfJob = None,
    queue: OfQueue = None,
    status: Status = None,
    level: Annotated[
        Text,
        typer.Option(
            "--level",
            metavar="LEVEL",
            help="Of this level or a higher one: debug, info, warning, error or critical. Output"
            " counts as info, output to stderr as warning.",
        ),
    ] = None,
    since: Annotated[
        Text,
        typer.Option(
            "--since", metavar="TIME", help="Written then or later: 1h for ago, 2026-11-15, or ISO."
        ),
    ] = None,
    until: Annotated[
        Text, typer.Option("--until", metavar="TIME", help="Written before then.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Action:
    """Search log lines of executions, those created last first."""
    return partial(
        actions.executions.search_logs,
        text=text,
        filters={
            "level": level,
            "job": job,
            "queue": queue,
            "status": status or None,
            "since": since,
            "until": until,
        },
        limit=limit,
        cursor=cursor,
    )


# `daybell events`: publish events, and list them.

events_app = group("Events: what executions wait for.")


@events_app.command("publish")
@shared()
def publish_event(
    name: EventName,
    data: Data = None,
    source: Annotated[
        Text,
        typer.Option("--source", metavar="TEXT", help="Where it comes from; daybell, if left out."),
    ] = None,
    id: Annotated[
        Text, typer.Option("--id", metavar="TEXT", help="What it counts once by; a new one.")
    ] = None,
) -> Action:
    """Tell of an event: what waits for it goes on."""
    return partial(actions.executions.publish_event, name=name, data=data, source=source, id=id)


@events_app.command("list")
@shared()
def list_events(limit: Limit = 50, cursor: Cursor = None) -> Action:
    """List events that are on record, those that came last first."""
    return partial(actions.executions.list_events, limit=limit, cursor=cursor)


# `daybell dead-letters`: executions that failed for good and need a decision.

dead_letters_app = group("Dead letters: executions out of tries.")

DeadIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The executions' ids.")]


@dead_letters_app.command("list")
@filtered({**PLACES, **SEARCH})
@shared()
def list_dead_letters(
    filters: Any = None,
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
) -> Action:
    """List dead letters, newest first."""
    return partial(
        actions.executions.list_dead_letters,
        filters=filters,
        grouped=grouped,
        limit=limit,
        cursor=cursor,
    )


@dead_letters_app.command("retry")
@filtered({**PLACES, **SEARCH})
@shared(as_json=None)
def retry_dead_letters(
    ids: DeadIds = None, filters: Any = None, all_of_them: All = False, yes: Yes = False
) -> Action:
    """Run dead letters again, their tries counted anew."""
    _check_choice("retry", ids, filters, everything=all_of_them)
    return partial(
        actions.executions.decide_dead_letters,
        verb="retry",
        ids=ids or None,
        filters=filters,
        yes=yes,
    )


@dead_letters_app.command("discard")
@filtered({**PLACES, **SEARCH})
@shared(as_json=None)
def discard_dead_letters(
    ids: DeadIds = None, filters: Any = None, all_of_them: All = False, yes: Yes = False
) -> Action:
    """Take dead letters off the list; history keeps them."""
    _check_choice("discard", ids, filters, everything=all_of_them)
    return partial(
        actions.executions.decide_dead_letters,
        verb="discard",
        ids=ids or None,
        filters=filters,
        yes=yes,
    )


def _check_choice(
    verb: str, ids: list[str] | None, filters: Mapping[str, Any], *, everything: bool
) -> None:
    ways = bool(ids) + any(one is not None for one in filters.values()) + everything
    if ways > 1:
        raise typer.BadParameter(
            "ids, filters such as --job and --error, and --all exclude each other; give one"
        )
    if ways == 0:
        raise typer.BadParameter(
            f"say what to {verb}: ids, or filters such as --job NAME and --error TEXT, or --all"
        )
