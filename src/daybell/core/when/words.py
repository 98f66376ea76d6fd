"""Small words: lists, numbers and lengths of time, as people say them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from daybell.core.instant import Seconds

_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def joined(words: Sequence[str], *, word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {word} {words[-1]}"


def listed(numbers: Sequence[int], *, names: Callable[[int], str] = str) -> str:
    """`1`, `1 and 2`, `1 to 3, 5 and 7`: three or more in a row are told by their ends."""
    ordered = sorted(numbers)
    words: list[str] = []
    start = 0
    for place, number in enumerate(ordered):
        is_last = place + 1 == len(ordered) or ordered[place + 1] != number + 1
        if not is_last:
            continue
        run = ordered[start : place + 1]
        if len(run) > 2:
            words.append(f"{names(run[0])} to {names(run[-1])}")
        else:
            words += [names(one) for one in run]
        start = place + 1
    return joined(words)


def ordinal(number: int) -> str:
    """`first`, `2nd`, `23rd`."""
    if number == 1:
        return "first"
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def plural(number: int, noun: str) -> str:
    """`1 time`, `2,000 times`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def lasting(seconds: Seconds, *, one: str = "1 ") -> str:
    """`1 hour 30 minutes`; `one` is said for a single unit alone, as in "every hour"."""
    words: list[str] = []
    micros = round(seconds * 1_000_000)
    for unit, size in _UNITS:
        count, micros = divmod(micros, size * 1_000_000)
        if unit == "second" and micros:
            words.append(f"{count + micros / 1_000_000:g} seconds")
        elif count:
            words.append(f"{count} {unit}{'s' if count > 1 else ''}")
    said = " ".join(words) or "0 seconds"
    return one + said.removeprefix("1 ") if len(words) == 1 and said.startswith("1 ") else said
