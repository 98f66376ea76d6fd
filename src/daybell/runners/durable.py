"""What durable functions need of who runs them, and what is asked of them in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeAlias, cast

from daybell.core.instant import Instant, Seconds
from daybell.core.step import NewStep, Step

Group: TypeAlias = "BaseExceptionGroup[BaseException]"


class Ledger(Protocol):
    """Where one attempt writes down its steps."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it is written in."""
        ...

    @property
    def has_transaction(self) -> bool:
        """Whether the task's own transaction is open."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the attempt is over."""
        ...

    def now(self) -> Instant:
        """The store's time, as well as it is known here."""
        ...

    def monotonic(self) -> Seconds: ...

    def jitter(self) -> float:
        """A number from 0 up to 1, different each time."""
        ...

    def mask(self, text: str, /) -> str:
        """A text without secrets."""
        ...

    def mask_json(self, text: str, /) -> str:
        """JSON without the secrets in it."""
        ...

    async def recall(self) -> list[Step]:
        """What earlier attempts have written; read for as long as it takes."""
        ...

    async def record(self, steps: Sequence[NewStep]) -> list[Step]:
        """Write steps; when this returns, they are on disk, and this is what is on record of each.

        Raises CancelledError if the execution is not this worker's any more.
        """
        ...


class Durable(Protocol):
    """What an attempt has done durably, for who runs its function."""

    async def rewind(self) -> None:
        """Read what is on record, and begin with the first step again."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """The function has returned, or raised this. Raises what is wrong with that; Suspended if
        it is to go on in another attempt.
        """
        ...


class Rewind(BaseException):
    """Raised in a function that needs what is on record, where that cannot be waited for: it is
    called again when it was read.
    """


def rewinds(error: BaseException) -> bool:
    """Whether this is such a wish: of one of several at once, perhaps."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(rewinds, cast(Group, error).exceptions))
    return isinstance(error, Rewind)
