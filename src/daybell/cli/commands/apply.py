"""`daybell apply`: the options of the command."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, run


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
