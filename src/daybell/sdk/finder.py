"""Finding secrets in texts, in a time that grows with the text alone.

Texts may be made by somebody who wants this to take long, and who knows how a secret begins. So
each place of a text is looked up once, by a few characters; and what is compared there is neither
long nor much.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from daybell.core.limits import SECRET_CHARS_MIN
from daybell.sdk.forms import PIECE_CHARS, forms_of

PART_CHARS: Final = 8  # what forms are looked up by; of a form that a text was cut in, the least
FEW_FORMS: Final = 100  # of which each is found faster by itself
FEW_CHARS: Final = 20_000  # of them together, which are kept in all their parts

CUTS: Final = re.compile(r"…|\.{3,}")  # how a text says that it was cut
JSON_CUTS: Final = re.compile(r'…|\.{3,}|"')  # the same, and the ends of texts in JSON

Span = tuple[int, int]
Group = tuple[str, ...]  # of forms that begin alike, sorted


class Finder:
    """Finds some values in all their forms, also where a text was cut in the middle of one.

    One thread at a time may add to it; others may look for what is in it meanwhile.
    """

    def __init__(self) -> None:
        self.values: set[str] = set()
        self._forms: set[str] = set()
        self._heads: dict[str, Group] = {}
        self._tails: dict[str, Group] = {}  # by how they end, and written backwards
        self._short: dict[str, Group] = {}  # those that are too short for these
        self.few: Few | None = Few()  # as long as they are

    def add(self, value: str) -> None:
        """Find this one, too."""
        for form in forms_of(value) - self._forms:
            self._forms.add(form)
            if len(form) < PART_CHARS:
                _put(self._short, form[:SECRET_CHARS_MIN], form)
            else:
                _put(self._heads, form[:PART_CHARS], form)
                _put(self._tails, form[-PART_CHARS:], form[::-1])
            if self.few is not None and not self.few.add(form):
                self.few = None
        self.values.add(value)

    def find(self, text: str, cuts: re.Pattern[str]) -> Iterator[Span]:
        """Where they are, in no order; places may overlap."""
        ends = Ends(text, cuts)
        for at in self._candidates(text):
            part = text[at : at + PART_CHARS]
            if (group := self._heads.get(part)) is not None:
                length = max(_longest(group, text, at), ends.begun(group, at))
                if length:
                    yield at, at + length
            if (group := self._tails.get(part)) is not None:
                length = ends.ended(group, at + PART_CHARS)
                if length:
                    yield at + PART_CHARS - length, at + PART_CHARS
        if self._short:
            yield from self._find_short(text)

    def _candidates(self, text: str) -> Iterator[int]:
        heads, tails = self._heads, self._tails
        return (
            at
            for at in range(len(text) - PART_CHARS + 1)
            if (part := text[at : at + PART_CHARS]) in heads or part in tails
        )

    def _find_short(self, text: str) -> Iterator[Span]:
        for at in range(len(text) - SECRET_CHARS_MIN + 1):
            group = self._short.get(text[at : at + SECRET_CHARS_MIN])
            if group is not None and (length := _longest(group, text, at)):
                yield at, at + length


class Few:
    """What tells fast that a text has none of a few forms in it, as nearly all texts have not."""

    def __init__(self) -> None:
        self._forms: list[str] = []  # of one that is in another, the shorter one
        self._parts: set[str] = set()
        self._chars = 0
        self._chars_least = FEW_CHARS  # of one

    def add(self, form: str) -> bool:
        """Know this one, too; answers whether they are still few."""
        self._chars += len(form)
        if self._chars > FEW_CHARS:
            return False
        self._parts.update(form[at : at + PART_CHARS] for at in range(len(form) - PART_CHARS + 1))
        if not any(known in form for known in self._forms):
            self._forms.append(form)
            self._chars_least = min(self._chars_least, len(form))
        return len(self._forms) <= FEW_FORMS

    def is_clear(self, text: str, cuts: re.Pattern[str]) -> bool:
        """Whether none of them is there. This is asked for every text: it is written for speed."""
        if len(text) >= self._chars_least:
            for form in self._forms:
                if form in text:
                    return False
        parts = self._parts
        if "…" in text or "..." in text:
            pieces = cuts.split(text)
        elif cuts is JSON_CUTS:
            pieces = text.split('"')
        else:
            whole = text.strip()
            return whole[:PART_CHARS] not in parts and whole[-PART_CHARS:] not in parts
        for piece in pieces:
            if len(piece) >= PART_CHARS:
                whole = piece.strip()
                if whole[:PART_CHARS] in parts or whole[-PART_CHARS:] in parts:
                    return False
        return True


class Ends:
    """Where a text begins and ends, and where it was cut; looked for when it is first asked."""

    def __init__(self, text: str, cuts: re.Pattern[str]) -> None:
        self._text = text
        self._cuts = cuts
        self._starts: list[int] = []
        self._stops: list[int] = []

    def begun(self, group: Group, at: int) -> int:
        """How much of one of these is at a place where the text then ends; 0: none."""
        if not self._stops:
            self._look()
        number = bisect_left(self._stops, at + PART_CHARS)
        stop = self._stops[number] if number < len(self._stops) else at
        if not at < stop <= at + PIECE_CHARS:
            return 0
        return stop - at if _has_one_with(group, self._text[at:stop]) else 0

    def ended(self, group: Group, at: int) -> int:
        """How much of one of these is before a place, from where the text begins; 0: none."""
        if not self._starts:
            self._look()
        number = bisect_right(self._starts, at - PART_CHARS)
        start = self._starts[number - 1] if number else at
        if not at - PIECE_CHARS <= start < at:
            return 0
        return at - start if _has_one_with(group, self._text[start:at][::-1]) else 0

    def _look(self) -> None:
        start = 0
        for cut in self._cuts.finditer(self._text):
            self._add(start, cut.start())
            start = cut.end()
        self._add(start, len(self._text))

    def _add(self, start: int, stop: int) -> None:
        """Blanks at the ends are those of who has cut it."""
        piece = self._text[start:stop]
        self._starts.append(stop - len(piece.lstrip()))
        self._stops.append(start + len(piece.rstrip()))


def _put(groups: dict[str, Group], key: str, form: str) -> None:
    # A new one each time: others may be looking at this one.
    groups[key] = tuple(sorted((*groups.get(key, ()), form)))


def _longest(group: Group, text: str, at: int) -> int:
    """The length of the longest form that is there; 0: none."""
    if len(group) == 1:
        return len(group[0]) if text.startswith(group[0], at) else 0
    here = text[at : at + PIECE_CHARS]
    number = bisect_right(group, here)
    while number:
        form = group[number - 1]
        if here.startswith(form):
            return len(form)
        # Any that is there is in what these have in common, and sorted before that.
        here = here[: _in_common(here, form)]
        number = bisect_right(group, here, 0, number - 1)
    return 0


def _in_common(one: str, other: str) -> int:
    """With how many of the same characters they begin."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[:middle] == other[:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _has_one_with(group: Group, beginning: str) -> bool:
    number = bisect_left(group, beginning)
    return number < len(group) and group[number].startswith(beginning)
