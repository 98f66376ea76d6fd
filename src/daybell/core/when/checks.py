"""Checks that the words of a schedule share: keys, choices and times."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime

from daybell.core.instant import Instant, from_datetime, from_iso
from daybell.core.limits import INSTANT_MAX, NAME_CHARS_MAX
from daybell.core.when.zone import INSTANT_MIN, instant_of
from daybell.errors import InvalidSchedule, UsageError, shown, suggested

Moment = Instant | int | str | datetime  # what a caller may write for a time


def check_keys(given: Mapping[str, object], allowed: tuple[str, ...], *, what: str) -> None:
    """Refuse a key that means nothing: a typo must not silently become a default."""
    for key in given:
        if key not in allowed:
            hint = suggested(key, allowed, otherwise=f"it takes {', '.join(allowed)}")
            raise InvalidSchedule(f"{what} has no {shown(key)}; {hint}", field=str(key))


def nearest(key: object, among: Sequence[str]) -> str:
    """The word that was probably meant; empty if none is near."""
    close = difflib.get_close_matches(str(key)[:NAME_CHARS_MAX], among, n=1)
    return close[0] if close else ""


def choice(value: object, among: tuple[str, ...], *, what: str) -> str:
    """Return `value` if it is one of the words."""
    if not isinstance(value, str) or value not in among:
        raise InvalidSchedule(f"{what} {shown(value)} is not one of {', '.join(among)}", field=what)
    return value


def parse_moment(value: object, *, what: str, tz: str | None = None) -> Instant:
    """Read a time. One without an offset is refused, unless a zone says whose clock is meant."""
    try:
        if isinstance(value, str):
            moment = _wall_clock(value) if tz is not None else None
            instant = from_iso(value) if moment is None else instant_of(moment, tz or "UTC")
        elif isinstance(value, datetime):
            instant = from_datetime(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            instant = float(value)
        else:
            raise UsageError(f"{shown(value)} is not a time")
    except (UsageError, OverflowError) as error:
        raise InvalidSchedule(f"{what}: {error}", field=what) from None
    if not INSTANT_MIN + 86_400 <= instant <= INSTANT_MAX - 86_400:  # NaN is not in it, either
        raise InvalidSchedule(
            f"{what} {shown(value)} is not a time from 0001-01-02 to 9999-12-30", field=what
        )
    return round(instant, 6)


def _wall_clock(text: str) -> datetime | None:
    """The time that a text without an offset shows; None: it has one, or is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None
