"""A worker's side of its warden: started when it is first needed, and again if it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

import daybell.runners
from daybell.core.instant import Seconds
from daybell.runners.trees import Tree

logger = logging.getLogger("daybell.worker")

START_SECONDS_MAX: Final = 30.0
CLOSE_SECONDS_MAX: Final = 1.0

# Without the environment's and the site's ideas of what to load: it starts in a few milliseconds.
_FOLDER: Final = str(Path(daybell.runners.__file__).parents[2])
_SCRIPT: Final = (
    f"import sys; sys.path.append({_FOLDER!r}); from daybell.runners.warden import main; main()"
)
COMMAND: Final = (sys.executable, "-I", "-S", "-c", _SCRIPT)


class Warden:
    """Tells a warden of the commands of a worker. `trees` are those that there are."""

    def __init__(self, trees: Iterable[Tree], threads: Executor) -> None:
        self._trees = trees
        self._threads = threads
        self._line: socket.socket | None = None  # None: there is none
        self._unsent = b""
        self._starting: asyncio.Task[None] | None = None
        self._is_closed = False
        self._folder: str | None = None  # that it removes in the end

    def keep(self, folder: str) -> None:
        """Have this folder removed when the worker is gone."""
        if self._folder != folder:
            self._folder = folder
            self._say(f"@{folder}")

    async def expect(self, tree: Tree) -> None:
        """A command will be started. When this returns, it would not outlive the worker. Raises
        OSError if nobody can see to that.
        """
        await self._up()
        self._say(f"+{tree.mark}")

    def begun(self, tree: Tree) -> None:
        """It has been started."""
        self._say(_entry(tree))

    def forget(self, tree: Tree) -> None:
        """It is gone, or was never started."""
        self._say(f"-{tree.mark}")

    async def close(self) -> None:
        """Have it end, and wait for that."""
        self._is_closed = True
        if self._starting is not None:
            await asyncio.wait([self._starting])
        line, self._line = self._line, None
        if line is not None:
            loop = asyncio.get_running_loop()
            self._let_go(line)
            with line:
                line.shutdown(socket.SHUT_WR)
                with suppress(TimeoutError, OSError):
                    await asyncio.wait_for(loop.sock_recv(line, 1), CLOSE_SECONDS_MAX)

    async def _up(self) -> None:
        while self._line is None:
            if self._starting is None:
                self._start_soon()
            assert self._starting is not None
            await asyncio.shield(self._starting)

    def _start_soon(self) -> None:
        loop = asyncio.get_running_loop()
        self._starting = loop.create_task(self._start())
        self._starting.add_done_callback(self._started)

    def _started(self, starting: asyncio.Task[None]) -> None:
        self._starting = None
        if not starting.cancelled() and (error := starting.exception()) is not None:
            logger.error("the warden of commands cannot be started: %s", error)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, _run, theirs)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._line, self._unsent = ours, b""
        loop.add_reader(ours.fileno(), self._heard)
        if self._folder is not None:
            self._say(f"@{self._folder}")
        for tree in list(self._trees):
            self._say(_entry(tree))

    def _say(self, line: str) -> None:
        """Tell it now: what has been sent is heard even if the worker is gone a moment later."""
        if self._line is None:
            return  # the next one will be told all
        self._unsent += os.fsencode(f"{line}\n")
        self._send()

    def _send(self) -> None:
        if self._line is None:
            return
        loop, fd = asyncio.get_running_loop(), self._line.fileno()
        try:
            self._unsent = self._unsent[self._line.send(self._unsent) :]
        except BlockingIOError:  # somebody has stopped it
            pass
        except OSError:
            return  # its end is heard in a moment
        if self._unsent:
            loop.add_writer(fd, self._send)
        else:
            loop.remove_writer(fd)

    def _heard(self) -> None:
        """It never says anything: its end is all that can be heard."""
        line, self._line = self._line, None
        if line is None:
            return
        self._let_go(line)
        line.close()
        logger.warning("the warden of commands is gone; another is started")
        if not self._is_closed:
            self._start_soon()

    @staticmethod
    def _let_go(line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(line.fileno())
        loop.remove_writer(line.fileno())


def _entry(tree: Tree) -> str:
    if tree.pid is None or tree.start is None:
        return f"+{tree.mark}"
    return f"={tree.mark} {tree.pid} {tree.start}"


def _run(line: socket.socket, within: Seconds = START_SECONDS_MAX) -> None:
    """Start one. The process that this waits for is not the warden but its parent."""
    try:
        subprocess.run(
            [*COMMAND, str(os.getpid())],
            stdin=line.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            timeout=within,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"the warden of commands did not start: {error}") from error
