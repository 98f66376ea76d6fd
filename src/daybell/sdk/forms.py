"""The ways in which a secret may be written: escaped, quoted, encoded, and line by line."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from daybell.core.limits import SECRET_CHARS_MIN

LINE_CHARS_MIN: Final = 8  # a line of a longer value; shorter ones are in other texts as well
ENCODED_CHARS_MIN: Final = 8
# Of long forms, pieces are looked for: nothing that is compared is longer. They overlap, so that
# all of them together are one place in a text.
PIECE_CHARS: Final = 512
PIECES_OVERLAP: Final = 8

_HEX: Final = re.compile(r"%[0-9A-F]{2}")
_HOST_CHARS_MAX: Final = 63


def forms_of(value: str) -> set[str]:
    """A value in the ways that it may be written; long ones in pieces."""
    forms = _written(value) | _written(value.strip())
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        for line in lines:
            if len(line) >= LINE_CHARS_MIN:
                forms |= _written(line)
        # As an environment or a form of a web page may have changed it.
        forms |= {value.replace("\r\n", "\n"), value.replace("\n", "\r\n")}
    return {piece for form in forms for piece in _pieces(form) if len(piece) >= SECRET_CHARS_MIN}


def _pieces(form: str) -> Iterator[str]:
    last = len(form) - PIECE_CHARS
    for at in range(0, last, PIECE_CHARS - PIECES_OVERLAP):
        yield form[at : at + PIECE_CHARS]
    yield form[max(last, 0) :]


def _written(value: str) -> set[str]:
    quoted = {quote(value, safe=""), quote(value), quote_plus(value)}
    return {
        value,
        *_in_json(value),
        repr(value)[1:-1],
        ascii(value)[1:-1],
        *quoted,
        *(_HEX.sub(lambda found: found[0].lower(), one) for one in quoted),
        *_in_base64(value.encode()),
        *_in_html(value),
        *_as_host(value),
    }


def _in_json(value: str) -> set[str]:
    """As it is in JSON, and in a text in JSON that is JSON itself: an answer that repeats a
    request.
    """
    once = {json.dumps(value)[1:-1], msgspec.json.encode(value).decode()[1:-1]}
    return once.union(
        *({json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]} for one in once)
    )


def _in_base64(raw: bytes) -> Iterator[str]:
    """What base64 makes of it, wherever in a longer text it stands: of that, what is its own."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            encoded = encode(bytes(before) + raw).decode()
            first = -(-8 * before // 6)
            own = encoded[first : (8 * before + 8 * len(raw)) // 6]
            if len(own) >= ENCODED_CHARS_MIN:
                yield own
        yield encode(raw).decode()


def _in_html(value: str) -> Iterator[str]:
    """As pages show it: programs do not agree on how to write quotes."""
    yield html.escape(value, quote=False)
    escaped = html.escape(value)
    for single in ("&#x27;", "&#39;", "&apos;"):
        for double in ("&quot;", "&#34;"):
            yield escaped.replace("&#x27;", single).replace("&quot;", double)


def _as_host(value: str) -> Iterator[str]:
    """As the name of a host comes back: in small letters, and in ASCII."""
    yield value.lower()
    yield value.casefold()
    if not value.isascii() and len(value) <= _HOST_CHARS_MAX:
        try:
            yield value.lower().encode("idna").decode()
        except UnicodeError:
            return  # no host has such a name
