"""`daybell jobs`: list, show, pause, resume and trigger jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli.commands.definitions import (
    create_job,
    declare_jobs,
    delete_job,
    diff_versions,
    list_versions,
    rollback_job,
    update_job,
)
from daybell.cli.commands.job_options import Expires, Retries
from daybell.cli.commands.schedules import backfill_job
from daybell.cli.options import (
    CommandWithWords,
    Cursor,
    DatabaseUrl,
    Json,
    Limit,
    Tenant,
    Timeout,
    group,
    priorities,
    run,
    statuses,
)
from daybell.cli.runtime import DONE

if TYPE_CHECKING:
    from daybell.settings import Settings


app = group("Jobs: what there is to run.")

app.command("create", cls=CommandWithWords)(create_job)
app.command("update", cls=CommandWithWords)(update_job)
app.command("delete")(delete_job)
app.command("versions")(list_versions)
app.command("diff")(diff_versions)
app.command("rollback")(rollback_job)
app.command("declare")(declare_jobs)
app.command("backfill")(backfill_job)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")]


def job_statuses(incomplete: str) -> list[str]:
    """What `--status` may be, for completion."""
    from daybell.core.job import MANUAL, PAUSED

    words = [*statuses(""), PAUSED, MANUAL]
    return [word for word in words if word.startswith(incomplete)]


Args = Annotated[
    str | None,
    typer.Option(
        "--args",
        metavar="JSON",
        help="Its arguments by name, as JSON. Default: as its schedules call it.",
        show_default=False,
    ),
]


@app.command("list")
def list_jobs(
    context: typer.Context,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin so.")] = "",
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="WORD",
            help="A state, pending, paused or manual; may be repeated.",
            autocompletion=job_statuses,
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="ID", help="Only this user's.", show_default=False),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="NAME", help="Only of this queue.", show_default=False),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Only with this in the name or description.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the jobs, by name."""
    asked = {
        "prefix": prefix,
        "status": status or None,
        "user_id": user,
        "queue": queue,
        "text": search,
        "limit": limit,
        "cursor": cursor,
    }
    run(context, partial(_list, asked=asked, tenant=tenant, as_json=as_json), database_url)


@app.command("show")
def show_job(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, or its id.")],
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="An older version.", show_default=False)
    ] = None,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print it as a file for daybell apply.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a job, and how its executions stand."""
    show = _show_yaml if as_yaml else partial(_show, as_json=as_json)
    run(context, partial(show, name=name, version=version, tenant=tenant), database_url)


@app.command("pause")
def pause_job(
    context: typer.Context,
    name: Name,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="Why, for others.", show_default=False)
    ] = "",
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job's schedules fire no more."""
    run(context, partial(_pause, name=name, note=note, tenant=tenant), database_url)


@app.command("resume")
def resume_job(
    context: typer.Context,
    name: Name,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a paused job's schedules fire again, from now on."""
    run(context, partial(_resume, name=name, tenant=tenant), database_url)


Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="DURATION", help="Not before this long from now."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Not before then: ISO 8601 with an offset, or Z."),
]
Word = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="WORD",
        help="critical, high, normal or low.",
        autocompletion=priorities,
    ),
]


@app.command("trigger")
def trigger_job(
    context: typer.Context,
    name: Name,
    args: Args = None,
    delay: Delay = None,
    at: At = None,
    priority: Word = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="Another queue.")
    ] = None,
    unique_key: Annotated[
        str | None,
        typer.Option("--unique-key", metavar="KEY", help="One unfinished execution per key."),
    ] = None,
    retries: Retries = None,
    expires: Expires = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if its overlap rule says no.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    timeout: Timeout = None,
    tenant: Tenant = None,
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
        "retries": retries,
        "expires": expires,
        "force": force,
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


async def _list(
    settings: Settings, *, asked: dict[str, Any], tenant: str | None, as_json: bool
) -> int:
    from daybell.cli import output
    from daybell.cli.connection import client_for
    from daybell.cli.views.jobs import echo_jobs, find_workflow_users
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        page = await client.standings_page(**asked)
        now = (await client.health()).now
        is_all = page.next_cursor is None and not any(
            asked[name] for name in asked if name != "limit"
        )
        users = None if as_json else await find_workflow_users(client, page.items, is_all=is_all)
    if as_json:
        output.echo_json(wire.page(page, partial(wire.standing, listed=True)))
        return DONE
    none = _none(asked, is_over=page.next_cursor is None)
    echo_jobs(page.items, now=now, empty=none, users=users)
    output.echo_more(page.next_cursor)
    return DONE


