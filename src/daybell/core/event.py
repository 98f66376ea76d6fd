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
    EVENT_BATCH_MAX,
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
    size_fault,
    text_fault,
)
from daybell.core.units import Instant, Seconds, to_iso
from daybell.errors import InvalidName, PayloadError, PayloadTooLarge, UsageError, shown

ANY: Final = ""  # the key of a wait without values
MANY: Final = "*"  # the key of an event with too many pairs
_KEYS_MAX: Final = 100  # of one event
_KEY_CHARS_MAX: Final = 100  # a longer key is replaced by its digest


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event to publish."""

    id: str
    source: str
    name: str  # the type of a CloudEvent
    data: str = "null"  # JSON
    execution: UUID | None = None  # the only recipient: a signal
    time: Instant | None = None  # as specified by the sender; no decision depends on it


class Event(NewEvent, frozen=True, kw_only=True, gc=False):
    """A recorded event."""

    received_at: Instant


class Published(msgspec.Struct, frozen=True, gc=False):
    """The answer to a published event."""

    created: bool  # False: it was recorded before, and nothing was done
    resumed: int = 0  # executions that waited for it
    executions: tuple[UUID, ...] = ()  # of the jobs that it fired
    execution: UUID | None = None  # its only recipient
    node: str | None = None  # the node of the named run that received it


class Facts:
    """The values of an event's data, for comparison with many matches."""

    def __init__(self, data: str) -> None:
        self._pairs = _pairs(payload.decode(data, what="data"))

    @property
    def keys(self) -> list[str]:
        """The keys of all waits that may match this event."""
        return [ANY, *sorted({_short(pair) for pair in self._pairs})]

    def filed(self, execution: UUID | None) -> list[str]:
        """Return the keys under which later waits find the event."""
        if execution is not None:
            return [_own(execution)]
        keys = self.keys
        return keys if len(keys) <= _KEYS_MAX else [ANY, MANY]

    def meet(self, match: str) -> bool:
        """Return True if the data has all values of a match."""
        return _pairs(payload.decode(match, what="match")) <= self._pairs


def matches(match: str, data: str) -> bool:
    """Return True if the top level of an event's data has all values of a match.

    Numbers are compared by value: 1 equals 1.0, but neither true nor "1". Lists and objects in the
    data match nothing.
    """
    return Facts(data).meet(match)


def wait_key(match: str) -> str:
    """Return the key of a wait: its first pair, or ANY."""
    pairs = _pairs(payload.decode(match, what="match"))
    return _short(min(pairs)) if pairs else ANY


def places(match: str, execution: UUID) -> tuple[str, ...]:
    """Return the keys under which a wait finds earlier events."""
    key = wait_key(match)
    return (key, _own(execution)) if key == ANY else (key, MANY, _own(execution))


def result_of(event: Event) -> str:
    """Return an event as the result of a wait."""
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
    """Return a valid event."""
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


def check_events(events: Sequence[NewEvent]) -> None:
    """Check events, and their number in one transaction."""
    if len(events) > EVENT_BATCH_MAX:
        raise UsageError(
            f"{len(events):,} events at once; the limit is {EVENT_BATCH_MAX:,}", field="events"
        )
    for event in events:
        check_event(event)


def check_match(match: str) -> str:
    """Return a valid match: a flat JSON object of a few plain values."""
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
    """Return the number of the last event of the page before."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        )
    return int(cursor)


def check_words(value: object, *, what: str, field: str, chars_max: int) -> str:
    """Return a non-empty text of limited length without characters that a store cannot hold."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be text, not {type(value).__name__}", field=field)
    if not value:
        raise InvalidName(f"{what} is empty", field=field)
    if len(value) > chars_max:
        raise InvalidName(
            f"{what} {shown(value)} has {len(value):,} characters; the limit is {chars_max}",
            field=field,
        )
    if fault := text_fault(value):
        raise InvalidName(f"{what} {shown(value)} {fault}", field=field)
    return value


def _pairs(value: object) -> frozenset[str]:
    """Return canonical texts of an object's plain values with their keys."""
    if not isinstance(value, dict):
        return frozenset()
    return frozenset(
        f"{json.dumps(key)}:{_canonical(item)}"
        for key, item in cast("dict[str, Any]", value).items()
        if not isinstance(item, list | dict)
    )


def _canonical(value: str | float | None) -> str:
    """Return the same text for equal values."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return json.dumps(value)


def _own(execution: UUID) -> str:
    return f"@{execution}"


def _short(pair: str) -> str:
    if len(pair) <= _KEY_CHARS_MAX:
        return pair
    return hashlib.sha256(pair.encode()).hexdigest()


# Steps: the record of a durable function, so that its next attempt repeats nothing.
#
# A step is identified by its execution and its position `n` in the order of calls. A worker
# records a `NewStep`; reading returns a `Step`. Results and errors are JSON text.

FAILURES_MAX: Final = 2**31 - 1


class StepKind(StrEnum):
    """The kind of a step."""

    STEP = "step"  # a function call
    SLEEP = "sleep"  # until `wake_at`
    WAIT = "wait"  # for an event, at most until `wake_at`
    NOW = "now"  # a time that a replay repeats


TIMED: Final = frozenset({StepKind.SLEEP, StepKind.WAIT})  # kinds with a `wake_at`


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A recorded step. Stores have columns of these names."""

    n: int
    name: str
    kind: StepKind
    result: str | None = None  # of a wait: the event, None after the timeout
    error: str | None = None
    failures: int = 0
    wake_at: Instant | None = None  # the end of a sleep, or of the wait for an event
    started_at: Instant
    finished_at: Instant | None = None  # of a sleep: its `wake_at`, possibly in the future
    is_done: bool = True  # False: a failed step to retry, or a wait


class NewStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step to record, with the fence of its attempt."""

    id: UUID  # the execution
    attempt: int
    lease: UUID
    n: int
    name: str
    kind: StepKind
    result: str | None = None
    error: str | None = None
    failures: int = 0
    is_done: bool = True  # ignored for a wait
    ran: Seconds | None = None  # duration
    delay: Seconds | None = None  # of a sleep, by the store's clock
    event: str | None = None  # of a wait: the name of the event
    match: str = "{}"  # of a wait: required values, see `core.event.matches`
    timeout: Seconds | None = None  # of a wait; None: no limit


class NodeWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A wait of a node for an event."""

    execution: UUID  # of the node
    label: str  # of the waiting node, such as `ask` or `ask[3]`
    node: str  # of the requested run: this node, or the one that contains it
    name: str  # of the event
    match: str = "{}"  # required values
    until: Instant | None = None


def record_step(new: NewStep, before: Step | None, *, now: Instant) -> Step:
    """Return the record after a write, without regard to events. A finished step stays."""
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
    """End a wait with an event, or without one after its timeout."""
    return replace(wait, result=result, finished_at=now, is_done=True)


def check_step(step: NewStep) -> NewStep:
    """Return a valid step."""
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
        # Comparisons with NaN are false, so it is refused, too.
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
    """Check steps, and their number in one transaction."""
    if len(steps) > RECORD_BATCH_MAX:
        raise UsageError(
            f"{len(steps):,} steps at once; the limit is {RECORD_BATCH_MAX:,}", field="steps"
        )
    for step in steps:
        check_step(step)


def _check_text(text: str, *, field: str, what: str, most: int) -> None:
    if fault := text_fault(text):
        raise UsageError(f"{what} {fault}", field=field)
    if fault := size_fault(text, most):
        raise PayloadTooLarge(
            f"{what} {fault}. Store it elsewhere and return its address", field=field
        )
