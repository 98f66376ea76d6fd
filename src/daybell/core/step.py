"""Steps: what a durable function has done so far, so that its next attempt need not do it again.

A step is named by its execution and its place `n` in the order of calls. `NewStep` is one as its
worker records it, `Step` as it is read back. Results and errors are JSON text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.event import check_match, check_words
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    DURATION_SECONDS_MAX,
    EVENT_NAME_CHARS_MAX,
    NAME_CHARS_MAX,
    RECORD_BATCH_MAX,
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


def recorded(new: NewStep, before: Step | None, *, now: Instant) -> Step:
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


def ended(wait: Step, result: str | None, *, now: Instant) -> Step:
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
