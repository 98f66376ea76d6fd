"""Steps: what a durable function has done so far, so that its next attempt need not do it again.

A step is named by its execution and its place `n` in the order of calls. `NewStep` is one as its
worker records it, `Step` as it is read back. Results and errors are JSON text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.event import check_match, check_words
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    DURATION_SECONDS_MAX,
    EVENT_NAME_CHARS_MAX,
    NAME_CHARS_MAX,
    RESULT_BYTES_MAX,
    STEPS_MAX,
)
from daybell.errors import PayloadTooLarge, UsageError

FAILURES_MAX: Final = 2**31 - 1


class StepKind(StrEnum):
    """What a step is."""

    STEP = "step"  # a function was called
    SLEEP = "sleep"  # until `wake_at`
    WAIT = "wait"  # for an event, at most until `wake_at`
    NOW = "now"  # a value that has to be the same again: the time, a random number


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
