"""Single enqueues that come at the same time go to the store together.

The first is sent at once; what comes while it is on its way makes up the next group. So a lone
enqueue waits for nothing, and fifty at once are one statement instead of fifty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from daybell.core.access import NewAuditEntry
from daybell.core.execution import Enqueued, NewExecution
from daybell.errors import DaybellError, Unavailable
from daybell.store.shares import set_holder

GROUP_MAX: Final = 1000


class Send(Protocol):
    """The way to the store. `repeat`: these may have been sent before."""

    async def __call__(
        self, executions: Sequence[NewExecution], entries: Sequence[NewAuditEntry], *, repeat: bool
    ) -> list[Enqueued]: ...


Waiting = tuple[NewExecution, NewAuditEntry | None, "asyncio.Future[Enqueued]"]


class Coalescer:
    """Gathers executions of one event loop."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[Waiting] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, new: NewExecution, entry: NewAuditEntry | None = None) -> Enqueued:
        """Enqueue one, perhaps together with others; their errors are not its. `entry` tells the
        audit log of it, in the same transaction.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Enqueued] = loop.create_future()
        self._waiting.append((new, entry, answer))
        if self._sender is None:
            self._sender = loop.create_task(self._send_all())
        return await answer

    async def _send_all(self) -> None:
        set_holder(None)  # one statement at a time for all keys of a tenant needs no turn
        group: list[Waiting] = []
        try:
            while self._waiting:
                group = self._waiting[:GROUP_MAX]
                del self._waiting[:GROUP_MAX]
                await self._send_group(group)
        except BaseException as error:  # the loop ends
            left, self._waiting = [*group, *self._waiting], []
            _fail(left, error)
            raise
        finally:
            self._sender = None

    async def _send_group(self, group: list[Waiting], *, repeat: bool = False) -> None:
        try:
            entries = [entry for _, entry, _ in group if entry is not None]
            answers = await self._send([new for new, _, _ in group], entries, repeat=repeat)
        except Unavailable as error:
            if repeat or not error.was_sent:
                _fail(group, error)
            else:
                # Perhaps it was committed and only the answer is lost: the ids tell.
                await self._send_group(group, repeat=True)
        except DaybellError as error:
            # One of them is at fault, and the group was all or nothing: by halves, then.
            if len(group) == 1:
                _fail(group, error)
                return
            middle = len(group) // 2
            await self._send_group(group[:middle], repeat=repeat)
            await self._send_group(group[middle:], repeat=repeat)
        except Exception as error:
            _fail(group, error)  # a mistake of ours; those who wait must hear of it, and go on
        else:
            for (_, _, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(group: list[Waiting], error: BaseException) -> None:
    for _, _, future in group:
        if not future.done():
            future.set_exception(error)
