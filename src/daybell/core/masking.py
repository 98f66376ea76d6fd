"""Masking of secrets in the output of an execution.

Callers see the output and can influence a part of it with arguments. So the output must not reveal
if such a text is a secret. ADR 0022 has the rules:

- An execution masks the values that it opened itself, and none of another execution.
- A value is compared as a whole, never its beginning or end. Code that cuts a text masks it first,
  and then drops `CUT_CHARS` at the cut.
- Text that the execution received as input stays, even if it equals a secret.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, quote_plus

import msgspec

from daybell.core import payload

MASK: Final = "***"
WITHHELD: Final = "(withheld)"  # replaces a line with a setting of the worker

FORM_CHARS_MIN: Final = 4  # shorter forms occur in other words
WORD_CHARS_MIN: Final = 8  # for a line of a longer value, and a base64 form
# A long value is searched in overlapping pieces, each as a whole; their matches join to one.
PIECE_CHARS: Final = 256
PIECES_OVERLAP: Final = 8
CUT_CHARS: Final = 4_096  # no form of a piece is longer
VALUES_REMEMBERED: Final = 1_000
FEW_FORMS: Final = 500  # limit for comparing each form with all others
GIVEN_CHARS_LARGE: Final = 4_096
SEARCHED_CHARS_MAX: Final = 50_000_000  # compared with `in`: a few hundredths of a second

_HEX: Final = re.compile(r"%[0-9A-F]{2}")
_HOST_CHARS_MAX: Final = 63
_NOISE: Final = re.compile(r"[\W_]+")
_ASCII_NOISE: Final = {code: None for code in range(128) if not chr(code).isalnum()}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.S)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"\s*:')


class MaskPart(NamedTuple):
    """A piece of a value, or a line of it, in all its written forms."""

    forms: tuple[str, ...]
    letters: tuple[str, ...]  # letters and digits of the forms
    bare: tuple[str, ...]  # forms with too few letters


class Given:
    """The input of an execution, as JSON: a caller may have chosen it.

    A task may rewrite it. So case, blanks, punctuation and borders between values do not count.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text

    @cached_property
    def plain(self) -> str:
        """The text without JSON escapes."""
        if "\\" not in self.text:
            return self.text
        plain = _ESCAPE.sub(_unescape, self.text)
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    @cached_property
    def letters(self) -> str:
        # Keys are removed in the JSON text: in the plain text a quote may be part of a key.
        values = Given(_KEY.sub("", self.text)).plain
        return f"{_letters(self.plain)}\0{_letters(values)}"

    def covers(self, parts: Sequence[MaskPart]) -> set[MaskPart]:
        """Return the parts of values that may come from the input."""
        letters = {one for part in parts for one in part.letters}
        letters = _search(letters, self.letters, WORD_CHARS_MIN)
        bare = {form for part in parts for form in part.bare}
        bare = _search(bare, f"{self.plain}\0{self.text}", FORM_CHARS_MIN)
        return {
            part
            for part in parts
            if not letters.isdisjoint(part.letters) or not bare.isdisjoint(part.bare)
        }


def _unescape(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2])


def _search(wanted: set[str], text: str, size: int) -> set[str]:
    """Return the words that occur in a text. Each has at least `size` characters.

    A caller chooses the text, so with many words it is read once for all of them.
    """
    if len(wanted) * len(text) <= SEARCHED_CHARS_MAX:
        return {word for word in wanted if word in text}
    words: dict[str, list[str]] = {}
    for word in wanted:
        words.setdefault(word[:size], []).append(word)
    found: set[str] = set()
    for at in range(len(text) - size + 1):
        if near := words.get(text[at : at + size]):
            found.update(word for word in near if text.startswith(word, at))
    return found


