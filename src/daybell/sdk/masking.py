"""Keeping secrets out of what is written down: texts without the values that were opened here.

A value is looked for as it is and in the ways that programs write it: escaped in JSON and in
Python, quoted for URLs, in base64, and each longer line by itself. Whoever takes it apart and puts
it together otherwise gets it past this; that is what `daybell secrets` says, too.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

import msgspec

from daybell.core import payload
from daybell.core.limits import SECRET_CHARS_MIN

MASK: Final = "***"
VALUES_MAX: Final = 10_000  # of them those are dropped that were opened longest ago
LINE_CHARS_MIN: Final = 8  # a line of a longer value; shorter ones are in other texts as well
ENCODED_CHARS_MIN: Final = 8
# A text that was cut may end in the middle of a value, and as much as a line shows is left out
# there. So of long ones, pieces are looked for, of which several are in that.
PIECE_CHARS: Final = 2_048
LONG_CHARS: Final = 4_096
LEVELS: Final = (32, 256, 2_048, VALUES_MAX)  # values in each part of what is looked for
MANY_CHARS: Final = 200_000  # of all forms together
FEW_FORMS: Final = 1_500  # of which each is found in a long text faster than all at once

PART_CHARS_MIN: Final = 8  # of a value that a text was cut in
CUTS: Final = re.compile(r"…|\.\.\.")  # how a text says that it was
JSON_CUTS: Final = re.compile(r'…|\.\.\.|"')

_HEX: Final = re.compile(r"%[0-9A-F]{2}")


class Finder:
    """Finds some values, in all their forms. Never changes, so that threads may share it."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = tuple(values)
        self._forms: dict[str, list[str]] = {}  # by how they begin
        for form in {form for value in self.values for form in forms_of(value)}:
            self._forms.setdefault(form[:SECRET_CHARS_MIN], []).append(form)
        for forms in self._forms.values():
            forms.sort(key=len, reverse=True)
        # Beginnings alone are quick to compile, and to look for.
        self._begins = re.compile(_any_of(self._forms))
        self._all = [form for forms in self._forms.values() for form in forms]
        self._parts = _parts_of(self._all)

    def find(self, text: str, cuts: re.Pattern[str] = CUTS) -> Iterator[tuple[int, int]]:
        """Where they are, and where a text was cut in the middle of one; places may overlap."""
        yield from self._rests(text, 0)
        if cuts is JSON_CUTS or "…" in text or "..." in text:
            for found in cuts.finditer(text):
                yield from self._rests(text, found.end())
        start = 0
        is_long = len(text) > LONG_CHARS and len(self._all) < FEW_FORMS
        if is_long and cuts is CUTS and not any(form in text for form in self._all):
            start = len(text) - LONG_CHARS  # of what is only begun, nothing is further away
        begun = self._begins.search(text, start)
        while begun is not None:
            at = begun.start()
            for form in self._forms[begun[0]]:
                if text.startswith(form, at):
                    yield at, at + len(form)
                    break
                cut = cuts.search(text, at, at + len(form))
                end = len(text) if cut is None else cut.start()
                if end - at >= PART_CHARS_MIN and form.startswith(text[at:end]):
                    yield at, end
                    break
            begun = self._begins.search(text, at + 1)

    def _rests(self, text: str, at: int) -> Iterator[tuple[int, int]]:
        """The end of one whose beginning was cut off."""
        part = text[at : at + PART_CHARS_MIN]
        if part not in self._parts or len(part) < PART_CHARS_MIN:
            return
        for form in self._all:
            within = form.find(part)
            if within > 0 and text.startswith(form[within:], at):
                yield at, at + len(form) - within


