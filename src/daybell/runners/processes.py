"""A pool of child processes for tasks that must not share a worker's fate.

Children start when they are needed, run one task after the other, and end when they have been idle
for a while, have run as many tasks as they may, or cannot be trusted any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from daybell.core import payload
from daybell.core.failure import Described
from daybell.core.instant import Seconds
from daybell.core.limits import ARGS_BYTES_MAX
from daybell.core.references import may_refer
from daybell.core.retry import Retry
from daybell.errors import RetryLater
from daybell.runners.child import GRACE_SECONDS, Child
from daybell.runners.python import RevealArgs, Running
from daybell.runners.wire import Done, Order, Place, Setup

IDLE_SECONDS: Final = 60.0
NO_CHILD_SECONDS: Final = 1.0  # after which what found no child in time may be claimed again
REVEALED_BYTES_MAX: Final = 8 * ARGS_BYTES_MAX  # arguments and the secrets in them
STILLBORN_MAX: Final = 3  # new children that die before they begin, until the task has failed


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many children there are, and for how long."""

    children: int | None = None  # at most so many; None: as many as there are processors
    runs_max: int | None = None  # so many tasks in each, then a new one
    idle: Seconds = IDLE_SECONDS
    grace: Seconds = GRACE_SECONDS  # between SIGTERM and SIGKILL

    @property
    def limit(self) -> int:
        return self.children or os.cpu_count() or 1


class Processes:
    """Children of one event loop. `command` starts one, `setup` is what it is told first."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        setup: Callable[[], Setup],
        options: PoolOptions | None = None,
        keeps_logs: bool = True,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._command = command
        self._mask = mask
        self._setup = setup
        self._options = options or PoolOptions()
        self._keeps_logs = keeps_logs
        self._limit = self._options.limit
        self._loop = asyncio.get_running_loop()
        self._children: set[Child] = set()  # those that may run something
        self._leaving: set[Child] = set()  # those that were told to end
        self._idle: list[Child] = []  # longest idle first; the last one is used next
        self._starts: set[asyncio.Task[None]] = set()
        self._waiters: deque[asyncio.Future[Child]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of the children that may run something."""
        return [child.pid for child in self._children]

    async def run(self, order: Order, running: Running) -> str | None:
        """Run a task in a child; raises what it raised there, as it was described there."""
        try:
            done = await self._perform(order, running)
        except asyncio.CancelledError:
            # It has not begun, so it has neither failed nor taken too long.
            raise RetryLater("no child process was free", delay=NO_CHILD_SECONDS) from None
        running.is_hopeless = running.is_hopeless or done.is_hopeless
        if done.later is not None:
            raise RetryLater(done.later.reason, delay=done.later.delay, at=done.later.at)
        if done.failure is not None:
            raise Described(done.failure)
        return done.result

    async def _perform(self, order: Order, running: Running) -> Done:
        """Have a child run it, and another one if that has died before it began.

        Children that were idle may all have been killed at once. That new ones die is no accident,
        and the task's failure in the end: nobody would learn of it otherwise.
        """
        stillborn = 0
        while True:
            child = self._idle.pop() if self._idle else await self._free_child()
            try:
                done = await child.perform(order, running)
            finally:
                self._give_back(child)
            stillborn += child.runs == 1
            if child.has_begun or stillborn == STILLBORN_MAX:
                return done

    async def close(self) -> None:
        """End all children, and wait for it."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._starts:
            await asyncio.wait(self._starts)
        for child in list(self._children):
            self._retire(child)
        while self._leaving:
            await next(iter(self._leaving)).ended()

    async def _free_child(self) -> Child:
        waiter: asyncio.Future[Child] = self._loop.create_future()
        self._waiters.append(waiter)
        if len(self._children) + len(self._starts) < self._limit:
            self._start_one()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._offer(waiter.result())
            raise

    def _start_one(self) -> None:
        # Not in the context of whoever happens to need one: it will serve others, too.
        start = self._loop.create_task(self._start(), context=contextvars.Context())
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)

    async def _start(self) -> None:
        child = Child(
            on_cut=self._leave_out,
            on_end=self._forget,
            grace=self._options.grace,
            keeps_logs=self._keeps_logs,
            mask=self._mask,
        )
        try:
            await child.start(self._command, self._setup())
        except Exception as error:
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(error)
            return
        self._children.add(child)
        if self._is_closed:
            self._retire(child)
        else:
            self._offer(child)

    def _next_waiter(self) -> asyncio.Future[Child] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _give_back(self, child: Child) -> None:
        runs_max = self._options.runs_max
        if child.is_spent or self._is_closed or (runs_max is not None and child.runs >= runs_max):
            self._retire(child)
        else:
            self._offer(child)

    def _offer(self, child: Child) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(child)
            return
        self._idle.append(child)
        child.idle_since = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._options.idle, self._end_idle)

    def _end_idle(self) -> None:
        """Let go of those that nobody has needed for long enough."""
        since = self._loop.time() - self._options.idle
        for child in [child for child in self._idle if child.idle_since <= since]:
            self._retire(child)
        self._sweep = None
        if self._idle:
            wait = self._idle[0].idle_since - since
            self._sweep = self._loop.call_later(wait, self._end_idle)

    def _retire(self, child: Child) -> None:
        if child not in self._children:
            return
        self._remove(child)
        self._leaving.add(child)
        child.retire()

    def _remove(self, child: Child) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if self._waiters and len(self._children) + len(self._starts) < self._limit:
            self._start_one()

    def _leave_out(self, child: Child) -> None:
        """It can be told nothing any more. What it runs, if anything, will say so itself."""
        if child in self._idle:
            self._retire(child)

    def _forget(self, child: Child) -> None:
        """It is gone."""
        self._remove(child)
        self._leaving.discard(child)


class ProcessHandler:
    """One function that is run in children, with its policies."""

    def __init__(
        self,
        place: Place,
        *,
        retry: Retry,
        timeout: Seconds | None,
        store_result: bool,
        memory_limit: int | None,
        processes: Callable[[], Processes],
        reveal: RevealArgs | None = None,
        goes_on: bool = False,
        starts_once: bool = False,
    ) -> None:
        self.retry = retry
        self.timeout = timeout
        self.grace = 0.0
        self.goes_on = goes_on
        self.starts_once = starts_once
        self._place = place
        self._store_result = store_result
        self._memory_limit = memory_limit
        self._processes = processes
        self._reveal = reveal

    async def run(self, running: Running) -> str | None:
        order = Order(self._place, running.claimed, self._store_result, self._memory_limit)
        if self._reveal is not None and may_refer(running.claimed.args):
            order = _with(order, await self._reveal(running))
        return await self._processes().run(order, running)


def _with(order: Order, args: dict[str, Any]) -> Order:
    """An order for a call with these arguments, secrets included."""
    text = payload.encode(args, bytes_max=REVEALED_BYTES_MAX)
    claimed = msgspec.structs.replace(order.claimed, args=text)
    return msgspec.structs.replace(order, claimed=claimed, is_revealed=True)
