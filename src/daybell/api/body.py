"""What a request says: JSON by the rules of core/payload.py, then a model with all its checks."""

from __future__ import annotations

import json
import types
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar, cast, get_args

import msgspec
from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from daybell.api.checks import is_json, is_text
from daybell.api.problems import ERRORS_MAX, Invalid, Unsupported
from daybell.api.wording import joined, worded
from daybell.core import payload
from daybell.core.limits import PAYLOAD_DEPTH_MAX, REQUEST_BYTES_MAX
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
    return model() if optional and not raw else checked(read_json(raw), model)


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
def give_way() -> Generator[None]:
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
    if may_have_twice(raw, value):
        refuse_twice(raw)
    return value


def may_have_twice(raw: bytes, value: Any) -> bool:
    """Whether a key may come twice in what a value was read from.

    Colons are counted instead of keys: a walk in Python would cost more than all the rest. One that
    was escaped makes the two differ, and then somebody has to look more closely.
    """
    return raw.count(b":") != _colons(value) or b"\\u003" in raw


_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
}


def checked(value: Any, model: type[M]) -> M:
    """A value as a model."""
    if not isinstance(value, dict):
        kind = _KINDS.get(cast("type[object]", type(value)), "no object")
        raise PayloadError(f"the body is {kind}; send a JSON object, such as {{}}", field="body")
    given = cast("dict[str, Any]", value)
    if len(given) > FIELDS_MAX:
        raise PayloadError(f"the body has {len(given):,} fields; no body has so many", field="body")
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
        message = worded(one)
        if one["type"] == "extra_forbidden":
            message = _unknown(str(one["loc"][-1]), _model_at(one["loc"][:-1], model))
        path = one.get("ctx", {}).get("field") or _path(one["loc"])
        # Of a choice between types, each says why not: together they are one complaint.
        found.setdefault(path, []).append(message)
        if len(found) >= ERRORS_MAX:
            break
    return [(path, joined(messages)) for path, messages in found.items()]


def _model_at(parts: Sequence[str | int], model: type[Body]) -> type[Body]:
    """The model of the object that is there in the body."""
    for part in parts:
        field = model.model_fields.get(str(part))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Body))
        model = next(inner, model)
    return model


def _path(parts: Sequence[str | int]) -> str:
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


def _unknown(name: str, model: type[Body]) -> str:
    if name in model.fixed:
        return model.fixed[name]
    known = sorted(field.alias or key for key, field in model.model_fields.items())
    if not known:
        return f"there is no field {shown(name)}; it takes no fields"
    return f"there is no field {shown(name)}; {suggested(name, known)}"


def _colons(value: Any) -> int:
    try:
        return msgspec.json.encode(value).count(b":")
    except UnicodeEncodeError:
        return -1


def refuse_twice(raw: bytes) -> None:
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
