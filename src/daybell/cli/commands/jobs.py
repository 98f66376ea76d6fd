"""`daybell jobs`, `templates` and `apply`: the options of each command."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from daybell.cli import actions
from daybell.cli.commands.job_options import with_options
from daybell.cli.commands.schedules import backfill_job
from daybell.cli.options import (
    CommandWithWords,
    Cursor,
    DatabaseUrl,
    Json,
    Limit,
    Tenant,
    Timeout,
    Yes,
    database_flag,
    group,
    priorities,
    run,
    words_after,
)

app = group("Jobs: what there is to run.")


JobName = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")]
NewName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The job's name; a file may say it instead.",
        show_default=False,
    ),
]


@app.command("create", cls=CommandWithWords)
@with_options("kinds", "parts", "times", "rest")
def create_job(
    context: typer.Context,
    said: dict[str, Any],
    name: NewName = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a job that runs something, at times of its own.

    Say what it runs by one of --task, --command (or the command itself after --), --http, --sql,
    --notify, --template and --from-file. Without a time it runs when it is triggered. What is not
    said of a task is as the task says. @secret:NAME stands for the value of a secret, in what is
    run, sent or passed, and @FILE for the text of a file.
    """
    work = actions.job_options.take_work(said, words_after(context))
    if work.choice is None:
        raise typer.BadParameter(
            "say what it runs: --task NAME, --command LINE, --http URL, --sql STATEMENT,"
            " --notify ADDRESS, --template NAME, --from-file FILE, or a command after --"
        )
    if name is None and work.choice != "from_file":
        raise typer.BadParameter("say how it is called: daybell jobs create NAME")
    command = partial(
        actions.definitions.create_job,
        name=name,
        work=work,
        said=said,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("update", cls=CommandWithWords)
@with_options("kinds", "parts", "times", "manual", "rest", "resets")
def update_job(
    context: typer.Context,
    name: JobName,
    said: dict[str, Any],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change options of a job; all others stay.

    New times take the place of the old ones and keep their zone, calendar and other limits. New
    variables, headers and parameters take the place of all old ones. --no-OPTION resets an option:
    --no-timeout, --no-calendar, --no-dependencies.
    """
    work = actions.job_options.take_work(said, words_after(context))
    command = partial(
        actions.definitions.update_job,
        name=name,
        work=work,
        said=said,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


# `daybell jobs delete`, `schedules`, `versions`, `diff` and `rollback`.

JobNameOrId = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, or its id.")]


@app.command("delete")
def delete_job(
    context: typer.Context,
    name: JobNameOrId,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if the code of a live worker declares it."),
    ] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job run no more, and cancel what has not ended.

    Its versions and its history stay.
    """
    command = partial(
        actions.definitions.delete_job,
        name=name,
        force=force,
        yes=yes,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("schedules")
def list_schedules(
    context: typer.Context,
    name: JobNameOrId,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List a job's schedules, the next ones first, added ones too."""
    asked = {"limit": limit, "cursor": cursor}
    command = partial(
        actions.definitions.list_schedules, name=name, asked=asked, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("versions")
def list_versions(
    context: typer.Context,
    name: JobNameOrId,
    limit: Limit = 50,
    cursor: Cursor = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List a job's versions, newest first; of a deleted one, too."""
    asked = {"limit": limit, "cursor": cursor}
    command = partial(
        actions.definitions.list_versions, name=name, asked=asked, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("diff")
def diff_versions(
    context: typer.Context,
    name: JobNameOrId,
    old: Annotated[
        int | None,
        typer.Argument(
            metavar="FROM",
            min=1,
            help="Which version. Default: the one before.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        int | None,
        typer.Argument(
            metavar="TO", min=1, help="And which. Default: the newest.", show_default=False
        ),
    ] = None,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what differs between two versions of a job."""
    command = partial(
        actions.definitions.compare_versions,
        name=name,
        old=old,
        new=new,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("rollback")
def rollback_job(
    context: typer.Context,
    name: JobNameOrId,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Which one.")],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make an older version of a job current again.

    It becomes a new version, with its schedules.
    """
    command = partial(
        actions.definitions.rollback_job, name=name, version=version, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("declare")
def declare_jobs(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="module:app, module or path/to/file.py. Default: DAYBELL_APP.",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="Default: the app's.", show_default=False),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make what an app's code says of its jobs current.

    Also where that goes back to an older version, which a worker leaves alone.
    """
    flag = database_flag(context, database_url)
    command = partial(
        actions.definitions.declare_jobs, spec=app, tenant=tenant, as_json=as_json, flag=flag
    )
    run(context, command, database_url)


app.command("backfill")(backfill_job)


def job_statuses(incomplete: str) -> list[str]:
    """What `--status` may be, for completion."""
    return actions.completion.job_statuses(incomplete)


TriggerArgs = Annotated[
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
    name: JobName,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="Why, for others.", show_default=False)
    ] = "",
    tenant: Tenant = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Let a job's schedules fire no more."""
    run(context, partial(actions.jobs.pause_job, name=name, note=note, tenant=tenant), database_url)


@app.command("why")
def explain_job(
    context: typer.Context,
    name: JobName,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Explain why a job does not run."""
    command = partial(actions.jobs.explain_job, name=name, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("resume")
def resume_job(
    context: typer.Context,
    name: JobName,
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
    name: JobName,
    args: TriggerArgs = None,
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
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="Tries after the first.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="Not started in that time: skipped."),
    ] = None,
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


# `daybell templates`: job definitions with parameters.

templates_app = group("Templates: jobs with blanks, from which others are made.")

TemplateName = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]
Yaml = Annotated[bool, typer.Option("--yaml", help="Print it as a file has it.")]


@templates_app.command("list")
def list_templates(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the templates, by name."""
    command = partial(actions.definitions.list_templates, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@templates_app.command("show")
def show_template(
    context: typer.Context,
    name: TemplateName,
    as_yaml: Yaml = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a template: its parameters, and its job."""
    command = partial(
        actions.definitions.show_template,
        name=name,
        as_yaml=as_yaml,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@templates_app.command("create")
def create_template(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="An object with name, parameters and job: .yaml, .json, .toml, or - for YAML.",
            show_default=False,
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of one that has this name.")
    ] = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Keep a template that a file has.

    `daybell apply` takes such files, too. Jobs that were made from one that is replaced stay what
    they are.
    """
    command = partial(
        actions.definitions.create_template,
        file=file,
        replace=replace,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@templates_app.command("delete")
def delete_template(
    context: typer.Context,
    name: TemplateName,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Remove a template. Jobs that were made from it stay."""
    run(
        context,
        partial(
            actions.definitions.delete_template, name=name, yes=yes, tenant=tenant, as_json=as_json
        ),
        database_url,
    )


# `daybell apply`: jobs as files say.


def apply(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="More files and folders.", show_default=False),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            help="A file, a folder of files (.yaml, .yml, .json, .toml), or - for YAML on stdin;"
            " repeatable.",
            show_default=False,
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete jobs of this set that are in no file.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="NAME",
            help="Which set of jobs the files are; --prune looks at no other.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make the jobs be what files say, and show what that changes.

    A file has documents, each a job with the fields of POST /jobs, or a template with its job, or
    lists of both as jobs and templates. A job without a schedule runs when it is triggered. All
    files are read and checked before anything is changed; applying them again changes nothing.
    """
    named = [*(files or []), *(paths or [])]
    if not named:
        raise typer.BadParameter("say which files: -f FILE, or -f FOLDER")
    command = partial(
        actions.apply.apply,
        named=named,
        prune=prune,
        dry_run=dry_run,
        set_name=set_name,
        yes=yes,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)
