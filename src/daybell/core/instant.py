"""How time is written down inside Daybell.

An `Instant` is seconds since 1970-01-01 UTC, a `Seconds` is a length of time, both plain
floats: they compare, subtract and travel to the database without conversion, and a naive local
time cannot sneak in. People and JSON see ISO 8601 with an offset; the translation happens at
the edge, here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeAlias

from daybell.errors import UsageError, shown

Instant: TypeAlias = float
Seconds: TypeAlias = float

_WRITTEN: Final = "write ISO 8601 with an offset, such as 2026-12-24T18:00:00+01:00"


def to_iso(instant: Instant) -> str:
    """Write an instant as people read it: `2026-11-15T16:43:00.250000+00:00`."""
    return datetime.fromtimestamp(instant, UTC).isoformat()


def from_iso(text: str) -> Instant:
    """Read ISO 8601. An offset is required, because a time without one means something else on
    each machine.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{shown(text)} is not a time; {_WRITTEN}") from None
    if moment.tzinfo is None:
        raise UsageError(f"{shown(text)} has no offset; {_WRITTEN}, or with Z for UTC")
    return from_datetime(moment)


def from_datetime(moment: datetime) -> Instant:
    """Turn an aware datetime into an instant; a naive one is refused."""
    if moment.tzinfo is None:
        raise UsageError(
            f"the time {moment.isoformat()} has no zone;"
            " give it one, such as datetime(…, tzinfo=UTC)"
        )
    return moment.timestamp()
