"""The fields of a job request, as files, the API and programs write them alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, cast

from msgspec.structs import replace

from daybell.client.requests import TaskOptions, read_text, read_whole
from daybell.core import payload
from daybell.core.job import JobDefinition, Template, task_of
from daybell.core.kinds import KINDS, SETTINGS, read_settings, settings_json
from daybell.core.kinds.settings import BESIDE, command_of
from daybell.core.limits import NAME_CHARS_MAX, check_name
from daybell.core.retry import Retry
from daybell.core.when.language import KEYS
from daybell.core.when.rule import OPTIONS
from daybell.core.workflow.graph import Graph
from daybell.errors import UsageError, shown, suggested

# What a job runs, as people say it: one field of a request that names its kind, and those that go
# with it.

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


def read_choice(fields: Mapping[str, Any]) -> str | None:
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


def require_choice(fields: Mapping[str, Any]) -> str:
    """The same for a new job, which has to run something."""
    choice = read_choice(fields)
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


def update_kind(kind: str, fields: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
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


def kind_fields(definition: JobDefinition) -> dict[str, Any]:
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


MADE_FROM: Final = ("name", "version", "parameters")


class JobFields(KindFields, TaskOptions, total=False):
    """What may be said of a job that is made by hand."""

    backoff: str | Mapping[str, Any] | None  # how long to wait before each retry
    source: str | None  # what it belongs to, such as "apply": for who tidies up
    made_from: Mapping[str, Any] | None  # the template that the rest came from: a note


JOB_FIELDS: Final = frozenset(JobFields.__optional_keys__)


# Fields of a part of a job, which people look for in the job itself.
_INNER: Final[dict[str, frozenset[str]]] = {
    **{kind: frozenset(settings.__struct_fields__) for kind, settings in SETTINGS.items()},
    "schedule": frozenset((*KEYS, *OPTIONS)),
}
# What such a part has when it is not a text alone.
_BESIDE: Final = {**SHORT_FOR, "schedule": "cron"}


def check_fields(fields: Mapping[str, Any], what: str) -> None:
    """Refuse a field that does not exist."""
    for error in unknown_fields(fields, what):
        raise error


def unknown_fields(fields: Mapping[str, Any], what: str) -> list[UsageError]:
    """What is wrong with each field that does not exist: where it belongs, or what was meant."""
    return [
        UsageError(f"{what} has no field {shown(name)}; {_suggest_field(name, fields)}", field=name)
        for name in fields
        if name not in JOB_FIELDS
    ]


def _suggest_field(name: str, fields: Mapping[str, Any]) -> str:
    parts = [part for part, inner in _INNER.items() if name in inner]
    if parts:
        part = next((one for one in parts if fields.get(one) is not None), parts[0])
        beside = f", beside {_BESIDE[part]}" if part in _BESIDE else ""
        return f"it goes under {part}{beside}"
    has = (
        f"it has what it runs ({', '.join(CHOICES)}), schedule, args, retries, timeout, queue and"
        " more, as POST /jobs"
    )
    return suggested(name, sorted(JOB_FIELDS), otherwise=has)


def read_retries(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The retry policy of what two fields say, under the name that definitions have for it."""
    backoff, retries = fields.get("backoff"), fields.get("retries")
    if backoff is None:
        return {"retries": retries} if "retries" in fields else {}
    said = {"backoff": backoff} if isinstance(backoff, str) else backoff
    if not isinstance(said, Mapping):
        raise UsageError(
            f'backoff={shown(backoff)} must be a word such as "fixed", or an object',
            field="backoff",
        )
    policy = dict(cast("Mapping[str, Any]", said))
    if retries is None:
        return {"retries": policy}
    if not isinstance(retries, int):
        raise UsageError("retries says how long to wait, too; leave out backoff", field="backoff")
    return {"retries": {**policy, "retries": retries}}


def update_retries(fields: Mapping[str, Any], old: Retry) -> dict[str, Any]:
    """The same for a change: how often without how long, or the other way round, leaves the other
    as it was.
    """
    given = read_retries(fields)
    if not given:
        return {} if "backoff" not in fields else {"retries": Retry(retries=old.retries)}
    backoff, retries = fields.get("backoff"), fields.get("retries")
    if backoff is None and isinstance(retries, int):
        return {"retries": replace(old, retries=Retry.parse(retries).retries)}
    if backoff is not None and "retries" not in fields:
        return {"retries": {**given["retries"], "retries": old.retries}}
    return given


def plain_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What `read_definition` takes as it is: all but what a job runs, and its retries."""
    others = {*FIELDS, "retries", "backoff", "made_from", "source"}
    return {name: value for name, value in fields.items() if name not in others}


def apply_template(fields: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """The fields of a job that is made from a template: what is said beside it wins."""
    parameters = read_parameters(fields.get(OF_TEMPLATE))
    made = template.template.job_with(parameters)
    check_fields(made, f"template {template.name}")
    require_choice(made)
    beside = {name: value for name, value in fields.items() if name not in FIELDS}
    note = {"name": template.name, "version": template.version, "parameters": parameters}
    return {**made, **beside, "made_from": note}


def read_parameters(value: object) -> dict[str, Any]:
    """What a template is given, by name."""
    if value is not None and not isinstance(value, Mapping):
        raise UsageError(
            f"parameters={shown(value)} must be given by name, as an object", field=OF_TEMPLATE
        )
    return dict(cast("Mapping[str, Any]", value or {}))


def read_notes(fields: Mapping[str, Any]) -> dict[str, str]:
    """What a definition keeps for people: what it was made from, and what it belongs to."""
    notes: dict[str, str] = {}
    if "made_from" in fields:
        notes["template"] = read_made_from(fields["made_from"])
    if "source" in fields:
        notes["source"] = read_source(fields["source"])
    return notes


def read_made_from(value: object) -> str:
    """A template's name, version and parameters, as they are kept."""
    if value is None:
        return ""
    if not isinstance(value, Mapping) or set(cast("Mapping[str, Any]", value)) != set(MADE_FROM):
        raise UsageError(
            f"made_from must be an object with {', '.join(MADE_FROM)}",
            field="made_from",
        )
    given = cast("Mapping[str, Any]", value)
    note = {
        "name": check_name(given["name"], what="template"),
        "version": read_whole(given["version"], "made_from.version", least=1, most=2**31 - 1),
        "parameters": read_parameters(given["parameters"]),
    }
    return payload.encode(note, what="made_from")


def read_source(value: object) -> str:
    """What a job belongs to."""
    if value is None:
        return ""
    if len(read_text(value, "source")) > NAME_CHARS_MAX or "\0" in str(value):
        raise UsageError(
            f"source {shown(value)} must be text of at most {NAME_CHARS_MAX} characters",
            field="source",
        )
    return str(value)
