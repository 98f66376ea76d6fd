"""Processes of commands: start, output, progress, termination with all descendants, and the warden
that kills them if the worker dies.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import logging
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

import daybell.runners
from daybell.core.limits import COMMAND_OUTPUT_CHARS_MAX
from daybell.core.units import Seconds
from daybell.runners.process_tree import (
    ProcessKey,
    ProcessSnapshot,
    ProcessTree,
    SystemProcess,
    process_key,
    remove_pipes,
    send_signal,
    take_snapshot,
)
from daybell.runners.python import wait_for_first

# One program, from its start until it is reaped.


class ProgramSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The program to run, with its environment and input."""

    mark: str  # also in `env`, where `process_tree.py` looks for it
    argv: list[str]
    env: dict[str, str]
    directory: str | None = None
    stdin: str | None = None
    chars_max: int = COMMAND_OUTPUT_CHARS_MAX  # characters of each stream that are kept


class CommandProcess:
    """A command's own process. `exited` is set when it is dead. It is reaped last: until then its
    number identifies its descendants and is not used again.
    """

    def __init__(self, order: ProgramSpec, tree: ProcessTree) -> None:
        self.tree = tree
        self.exited = asyncio.Event()
        self.is_abandoned = False  # no task has waited for its end
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._fd = -1

    def start(self, stdout: int, stderr: int) -> None:
        """Start the program. Not on the event loop: this blocks until the program is loaded."""
        order = self._order
        if order.directory is not None:
            os.stat(os.path.join(order.directory, ""))  # raises if it is no directory
        stdin = subprocess.DEVNULL if order.stdin is None else _open_text(order.stdin)
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
        """Notice the end of the process."""
        assert self._process is not None
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._exited)
        else:
            threading.Thread(target=self._wait, args=(self._process.pid,), daemon=True).start()

    def bury(self) -> int | None:
        """Reap the process and return its exit code; None: another part of the program reaped it,
        or it cannot be killed.
        """
        assert self._process is not None
        try:
            pid, status = os.waitpid(self._process.pid, os.WNOHANG)
        except ChildProcessError:
            code = None
        else:
            code = os.waitstatus_to_exitcode(status) if pid else None
        self._process.returncode = -1 if code is None else code  # no watcher is needed any more
        return code

    def close(self) -> None:
        """Release the process. If it is not reaped, it is abandoned."""
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


def _open_text(text: str) -> int:
    """Return a file with this text, in memory if possible. Unlike a pipe it needs no writer, and
    nothing breaks if it is not read.
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


# The output of a command, as it comes, and how it ended.

# Read at a time. It may be thousands of lines, and other executions wait while they are parsed.
CHUNK_BYTES: Final = 16 * 1024
# Text at a cut that may be a part of a secret, which masks would not find, is dropped.
HALF_CHARS: Final = 16 * 1024
# Of progress. A write of no more than this to a pipe is not mixed with those of other processes.
LINE_BYTES_MAX: Final = 4096
LINES_MAX: Final = 20  # the last lines of a read that are parsed; only one of them is shown
PAUSE_SECONDS: Final = 0.1  # between two reads: a faster writer has to wait
# The beginning of a line. Only one part may repeat without a bound, so that no line takes long to
# match.
_NUMBER: Final = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?(?:\s|\Z)")


class StreamTail(msgspec.Struct, frozen=True):
    """The raw end of a stream, with secrets; the first of them may be cut."""

    text: str = ""
    is_cut: bool = False

    def end(self, mask: Callable[[str], str], chars_max: int) -> tuple[str, bool]:
        """Return the last characters without secrets, and True if there was more before them."""
        text = mask(self.text)
        if self.is_cut:
            text = text[HALF_CHARS:]
        if self.is_cut or len(text) > chars_max:
            return "…" + text[1 - chars_max :], True
        return text, False


class Stream:
    """One stream of a command. All of it goes to `heard`; its last `chars_max` characters are kept,
    with some more before the cut.
    """

    def __init__(self, name: str, heard: Callable[[str, str], None], *, chars_max: int) -> None:
        self.name = name  # stdout or stderr
        self._heard = heard
        self._kept_max = chars_max + HALF_CHARS
        self._tail = ""
        self._is_cut = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._fd, self.writer = os.pipe()
        os.set_blocking(self._fd, False)

    def start(self) -> None:
        """Start reading. The command has its end of the pipe by now."""
        self._close_writer()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Stop reading, even if another process still holds the other end."""
        self._close_writer()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def said(self) -> StreamTail:
        """Return the end of the stream."""
        return StreamTail(self._tail, self._is_cut)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        text = self._decoder.decode(data, final=not data)
        if text:
            self._keep(text)
            self._heard(self.name, text)
        if not data:
            self.close()

    def _keep(self, text: str) -> None:
        room = self._kept_max
        self._is_cut = self._is_cut or len(self._tail) + len(text) > room
        self._tail = text[-room:] if len(text) >= room else (self._tail + text)[-room:]

    def _close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


