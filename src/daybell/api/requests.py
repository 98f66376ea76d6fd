"""Requests: JSON bodies, rules for their values, and the query parameters of lists."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, get_args

import msgspec
from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from daybell.api.caller import (
    ERRORS_MAX,
    Invalid,
    Unsupported,
    answer_page,
    describe_finding,
    join_findings,
)
from daybell.api.guard import is_json, is_text
from daybell.client.requests import ARGS_PREFIX, Filters, read_bound, read_id, read_time
from daybell.core import payload
from daybell.core.execution import Priority, State
from daybell.core.job import MANUAL, PAUSED
from daybell.core.limits import (
    PAGE_ITEMS_MAX,
    PAYLOAD_DEPTH_MAX,
    REQUEST_BYTES_MAX,
    SEARCH_ARGS_MAX,
    SEARCH_CHARS_MAX,
    check_key,
    check_name,
)
from daybell.core.units import parse_delay, parse_duration, parse_limit
from daybell.core.views import Page
from daybell.errors import PayloadError, PayloadTooLarge, UsageError, shown, suggested

NOT_YET: Final = "not available yet"
WRAPPING_LEVELS: Final = 2  # a list of objects that have arguments, which have a limit of their own
FIELDS_MAX: Final = 200  # far more than any body has; each unknown one costs a complaint


class Body(BaseModel):
    """What all bodies have in common: nothing unknown is passed over, and nothing is guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Fields of features that are not built yet: refused by name, never passed over.
    later: ClassVar[Mapping[str, str]] = {}
    # Fields that were said once and for all, and what to do instead of changing them.
    fixed: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def check(cls, given: Mapping[str, Any]) -> None:
        """Raise UsageError for what is wrong with the fields together, whatever is in each."""


M = TypeVar("M", bound=Body)


async def read_body(request: Request, model: type[M], *, optional: bool = False) -> M:
    """The body as a model. All that is wrong with it is told at once."""
    raw = await read_bytes(request)
    return model() if optional and not raw else validate_body(read_json(raw), model)


async def read_bytes(
    request: Request, *, bytes_max: int = REQUEST_BYTES_MAX, takes_text: bool = False
) -> bytes:
    """The body as it was sent, if it says that it is JSON.

    With `takes_text`, text is accepted too, and a body without a type, which the caller reads as
    JSON.
    """
    raw = await request.body()
    if len(raw) > bytes_max:
        raise PayloadTooLarge(f"the body has {len(raw):,} bytes; the limit is {bytes_max:,}")
    kind = request.headers.get("content-type", "")
    if raw and not is_json(kind) and not (takes_text and (not kind or is_text(kind))):
        and_text = " and text in UTF-8" if takes_text else ""
        raise Unsupported(f"Content-Type is {shown(kind)}; this takes application/json{and_text}")
    return raw


@types.coroutine
def yield_to_loop() -> Generator[None]:
    """Let other requests go on before this one does."""
    yield


def read_json(raw: bytes) -> Any:
    """What JSON says. A key that comes twice in an object is refused: which of them is meant?"""
    if not raw:
        raise PayloadError("the body is empty; send a JSON object", field="body")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise PayloadError("the body is not UTF-8", field="body") from None
    value = payload.decode(text, what="body", depth_max=PAYLOAD_DEPTH_MAX + WRAPPING_LEVELS)
    if may_repeat_keys(raw, value):
        refuse_repeated_keys(raw)
    return value


def may_repeat_keys(raw: bytes, value: Any) -> bool:
    """Whether a key may come twice in what a value was read from.

    Colons are counted instead of keys: a walk in Python would cost more than all the rest. One that
    was escaped makes the two differ, and then somebody has to look more closely.
    """
    return raw.count(b":") != _count_colons(value) or b"\\u003" in raw


_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
}


def read_object(value: Any) -> dict[str, Any]:
    """Return a body that is a JSON object."""
    if not isinstance(value, dict):
        kind = _KINDS.get(cast("type[object]", type(value)), "no object")
        raise PayloadError(f"the body is {kind}; send a JSON object, such as {{}}", field="body")
    given = cast("dict[str, Any]", value)
    if len(given) > FIELDS_MAX:
        raise PayloadError(f"the body has {len(given):,} fields; no body has so many", field="body")
    return given


def validate_body(value: Any, model: type[M]) -> M:
    """A value as a model."""
    given = read_object(value)
    later = [
        (field, f"{NOT_YET}: {model.later[field]}")
        for field in given
        if field in model.later and given[field] is not None
    ]
    rest = {key: one for key, one in given.items() if key not in model.later}
    whole = _complaint_about_all(given, model)
    try:
        read = model.model_validate(rest)
    except ValidationError as error:
        raise Invalid([*later, *_complaints(error, model), *whole]) from None
    if later or whole:
        raise Invalid([*later, *whole])
    return read


def _complaint_about_all(given: Mapping[str, Any], model: type[Body]) -> list[tuple[str, str]]:
    try:
        model.check(given)
    except UsageError as error:
        return [(error.field or "body", str(error))]
    return []


