"""Instants, durations and memory sizes: their types, parsers and text forms."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias, cast

from daybell.core.limits import DURATION_CHARS_MAX, DURATION_SECONDS_MAX, MEMORY_LIMIT_BYTES_MIN
from daybell.errors import InvalidDuration, UsageError, shown

Instant: TypeAlias = float
Seconds: TypeAlias = float

_WRITTEN: Final = "write ISO 8601 with an offset, such as 2026-12-24T18:00:00+01:00"


def to_iso(instant: Instant) -> str:
    """Format an instant: `2026-11-15T16:43:00.250000Z`."""
    return datetime.fromtimestamp(instant, UTC).isoformat().removesuffix("+00:00") + "Z"


def to_datetime(instant: Instant) -> datetime:
    """Convert an instant to a datetime in UTC."""
    return datetime.fromtimestamp(instant, UTC)


def from_iso(text: str) -> Instant:
    """Parse ISO 8601. An offset is required, because without one the meaning depends on the
    machine.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{shown(text)} is not a time; {_WRITTEN}") from None
    if moment.tzinfo is None:
        raise UsageError(f"{shown(text)} has no offset; {_WRITTEN}, or with Z for UTC")
    return from_datetime(moment)


def from_datetime(moment: datetime) -> Instant:
    """Convert an aware datetime; a naive one is refused."""
    if moment.tzinfo is None:
        raise UsageError(
            f"the time {moment.isoformat()} has no zone;"
            " give it one, such as datetime(…, tzinfo=UTC)"
        )
    return moment.timestamp()


# Durations: numbers of seconds, "1h30m", ISO 8601 "PT5M" and timedelta.

Duration = float | int | str | timedelta

_UNITS: Final = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SMALL_UNITS: Final = (("ms", Fraction(1, 1_000)), ("us", Fraction(1, 1_000_000)))
_TAKES: Final = 'a duration is a number of seconds, or text like "90s", "5m", "1h30m", "2d", "PT5M"'

_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_SECONDS = re.compile(_NUMBER)
_DAY_SECONDS: Final = 86_400.0
# Each unit at most once and in falling order: "5m 1h" is more often a mistake.
_UNIT_TEXT = re.compile(
    "".join(rf"(?:{_NUMBER} ?{unit}(?!s) ?)?" for unit, _ in _UNITS)
    + "".join(rf"(?:{_NUMBER} ?{unit} ?)?" for unit, _ in _SMALL_UNITS)
)
_UNIT_SECONDS: Final = tuple(Fraction(seconds) for _, seconds in (*_UNITS, *_SMALL_UNITS))
_ISO_NUMBER: Final = r"([0-9]+(?:[.,][0-9]+)?)"
_ISO_TEXT = re.compile(
    rf"P(?:{_ISO_NUMBER}W)?(?:{_ISO_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_ISO_NUMBER}H)?(?:{_ISO_NUMBER}M)?(?:{_ISO_NUMBER}S)?)?"
)
_ISO_YEAR_OR_MONTH = re.compile(r"P[^T]*[YM]")


def parse_duration(value: Duration, *, what: str = "duration") -> float:
    """Return `value` in seconds, rounded to the microsecond; `what` names it in errors.

    Zero is valid, see also `parse_limit`. Negative and infinite values, more than ten years, and
    years and months, which have no fixed length, are not.
    """
    given = cast("object", value)  # callers may not use a type checker
    if isinstance(given, str):
        seconds = _parse_text(given, what)
    elif isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given
    else:
        raise _refusal(given, f"is of type {type(given).__name__}", what)
    if seconds != seconds:
        raise _refusal(given, "is not a number", what)
    if seconds < 0:
        raise _refusal(given, "is negative", what)
    if seconds > DURATION_SECONDS_MAX:
        fact = "is infinite" if seconds == math.inf else "is longer than ten years"
        raise _refusal(given, fact, what)
    return round(float(seconds), 6)


def parse_delay(value: Duration) -> float:
    """Parse a delay. A bare number of more than a day is refused: it is often milliseconds or a
    time, and the mistake would only show when nothing runs.
    """
    seconds = parse_duration(value, what="delay")
    is_bare = not isinstance(value, timedelta) and _SECONDS.fullmatch(str(value).strip())
    if is_bare and seconds > _DAY_SECONDS:
        usual = format_duration(seconds)
        also = "" if usual == f"{seconds:.15g}s" else f' or "{usual}"'
        raise InvalidDuration(
            f"a delay of {seconds:.15g} s is over a day; write its unit, as in"
            f' "{seconds:.15g}s"{also}',
            field="delay",
        )
    return seconds