class ProgressPipe:
    """A named pipe for progress of a command, in lines such as `50 halfway`.

    `report` receives the values of a line; `refuse` is called once for an invalid one. Only the
    last line of a read is shown, and reads are rare: a command that writes faster waits, and the
    worker does not.
    """

    def __init__(
        self,
        path: str,
        report: Callable[[float, str | None], None],
        refuse: Callable[[], None],
    ) -> None:
        os.mkfifo(path, 0o600)
        self._fd = open_pipe(path)
        self.path = path
        self._report = report
        self._refuse = refuse
        self._is_refused = False
        self._rest = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start reading on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Read the rest and close. Later writes to the pipe fail."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._timer is not None:
                self._timer.cancel()
            try:
                data = os.read(self._fd, 4 * CHUNK_BYTES)  # the size of a pipe
            except OSError:
                data = b""
            self._take(data + b"\n")
        os.close(self._fd)

    def remove(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def _read(self) -> None:
        assert self._loop is not None
        with suppress(OSError):
            self._take(os.read(self._fd, CHUNK_BYTES))
        self._loop.remove_reader(self._fd)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        assert self._loop is not None
        self._loop.add_reader(self._fd, self._read)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: LINE_BYTES_MAX + 1]  # the end of a longer line need not be kept
        for line in reversed(lines[-LINES_MAX:]):
            if not line.strip():
                continue
            said = read_progress(line)
            if said is not None:
                self._report(*said)
                return
            if not self._is_refused:
                self._is_refused = True
                self._refuse()


def open_pipe(path: str) -> int:
    """Open a named pipe of this user. Raises OSError if the path is something else by now."""
    # Also for writing: without a writer of its own, reading would return end-of-file again and
    # again.
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():
        os.close(fd)
        raise OSError(f"{path} is not the pipe that the worker made")
    return fd


def read_progress(line: bytes) -> tuple[float, str | None] | None:
    """Parse a percentage and an optional note; None: the line has neither."""
    if len(line) > LINE_BYTES_MAX:
        return None
    text = line.decode("utf-8", "replace").replace("\0", " ").strip()
    found = _NUMBER.match(text)
    if found is None or float(found[1]) > 100:
        return None
    return float(found[1]), text[found.end() :].strip() or None


# The worker's side of its warden: started on first use, and again if it dies.

logger = logging.getLogger("daybell.worker")

START_SECONDS_MAX: Final = 30.0
CLOSE_SECONDS_MAX: Final = 1.0

# Without site packages and variables of Python: it starts in a few milliseconds.
_SOURCE_FOLDER: Final = str(Path(daybell.runners.__file__).parents[2])
_WARDEN_SCRIPT: Final = (
    f"import sys; sys.path.append({_SOURCE_FOLDER!r}); from"
    " daybell.runners.process_tree import main; main()"
)
WARDEN_COMMAND: Final = (sys.executable, "-I", "-S", "-c", _WARDEN_SCRIPT)