def _complaints(error: ValidationError, model: type[Body]) -> Iterable[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for one in error.errors(include_url=False, include_input=False):
        message = describe_finding(one)
        if one["type"] == "extra_forbidden":
            message = _unknown_field(str(one["loc"][-1]), _model_at(one["loc"][:-1], model))
        path = one.get("ctx", {}).get("field") or _field_path(one["loc"])
        # Of a choice between types, each says why not: together they are one complaint.
        found.setdefault(path, []).append(message)
        if len(found) >= ERRORS_MAX:
            break
    return [(path, join_findings(messages)) for path, messages in found.items()]


def _model_at(parts: Sequence[str | int], model: type[Body]) -> type[Body]:
    """The model of the object that is there in the body."""
    for part in parts:
        field = model.model_fields.get(str(part))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Body))
        model = next(inner, model)
    return model


def _field_path(parts: Sequence[str | int]) -> str:
    """Where in the body: `schedule`, `ids[3]`. What pydantic calls the types of a choice is left
    out: such a part is not in the body.
    """
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not path:
            path = part
        elif part.isidentifier() and part not in _TYPES:
            path += f".{part}"
    return path or "body"


_TYPES: Final = frozenset({"str", "float", "int", "bool", "constrained", "dict", "list"})


def _unknown_field(name: str, model: type[Body]) -> str:
    if name in model.fixed:
        return model.fixed[name]
    known = sorted(field.alias or key for key, field in model.model_fields.items())
    if not known:
        return f"there is no field {shown(name)}; it takes no fields"
    return f"there is no field {shown(name)}; {suggested(name, known)}"


def _count_colons(value: Any) -> int:
    try:
        return msgspec.json.encode(value).count(b":")
    except UnicodeEncodeError:
        return -1


def refuse_repeated_keys(raw: bytes) -> None:
    """Look closely whether a key comes twice in an object. Raises PayloadError if one does."""
    if len(raw) > REQUEST_BYTES_MAX:
        # Only counted: to find the name of one would take seconds.
        if payload.pairs_in(raw) != payload.pairs_in(msgspec.json.encode(msgspec.json.decode(raw))):
            raise PayloadError("there is an object with a key that comes twice", field="body")
        return

    def pairs(found: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in found:
            if name in seen:
                raise PayloadError(f"the key {shown(name)} comes twice in an object", field="body")
            seen.add(name)

    json.loads(raw, object_pairs_hook=pairs)


# The rules that values in requests keep: those of the domain, told in the way of the API.


def validation_error(error: UsageError, *, field: str | None = None) -> PydanticCustomError:
    """A refusal of the domain's. With a field, that is told as its place."""
    said = {"message": str(error)} if field is None else {"message": str(error), "field": field}
    return PydanticCustomError("usage", "{message}", said)


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """Let through what a rule of the domain lets through."""

    def run(value: Any) -> Any:
        try:
            check(value)
        except UsageError as error:
            raise validation_error(error) from None
        return value

    return AfterValidator(run)


def check_plain_text(value: str) -> str:
    """Refuse what not every store can keep in a text."""
    if "\0" in value:
        raise UsageError(f"{shown(value)} contains a NUL character")
    return value


Text = Annotated[str, checked_by(check_plain_text)]
Name = Annotated[str, checked_by(lambda value: check_name(value, what="job"))]
QueueName = Annotated[str, checked_by(lambda value: check_name(value, what="queue"))]
TenantName = Annotated[str, checked_by(lambda value: check_name(value, what="tenant"))]
UniqueKey = Annotated[str, checked_by(check_key)]
Id = Annotated[str, checked_by(read_id), Field(json_schema_extra={"format": "uuid"})]
# The client refuses other words, and names the right ones; these are for the document.
StatusWord = Annotated[str, Field(json_schema_extra={"enum": ["pending", *map(str, State)]})]
JobStatusWord = Annotated[
    str, Field(json_schema_extra={"enum": ["pending", *map(str, State), PAUSED, MANUAL]})
]
Duration = Annotated[
    float | str,
    checked_by(lambda value: parse_duration(value, what="duration")),
    Field(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=["5m"]),
]
Delay = Annotated[
    float | str,
    checked_by(parse_delay),
    Field(
        description='Text such as "90s", "1h30m" or "PT5M"; up to a day, also seconds.',
        examples=["10m"],
    ),
]
TimeLimit = Annotated[
    float | str,
    checked_by(lambda value: parse_limit(value, what="duration")),
    Field(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=[3600]),
]
Time = Annotated[
    str,
    checked_by(lambda value: read_time(value, "time")),
    Field(description="ISO 8601 with an offset.", examples=["2030-12-24T18:00:00+01:00"]),
]
Bound = Annotated[
    str,
    checked_by(lambda value: read_bound(value, "time")),
    Field(description="ISO 8601 with an offset, or a date.", examples=["2026-11-15"]),
]
AgoBound = Annotated[
    str,
    checked_by(lambda value: read_bound(value, "time", now=0.0)),
    Field(
        description='ISO 8601 with an offset, a date, or a length of time: "1h" is an hour ago.',
        examples=["1h", "2026-11-15"],
    ),
]
Searched = Annotated[
    str, checked_by(check_plain_text), Field(min_length=1, max_length=SEARCH_CHARS_MAX)
]
PriorityWord = Annotated[
    str, checked_by(Priority.parse), Field(description="critical, high, normal (or medium), low")
]
Args = Annotated[dict[str, Any], Field(description="What it is called with, by name.")]


# What lists take in their addresses, and pages of those that a store answers as a whole.

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=PAGE_ITEMS_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=1000, description="The next_cursor of the page before.")
]
TextFilter = Annotated[
    Annotated[str, checked_by(check_plain_text), Field(max_length=500)] | None, Query()
]
StatusFilter = Annotated[
    list[StatusWord] | None,
    Query(max_length=20, description="A state, or pending; may be repeated."),
]
JobStatusFilter = Annotated[
    list[JobStatusWord] | None,
    Query(max_length=20, description="What jobs do, or pending; may be repeated."),
]
BoundFilter = Annotated[AgoBound | None, Query()]
JobFilter = Annotated[
    Annotated[str, checked_by(check_plain_text), Field(max_length=500)] | None,
    Query(description="A job's name or id.", examples=["resize"]),
]
WorkerFilter = Annotated[
    Annotated[str, checked_by(check_plain_text), Field(max_length=500)] | None,
    Query(description="A worker's id or name.", examples=["web-1"]),
]
KeyFilter = Annotated[UniqueKey | None, Query(description="Its unique key.", examples=["order-42"])]
ErrorFilter = Annotated[
    Searched | None,
    Query(
        description="The class of its error, also a base class, or a part of its text in any case"
        " of letters. The traceback is not searched.",
        examples=["TimeoutError"],
    ),
]
# Parameters with names of the caller's choice, which the framework has no type for.
ARGS_PARAMETER: Final[dict[str, Any]] = {
    "name": "arg",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`arg.NAME=VALUE`: an argument, by its name or a dotted path; may be repeated"
    " with other names. `42` is the number and the text, `true`, `false` and `null` are both, too.",
    "schema": {
        "type": "object",
        "patternProperties": {
            r"^arg\.[a-z_]+(\.[a-z0-9_]+)*$": {"type": "string", "maxLength": SEARCH_CHARS_MAX}
        },
        "additionalProperties": False,
        "maxProperties": SEARCH_ARGS_MAX,
    },
    "example": {"arg.order_id": "42"},
}


