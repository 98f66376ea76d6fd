"""Writing down the steps of durable functions, in groups.

The first is sent at once; what comes while it is on its way makes up the next group. So one
function alone waits for one write after each step, and a hundred at once share theirs. While the
store is away, everybody waits: a step that is not on record must not be built upon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from daybell.core.limits import RECORD_BATCH_MAX
from daybell.core.step import NewStep, Step, check_step
from daybell.engine.clock import Clock
from daybell.engine.loop import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS
from daybell.errors import Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

T = TypeVar("T")

GROUP_CHARS_MAX: Final = 8 * 1024 * 1024  # of results; each may be large

Answer = list[Step] | None  # None: the execution is somebody else's
Waiting = tuple[list[NewStep], "asyncio.Future[Answer]"]


class Recorder:
    """Steps of one worker's executions on their way to the store."""

    def __init__(self, store: Store, *, tenant: str, worker: UUID, clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self.clock = clock
        # Set by who knows how: stops runs, by id and attempt, for a reason.
        self.stop: Callable[[Collection[tuple[UUID, int]], Any], object] = _nothing
        self._waiting: list[Waiting] = []
        self._on_its_way: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._is_closed = False

    async def recall(self, id: UUID) -> list[Step]:
        """What is on record of an execution."""
        return await self._patiently("read", lambda: self._store.steps(self._tenant, id))

    async def record(self, steps: Sequence[NewStep]) -> Answer:
        """Write steps of one execution, perhaps together with others'. None: it is not this
        worker's any more. Raises UsageError for what cannot be kept.

        Who is cancelled meanwhile waits for the answer all the same: what a step has done is on
        record before anybody can be told to do it again.
        """
        checked = [check_step(step) for step in steps]
        if self._is_closed:
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((checked, answer))
        if self._writer is None:
            self._writer = loop.create_task(self._write_all(), name="record")
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await asyncio.wait([answer])
            _ = answer.cancelled() or answer.exception()  # which nobody asks for any more
            raise

    def close(self) -> None:
        """The lease is lost: nothing that is still to be written would be taken."""
        self._is_closed = True
        untold = [*self._on_its_way, *self._waiting]
        self._tell(untold, [None] * len(untold))
        self._waiting = []

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                self._on_its_way = self._next_group()
                await self._write(self._on_its_way)
        except BaseException as error:  # the loop ends, or the store is broken
            left, self._waiting = [*self._on_its_way, *self._waiting], []
            for _, answer in left:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._writer, self._on_its_way = None, []

    def _next_group(self) -> list[Waiting]:
        count, size, chars = 0, 0, 0
        for steps, _ in self._waiting:
            size += len(steps)
            chars += sum(len(step.result or "") for step in steps)
            if count and (size > RECORD_BATCH_MAX or chars > GROUP_CHARS_MAX):
                break
            count += 1
        group = self._waiting[:count]
        del self._waiting[:count]
        return group

    async def _write(self, group: list[Waiting]) -> None:
        """Write them together; if that breaks the store, the one that does is found by halves."""
        steps = [step for some, _ in group for step in some]
        try:
            written = await self._patiently(
                "written",
                lambda: self._store.record(self._tenant, worker=self._worker, steps=steps),
            )
        except Unavailable:  # and the lease is lost
            self._tell(group, [None] * len(group))
            return
        except Exception as error:
            if len(group) == 1:
                _, answer = group[0]
                if not answer.done():
                    answer.set_exception(error)
                return
            middle = len(group) // 2
            await self._write(group[:middle])
            await self._write(group[middle:])
            return
        found = iter(written)
        self._tell(group, [_whole([next(found) for _ in some]) for some, _ in group])

    @staticmethod
    def _tell(group: list[Waiting], answers: Sequence[Answer]) -> None:
        for (_, answer), found in zip(group, answers, strict=True):
            if not answer.done():
                answer.set_result(found)

    async def _patiently(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, however long the store is away; until the lease is lost, which stops who waits.

        What was written although the answer was lost is answered as written.
        """
        failures = 0
        while True:
            try:
                return await work()
            except Unavailable as error:
                if self._is_closed:
                    raise
                failures += 1
                if failures == 1:
                    logger.warning("steps cannot be %s: %s; trying again", what, error)
            pause = BACKOFF_MIN_SECONDS * 2 ** min(failures - 1, 10)
            pause = min(BACKOFF_MAX_SECONDS, pause) * (0.5 + 0.5 * self.clock.jitter())
            await self.clock.sleep(pause)


def _whole(found: list[Step | None]) -> Answer:
    steps = [step for step in found if step is not None]
    return steps if len(steps) == len(found) else None


def _nothing(fences: Collection[tuple[UUID, int]], why: Any) -> None:
    del fences, why