class WardenClient:
    """Informs the warden about the commands of a worker. `trees` are the present ones."""

    def __init__(self, trees: Iterable[ProcessTree], threads: Executor) -> None:
        self._trees = trees
        self._threads = threads
        self._line: socket.socket | None = None  # None: not running
        self._unsent = b""
        self._starting: asyncio.Task[None] | None = None
        self._is_closed = False
        self._folder: str | None = None  # that the warden removes in the end

    def keep(self, folder: str) -> None:
        """Register a folder that the warden removes after the end of the worker."""
        if self._folder != folder:
            self._folder = folder
            self._say(f"@{folder}")

    async def expect(self, tree: ProcessTree) -> None:
        """Announce a command before its start. From the return on it cannot outlive the worker.
        Raises OSError if the warden is not available.
        """
        await self._up()
        self._say(f"+{tree.mark}")

    def begun(self, tree: ProcessTree) -> None:
        """Report the start of a command."""
        self._say(_format_entry(tree))

    def forget(self, tree: ProcessTree) -> None:
        """Report that a command is gone, or was never started."""
        self._say(f"-{tree.mark}")

    async def close(self) -> None:
        """End the warden, and wait for its end."""
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
                await loop.run_in_executor(self._threads, _start_warden, theirs)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        self._line, self._unsent = ours, b""
        loop.add_reader(ours.fileno(), self._heard)
        if self._folder is not None:
            self._say(f"@{self._folder}")
        for tree in list(self._trees):
            self._say(_format_entry(tree))

    def _say(self, line: str) -> None:
        """Send immediately: the warden reads it even if the worker dies a moment later."""
        if self._line is None:
            return  # the next warden receives everything
        self._unsent += os.fsencode(f"{line}\n")
        self._send()

    def _send(self) -> None:
        if self._line is None:
            return
        loop, fd = asyncio.get_running_loop(), self._line.fileno()
        try:
            self._unsent = self._unsent[self._line.send(self._unsent) :]
        except BlockingIOError:  # the warden was stopped from outside
            pass
        except OSError:
            return  # its end is noticed in a moment
        if self._unsent:
            loop.add_writer(fd, self._send)
        else:
            loop.remove_writer(fd)

    def _heard(self) -> None:
        """The warden never writes: the only event is its end."""
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


def _format_entry(tree: ProcessTree) -> str:
    if tree.pid is None or tree.start is None:
        return f"+{tree.mark}"
    return f"={tree.mark} {tree.pid} {tree.start}"


