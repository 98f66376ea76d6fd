"""`daybell jobs`: list, show, pause, resume and trigger jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions
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
)

if TYPE_CHECKING:
    pass


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
    return actions.completion.job_statuses(incomplete)


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
    run(
        context,
        partial(actions.jobs.list_jobs, asked=asked, tenant=tenant, as_json=as_json),
        database_url,
    )


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
    show = (
        actions.definitions.print_job_file
        if as_yaml
        else partial(actions.jobs.show_job, as_json=as_json)
    )
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
    run(context, partial(actions.jobs.pause_job, name=name, note=note, tenant=tenant), database_url)


@app.command("resume")
def resume_job(
    context: typer.Context,
    name: Name,
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a paused job's schedules fire again, from now on."""
    run(context, partial(actions.jobs.resume_job, name=name, tenant=tenant), database_url)


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
        actions.jobs.trigger_job,
        name=name,
        args=args,
        options=options,
        wait=wait,
        within=timeout,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)
