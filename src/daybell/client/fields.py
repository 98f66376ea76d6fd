"""The fields of a request about a job, as files, the API and programs write them alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from daybell.client.kinds import (
    CHOICES,
    FIELDS,
    OF_TEMPLATE,
    SHORT_FOR,
    KindFields,
    choice_of,
)
from daybell.client.requests import TaskOptions, read_text, read_whole
from daybell.core import payload
from daybell.core.kinds import SETTINGS
from daybell.core.limits import NAME_CHARS_MAX, check_name
from daybell.core.retry import Retry
from daybell.core.template import Template
from daybell.core.when.options import OPTIONS
from daybell.core.when.read import KEYS
from daybell.errors import UsageError, shown, suggested

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
        UsageError(f"{what} has no field {shown(name)}; {_hint(name, fields)}", field=name)
        for name in fields
        if name not in JOB_FIELDS
    ]


def _hint(name: str, fields: Mapping[str, Any]) -> str:
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


def retries_of(fields: Mapping[str, Any]) -> dict[str, Any]:
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


def changed_retries(fields: Mapping[str, Any], old: Retry) -> dict[str, Any]:
    """The same for a change: how often without how long, or the other way round, leaves the other
    as it was.
    """
    given = retries_of(fields)
    if not given:
        return {} if "backoff" not in fields else {"retries": Retry(retries=old.retries)}
    backoff, retries = fields.get("backoff"), fields.get("retries")
    if backoff is None and isinstance(retries, int):
        return {"retries": replace(old, retries=Retry.parse(retries).retries)}
    if backoff is not None and "retries" not in fields:
        return {"retries": {**given["retries"], "retries": old.retries}}
    return given


def rest_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What `read_definition` takes as it is: all but what a job runs, and its retries."""
    others = {*FIELDS, "retries", "backoff", "made_from", "source"}
    return {name: value for name, value in fields.items() if name not in others}


def with_template(fields: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """The fields of a job that is made from a template: what is said beside it wins."""
    parameters = read_parameters(fields.get(OF_TEMPLATE))
    made = template.template.job_with(parameters)
    check_fields(made, f"template {template.name}")
    choice_of(made)
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
