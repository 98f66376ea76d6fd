"""Events, and the steps of durable functions: recorded results, sleeps, and waits for events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core import payload
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    DURATION_SECONDS_MAX,
    EVENT_ID_CHARS_MAX,
    EVENT_NAME_CHARS_MAX,
    EVENT_SOURCE_CHARS_MAX,
    INSTANT_MAX,
    MATCH_CHARS_MAX,
    MATCH_KEYS_MAX,
    NAME_CHARS_MAX,
    RECORD_BATCH_MAX,
    RESULT_BYTES_MAX,
    STEPS_MAX,
)
from daybell.core.units import Instant, Seconds, to_iso
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


# Steps: what a durable function has done so far, so that its next attempt need not do it again.
#
# A step is named by its execution and its place `n` in the order of calls. `NewStep` is one as
# its worker records it, `Step` as it is read back. Results and errors are JSON text.

FAILURES_MAX: Final = 2**31 - 1


class StepKind(StrEnum):
    """The kind of a step."""

    STEP = "step"  # a function was called
    SLEEP = "sleep"  # until `wake_at`
    WAIT = "wait"  # for an event, at most until `wake_at`
    NOW = "now"  # a value that has to be the same again: the time, a random number


TIMED: Final = frozenset({StepKind.SLEEP, StepKind.WAIT})  # those that have a `wake_at`


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step as it is on record."""

    n: int
    name: str
    kind: StepKind
    result: str | None = None  # of a wait: the event; None if none came in time
    error: str | None = None
    failures: int = 0
    wake_at: Instant | None = None  # when a sleep ends, or the time for an event is over
    started_at: Instant
    finished_at: Instant | None = None  # of a sleep: its `wake_at`, which may be still to come
    is_done: bool = True  # False: it failed and is to be run again, or waits for its event


class NewStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step as a worker records it, under the fence of what it holds."""

    id: UUID  # the execution
    attempt: int
    lease: UUID
    n: int
    name: str
    kind: StepKind
    result: str | None = None
    error: str | None = None
    failures: int = 0
    is_done: bool = True  # of a wait, the store decides
    ran: Seconds | None = None  # how long it took
    delay: Seconds | None = None  # of a sleep: how long, by the store's clock
    event: str | None = None  # of a wait: the event's name
    match: str = "{}"  # of a wait: what the event's data must say, see `core.event.matches`
    timeout: Seconds | None = None  # of a wait; None: for as long as it takes


class NodeWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that a node of a run waits for."""

    execution: UUID  # the node's
    label: str  # its own, such as `ask` or `ask[3]`
    node: str  # of the run that was looked at: that one, or the one that it is inside of
    name: str  # the event's
    match: str = "{}"  # what its data must say
    until: Instant | None = None


def record_step(new: NewStep, before: Step | None, *, now: Instant) -> Step:
    """What is on record after this, if no event is there that ends it. What is done stays."""
    if before is not None and before.is_done:
        return before
    length = new.delay if new.kind is StepKind.SLEEP else new.timeout
    wake_at = None if length is None or new.kind not in TIMED else now + length
    started_at = now - (new.ran or 0.0)
    if before is not None:
        started_at = before.started_at
        wake_at = before.wake_at if before.kind is new.kind else wake_at
    is_done, finished_at = new.is_done, now
    if new.kind is StepKind.WAIT:
        is_done = wake_at is not None and wake_at <= now
    elif new.kind is StepKind.SLEEP:
        is_done, finished_at = True, wake_at
    return Step(
        n=new.n,
        name=new.name,
        kind=new.kind,
        result=new.result,
        error=new.error,
        failures=new.failures,
        wake_at=wake_at,
        started_at=started_at,
        finished_at=finished_at if is_done else None,
        is_done=is_done,
    )


def close_wait(wait: Step, result: str | None, *, now: Instant) -> Step:
    """A wait whose event has come, or whose time is over."""
    return replace(wait, result=result, finished_at=now, is_done=True)


def check_step(step: NewStep) -> NewStep:
    """Return a step that can be kept. What a wait is for is checked, too."""
    if not 0 <= step.n <= STEPS_MAX:
        raise UsageError(
            f"step {step.n:,}: an execution may have at most {STEPS_MAX:,} steps; do more in each,"
            " or enqueue other executions for parts of the work",
            field="n",
        )
    check_words(step.name, what="step name", field="name", chars_max=NAME_CHARS_MAX)
    if not 0 <= step.failures <= FAILURES_MAX:
        raise UsageError(f"failures={step.failures} is not a count", field="failures")
    for field, text, most in (
        ("result", step.result, RESULT_BYTES_MAX),
        ("error", step.error, ARGS_BYTES_MAX),
    ):
        if text is not None:
            _check_text(text, field=field, what=f"the {field} of step {step.name!r}", most=most)
    for field, length in (("ran", step.ran), ("delay", step.delay), ("timeout", step.timeout)):
        # NaN compares as false with everything, and so is refused too.
        if length is not None and not 0 <= length <= DURATION_SECONDS_MAX:
            raise UsageError(
                f"{field}={length} must be from 0 to {DURATION_SECONDS_MAX:,} seconds", field=field
            )
    if step.kind is StepKind.SLEEP and step.delay is None:
        raise UsageError("a sleep needs a delay", field="delay")
    if step.kind is StepKind.WAIT:
        what = "event name"
        check_words(step.event, what=what, field="event", chars_max=EVENT_NAME_CHARS_MAX)
        check_match(step.match)
    return step


def check_steps(steps: Sequence[NewStep]) -> None:
    """Refuse steps that cannot be kept, and more of them than one transaction should write."""
    if len(steps) > RECORD_BATCH_MAX:
        raise UsageError(
            f"{len(steps):,} steps at once; the limit is {RECORD_BATCH_MAX:,}", field="steps"
        )
    for step in steps:
        check_step(step)


def _check_text(text: str, *, field: str, what: str, most: int) -> None:
    if "\0" in text:
        raise UsageError(f"{what} contains a NUL character", field=field)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} contains half a surrogate pair, which is not a character", field=field
        ) from None
    if size > most:
        raise PayloadTooLarge(
            f"{what} has {size:,} bytes; the limit is {most:,}. Store it elsewhere and return its"
            " address",
            field=field,
        )
