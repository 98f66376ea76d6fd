"""The processes of a command, and the signals to them.

A process belongs to a command if it descends from it, is in its session or group, or carries its
mark in the environment with which it was started. A daemon may leave its parent, its group and its
session, but it inherits the environment. A recognised process is remembered.

Numbers of processes are reused, so a process is identified by its number and its start time, and
checked again before a signal. An ended command keeps its number until it is reaped, which is done
last.

The warden uses this module, too: it imports nothing else of the package.
"""

from __future__ import annotations

import os
import select
import signal
import sys
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


class SystemProcess(NamedTuple):
    """A process as the system shows it."""

    pid: int
    parent: int
    group: int
    session: int
    start: int  # in ticks since the start of the machine
    is_dead: bool  # and not reaped


ProcessKey = tuple[int, int]  # a number and a start time, which identify a process


def process_key(one: SystemProcess) -> ProcessKey:
    """The identity of a process."""
    return one.pid, one.start


class ProcessSnapshot:
    """All processes at one moment, which many commands share to find theirs."""

    def __init__(self, processes: Iterable[SystemProcess], marks: Mapping[int, str]) -> None:
        self.processes: dict[int, SystemProcess] = {}
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
        """True if a number belongs to another process by now."""
        now = self.processes.get(pid)
        return now is not None and now.start != start


def make_mark(execution: object, attempt: int) -> str:
    """Return the mark that the processes of one attempt carry."""
    return f"{execution}/{attempt}"


def read_process(pid: int) -> SystemProcess | None:
    """Read a process; None: it does not exist."""
    try:
        stat = _read(f"/proc/{pid}/stat", _STAT_BYTES)
    except OSError:
        return None
    # The name of the program is in parentheses, and may contain any characters.
    state, parent, group, session, *rest = stat[stat.rindex(b")") + 2 :].split()
    return SystemProcess(
        pid, int(parent), int(group), int(session), int(rest[15]), state in (b"Z", b"X")
    )


def take_snapshot(since: int = 0) -> ProcessSnapshot | None:
    """Return all processes that were started since that tick; None: the system does not show them.

    They are read one after another. One that has ended meanwhile may have left a new child, and one
    that is just starting another program has no environment for a moment. So the reading is
    repeated until no process is new and none lacks its environment.
    """
    processes: dict[int, SystemProcess] = {}
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
            one = read_process(pid)
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
    return ProcessSnapshot(processes.values(), marks)


def _pids() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


