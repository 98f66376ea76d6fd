"""Jobs: definitions with their versions, status, and templates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast
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
from daybell.errors import (
    DuplicateKey,
    NotFound,
    TemplateNotFound,
    UsageError,
    VersionConflict,
    shown,
)

DEFAULT_TENANT = "default"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A definition to store. The id is used if the name is new."""

    id: UUID
    definition: JobDefinition
    author: str = ""
    # The required current version; 0: the name must be new; None: any.
    expect: int | None = None
    # Replace the job's declared schedules when this definition becomes current.
    schedules: tuple[NewSchedule, ...] = ()
    # Make a superseded definition current again; by default old code in a rolling deploy does not.
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
    paused_at: Instant | None = None  # its schedules do not fire
    pause_note: str = ""  # the reason

    @property
    def name(self) -> str:
        return self.definition.name


# The status of a job: one word, and the time of its next run.

PAUSED: Final = "paused"
MANUAL: Final = "manual"
DELETED: Final = "deleted"

# States of unfinished executions, the most important first.
_BUSY: Final = (State.RUNNING, State.RETRYING, State.QUEUED, State.WAITING, State.SCHEDULED)
assert set(_BUSY) == set(State) - TERMINAL


# The newest unfinished executions to read for a status.
LOOKED_AT_MAX: Final = 1_000
# Schedules of a definition: its own, and those of its dependencies.
DECLARED_MAX: Final = SCHEDULES_MAX + 2


class JobActivity(msgspec.Struct, frozen=True, kw_only=True):
    """The facts from which the status of a job is built."""

    unfinished: frozenset[State] = frozenset()
    last: Execution | None = None  # the newest
    # Those of its definition, and the next NEXT_SCHEDULES_MAX of those made at run time.
    schedules: tuple[Schedule, ...] = ()
    has_more_schedules: bool = False


class WaitsFor(msgspec.Struct, frozen=True):
    """The state of one dependency of a job."""

    job: str
    is_met: bool
    detail: str  # for a person


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its status. Times of its schedules are nominal."""

    job: Job
    status: str
    next_run_at: Instant | None
    schedules: tuple[Schedule, ...]  # declared ones, and the next ones made at run time
    last_execution: Execution | None  # the newest
    waits_for: tuple[WaitsFor, ...] = ()  # its dependencies, for a single job
    has_more_schedules: bool = False  # made at run time


def status_of(
    *,
    is_deleted: bool = False,
    is_paused: bool = False,
    unfinished: Collection[State] = (),
    next_run_at: Instant | None = None,
    last: State | None = None,
) -> str:
    """Return the status of a job: a state of executions, or one of the words above."""
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
    """Build the status of a job from its activity."""
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
    """Return the sort key of schedules: by job, declared ones first and in their order."""
    name = schedule.name
    return schedule.job, not schedule.is_declared, len(name) if name.isdigit() else 0, name


def _next_first(schedule: Schedule) -> tuple[bool, float, tuple[str, bool, int, str]]:
    """Return the sort key for a job: declared schedules in order, then others by next time."""
    at = inf if schedule.next_at is None else schedule.next_at
    return not schedule.is_declared, 0.0 if schedule.is_declared else at, by_name(schedule)


def cut_next(schedules: Sequence[Schedule]) -> tuple[tuple[Schedule, ...], bool]:
    """Return the schedules of a status, and True if there are more. The next ones come first."""
    declared = [one for one in schedules if one.is_declared]
    others = [one for one in schedules if not one.is_declared]
    shown = (*declared, *others[:NEXT_SCHEDULES_MAX])
    return shown, len(others) > NEXT_SCHEDULES_MAX


def next_run_at(schedules: Iterable[Schedule]) -> Instant | None:
    """Return the next time of a job's schedules; None if they are paused."""
    times = [one.next_at for one in schedules if one.next_at is not None and not one.is_paused]
    return min(times, default=None)


# Templates: jobs with parameters.
#
# A template has the fields of a request to create a job, with `{"parameter": "NAME"}` in place of
# values. A change of the template does not change jobs that were made from it.

Type = Literal["string", "integer", "number", "boolean", "array", "object", "secret"]

