"""Read the options of `daybell jobs create` and `update`; phrase errors in their terms."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import typer
from msgspec import json

from daybell.cli.references import (
    parse_nested_references,
    parse_pairs,
    parse_reference,
    read_text_value,
)
from daybell.client.remote.client import AnyClient
from daybell.core import payload
from daybell.core.job import JobDefinition, NewTemplate
from daybell.core.kinds import SETTINGS
from daybell.core.kinds.settings import fields_of
from daybell.core.options import CHOICES, OPTIONS
from daybell.errors import (
    DaybellError,
    PayloadError,
    TemplateNotFound,
    UsageError,
    faults_of,
    suggested,
)


def read_options(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were typed, as the fields of a request."""
    given: dict[str, Any] = {
        key: value
        for key, value in said.items()
        if value is not None and value != [] and (value is not False or key in OPTIONS)
    }
    schedules = _schedules(given)
    for key in (*_TIMES, "mode", "where"):
        given.pop(key, None)
    dst = {key: given.pop(key) for key in ("gap", "fold") if key in given}
    if dst:
        given["dst"] = dst
    for name, read in _READERS.items():
        if name in given:
            given[name] = read(given[name])
    for key in [key for key in given if key.startswith("no_")]:
        name = key.removeprefix("no_")
        if name in given:
            reset, flag = flag_name(key), OPTIONS[name].flag_name
            raise typer.BadParameter(f"{reset} and {flag}: choose one")
        given[name] = None
        del given[key]
    if given.pop("manual", False):
        given["schedule"] = "manual"
    elif schedules:
        given["schedule"] = schedules
    return given


_TIMES: Final = ("cron", "every", "at", "delay", "rrule", "event", "after_any")


def _schedules(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schedules that were typed."""
    if given.get("mode") is not None and "every" not in given:
        raise typer.BadParameter("--mode is for --every; add it, or leave --mode out")
    if given.get("where") is not None and "event" not in given:
        raise typer.BadParameter("--where is for --event; add it, or leave --where out")
    schedules: list[dict[str, Any]] = []
    for kind in _TIMES[:-1]:
        texts = given.get(kind, [])
        mode = {"mode": given["mode"]} if kind == "every" and "mode" in given else {}
        if kind == "event" and given.get("where") is not None:
            mode = {"filter": payload.decode(given["where"], what="--where")}
        for typed in [texts] if isinstance(texts, str) else texts:
            schedules.append({kind: typed, **mode})
    if "after_any" in given:
        schedules.append({"after_any": given["after_any"]})
    if schedules and given.get("manual"):
        raise typer.BadParameter("--manual means no times; leave it or the times out")
    return schedules


def _calendar(text: str) -> dict[str, Any]:
    """Return a country's code, DE or DE-BY, or an object from JSON."""
    if text.lstrip().startswith("{"):
        return payload.decode(text, what="--calendar")
    country, dash, subdivision = text.partition("-")
    return {"country": country, "subdivision": subdivision} if dash else {"country": country}


def _text_or_object(what: str) -> Callable[[str], Any]:
    """Return a reader of a text, or of an object as JSON."""
    return lambda text: payload.decode(text, what=what) if text.lstrip()[:1] == "{" else text


# Options with a flag that has another form than the field of a request.
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "args": lambda text: payload.decode(text, what="--args"),
    "backoff": _text_or_object("--backoff"),
    "calendar": _calendar,
    "keep": _text_or_object("--keep"),
}
KINDS: Final = (*(name for name in CHOICES if OPTIONS[name].metavar), "from_file")
# The flags of each kind, and the settings that they are for.
KIND_PARTS: Final[Mapping[str, Mapping[str, str]]] = {
    **{
        kind: {
            one.flag.replace("-", "_"): name
            for name, one in fields_of(settings).items()
            if one.flag
        }
        for kind, settings in SETTINGS.items()
    },
    "template": {"parameter": "parameters"},
}
PARTS: Final = tuple(dict.fromkeys(name for own in KIND_PARTS.values() for name in own))
_MAIN: Final = {"command": "run", "http": "url", "sql": "statement", "notify": "to"}


class Work(NamedTuple):
    """The options that specify the work of a job: its kind, if one is given, and its parts."""

    choice: str | None
    main: Any
    parts: dict[str, Any]

    @property
    def is_said(self) -> bool:
        return self.choice is not None or bool(self.parts)


def take_work(said: dict[str, Any], words: list[str]) -> Work:
    """Remove the options that specify the work from the given ones. `words` followed `--`."""
    kinds = {name: value for name in KINDS if (value := said.pop(name)) not in (None, [])}
    parts = {name: value for name in PARTS if (value := said.pop(name)) not in (None, [])}
    if words:
        if "command" in kinds:
            raise typer.BadParameter("--command and -- both say what it runs; give one")
        kinds["command"] = words
    if len(kinds) > 1:
        one, two, *_ = map(flag_name, kinds)
        raise typer.BadParameter(f"{one} and {two} both say what it runs; give one")
    if not kinds:
        return Work(None, None, parts)
    (choice,) = kinds
    for name in parts:
        check_part(name, choice)
    return Work(choice, kinds[choice], parts)


