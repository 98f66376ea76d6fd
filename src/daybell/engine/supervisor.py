"""Keeping processes alive: one child per slot, started again when it dies.

A child that ends well was meant to end and is left alone. One that does not is started again
after a wait that doubles with every early death, unless it never came up because it was told
nonsense: that would be nonsense the next time, too. Of one that was a worker, the store is told
that it is gone, so that nobody waits for its lease to end. The first request to stop is passed on
once, so that children drain; whoever does not end in time is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.engine.clock import Clock

logger = logging.getLogger("daybell.supervisor")

BACKOFF_MIN_SECONDS: Final = 0.5
BACKOFF_MAX_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 60.0  # alive for so long, a child has proved itself
USAGE_CODE: Final = 2  # what the command line ends with when it was told nonsense
COMING_UP_SECONDS: Final = 10.0  # in which a child has read what it was told
ANNOUNCE: Final = "DAYBELL_ANNOUNCE"  # the number of an open file, in a child's environment
ANNOUNCED_BYTES_MAX: Final = 65536  # as much as a pipe holds
GROUP_LOOKS: Final = 100  # at what a dead child has left behind,
GROUP_SECONDS: Final = 0.01  # so far apart

Process = asyncio.subprocess.Process
OnDeath = Callable[[list[UUID]], Awaitable[None]]
Announce = Callable[[UUID], None]


class Supervisor:
    """Runs `count` children; `command` says what the child of a slot, from 1, is started with.

    A child writes the ids of its workers to the file whose number is in `DAYBELL_ANNOUNCE`;
    `on_death` is given those of one that has died.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        *,
        clock: Clock,
        grace: Seconds,
        backoff: Seconds = BACKOFF_MIN_SECONDS,
        on_death: OnDeath | None = None,
    ) -> None:
        self._on_death = on_death
        self._command = command
        self._count = count
        self._clock = clock
        self._grace = grace  # how long children may take to end when they are asked to
        self._backoff = backoff
        self._stopping = asyncio.Event()
        self._children: dict[int, Process] = {}
        self._killing: asyncio.TimerHandle | None = None
        self.restarts = 0

    async def run(self) -> int:
        """Until all children have ended for good; answers the exit code for the whole."""
        try:
            codes = await asyncio.gather(*(self._keep(slot + 1) for slot in range(self._count)))
        finally:
            if self._killing is not None:
                self._killing.cancel()
            self.kill()
        return max(codes)

    def stop(self) -> None:
        """Ask all children to end, once, and start no other."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for child in self._children.values():
            _signal(child, signal.SIGTERM)
        self._killing = asyncio.get_running_loop().call_later(self._grace, self._lose_patience)

    def kill(self) -> None:
        """End all children now, and what they have started themselves."""
        for child in list(self._children.values()):
            # Each leads a group of its own, so that a terminal's Ctrl-C reaches only us.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    async def _keep(self, slot: int) -> int:
        early_deaths, is_first = 0, True
        while True:
            code, lived, pid, workers = await self._run_child(slot)
            if code != 0 and workers and self._on_death is not None:
                await self._all_gone(pid)
                await self._on_death(workers)
            if self._stopping.is_set():
                return 0 if code in (0, -signal.SIGTERM) else 1
            if code == 0:
                logger.info("process %d (pid %d) has ended and stays so", slot, pid)
                return 0
            if code == USAGE_CODE and is_first and lived < COMING_UP_SECONDS:
                logger.error("process %d refused to start (%s); all are stopped", slot, _said(code))
                self.stop()
                return USAGE_CODE
            is_first = False
            early_deaths = 1 if lived >= SETTLED_SECONDS else early_deaths + 1
            pause = min(BACKOFF_MAX_SECONDS, self._backoff * 2 ** min(early_deaths - 1, 16))
            logger.warning(
                "process %d (pid %d) ended with %s and is started again in %g s",
                slot,
                pid,
                _said(code),
                pause,
            )
            if await self._is_stopped_within(pause):
                return 0
            self.restarts += 1

    async def _run_child(self, slot: int) -> tuple[int, Seconds, int, list[UUID]]:
        started = self._clock.monotonic()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        try:
            try:
                child = await asyncio.create_subprocess_exec(
                    *self._command(slot),
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=(writing,),
                    env=os.environ | {ANNOUNCE: str(writing)},
                )
            finally:
                os.close(writing)
            self._children[slot] = child
            if self._stopping.is_set():
                _signal(child, signal.SIGTERM)  # asked while it was being born
            code = await child.wait()
            del self._children[slot]
            workers = _announced(reading)
        finally:
            os.close(reading)
        return code, self._clock.monotonic() - started, child.pid, workers

    async def _all_gone(self, pid: int) -> None:
        """End what a dead child has left behind: it may be at work on something that others are
        about to begin.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            for _ in range(GROUP_LOOKS):
                os.killpg(pid, signal.SIGKILL)
                await self._clock.sleep(GROUP_SECONDS)

    async def _is_stopped_within(self, seconds: Seconds) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _lose_patience(self) -> None:
        pids = ", ".join(str(child.pid) for child in self._children.values())
        logger.warning("not ended in time and killed: %s", pids)
        self.kill()


def _signal(child: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


def _announced(file: int) -> list[UUID]:
    """The workers that a child was; it has ended, so all that it said is there."""
    try:
        said = os.read(file, ANNOUNCED_BYTES_MAX)
    except BlockingIOError:  # nothing, and something that it has started lives on
        return []
    return [UUID(bytes=said[at : at + 16]) for at in range(0, len(said) - 15, 16)]


def announcing(environment: Mapping[str, str]) -> Announce | None:
    """In a child: how to tell the supervisor which worker this is; None if there is none."""
    number = environment.get(ANNOUNCE, "")
    if not number.isdecimal():
        return None

    def announce(worker: UUID) -> None:
        with contextlib.suppress(OSError):  # then its lease has to end by itself
            os.write(int(number), worker.bytes)

    return announce


def _said(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"
