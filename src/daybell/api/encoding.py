"""Responses as JSON: encode content, pages and created objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Response

from daybell.core.limits import PAGE_BYTES_MAX
from daybell.core.views import Page

T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()


def encode(content: Any) -> bytes:
    """JSON of what an answer says."""
    try:
        return _encoder.encode(content)
    except UnicodeEncodeError:
        # Half a surrogate pair, in arguments that somebody sent so. Only escapes can carry it.
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_json(
    content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer with JSON in it."""
    return Response(
        encode(content),
        status_code=status,
        headers=None if headers is None else dict(headers),
        media_type="application/json",
    )


def answer_page(
    page: Page[T], items: Iterable[Mapping[str, Any]], *, cursor: Callable[[T], str]
) -> Response:
    """An answer with a page of a list, `items` as JSON. It ends before the first item with which it
    would have more than PAGE_BYTES_MAX bytes.
    """
    parts: list[bytes] = []
    more, left = page.next_cursor, PAGE_BYTES_MAX - 1_100  # what is around them, and the cursor
    for one in items:
        part = encode(one)
        left -= len(part) + 1
        if parts and left < 0:
            more = cursor(page.items[len(parts) - 1])
            break
        parts.append(part)
    body = b'{"items":[%b],"next_cursor":%b}' % (b",".join(parts), encode(more))
    return Response(body, media_type="application/json")


def answer_created(
    content: Any, *, location: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a creation: where it is now."""
    return answer_json(content, status=201, headers={"Location": location, **(headers or {})})
