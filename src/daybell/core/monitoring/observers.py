"""Observers of executions: traces and error reports. Without any, none of this costs more than one
comparison.

The context of a trace (W3C Trace Context) is stored beside an execution, so that its attempts, and
all that they enqueue, belong to the trace of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from msgspec.structs import replace

from daybell.core.execution import Claimed, NewExecution, Outcome, State

_CONTEXT: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

# The context that a request came with.
incoming: ContextVar[str | None] = ContextVar("daybell_trace", default=None)


class Observer(Protocol):
    """Is told about executions where they happen. Its methods are context managers around them."""

    def enqueue(self, executions: Sequence[NewExecution]) -> AbstractContextManager[str | None]:
        """Surround an enqueue; return the context to store."""
        ...

    def run(
        self, claimed: Claimed, trace: str | None, mask: Callable[[str], str]
    ) -> AbstractContextManager[None]:
        """Surround an attempt, whose errors it passes on. `mask` removes secrets."""
        ...

    def step(self, name: str, mask: Callable[[str], str]) -> AbstractContextManager[None]:
        """Surround a call of a step."""
        ...

    def end(self, claimed: Claimed, state: State, outcome: Outcome | None) -> None:
        """Note the end of an attempt, and the state of the execution after it."""
        ...

    def headers(self) -> dict[str, str]:
        """Return headers for a request that the current code makes."""
        ...


active: tuple[Observer, ...] = ()  # of this process


def add(observer: Observer) -> None:
    """Add an observer to this process."""
    global active
    active = (*active, observer)


def remove(observer: Observer) -> None:
    """Remove an observer from this process."""
    global active
    active = tuple(one for one in active if one is not observer)


@contextmanager
def received(text: str) -> Generator[None]:
    """Handle a request that came with this context. An invalid one is ignored, as the standard
    says.
    """
    is_valid = _CONTEXT.fullmatch(text) is not None and not text.startswith("ff")
    token = incoming.set(text if is_valid else None)
    try:
        yield
    finally:
        incoming.reset(token)


def are_traced() -> bool:
    """True if executions that are enqueued now get the context of a trace."""
    return bool(active) or incoming.get() is not None


@contextmanager
def enqueueing(executions: Sequence[NewExecution]) -> Generator[list[NewExecution]]:
    """Observe an enqueue; yield the executions with the context to store."""
    trace = incoming.get()
    with ExitStack() as stack:
        for observer in active:
            trace = stack.enter_context(observer.enqueue(executions)) or trace
        yield [replace(one, trace=trace) for one in executions]


@contextmanager
def running(claimed: Claimed, trace: str | None, mask: Callable[[str], str]) -> Generator[None]:
    """Observe an attempt."""
    with ExitStack() as stack:
        for observer in active:
            stack.enter_context(observer.run(claimed, trace, mask))
        yield


@contextmanager
def stepping(name: str, mask: Callable[[str], str]) -> Generator[None]:
    """Observe a call of a step."""
    with ExitStack() as stack:
        for observer in active:
            stack.enter_context(observer.step(name, mask))
        yield


def note_end(claimed: Claimed, state: State, outcome: Outcome | None) -> None:
    """Tell all observers of the end of an attempt."""
    for observer in active:
        observer.end(claimed, state, outcome)


def headers() -> dict[str, str]:
    """Return headers that continue the current trace in another program."""
    found: dict[str, str] = {}
    for observer in active:
        found |= observer.headers()
    return found
