"""Templates: jobs with blanks, which are filled in by name and checked by type.

What a template says of a job is what a request to create one says, with `{"parameter": "NAME"}`
where a value goes. A job is made from it once: it is what it was then, whatever the template says
later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from daybell.core import payload
from daybell.core.instant import Instant
from daybell.core.kinds.reading import read_fields
from daybell.core.limits import DESCRIPTION_CHARS_MAX, PARAMETERS_MAX, check_name
from daybell.core.references import filled, is_reference, names_in, reference
from daybell.errors import UsageError, shown

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
        return cast("dict[str, Any]", filled(self.job, "parameter", values.__getitem__))


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