def parse_limit(value: Duration, *, what: str) -> float:
    """Parse a time limit, which cannot be zero."""
    seconds = parse_duration(value, what=what)
    if not seconds:
        raise InvalidDuration(
            f"{what} {shown(value)} is no time at all; leave it out if there is no limit",
            field=what,
        )
    return seconds


def format_duration(seconds: float) -> str:
    """Format a duration, such as "1h30m"; `parse_duration` returns the same value.

    Weeks appear only alone, milliseconds only below a second.
    """
    micros = round(parse_duration(seconds) * 1_000_000)
    if micros and micros % (604_800 * 1_000_000) == 0:
        return f"{micros // (604_800 * 1_000_000)}w"
    if 0 < micros < 1_000_000:
        return f"{micros // 1_000}ms" if micros % 1_000 == 0 else f"{micros}us"
    parts: list[str] = []
    for unit, unit_seconds in _UNITS[1:-1]:
        count, micros = divmod(micros, unit_seconds * 1_000_000)
        if count:
            parts.append(f"{count}{unit}")
    if micros or not parts:
        whole, rest = divmod(micros, 1_000_000)
        fraction = f".{rest:06d}".rstrip("0") if rest else ""
        parts.append(f"{whole}{fraction}s")
    return "".join(parts)


def _parse_text(text: str, what: str) -> float:
    if len(text) > DURATION_CHARS_MAX:
        raise _refusal(text, f"has {len(text):,} characters", what)
    stripped = text.strip()
    if not stripped:
        raise _refusal(text, "is empty", what)
    seconds = _seconds_of(stripped)
    if seconds is not None:
        return seconds
    if stripped[0] == "-":
        raise _refusal(text, "is negative", what)
    if _ISO_YEAR_OR_MONTH.match(stripped):
        raise _refusal(text, "has years or months, which have no fixed length; use days", what)
    raise _refusal(text, "cannot be read", what)


@lru_cache(maxsize=1024)  # every enqueue uses the same few texts
def _seconds_of(text: str) -> float | None:
    if _SECONDS.fullmatch(text):
        return float(text)
    iso = _ISO_TEXT.fullmatch(text)
    match = iso or _UNIT_TEXT.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    # Exact until the last step, so that "0.1s" and "100ms" are equal.
    counts = match.groups()
    units = zip(counts, _UNIT_SECONDS, strict=False)  # ISO has no units below the second
    return float(sum(Fraction(count.replace(",", ".")) * unit for count, unit in units if count))


def _refusal(value: object, fact: str, what: str) -> InvalidDuration:
    return InvalidDuration(f"{what} {shown(value)} {fact}; {_TAKES}", field=what)


# Amounts of memory: numbers of bytes, "512MB", "1GiB".

Size = int | str

_SIZE_UNITS: Final = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?i?B)", re.IGNORECASE | re.ASCII)
_SIZE_FORMS: Final = 'an amount of memory is text like "512MB" or "1GiB", or a number of bytes'


def parse_size(value: Size, *, what: str) -> int:
    """Return `value` in bytes; `what` names it in errors. MB are powers of 1000, MiB of 1024.

    Less than a megabyte is refused: most likely the unit is missing.
    """
    given = cast("object", value)  # callers may not use a type checker
    if isinstance(given, str):
        match = _TEXT.fullmatch(given.strip())
        if match is None:
            fact = "has no unit" if given.strip().isdecimal() else "cannot be read"
            raise UsageError(f"{what} {shown(given)} {fact}; {_SIZE_FORMS}", field=what)
        size = int(float(match[1]) * _SIZE_UNITS[match[2].upper()])
    elif isinstance(given, int) and not isinstance(given, bool):
        size = given
    else:
        raise UsageError(f"{what}={shown(given)} is of the wrong type; {_SIZE_FORMS}", field=what)
    if not MEMORY_LIMIT_BYTES_MIN <= size < 2**63:
        fact = "is too little to run anything in" if size < 2**63 else "is more than there is"
        raise UsageError(f"{what} {shown(given)} {fact}; {_SIZE_FORMS}", field=what)
    return size


def format_size(size: int) -> str:
    """Format a size: "512MB", "1GiB", "1.5GB"."""
    for factor, units in ((1024, ("TiB", "GiB", "MiB")), (1000, ("TB", "GB", "MB"))):
        for power, unit in zip((4, 3, 2), units, strict=True):
            if size >= factor**power and size % factor**power == 0:
                return f"{size // factor**power}{unit}"
    return f"{size / 1000**2:.1f}MB"
