"""What a job runs, in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from daybell.cli import show
from daybell.cli.marks import written
from daybell.core import payload
from daybell.core.graph import Graph
from daybell.core.job import JobDefinition, task_of
from daybell.core.kinds import (
    SETTINGS,
    CommandSettings,
    HttpSettings,
    NotifySettings,
    SqlSettings,
    read_settings,
)
from daybell.core.params import params_of
from daybell.errors import UsageError, listed

NODES_MAX: Final = 8  # of a workflow, that are named


def in_short(definition: JobDefinition) -> str:
    """What a job runs, in a line."""
    match _settings(definition):
        case CommandSettings() as command:
            return _line(command)
        case HttpSettings() as request:
            return f"{request.method} {written(request.url)}"
        case SqlSettings() as sql:
            return f"{sql.connection}: {' '.join(sql.statement.split())}"
        case NotifySettings() as message:
            return f"tells {_places(message)}: {written(message.title or message.body)}"
        case Graph() as graph:
            return _nodes(graph)
        case _:
            return task_of(definition) or ("" if definition.kind == "task" else definition.kind)


def in_full(definition: JobDefinition) -> dict[str, object]:
    """The same, with all that is said of it, by name."""
    return {"kind": definition.kind, **_parts(definition), "template": _template(definition)}


def _parts(definition: JobDefinition) -> dict[str, object]:
    match _settings(definition):
        case CommandSettings() as command:
            is_usual = command.success_codes == (0,)
            return {
                "command": _line(command),
                "directory": command.directory,
                "environment": _mapping(command.env, "="),
                "stdin": None if command.stdin is None else written(command.stdin),
                "exit codes": None if is_usual else f"{_codes(command.success_codes)} are fine",
                "retried": None if command.retry_codes is None else _codes(command.retry_codes),
                "grace": None if command.grace == 5 else show.length(command.grace),
                "output": None if command.output == "text" else f"read as {command.output}",
            }
        case HttpSettings() as request:
            is_usual = request.expect == ("2xx",)
            return {
                "request": f"{request.method} {written(request.url)}",
                "headers": _mapping(request.headers, ": "),
                "body": None if request.body is None else written(request.body),
                "expects": None if is_usual else _codes(request.expect),
                "redirects": request.redirects or None,
            }
        case SqlSettings() as sql:
            return {
                "connection": sql.connection,
                "statement": sql.statement.strip(),
                "parameters": _mapping(sql.parameters, "="),
            }
        case NotifySettings() as message:
            return {
                "tells": _places(message),
                "title": written(message.title),
                "body": written(message.body),
            }
        case Graph() as graph:
            return {
                "nodes": _nodes(graph),
                "parameters": _params(graph),
                "at a time": graph.max_running,
                "fail fast": "yes" if graph.fail_fast else None,
            }
        case _:
            return {"task": task_of(definition)}


def _settings(definition: JobDefinition) -> Any:
    if definition.kind == "workflow":
        return Graph.from_settings(definition.settings)
    if definition.kind not in SETTINGS:
        return None
    try:
        return read_settings(definition.kind, payload.decode(definition.settings))
    except UsageError:  # of another version of the program, or unreadable
        return None


def _line(command: CommandSettings) -> str:
    if isinstance(command.run, str):
        return f"sh -c {shlex.quote(command.run)}" if command.shell else command.run
    return " ".join(shlex.quote(word) if isinstance(word, str) else written(word)
                    for word in command.run)  # fmt: skip


def _nodes(graph: Graph) -> str:
    return f"{show.count(len(graph.order), 'node')}: {listed(graph.order, most=NODES_MAX)}"


def _params(graph: Graph) -> str | None:
    """What a run is given, with defaults."""
    told = [
        f"{one.name} (must be given)" if one.is_required else f"{one.name}={written(one.default)}"
        for one in graph.params
    ]
    return ", ".join(told) or None


def args_to_type(definition: JobDefinition) -> str:
    """What a trigger has to say besides the name: what a workflow must be given, and has no `args`
    of its own for.
    """
    if definition.kind != "workflow" or definition.args != "{}":
        return ""
    needed = [f'"{one.name}": …' for one in params_of(definition.settings) if one.is_required]
    return f" --args '{{{', '.join(needed)}}}'" if needed else ""


def _places(message: NotifySettings) -> str:
    """To whom a message goes: by which way only, since addresses often have a password in them."""
    ways = [
        f"{one.partition('://')[0]}://…" if isinstance(one, str) and "://" in one else written(one)
        for one in message.to
    ]
    return ", ".join(ways)


def _mapping(values: Mapping[str, Any], mark: str) -> str:
    return ", ".join(f"{name}{mark}{written(value)}" for name, value in values.items())


def _codes(codes: tuple[int | str, ...]) -> str:
    return ", ".join(map(str, codes))


def _template(definition: JobDefinition) -> str | None:
    if not definition.template:
        return None
    made_from = cast("dict[str, Any]", msgspec.json.decode(definition.template))
    given = _mapping(made_from.get("parameters", {}), "=")
    said = f"{made_from.get('name')}, version {made_from.get('version')}"
    return f"{said} ({given})" if given else said
