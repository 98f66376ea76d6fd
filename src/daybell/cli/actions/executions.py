"""The work of `daybell executions`: list, show, follow, wait for and explain."""

from __future__ import annotations

import typer

from daybell.cli import output
from daybell.cli.actions.selection import find_execution
from daybell.cli.connection import client_for
from daybell.cli.runtime import DONE
from daybell.cli.views.executions import (
    Search,
    echo_detail,
    echo_found,
    echo_nodes,
    echo_steps,
    echo_timeline,
)
from daybell.cli.views.transcripts import print_log, wait_for_end
from daybell.client import wire
from daybell.client.requests import Filters
from daybell.core.execution import State
from daybell.core.lifecycle import FOR_EVENT
from daybell.core.schedule import DEPENDENCIES
from daybell.core.units import parse_duration
from daybell.settings import Settings


async def list_executions(
    settings: Settings,
    *,
    filters: Filters,
    limit: int,
    cursor: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        if (run := filters.get("parent")) is not None:
            filters["parent"] = await find_execution(client, str(run))
        search = Search(client.executions, filters, limit=limit, cursor=cursor, quiet=as_json)
        return await echo_found(client, search, empty="no executions", as_json=as_json)


async def show_execution(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
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


async def show_timeline(settings: Settings, *, id: str, tenant: str | None, as_json: bool) -> int:
    async with client_for(settings, tenant=tenant) as client:
        told = (await client.story(await find_execution(client, id))).timeline
    if as_json:
        output.echo_json(told)
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
        output.echo_json(wire.reason(found))
    else:
        one = found.execution
        typer.echo(output.printable(f"{one.id} is {one.state}: {found.detail}"))
    return DONE
