"""`daybell jobs`, `templates` and `apply`: the options of each command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from daybell.cli import actions
from daybell.cli.options import (
    Action,
    CommandWithWords,
    Cursor,
    DatabaseUrl,
    Declared,
    Json,
    Limit,
    Tenant,
    Timeout,
    Yes,
    database_flag,
    gather,
    group,
    parameters_of,
    priorities,
    run,
    shared,
    with_parameters,
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


def with_options(*tables: str) -> Callable[[Declared], Declared]:
    """Let a command take the flags of these tables, too; their values come to it as `said`.

    The tables are imported when the command is typed: a list of commands does without them.
    """

    def decorate(command: Declared) -> Declared:
        def with_flags() -> Declared:
            flags = {k: v for table in tables for k, v in actions.job_flags.TABLES[table].items()}
            return gather("said", flags)(command)

        def listed(**_: object) -> None:
            raise AssertionError("the command is called with its flags")

        stub = with_parameters(
            command, listed, [one for one in parameters_of(command) if one.name != "said"]
        )
        stub.with_flags = with_flags  # pyright: ignore[reportFunctionMemberAccess]
        return stub

    return decorate


@app.command("create", cls=CommandWithWords)
@with_options("kinds", "parts", "times", "rest")
@shared()
def create_job(context: typer.Context, said: dict[str, Any], name: NewName = None) -> Action:
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
    return partial(actions.definitions.create_job, name=name, work=work, said=said)


@app.command("update", cls=CommandWithWords)
@with_options("kinds", "parts", "times", "manual", "rest", "resets")
@shared()
def update_job(context: typer.Context, name: JobName, said: dict[str, Any]) -> Action:
    """Change options of a job; all others stay.

    New times take the place of the old ones and keep their zone, calendar and other limits. New
    variables, headers and parameters take the place of all old ones. --no-OPTION resets an option:
    --no-timeout, --no-calendar, --no-dependencies.
    """
    work = actions.job_options.take_work(said, words_after(context))
    return partial(actions.definitions.update_job, name=name, work=work, said=said)


# `daybell jobs delete`, `schedules`, `versions`, `diff` and `rollback`.

JobNameOrId = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, or its id.")]


@app.command("delete")
@shared()
def delete_job(
    name: JobNameOrId,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if the code of a live worker declares it."),
    ] = False,
    yes: Yes = False,
) -> Action:
    """Let a job run no more, and cancel what has not ended.

    Its versions and its history stay.
    """
    return partial(actions.definitions.delete_job, name=name, force=force, yes=yes)


@app.command("schedules")
@shared()
def list_schedules(name: JobNameOrId, limit: Limit = 50, cursor: Cursor = None) -> Action:
    """List a job's schedules, the next ones first, added ones too."""
    asked = {"limit": limit, "cursor": cursor}
    return partial(actions.definitions.list_schedules, name=name, asked=asked)


@app.command("versions")
@shared()
def list_versions(name: JobNameOrId, limit: Limit = 50, cursor: Cursor = None) -> Action:
    """List a job's versions, newest first; of a deleted one, too."""
    asked = {"limit": limit, "cursor": cursor}
    return partial(actions.definitions.list_versions, name=name, asked=asked)


@app.command("diff")
@shared()
def diff_versions(
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
) -> Action:
    """Show what differs between two versions of a job."""
    return partial(actions.definitions.compare_versions, name=name, old=old, new=new)


@app.command("rollback")
@shared()
def rollback_job(
    name: JobNameOrId,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Which one.")],
) -> Action:
    """Make an older version of a job current again.

    It becomes a new version, with its schedules.
    """
    return partial(actions.definitions.rollback_job, name=name, version=version)


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


