"""Requests: JSON bodies, rules for their values, and the query parameters of lists."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from daybell.api.caller import (
    Invalid,
    Unsupported,
    answer_page,
)
from daybell.api.guard import is_json, is_text
from daybell.api.validation import Findings, read_struct
from daybell.core import payload
from daybell.core.limits import (
    PAYLOAD_DEPTH_MAX,
    REQUEST_BYTES_MAX,
)
from daybell.core.views import Page
from daybell.errors import PayloadError, PayloadTooLarge, UsageError, shown

WRAPPING_LEVELS: Final = 2  # a list of objects that have arguments, which have a limit of their own
FIELDS_MAX: Final = 200  # far more than any body has; each unknown one costs a complaint


M = TypeVar("M")


async def read_bytes(
    request: Request, *, bytes_max: int = REQUEST_BYTES_MAX, takes_text: bool = False
) -> bytes:
    """The body as it was sent, if it says that it is JSON.

    With `takes_text`, text is accepted too, and a body without a type, which the caller reads as
    JSON.
    """
    raw = await receive_body(request)
    if len(raw) > bytes_max:
        raise PayloadTooLarge(f"the body has {len(raw):,} bytes; the limit is {bytes_max:,}")
    kind = read_header(request, b"content-type") or ""
    if raw and not is_json(kind) and not (takes_text and (not kind or is_text(kind))):
        and_text = " and text in UTF-8" if takes_text else ""
        raise Unsupported(f"Content-Type is {shown(kind)}; this takes application/json{and_text}")
    return raw


async def receive_body(request: Request) -> bytes:
    """The body as it was sent."""
    parts: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def read_header(request: Request, name: bytes) -> str | None:
    """A header, the first if it comes twice; `name` is in lower case."""
    for key, value in request.scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


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
    """Return a body as a struct. All errors are reported at once."""
    wrong: Findings = []
    read = read_struct(model, read_object(value), wrong)
    if read is None:
        raise Invalid(wrong)
    return read


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


# Pages of lists that a store answers as a whole.

S = TypeVar("S", bound=msgspec.Struct)


def answer_list(
    found: Iterable[S],
    *,
    key: Callable[[S], Any],
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
    return answer_page(listed, cursor=lambda one: write(key(one)))


def _read_cursor(cursor: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(cursor)
    except ValueError:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        ) from None
