"""The work of `daybell templates`: list, show, create and delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from daybell.cli import output
from daybell.cli.apply.declarations import Declarations
from daybell.cli.apply.files import read_file, write_yaml
from daybell.cli.apply.plan import template_fields
from daybell.cli.connection import client_for, current_actor
from daybell.cli.output import Column
from daybell.cli.references import format_references
from daybell.cli.runtime import DONE
from daybell.cli.terminal import confirm
from daybell.client import wire
from daybell.client.declarations import read_template
from daybell.core.job import Parameter, Template
from daybell.errors import DuplicateKey, UsageError, VersionConflict
from daybell.settings import Settings


async def list_templates(settings: Settings, *, tenant: str | None, as_json: bool) -> int:
    """List the templates, by name."""
    async with client_for(settings, tenant=tenant) as client:
        templates = await client.templates()
    if as_json:
        output.echo_json([wire.template(one, listed=True) for one in templates])
        return DONE
    rows = [
        (
            one.name,
            one.version,
            ", ".join(one.template.parameters),
            one.template.description,
            output.format_moment(one.updated_at),
            one.author,
        )
        for one in templates
    ]
    columns = (
        Column("name", least=20, rank=0),
        Column("version"),
        Column("parameters", least=16, rank=2),
        Column("description", least=16, rank=3),
        Column("since", rank=4),
        Column("author", least=8, rank=5),
    )
    none = "no templates; daybell templates create -f FILE makes one"
    output.echo_table(columns, rows, empty=none)
    return DONE


async def show_template(
    settings: Settings, *, name: str, as_yaml: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.template(name)
    if as_json:
        output.echo_json(wire.template(found))
    elif as_yaml:
        typer.echo(write_yaml({"name": found.name, **template_fields(found.template)}), nl=False)
    else:
        _echo(found)
        typer.echo("\njob")
        typer.echo(write_yaml(found.template.job, indent="  "), nl=False)
    return DONE


async def create_template(
    settings: Settings, *, file: str, replace: bool, tenant: str | None, as_json: bool
) -> int:
    value = _template_in(file)
    async with client_for(settings, tenant=tenant) as client:
        try:
            expect = None if replace else 0
            made = await client.set_template(value, author=current_actor(), expect=expect)
        except (VersionConflict, DuplicateKey):
            if replace:
                raise
            raise DuplicateKey(
                f"there is a template named {value['name']!r} already; --replace takes its place"
            ) from None
    if as_json:
        output.echo_json(wire.template(made))
    else:
        blanks = ", ".join(made.template.parameters) or "none"
        typer.echo(f"template {made.name} is at version {made.version}; parameters: {blanks}")
    return DONE


async def delete_template(
    settings: Settings, *, name: str, yes: bool, tenant: str | None, as_json: bool
) -> int:
    async with client_for(settings, tenant=tenant) as client:
        found = await client.template(name)
        confirm(f"delete template {found.name}? Jobs that were made from it stay.", yes=yes)
        await client.delete_template(name)
    if as_json:
        output.echo_json({"name": found.name})
    else:
        typer.echo(f"template {found.name} is deleted")
    return DONE


def _template_in(file: str) -> dict[str, Any]:
    """The one template in a file, checked, so that what is wrong is told with its line."""
    found = Declarations(read_file(Path(file)))
    if found.faults:
        raise UsageError(found.faults[0])
    if len(found.templates) != 1 or found.jobs:
        raise UsageError(
            f"{file} must have one template in it, an object with name, parameters and job;"
            " daybell apply takes several"
        )
    (declared,) = found.templates.values()
    try:
        read_template(declared.fields)
    except UsageError as error:
        raise UsageError(declared.told(error), field=error.field) from None
    return declared.fields


def _echo(found: Template) -> None:
    output.echo_fields(
        {
            "name": found.name,
            "description": found.template.description,
            "version": f"{found.version}, since {output.format_moment(found.updated_at)}",
            "author": found.author,
        }
    )
    known = found.template.parameters
    output.echo_fields({f"  {name}": _in_words(one) for name, one in known.items()})


def _in_words(parameter: Parameter) -> str:
    """What may be put into a blank."""
    words: list[str] = [parameter.type]
    if parameter.is_required:
        words.append("required")
    else:
        words.append(f"default {format_references(parameter.default)}")
    if parameter.choices:
        words.append(f"one of {', '.join(map(format_references, parameter.choices))}")
    if parameter.minimum is not None:
        words.append(f"at least {parameter.minimum:g}")
    if parameter.maximum is not None:
        words.append(f"at most {parameter.maximum:g}")
    described = f": {parameter.description}" if parameter.description else ""
    return ", ".join(words) + described