class Masks:
    """Parts of values to mask, each compared as a whole."""

    def __init__(self, parts: Sequence[MaskPart] = ()) -> None:
        self.parts: Final = parts
        self.forms: Final = frozenset(form for part in parts for form in part.forms)
        self.probes = list(self.forms)  # a text with a form contains at least one of these

    @cached_property
    def chars_min(self) -> int:
        """The length of the shortest probe; 0 if there is none."""
        return min(map(len, self.probes), default=0)

    @staticmethod
    @lru_cache(VALUES_REMEMBERED)
    def of(values: frozenset[str]) -> Masks:
        """Return the masks of some values."""
        parts = dict.fromkeys(part for value in sorted(values) for part in parts_of(value))
        masks = Masks(tuple(parts))
        if len(masks.forms) <= FEW_FORMS:
            masks.probes = _shortest(masks.forms)
        return masks

    def without(self, given: Given) -> Masks:
        """Return the masks without parts of the input."""
        given_parts = given.covers(self.parts)
        if not given_parts:
            return self
        return Masks([part for part in self.parts if part not in given_parts])

    def __bool__(self) -> bool:
        return bool(self.probes)

    def find(self, text: str) -> list[str]:
        """Return the forms that occur in a text."""
        if any(probe in text for probe in self.probes):
            return [form for form in self.forms if form in text]
        return []

    def __call__(self, text: str) -> str:
        """Return the text with masks."""
        found = self.find(text)
        return mask_forms(text, found) if found else text


def _shortest(forms: Iterable[str]) -> list[str]:
    """Return the forms that contain no other form."""
    found: list[str] = []
    for one in sorted(forms, key=len):
        if not any(known in one for known in found):
            found.append(one)
    return found


def mask_forms(text: str, forms: Iterable[str]) -> str:
    """Replace each occurrence of a form with a mask, and overlapping ones with one mask."""
    shown: list[str] = []
    done = 0
    for start, end in sorted(place for form in forms for place in _places(text, form)):
        if start >= done:
            shown += (text[done:start], MASK)
        done = max(done, end)
    return "".join(shown) + text[done:]


def _places(text: str, form: str) -> Iterator[tuple[int, int]]:
    start = text.find(form)
    while start >= 0:
        end = start + len(form)
        # Join overlapping occurrences: there could be one per character.
        following = text.find(form, start + 1)
        while 0 <= following < end:
            end = following + len(form)
            following = text.find(form, following + 1)
        yield start, end
        start = following


NO_MASKS: Final = Masks()


