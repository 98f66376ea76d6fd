"""What comes back to an HTTP job, and as much of it as is kept."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterable, Callable, Sequence
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from typing import Any, Final

import msgspec

from daybell.core import payload
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import (
    HTTP_BODY_BYTES_MAX,
    PAYLOAD_DEPTH_MAX,
    RETRY_AFTER_SECONDS_MAX,
)
from daybell.core.masking import CUT_CHARS
from daybell.errors import PayloadError

# Packed, what is kept does not take as much in honest hands.
RAW_BYTES_MAX: Final = 2 * HTTP_BODY_BYTES_MAX
KEPT_HEADERS: Final = (
    "content-type", "content-length", "etag", "last-modified", "location", "retry-after",
    "x-request-id", "x-correlation-id",
)  # fmt: skip
_HEADER_CHARS_KEPT: Final = 1_000
_EXCERPT_CHARS: Final = 500
_RETRIED: Final = frozenset({408, 425, 429})
_GZIP: Final = zlib.MAX_WBITS | 16
_PACKINGS: Final = frozenset({"gzip", "x-gzip"})
_DATE_CHARS_MAX: Final = 64
# Not whatever Python knows: some of its codecs take minutes for a text that is made for it.
_CHARSETS: Final = frozenset(
    {"utf-8", "utf8", "us-ascii", "iso-8859-1", "latin-1", "iso-8859-15", "windows-1252", "utf-16"}
)
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w-]{1,20})", re.ASCII)
_BETWEEN_WORDS: Final = frozenset(" \t\r\n\f\v\"'<>,;&=")
_DIGITS: Final = re.compile(r"[0-9]+")


class Answer(msgspec.Struct, kw_only=True):
    """An answer as far as it has come."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    is_whole: bool = False
    left_out: str | None = None  # why the body is not kept
    problem: str | None = None  # what is wrong with it
    mask: Callable[[str], str] = str  # of secrets, before something is cut
    has_secrets: bool = False  # in what was sent

    @classmethod
    def of(
        cls,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        mask: Callable[[str], str] = str,
        has_secrets: bool = False,
    ) -> Answer:
        """The beginning of one. Of a header that comes twice, the first counts."""
        said: dict[str, str] = {}
        for name, value in headers:
            said.setdefault(name.decode(errors="replace").lower(), value.decode(errors="replace"))
        return cls(status=status, headers=said, mask=mask, has_secrets=has_secrets)

    @property
    def words(self) -> str:
        """The status with its meaning: `404 Not Found`."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def size(self) -> str:
        """How much came of the body."""
        counted = f"{len(self.body):,} bytes"
        return counted if self.is_whole else f"more than {counted}"

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered otherwise later."""
        return self.status >= 500 or self.status in _RETRIED

    @property
    def text(self) -> str:
        """The body as text, whatever it is."""
        named = _CHARSET.search(self.headers.get("content-type", "").lower())
        charset = named[1] if named and named[1] in _CHARSETS else "utf-8"
        text = self.body.decode(charset, errors="replace")
        if self.is_whole:
            return text
        # It may end in the middle of a secret.
        return _without_half_word(self.mask(text)[:-CUT_CHARS] if self.has_secrets else text)

    @property
    def excerpt(self) -> str:
        """How the body begins, for a message."""
        return beginning(self.mask(self.text.strip()), _EXCERPT_CHARS)

    def result(self) -> dict[str, Any]:
        """What is kept of it."""
        kept = {
            name: beginning(self.mask(self.headers[name]), _HEADER_CHARS_KEPT)
            for name in KEPT_HEADERS
            if name in self.headers
        }
        said: dict[str, Any] = {"status": self.status, "headers": kept, "body": self._value()}
        if not self.is_whole:
            said["truncated"] = True
        return said

    def _value(self) -> Any:
        if not self.body:
            return None
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.is_whole and (kind.endswith("+json") or kind in ("application/json", "text/json")):
            try:
                # One level is what it is kept in.
                return payload.decode(self.text, what="body", depth_max=PAYLOAD_DEPTH_MAX - 1)
            except PayloadError:
                pass
        return self.text

    def retry_after(self) -> Seconds | None:
        """How long it asks to be left alone; None: it says nothing that makes sense.

        A date is compared with that of the answer, so that nobody's clock has to be right.
        """
        said = self.headers.get("retry-after", "").strip()
        if _DIGITS.fullmatch(said):
            seconds = float(said)
        else:
            until, now = _instant(said), _instant(self.headers.get("date", ""))
            if until is None or now is None:
                return None
            seconds = until - now
        return min(seconds, RETRY_AFTER_SECONDS_MAX) if seconds > 0 else None

    async def read(self, parts: AsyncIterable[bytes]) -> None:
        """Read the body, as much as is kept. The caller ends the connection."""
        packing = self.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "") and packing not in _PACKINGS:
            self.left_out = f"it is encoded as {packing[:40]}, which is not known here"
            return
        body = _Body(is_packed=packing in _PACKINGS)
        try:
            async for part in parts:
                body.add(part)
                if body.is_full or body.is_complete:
                    break
            else:
                self.problem = "it ends too early" if body.is_begun else None
        except zlib.error:
            self.problem = f"it is not the {packing} that it says"
        finally:  # what has come before the time was up is worth showing, too
            self.body = bytes(body.kept[:HTTP_BODY_BYTES_MAX])
        self.is_whole = not body.is_full and self.problem is None


class _Body:
    """A body while it comes. It never takes more room than is kept, and one part of it."""

    def __init__(self, *, is_packed: bool) -> None:
        self.kept = bytearray()
        self._came = 0
        self._unpack = zlib.decompressobj(_GZIP) if is_packed else None

    @property
    def is_full(self) -> bool:
        """Whether there is more than is kept; packed, it may be without end and come to nothing."""
        return len(self.kept) > HTTP_BODY_BYTES_MAX or self._came > RAW_BYTES_MAX

    @property
    def is_complete(self) -> bool:
        """Whether it has said itself that this was all."""
        return self._unpack is not None and self._unpack.eof

    @property
    def is_begun(self) -> bool:
        """Whether it should go on."""
        return self._unpack is not None and self._came > 0 and not self._unpack.eof

    def add(self, part: bytes) -> None:
        """Take what has come. Raises zlib.error."""
        self._came += len(part)
        room = HTTP_BODY_BYTES_MAX + 1 - len(self.kept)
        if self._unpack is None:
            self.kept += part[:room]
        elif room > 0:  # none would be taken for as much as there is
            self.kept += self._unpack.decompress(part, room)


def beginning(text: str, chars_max: int) -> str:
    """A text as it begins, in whole words."""
    if len(text) <= chars_max:
        return text
    return f"{_without_half_word(text[:chars_max])}…"


def _without_half_word(text: str) -> str:
    """A text that was cut, without the word at the cut, however long it is."""
    end = len(text)
    while end and text[end - 1] not in _BETWEEN_WORDS:
        end -= 1
    return text[:end]


def _instant(text: str) -> Instant | None:
    """Read a date as HTTP writes it."""
    parts = parsedate_tz(text[:_DATE_CHARS_MAX])
    if parts is None:
        return None
    try:
        return float(mktime_tz(parts))
    except (ValueError, OverflowError):
        return None
