"""One program, from its start to its burial."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress

import msgspec

from daybell.core.limits import COMMAND_OUTPUT_CHARS_MAX
from daybell.runners.trees import Tree


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run."""

    mark: str  # is in `env`, too, as `trees.py` looks for it
    argv: list[str]
    env: dict[str, str]
    directory: str | None = None
    stdin: str | None = None
    chars_max: int = COMMAND_OUTPUT_CHARS_MAX  # of what it prints, that are kept of each stream


class Program:
    """A command's own process. `exited` says that it is dead; it is buried last, so that nobody
    else gets its number while its descendants are looked for by it.
    """

    def __init__(self, order: Order, tree: Tree) -> None:
        self.tree = tree
        self.exited = asyncio.Event()
        self.is_abandoned = False  # nobody has waited for its end
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._fd = -1

    def start(self, stdout: int, stderr: int) -> None:
        """Start it. Not on the event loop: this waits until the program is loaded."""
        order = self._order
        if order.directory is not None:
            os.stat(os.path.join(order.directory, ""))  # says so itself if it is no directory
        stdin = subprocess.DEVNULL if order.stdin is None else _file_with(order.stdin)
        try:
            self._process = subprocess.Popen(
                order.argv,
                env=order.env,
                cwd=order.directory,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        finally:
            if order.stdin is not None:
                os.close(stdin)
        self.tree.begin(self._process.pid)
        with suppress(AttributeError, OSError):
            self._fd = os.pidfd_open(self._process.pid)

    def watch(self) -> None:
        """Learn of its end."""
        assert self._process is not None
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._exited)
        else:
            threading.Thread(target=self._wait, args=(self._process.pid,), daemon=True).start()

    def bury(self) -> int | None:
        """Its exit code; None: somebody else has it, or it cannot be killed."""
        assert self._process is not None
        try:
            pid, status = os.waitpid(self._process.pid, os.WNOHANG)
        except ChildProcessError:
            code = None
        else:
            code = os.waitstatus_to_exitcode(status) if pid else None
        self._process.returncode = -1 if code is None else code  # it need not look any more
        return code

    def close(self) -> None:
        """Have nothing more to do with it. If it is not buried, that is the end of it."""
        self._unwatch()
        if self._process is not None and self._process.returncode is None:
            self.is_abandoned = True
            self.tree.signal_group(signal.SIGKILL)
            self.bury()

    def _unwatch(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _exited(self) -> None:
        self._unwatch()
        self.exited.set()

    def _wait(self, pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.exited.set)


def _file_with(text: str) -> int:
    """A file with this text, which is nowhere on a disk if that is possible. Unlike a pipe, nobody
    has to keep filling it, and nothing breaks if it is not read.
    """
    try:
        fd = os.memfd_create("stdin")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    data = memoryview(text.encode())
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
