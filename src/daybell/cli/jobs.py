"""`daybell jobs`: what there is to run, and running it now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.edge import DONE
from daybell.cli.options import (
    Cursor,
    DatabaseUrl,
    Json,
    Limit,
    Tenant,
    Timeout,
    group,
    priorities,
    run,
)

if TYPE_CHECKING:
    from daybell.settings import Settings

app = group("Jobs: what there is to run.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")]


@app.command("list")
def list_jobs(
    context: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the jobs, by name."""
    asked = {"prefix": prefix, "limit": limit, "cursor": cursor}
    run(context, partial(_list, asked=asked, tenant=tenant, as_json=as_json), database_url)


@app.command("show")
def show_job(
    context: typer.Context,
    name: Name,
    version: Annotated[
        int | None, typer.Option(min=1, help="An older version.", show_default=False)
    ] = None,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a job, and how its executions stand."""
    command = partial(_show, name=name, version=version, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("trigger")
def trigger_job(
    context: typer.Context,
    name: Name,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="Its arguments by name, as JSON.")
    ] = "{}",
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Not before this long from now.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before then: ISO 8601 with an offset, or Z."),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="critical, high, normal or low.", autocompletion=priorities
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Another queue.")] = None,
    unique_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="One unfinished execution per key.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    timeout: Timeout = None,
    tenant: Tenant = "default",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Run a job now, or later."""
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout says how long to --wait; add --wait, or leave it out")
    options = {
        "delay": delay,
        "at": at,
        "priority": priority,
        "queue": queue,
        "unique_key": unique_key,
    }
    command = partial(
        _trigger,
        name=name,
        args=args,
        options=options,
        wait=wait,
        within=timeout,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


async def _list(settings: Settings, *, asked: dict[str, Any], tenant: str, as_json: bool) -> int:
    from daybell.cli import show, wire
    from daybell.cli.columns import Column
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        page = await client.jobs(**asked)
    if as_json:
        show.echo_json(wire.page(page, wire.job))
        return DONE
    rows = [
        (
            job.name,
            job.version,
            job.definition.kind,
            job.definition.queue,
            job.definition.priority.label,
            job.definition.retry.retries,
            job.definition.description,
        )
        for job in page.items
    ]
    columns = (
        Column("name", least=24, rank=0),
        Column("version", rank=6),
        Column("kind", rank=5),
        Column("queue", least=8, rank=2),
        Column("priority", rank=3),
        Column("retries", rank=4),
        Column("description", least=16),
    )
    prefix = asked["prefix"]
    none = f"no job's name begins with {prefix!r}" if prefix else "no jobs"
    show.echo_table(columns, rows, empty=f"{none}; a worker defines those of its app")
    show.echo_more(page.next_cursor)
    return DONE


async def _show(
    settings: Settings, *, name: str, version: int | None, tenant: str, as_json: bool
) -> int:
    from daybell.cli import show, wire
    from daybell.client import Client

    async with Client(settings.database_url, tenant=tenant) as client:
        job = await client.job(name, version=version)
        counts = {str(state): number for state, number in (await client.count(job=name)).items()}
    if as_json:
        show.echo_json(wire.job(job) | {"executions": counts})
        return DONE
    definition = job.definition
    counted = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    show.echo_fields(
        {
            "name": job.name,
            "description": definition.description,
            "version": f"{job.version}, since {show.moment(job.created_at)}"
            + ("" if job.is_current else " (not the current one)"),
            "kind": definition.kind,
            "queue": definition.queue,
            "priority": definition.priority.label,
            "retries": definition.retry.retries,
            "timeout": None if definition.timeout is None else show.length(definition.timeout),
            "expires": None if definition.expires is None else show.length(definition.expires),
            "executions": counted or "none yet",
            "id": job.id,
        }
    )
    return DONE


async def _trigger(
    settings: Settings,
    *,
    name: str,
    args: str,
    options: dict[str, Any],
    wait: bool,
    within: str | None,
    tenant: str,
    as_json: bool,
) -> int:
    from daybell.cli import show
    from daybell.cli.waiting import wait_for_end
    from daybell.client import Client
    from daybell.core import payload
    from daybell.core.duration import parse_duration

    seconds = None if within is None else parse_duration(within, what="timeout")
    arguments = payload.decode(args, what="--args")
    async with Client(settings.database_url, tenant=tenant) as client:
        answer = await client.enqueue(name, arguments, **options)
        if wait:
            return await wait_for_end(client, answer.id, seconds=seconds, as_json=as_json)
        status = (await client.execution(answer.id)).execution.state
    if as_json:
        said = {"execution_id": str(answer.id), "status": status, "created": answer.created}
        show.echo_json(said)
    elif answer.created:
        typer.echo(f"{answer.id} is {status}")
    else:
        typer.echo(f"{answer.id} has that unique key already and is {status}; nothing was added")
    return DONE