@app.command("backfill")
@shared()
def backfill_job(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")],
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="From then: 2d ago, a date, or ISO 8601.",
            show_default=False,
        ),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="To before then. Default: now.", show_default=False
        ),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="WORD", help="missing, failed or all.")
    ] = "missing",
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1000, help="How many of them run at a time.")
    ] = 1,
    order: Annotated[
        str, typer.Option("--order", metavar="WORD", help="oldest or newest first.")
    ] = "oldest",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    yes: Yes = False,
) -> Action:
    """Run a job for times of its schedules that have passed.

    It shows what it would do, and asks, unless --yes is given.
    """
    asked = {"only": only, "concurrency": concurrency, "order": order}
    return partial(
        actions.schedules.backfill_job,
        name=name,
        since=since,
        until=until,
        asked=asked,
        dry_run=dry_run,
        yes=yes,
    )


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
@shared()
def list_jobs(
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
    label: Annotated[
        str | None,
        typer.Option(
            "--label", metavar="NAME=VALUE", help="Only with this label.", show_default=False
        ),
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
) -> Action:
    """List the jobs, by name."""
    asked = {
        "prefix": prefix,
        "status": status or None,
        "user_id": user,
        "queue": queue,
        "label": label,
        "text": search,
        "limit": limit,
        "cursor": cursor,
    }
    return partial(actions.jobs.list_jobs, asked=asked)


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
@shared(as_json=None)
def pause_job(
    name: JobName,
    note: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="Why, for others.", show_default=False)
    ] = "",
) -> Action:
    """Let a job's schedules fire no more."""
    return partial(actions.jobs.pause_job, name=name, note=note)


@app.command("why")
@shared()
def explain_job(name: JobName) -> Action:
    """Explain why a job does not run."""
    return partial(actions.jobs.explain_job, name=name)


@app.command("resume")
@shared(as_json=None)
def resume_job(name: JobName) -> Action:
    """Let a paused job's schedules fire again, from now on."""
    return partial(actions.jobs.resume_job, name=name)


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
@shared()
def trigger_job(
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
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Even if there is a cached result.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    timeout: Timeout = None,
) -> Action:
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
        "cache": "refresh" if refresh else None,
    }
    return partial(
        actions.jobs.trigger_job, name=name, args=args, options=options, wait=wait, within=timeout
    )


# `daybell templates`: job definitions with parameters.

templates_app = group("Templates: jobs with blanks, from which others are made.")

TemplateName = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]
Yaml = Annotated[bool, typer.Option("--yaml", help="Print it as a file has it.")]


@templates_app.command("list")
@shared()
def list_templates() -> Action:
    """List the templates, by name."""
    return actions.definitions.list_templates


@templates_app.command("show")
@shared()
def show_template(name: TemplateName, as_yaml: Yaml = False) -> Action:
    """Show a template: its parameters, and its job."""
    return partial(actions.definitions.show_template, name=name, as_yaml=as_yaml)


@templates_app.command("create")
@shared()
def create_template(
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
) -> Action:
    """Keep a template that a file has.

    `daybell apply` takes such files, too. Jobs that were made from one that is replaced stay what
    they are.
    """
    return partial(actions.definitions.create_template, file=file, replace=replace)


@templates_app.command("delete")
@shared()
def delete_template(name: TemplateName, yes: Yes = False) -> Action:
    """Remove a template. Jobs that were made from it stay."""
    return partial(actions.definitions.delete_template, name=name, yes=yes)


# `daybell apply`: jobs as files say.


@shared()
def apply(
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
) -> Action:
    """Make the jobs be what files say, and show the changes.

    A file has documents, each a job with the fields of POST /jobs, or a template with its job, or
    lists of both as jobs and templates. A job without a schedule runs when it is triggered. All
    files are read and checked before anything is changed; applying them again changes nothing.
    """
    named = [*(files or []), *(paths or [])]
    if not named:
        raise typer.BadParameter("say which files: -f FILE, or -f FOLDER")
    return partial(
        actions.apply.apply, named=named, prune=prune, dry_run=dry_run, set_name=set_name, yes=yes
    )
