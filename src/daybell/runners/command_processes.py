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

# One program, from its start to its burial.


class ProgramSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run."""

    mark: str  # is in `env`, too, as `process_tree.py` looks for it
    argv: list[str]
    env: dict[str, str]
    directory: str | None = None
    stdin: str | None = None
    chars_max: int = COMMAND_OUTPUT_CHARS_MAX  # of what it prints, that are kept of each stream


class CommandProcess:
    """A command's own process. `exited` says that it is dead; it is buried last, so that nobody
    else gets its number while its descendants are looked for by it.
    """

    def __init__(self, order: ProgramSpec, tree: ProcessTree) -> None:
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


def _open_text(text: str) -> int:
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


# What a command prints, as it comes, and how that ended.

# Read at a time. It may be thousands of lines, and others have to wait while they are looked at.
CHUNK_BYTES: Final = 16 * 1024
# Of what was cut, as much as may be the rest of a secret: half of one, no mask would find.
HALF_CHARS: Final = 16 * 1024
# Of progress. A write of no more than this to a pipe is not mixed with those of others.
LINE_BYTES_MAX: Final = 4096
LINES_MAX: Final = 20  # the last ones of a read that are looked at; only one of them is shown
PAUSE_SECONDS: Final = 0.1  # between two reads: what writes faster has to wait
# How a line begins. Only one part may repeat without a bound, so that no line takes long to match.
_NUMBER: Final = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*%?(?:\s|\Z)")


class StreamTail(msgspec.Struct, frozen=True):
    """How a stream ended, as it came: with secrets, the first of which may be cut in two."""

    text: str = ""
    is_cut: bool = False

    def end(self, mask: Callable[[str], str], chars_max: int) -> tuple[str, bool]:
        """Its last characters without secrets, and whether there was more before them."""
        text = mask(self.text)
        if self.is_cut:
            text = text[HALF_CHARS:]
        if self.is_cut or len(text) > chars_max:
            return "…" + text[1 - chars_max :], True
        return text, False


class Stream:
    """One stream of a command. All of it goes to `heard`; its last `chars_max` characters are kept
    as well, and some more to cut from.
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
        """Hear what comes. The command has its end of the pipe by now."""
        self._close_writer()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Hear no more, whoever may still hold the other end."""
        self._close_writer()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def said(self) -> StreamTail:
        """How it ended."""
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
    """A named pipe that a command reports its progress to, in lines such as `50 halfway`.

    `report` is given what a line says, `refuse` is called once if one says something else. Only the
    last line of a read is shown, and there are few reads in a second: a command that writes more
    waits, and the worker does not.
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
        """Read what comes, on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Read what is there, and no more. What writes to it from now on fails."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._timer is not None:
                self._timer.cancel()
            try:
                data = os.read(self._fd, 4 * CHUNK_BYTES)  # which is what a pipe holds
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
        self._rest = rest[: LINE_BYTES_MAX + 1]  # the end of a longer one need not be kept
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
    """Open a named pipe of this user. Raises OSError if the path has become something else."""
    # Also for writing: without a writer of its own, it would be at its end again and again.
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    found = os.fstat(fd)
    if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():
        os.close(fd)
        raise OSError(f"{path} is not the pipe that the worker made")
    return fd


def read_progress(line: bytes) -> tuple[float, str | None] | None:
    """What a line says: a percentage, and perhaps a note. None: neither."""
    if len(line) > LINE_BYTES_MAX:
        return None
    text = line.decode("utf-8", "replace").replace("\0", " ").strip()
    found = _NUMBER.match(text)
    if found is None or float(found[1]) > 100:
        return None
    return float(found[1]), text[found.end() :].strip() or None


# A worker's side of its warden: started when it is first needed, and again if it dies.

logger = logging.getLogger("daybell.worker")

START_SECONDS_MAX: Final = 30.0
CLOSE_SECONDS_MAX: Final = 1.0

# Without the environment's and the site's ideas of what to load: it starts in a few milliseconds.
_SOURCE_FOLDER: Final = str(Path(daybell.runners.__file__).parents[2])
_WARDEN_SCRIPT: Final = (
    f"import sys; sys.path.append({_SOURCE_FOLDER!r}); from"
    " daybell.runners.process_tree import main; main()"
)
WARDEN_COMMAND: Final = (sys.executable, "-I", "-S", "-c", _WARDEN_SCRIPT)


class WardenClient:
    """Tells a warden of the commands of a worker. `trees` are those that there are."""

    def __init__(self, trees: Iterable[ProcessTree], threads: Executor) -> None:
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

    async def expect(self, tree: ProcessTree) -> None:
        """A command will be started. When this returns, it would not outlive the worker. Raises
        OSError if nobody can see to that.
        """
        await self._up()
        self._say(f"+{tree.mark}")

    def begun(self, tree: ProcessTree) -> None:
        """It has been started."""
        self._say(_format_entry(tree))

    def forget(self, tree: ProcessTree) -> None:
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


def _format_entry(tree: ProcessTree) -> str:
    if tree.pid is None or tree.start is None:
        return f"+{tree.mark}"
    return f"={tree.mark} {tree.pid} {tree.start}"


def _start_warden(line: socket.socket, within: Seconds = START_SECONDS_MAX) -> None:
    """Start one. The process that this waits for is not the warden but its parent."""
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


STARTERS: Final = 4  # programs started at a time: a slow disk must not hold up all others
SLOTS_MAX: Final = 100_000
FILES_EACH: Final = 5  # that a command holds open
FILES_SPARE: Final = 128  # for all else that a worker does
ROUND_SECONDS_MIN: Final = 0.01
ROUND_SECONDS_MAX: Final = 0.25
QUIET_ROUNDS: Final = 2  # in which nothing is found, until nothing is taken to be left
KILLS_MAX: Final = 40  # rounds of SIGKILL: what is left after these is not ours to end
LEFTOVERS_SECONDS: Final = 1.0  # for what outlives its command, between SIGTERM and SIGKILL
MOMENT_SECONDS: Final = 0.2  # for what outlives its command to end by itself
LAST_WORDS_SECONDS: Final = 1.0  # for what was printed to be read, whoever holds the pipes


PROGRESS: Final = "DAYBELL_PROGRESS"  # the variable that has the path of the pipe


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a command while it runs."""

    print: Callable[[str, str], None]  # a stream and a text
    progress: Callable[[float, str | None], None] = lambda percent, note: None
    malformed: Callable[[], None] = lambda: None  # a line of progress cannot be read


class CommandExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int | None  # below 0: by this signal; None: nobody knows
    stdout: StreamTail
    stderr: StreamTail
    leftovers: int = 0  # processes that had outlived it
    is_stopped: bool = False  # it was ended from outside


class Commands:
    """All commands of an event loop, and the warden that ends them if the worker cannot."""

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
        """Run a command to its end, and end what it leaves behind. Raises OSError or ValueError if
        it cannot be started.

        Cancelling this ends it: SIGTERM to the processes that it has then, SIGKILL to all when
        `patience` is over, which is asked again and again. How that went is then answered in place
        of the cancellation, unless it was not started. When this returns, or raises, nothing is
        left.
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
                with suppress(RuntimeError):  # closed: then the folder is removed, and it in there
                    self._starters.submit(pipe.remove)
            self._trees.discard(tree)
            if not program.is_abandoned:  # else the warden will see to the rest
                self._warden.forget(tree)
        return CommandExit(code=code, stdout=out.said, stderr=err.said, leftovers=leftovers)

    async def _pipe(self, listener: Listener) -> ProgressPipe | None:
        """Where a command reports its progress; None: there is no place for that now."""
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
                # The first one, or what cleans TMPDIR up has removed the last one.
                self._folder = tempfile.mkdtemp(prefix="daybell-")
            path = os.path.join(self._folder, str(next(self._number)))
        return ProgressPipe(path, listener.progress, listener.malformed)

    async def _end(
        self, program: CommandProcess, patience: Callable[[], Seconds], is_unwanted: asyncio.Event
    ) -> int:
        """End all that is left of a command; answers how many processes had outlived it."""
        tree = program.tree
        sight = await self._look()
        if sight is None:
            return await _kill_group(program, patience)
        outlived = 0
        if program.exited.is_set():
            outlived = len(tree.members(sight))
            if not outlived:
                return 0
            # Something may be about to end: the rest of a pipe, a program that writes the log.
            with suppress(TimeoutError):
                await asyncio.wait_for(is_unwanted.wait(), MOMENT_SECONDS)
            outlived = len(tree.members(await self._look() or sight))
        await self._end_members(program, patience)
        return outlived

    async def _end_members(self, program: CommandProcess, patience: Callable[[], Seconds]) -> None:
        """SIGTERM to all that there are, once, and SIGKILL when patience is over, until nothing is
        left.
        """
        loop, tree = asyncio.get_running_loop(), program.tree
        began, pause, kills, quiet = loop.time(), ROUND_SECONDS_MIN, 0, 0
        told: set[ProcessKey] = set()
        while sight := await self._look():
            members = tree.members(sight)
            left = began + patience() - loop.time()
            if not members:
                # What was signalled may have started something in its last moment.
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
        """All processes, as they are at some moment from now on. Many may ask at once, and one look
        is for all who have asked before it began.
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
    """End a command where the system does not show its processes: its group, that is."""
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
    """SIGTERM to those who are to get it now; they are added to `told`.

    What is started by one that was told is its way to clean up, and gets none. What is left of it
    when the command has ended, and nobody who belongs to it could wait for, gets one all the same.
    """
    if not told:
        # All at once, so that a script does not go on with its next line before it hears of this.
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
    """Whether it is there, and no other user has put it there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _count_slots() -> int:
    """How many commands can run at a time with the files that a process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return SLOTS_MAX
    return min(max(1, (limit - FILES_SPARE) // FILES_EACH), SLOTS_MAX)
