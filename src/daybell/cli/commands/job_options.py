"""Options of `daybell jobs create` and `update`, and errors in terms of these options."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import typer

from daybell.cli.options import (
    parse_nested_references,
    parse_pairs,
    parse_reference,
    priorities,
    read_text_value,
)
from daybell.errors import DaybellError

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient
    from daybell.core.job import JobDefinition, NewTemplate


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


def read_options(said: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, as a definition takes it."""
    from daybell.core import payload

    given = {
        key: value
        for key, value in said.items()
        if value is not None and value is not False and value != []
    }
    schedules = _schedules(given)
    for key in ("cron", "every", "at", "delay", "rrule", "after_any", "mode", "tz"):
        given.pop(key, None)
    dst = {key: given.pop(key) for key in ("gap", "fold") if key in given}
    if dst:
        given["dst"] = dst
    if "args" in given:
        given["args"] = payload.decode(given["args"], what="--args")
    if "backoff" in given and given["backoff"].lstrip().startswith("{"):
        given["backoff"] = payload.decode(given["backoff"], what="--backoff")
    if "calendar" in given:
        given["calendar"] = _calendar(given["calendar"])
    for key in ("calendar", "start_at", "end_at", "jitter"):
        if said.get(key) == "none":
            given[key] = None
    if given.pop("no_dependencies", False):
        if "dependencies" in given:
            raise typer.BadParameter("--no-dependencies and --depends-on: choose one")
        given["dependencies"] = []
    if given.pop("manual", False):
        given["schedule"] = "manual"
    elif schedules:
        given["schedule"] = schedules
    return given