def read_filters(
    request: Request,
    job_id: JobFilter = None,
    job: JobFilter = None,
    worker_id: WorkerFilter = None,
    queue: TextFilter = None,
    since: BoundFilter = None,
    until: BoundFilter = None,
    unique_key: KeyFilter = None,
    error: ErrorFilter = None,
    ended_since: BoundFilter = None,
    ended_until: BoundFilter = None,
) -> Filters:
    """Read the filters that lists of executions share."""
    return {
        "job": choose_job(job, job_id),
        "worker": worker_id,
        "queue": queue,
        "since": since,
        "until": until,
        "unique_key": unique_key,
        "error": error,
        "ended_since": ended_since,
        "ended_until": ended_until,
        "args": _read_args(request),
    }


ListFilters = Annotated[Filters, Depends(read_filters)]


def choose_job(job: str | None, job_id: str | None) -> str | None:
    """Return the job that is given under one of two names."""
    if job is not None and job_id is not None and job != job_id:
        raise UsageError("job and job_id are two names for the same; give one", field="job")
    return job_id if job is None else job


def _read_args(request: Request) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.startswith(ARGS_PREFIX):
            if name in given:
                raise UsageError(f"{shown(name)} is given twice; give it once", field=name)
            given[name] = check_plain_text(value)
    return {name.removeprefix(ARGS_PREFIX): value for name, value in given.items()}


def answer_list(
    found: Iterable[T],
    told: Callable[[T], msgspec.Struct],
    *,
    key: Callable[[T], Any],
    limit: int,
    cursor: str | None,
    read: Callable[[str], Any] = str,
    write: Callable[[Any], str] = str,
    newest_first: bool = False,
) -> Response:
    """An answer with a page of a list, in the order of a key that is unique and constant.

    The cursor is the key of the last one, as `write` makes it text: so a page goes on at the right
    place even if that one is gone.
    """
    ordered = sorted(found, key=key, reverse=newest_first)
    if cursor is not None:
        last = _read_cursor(cursor, read)
        ordered = [one for one in ordered if (key(one) < last if newest_first else key(one) > last)]
    page = ordered[:limit]
    more = len(ordered) > limit
    listed = Page(items=tuple(page), next_cursor=write(key(page[-1])) if more else None)
    return answer_page(listed, map(told, page), cursor=lambda one: write(key(one)))


def _read_cursor(cursor: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(cursor)
    except ValueError:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        ) from None
