"""The supervisor of child processes: one child per slot, restarted when it dies.

- A child that exits with code 0 after it announced `DRAINED` is not restarted. Code 0 alone proves
  nothing: a task may have called `os._exit(0)`.
- A child that rejects its arguments at its first start ends all children.
- Any other child is restarted after a pause that doubles with every early death. The lease of a
  dead worker is ended in the store at once.
- The first request to stop is passed to the children, which drain. Children that do not end in
  time are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.units import Seconds
from daybell.engine.loop import Clock

logger = logging.getLogger("daybell.supervisor")

BACKOFF_MIN_SECONDS: Final = 0.5
BACKOFF_MAX_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 60.0  # a child that lives this long resets the pause
USAGE_CODE: Final = 2  # the exit code of the command line for wrong arguments
COMING_UP_SECONDS: Final = 10.0  # the time in which a child reads its arguments
ANNOUNCE: Final = "DAYBELL_ANNOUNCE"  # environment variable of a child: a file descriptor
DRAINED: Final = UUID(int=(1 << 128) - 1)  # announced before an orderly end
READ_BYTES: Final = 65536  # the capacity of a pipe
WORDS_MAX: Final = 64  # latest announcements; workers before those have ended
GROUP_LOOKS: Final = 100  # signals to the process group of a dead child,
GROUP_SECONDS: Final = 0.01  # at this interval

ChildProcess = asyncio.subprocess.Process
OnDeath = Callable[[list[UUID]], Awaitable[None]]
Announce = Callable[[UUID], None]


class ChildExit(NamedTuple):
    """The end of a child."""

    code: int
    lived: Seconds
    pid: int
    workers: list[UUID]
    has_drained: bool

    @property
    def is_orderly(self) -> bool:
        return self.code == 0 and self.has_drained


class Supervisor:
    """Runs `count` children; `command` returns the arguments for a slot, from 1.

    A child writes the ids of its workers to the file descriptor in `DAYBELL_ANNOUNCE`, and
    `DRAINED` before an orderly end; `on_death` gets the workers after any other end.
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
        self._grace = grace  # time for children to end after a stop
        self._backoff = backoff
        self._stopping = asyncio.Event()
        self._children: dict[int, ChildProcess] = {}
        self._killing: asyncio.TimerHandle | None = None
        self.restarts = 0

    async def run(self) -> int:
        """Wait until all children have ended for good; return the common exit code."""
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
        """Kill all children and their process groups."""
        for child in list(self._children.values()):
            # Each leads a process group, so that Ctrl-C reaches only the supervisor.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    async def _keep(self, slot: int) -> int:
        early_deaths, is_first = 0, True
        while True:
            end = await self._run_child(slot)
            ended_while_stopping = self._stopping.is_set()
            if not end.is_orderly and end.workers and self._on_death is not None:
                await self._all_gone(end.pid)
                await self._on_death(end.workers)
            if ended_while_stopping:
                # A child that was not yet a worker had nothing to drain.
                is_early = end.code in (0, -signal.SIGTERM) and not end.workers
                return 0 if end.is_orderly or is_early else 1
            if end.is_orderly:
                logger.info("process %d (pid %d) has ended and stays so", slot, end.pid)
                return 0
            if end.code == USAGE_CODE and is_first and end.lived < COMING_UP_SECONDS:
                said = _describe_exit(end.code)
                logger.error("process %d refused to start (%s); all are stopped", slot, said)
                self.stop()
                return USAGE_CODE
            is_first = False
            early_deaths = 1 if end.lived >= SETTLED_SECONDS else early_deaths + 1
            pause = min(BACKOFF_MAX_SECONDS, self._backoff * 2 ** min(early_deaths - 1, 16))
            logger.warning(
                "process %d (pid %d) ended with %s%s and is started again in %g s",
                slot,
                end.pid,
                _describe_exit(end.code),
                " without having drained" if end.code == 0 else "",
                pause,
            )
            if await self._is_stopped_within(pause):
                return 0
            self.restarts += 1

    async def _run_child(self, slot: int) -> ChildExit:
        started = self._clock.monotonic()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        words = _Announcements(reading)
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
                _signal(child, signal.SIGTERM)  # a stop during the start
            code = await child.wait()
            del self._children[slot]
        finally:
            said = words.close()
        lived = self._clock.monotonic() - started
        workers = [word for word in said if word != DRAINED]
        return ChildExit(code, lived, child.pid, workers, said[-1:] == [DRAINED])

    async def _all_gone(self, pid: int) -> None:
        """Kill the processes that a dead child has left behind: others may start its executions."""
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
        logger.warning("killed after the grace period: %s", pids)
        self.kill()


def _signal(child: ChildProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)


class _Announcements:
    """The announcements of a child, read as they come, because a pipe has a limited capacity."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._said = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(file, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._file, READ_BYTES):
                self._said += part
                del self._said[: max(0, len(self._said) // 16 - WORDS_MAX) * 16]
            self._loop.remove_reader(self._file)  # closed at the other end

    def close(self) -> list[UUID]:
        """Stop reading, and return the latest announcements."""
        self._read()
        self._loop.remove_reader(self._file)
        os.close(self._file)
        said = bytes(self._said)
        return [UUID(bytes=said[at : at + 16]) for at in range(0, len(said) - 15, 16)]


def open_announcer(environment: Mapping[str, str]) -> Announce | None:
    """Return the function of a child that announces a worker's id or `DRAINED`; None without a
    supervisor.
    """
    number = environment.get(ANNOUNCE, "")
    if not number.isdecimal():
        return None

    def announce(worker: UUID) -> None:
        with contextlib.suppress(OSError):  # then the lease expires by itself
            os.write(int(number), worker.bytes)

    return announce


def _describe_exit(code: int) -> str:
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"
