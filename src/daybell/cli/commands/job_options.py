"""Options of `daybell jobs create` and `update`, and errors in terms of these options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer

from daybell.cli.options import (
    priorities,
)


def text(*names: str, help: str, metavar: str = "TEXT", **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


Args = Annotated[
    str | None, text("--args", metavar="JSON", help="What it is called with, by name, as JSON.")
]
Cron = Annotated[
    list[str] | None,
    text("--cron", metavar="EXPR", help="When: a cron expression, such as '0 9 * * mon-fri'."),
]
Every = Annotated[
    list[str] | None, text("--every", metavar="DURATION", help="When: so far apart, such as 5m.")
]
At = Annotated[
    list[str] | None, text("--at", metavar="TIME", help="When: once, at an ISO 8601 time.")
]
Delay = Annotated[
    str | None, text("--delay", metavar="DURATION", help="When: once, so long from now.")
]
Rrule = Annotated[
    list[str] | None,
    text("--rrule", metavar="RULE", help="When: a recurrence rule, such as FREQ=WEEKLY."),
]
AfterAny = Annotated[
    list[str] | None,
    text("--after-any", metavar="JOB", help="When: any of these jobs (name or id) has succeeded."),
]
Manual = Annotated[bool, typer.Option("--manual", help="When: never by itself.")]
Mode = Annotated[
    str | None,
    text("--mode", metavar="WORD", help="Of --every: rate, or delay after the end before it."),
]
Zone = Annotated[
    str | None, text("--tz", metavar="ZONE", help="Whose clock, such as Europe/Berlin.")
]
Gap = Annotated[
    str | None,
    text("--gap", metavar="WORD", help="A time that clocks leave out: shift, or skip."),
]
Fold = Annotated[
    str | None,
    text("--fold", metavar="WORD", help="A time that clocks show twice: first, second or both."),
]
Calendar = Annotated[
    str | None,
    text("--calendar", metavar="COUNTRY", help="Not on its public holidays: DE; or JSON."),
]
StartAt = Annotated[str | None, text("--start-at", metavar="TIME", help="Not before then.")]
EndAt = Annotated[str | None, text("--end-at", metavar="TIME", help="Not after then.")]
MaxExecutions = Annotated[
    int | None, text("--max-executions", metavar="N", help="Not more often than that.")
]
Jitter = Annotated[
    str | None, text("--jitter", metavar="DURATION", help="Late by up to that, to spread load.")
]
Overlap = Annotated[
    str | None,
    text(
        "--overlap",
        metavar="RULE",
        help="When the one before has not ended: skip, queue, queue_all, replace or allow.",
    ),
]
Misfire = Annotated[
    str | None,
    text("--misfire", metavar="RULE", help="Missed times: fire_once, skip or fire_all."),
]
MisfireLimit = Annotated[
    int | None, text("--misfire-limit", metavar="N", help="Of fire_all: so many at most.")
]
MisfireWithin = Annotated[
    str | None, text("--misfire-within", metavar="DURATION", help="Of fire_all: no older ones.")
]
MisfireGrace = Annotated[
    str | None, text("--misfire-grace", metavar="DURATION", help="Later than that is missed.")
]
PauseAfter = Annotated[
    int | None,
    text("--pause-after-failures", metavar="N", help="Pause it when so many in a row have died."),
]
Queue = Annotated[str | None, text("--queue", metavar="NAME", help="Its queue.")]
Priority = Annotated[
    str | None,
    text(
        "--priority",
        metavar="WORD",
        help="critical, high, normal or low.",
        autocompletion=priorities,
    ),
]
Retries = Annotated[int | None, text("--retries", metavar="N", help="Tries after the first.")]
Backoff = Annotated[
    str | None,
    text("--backoff", metavar="RULE", help="Between tries: exponential; or JSON."),
]
MaxCrashes = Annotated[
    int | None,
    text("--max-crashes", metavar="N", help="Dead once so many workers were lost with it."),
]
OnLost = Annotated[
    str | None,
    text("--on-lost", metavar="WORD", help="When its worker is lost: retry, or dead."),
]
Limit = Annotated[
    str | None, text("--timeout", metavar="DURATION", help="How long an attempt may take.")
]
Expires = Annotated[
    str | None, text("--expires", metavar="DURATION", help="Not started in that time: skipped.")
]
Description = Annotated[str | None, text("--description", help="What it is for.")]

User = Annotated[str | None, text("--user", metavar="ID", help="Whose it is.")]
DependsOn = Annotated[
    list[str] | None,
    text("--depends-on", metavar="JOB", help="A job that must have succeeded before it runs."),
]
NoDependencies = Annotated[
    bool, typer.Option("--no-dependencies", help="It depends on no other job any more.")
]
OnDependencyFailure = Annotated[
    str | None,
    text(
        "--on-dependency-failure",
        metavar="WORD",
        help="When one of those has failed for good: wait, skip or run.",
    ),
]

TIMES: Final = {
    "cron": Cron,
    "every": Every,
    "at": At,
    "delay": Delay,
    "rrule": Rrule,
    "after_any": AfterAny,
}
REST: Final = {
    "mode": Mode,
    "tz": Zone,
    "gap": Gap,
    "fold": Fold,
    "calendar": Calendar,
    "start_at": StartAt,
    "end_at": EndAt,
    "max_executions": MaxExecutions,
    "jitter": Jitter,
    "overlap": Overlap,
    "misfire": Misfire,
    "misfire_limit": MisfireLimit,
    "misfire_within": MisfireWithin,
    "misfire_grace": MisfireGrace,
    "pause_after_failures": PauseAfter,
    "queue": Queue,
    "priority": Priority,
    "retries": Retries,
    "backoff": Backoff,
    "max_crashes": MaxCrashes,
    "on_lost": OnLost,
    "timeout": Limit,
    "expires": Expires,
    "user_id": User,
    "dependencies": DependsOn,
    "on_dependency_failure": OnDependencyFailure,
    "description": Description,
}


def _is_flag(kind: Any) -> bool:
    return get_args(kind)[0] is bool


def with_options(
    options: Mapping[str, Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take these options, too; what is said of them comes to it as `said`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        kinds = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=kinds[name])
            for name, parameter in signature(command).parameters.items()
            if name != "said"
        ]
        more = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=False if _is_flag(kind) else None,
                annotation=kind,
            )
            for name, kind in options.items()
        ]
        # Those that every command has come last, as everywhere.
        first = [one for one in own if one.name in ("context", "name")]
        parameters = [*first, *more, *(one for one in own if one not in first)]

        @wraps(command)
        def called(**given: Any) -> None:
            said = {name: given.pop(name) for name in options}
            command(said=said, **given)

        called.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
        called.__annotations__ = {one.name: one.annotation for one in parameters}
        return called

    return decorate


# What `daybell jobs create` and `update` may be told of what a job runs.
#
# Imported for `--help` too: nothing heavy here.

Task = Annotated[str | None, text("--task", metavar="NAME", help="Run a task of an app.")]
Command = Annotated[
    str | None,
    text(
        "--command", metavar="LINE", help="Run a command, such as 'python report.py'; or after --."
    ),
]
Http = Annotated[str | None, text("--http", metavar="URL", help="Send a request.")]
Sql = Annotated[
    str | None,
    text("--sql", metavar="STATEMENT", help="Run a statement, with :name for parameters; @FILE."),
]
Notify = Annotated[
    list[str] | None,
    text("--notify", metavar="ADDRESS", help="Tell somebody: mailto://…, slack://…; repeatable."),
]
Template = Annotated[
    str | None, text("--template", metavar="NAME", help="As a template says, with --parameter.")
]
FromFile = Annotated[
    str | None,
    text("--from-file", metavar="FILE", help="As a file says: .yaml, .json, .toml, or - for YAML."),
]

Shell = Annotated[
    bool | None,
    typer.Option("--shell/--no-shell", help="Command: run it by sh -c.", show_default=False),
]
Env = Annotated[
    list[str] | None,
    text("--env", metavar="NAME=VALUE", help="Command: a variable; repeatable."),
]
Directory = Annotated[
    str | None, text("--directory", metavar="PATH", help="Command: where it runs.")
]
Stdin = Annotated[str | None, text("--stdin", help="Command: what it reads; @FILE.")]
SuccessCode = Annotated[
    list[int] | None,
    text("--success-code", metavar="N", help="Command: exit codes that are fine. Default: 0."),
]
RetryCode = Annotated[
    list[int] | None,
    text("--retry-code", metavar="N", help="Command: those that are retried. Default: all others."),
]
Grace = Annotated[
    str | None,
    text("--grace", metavar="DURATION", help="Command: from SIGTERM to SIGKILL. Default: 5s."),
]
Output = Annotated[
    str | None,
    text("--output", metavar="WORD", help="Command: json if it prints JSON. Default: text."),
]
Method = Annotated[
    str | None,
    text("--method", metavar="WORD", help="HTTP: GET, or POST with a body, unless said."),
]
Header = Annotated[
    list[str] | None,
    text("--header", metavar="'NAME: VALUE'", help="HTTP: a header; repeatable."),
]
Body = Annotated[
    str | None,
    text("--body", help="HTTP, notify: what is sent; @FILE. An object or list goes as JSON."),
]
Expect = Annotated[
    list[str] | None,
    text("--expect", metavar="STATUS", help="HTTP: good answers, 204 or 2xx. Default: 2xx."),
]
Redirects = Annotated[
    int | None, text("--redirects", metavar="N", help="HTTP: how many to follow. Default: 0.")
]
Connection = Annotated[
    str | None,
    text("--connection", metavar="NAME", help="SQL: where, as the workers' settings call it."),
]
Rows = Annotated[
    int | None, text("--rows", metavar="N", help="SQL: so many of them are kept as the result.")
]
Parameters = Annotated[
    list[str] | None,
    text(
        "--parameter",
        "--param",
        metavar="NAME=VALUE",
        help="SQL, template: a parameter, as JSON or text; repeatable.",
    ),
]
Title = Annotated[str | None, text("--title", help="Notify: the headline.")]
Format = Annotated[
    str | None, text("--format", metavar="WORD", help="Notify: text, markdown or html.")
]

KINDS: Final = {
    "task": Task,
    "command": Command,
    "http": Http,
    "sql": Sql,
    "notify": Notify,
    "template": Template,
    "from_file": FromFile,
}
PARTS: Final = {
    "shell": Shell,
    "env": Env,
    "directory": Directory,
    "stdin": Stdin,
    "success_code": SuccessCode,
    "retry_code": RetryCode,
    "grace": Grace,
    "output": Output,
    "method": Method,
    "header": Header,
    "body": Body,
    "expect": Expect,
    "redirects": Redirects,
    "connection": Connection,
    "rows": Rows,
    "parameter": Parameters,
    "title": Title,
    "format": Format,
}
