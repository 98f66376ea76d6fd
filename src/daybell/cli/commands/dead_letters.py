"""`daybell dead-letters`: executions that failed for good and need a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

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
from daybell.cli.runtime import DONE, FAILED

if TYPE_CHECKING:
    from uuid import UUID

    from daybell.client.remote.client import AnyClient
    from daybell.client.requests import Filters
    from daybell.settings import Settings


PAGE_ITEMS: Final = 50

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
        _list,
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
        _decide, verb="retry", ids=ids or None, filters=filters, yes=yes, tenant=tenant
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
        _decide, verb="discard", ids=ids or None, filters=filters, yes=yes, tenant=tenant
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


async def _list(
    settings: Settings,
    *,
    filters: Filters,
    grouped: bool,
    limit: int | None,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli.connection import client_for
    from daybell.cli.views.executions import Search, echo_found, echo_groups

    async with client_for(settings, tenant=tenant) as client:
        most = None if grouped else limit or PAGE_ITEMS
        search = Search(client.dead_letters, filters, limit=most, cursor=cursor, quiet=as_json)
        if grouped:
            return await echo_groups(client, search, limit=limit, as_json=as_json)
        return await echo_found(client, search, empty="no dead letters", as_json=as_json)


async def _decide(
    settings: Settings,
    *,
    verb: str,
    ids: list[str] | None,
    filters: Filters,
    yes: bool,
    tenant: str | None,
) -> int:
    from daybell.cli import output
    from daybell.cli.commands.selection import check_action, check_job, describe_filters
    from daybell.cli.connection import client_for
    from daybell.cli.terminal import confirm
    from daybell.client.executions import fix_bounds
    from daybell.client.requests import read_id

    act = _retry if verb == "retry" else _discard
    wanted = None if ids is None else [read_id(id) for id in ids]
    async with client_for(settings, tenant=tenant) as client:
        if wanted is not None and verb == "discard":
            return await _discard_each(client, wanted)
        if wanted is not None:
            return _tell(verb, await act(client, wanted))
        await check_job(client, filters.get("job"))
        of = describe_filters(filters)
        filters = await fix_bounds(client, filters)
        total = await client.count_dead_letters(**filters)
        if not total:
            await check_action(client, partial(_try, client, verb))
            typer.echo(f"no dead letters{of}")
            return DONE
        confirm(f"{verb} {output.format_count(total, 'dead letter')}{of}?", yes=yes)
        with output.show_progress(verb, total=total if total.is_exact else None) as advance:
            answers = await act(client, None, **filters, on_step=advance)
    return _tell(verb, answers)


async def _try(client: AnyClient, verb: str, id: UUID) -> object:
    return await (client.discard(id) if verb == "discard" else client.retry_dead_letters([id]))


async def _retry(client: AnyClient, ids: Sequence[UUID] | None, **which: Any) -> Counter[str]:
    from daybell.core.execution import Revival

    words = {
        Revival.REVIVED: "done",
        Revival.NOT_LISTED: "not on the list",
        Revival.KEY_HELD: "kept back: another execution has its unique key",
        Revival.OVER_QUOTA: "kept back: the tenant has as many unfinished executions as it may",
        Revival.UNKNOWN: "no such execution",
    }
    answers = await client.retry_dead_letters(ids, **which)
    return Counter({words[answer]: number for answer, number in answers.items()})


async def _discard_each(client: AnyClient, ids: Sequence[UUID]) -> int:
    """One by one, because each that cannot be has a reason of its own."""
    from daybell.cli.runtime import print_stderr
    from daybell.errors import Conflict, NotFound

    done = 0
    for id in dict.fromkeys(ids):
        try:
            await client.discard(id)
            done += 1
        except (Conflict, NotFound) as error:
            print_stderr(f"error: {error}")
    typer.echo(f"{done:,} discarded")
    return DONE if done == len(set(ids)) else FAILED


async def _discard(client: AnyClient, ids: Sequence[UUID] | None, **which: Any) -> Counter[str]:
    listed, others = await client.discard_dead_letters(ids, **which)
    return Counter({"done": listed} | ({"not on the list": others} if others else {}))


def _tell(verb: str, answers: Counter[str]) -> int:
    """Say how many went well, and why others did not."""
    from daybell.cli.runtime import print_stderr

    done = answers.pop("done", 0)
    said = "run again" if verb == "retry" else "discarded"
    typer.echo(f"{done:,} {said}")
    for why, number in answers.items():
        print_stderr(f"error: {number:,} not: {why}")
    return FAILED if answers else DONE