def _schedules(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schedules that were typed, each with the zone and mode that apply to it."""
    if given.get("mode") is not None and "every" not in given:
        raise typer.BadParameter("--mode is for --every; add it, or leave --mode out")
    schedules: list[dict[str, Any]] = []
    for kind in ("cron", "every", "at", "delay", "rrule"):
        texts = given.get(kind, [])
        for text in [texts] if isinstance(texts, str) else texts:
            one = {kind: text, "tz": given.get("tz")}
            if kind == "every":
                one["mode"] = given.get("mode")
            schedules.append({key: value for key, value in one.items() if value is not None})
    if given.get("tz") is not None and not schedules:
        raise typer.BadParameter("--tz is for a time; say --cron, --every, --at or --rrule, too")
    if "after_any" in given:
        schedules.append({"after_any": given["after_any"]})
    if schedules and given.get("manual"):
        raise typer.BadParameter("--manual means no times; leave it or the times out")
    return schedules


def _calendar(text: str) -> dict[str, Any]:
    """A country's code, DE or DE-BY, or an object as JSON."""
    from daybell.core import payload

    if text.lstrip().startswith("{"):
        return payload.decode(text, what="--calendar")
    country, dash, subdivision = text.partition("-")
    return {"country": country, "subdivision": subdivision} if dash else {"country": country}


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
# What each part is for, and how the settings of that kind call it.
_OF: Final[dict[str, dict[str, str]]] = {
    "command": {
        "shell": "shell",
        "env": "env",
        "directory": "directory",
        "stdin": "stdin",
        "success_code": "success_codes",
        "retry_code": "retry_codes",
        "grace": "grace",
        "output": "output",
    },
    "http": {
        "method": "method",
        "header": "headers",
        "body": "body",
        "expect": "expect",
        "redirects": "redirects",
    },
    "sql": {"connection": "connection", "rows": "rows", "parameter": "parameters"},
    "notify": {"title": "title", "body": "body", "format": "format"},
    "template": {"parameter": "parameters"},
}
_MAIN: Final = {"command": "run", "http": "url", "sql": "statement", "notify": "to"}


class Work(NamedTuple):
    """What was typed of what a job runs: which kind, if that was said, and its parts."""

    choice: str | None
    main: Any
    parts: dict[str, Any]

    @property
    def is_said(self) -> bool:
        return self.choice is not None or bool(self.parts)


def take_work(said: dict[str, Any], words: list[str]) -> Work:
    """Take what a job runs out of what was typed. `words` came after `--`."""
    kinds = {name: value for name in KINDS if (value := said.pop(name)) not in (None, [])}
    parts = {name: value for name in PARTS if (value := said.pop(name)) not in (None, [])}
    if words:
        if "command" in kinds:
            raise typer.BadParameter("--command and -- both say what it runs; give one")
        kinds["command"] = words
    if len(kinds) > 1:
        one, two, *_ = map(_flag, kinds)
        raise typer.BadParameter(f"{one} and {two} both say what it runs; give one")
    if not kinds:
        return Work(None, None, parts)
    (choice,) = kinds
    for name in parts:
        check_part(name, choice)
    return Work(choice, kinds[choice], parts)


def check_part(name: str, choice: str, *, of: str = "") -> None:
    """Refuse an option that is for other kinds than this one; `of` says whose kind it is."""
    if name not in _OF.get(choice, {}):
        owners = " or ".join(_flag(kind) for kind, own in _OF.items() if name in own)
        whose = of or f"not for {_flag(choice)}"
        raise typer.BadParameter(f"{_flag(name)} is for {owners}, {whose}; leave it out")


async def work_fields(client: AnyClient, work: Work) -> dict[str, Any]:
    """What a new job runs, as the fields of a request."""
    assert work.choice is not None
    if work.choice == "task":
        return {"task": work.main}
    if work.choice == "template":
        template = await _template_named(client, work.main)
        return {"template": work.main, "parameters": _given(work.parts, template)}
    return {work.choice: work_settings(work, work.choice)}


async def work_changes(client: AnyClient, known: JobDefinition, work: Work) -> dict[str, Any]:
    """What a job runs from now on; what is not said of it stays as it is."""
    from msgspec import json

    if work.choice in ("task", "template"):
        return await work_fields(client, work)
    kind = work.choice or known.kind
    of = f"and {known.name} is of kind {known.kind}" if work.choice is None else ""
    for part in work.parts:
        check_part(part, kind, of=of)
    kept: dict[str, Any] = json.decode(known.settings) if known.kind == kind else {}
    if isinstance(work.main, list) and kind == "command":
        kept.pop("shell", None)  # the words of a command are for no shell
    return {kind: {**kept, **work_settings(work, kind)}}


def work_settings(work: Work, kind: str) -> dict[str, Any]:
    """What was typed of a kind's settings."""
    said: dict[str, Any] = {}
    if work.main is not None:
        said[_MAIN[kind]] = _main(kind, work)
    for name, value in work.parts.items():
        said[_OF[kind][name]] = _part(kind, name, value)
    return said


def _main(kind: str, work: Work) -> Any:
    if kind == "command":
        return _command(work.main, is_shell=work.parts.get("shell") is True)
    if kind == "sql":
        return _statement(read_text_value(work.main, what="--sql"))
    if kind == "notify":
        return [parse_reference(one) for one in work.main]
    return parse_reference(work.main)


def _command(line: str | list[str], *, is_shell: bool) -> Any:
    """A line as it is, or its words if one of them refers to a secret."""
    import shlex

    if isinstance(line, list):
        if is_shell:
            raise typer.BadParameter("--shell is for a line; quote it, and say it with --command")
        return [parse_reference(word) for word in line]
    if not isinstance(parse_reference(line), dict):
        return line
    if is_shell:
        raise typer.BadParameter(
            "a line for a shell cannot have a secret in it; pass it as --env NAME=@secret:SECRET"
            ' and write "$NAME"'
        )
    try:
        return [parse_reference(word) for word in shlex.split(line)]
    except ValueError:
        return line  # the reader of settings says what is wrong with it


def _statement(text: str) -> str:
    if isinstance(parse_reference(text), dict):
        raise typer.BadParameter(
            "a statement cannot have a secret in it; write :name, and --parameter"
            " name=@secret:SECRET"
        )
    return text


def _part(kind: str, name: str, value: Any) -> Any:
    match name:
        case "env":
            return {
                key: parse_reference(one) for key, one in parse_pairs(value, "--env", "=").items()
            }
        case "header":
            split = parse_pairs(value, "--header", ":")
            return {key: parse_reference(one.strip()) for key, one in split.items()}
        case "parameter":
            return {key: _value(one) for key, one in parse_pairs(value, "--parameter", "=").items()}
        case "expect":
            return [int(one) if one.isascii() and one.isdigit() else one for one in value]
        case "body" if kind == "http":
            return _json_body(read_text_value(value, what="--body"))
        case "body" | "stdin":
            return parse_reference(read_text_value(value, what=_flag(name)))
        case "title":
            return parse_reference(value)
        case _:
            return value


async def _template_named(client: AnyClient, name: str) -> NewTemplate:
    from daybell.errors import TemplateNotFound, suggested

    try:
        return (await client.template(name)).template
    except TemplateNotFound as error:
        names = [one.name for one in await client.templates()]
        hint = suggested(name, names, otherwise="see daybell templates list")
        raise TemplateNotFound(f"{error}; {hint}") from None


def _given(parts: Mapping[str, Any], template: NewTemplate) -> dict[str, Any]:
    """Parameters of a template. Its types say what is meant as text."""
    given: dict[str, Any] = {}
    for name, value in parse_pairs(parts.get("parameter", []), "--parameter", "=").items():
        known = template.parameters.get(name)
        is_text = known is not None and known.type == "string"
        given[name] = parse_reference(value) if is_text else _value(value)
    return given


def _value(text: str) -> Any:
    """JSON, or text that is none."""
    from daybell.core import payload
    from daybell.errors import PayloadError

    try:
        return parse_nested_references(payload.decode(text))
    except PayloadError:
        return parse_reference(text)


def _json_body(body: str) -> Any:
    """What is sent: an object or a list as JSON, all else as the text that it is."""
    return _value(body) if body.lstrip()[:1] in ("{", "[") else parse_reference(body)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# What is said of words that were typed, in those words: `--shell` rather than {"shell": true}.

Words = str | Callable[[re.Match[str]], str]


def _with_args(found: re.Match[str]) -> str:
    """What was said, and how the parameters that it names are given."""
    named = ", ".join(f'"{name}": …' for name in found["names"].split(", "))
    return f"{found['said']}. Say --args '{{{named}}}'"


# What a message for everybody says, and what a command's user can type. A message about a file
# begins with its place, and is left as it is: there the words are those of the file.
_DEFINING: Final[Mapping[str, Words]] = {
    r'^(without a shell, .*; )\{"shell": true\} runs': r"\1--shell runs",
    r'such as \{"secret": "NAME"\}$': "such as @secret:NAME",
    r'^a job whose schedule is "manual" (runs .* no others); .*$': (
        r"a job with --manual \1; add --no-dependencies, or leave --manual out"
    ),
    r"^sql has no connection$": "sql has no connection; name one with --connection",
    r"^(?P<said>its schedule would .* must be given (?P<names>[\w, ]+);.*); say args$": _with_args,
}
_TRIGGERING: Final[Mapping[str, Words]] = {
    r"cancel it, or force this one$": "cancel it, or add --force",
    r"arguments are given by name, as a dict, not as \w+$": (
        'arguments are given by name, as a JSON object such as {"size": 3}'
    ),
    r"^(?P<said>workflow .* must be given (?P<names>[\w, ]+);.*)$": _with_args,
}


def rephrase_definition_error(message: str) -> str:
    """What is said of a job that was made or changed with options."""
    return _said(message, _DEFINING)


def rephrase_trigger_error(message: str) -> str:
    """What is said of an execution that was asked for."""
    return _said(message, _TRIGGERING)


@contextmanager
def rephrase_errors(words: Callable[[str], str]) -> Generator[None]:
    """Have errors say it in these words."""
    try:
        yield
    except DaybellError as error:
        error.args = (words(str(error)), *error.args[1:])
        raise


def _said(message: str, table: Mapping[str, Words]) -> str:
    for pattern, words in table.items():
        message = re.sub(pattern, words, message)
    return message
