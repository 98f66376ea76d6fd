"""What requests may say of a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from daybell.api.body import Body
from daybell.api.kind_schema import Described, Shown
from daybell.api.rules import Text, by
from daybell.client.templates import read_template
from daybell.core.limits import DESCRIPTION_CHARS_MAX, PARAMETERS_MAX, check_name

TemplateName = Annotated[
    str,
    by(lambda value: check_name(value, what="template")),
    Field(description="By which jobs name it.", examples=["backup"]),
]


class TemplateParameter(Shown):
    """A blank, and what may be put into it."""

    type: Literal["string", "integer", "number", "boolean", "array", "object", "secret"] = Field(
        "string", description="What it has to be; `secret` is a reference to one."
    )
    description: str = Field("", description="For people.")
    default: Any = Field(None, description="Without one it must be given.")
    choices: list[Any] = Field([], description="Nothing else, if there are any.")
    minimum: float | None = Field(None, description="Of a number; of a text or a list: its size.")
    maximum: float | None = Field(None, description="Of a number; of a text or a list: its size.")


class TemplateFields(Body):
    """What a template says."""

    description: (
        Annotated[Text, Field(max_length=DESCRIPTION_CHARS_MAX, description="For people.")] | None
    ) = None
    parameters: (
        Annotated[
            dict[str, Any],
            Described(dict[str, str | TemplateParameter]),
            Field(
                max_length=PARAMETERS_MAX,
                description="The blanks by name: a type, or an object with `type` and more.",
            ),
        ]
        | None
    ) = None
    job: Annotated[
        dict[str, Any],
        Field(
            description="As in a request to create a job, without a name, and with"
            ' `{"parameter": "NAME"}` where a value goes.'
        ),
    ]

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        known = {name: given[name] for name in cls.model_fields if given.get(name) is not None}
        if isinstance(known.get("job"), Mapping):  # else that is told
            read_template({"name": "template", **known})

    def said(self) -> dict[str, Any]:
        """What was said, as the client takes it."""
        return self.model_dump(exclude_none=True)


class NewTemplate(TemplateFields):
    """A template to be created."""

    name: TemplateName


class DeclaredTemplate(TemplateFields):
    """All that a template is."""

    name: TemplateName | None = None
