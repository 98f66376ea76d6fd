"""`daybell templates`: job definitions with parameters."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from daybell.cli import actions
from daybell.cli.options import DatabaseUrl, Json, Tenant, Yes, group, run

if TYPE_CHECKING:
    pass


app = group("Templates: jobs with blanks, from which others are made.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The template's name.")]
Yaml = Annotated[bool, typer.Option("--yaml", help="Print it as a file has it.")]


@app.command("list")
def list_templates(
    context: typer.Context,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the templates, by name."""
    command = partial(actions.templates.list_templates, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@app.command("show")
def show_template(
    context: typer.Context,
    name: Name,
    as_yaml: Yaml = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a template: its parameters, and its job."""
    command = partial(
        actions.templates.show_template, name=name, as_yaml=as_yaml, tenant=tenant, as_json=as_json
    )
    run(context, command, database_url)


@app.command("create")
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
        actions.templates.create_template,
        file=file,
        replace=replace,
        tenant=tenant,
        as_json=as_json,
    )
    run(context, command, database_url)


@app.command("delete")
def delete_template(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Remove a template. Jobs that were made from it stay."""
    run(
        context,
        partial(
            actions.templates.delete_template, name=name, yes=yes, tenant=tenant, as_json=as_json
        ),
        database_url,
    )
