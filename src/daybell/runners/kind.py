"""Handlers of jobs without code: policies, secrets, the result; and a wrapper around another
handler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from daybell.core import payload
from daybell.core.job import JobDefinition
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.retry import Retry
from daybell.core.units import Seconds
from daybell.runners.python import MaskedAttempt, RunningAttempt


class Reveal(Protocol):
    """Replaces references to secrets by their values. A secret that is missing, or cannot be opened
    here, fails the attempt.
    """

    async def value(self, running: RunningAttempt, value: Any) -> Any:
        """Return a part of the job's settings with its secrets."""
        ...

    async def args(self, running: RunningAttempt) -> dict[str, Any]:
        """Return the arguments of the execution with their secrets."""
        ...


class KindHandler(ABC):
    """Handler of one version of a job without code."""

    grace = 0.0
    goes_on = False

    def __init__(self, definition: JobDefinition, reveal: Reveal) -> None:
        self.retry = definition.retry
        self.timeout = definition.timeout
        self.starts_once = definition.on_lost == "dead"
        self._store_result = definition.store_result
        self.reveal = reveal

    async def run(self, running: MaskedAttempt) -> str | None:
        """Do the work; return the kept part of its result."""
        result = await self.perform(running)
        if result is None or not self._store_result:
            return None
        return payload.encode(result, what="result", bytes_max=RESULT_BYTES_MAX)

    async def revealed(self, running: RunningAttempt, by_name: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name with their secrets. One of them may be called "secret", so they are
        not passed as a whole.
        """
        values = await self.reveal.value(running, list(by_name.values()))
        return dict(zip(by_name, values, strict=True))

    @abstractmethod
    async def perform(self, running: MaskedAttempt) -> Any:
        """Do the work; return its result, which fits into RESULT_BYTES_MAX."""


# Handlers around others: the work and the policies are those of the inner one.


class WrappedHandler(Protocol):
    """The protocol of a handler: see `engine.attempt.Handler`, which this must match."""

    @property
    def retry(self) -> Retry: ...
    @property
    def timeout(self) -> Seconds | None: ...
    @property
    def goes_on(self) -> bool: ...
    @property
    def grace(self) -> Seconds: ...
    @property
    def starts_once(self) -> bool: ...
    async def run(self, running: Any) -> str | None: ...


class HandlerWrapper:
    """A handler with the policies of another one. They are not copied, since some are known only
    when it runs.
    """

    def __init__(self, inner: WrappedHandler) -> None:
        self.inner = inner

    @property
    def retry(self) -> Retry:
        return self.inner.retry

    @property
    def timeout(self) -> Seconds | None:
        return self.inner.timeout

    @property
    def goes_on(self) -> bool:
        return self.inner.goes_on

    @property
    def grace(self) -> Seconds:
        return self.inner.grace

    @property
    def starts_once(self) -> bool:
        return self.inner.starts_once
