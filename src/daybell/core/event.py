"""Events: news from outside that executions wait for.

An event has the attributes of CloudEvents: `id` and `source` name it, so that one sent twice is
kept once; `name` is its `type`; `data` is JSON. A wait asks for a name, and for values that the
data must have at its top level: its *match*. Each such pair of a key and a value has one canonical
text. An event fits if it has all the pairs of the match. A wait is filed under one of its pairs,
its *key*, so that an event finds those that may want it without reading all; and an event is filed
under all of its own, so that a wait finds those that came before it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from daybell.core import payload
from daybell.core.instant import Instant, to_iso
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
    INSTANT_MAX,
    MATCH_CHARS_MAX,
    MATCH_KEYS_MAX,
)
from daybell.errors import InvalidName, PayloadError, PayloadTooLarge, UsageError, shown

ANY: Final = ""  # the key of a wait that asks for no values
MANY: Final = "*"  # what an event with too many pairs is filed under
_KEYS_MAX: Final = 100  # that one event is filed under
_KEY_CHARS_MAX: Final = 100  # what is longer is replaced by its digest


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as it is sent."""

    id: str
    source: str
    name: str  # what CloudEvents calls its type
    data: str = "null"  # JSON
    execution: UUID | None = None  # only for this one: a signal
    time: Instant | None = None  # when it happened, as its sender says; nothing is decided by it


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event on record."""

    id: str
    source: str
    name: str
    data: str
    execution: UUID | None = None
    time: Instant | None = None
    received_at: Instant


class Published(msgspec.Struct, frozen=True, gc=False):
    """The answer to an event that was sent."""

    created: bool  # False: it is on record already, and nothing was done
    resumed: int = 0  # executions that waited for it
    execution: UUID | None = None  # who it was for, if for one alone
    node: str | None = None  # of the run that was named: the one that it was passed on to


class Facts:
    """What an event's data says, for comparison with many matches."""

    def __init__(self, data: str) -> None:
        self._pairs = _pairs(payload.decode(data, what="data"))

    @property
    def keys(self) -> list[str]:
        """The keys of all waits that may want this event are among these."""
        return [ANY, *sorted({_short(pair) for pair in self._pairs})]

    def filed(self, execution: UUID | None) -> list[str]:
        """What the event is filed under, for waits that are still to come."""
        if execution is not None:
            return [_own(execution)]
        keys = self.keys
        return keys if len(keys) <= _KEYS_MAX else [ANY, MANY]

    def meet(self, match: str) -> bool:
        """Whether these facts are what a wait asks for."""
        return _pairs(payload.decode(match, what="match")) <= self._pairs


def matches(match: str, data: str) -> bool:
    """Whether an event's data has all that a match asks for, at its top level.

    Numbers are equal if their values are: 1 is 1.0, but neither true nor "1". Lists and objects in
    the data fit nothing.
    """
    return Facts(data).meet(match)


def wait_key(match: str) -> str:
    """What a wait is filed under: its first pair, or ANY if it has none."""
    pairs = _pairs(payload.decode(match, what="match"))
    return _short(min(pairs)) if pairs else ANY


def places(match: str, execution: UUID) -> tuple[str, ...]:
    """Under which keys a wait of this execution finds the events that came before it."""
    key = wait_key(match)
    return (key, _own(execution)) if key == ANY else (key, MANY, _own(execution))


def result_of(event: Event) -> str:
    """An event as the result of the wait that it ends."""
    fields = {
        "id": event.id,
        "source": event.source,
        "name": event.name,
        "data": msgspec.Raw(event.data.encode()),
        "time": None if event.time is None else to_iso(event.time),
        "received_at": to_iso(event.received_at),
    }
    return msgspec.json.encode(fields).decode()


def check_event(event: NewEvent) -> NewEvent:
    """Return an event that can be kept."""
    for field, text, chars_max in (
        ("id", event.id, EVENT_ID_CHARS_MAX),
        ("source", event.source, EVENT_SOURCE_CHARS_MAX),
        ("name", event.name, EVENT_NAME_CHARS_MAX),
    ):
        check_words(text, what=f"event {field}", field=field, chars_max=chars_max)
    size = len(event.data.encode(errors="surrogatepass"))
    if size > ARGS_BYTES_MAX:
        raise PayloadTooLarge(
            f"data is {size:,} bytes of JSON; the limit is {ARGS_BYTES_MAX:,}. Store it elsewhere"
            " and send its address",
            field="data",
        )
    payload.decode(event.data, what="data")
    check_words(event.data, what="data", field="data", chars_max=ARGS_BYTES_MAX)
    if event.time is not None and not 0 <= event.time <= INSTANT_MAX:
        raise UsageError(f"time={event.time} is not a time", field="time")
    return event


def check_match(match: str) -> str:
    """Return a match that can be kept: a flat JSON object of a few plain values."""
    if len(match) > MATCH_CHARS_MAX:
        raise PayloadTooLarge(
            f"match has {len(match):,} characters; the limit is {MATCH_CHARS_MAX:,}", field="match"
        )
    wanted = payload.decode(match, what="match")
    check_words(match, what="match", field="match", chars_max=MATCH_CHARS_MAX)
    if not isinstance(wanted, dict):
        raise PayloadError(
            'match must be an object of keys and values, such as {"order": 42}', field="match"
        )
    pairs = cast("dict[str, Any]", wanted)
    if len(pairs) > MATCH_KEYS_MAX:
        raise PayloadError(
            f"match has {len(pairs):,} keys; the limit is {MATCH_KEYS_MAX}", field="match"
        )
    for key, value in pairs.items():
        if isinstance(value, list | dict):
            raise PayloadError(
                f"match compares plain values at the top level of an event's data; that of"
                f" {shown(key)} is {'a list' if isinstance(value, list) else 'an object'}. Put what"
                " is to be compared into a field of its own",
                field="match",
            )
    return match


def check_cursor(cursor: str | None) -> int | None:
    """Return the number of the event that a page ended with."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        )
    return int(cursor)


def check_words(value: object, *, what: str, field: str, chars_max: int) -> str:
    """Return a text that all stores can keep."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be text, not {type(value).__name__}", field=field)
    if not value:
        raise InvalidName(f"{what} is empty", field=field)
    if len(value) > chars_max:
        raise InvalidName(
            f"{what} {shown(value)} has {len(value):,} characters; the limit is {chars_max}",
            field=field,
        )
    if "\0" in value:
        raise InvalidName(f"{what} {shown(value)} contains a NUL character", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidName(
            f"{what} {shown(value)} contains half a surrogate pair, which is not a character",
            field=field,
        ) from None
    return value


def _pairs(value: object) -> frozenset[str]:
    """The canonical texts of an object's keys with plain values."""
    if not isinstance(value, dict):
        return frozenset()
    return frozenset(
        f"{json.dumps(key)}:{_canonical(item)}"
        for key, item in cast("dict[str, Any]", value).items()
        if not isinstance(item, list | dict)
    )


def _canonical(value: str | float | None) -> str:
    """One text for values that are the same, whichever way they were written."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return json.dumps(value)


def _own(execution: UUID) -> str:
    return f"@{execution}"


def _short(pair: str) -> str:
    if len(pair) <= _KEY_CHARS_MAX:
        return pair
    return hashlib.sha256(pair.encode()).hexdigest()
