"""The work of `daybell dead-letters`: list, retry and discard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import typer

from daybell.cli import output
from daybell.cli.actions.selection import check_action, check_job, describe_filters
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE, FAILED, print_stderr
from daybell.cli.terminal import confirm
from daybell.cli.views.executions import Search, echo_found, echo_groups
from daybell.client.executions import fix_bounds
from daybell.client.remote.client import AnyClient
from daybell.client.requests import Filters, read_id
from daybell.core.execution import Revival
from daybell.errors import Conflict, NotFound
from daybell.settings import Settings

PAGE_ITEMS: Final = 50


async def list_dead_letters(
    settings: Settings,
    *,
    filters: Filters,
    grouped: bool,
    limit: int | None,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        most = None if grouped else limit or PAGE_ITEMS
        search = Search(client.dead_letters, filters, limit=most, cursor=cursor, quiet=as_json)
        if grouped:
            return await echo_groups(client, search, limit=limit, as_json=as_json)
        return await echo_found(client, search, empty="no dead letters", as_json=as_json)


async def decide(
    settings: Settings,
    *,
    verb: str,
    ids: list[str] | None,
    filters: Filters,
    yes: bool,
    tenant: str | None,
) -> int:
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
    done = answers.pop("done", 0)
    said = "run again" if verb == "retry" else "discarded"
    typer.echo(f"{done:,} {said}")
    for why, number in answers.items():
        print_stderr(f"error: {number:,} not: {why}")
    return FAILED if answers else DONE
