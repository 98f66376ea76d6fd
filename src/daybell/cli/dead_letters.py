"""`daybell dead-letters`: executions that wait for a person's decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE, FAILED
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, Yes, group, run

if TYPE_CHECKING:
    from uuid import UUID

    from daybell.client.remote.client import AnyClient
    from daybell.settings import Settings

app = group("Dead letters: executions out of tries.")

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The executions' ids.")]
OfJob = Annotated[str | None, typer.Option("--job", metavar="NAME", help="All of this job.")]
OfQueue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="In this queue.")]
All = Annotated[bool, typer.Option("--all", help="All there are.")]


@app.command("list")
def list_dead_letters(
    context: typer.Context,
    job: OfJob = None,
    queue: OfQueue = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List dead letters, newest first."""
    asked = {"job": job, "queue": queue, "limit": limit, "cursor": cursor}
    run(context, partial(_list, asked=asked, tenant=tenant, as_json=as_json), database_url)


@app.command("retry")
def retry_dead_letters(
    context: typer.Context,
    ids: Ids = None,
    job: OfJob = None,
    queue: OfQueue = None,
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run dead letters again, their tries counted anew."""
    _check_choice("retry", ids, job, queue, everything=all_of_them)
    which = {"ids": ids or None, "job": job, "queue": queue}
    run(context, partial(_decide, verb="retry", **which, yes=yes, tenant=tenant), database_url)


@app.command("discard")
def discard_dead_letters(
    context: typer.Context,
    ids: Ids = None,
    job: OfJob = None,
    queue: OfQueue = None,
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Take dead letters off the list; history keeps them."""
    _check_choice("discard", ids, job, queue, everything=all_of_them)
    which = {"ids": ids or None, "job": job, "queue": queue}
    run(context, partial(_decide, verb="discard", **which, yes=yes, tenant=tenant), database_url)


def _check_choice(verb: str, ids: list[str] | None, *filters: str | None, everything: bool) -> None:
    ways = bool(ids) + any(one is not None for one in filters) + everything
    if ways > 1:
        raise typer.BadParameter("ids, --job and --queue, and --all exclude each other; give one")
    if ways == 0:
        raise typer.BadParameter(
            f"say what to {verb}: ids, or --job NAME and --queue NAME, or --all"
        )


async def _list(
    settings: Settings, *, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    from daybell.cli import show
    from daybell.cli.connecting import client_for
    from daybell.cli.describing import echo_executions
    from daybell.cli.in_workflows import workflows_of
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        page = await client.dead_letters(**asked)
        now = (await client.health()).now
        workflows = {} if as_json else await workflows_of(client, page.items)
    if as_json:
        show.echo_json(wire.page(page, wire.execution))
        return DONE
    echo_executions(page.items, now=now, empty="no dead letters", workflows=workflows)
    show.echo_more(page.next_cursor)
    return DONE


async def _decide(
    settings: Settings,
    *,
    verb: str,
    ids: list[str] | None,
    job: str | None,
    queue: str | None,
    yes: bool,
    tenant: str | None,
) -> int:
    from daybell.cli import show
    from daybell.cli.asking import confirm
    from daybell.cli.choosing import check_action, check_job
    from daybell.cli.connecting import client_for
    from daybell.client.requests import read_id

    act = _retry if verb == "retry" else _discard
    wanted = None if ids is None else [read_id(id) for id in ids]
    async with client_for(settings, tenant=tenant) as client:
        if wanted is not None and verb == "discard":
            return await _discard_each(client, wanted)
        if wanted is not None:
            return _tell(verb, await act(client, wanted))
        await check_job(client, job)
        total = await client.count_dead_letters(job=job, queue=queue)
        of = "" if job is None else f" of {job}"
        of += "" if queue is None else f" in queue {queue}"
        if not total:
            await check_action(client, partial(_try, client, verb))
            typer.echo(f"no dead letters{of}")
            return DONE
        confirm(f"{verb} {show.count(total, 'dead letter')}{of}?", yes=yes)
        with show.progress(verb, total=total if total.is_exact else None) as advance:
            answers = await act(client, None, job=job, queue=queue, on_step=advance)
    return _tell(verb, answers)


async def _try(client: AnyClient, verb: str, id: UUID) -> object:
    return await (client.discard(id) if verb == "discard" else client.retry_dead_letters([id]))


async def _retry(client: AnyClient, ids: Sequence[UUID] | None, **which: Any) -> Counter[str]:
    from daybell.store.outcomes import Revival

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
    from daybell.cli.edge import complain
    from daybell.errors import Conflict, NotFound

    done = 0
    for id in dict.fromkeys(ids):
        try:
            await client.discard(id)
            done += 1
        except (Conflict, NotFound) as error:
            complain(f"error: {error}")
    typer.echo(f"{done:,} discarded")
    return DONE if done == len(set(ids)) else FAILED


async def _discard(client: AnyClient, ids: Sequence[UUID] | None, **which: Any) -> Counter[str]:
    listed, others = await client.discard_dead_letters(ids, **which)
    return Counter({"done": listed} | ({"not on the list": others} if others else {}))


def _tell(verb: str, answers: Counter[str]) -> int:
    """Say how many went well, and why others did not."""
    from daybell.cli.edge import complain

    done = answers.pop("done", 0)
    said = "run again" if verb == "retry" else "discarded"
    typer.echo(f"{done:,} {said}")
    for why, number in answers.items():
        complain(f"error: {number:,} not: {why}")
    return FAILED if answers else DONE
