"""Answers as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Response

_encoder: Final = msgspec.json.Encoder()


def encode(content: Any) -> bytes:
    """JSON of what an answer says."""
    try:
        return _encoder.encode(content)
    except UnicodeEncodeError:
        # Half a surrogate pair, in arguments that somebody sent so. Only escapes can carry it.
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer(
    content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer with JSON in it."""
    return Response(
        encode(content),
        status_code=status,
        headers=None if headers is None else dict(headers),
        media_type="application/json",
    )


def created(content: Any, *, location: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a creation: where it is now."""
    return answer(content, status=201, headers={"Location": location, **(headers or {})})
