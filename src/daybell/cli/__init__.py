"""The command line: `daybell`, or `python -m daybell`.

Only what is needed to understand the words typed is imported here; a command imports the rest
when it runs, so that `--help` and completion are quick. Each module beside this one holds a group
of commands: what can be typed, and, further down or in a module of its own, what it does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.main import get_command
from typer.models import CommandInfo

from daybell.cli import operations
from daybell.cli.apply import command
from daybell.cli.commands import (
    admin,
    dead_letters,
    events,
    executions,
    jobs,
    schedules,
    secrets,
    templates,
    workers,
)
from daybell.cli.options import MISUSE, ApiUrl, DatabaseUrl, Json, database_flag, run, skip_adapters
from daybell.cli.roles import commands
from daybell.cli.runtime import DONE, MISUSED, guard, open_streams, print_stderr
from daybell.errors import UsageError

app = typer.Typer(
    name="daybell",
    help="A distributed task scheduler that keeps every job in SQLite or PostgreSQL.",
    no_args_is_help=True,
    # Rich help looks nicer and takes three times as long to appear.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from daybell import __version__

        typer.echo(f"daybell {__version__}")
        raise typer.Exit


@app.callback()
def read_settings(
    context: typer.Context,
    database_url: DatabaseUrl = None,
    api_url: ApiUrl = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    context.obj = {"database_url": database_url, "api_url": api_url}


app.command()(commands.dev)
app.command()(commands.worker)
app.command()(commands.scheduler)
app.command()(commands.server)
app.add_typer(jobs.app, name="jobs")
app.command()(command.apply)
app.add_typer(templates.app, name="templates")
app.add_typer(secrets.app, name="secrets")
app.add_typer(executions.app, name="executions")
app.add_typer(events.app, name="events")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(workers.workers_app, name="workers")
app.add_typer(workers.queues_app, name="queues")
app.add_typer(schedules.app, name="cron")
app.add_typer(admin.keys_app, name="keys")
app.add_typer(admin.tenants_app, name="tenants")
app.add_typer(admin.audit_app, name="audit")


@app.command()
def migrate(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if a step is pending.")
    ] = False,
    grant: Annotated[
        str | None,
        typer.Option(
            "--grant",
            metavar="ROLE",
            help="PostgreSQL: give this role what running needs, without rights on the schema.",
            show_default=False,
        ),
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Bring the store's schema up to date."""
    from daybell.cli.migration import migrate

    flag = database_flag(context, database_url)
    run(context, partial(migrate, check=check, grant=grant, flag=flag), database_url)


@app.command()
def doctor(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="An app to compare with the store: module:app, or a file.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Look for problems, and say what to do."""
    from daybell.cli.doctor.report import doctor, refuse

    flag = database_flag(context, database_url)
    try:
        run(context, partial(doctor, as_json=as_json, flag=flag, spec=app), database_url)
    except UsageError as error:
        if as_json:
            refuse(error)
        raise


app.command()(operations.bench)
app.command()(operations.chaos)
app.command()(operations.top)
app.command()(executions.progress)


MISPLACED: Final = "No such option: --api-url"


def main() -> None:
    """Run the command that was typed, and end the process with its exit code."""
    open_streams()
    guard(_run)


def _run() -> None:
    command = _command()
    skip_adapters(command)
    try:
        code = command(prog_name="daybell", standalone_mode=False)
    except MISUSE as error:
        if error.ctx is not None and error.message == error.ctx.get_help():
            error.show()  # a group without a command
        else:
            _complain_of(error)
        raise SystemExit(MISUSED) from None
    raise SystemExit(code or DONE)


def _command() -> Any:
    """The command that Typer makes of the app, without those that were not typed."""
    return app if hasattr(app, "commands") else get_command(_narrow(app, sys.argv[1:]))


def _narrow(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Keep the command that the first word names. Typer takes long to make all of them.

    A word that names none keeps all: they are listed, or the one that is meant is among them.
    """
    word = words[0] if words else ""
    commands = [one for one in group.registered_commands if _name_of(one) == word]
    groups = [copy(one) for one in group.registered_groups if one.name == word]
    if not word or not (commands or groups):
        return group
    for one in groups:
        if one.typer_instance is not None:
            one.typer_instance = _narrow(one.typer_instance, words[1:])
    narrow = copy(group)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def _name_of(command: CommandInfo) -> str | None:
    return command.name or getattr(command.callback, "__name__", None)


def _complain_of(misuse: typer.BadParameter) -> None:
    """Say in a line what was not understood, and where to read on."""
    said = misuse.format_message().removeprefix("Invalid value: ").rstrip(".")
    if said.startswith(MISPLACED):
        said = f"{MISPLACED} here; it goes before the command: daybell --api-url URL COMMAND"
    then = " See" if said.endswith("?") else "; see"
    where = _typed_path() if misuse.ctx is None else misuse.ctx.command_path
    print_stderr(f"error: {said[0].lower()}{said[1:]}{then} {where} --help")


def _typed_path() -> str:
    """The command that was typed, for a mistake that does not say whose it is."""
    command = _command()
    path = "daybell"
    for word in sys.argv[1:]:
        inner = getattr(command, "commands", {}).get(word)
        if inner is not None:
            command, path = inner, f"{path} {word}"
    return path
