"""The command line: `daybell`, or `python -m daybell`.

`COMMANDS` lists the commands and their modules. `LazyGroup` imports a module when its command is
typed or its help is shown; the work of a command is imported when it runs (`daybell.cli.actions`).
So `--help` and completion are quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typer.models import CommandInfo

from daybell import __version__
from daybell.cli.options import MISUSE, ApiUrl, DatabaseUrl, skip_adapters
from daybell.cli.runtime import DONE, MISUSED, guard, open_streams, print_stderr


class Entry(NamedTuple):
    """A command or a group: the module and the name that it has there, and its line of help."""

    module: str
    name: str
    help: str


COMMANDS: Final = {
    "dev": Entry("roles", "dev", "Run everything on this machine, in one process."),
    "worker": Entry("roles", "worker", "Run the executions of an app, or of jobs without code."),
    "scheduler": Entry("roles", "scheduler", "Fire schedules, and look after the store."),
    "server": Entry("roles", "server", "Serve the HTTP API."),
    "bridge": Entry("roles", "bridge", "Pass messages of a broker on as events, or events to it."),
    "apply": Entry("jobs", "apply", "Make the jobs be what files say, and show the changes."),
    "migrate": Entry("operations", "migrate", "Bring the store's schema up to date."),
    "doctor": Entry("operations", "doctor", "Look for problems, and say what to do."),
    "bench": Entry("operations", "bench", "Measure the store with jobs that do nothing."),
    "chaos": Entry(
        "operations", "chaos", "Kill and freeze workers under load, and see what is lost."
    ),
    "top": Entry("operations", "top", "Watch queues, workers and rates; q or Ctrl-C quits."),
    "export": Entry("operations", "export", "Write ended executions, logs and ticks."),
    "progress": Entry(
        "executions", "progress", "Report how far the command of a job is, from inside it."
    ),
    "jobs": Entry("jobs", "app", "Jobs: what there is to run."),
    "templates": Entry(
        "jobs", "templates_app", "Templates: jobs with blanks, from which others are made."
    ),
    "secrets": Entry("admin", "secrets_app", "Secrets: values for jobs, which no answer shows."),
    "executions": Entry("executions", "app", "Executions: what runs, ran and will run."),
    "logs": Entry("executions", "logs_app", "Logs: lines that executions wrote."),
    "events": Entry("executions", "events_app", "Events: what executions wait for."),
    "dead-letters": Entry(
        "executions", "dead_letters_app", "Dead letters: executions out of tries."
    ),
    "workers": Entry("workers", "workers_app", "Workers: processes that run executions."),
    "queues": Entry("workers", "queues_app", "Queues: lanes that workers subscribe to."),
    "limits": Entry("limits", "limits_app", "Limits: how many run at a time, or start in a time."),
    "alerts": Entry("alerts", "app", "Alerts: rules, their incidents, and messages."),
    "subscriptions": Entry("subscriptions", "app", "Subscriptions: receivers of outgoing events."),
    "hooks": Entry("hooks", "app", "Hooks: webhooks of jobs, addresses that others post to."),
    "cron": Entry("schedules", "app", "Schedules: what they mean, and when they fire."),
    "login": Entry("admin", "login", "Print a link that logs a browser in, once."),
    "keys": Entry("admin", "keys_app", "Keys: who may use the HTTP API, and for what."),
    "tenants": Entry(
        "admin", "tenants_app", "Tenants: isolated spaces, and how much each may use."
    ),
    "audit": Entry("admin", "audit_app", "The audit log: who changed what."),
}


class Stub(TyperCommand):
    """A command of which only the name and the line of help are needed."""


class LazyGroup(TyperGroup):
    """The commands of the table. One that is not typed stays a stub with its line of help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        stubs = {name: Stub(name, help=entry.help) for name, entry in COMMANDS.items()}
        self.commands.update(stubs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that the first word names."""
        name, *words = args
        if isinstance(self.commands.get(name), Stub):
            return name, self.load(name, words), words
        return super().resolve_command(ctx, args)

    def load(self, name: str, words: Sequence[str] | None = None) -> Any:
        """Import a command or a group; of a group, build only the command that `words` name."""
        entry = COMMANDS[name]
        found = getattr(import_module(f"daybell.cli.commands.{entry.module}"), entry.name)
        outer = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            narrowed = _with_all_flags(found) if words is None else _narrow(found, words)
            outer.add_typer(narrowed, name=name)
        else:
            outer.command(name)(found)
        command = get_group(outer).commands[name]
        skip_adapters(command)
        return command


app = typer.Typer(
    name="daybell",
    cls=LazyGroup,
    help="A distributed task scheduler that keeps every job in SQLite or PostgreSQL.",
    no_args_is_help=True,
    # Rich help looks nicer and takes three times as long to appear.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
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
    """Return the command that Typer makes of the app."""
    return app if hasattr(app, "commands") else get_command(app)


def _narrow(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Keep the command that the first word names. Typer takes long to make all of them.

    A word that names none keeps all: they are listed, or the intended one is among them.
    """
    word = words[0] if words else ""
    commands = [_with_flags(one) for one in group.registered_commands if _name_of(one) == word]
    groups = [copy(one) for one in group.registered_groups if one.name == word]
    if not word or not (commands or groups):
        return group
    for one in groups:
        if one.typer_instance is not None:
            one.typer_instance = _narrow(one.typer_instance, words[1:])
    narrow = copy(group)
    narrow.registered_commands, narrow.registered_groups = commands, groups
    return narrow


def _with_flags(command: CommandInfo) -> CommandInfo:
    """Return a command with the flags that are imported when it is typed."""
    with_flags = getattr(command.callback, "with_flags", None)
    if with_flags is None:
        return command
    whole = copy(command)
    whole.callback = with_flags()
    return whole


def _with_all_flags(group: typer.Typer) -> typer.Typer:
    whole = copy(group)
    whole.registered_commands = [_with_flags(one) for one in group.registered_commands]
    return whole


def _name_of(command: CommandInfo) -> str | None:
    return command.name or getattr(command.callback, "__name__", None)


# The words of the library that reads numbers, and ours.
_CLEARER: Final = {
    "Input should be a valid integer": "it must be a whole number",
    ", unable to parse string as an integer": "",
    "Input should be a valid number": "it must be a number",
    ", unable to parse string as a number": "",
    "Input should be greater than or equal to": "it must be at least",
    "Input should be less than or equal to": "it must be at most",
    "Input should be": "it must be",
}


def _complain_of(misuse: typer.BadParameter) -> None:
    """Print in one line the part of the input that is not understood, and the help to read."""
    said = misuse.format_message().removeprefix("Invalid value: ").rstrip(".")
    if said.startswith(MISPLACED):
        said = f"{MISPLACED} here; it goes before the command: daybell --api-url URL COMMAND"
    for written, better in _CLEARER.items():
        said = said.replace(written, better)
    then = " See" if said.endswith("?") else "; see"
    where = _typed_path() if misuse.ctx is None else misuse.ctx.command_path
    print_stderr(f"error: {said[0].lower()}{said[1:]}{then} {where} --help")


def _typed_path() -> str:
    """Return the typed command, for a usage error that does not name its command."""
    command = _command()
    path = "daybell"
    for word in sys.argv[1:]:
        inner = getattr(command, "commands", {}).get(word)
        if inner is not None:
            command = command.load(word) if isinstance(inner, Stub) else inner
            path = f"{path} {word}"
    return path
