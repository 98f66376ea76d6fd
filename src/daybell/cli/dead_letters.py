"""`daybell dead-letters`: executions that wait for a person's decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE, FAILED
from daybell.cli.options import Cursor, DatabaseUrl, Json, Limit, Tenant, Yes, group, run

if TYPE_CHECKING:
    from uuid import UUID

    from daybell.core.view import ExecutionFilter
    from daybell.settings import Settings
    from daybell.store.protocol import Store

    Act = Callable[[Store, str, Sequence[UUID]], Awaitable[Sequence[str]]]

app = group("Dead letters: executions out of tries, for a person to decide on.")

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
    tenant: Tenant = "default",
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
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Run dead letters again, their tries counted anew."""
    _run(context, "retry", ids, job, all_of_them, yes, tenant, database_url)


@app.command("discard")
def discard_dead_letters(
    context: typer.Context,
    ids: Ids = None,
    job: OfJob = None,
    all_of_them: All = False,
    yes: Yes = False,
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Take dead letters off the list; history keeps them."""
    _run(context, "discard", ids, job, all_of_them, yes, tenant, database_url)


def _run(
    context: typer.Context,
    verb: str,
    ids: list[str] | None,
    job: str | None,
    all_of_them: bool,
    yes: bool,
    tenant: str,
    database_url: str | None,
) -> None:
    if bool(ids) + (job is not None) + all_of_them != 1:
        raise typer.BadParameter(f"say what to {verb}: ids, or --job NAME, or --all")
    command = partial(_decide, verb=verb, ids=ids or [], job=job, yes=yes, tenant=tenant)
    run(context, command, database_url)


async def _list(settings: Settings, *, asked: dict[str, Any], tenant: str, as_json: bool) -> int:
    from daybell.cli import show, wire
    from daybell.cli.executions import echo_executions
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        page = await client.dead_letters(**asked)
    if as_json:
        show.echo_json(wire.page(page, wire.execution))
        return DONE
    echo_executions(page.items, empty="no dead letters")
    show.echo_more(page.next_cursor)
    return DONE


async def _decide(
    settings: Settings, *, verb: str, ids: list[str], job: str | None, yes: bool, tenant: str
) -> int:
    from daybell.client.requests import read_id
    from daybell.core.view import ExecutionFilter
    from daybell.store.open import store_for

    wanted = [read_id(id) for id in ids]
    store = store_for(settings.database_url)
    act = _revive if verb == "retry" else _discard
    try:
        await store.open()
        if wanted:
            return _tell(verb, Counter(await act(store, tenant, wanted)))
        where = ExecutionFilter(dead_letters=True, job=job)
        return await _decide_all(store, tenant, where, verb=verb, act=act, yes=yes)
    finally:
        await store.close()


async def _decide_all(
    store: Store, tenant: str, where: ExecutionFilter, *, verb: str, act: Act, yes: bool
) -> int:
    from daybell.cli import show
    from daybell.cli.asking import confirm
    from daybell.core.limits import PAGE_ITEMS_MAX

    total = sum((await store.count_executions(tenant, where)).values())
    if total == 0:
        typer.echo("no dead letters" + ("" if where.job is None else f" of {where.job}"))
        return DONE
    confirm(f"{verb} {show.count(total, 'dead letter')}?", yes=yes)
    answers: Counter[str] = Counter()
    cursor = None
    with show.progress(verb, total=total) as advance:
        while True:
            # Pages go by id, so what leaves the list does not shift the rest.
            page = await store.list_executions(tenant, where, limit=PAGE_ITEMS_MAX, cursor=cursor)
            answers.update(await act(store, tenant, [one.id for one in page.items]))
            advance(len(page.items))
            cursor = page.next_cursor
            if cursor is None:
                return _tell(verb, answers)


async def _revive(store: Store, tenant: str, ids: Sequence[UUID]) -> Sequence[str]:
    from daybell.store.outcomes import Revival

    words = {
        Revival.REVIVED: "done",
        Revival.NOT_DEAD: "not dead",
        Revival.KEY_HELD: "kept back: another execution has its unique key",
        Revival.UNKNOWN: "unknown",
    }
    return [words[answer] for answer in await store.revive(tenant, ids)]


async def _discard(store: Store, tenant: str, ids: Sequence[UUID]) -> Sequence[str]:
    listed = await store.discard(tenant, ids)
    return ["done" if was_listed else "not on the list" for was_listed in listed]


def _tell(verb: str, answers: Counter[str]) -> int:
    """Say how many went well, and why others did not."""
    from daybell.cli.edge import complain

    done = answers.pop("done", 0)
    said = "run again" if verb == "retry" else "discarded"
    typer.echo(f"{done:,} {said}")
    for why, number in answers.items():
        complain(f"error: {number:,} not: {why}")
    return FAILED if answers else DONE
