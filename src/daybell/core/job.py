"""Jobs: definitions with their versions, status, and templates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Literal, cast
from uuid import UUID

import msgspec

from daybell.core import payload
from daybell.core.execution import TERMINAL, Execution, State
from daybell.core.job_request import check_fields, require_choice
from daybell.core.limits import (
    DESCRIPTION_CHARS_MAX,
    NEXT_SCHEDULES_MAX,
    PARAMETERS_MAX,
    SCHEDULES_MAX,
    check_name,
)
from daybell.core.options import KIND_FIELDS, OF_TEMPLATE, JobDefinition, read_mapping
from daybell.core.references import fill_references, is_reference, names_in, read_fields, reference
from daybell.core.schedule import NewSchedule, Schedule
from daybell.core.units import Instant
from daybell.errors import DuplicateKey, UsageError, VersionConflict, shown

DEFAULT_TENANT = "default"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A definition to be stored. The id counts only if the name is new."""

    id: UUID
    definition: JobDefinition
    author: str = ""
    # None: whatever is there. 0: the name must be new. n: version n must be the current one.
    expect: int | None = None
    # Take the place of the job's declared schedules when this definition becomes the current one.
    schedules: tuple[NewSchedule, ...] = ()
    # A definition that was superseded is not made current again by old code in a rolling
    # deploy, unless this asks for it.
    promote: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job at one of its versions."""

    id: UUID
    tenant: str
    version: int
    definition: JobDefinition
    created_at: Instant  # of this version
    author: str = ""
    is_current: bool = True
    paused_at: Instant | None = None  # its schedules do not fire since then
    pause_note: str = ""  # why

    @property
    def name(self) -> str:
        return self.definition.name


# How a job stands: one word for what it is doing, and when it runs next.

PAUSED: Final = "paused"
MANUAL: Final = "manual"
DELETED: Final = "deleted"

# What is told of a job whose executions are in several states: what matters most.
_BUSY: Final = (State.RUNNING, State.RETRYING, State.QUEUED, State.WAITING, State.SCHEDULED)
assert set(_BUSY) == set(State) - TERMINAL


# Of a job with more unfinished executions, so many of the newest are looked at.
LOOKED_AT_MAX: Final = 1_000
# Schedules that come with a definition: its own, and those that follow from its dependencies.
DECLARED_MAX: Final = SCHEDULES_MAX + 2


class JobActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of what a job does."""

    unfinished: frozenset[State] = frozenset()
    last: Execution | None = None  # the newest
    # Those of its definition, and of those made at run time NEXT_SCHEDULES_MAX, the next ones.
    schedules: tuple[Schedule, ...] = ()
    has_more_schedules: bool = False


class WaitsFor(msgspec.Struct, frozen=True):
    """How one dependency of a job stands."""

    job: str
    is_met: bool
    detail: str  # for a person


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job with what it does now. Times of its schedules are nominal."""

    job: Job
    status: str
    next_run_at: Instant | None
    schedules: tuple[Schedule, ...]  # declared ones, and the next of those made at run time
    last_execution: Execution | None  # the newest
    waits_for: tuple[WaitsFor, ...] = ()  # its dependencies, if it was asked for alone
    has_more_schedules: bool = False  # made at run time, and not shown


def status_of(
    *,
    is_deleted: bool = False,
    is_paused: bool = False,
    unfinished: Collection[State] = (),
    next_run_at: Instant | None = None,
    last: State | None = None,
) -> str:
    """What a job is doing, in one word: a state of executions, or one of those above."""
    if is_deleted:
        return DELETED
    if is_paused:
        return PAUSED
    for state in _BUSY:
        if state in unfinished:
            return str(state)
    if next_run_at is not None:
        return str(State.SCHEDULED)
    return MANUAL if last is None else str(last)


def build_job_status(job: Job, look: JobActivity, *, is_deleted: bool = False) -> JobStatus:
    """How a job stands, by what was seen of it."""
    next_at = next_run_at(look.schedules)
    return JobStatus(
        job=job,
        status=status_of(
            is_deleted=is_deleted,
            is_paused=job.paused_at is not None,
            unfinished=look.unfinished,
            next_run_at=next_at,
            last=None if look.last is None else look.last.state,
        ),
        next_run_at=None if is_deleted else next_at,
        schedules=tuple(sorted(look.schedules, key=_next_first)),
        last_execution=look.last,
        has_more_schedules=look.has_more_schedules,
    )


def by_name(schedule: Schedule) -> tuple[str, bool, int, str]:
    """The order of schedules: by job, declared ones first, and those in the order of a list."""
    name = schedule.name
    return schedule.job, not schedule.is_declared, len(name) if name.isdigit() else 0, name


def _next_first(schedule: Schedule) -> tuple[bool, float, tuple[str, bool, int, str]]:
    """The order in which a job is shown: declared ones in the order of the definition, then the
    others by their next time.
    """
    at = inf if schedule.next_at is None else schedule.next_at
    return not schedule.is_declared, 0.0 if schedule.is_declared else at, by_name(schedule)


def cut_next(schedules: Sequence[Schedule]) -> tuple[tuple[Schedule, ...], bool]:
    """The schedules that a job is shown with, of those that were read, the next ones first; and
    whether there are more.
    """
    declared = [one for one in schedules if one.is_declared]
    others = [one for one in schedules if not one.is_declared]
    shown = (*declared, *others[:NEXT_SCHEDULES_MAX])
    return shown, len(others) > NEXT_SCHEDULES_MAX


def next_run_at(schedules: Iterable[Schedule]) -> Instant | None:
    """When the first of a job's schedules is due; those of a paused job are not."""
    times = [one.next_at for one in schedules if one.next_at is not None and not one.is_paused]
    return min(times, default=None)