class ExecutionMask:
    """Removes from the output of one execution the secrets that it opened, and lines with settings
    of its worker. `report` is called when the first line is withheld.
    """

    def __init__(self, settings: Masks, given: str, report: Callable[[], object]) -> None:
        self.secrets = NO_MASKS
        self._settings = settings
        self._given = Given(given)
        self._report = report
        self._is_reported = False
        self._opened: frozenset[str] = frozenset()
        # A right guess must not take longer than a wrong one, which a large input would reveal.
        if len(given) >= GIVEN_CHARS_LARGE:
            self._settings = settings.without(self._given)
        self._gather()

    def _gather(self) -> None:
        if not self.secrets:  # the common case
            self._probes, self._chars_min = self._settings.probes, self._settings.chars_min
            return
        self._probes = [*self.secrets.probes, *self._settings.probes]
        self._chars_min = min(map(len, self._probes), default=0)

    def open(self, values: Iterable[str]) -> None:
        """Mask these values from now on."""
        self._opened |= frozenset(values)
        self.secrets = Masks.of(self._opened).without(self._given)
        self._gather()

    def give(self, text: str) -> None:
        """Leave this text unmasked, too: the execution received it while it ran."""
        self._given = Given(f"{self._given.text}\n{text}")
        self.secrets = self.secrets.without(self._given)
        self._gather()

    def __call__(self, text: str) -> str:
        """Return the text without secrets and settings. Most texts contain none."""
        return self._mask(text) if self._may_be_in(text) else text

    def _may_be_in(self, text: str) -> bool:
        if len(text) >= self._chars_min:
            for probe in self._probes:
                if probe in text:
                    return True
        return False

    def _mask(self, text: str) -> str:
        masked = self.secrets(text)
        found = self._find_settings(masked)
        if not found:
            return masked
        if not self._is_reported:
            self._is_reported = True
            self._report()
        return "\n".join(
            WITHHELD if any(form in line for form in found) else line for line in masked.split("\n")
        )

    def in_json(self, text: str) -> str:
        """Return JSON with masks in texts and keys, and for numbers that equal a value."""
        # Without escapes, a search in the JSON text finds everything.
        if not self._probes or ("\\" not in text and not self._is_in(text)):
            return text
        masked = self._inside(payload.decode(text))
        return payload.encode(masked, what="result", bytes_max=2 * len(text.encode()) + 100)

    def _is_in(self, text: str) -> bool:
        if not self._may_be_in(text):
            return False
        return bool(self.secrets.find(text) or self._find_settings(text))

    def _find_settings(self, text: str) -> list[str]:
        found = self._settings.find(text)
        if found:
            self._settings = self._settings.without(self._given)
            self._gather()
            found = self._settings.find(text)
        return found

    def _inside(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            return {self(key): self._inside(one) for key, one in given.items()}
        if isinstance(value, list):
            return [self._inside(one) for one in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = msgspec.json.encode(value).decode().lstrip("-")
            is_one = number in self.secrets.forms or number in self._settings.forms
            masked = self(number) if is_one else number
            return value if masked == number else masked
        return value


def parts_of(value: str) -> Iterator[MaskPart]:
    """Yield the parts of a value: the whole, and each longer line."""
    lines = [line.strip() for line in value.splitlines()]
    words = [line for line in lines if len(line) >= WORD_CHARS_MIN] if len(lines) > 1 else []
    # Environments and web forms change whitespace.
    whole = value.strip()
    unix = whole.replace("\r\n", "\n")
    for text in dict.fromkeys((whole, unix, unix.replace("\n", "\r\n"), *words)):
        for piece in _pieces(text):
            forms = sorted(form for form in _written_forms(piece) if len(form) >= FORM_CHARS_MIN)
            letters = {form: _letters(form) for form in forms}
            yield MaskPart(
                forms=tuple(forms),
                letters=tuple({one for one in letters.values() if len(one) >= WORD_CHARS_MIN}),
                bare=tuple(form for form in forms if len(letters[form]) < WORD_CHARS_MIN),
            )


def _pieces(text: str) -> Iterator[str]:
    last = len(text) - PIECE_CHARS
    for at in range(0, last, PIECE_CHARS - PIECES_OVERLAP):
        yield text[at : at + PIECE_CHARS]
    yield text[max(last, 0) :]


def _letters(text: str) -> str:
    if text.isascii():
        return text.translate(_ASCII_NOISE).lower()
    return _NOISE.sub("", text).casefold()


def _written_forms(value: str) -> set[str]:
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
    """Return the forms in JSON, and in JSON inside a JSON text, as in an echoed request."""
    once = {json.dumps(value)[1:-1], msgspec.json.encode(value).decode()[1:-1]}
    return once.union(
        *({json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]} for one in once)
    )


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield base64 forms at any offset of a longer text, without characters shared with it."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            encoded = encode(bytes(before) + raw).decode()
            first = -(-8 * before // 6)
            own = encoded[first : (8 * before + 8 * len(raw)) // 6]
            if len(own) >= WORD_CHARS_MIN:
                yield own
        yield encode(raw).decode()


def _in_html(value: str) -> Iterator[str]:
    """Yield HTML forms: programs write quotes differently."""
    yield html.escape(value, quote=False)
    escaped = html.escape(value)
    for single in ("&#x27;", "&#39;", "&apos;"):
        for double in ("&quot;", "&#34;"):
            yield escaped.replace("&#x27;", single).replace("&quot;", double)


def _as_host(value: str) -> Iterator[str]:
    """Yield forms of a host name: lower case and ASCII."""
    yield value.lower()
    yield value.casefold()
    if not value.isascii() and len(value) <= _HOST_CHARS_MAX:
        try:
            yield value.lower().encode("idna").decode()
        except UnicodeError:
            return  # not a valid host name
