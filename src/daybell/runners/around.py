"""Handlers around others: the work and its policies are those of the other, something is added."""

from __future__ import annotations

from typing import Any, Protocol

from daybell.core.instant import Seconds
from daybell.core.retry import Retry


class Handled(Protocol):
    """How a job is run: see `engine.handlers.Handler`, which this must fit."""

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


class Around:
    """A handler with the policies of another. They are not copied: some are known when it runs."""

    def __init__(self, inner: Handled) -> None:
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