def _start_warden(line: socket.socket, within: Seconds = START_SECONDS_MAX) -> None:
    """Start a warden. The awaited process is its parent, not the warden itself."""
    try:
        subprocess.run(
            [*WARDEN_COMMAND, str(os.getpid())],
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


STARTERS: Final = 4  # programs started at a time: a slow disk must not delay all others
SLOTS_MAX: Final = 100_000
FILES_EACH: Final = 5  # that a command holds open
FILES_SPARE: Final = 128  # for all other work of the worker
ROUND_SECONDS_MIN: Final = 0.01
ROUND_SECONDS_MAX: Final = 0.25
QUIET_ROUNDS: Final = 2  # without a new process, until none is taken to be left
KILLS_MAX: Final = 40  # rounds of SIGKILL; survivors belong to another user or the system
LEFTOVERS_SECONDS: Final = 1.0  # between SIGTERM and SIGKILL, after a command's end
MOMENT_SECONDS: Final = 0.2  # for processes that outlive their command to end by themselves
LAST_WORDS_SECONDS: Final = 1.0  # for reading the remaining output


PROGRESS: Final = "DAYBELL_PROGRESS"  # the variable with the path of the pipe


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Receives the events of a running command."""

    print: Callable[[str, str], None]  # a stream and a text
    progress: Callable[[float, str | None], None] = lambda percent, note: None
    malformed: Callable[[], None] = lambda: None  # a line of progress is invalid


class CommandExit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command."""

    code: int | None  # below 0: by this signal; None: unknown
    stdout: StreamTail
    stderr: StreamTail
    leftovers: int = 0  # processes that had outlived it
    is_stopped: bool = False  # it was ended from outside


class Commands:
    """All commands of an event loop, and the warden that ends them after a crash of the worker."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_count_slots())
        self._starters = ThreadPoolExecutor(STARTERS, thread_name_prefix="daybell-command")
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="daybell-look")
        self._is_warned = False
        self._looking: asyncio.Task[ProcessSnapshot | None] | None = None
        self._next_look: asyncio.Task[ProcessSnapshot | None] | None = None
        self._trees: set[ProcessTree] = set()
        self._warden = WardenClient(self._trees, self._starters)
        self._folder: str | None = None  # of the pipes for progress
        self._is_without_pipe = False  # the last command, which has been logged
        self._number = itertools.count(1)
        self._making = threading.Lock()

    async def run(
        self,
        order: ProgramSpec,
        listener: Listener,
        patience: Callable[[], Seconds],
    ) -> CommandExit:
        """Run a command to its end, and end its remaining processes. Raises OSError or ValueError
        if it cannot be started.

        A cancellation sends SIGTERM to its processes, and SIGKILL when `patience`, which is asked
        repeatedly, is over. The end is then returned in place of the cancellation, if the command
        was started. After a return or an exception no process of it is left.
        """
        if self._slots.locked() and not self._is_warned:
            self._is_warned = True
            logger.warning("commands wait: more cannot run with so few open files (ulimit -n)")
        async with self._slots:
            loop = asyncio.get_running_loop()
            is_unwanted = asyncio.Event()
            life = loop.create_task(self._live(order, listener, patience, is_unwanted))
            try:
                return await asyncio.shield(life)
            except asyncio.CancelledError:
                is_unwanted.set()
                while not life.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([life])
                if life.cancelled():
                    raise
                return msgspec.structs.replace(life.result(), is_stopped=True)

    async def close(self) -> None:
        """End the warden. Commands must have ended before."""
        await self._warden.close()
        if self._folder is not None:
            self._starters.submit(remove_pipes, self._folder)
        self._starters.shutdown(wait=False)
        self._looker.shutdown(wait=False)

    async def _live(
        self,
        order: ProgramSpec,
        listener: Listener,
        patience: Callable[[], Seconds],
        is_unwanted: asyncio.Event,
    ) -> CommandExit:
        loop = asyncio.get_running_loop()
        pipe = await self._pipe(listener)
        if pipe is not None:
            order = msgspec.structs.replace(order, env={**order.env, PROGRESS: pipe.path})
        tree = ProcessTree(order.mark)
        program = CommandProcess(order, tree)
        streams: list[Stream] = []
        self._trees.add(tree)
        try:
            for name in ("stdout", "stderr"):
                streams.append(Stream(name, listener.print, chars_max=order.chars_max))
            out, err = streams
            await self._warden.expect(tree)
            if is_unwanted.is_set():
                raise asyncio.CancelledError
            await loop.run_in_executor(self._starters, program.start, out.writer, err.writer)
            self._warden.begun(tree)
            for stream in streams:
                stream.start()
            if pipe is not None:
                pipe.start()
            program.watch()
            await wait_for_first(program.exited.wait(), is_unwanted.wait())
            leftovers = await self._end(program, patience, is_unwanted)
            await asyncio.wait([one.ended for one in streams], timeout=LAST_WORDS_SECONDS)
            code = program.bury()
        finally:
            program.close()
            for stream in streams:
                stream.close()
            if pipe is not None:
                pipe.close()
                with suppress(RuntimeError):  # closed: the warden removes the folder
                    self._starters.submit(pipe.remove)
            self._trees.discard(tree)
            if not program.is_abandoned:  # else the warden removes the rest
                self._warden.forget(tree)
        return CommandExit(code=code, stdout=out.said, stderr=err.said, leftovers=leftovers)

    async def _pipe(self, listener: Listener) -> ProgressPipe | None:
        """Return the path of a pipe for progress; None: no folder can be used."""
        loop = asyncio.get_running_loop()
        try:
            pipe = await loop.run_in_executor(self._starters, self._new_pipe, listener)
            self._is_without_pipe = False
            return pipe
        except OSError as error:
            if not self._is_without_pipe:
                self._is_without_pipe = True
                logger.warning("commands cannot report progress here: %s; is TMPDIR right?", error)
            return None
        finally:
            if self._folder is not None:
                self._warden.keep(self._folder)

    def _new_pipe(self, listener: Listener) -> ProgressPipe:
        with self._making:
            if self._folder is None or not _is_own_folder(self._folder):
                # The first one, or a cleanup of TMPDIR has removed the last one.
                self._folder = tempfile.mkdtemp(prefix="daybell-")
            path = os.path.join(self._folder, str(next(self._number)))
        return ProgressPipe(path, listener.progress, listener.malformed)

    async def _end(
        self, program: CommandProcess, patience: Callable[[], Seconds], is_unwanted: asyncio.Event
    ) -> int:
        """End all remaining processes of a command; return how many had outlived it."""
        tree = program.tree
        sight = await self._look()
        if sight is None:
            return await _kill_group(program, patience)
        outlived = 0
        if program.exited.is_set():
            outlived = len(tree.members(sight))
            if not outlived:
                return 0
            # A process may be about to end: the reader of a pipe, a program that writes the log.
            with suppress(TimeoutError):
                await asyncio.wait_for(is_unwanted.wait(), MOMENT_SECONDS)
            outlived = len(tree.members(await self._look() or sight))
        await self._end_members(program, patience)
        return outlived

    async def _end_members(self, program: CommandProcess, patience: Callable[[], Seconds]) -> None:
        """Send SIGTERM once to all members, then SIGKILL when patience is over, until all ended."""
        loop, tree = asyncio.get_running_loop(), program.tree
        began, pause, kills, quiet = loop.time(), ROUND_SECONDS_MIN, 0, 0
        told: set[ProcessKey] = set()
        while sight := await self._look():
            members = tree.members(sight)
            left = began + patience() - loop.time()
            if not members:
                # A signalled process may have started another one in its last moment.
                quiet += 1
                if quiet == QUIET_ROUNDS or not (told or kills):
                    return
                await _pause(program, ROUND_SECONDS_MIN)
                continue
            quiet = 0
            if left > 0:
                _terminate(program, members, told)
                await _pause(program, min(pause, left))
                pause = min(2 * pause, ROUND_SECONDS_MAX)
                continue
            tree.signal_group(signal.SIGKILL)
            send_signal(members, signal.SIGKILL)
            kills += 1
            if kills == KILLS_MAX:
                numbers = ", ".join(str(one.pid) for one in members)
                logger.error("processes %s of %s cannot be killed", numbers, tree.mark)
                program.is_abandoned = True
                return
            await _pause(program, ROUND_SECONDS_MIN if kills < 10 else ROUND_SECONDS_MAX)

    async def _look(self) -> ProcessSnapshot | None:
        """Take a snapshot of all processes. Callers share one snapshot if it begins after their
        call.
        """
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.create_task(self._look_next())
        return await asyncio.shield(self._next_look)

    async def _look_next(self) -> ProcessSnapshot | None:
        if self._looking is not None:
            await asyncio.wait([self._looking])
        self._looking, self._next_look = self._next_look, None
        since = min((tree.start or 0 for tree in self._trees if tree.pid is not None), default=0)
        return await asyncio.get_running_loop().run_in_executor(self._looker, take_snapshot, since)


async def _kill_group(program: CommandProcess, patience: Callable[[], Seconds]) -> int:
    """End the process group of a command, where the system does not show its processes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    if not program.exited.is_set():
        program.tree.signal_group(signal.SIGTERM)
    while not program.exited.is_set() and began + patience() > loop.time():
        await _pause(program, ROUND_SECONDS_MAX)
    program.tree.signal_group(signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(program.exited.wait(), LAST_WORDS_SECONDS)
    return 0


def _terminate(
    program: CommandProcess, members: list[SystemProcess], told: set[ProcessKey]
) -> None:
    """Send SIGTERM to the processes that have not received one; add them to `told`.

    A process that a signalled one starts is its cleanup and gets none. If it remains after the end
    of the command, and no process waits for it, it gets one.
    """
    if not told:
        # All at once, so that a script does not continue with its next line first.
        program.tree.signal_group(signal.SIGTERM)
        fresh = [one for one in members if one.group != program.tree.pid]
        told.update(process_key(one) for one in members)
    elif program.exited.is_set():
        alive = {one.pid for one in members}
        fresh = [one for one in members if process_key(one) not in told and one.parent not in alive]
        told.update(process_key(one) for one in fresh)
    else:
        return
    send_signal(sorted(fresh, key=lambda one: one.start), signal.SIGTERM)  # parents first


async def _pause(program: CommandProcess, seconds: Seconds) -> None:
    """Wait for so long, or until the command itself has ended."""
    if program.exited.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), seconds)
    else:
        with suppress(TimeoutError):
            await asyncio.wait_for(program.exited.wait(), seconds)


def _is_own_folder(path: str) -> bool:
    """True if the folder exists and belongs to this user."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _count_slots() -> int:
    """Return how many commands can run at a time with the open files that the process may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return SLOTS_MAX
    return min(max(1, (limit - FILES_SPARE) // FILES_EACH), SLOTS_MAX)
