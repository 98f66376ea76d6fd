"""What a job runs, as people say it: one field of a request that names its kind, and those that go
with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, cast

from daybell.core import payload
from daybell.core.graph import Graph
from daybell.core.job import JobDefinition, task_of
from daybell.core.kinds import KINDS, SETTINGS, read_settings, settings_json
from daybell.core.kinds.command import BESIDE, command_of
from daybell.errors import UsageError

# One of these says what a job runs.
CHOICES: Final = ("task", *SETTINGS, "workflow", "template")
# These go with one of them.
OF_COMMAND: Final = BESIDE
OF_TEMPLATE: Final = "parameters"
FIELDS: Final = (*CHOICES, *OF_COMMAND, OF_TEMPLATE)
# What a line or an address stands for, where a kind's settings may be given as that alone.
SHORT_FOR: Final = {"command": "run", "http": "url"}


class KindFields(TypedDict, total=False):
    """What a job may run: exactly one of task, command, http, sql, notify, workflow, template."""

    task: str | None  # by the name under which the store knows it
    command: str | Sequence[Any] | Mapping[str, Any] | None  # a line, words, or {"run": …, …}
    shell: bool | None  # of a command
    env: Mapping[str, Any] | None  # of a command
    http: str | Mapping[str, Any] | None  # an address, or {"url": …, …}
    sql: Mapping[str, Any] | None
    notify: Mapping[str, Any] | None
    workflow: Mapping[str, Any] | None  # {"nodes": […], "edges": […], …}
    template: str | None
    parameters: Mapping[str, Any] | None  # of a template


def chosen(fields: Mapping[str, Any]) -> str | None:
    """The field that says what a job runs; None: no field does. Two are refused, and so is what
    goes with another one.
    """
    said = [name for name in CHOICES if fields.get(name) is not None]
    if len(said) > 1:
        raise UsageError(
            f"{said[0]} and {said[1]} are two things to run; a job runs one", field=said[1]
        )
    choice = said[0] if said else None
    if fields.get(OF_TEMPLATE) is not None and choice != "template":
        raise UsageError(
            "parameters are a template's, and no template is named; a task takes args",
            field=OF_TEMPLATE,
        )
    for name in OF_COMMAND:
        if choice not in (None, "command") and fields.get(name) is not None:
            raise UsageError(
                f"{name} is for a command, and this job is said to run {choice}", field=name
            )
    return choice


def choice_of(fields: Mapping[str, Any]) -> str:
    """The same for a new job, which has to run something."""
    choice = chosen(fields)
    if choice is not None:
        return choice
    for name in OF_COMMAND:
        if fields.get(name) is not None:
            raise UsageError(f"{name} is for a command, and there is none", field="command")
    raise UsageError(
        f"nothing says what it runs; give one of {', '.join(CHOICES)}", field=CHOICES[0]
    )


def read_kind(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a kind without code, as they are kept."""
    value = fields[kind]
    if kind == "workflow":
        return Graph.parse(value).to_settings()
    if kind == "command":
        value = command_of(value, fields)
    return settings_json(read_settings(kind, value))


def changed_kind(kind: str, fields: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job that stays of its kind, after a change. A line or an address takes the
    place of the old one, and leaves the rest; an object is all of it.
    """
    value = fields.get(kind)
    if isinstance(value, Mapping) or (value is not None and kind not in SHORT_FOR):
        return read_kind(kind, fields)
    said = {**old, **({} if value is None else {SHORT_FOR[kind]: value})}
    if kind == "command":
        said |= {name: fields[name] for name in OF_COMMAND if name in fields}  # null: as usual
    return settings_json(read_settings(kind, said))


def said_of(definition: JobDefinition) -> dict[str, Any]:
    """What a job runs, in the fields of a request. `read_kind` makes the same settings of it."""
    kind = definition.kind
    if kind == "task":
        return {"task": task_of(definition) or definition.name}
    if kind not in KINDS:
        return {}
    settings = cast("dict[str, Any]", payload.decode(definition.settings))
    if kind == "command":
        beside = {name: settings.pop(name) for name in OF_COMMAND if name in settings}
        return {"command": settings["run"] if settings.keys() == {"run"} else settings, **beside}
    if kind == "http" and settings.keys() == {"url"} and isinstance(settings["url"], str):
        return {"http": settings["url"]}
    return {kind: settings}


def is_by_code(definition: JobDefinition) -> bool:
    """Whether a job is what some code says: a task under its own name."""
    return definition.kind == "task" and task_of(definition) is None