TYPES: Final[tuple[Type, ...]] = (
    "string", "integer", "number", "boolean", "array", "object", "secret",
)  # fmt: skip
_NOT_IN_A_TEMPLATE: Final = ("name", "template", "parameters", "tenant")


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parameter of a template, with its valid values."""

    type: Type = "string"
    description: str = ""
    default: Any = msgspec.UNSET  # unset: the parameter is required
    choices: tuple[Any, ...] = ()  # empty: any value
    minimum: float | None = None
    maximum: float | None = None

    @classmethod
    def parse(cls, value: Any, *, where: str) -> Parameter:
        """Parse a type's name, or an object with `type` and other fields."""
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
        """Check a value."""
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
    """A template to store."""

    name: str
    parameters: dict[str, Parameter]
    job: dict[str, Any]  # a request to create one, with parameters and without a name
    description: str = ""

    @classmethod
    def parse(cls, value: Any) -> NewTemplate:
        """Parse an object with `name`, `parameters` and `job`."""
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
        """Return the stored text, without the name."""
        said = {
            "description": self.description,
            "parameters": msgspec.to_builtins(self.parameters),
            "job": self.job,
        }
        return payload.encode(said, what="template")

    @classmethod
    def from_json(cls, name: str, text: str) -> NewTemplate:
        """Parse the output of to_json."""
        return cls.parse({"name": name, **payload.decode(text)})

    def job_with(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a job with these parameters."""
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
    """A stored template."""

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
    """Reject parameters in command lines and SQL, where a value could be executed."""
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
    """Return the path and the value of a field of a kind's settings, or of their short form."""
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
    """Return the error for an unexpected current version."""
    return VersionConflict(
        f"{what} {shown(name)} is at version {at}, not {expect}; read it again, then decide again",
        version=at,
    )


class Declared(Protocol):
    """The content of a record."""

    @property
    def name(self) -> str: ...

    def to_json(self) -> str: ...


NewT = TypeVar("NewT", bound=Declared)
StoredT = TypeVar("StoredT")


@dataclass(frozen=True, kw_only=True)
class RecordKind(Generic[NewT, StoredT]):
    """A kind of records that a tenant keeps by name, with a version that rises with each change."""

    table: str
    what: str  # in errors
    error: type[NotFound]
    read: Callable[[str, str], NewT]  # a name, and the text that `to_json` returned
    make: Callable[..., StoredT]
    field: str  # of `make`: the content
    most: int | None = None  # records of a tenant

    def stored(
        self,
        tenant: str,
        name: str,
        definition: str,
        version: int,
        created_at: Instant,
        updated_at: Instant,
        author: str,
    ) -> StoredT:
        """Make a record of a row."""
        return self.make(
            **{self.field: self.read(name, definition)},
            tenant=tenant,
            version=version,
            created_at=created_at,
            updated_at=updated_at,
            author=author,
        )

    def missing(self, name: str) -> NotFound:
        return self.error(f"no {self.what} named {shown(name)}")

    def conflict(self, name: str, *, at: int, expect: int) -> VersionConflict:
        return version_conflict(name, at=at, expect=expect, what=self.what)

    def check_count(self, count: int) -> None:
        """Refuse a new record of a tenant that has `count` records."""
        if self.most is not None and count >= self.most:
            raise UsageError(f"a tenant has at most {self.most:,} {self.what}s; delete some first")

    def next_version(
        self, name: str, *, at: int, kept: str | None, text: str, expect: int | None
    ) -> int:
        """Return the version after storing `text`; the current one if nothing changes. `at` is 0
        for a new record.
        """
        if expect == 0 and at:
            raise DuplicateKey(
                f"there is already a {self.what} named {shown(name)}; take another name"
            )
        if expect is not None and at != expect:
            raise self.conflict(name, at=at, expect=expect)
        is_same = kept is not None and (kept == text or _in_order(kept) == _in_order(text))
        return at if is_same else at + 1


TEMPLATES: Final = RecordKind[NewTemplate, Template](
    table="template",
    what="template",
    error=TemplateNotFound,
    read=NewTemplate.from_json,
    make=Template,
    field="template",
)


def _in_order(text: str) -> bytes:
    """Return the JSON with sorted keys."""
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
