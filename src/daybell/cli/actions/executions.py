"""The work of `daybell executions`, `events` and `dead-letters`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import typer

from daybell.cli import output
from daybell.cli.actions.selection import check_action, check_job, describe_filters, find_execution
from daybell.cli.connection import client_for
from daybell.cli.output import Column
from daybell.cli.runtime import DONE, FAILED, print_stderr
from daybell.cli.terminal import confirm, current_actor
from daybell.cli.views.executions import (
    ExecutionSearch,
    echo_detail,
    echo_found,
    echo_groups,
    echo_nodes,
    echo_steps,
    echo_timeline,
)
from daybell.cli.views.reasons import echo_why
from daybell.cli.views.transcripts import echo_lines, print_log, wait_for_end
from daybell.client import wire
from daybell.client.executions import fix_bounds
from daybell.client.logs import LogFilters
from daybell.client.remote.client import AnyClient
from daybell.client.requests import Filters, read_id
from daybell.core import payload
from daybell.core.event import Published
from daybell.core.execution import Revival, State
from daybell.core.lifecycle import FOR_EVENT
from daybell.core.schedule import DEPENDENCIES
from daybell.core.units import parse_duration
from daybell.core.views import Page
from daybell.core.when.language import plural
from daybell.errors import Conflict, NotFound
from daybell.settings import Settings


async def list_executions(
    settings: Settings,
    *,
    filters: Filters,
    limit: int,
    cursor: str | None,
    sort: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        if (run := filters.get("parent")) is not None:
            filters["parent"] = await find_execution(client, str(run))
        search = ExecutionSearch(
            client.executions, filters, limit=limit, cursor=cursor, sort=sort, quiet=as_json
        )
        return await echo_found(client, search, empty="no executions", as_json=as_json)


async def show_execution(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        one = await client.execution(await find_execution(client, id))
        now = (await client.health()).now
        is_dependent = one.status is State.WAITING and one.reason in (DEPENDENCIES, FOR_EVENT)
        because = None
        if is_dependent and not as_json:
            because = (await client.why(one.execution_id)).detail
    if as_json:
        output.echo_json(one)
    else:
        echo_detail(one, now=now, because=because)
        echo_steps(one.steps)
        echo_nodes(one.workflow, now=now, of=one)
    return DONE


async def show_timeline(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        told = (await client.execution(await find_execution(client, id))).timeline
    if as_json:
        output.echo_json(Page(items=tuple(told)))
    else:
        echo_timeline(told)
    return DONE


async def show_log(
    settings: Settings,
    *,
    id: str,
    follow: bool,
    attempt: int | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return await print_log(client, found, follow=follow, attempt=attempt, as_json=as_json)


async def search_logs(
    settings: Settings,
    *,
    text: str | None,
    filters: LogFilters,
    limit: int,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    found: list[wire.FoundLine] = []
    async with client_for(settings, tenant=tenant) as client:
        while True:
            left = limit - len(found)
            page = await client.search_logs(text, limit=left, cursor=cursor, **filters)
            found += page.items
            cursor = page.next_cursor
            if cursor is None or len(found) == limit:
                break
    if as_json:
        output.echo_json(Page(items=tuple(found), next_cursor=cursor))
        return DONE
    echo_lines(found)
    output.echo_more(cursor, is_search=True)
    return DONE


async def wait_for_execution(
    settings: Settings, *, id: str, within: str | None, tenant: str | None, as_json: bool
) -> int:
    seconds = None if within is None else parse_duration(within, what="timeout")
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return await wait_for_end(client, found, seconds=seconds, as_json=as_json)


async def explain_execution(
    settings: Settings, *, id: str, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.why(await find_execution(client, id))
    if as_json:
        output.echo_json(found)
    else:
        echo_why(found)
    return DONE


# `daybell events`: publish events, and list them.

Text = str | None


async def publish_event(
    settings: Settings,
    *,
    name: str,
    data: Text,
    source: Text,
    id: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    said = _read_data(data)
    async with client_for(settings, tenant=tenant) as client:
        return _report_published(
            await client.publish(name, said, source=source, id=id), as_json=as_json
        )


async def signal_execution(
    settings: Settings, *, id: str, name: str, data: Text, tenant: Text, as_json: bool
) -> int:
    said = _read_data(data)
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        return _report_published(await client.signal(found, name, said), as_json=as_json)


async def approve_execution(
    settings: Settings,
    *,
    id: str,
    name: str,
    approved: bool,
    note: Text,
    tenant: Text,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await find_execution(client, id)
        by = current_actor()
        said = await client.approve(found, name, approved=approved, by=by, note=note)
        return _report_published(said, as_json=as_json)


def _read_data(data: Text) -> object:
    return None if data is None else payload.decode(data, what="--data")


def _report_published(published: Published, *, as_json: bool) -> int:
    if published.node is not None and not as_json:
        whom = f"{published.node} ({published.execution})"
        typer.echo(output.printable(f"passed on to its node {whom}, which waited for it"))
    if as_json:
        told = {"created": published.created, "resumed": published.resumed}
        told |= {"executions": list(published.executions)}
        told |= {"execution_id": published.execution, "node": published.node}
        output.echo_json(told)
    elif not published.created:
        typer.echo("it was on record already; nothing was done")
    else:
        fired, count = len(published.executions), published.resumed
        said = [f"it fired {plural(fired, 'execution')}"] if fired else []
        said += [f"{plural(count, 'execution')} went on"] if count else []
        typer.echo(" and ".join(said) or "on record; nothing waits for it yet")
    return DONE


async def list_events(
    settings: Settings, *, limit: int, cursor: Text, tenant: Text, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        page = await client.events(limit=limit, cursor=cursor)
    if as_json:
        output.echo_json(page)
        return DONE
    rows = [
        (
            output.format_moment(one.received_at),
            one.type,
            payload.encode(one.data),
            one.execution_id,
            one.source,
            one.event_id,
        )
        for one in page.items
    ]
    columns = (
        Column("received"),
        Column("name", least=16, rank=0),
        Column("data", least=16, rank=1),
        Column("execution", rank=2),
        Column("source", rank=3),
        Column("id", rank=4),
    )
    output.echo_table(columns, rows, empty="no events")
    output.echo_more(page.next_cursor)
    return DONE


# `daybell dead-letters`: executions that failed for good and need a decision.

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
        search = ExecutionSearch(
            client.dead_letters, filters, limit=most, cursor=cursor, quiet=as_json
        )
        if grouped:
            return await echo_groups(client, search, limit=limit, as_json=as_json)
        return await echo_found(client, search, empty="no dead letters", as_json=as_json)


async def decide_dead_letters(
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
            return _report_decision(verb, await act(client, wanted))
        await check_job(client, filters.get("job"))
        of = describe_filters(filters)
        filters = await fix_bounds(client, filters)
        total = await client.count_dead_letters(**filters)
        if not total:
            await check_action(client, partial(_try_decision, client, verb))
            typer.echo(f"no dead letters{of}")
            return DONE
        confirm(f"{verb} {output.format_count(total, 'dead letter')}{of}?", yes=yes)
        with output.show_progress(verb, total=total if total.is_exact else None) as advance:
            answers = await act(client, None, **filters, on_step=advance)
    return _report_decision(verb, answers)


async def _try_decision(client: AnyClient, verb: str, id: UUID) -> object:
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
    """Discard them one by one, because each failure has a reason of its own."""
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


def _report_decision(verb: str, answers: Counter[str]) -> int:
    """Report the number of successes, and the reasons of failures."""
    done = answers.pop("done", 0)
    said = "run again" if verb == "retry" else "discarded"
    typer.echo(f"{done:,} {said}")
    for why, number in answers.items():
        print_stderr(f"error: {number:,} not: {why}")
    return FAILED if answers else DONE
