"""`daybell jobs create` and `update`: definitions by hand."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from daybell.cli.edge import DONE, complain
from daybell.cli.job_options import (
    REST,
    TIMES,
    Args,
    Manual,
    NoDependencies,
    read_options,
    taking,
)
from daybell.cli.kind_options import KINDS, PARTS, Work, taken
from daybell.cli.options import DatabaseUrl, Json, Tenant, run
from daybell.cli.words_after import words_after

if TYPE_CHECKING:
    from daybell.cli.declared import Declared
    from daybell.client.remote.client import AnyClient
    from daybell.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name.")]
NewName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The job's name; a file may say it instead.",
        show_default=False,
    ),
]


@taking({**KINDS, **PARTS, "args": Args, **TIMES, **REST})
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
    work = taken(said, words_after(context))
    if work.choice is None:
        raise typer.BadParameter(
            "say what it runs: --task NAME, --command LINE, --http URL, --sql STATEMENT,"
            " --notify ADDRESS, --template NAME, --from-file FILE, or a command after --"
        )
    if name is None and work.choice != "from_file":
        raise typer.BadParameter("say how it is called: daybell jobs create NAME")
    command = partial(_create, name=name, work=work, said=said, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


@taking(
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
    name: Name,
    said: dict[str, Any],
    tenant: Tenant = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a job; what is not said stays as it is.

    Times take the place of those that it had, by the same clock unless --tz says another. So do
    variables, headers and parameters: say all that it shall have.
    """
    work = taken(said, words_after(context))
    command = partial(_update, name=name, work=work, said=said, tenant=tenant, as_json=as_json)
    run(context, command, database_url)


async def _create(
    settings: Settings,
    *,
    name: str | None,
    work: Work,
    said: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli.connecting import client_for
    from daybell.cli.kind_options import fields_of
    from daybell.cli.recording import whoever_types
    from daybell.cli.typed import of_defining, told

    options = read_options(said)
    found = _in_file(work, name)
    name = name if found is None else found.name
    assert name is not None, "it was asked for, or is in the file"
    async with client_for(settings, tenant=tenant) as client:
        with told(of_defining):
            fields = await fields_of(client, work) if found is None else found.fields
        with told(of_defining), _placing(found, options):
            await client.create(name, author=whoever_types(), **{**fields, **options})
        return await tell(client, name, as_json=as_json)


async def _update(
    settings: Settings,
    *,
    name: str,
    work: Work,
    said: dict[str, Any],
    tenant: str | None,
    as_json: bool,
) -> int:
    from daybell.cli.connecting import client_for
    from daybell.cli.kind_options import changes_of
    from daybell.cli.recording import whoever_types
    from daybell.cli.typed import of_defining, told

    options = read_options(said)
    if not options and not work.is_said:
        raise typer.BadParameter("say what to change, such as --cron or --queue")
    found = _in_file(work, name)
    fields: dict[str, Any] = {} if found is None else found.fields
    async with client_for(settings, tenant=tenant) as client:
        known = await client.job(name)
        if work.is_said and found is None:
            fields = await changes_of(client, known.definition, work)
        with told(of_defining), _placing(found, options):
            # What somebody else has changed since it was looked at is not changed back.
            how: dict[str, Any] = {"author": whoever_types(), "expect": known.version}
            await client.update(name, **how, **{**fields, **options})
        return await tell(client, name, as_json=as_json)


def _in_file(work: Work, name: str | None) -> Declared | None:
    """The one job in the file that was named; None: no file was."""
    if work.choice != "from_file":
        return None
    from pathlib import Path

    from daybell.cli.declared import read_declared
    from daybell.cli.files import read_file
    from daybell.errors import UsageError

    path: str = work.main
    documents = read_file(Path(path))
    if len(documents) != 1:
        there = "nothing" if not documents else f"{len(documents):,} documents"
        raise UsageError(f"{path} has {there} in it, not one job; daybell apply takes several")
    (document,) = documents
    value: Any = document.value
    if isinstance(value, dict) and {"jobs", "templates", "job"} & {*cast("dict[str, Any]", value)}:
        raise UsageError(f"{path} has more than a job in it; daybell apply -f {path} takes it")
    try:
        return read_declared("job", value, document, name=name)
    except UsageError as error:
        where = document.place(tuple(error.field.split(".")) if error.field else ())
        raise UsageError(f"{where}: {error}", field=error.field) from None


@contextmanager
def _placing(found: Declared | None, options: Mapping[str, Any]) -> Generator[None]:
    """Say where in the file it is that something is wrong with."""
    from daybell.errors import UsageError

    try:
        yield
    except UsageError as error:
        field = None if found is None else next(iter(found.blamed(error)), None)
        if found is None or field not in found.fields or field in options:
            raise
        raise UsageError(found.told(error), field=error.field) from None


async def tell(client: AnyClient, name: str, *, as_json: bool) -> int:
    """Say how a job stands now that it was changed, and what looks wrong with it."""
    import shlex

    from daybell.cli import show
    from daybell.cli.doing import args_to_type
    from daybell.cli.standing import next_run, words
    from daybell.cli.typed import of_defining
    from daybell.client import wire

    standing = await client.standing(name)
    for warning in await client.warnings(name):
        complain(f"warning: {show.printable(of_defining(warning))}")
    if as_json:
        show.echo_json(wire.standing(standing))
        return DONE
    args = args_to_type(standing.job.definition)
    runs = f"runs when triggered: daybell jobs trigger {shlex.quote(name)}{args}"
    if standing.next_run_at:
        runs = f"runs next {next_run(standing)}"
    if standing.job.paused_at is not None:
        runs = "is paused"
    typer.echo(show.printable(f"{name} is at version {standing.job.version} and {runs}"))
    for schedule in standing.schedules:
        typer.echo(show.printable(f"  {words(schedule)}"))
    return DONE
