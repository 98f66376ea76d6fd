"""Keeping secrets out of what is written down: texts without the values that were opened here.

A value is looked for as it is and in the ways that programs write it: escaped in JSON, Python and
HTML, quoted for URLs, in small letters, in base64, and each longer line by itself. Whoever takes it
apart and puts it together otherwise gets it past this; that is what `daybell secrets` says, too.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from daybell.core import payload
from daybell.core.limits import SECRET_CHARS_MIN
from daybell.sdk.finder import CUTS, JSON_CUTS, Finder, Span

MASK: Final = "***"
VALUES_MAX: Final = 10_000  # of them those are dropped that were opened longest ago


class Masks:
    """The values that must not be seen. Threads may add to them and ask at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: set[str] = set()  # which are never dropped
        # The newest has what was opened lately. When it is full, a new one takes its place, and
        # the one before it goes.
        self._finders: tuple[Finder, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._finders)

    def add(self, values: Iterable[str]) -> None:
        """Have these masked from now on."""
        with self._lock:
            self._add(values)

    def add_own(self, values: Iterable[str]) -> None:
        """Have these masked for good: they are those of this process itself."""
        with self._lock:
            own = {value for value in values if len(value) >= SECRET_CHARS_MIN}
            self._own |= own
            self._add(own)

    def forget(self) -> None:
        """Mask nothing any more."""
        with self._lock:
            self._own, self._finders = set(), ()

    def _add(self, values: Iterable[str]) -> None:
        for value in values:
            if len(value) < SECRET_CHARS_MIN:
                continue
            newest = self._finders[0] if self._finders else None
            if newest is not None and value in newest.values:
                continue
            if newest is None or len(newest.values) >= len(self._own) + VALUES_MAX // 2:
                newest = Finder()
                for own in self._own:
                    newest.add(own)
                newest.add(value)  # before others see it: what was masked stays so
                self._finders = (newest, *self._finders[:1])
            else:
                newest.add(value)

    def __call__(self, text: str) -> str:
        """The text without them. If two overlap, nothing is left of either."""
        if not self._finders or self._is_clear(text, CUTS):
            return text
        places: list[Span] = []
        for start, end in self._places(text, CUTS):
            # One that overlaps the last: else there could be one for each character.
            if places and start < places[-1][1] and end > places[-1][0]:
                places[-1] = min(start, places[-1][0]), max(end, places[-1][1])
            else:
                places.append((start, end))
        if not places:
            return text
        shown: list[str] = []
        done = 0
        for start, end in sorted(places):
            if start >= done:
                shown += (text[done:start], MASK)
            done = max(done, end)
        return "".join(shown) + text[done:]

    def in_json(self, text: str) -> str:
        """JSON without them: inside of texts and keys, and numbers that are one."""
        if not self._finders:
            return text
        # Without escapes, all that is in it can be seen from outside.
        if "\\" not in text and (
            self._is_clear(text, JSON_CUTS) or not any(self._places(text, JSON_CUTS))
        ):
            return text
        masked = self._inside(payload.decode(text))
        return payload.encode(masked, what="result", bytes_max=2 * len(text.encode()) + 100)

    def _is_clear(self, text: str, cuts: re.Pattern[str]) -> bool:
        # As nearly all texts are.
        for finder in self._finders:
            few = finder.few
            if few is None or not few.is_clear(text, cuts):
                return False
        return True

    def _places(self, text: str, cuts: re.Pattern[str]) -> Iterator[Span]:
        for finder in self._finders:
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
        text = msgspec.json.encode(number).decode().lstrip("-")
        return any(text in finder.values for finder in self._finders)


masks: Final = Masks()  # of this process
