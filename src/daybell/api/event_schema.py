"""What requests and answers about events say, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from daybell.api.body import Body
from daybell.api.rules import Id, Name, Text, Time, by
from daybell.core.event import check_words
from daybell.core.limits import (
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
)

NOTE_CHARS_MAX: Final = 2_000
SPEC: Final = "1.0"


def _words(what: str, chars_max: int) -> Any:
    return by(lambda value: check_words(value, what=what, field=what, chars_max=chars_max))


EventId = Annotated[str, _words("id", EVENT_ID_CHARS_MAX)]
EventSource = Annotated[str, _words("source", EVENT_SOURCE_CHARS_MAX)]
EventName = Annotated[str, _words("type", EVENT_NAME_CHARS_MAX)]


class CloudEvent(Body):
    """An event, as CloudEvents 1.0 has it in JSON. `id` and `source` name it: one that is sent
    twice counts once.
    """

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[EventId, Field(description="Left out: a new one.")] | None = None
    source: Annotated[EventSource, Field(description="Left out: daybell.")] | None = None
    type: Annotated[EventName, Field(description="Its name, which is waited for.")]
    time: Time | None = None
    subject: Annotated[Text, Field(description="Taken, and not kept.")] | None = None
    dataschema: Annotated[Text, Field(description="Taken, and not kept.")] | None = None
    datacontenttype: Annotated[Text, Field(examples=["application/json"])] | None = None
    data: Annotated[Any, Field(description="Any JSON.")] = None


class Signal(Body):
    """An event for one execution alone."""

    name: EventName
    data: Annotated[Any, Field(description="Any JSON.")] = None


class Decision(Body):
    """What a person has decided. Who they are is known by their key."""

    name: Annotated[Name, Field(description="As `wait_for_approval` names it.")] = "approval"
    approved: bool = True
    note: Annotated[Text, Field(max_length=NOTE_CHARS_MAX)] | None = None


class Published(BaseModel):
    """The answer to an event."""

    event_id: str
    created: bool = Field(description="False: it was on record already, and nothing was done.")
    resumed: int = Field(description="How many executions waited for it.")
    execution_id: Id | None = Field(description="Who it is for, if for one alone.")
    node: str | None = Field(
        description="The node of a workflow's run that it was passed on to, if sent to the run."
    )


class KeptEvent(BaseModel):
    """An event on record."""

    id: str
    source: str
    type: str
    data: Any
    time: str | None
    received_at: str
    execution_id: Id | None = Field(description="Only for this one: a signal.")


class EventPage(BaseModel):
    """A page of events, those that came last first."""

    items: list[KeptEvent]
    next_cursor: str | None


class Step(BaseModel):
    """What a durable function has done at one place in the order of its calls."""

    n: int
    name: str
    kind: Literal["step", "sleep", "wait", "now"]
    status: Literal["done", "failed", "sleeping", "waiting", "timed_out"]
    failures: int
    started_at: str
    finished_at: str | None
    wake_at: str | None = Field(description="When a sleep, or the time for an event, is over.")
    result: Any
    is_result_left_out: bool
    error: Any
