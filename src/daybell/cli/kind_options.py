"""What `daybell jobs create` and `update` may be told of what a job runs.

Imported for `--help` too: nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from daybell.cli.job_options import text
from daybell.cli.marks import decoded, pairs, referring, referring_within

if TYPE_CHECKING:
    from daybell.client.remote.client import AnyClient
    from daybell.core.job import JobDefinition
    from daybell.core.template import NewTemplate

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


def taken(said: dict[str, Any], words: list[str]) -> Work:
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


async def fields_of(client: AnyClient, work: Work) -> dict[str, Any]:
    """What a new job runs, as the fields of a request."""
    assert work.choice is not None
    if work.choice == "task":
        return {"task": work.main}
    if work.choice == "template":
        template = await _template_named(client, work.main)
        return {"template": work.main, "parameters": _given(work.parts, template)}
    return {work.choice: settings_of(work, work.choice)}


async def changes_of(client: AnyClient, known: JobDefinition, work: Work) -> dict[str, Any]:
    """What a job runs from now on; what is not said of it stays as it is."""
    from msgspec import json

    if work.choice in ("task", "template"):
        return await fields_of(client, work)
    kind = work.choice or known.kind
    of = f"and {known.name} is of kind {known.kind}" if work.choice is None else ""
    for part in work.parts:
        check_part(part, kind, of=of)
    kept: dict[str, Any] = json.decode(known.settings) if known.kind == kind else {}
    if isinstance(work.main, list) and kind == "command":
        kept.pop("shell", None)  # the words of a command are for no shell
    return {kind: {**kept, **settings_of(work, kind)}}


def settings_of(work: Work, kind: str) -> dict[str, Any]:
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
        return _statement(decoded(work.main, what="--sql"))
    if kind == "notify":
        return [referring(one) for one in work.main]
    return referring(work.main)


def _command(line: str | list[str], *, is_shell: bool) -> Any:
    """A line as it is, or its words if one of them refers to a secret."""
    import shlex

    if isinstance(line, list):
        if is_shell:
            raise typer.BadParameter("--shell is for a line; quote it, and say it with --command")
        return [referring(word) for word in line]
    if not isinstance(referring(line), dict):
        return line
    if is_shell:
        raise typer.BadParameter(
            "a line for a shell cannot have a secret in it; pass it as --env NAME=@secret:SECRET"
            ' and write "$NAME"'
        )
    try:
        return [referring(word) for word in shlex.split(line)]
    except ValueError:
        return line  # the reader of settings says what is wrong with it


def _statement(text: str) -> str:
    if isinstance(referring(text), dict):
        raise typer.BadParameter(
            "a statement cannot have a secret in it; write :name, and --parameter"
            " name=@secret:SECRET"
        )
    return text


def _part(kind: str, name: str, value: Any) -> Any:
    match name:
        case "env":
            return {key: referring(one) for key, one in pairs(value, "--env", "=").items()}
        case "header":
            split = pairs(value, "--header", ":")
            return {key: referring(one.strip()) for key, one in split.items()}
        case "parameter":
            return {key: _value(one) for key, one in pairs(value, "--parameter", "=").items()}
        case "expect":
            return [int(one) if one.isascii() and one.isdigit() else one for one in value]
        case "body" if kind == "http":
            return _json_body(decoded(value, what="--body"))
        case "body" | "stdin":
            return referring(decoded(value, what=_flag(name)))
        case "title":
            return referring(value)
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
    for name, value in pairs(parts.get("parameter", []), "--parameter", "=").items():
        known = template.parameters.get(name)
        is_text = known is not None and known.type == "string"
        given[name] = referring(value) if is_text else _value(value)
    return given


def _value(text: str) -> Any:
    """JSON, or text that is none."""
    from daybell.core import payload
    from daybell.errors import PayloadError

    try:
        return referring_within(payload.decode(text))
    except PayloadError:
        return referring(text)


def _json_body(body: str) -> Any:
    """What is sent: an object or a list as JSON, all else as the text that it is."""
    return _value(body) if body.lstrip()[:1] in ("{", "[") else referring(body)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
