"""`daybell dead-letters`: executions that failed for good and need a decision."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import (
    Args,
    Cursor,
    DatabaseUrl,
    EndedSince,
    EndedUntil,
    Json,
    OfError,
    OfJob,
    OfKey,
    OfQueue,
    OfWorker,
    Since,
    Tenant,
    Until,
    Yes,
    group,
    read_args,
    run,
)

if TYPE_CHECKING:
    from daybell.client.requests import Filters

app = group("Dead letters: executions out of tries.")

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The executions' ids.")]
All = Annotated[bool, typer.Option("--all", help="All there are.")]


@app.command("list")
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
    }
    command = partial(
        actions.dead_letters.list_dead_letters,
        filters=filters,
        grouped=grouped,
        limit=limit,
        cursor=cursor,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("retry")
def retry_dead_letters(
    context: typer.Context,
    ids: Ids = None,
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
    }
    _check_choice("retry", ids, filters, everything=all_of_them)
    command = partial(
        actions.dead_letters.decide,
        verb="retry",
        ids=ids or None,
        filters=filters,
        yes=yes,
        tenant=tenant,
    )
    run(context, command, database_url)


@app.command("discard")
def discard_dead_letters(
    context: typer.Context,
    ids: Ids = None,
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
    }
    _check_choice("discard", ids, filters, everything=all_of_them)
    command = partial(
        actions.dead_letters.decide,
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
