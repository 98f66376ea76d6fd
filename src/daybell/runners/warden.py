"""A process that outlives its worker for a moment, to end the commands that it leaves behind.

A worker that is killed can end nothing itself, and its commands would go on while others run them
again. The warden hears of every command before it is started, on a line that ends with the worker,
however that ends: killed, crashed, or replaced by another program in the same process.

    +MARK            a command will carry this mark
    =MARK PID START  it has been started, under this number, at this tick
    -MARK            it is gone, and all that it has started
    @FOLDER          where the worker keeps the pipes of its commands; to be removed in the end

It is started by `commands.py`, imports next to nothing, and says nothing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from daybell.runners.trees import Tree, look, send

LINE: Final = 0  # its standard input: a socket whose other end is the worker's
CHUNK_BYTES: Final = 65536
ROUND_SECONDS: Final = 0.02
ROUNDS_MAX: Final = 500  # what cannot be killed in ten seconds is another user's, or the system's
QUIET_ROUNDS: Final = 3  # until all are taken to be gone
# The same if a command may be on its way: it carries its mark only when its program has begun.
QUIET_ROUNDS_STARTING: Final = 50


class Ledger:
    """The commands that its worker has."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.folder: str | None = None
        self._rest = b""

    def read(self, data: bytes) -> None:
        """Take in what the worker has said."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._enter(os.fsdecode(line))

    def _enter(self, line: str) -> None:
        if line.startswith("@"):
            self.folder = line[1:]
            return
        sign, mark, *numbers = line[:1], *line[1:].split()
        if sign == "-":
            self.trees.pop(mark, None)
        else:
            self.trees[mark] = Tree(mark, *map(int, numbers))


def end_all(trees: Iterable[Tree]) -> None:
    """Kill all processes of these commands, and what they start meanwhile."""
    trees = list(trees)
    if not trees:
        return
    starts = [tree.start or 0 for tree in trees]
    quiet_rounds = QUIET_ROUNDS if min(starts) else QUIET_ROUNDS_STARTING
    quiet = 0
    for _ in range(ROUNDS_MAX):
        sight = look(min(starts))
        if sight is None:
            for tree in trees:
                tree.signal_group(signal.SIGKILL)  # which is all that can be done
            return
        members = [one for tree in trees for one in tree.members(sight)]
        send(members, signal.SIGKILL)
        quiet = 0 if members else quiet + 1
        if quiet == quiet_rounds:
            return
        select.select([], [], [], ROUND_SECONDS)


def hear(ledger: Ledger, worker: int | None) -> None:
    """Listen to the worker until it is gone. `worker` is a file that tells so: another process may
    have inherited the worker's end of the line.
    """
    poll = select.poll()
    poll.register(LINE, select.POLLIN)
    if worker is not None:
        poll.register(worker, select.POLLIN)
    os.set_blocking(LINE, False)
    while True:
        is_gone = worker in [fd for fd, _ in poll.poll()]
        while True:
            try:
                data = os.read(LINE, CHUNK_BYTES)
            except BlockingIOError:
                break
            except OSError:
                return
            if not data:
                return
            ledger.read(data)
        if is_gone:
            return


def main() -> None:
    """Guard the process whose number is given."""
    worker = _file_of(int(sys.argv[1]))
    if os.fork():
        # The worker buries this one at once. Of the other it need not know, so that it leaves no
        # dead behind if another program takes its place.
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    ledger = Ledger()
    hear(ledger, worker)
    end_all(ledger.trees.values())
    if ledger.folder is not None:
        remove(ledger.folder)


def remove(folder: str) -> None:
    """Remove a folder of pipes, if it is still there."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            os.unlink(entry)
        os.rmdir(folder)


def _file_of(pid: int) -> int | None:
    """A file that can be read when the worker is gone; None: the system has no such thing."""
    if os.getppid() != pid:
        return None  # it is gone already, and the line will say so
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