# Templates: jobs with blanks, which are filled in by name and checked by type.
#
# What a template says of a job is what a request to create one says, with `{"parameter": "NAME"}`
# where a value goes. A job is made from it once: it is what it was then, whatever the template
# says later.

Type = Literal["string", "integer", "number", "boolean", "array", "object", "secret"]

TYPES: Final[tuple[Type, ...]] = (
    "string", "integer", "number", "boolean", "array", "object", "secret",
)  # fmt: skip
_NOT_IN_A_TEMPLATE: Final = ("name", "template", "parameters", "tenant")


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A blank, and what may be put into it."""

    type: Type = "string"
    description: str = ""
    default: Any = msgspec.UNSET  # without one it must be given
    choices: tuple[Any, ...] = ()  # nothing else, if there are any
    minimum: float | None = None
    maximum: float | None = None

    @classmethod
    def parse(cls, value: Any, *, where: str) -> Parameter:
        """Read a type's name, or an object with `type` and the rest."""
        given = read_fields({"type": value} if isinstance(value, str) else value, cls, where)
        if given.get("type", "string") not in TYPES:
            raise UsageError(
                f"{where}: {shown(given['type'])} is no type; there are {', '.join(TYPES)}",
                field=where,
            )
        choices = given.get("choices", ())
        if not isinstance(choices, list | tuple):
            raise UsageError(f"{where}: choices must be a list", field=where)
        for bound in ("minimum", "maximum"):
            if bound in given and (
                not isinstance(given[bound], int | float) or isinstance(given[bound], bool)
            ):
                raise UsageError(f"{where}: {bound} must be a number", field=where)
        description = given.get("description", "")
        if not isinstance(description, str) or len(description) > DESCRIPTION_CHARS_MAX:
            raise UsageError(f"{where}: description must be a text, and no long one", field=where)
        given["choices"] = tuple(cast("list[Any]", choices))
        parameter = cls(**given)
        for one in (*parameter.choices, *(() if parameter.is_required else (parameter.default,))):
            parameter.check(one, where=where)
        return parameter

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.UNSET

    def check(self, value: Any, *, where: str) -> None:
        """Refuse what may not be put in here."""
        if not _fits(value, self.type):
            raise UsageError(
                f"{where}: {shown(value)} is not {_TYPES_IN_WORDS[self.type]}", field=where
            )
        if self.choices and value not in self.choices:
            known = ", ".join(map(shown, self.choices))
            raise UsageError(f"{where}: {shown(value)} is not one of {known}", field=where)
        size: Any = len(cast("str", value)) if isinstance(value, str | list) else value
        said = shown(cast("object", value))
        if isinstance(size, int | float) and not isinstance(size, bool):
            if self.minimum is not None and size < self.minimum:
                raise UsageError(f"{where}: {said} is below {self.minimum:g}", field=where)
            if self.maximum is not None and size > self.maximum:
                raise UsageError(f"{where}: {said} is above {self.maximum:g}", field=where)


class NewTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template to be kept."""

    name: str
    parameters: dict[str, Parameter]
    job: dict[str, Any]  # as a request to create one, with blanks, and without a name
    description: str = ""

    @classmethod
    def parse(cls, value: Any) -> NewTemplate:
        """Read an object with `name`, `parameters` and `job`."""
        given = read_fields(value, cls, "template")
        name = check_name(given.get("name"), what="template")
        description = given.get("description", "")
        if not isinstance(description, str) or len(description) > DESCRIPTION_CHARS_MAX:
            raise UsageError(
                f"description must be text of at most {DESCRIPTION_CHARS_MAX:,} characters",
                field="description",
            )
        parameters = _read_parameters(given.get("parameters"))
        job = given.get("job")
        if not isinstance(job, dict) or not job:
            raise UsageError("a template has a job, as an object", field="job")
        said = cast("dict[str, Any]", job)
        for field in _NOT_IN_A_TEMPLATE:
            if field in said:
                raise UsageError(f"a template's job has no {field}", field=f"job.{field}")
        payload.encode(said, what="job")
        _check_blanks(said, parameters)
        return cls(name=name, description=description, parameters=parameters, job=said)

    def to_json(self) -> str:
        """The template as a store keeps it, without its name."""
        said = {
            "description": self.description,
            "parameters": msgspec.to_builtins(self.parameters),
            "job": self.job,
        }
        return payload.encode(said, what="template")

    @classmethod
    def from_json(cls, name: str, text: str) -> NewTemplate:
        """Read what to_json wrote."""
        return cls.parse({"name": name, **payload.decode(text)})

    def job_with(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What it says of a job, with these parameters put in."""
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise UsageError(
                    f"template {self.name} has no parameter {shown(name)}; it has {known}",
                    field=f"parameters.{name}",
                )
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            where = f"parameters.{name}"
            if name in given:
                parameter.check(given[name], where=where)
                values[name] = given[name]
            elif parameter.is_required:
                raise UsageError(f"template {self.name} needs the parameter {name}", field=where)
            else:
                values[name] = parameter.default
        return cast("dict[str, Any]", fill_references(self.job, "parameter", values.__getitem__))


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A template as it is kept."""

    tenant: str
    template: NewTemplate
    version: int  # rises with every change
    created_at: Instant
    updated_at: Instant
    author: str = ""  # of the last change

    @property
    def name(self) -> str:
        return self.template.name


def _read_parameters(value: Any) -> dict[str, Parameter]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError("parameters must be given by name, as an object", field="parameters")
    given = cast("Mapping[str, Any]", value)
    if len(given) > PARAMETERS_MAX:
        raise UsageError(
            f"there are {len(given):,} parameters; the limit is {PARAMETERS_MAX}",
            field="parameters",
        )
    for name in given:
        if not name.isidentifier():
            raise UsageError(
                f"{shown(name)} cannot name a parameter; a name has letters, digits and _",
                field="parameters",
            )
    return {name: Parameter.parse(one, where=f"parameters.{name}") for name, one in given.items()}


def _check_blanks(job: dict[str, Any], parameters: Mapping[str, Parameter]) -> None:
    used = names_in(job, "parameter")
    for name in sorted(used - parameters.keys()):
        raise UsageError(
            f"the job uses a parameter {shown(name)} that the template does not have", field="job"
        )
    for name in sorted(parameters.keys() - used):
        raise UsageError(f"the job does not use the parameter {name}", field=f"parameters.{name}")


def check_lines(job: Mapping[str, Any]) -> None:
    """Refuse blanks in what a shell or a database reads: what is put there could say more than was
    meant to be said.
    """
    where, line = _text_in(job, "command", "run")
    if is_reference(line):
        raise UsageError(
            "a command line has no blanks, since they could hold another command; give a list of"
            " words, of which some are blanks, or name a variable in the line and set it by env",
            field=where,
        )
    where, statement = _text_in(job, "sql", "statement")
    if is_reference(statement):
        raise UsageError(
            "a statement has no blanks, since they could hold another statement; write :name in it,"
            " and give the value under sql.parameters",
            field=where,
        )


def _text_in(job: Mapping[str, Any], kind: str, field: str) -> tuple[str, Any]:
    """What is in a field of a kind's settings, or in their place, and where that is."""
    settings: Any = job.get(kind)
    if isinstance(settings, dict) and not is_reference(settings):
        return f"{kind}.{field}", cast("dict[str, Any]", settings).get(field)
    return kind, cast("Any", settings)


def _fits(value: Any, type: Type) -> bool:
    match type:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "secret":
            return reference(value, "secret") is not None


_TYPES_IN_WORDS: Final[dict[Type, str]] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "secret": 'a reference to a secret, such as {"secret": "NAME"}',
}


def apply_template(fields: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Return the fields of a job that is made from a template: those beside it win."""
    given = fields.get(OF_TEMPLATE)
    parameters = {} if given is None else read_mapping(given, OF_TEMPLATE)
    made = template.template.job_with(parameters)
    check_fields(made, f"template {template.name}")
    require_choice(made)
    beside = {name: value for name, value in fields.items() if name not in KIND_FIELDS}
    note = {"name": template.name, "version": template.version, "parameters": parameters}
    return {**made, **beside, "made_from": note}


# Versions of jobs, templates and secrets that differ from the expected ones.


def version_conflict(name: str, *, at: int, expect: int, what: str = "job") -> VersionConflict:
    """What a person hears who means another version than there is."""
    return VersionConflict(
        f"{what} {shown(name)} is at version {at}, not {expect}; read it again, then decide again",
        version=at,
    )


def next_template_version(
    name: str, *, at: int, kept: str | None, text: str, expect: int | None
) -> int:
    """The version that a template has once `text` is what it says. As before: it says so already.
    `at` is 0 for one that there is not.
    """
    if expect == 0 and at:
        raise DuplicateKey(f"there is a template {shown(name)} already; take another name")
    if expect is not None and at != expect:
        raise version_conflict(name, at=at, expect=expect, what="template")
    is_same = kept is not None and (kept == text or _in_order(kept) == _in_order(text))
    return at if is_same else at + 1


def _in_order(text: str) -> bytes:
    """The same JSON, whatever the order in which an object's fields were given."""
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
