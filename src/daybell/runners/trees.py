"""Which processes belong to a command, and how they are signalled.

A process belongs to a command if it descends from it, is in its session or group, or carries its
mark in the environment that it was started with. A process may leave its parent, its group and its
session, as daemons do, but it takes its environment along. What has once been seen to belong to a
command is remembered, wherever it goes.

Numbers of processes are used again, so each is known by its number and the moment of its start, and
is looked at once more before it is signalled. A command that has ended keeps its number until it is
buried, which is done last.

The warden uses this, too: nothing else of the package is imported here.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

EXECUTION: Final = "DAYBELL_EXECUTION_ID"
ATTEMPT: Final = "DAYBELL_ATTEMPT"

_STAT_BYTES: Final = 4096
_ENVIRON_BYTES_MAX: Final = 8 * 1024 * 1024
_PASSES_MAX: Final = 4
_BARE_SECONDS: Final = 0.002
_KERNEL: Final = 2  # the parent of the system's own processes, which have no environment
_GONE: Final = (FileNotFoundError, ProcessLookupError, PermissionError)


class Process(NamedTuple):
    """A process as the system knows it."""

    pid: int
    parent: int
    group: int
    session: int
    start: int  # in ticks since the machine was started
    is_dead: bool  # and not buried


Known = tuple[int, int]  # a number and a start, which only one process ever has


def known(one: Process) -> Known:
    """What a process is known by."""
    return one.pid, one.start


class Sight:
    """All processes at one moment, and where to look for those of a command: many commands look for
    theirs in the same sight.
    """

    def __init__(self, processes: Iterable[Process], marks: Mapping[int, str]) -> None:
        self.processes: dict[int, Process] = {}
        self.marked: dict[str, list[int]] = {}
        self.sessions: dict[int, list[int]] = {}
        self.groups: dict[int, list[int]] = {}
        self.children: dict[int, list[int]] = {}
        for one in processes:
            self.processes[one.pid] = one
            self.sessions.setdefault(one.session, []).append(one.pid)
            self.groups.setdefault(one.group, []).append(one.pid)
            self.children.setdefault(one.parent, []).append(one.pid)
        for pid, mark in marks.items():
            self.marked.setdefault(mark, []).append(pid)

    def has_another(self, pid: int, start: int) -> bool:
        """Whether a number has been given to another process."""
        now = self.processes.get(pid)
        return now is not None and now.start != start


def mark_of(execution: object, attempt: int) -> str:
    """What the processes of one start carry."""
    return f"{execution}/{attempt}"


def process(pid: int) -> Process | None:
    """A process, if it is there."""
    try:
        stat = _read(f"/proc/{pid}/stat", _STAT_BYTES)
    except OSError:
        return None
    # The program's name is in parentheses, and may have any characters in it.
    state, parent, group, session, *rest = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(parent), int(group), int(session), int(rest[15]), state in (b"Z", b"X"))


def look(since: int = 0) -> Sight | None:
    """All processes that were started since that tick, or None if the system does not show them.

    They are looked at one after the other. One that is gone when its turn comes may have left a
    child that was not there before, and one that is just beginning another program has no
    environment for a moment. So this looks again, until nobody is new and nobody is bare.
    """
    processes: dict[int, Process] = {}
    marks: dict[int, str] = {}
    seen: set[int] = set()
    bare: set[int] = set()
    for _ in range(_PASSES_MAX):
        pids = _pids()
        if not pids:
            return None
        new = pids - seen
        if not new and bare:
            select.select([], [], [], _BARE_SECONDS)
        seen |= new
        again, bare = new | bare, set[int]()
        for pid in again:
            one = process(pid)
            if one is None or one.start < since:
                continue
            processes[pid] = one
            environ = None if one.is_dead else _environ(pid)
            if environ == b"" and one.parent != _KERNEL:
                bare.add(pid)
            elif environ and (mark := _mark(environ)) is not None:
                marks[pid] = mark
        if not again:
            break
    return Sight(processes.values(), marks)


def _pids() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


class Tree:
    """The processes of one command."""

    def __init__(self, mark: str, pid: int | None = None, start: int | None = None) -> None:
        self.mark = mark
        self.pid = pid  # of the command itself
        self.start = start  # of the command itself; None: it is not known
        self._known: dict[int, int] = {}  # starts of all that were seen to belong to it

    def begin(self, pid: int) -> None:
        """It has been started under this number. Before it is buried, that is nobody else's."""
        root = process(pid)
        self.pid, self.start = pid, None if root is None else root.start

    def members(self, sight: Sight) -> list[Process]:
        """Those of its processes that are not dead."""
        found = set(sight.marked.get(self.mark, ()))
        for number in self._numbers(sight):
            found.update(sight.sessions.get(number, ()))
            found.update(sight.groups.get(number, ()))
            if number in sight.processes:
                found.add(number)
        waiting = list(found)
        while waiting:
            for pid in sight.children.get(waiting.pop(), ()):
                if pid not in found:
                    found.add(pid)
                    waiting.append(pid)
        # Never the one that looks: the warden, or the worker.
        members = [sight.processes[pid] for pid in found if pid != os.getpid()]
        members = [one for one in members if self.start is None or one.start >= self.start]
        self._known |= {one.pid: one.start for one in members}
        return [one for one in members if not one.is_dead]

    def _numbers(self, sight: Sight) -> list[int]:
        """Numbers that are its own, as those of processes, groups and sessions. The system gives no
        number away that one of these still has, so it is enough that no other process has it.
        """
        numbers = dict(self._known)
        if self.pid is not None and self.start is not None:
            numbers[self.pid] = self.start
        return [pid for pid, start in numbers.items() if not sight.has_another(pid, start)]

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the command's group as a whole: none of it can fork meanwhile. Only for a command
        that is not buried.
        """
        if self.pid is not None:
            with suppress(*_GONE):
                os.killpg(self.pid, number)


def send(members: Iterable[Process], number: signal.Signals) -> None:
    """Signal these processes, and none that has taken the number of one of them."""
    for one in members:
        with suppress(*_GONE):
            _send(one, number)


def _send(one: Process, number: signal.Signals) -> None:
    try:
        fd = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # the system has no such thing, or no more files
        if (now := process(one.pid)) is not None and now.start == one.start:
            os.kill(one.pid, number)
        return
    try:
        now = process(one.pid)  # what the file stands for, or dead by now
        if now is not None and now.start == one.start:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def _environ(pid: int) -> bytes | None:
    """What a process was started with; None: it is not ours to see."""
    try:
        return _read(f"/proc/{pid}/environ", _ENVIRON_BYTES_MAX)
    except OSError:
        return None


def _mark(environ: bytes) -> str | None:
    environ = b"\0" + environ
    execution, attempt = _value(environ, EXECUTION), _value(environ, ATTEMPT)
    return None if execution is None or attempt is None else f"{execution}/{attempt}"


def _value(environ: bytes, name: str) -> str | None:
    _, found, rest = environ.partition(f"\0{name}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def _read(path: str, bytes_max: int) -> bytes:
    # Not by open(), which takes twice as long: there may be thousands.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _STAT_BYTES)
        if len(data) < _STAT_BYTES:
            return data
        parts = [data]
        size = len(data)
        while data and size < bytes_max:
            data = os.read(fd, 65536)
            parts.append(data)
            size += len(data)
        return b"".join(parts)
    finally:
        os.close(fd)