def _none(asked: dict[str, Any], *, is_over: bool) -> str:
    """Why a list is empty."""
    if not is_over:
        return "none so far"
    if any(asked[name] for name in ("status", "user_id", "queue", "text")):
        return "no jobs like that"
    prefix = asked["prefix"]
    none = f"no job's name begins with {prefix!r}" if prefix else "no jobs"
    return f"{none}; a worker defines those of its app"


async def _show(
    settings: Settings, *, name: str, version: int | None, tenant: str | None, as_json: bool
) -> int:
    from msgspec.structs import replace

    from daybell.cli import output
    from daybell.cli.commands.selection import explain_missing_job
    from daybell.cli.connection import client_for
    from daybell.cli.views.jobs import echo_job
    from daybell.client import wire

    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            standing = await client.standing(name)
        found = standing.job.name
        if version is not None:
            standing = replace(standing, job=await client.job(found, version=version))
        counts = await client.count(job=found)
        now = (await client.health()).now
    if as_json:
        said = wire.standing(standing) | wire.counts(counts)
        if not standing.job.is_current:
            said["schedules"] = wire.job(standing.job)["schedules"]
        output.echo_json(said)
    else:
        echo_job(standing, counts, now=now)
    return DONE


async def _show_yaml(
    settings: Settings, *, name: str, version: int | None, tenant: str | None
) -> int:
    from daybell.cli.apply.files import write_yaml
    from daybell.cli.commands.selection import explain_missing_job
    from daybell.cli.connection import client_for
    from daybell.client.declarations import build_request

    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            job = await client.job_named(name)
        if version is not None:
            job = await client.job(job.name, version=version)
    said = build_request(job.definition)
    said.pop("source", None)  # whoever applies it says that
    typer.echo(write_yaml(said), nl=False)
    return DONE


async def _pause(settings: Settings, *, name: str, note: str, tenant: str | None) -> int:
    from daybell.cli import output
    from daybell.cli.commands.selection import explain_missing_job, none_if_denied
    from daybell.cli.connection import client_for

    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            before = await none_if_denied(client.job(name))
            await client.pause(name, note)
        found = await none_if_denied(client.schedules(name))
    if before is not None and before.paused_at is not None and not note:
        kept = f" ({output.printable(before.pause_note)})" if before.pause_note else ""
        typer.echo(f"{name} was paused already{kept}; daybell jobs resume {name}")
        return DONE
    then = "it has no schedules" if found == [] else "its schedules do not fire"
    typer.echo(f"{name} is paused: {then}, and it can be triggered; daybell jobs resume {name}")
    return DONE


async def _resume(settings: Settings, *, name: str, tenant: str | None) -> int:
    from daybell.cli.commands.selection import explain_missing_job, none_if_denied
    from daybell.cli.connection import client_for
    from daybell.cli.views.jobs import next_run

    async with client_for(settings, tenant=tenant) as client:
        async with explain_missing_job(client, name):
            before = await none_if_denied(client.job(name))
            await client.resume(name)
        standing = await none_if_denied(client.standing(name))
    is_paused = before is None or before.paused_at is not None
    if standing is None:
        typer.echo(f"{name} is not paused any more")
        return DONE
    runs = f"runs next {next_run(standing)}" if standing.next_run_at else "has no next time"
    typer.echo(f"{name} {'goes on' if is_paused else 'was not paused'} and {runs}")
    return DONE


async def _trigger(
    settings: Settings,
    *,
    name: str,
    args: str | None,
    options: dict[str, Any],
    wait: bool,
    within: str | None,
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli import output
    from daybell.cli.commands.job_options import rephrase_errors, rephrase_trigger_error
    from daybell.cli.commands.selection import explain_missing_job
    from daybell.cli.connection import client_for
    from daybell.cli.views.transcripts import wait_for_end
    from daybell.core import payload
    from daybell.core.units import parse_duration
    from daybell.errors import AccessDenied

    seconds = None if within is None else parse_duration(within, what="timeout")
    arguments = None if args is None else payload.decode(args, what="--args")
    async with client_for(settings, tenant=tenant) as client:
        with rephrase_errors(rephrase_trigger_error):
            async with explain_missing_job(client, name):
                answer = await client.trigger(name, arguments, **options)
        status = answer.state
        try:
            if wait:
                return await wait_for_end(client, answer.id, seconds=seconds, as_json=as_json)
            status = status or (await client.execution(answer.id)).execution.state
        except AccessDenied as error:
            raise AccessDenied(
                f"execution {answer.id} is {status} and goes on; it cannot be waited for: {error}"
            ) from None
    if as_json:
        said = {"execution_id": str(answer.id), "status": status, "created": answer.created}
        output.echo_json(said)
    elif answer.created:
        typer.echo(f"{answer.id} is {status}")
    else:
        typer.echo(f"{answer.id} has that unique key already and is {status}; nothing was added")
    return DONE