class ProcessTree:
    """The processes of one command."""

    def __init__(self, mark: str, pid: int | None = None, start: int | None = None) -> None:
        self.mark = mark
        self.pid = pid  # of the command itself
        self.start = start  # of the command itself; None: unknown
        self._known: dict[int, int] = {}  # start times of all that were recognised

    def begin(self, pid: int) -> None:
        """Record the number of the started command. Until it is reaped, no other process has it."""
        root = read_process(pid)
        self.pid, self.start = pid, None if root is None else root.start

    def members(self, sight: ProcessSnapshot) -> list[SystemProcess]:
        """Return its processes that are alive."""
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
        # never the reading process: the warden, or the worker
        members = [sight.processes[pid] for pid in found if pid != os.getpid()]
        members = [one for one in members if self.start is None or one.start >= self.start]
        self._known |= {one.pid: one.start for one in members}
        return [one for one in members if not one.is_dead]

    def _numbers(self, sight: ProcessSnapshot) -> list[int]:
        """Return the numbers of its processes, groups and sessions. The system does not reuse a
        number that one of these still has, so it is enough that no other process has it.
        """
        numbers = dict(self._known)
        if self.pid is not None and self.start is not None:
            numbers[self.pid] = self.start
        return [pid for pid, start in numbers.items() if not sight.has_another(pid, start)]

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the command's group as a whole, so that no member can fork meanwhile. Only for a
        command that is not reaped.
        """
        if self.pid is not None:
            with suppress(*_GONE):
                os.killpg(self.pid, number)


def send_signal(members: Iterable[SystemProcess], number: signal.Signals) -> None:
    """Signal these processes, and none that has reused one of their numbers."""
    for one in members:
        with suppress(*_GONE):
            _send_one(one, number)


def _send_one(one: SystemProcess, number: signal.Signals) -> None:
    try:
        fd = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # the system has no pidfd, or no more files
        if (now := read_process(one.pid)) is not None and now.start == one.start:
            os.kill(one.pid, number)
        return
    try:
        now = read_process(one.pid)  # a file of this name, or dead by now
        if now is not None and now.start == one.start:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


def _environ(pid: int) -> bytes | None:
    """Return the environment with which a process was started; None: not readable for this user."""
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


# The warden: a process that outlives its worker for a moment, to end its commands. A killed worker
# can end nothing itself, and its commands would continue while other workers run them again. The
# worker announces every command before its start, over a socket that closes with the worker in any
# case: killed, crashed, or replaced by another program.
# Messages: `+MARK` a command will carry this mark, `=MARK PID START` it was started, `-MARK` it has
# ended with all its processes, `@FOLDER` the folder of the worker's pipes, to be removed in the
# end.
# `command_processes.py` starts it. It imports almost nothing and writes nothing.

LINE: Final = 0  # its standard input: a socket whose other end is the worker's
CHUNK_BYTES: Final = 65536
ROUND_SECONDS: Final = 0.02
ROUNDS_MAX: Final = 500  # survivors of ten seconds belong to another user, or to the system
QUIET_ROUNDS: Final = 3  # until all are taken to have ended
# The same while a command may be starting: it carries its mark only when its program has begun.
QUIET_ROUNDS_STARTING: Final = 50


class CommandRegistry:
    """The commands of a worker."""

    def __init__(self) -> None:
        self.trees: dict[str, ProcessTree] = {}
        self.folder: str | None = None
        self._rest = b""

    def read(self, data: bytes) -> None:
        """Read the messages of the worker."""
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
            self.trees[mark] = ProcessTree(mark, *map(int, numbers))


def kill_trees(trees: Iterable[ProcessTree]) -> None:
    """Kill all processes of these commands, and those that they start meanwhile."""
    trees = list(trees)
    if not trees:
        return
    starts = [tree.start or 0 for tree in trees]
    quiet_rounds = QUIET_ROUNDS if min(starts) else QUIET_ROUNDS_STARTING
    quiet = 0
    for _ in range(ROUNDS_MAX):
        sight = take_snapshot(min(starts))
        if sight is None:
            for tree in trees:
                tree.signal_group(signal.SIGKILL)  # nothing more can be done
            return
        members = [one for tree in trees for one in tree.members(sight)]
        send_signal(members, signal.SIGKILL)
        quiet = 0 if members else quiet + 1
        if quiet == quiet_rounds:
            return
        select.select([], [], [], ROUND_SECONDS)


def follow_worker(ledger: CommandRegistry, worker: int | None) -> None:
    """Read messages until the worker has ended. `worker` is a file that shows the end: another
    process may have inherited the worker's end of the socket.
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
    """Guard the process with the given number."""
    worker = _open_pidfd(int(sys.argv[1]))
    if os.fork():
        # The worker reaps this process at once and does not know the other one, so it leaves no
        # zombie if another program replaces the worker.
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    ledger = CommandRegistry()
    follow_worker(ledger, worker)
    kill_trees(ledger.trees.values())
    if ledger.folder is not None:
        remove_pipes(ledger.folder)


def remove_pipes(folder: str) -> None:
    """Remove a folder of pipes, if it still exists."""
    with suppress(OSError):
        with os.scandir(folder) as entries:
            for entry in entries:
                os.unlink(entry)
        os.rmdir(folder)


def _open_pidfd(pid: int) -> int | None:
    """Return a file that becomes readable at the end of the worker; None: not supported."""
    if os.getppid() != pid:
        return None  # it has ended already, and the socket shows that
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
