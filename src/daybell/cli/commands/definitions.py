"""`daybell jobs create`, `update`, `delete`, `versions`, `diff`, `rollback`, `declare`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybell.cli import actions
from daybell.cli.commands.job_options import (
    KINDS,
    PARTS,
    REST,
    TIMES,
    Args,
    Manual,
    NoDependencies,
    with_options,
)
from daybell.cli.options import (
    Cursor,
    DatabaseUrl,
    Json,
    Limit,
    Tenant,
    Yes,
    database_flag,
    run,
    words_after,
)

if TYPE_CHECKING:
    pass


JobName = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")]
NewName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The job's name; a file may say it instead.",
        show_default=False,
    ),
]


@with_options({**KINDS, **PARTS, "args": Args, **TIMES, **REST})
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


@with_options(
    {
        **KINDS,
        **PARTS,
        "args": Args,
        **TIMES,
        "manual": Manual,
        **REST,
        "no_dependencies": NoDependencies,
    }
)
def update_job(
    context: typer.Context,
    name: JobName,
    said: dict[str, Any],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a job; what is not said stays as it is.

    Times take the place of those that it had, by the same clock unless --tz says another. So do
    variables, headers and parameters: say all that it shall have.
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


# `daybell jobs delete`, `versions`, `diff` and `rollback`: what becomes of a job's definitions.

JobNameOrId = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, or its id.")]


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