class Masks:
    """The values that must not be seen. Threads may add to them and ask at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, None] = {}  # the last one was opened last
        # New values are in the first part, which is quick to make anew. One that is full becomes a
        # part of the next.
        self._finders: tuple[Finder | None, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._finders)

    def add(self, values: Iterable[str]) -> None:
        """Have these masked from now on."""
        with self._lock:
            new: list[str] = []
            for value in values:
                if len(value) < SECRET_CHARS_MIN:
                    continue
                if self._used.pop(value, self) is self:
                    new.append(value)
                self._used[value] = None
            if len(self._used) > VALUES_MAX:
                kept = list(self._used)[len(self._used) // 10 :]
                self._used = dict.fromkeys(kept)
                self._finders = (None,) * (len(LEVELS) - 1) + (Finder(kept),)
            elif new:
                self._finders = _with(self._finders, new)

    def forget(self) -> None:
        """Mask nothing any more."""
        with self._lock:
            self._used, self._finders = {}, ()

    def __call__(self, text: str) -> str:
        """The text without them. If two overlap, nothing is left of either."""
        if not self._finders:
            return text
        places = sorted(self._places(text, CUTS))
        if not places:
            return text
        shown, done = "", 0
        for start, end in places:
            if start >= done:
                shown += text[done:start] + MASK
            done = max(done, end)
        return shown + text[done:]

    def in_json(self, text: str) -> str:
        """JSON without them: inside of texts and keys, and numbers that are one."""
        if not self._finders:
            return text
        # Without escapes, all that is in it can be seen from outside.
        if "\\" not in text and not any(self._places(text, JSON_CUTS)):
            return text
        masked = self._inside(payload.decode(text))
        return payload.encode(masked, what="result", bytes_max=2 * len(text.encode()) + 100)

    def _places(self, text: str, cuts: re.Pattern[str]) -> Iterator[tuple[int, int]]:
        for finder in self._finders:
            if finder is not None:
                yield from finder.find(text, cuts)

    def _inside(self, value: Any) -> Any:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            given = cast("dict[str, Any]", value)
            return {self(key): self._inside(one) for key, one in given.items()}
        if isinstance(value, list):
            return [self._inside(one) for one in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self._is_one(value) else value
        return value

    def _is_one(self, number: float) -> bool:
        return msgspec.json.encode(number).decode().lstrip("-") in self._used


def _with(finders: tuple[Finder | None, ...], new: list[str]) -> tuple[Finder | None, ...]:
    """Add values to the first part that has room for them and for all in the parts before it."""
    values = new
    for level, most in enumerate(LEVELS):
        finder = finders[level] if level < len(finders) else None
        values = values if finder is None else [*finder.values, *values]
        if len(values) <= most or level == len(LEVELS) - 1:
            return (None,) * level + (Finder(values),) + finders[level + 1 :]
    raise AssertionError("the last part has room for all")


def forms_of(value: str) -> set[str]:
    """A value in the ways that it may be written."""
    forms = _written(value) | _written(value.strip())
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        for line in lines:
            if len(line) >= LINE_CHARS_MIN:
                forms |= _written(line)
        # As an environment or a form of a web page may have changed it.
        forms |= {value.replace("\r\n", "\n"), value.replace("\n", "\r\n")}
    for form in [form for form in forms if len(form) > LONG_CHARS]:
        pieces = (form[at : at + PIECE_CHARS] for at in range(0, len(form), PIECE_CHARS))
        forms |= {piece for piece in pieces if len(piece) == PIECE_CHARS}
    return {form for form in forms if len(form) >= SECRET_CHARS_MIN}


def _written(value: str) -> set[str]:
    quoted = {quote(value, safe=""), quote(value), quote_plus(value)}
    return {
        value,
        json.dumps(value)[1:-1],
        msgspec.json.encode(value).decode()[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
        *quoted,
        *(_HEX.sub(lambda found: found[0].lower(), one) for one in quoted),
        *_in_base64(value.encode()),
    }


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


def _parts_of(forms: Iterable[str]) -> Container[str]:
    """What has every part of these in it: quick to ask, or, if there is much of it, small."""
    together = "\n".join(forms)
    if len(together) > MANY_CHARS:
        return together
    starts = range(len(together) - PART_CHARS_MIN + 1)
    return frozenset(together[at : at + PART_CHARS_MIN] for at in starts)


def _any_of(words: Iterable[str]) -> str:
    """A pattern for any of these words, of the same length: character by character, so that few
    are compared at each place.
    """
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    parts = [
        re.escape(first) + (_any_of(rest) if any(rest) else "")
        for first, rest in sorted(rests.items())
    ]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


masks: Final = Masks()  # of this process
