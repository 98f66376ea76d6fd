"""A pool of helper processes that do one kind of work for a worker.

Work that may block, leak or fill the memory runs in a helper and not in the worker. A helper reads
orders from standard input and writes answers to standard output, a line of JSON each. It ends when
its standard input ends, so it does not outlive its worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from daybell.core.units import Seconds

HELPERS_MAX: Final = 4
IDLE_SECONDS: Final = 30.0
# Variables of the worker that a program needs to start. No other variable reaches a helper.
ENVIRONMENT: Final = (
    "PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ"
)  # fmt: skip

Hear = Callable[[bytes], bool]  # takes a line; returns True for the last one of the order


class HelperFailed(Exception):
    """A helper did not start, did not answer in time, or ended before its last answer."""


def module_command(module: str) -> tuple[str, ...]:
    """Return the command of a helper that is a module of this package."""
    return (sys.executable, "-P", "-m", module)


class Helpers:
    """Starts helpers on demand, up to a limit, and keeps idle ones for a while; for one event loop.

    `silence`: a helper that writes nothing for so long has failed. `grace`: time for a helper to
    end after its standard input was closed; then it is killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        variables: Sequence[str] = ENVIRONMENT,
        line_bytes_max: int,
        idle: Seconds = IDLE_SECONDS,
        silence: Seconds | None = None,
        grace: Seconds = 0.0,
    ) -> None:
        self._environment = {name: os.environ[name] for name in variables if name in os.environ}
        self._command = list(command)
        self._line_bytes_max = line_bytes_max
        self._idle_seconds = idle
        self._silence = silence
        self._grace = grace
        self._turns = asyncio.Semaphore(HELPERS_MAX)
        self.idle: list[tuple[asyncio.subprocess.Process, asyncio.TimerHandle]] = []
        self.processes: set[asyncio.subprocess.Process] = set()
        self._leaving: set[asyncio.Task[Any]] = set()

    @property
    def pids(self) -> list[int]:
        """The ids of all helpers."""
        return [process.pid for process in self.processes]

    async def run(self, order: bytes, hear: Hear) -> None:
        """Send an order to a helper, and pass each line of its answer to `hear`. An exception of
        `hear`, or a cancellation, ends the helper. Raises HelperFailed.
        """
        async with self._turns:
            process = await self._take()
            try:
                await self._exchange(process, order, hear)
            except BaseException:
                await self._end(process)
                raise
            self._keep(process)

    async def close(self) -> None:
        """End all helpers."""
        for _, timer in self.idle:
            timer.cancel()
        self.idle.clear()
        for process in list(self.processes):
            await self._end(process)

    async def _take(self) -> asyncio.subprocess.Process:
        while self.idle:
            process, timer = self.idle.pop()
            timer.cancel()
            if process.returncode is None:
                return process
            self.processes.discard(process)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._environment,
                limit=self._line_bytes_max,
                start_new_session=True,  # Ctrl-C of a terminal is for the worker
            )
        except OSError as error:
            raise HelperFailed(f"its process could not be started: {error}") from None
        self.processes.add(process)
        return process

    async def _exchange(
        self, process: asyncio.subprocess.Process, order: bytes, hear: Hear
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(order + b"\n")
            await process.stdin.drain()
            while True:
                async with asyncio.timeout(self._silence):
                    line = await process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise HelperFailed("its process has ended in the middle of it")
                if hear(line):
                    return
        except TimeoutError:
            raise HelperFailed(f"there was no answer within {self._silence:g} s") from None
        except (OSError, ValueError):  # ValueError: a line that is too long, or invalid
            raise HelperFailed("its process has ended in the middle of it") from None

    def _keep(self, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._idle_seconds, self._retire, process)
        self.idle.append((process, timer))

    def _retire(self, process: asyncio.subprocess.Process) -> None:
        """End a helper that was idle for long enough."""
        self.idle = [(one, timer) for one, timer in self.idle if one is not process]
        ending = asyncio.get_running_loop().create_task(self._end(process))
        self._leaving.add(ending)
        ending.add_done_callback(self._leaving.discard)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self.processes.discard(process)
        assert process.stdin is not None
        process.stdin.close()
        try:
            if self._grace and process.returncode is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), self._grace)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.shield(process.wait())