def check_part(name: str, choice: str, *, of: str = "") -> None:
    """Refuse an option that is for other kinds than this one; `of` names a job of the kind."""
    if name not in KIND_PARTS.get(choice, {}):
        owners = " or ".join(flag_name(kind) for kind, own in KIND_PARTS.items() if name in own)
        whose = of or f"not for {flag_name(choice)}"
        raise typer.BadParameter(f"{flag_name(name)} is for {owners}, {whose}; leave it out")


async def work_fields(client: AnyClient, work: Work) -> dict[str, Any]:
    """Return the work of a new job as fields of a request."""
    assert work.choice is not None
    if work.choice == "task":
        return {"task": work.main}
    if work.choice == "template":
        template = await _template_named(client, work.main)
        return {"template": work.main, "parameters": _given(work.parts, template)}
    return {work.choice: work_settings(work, work.choice)}


async def work_changes(client: AnyClient, known: JobDefinition, work: Work) -> dict[str, Any]:
    """Return the changed fields of a job's work. Parts without an option keep their values."""
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
    """Return the settings of a kind that the options specify."""
    said: dict[str, Any] = {}
    if work.main is not None:
        said[_MAIN[kind]] = _main(kind, work)
    for name, value in work.parts.items():
        said[KIND_PARTS[kind][name]] = _part(kind, name, value)
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
    """Return a line as it is, or its words if one of them refers to a secret."""
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
        return line  # the reader of settings reports the error


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
            return parse_reference(read_text_value(value, what=flag_name(name)))
        case "title" | "sign":
            return parse_reference(value)
        case _:
            return value


async def _template_named(client: AnyClient, name: str) -> NewTemplate:
    try:
        return (await client.template(name)).template
    except TemplateNotFound as error:
        names = [one.name for one in await client.templates()]
        hint = suggested(name, names, otherwise="see daybell templates list")
        raise TemplateNotFound(f"{error}; {hint}") from None


def _given(parts: Mapping[str, Any], template: NewTemplate) -> dict[str, Any]:
    """Return the parameters of a template. Its types specify which values are text."""
    given: dict[str, Any] = {}
    for name, value in parse_pairs(parts.get("parameter", []), "--parameter", "=").items():
        known = template.parameters.get(name)
        is_text = known is not None and known.type == "string"
        given[name] = parse_reference(value) if is_text else _value(value)
    return given


def _value(text: str) -> Any:
    """Return the value of JSON, or a text that is no JSON."""
    try:
        return parse_nested_references(payload.decode(text))
    except PayloadError:
        return parse_reference(text)


def _json_body(body: str) -> Any:
    """Return the body to send: an object or a list as JSON, all else as the given text."""
    return _value(body) if body.lstrip()[:1] in ("{", "[") else parse_reference(body)


# Messages about options use the words of options: `--shell` rather than {"shell": true}.

Words = str | Callable[[re.Match[str]], str]


def _with_args(found: re.Match[str]) -> str:
    """Return the message, and the flag that gives the parameters that it names."""
    named = ", ".join(f'"{name}": …' for name in found["names"].split(", "))
    return f"{found['said']}. Say --args '{{{named}}}'"


# Messages for all clients, each with the words that the user of a command can type. A message about
# a file begins with its place, and is left as it is: there the words are those of the file.
_DEFINING: Final[Mapping[str, Words]] = {
    r'^(without a shell, .*; )\{"shell": true\} runs': r"\1--shell runs",
    r'such as \{"secret": "NAME"\}$': "such as @secret:NAME",
    r'^a job whose schedule is "manual" (runs .* no others); .*$': (
        r"a job with --manual \1; add --no-dependencies, or leave --manual out"
    ),
    r"^sql has no connection$": "sql has no connection; name one with --connection",
    r"^(?P<said>its schedule has .* must be given (?P<names>[\w, ]+);.*); say args$": _with_args,
}
_TRIGGERING: Final[Mapping[str, Words]] = {
    r"cancel it, or force this one$": "cancel it, or add --force",
    r"arguments are given by name, as a dict, not as \w+$": (
        'arguments are given by name, as a JSON object such as {"size": 3}'
    ),
    r"^(?P<said>workflow .* must be given (?P<names>[\w, ]+);.*)$": _with_args,
}


def rephrase_definition_error(message: str) -> str:
    """Return the error about a job that options create or change, in the words of the options."""
    return _said(message, _DEFINING)


def rephrase_trigger_error(message: str) -> str:
    """Return the error about a requested execution, in the words of the options."""
    return _said(message, _TRIGGERING)


@contextmanager
def rephrase_errors(words: Callable[[str], str]) -> Generator[None]:
    """Rephrase the errors of the body with `words`."""
    try:
        yield
    except DaybellError as error:
        for one in faults_of(error) if isinstance(error, UsageError) else (error,):
            one.args = (words(str(one)), *one.args[1:])
        raise


def _said(message: str, table: Mapping[str, Words]) -> str:
    for pattern, words in table.items():
        message = re.sub(pattern, words, message)
    return message


def flag_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"
