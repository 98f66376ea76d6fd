"""A pool of child processes for isolated tasks: the children, the messages between worker and
child, and their output. Messages are JSON, never pickles, since a child runs untrusted code.
"""

from __future__ import annotations

import asyncio
import codecs
import contextvars
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

import msgspec

from daybell.core import payload
from daybell.core.execution import Account, Claimed, DescribedError, Excerpt
from daybell.core.flow import LimitPause
from daybell.core.limits import ARGS_BYTES_MAX, LOG_LINE_CHARS_MAX
from daybell.core.references import may_refer
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds, format_size
from daybell.errors import RetryLater
from daybell.runners.python import RevealArgs, RunningAttempt

# Messages between a worker and its child processes: JSON, each after its length. Never a pickle: a
# child runs untrusted code, and the worker reads its messages.

LENGTH_BYTES: Final = 4
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # arguments, results and checkpoints are far below


class FunctionLocation(msgspec.Struct, frozen=True, array_like=True):
    """The place of a function: its module and name, for an import."""

    module: str
    file: str | None
    name: str  # within the module, with dots


class Setup(msgspec.Struct, tag="setup", array_like=True, frozen=True):
    """To a new child: the environment of its worker."""

    path: list[str]  # sys.path
    argv: list[str]
    levels: dict[str, int]  # of loggers, by name


class TaskOrder(msgspec.Struct, tag="run", array_like=True, frozen=True):
    """To a child: run this task."""

    place: FunctionLocation
    claimed: Claimed
    store_result: bool = True
    memory_limit: int | None = None
    is_revealed: bool = False  # the arguments have secrets in them
    devices: dict[str, list[int]] = {}  # their numbers, by resource


class StopNotice(msgspec.Struct, tag="halt", array_like=True, frozen=True):
    """To a child, just before SIGTERM: the signal comes from the worker."""


class TaskStarted(msgspec.Struct, tag="begun", array_like=True, frozen=True):
    """From a child: it has the order; whatever happens from now on is an effect of the task."""


class ProgressReport(msgspec.Struct, tag="news", array_like=True, frozen=True):
    """From a child: progress of the task."""

    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None
    pause: LimitPause | None = None


class LogLine(msgspec.Struct, tag="said", array_like=True, frozen=True):
    """From a child: a record of a logger."""

    level: str
    source: str
    message: str
    length: int | None = None  # of the whole message, if this is a part of it


class RetryRequest(msgspec.Struct, array_like=True, frozen=True):
    """A request of a task by RetryLater."""

    reason: str
    delay: Seconds | None = None
    at: Instant | None = None
    limit: str | None = None


class TaskEnded(msgspec.Struct, tag="done", array_like=True, frozen=True):
    """From a child: how the task ended, in one of three ways."""

    result: str | None = None
    failure: Account | None = None  # not cut yet, because the worker masks it
    later: RetryRequest | None = None
    is_hopeless: bool = False
    is_spent: bool = False  # the child should not run another task


class WireError(Exception):
    """The line carried something that is no message."""


_encoder: Final = msgspec.json.Encoder()
_from_worker: Final = msgspec.json.Decoder(Setup | TaskOrder | StopNotice)
_from_child: Final = msgspec.json.Decoder(TaskStarted | ProgressReport | LogLine | TaskEnded)


def encode_frame(
    message: Setup | TaskOrder | StopNotice | TaskStarted | ProgressReport | LogLine | TaskEnded,
) -> bytes:
    """Encode a message."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_order(body: bytes) -> Setup | TaskOrder | StopNotice:
    """Decode a message to a child."""
    return _from_worker.decode(body)


def read_answer(body: bytes) -> TaskStarted | ProgressReport | LogLine | TaskEnded:
    """Decode a message of a child. Raises WireError: its code can write to the line as well."""
    try:
        return _from_child.decode(body)
    except (ValueError, RecursionError) as error:
        raise WireError(str(error)) from error


class FrameReader:
    """Divides received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes, and yield the complete messages."""
        self._buffer += data
        while len(self._buffer) >= LENGTH_BYTES:
            size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if size > MESSAGE_BYTES_MAX:
                raise WireError(f"a message of {size:,} bytes")
            end = LENGTH_BYTES + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[LENGTH_BYTES:end])
            del self._buffer[:end]
            yield body


# The output of a child process, line by line. The streams are pipes at the level of file
# descriptors, so that output of C code and of programs that a task starts is read, too.

CHUNK_BYTES: Final = 65536  # the size of a pipe: one read takes all that was written before
LINE_CHARS_MAX: Final = 65536  # the rest of a longer line is dropped: it cannot all be in memory


class OutputPipe:
    """One stream of a child. Each line goes to `say` and to the worker's own stream.

    A line that is too long is cut, and its rest is dropped: a secret at the cut would pass the
    masks in two halves. The worker's stream is masked here, lines for `say` by its receiver.
    """

    def __init__(
        self,
        name: str,
        *,
        say: Callable[[str, str, str, int], None],
        mask: Callable[[str], str] = str,
    ) -> None:
        self.name = name  # stdout or stderr
        self._say = say
        self._mask = mask
        self._fd, self.writer = os.pipe()
        os.set_blocking(self._fd, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""  # of the read bytes: a line without its end
        self._dropped = 0  # characters of that line

    def start(self) -> None:
        """Start reading. The child has its end of the pipe by now."""
        self.close_writer()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self.read)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Stop reading, even if another process still holds the other end."""
        self.close_writer()
        if self._fd >= 0:
            with suppress(AttributeError):  # it was never started
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def read(self) -> None:
        """Read the available output, if any."""
        if self._fd < 0:
            return
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._fd)
            return
        *ends, rest = self._decoder.decode(data).split("\n")
        lines: list[str] = []
        for end in ends:
            self._gather(end)
            lines.append(self._line())
        self._gather(rest)
        self._pass_on(lines)

    def end_line(self) -> None:
        """End the line at the end of a task: the rest belongs to another one."""
        if self._rest:
            self._pass_on([self._line()])

    def _gather(self, text: str) -> None:
        kept = text[: LINE_CHARS_MAX - len(self._rest)]
        self._rest += kept
        self._dropped += len(text) - len(kept)

    def _line(self) -> str:
        """Pass on the complete line, to `say` and to the worker's stream."""
        line, dropped = self._rest, self._dropped
        self._rest, self._dropped = "", 0
        self._say(self.name, "", line, len(line) + dropped)
        masked = self._mask(line)
        if dropped:
            # It may end with half a secret, which masks do not find.
            masked = f"{masked[:-LOG_LINE_CHARS_MAX]}… ({len(line) + dropped:,} characters)"
        return masked

    def _pass_on(self, lines: list[str]) -> None:
        if not lines:
            return
        stream = getattr(sys, self.name)
        with suppress(AttributeError, OSError, ValueError):  # no stream, or no reader
            stream.write("\n".join(lines) + "\n")
            stream.flush()


# A child process in its worker. `sdk/child.py` is the code that runs in it.

logger = logging.getLogger("daybell.worker")

# Of the executor's grace for stopped tasks; the rest is for the worker.
GRACE_SECONDS: Final = 3.0
LAST_WORDS_SECONDS: Final = 1.0  # for reading the output of a dead child

DIED: Final = "ProcessDied"


class Child(asyncio.Protocol):
    """One process, which runs one task at a time. `on_cut` is called when it cannot be reached any
    more, `on_end` when it has ended.
    """

    def __init__(
        self,
        *,
        on_cut: Callable[[Child], None],
        on_end: Callable[[Child], None],
        grace: Seconds = GRACE_SECONDS,
        keeps_logs: bool = True,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._on_cut = on_cut
        self._on_end = on_end
        self._keeps_logs = keeps_logs
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._mask = mask
        self._outputs = [
            OutputPipe(name, say=self._say, mask=mask) for name in ("stdout", "stderr")
        ]
        self._frames = FrameReader()
        self._is_cut = asyncio.Event()
        self._order: TaskOrder | None = None
        self._running: RunningAttempt | None = None
        self._done: TaskEnded | None = None
        self._news: asyncio.Future[None] | None = None
        self._fault: str | None = None  # the reason for killing it
        self._code: int | None = None  # exit code
        self.has_begun = False  # the last order
        self.runs = 0
        self.is_spent = False  # it must not run another task
        self.idle_since: Seconds = 0.0

    async def start(self, command: Sequence[str], setup: Setup) -> None:
        """Start the process: `command` with the number of its end of the line and our id."""
        with ExitStack() as stack:
            for output in self._outputs:
                stack.callback(output.close)
            ours, theirs = socket.socketpair()
            stack.callback(ours.close)
            with theirs:
                out, err = self._outputs
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    str(os.getpid()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out.writer,
                    stderr=err.writer,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # with a group of its own, to be killed as a whole
                )
            ours.setblocking(False)
            self._transport, _ = await self._loop.create_unix_connection(lambda: self, sock=ours)
            stack.pop_all()
        for output in self._outputs:
            output.start()
        self._watching = self._loop.create_task(self._watch())
        self._transport.write(encode_frame(setup))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def perform(self, order: TaskOrder, running: RunningAttempt) -> TaskEnded:
        """Run one task. A cancellation stops the task and waits for its end: SIGTERM raises
        Interrupted in it, at half of the grace if the task checks `is_cancelled` itself, and
        SIGKILL follows after the grace. The end of the task is then returned in place of the
        cancellation, because it shows where the task was. If `has_begun` is false afterwards, no
        line of the task has run.
        """
        self.runs += 1
        self.has_begun = False
        self._order, self._running, self._done = order, running, None
        if self._code is not None:
            self._conclude(self._code)
        else:
            self._transport.write(encode_frame(order))
        try:
            return await self._answer()
        except asyncio.CancelledError:
            self.is_spent = True  # its state is that of code that was interrupted anywhere
            done = await self._stopped()
            if not self.has_begun:
                raise
            return done

    def retire(self) -> None:
        """Let it end by itself, or else kill it."""
        self.is_spent = True
        self._transport.close()
        self._loop.call_later(self._grace, self.kill)

    async def ended(self) -> None:
        """Wait for its end."""
        await asyncio.wait([self._watching])

    def kill(self) -> None:
        """End it now with all its processes, unless they have a session of their own."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._code is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _answer(self) -> TaskEnded:
        while self._done is None:
            self._news = self._loop.create_future()
            await self._news
        return self._done

    async def _stopped(self) -> TaskEnded:
        self._transport.write(encode_frame(StopNotice()))
        self._loop.call_soon(self._signal, signal.SIGTERM)  # when it is written
        second = self._loop.call_later(self._grace / 2, self._remind)
        try:
            return await asyncio.wait_for(self._answer(), self._grace)
        except (TimeoutError, asyncio.CancelledError):
            self._fault = f"did not end within {self._grace:g} s of being told to, and was killed"
            self.kill()
            return await self._answer()
        finally:
            second.cancel()

    def _remind(self) -> None:
        """Interrupt a task that had time to end by itself. Others were signalled before."""
        with suppress(ProcessLookupError, PermissionError):
            self._process.send_signal(signal.SIGTERM)  # the child knows if it still runs it

    def data_received(self, data: bytes) -> None:
        """Read a part of the child's messages, after its output from before."""
        for output in self._outputs:
            output.read()
        try:
            for body in self._frames.feed(data):
                self._hear(read_answer(body))
        except WireError as error:
            self._fault = f"wrote something of its own on its line to the worker ({error})"
            self._transport.abort()
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the child, or of its connection."""
        self._is_cut.set()
        if self._code is None:
            wait = self._grace if self.is_spent else LAST_WORDS_SECONDS
            self._loop.call_later(wait, self._kill_mute)
        self._on_cut(self)

    def _kill_mute(self) -> None:
        if self._code is None:
            self._fault = self._fault or "closed its line to the worker"
            self.kill()

    def _hear(self, message: TaskStarted | ProgressReport | LogLine | TaskEnded) -> None:
        running = self._running
        if isinstance(message, TaskStarted):
            self.has_begun = True
        elif isinstance(message, TaskEnded):
            self._finish(message)
        elif isinstance(message, LogLine):
            self._relay(message)
        elif running is not None and message.pause is not None:
            running.report(pause=message.pause)
        elif running is not None:
            running.report(
                progress=message.progress,
                note=message.note,
                checkpoint=message.checkpoint,
            )

    def _say(self, level: str, source: str, line: str, length: int | None) -> None:
        if self._running is not None and self._keeps_logs:
            self._running.say(level, source, line, length=length)

    def _relay(self, said: LogLine) -> None:
        """Store a record with the execution, and log it here like a record of the worker."""
        self._say(said.level, said.source, said.message, said.length)
        message = self._mask(said.message)
        if said.length is not None:
            # It may end with half a secret, which masks do not find.
            message = f"{message[:-LOG_LINE_CHARS_MAX]}… ({said.length:,} characters)"
        level = logging.getLevelNamesMapping().get(said.level.upper(), logging.INFO)
        target = logging.getLogger(said.source)
        if target.isEnabledFor(level):
            target.handle(target.makeRecord(said.source, level, "", 0, message, (), None))

    def _finish(self, done: TaskEnded) -> None:
        if self._running is None or self._done is not None:
            return
        for output in self._outputs:
            output.end_line()
        self.is_spent = self.is_spent or done.is_spent
        self._running, self._done = None, done
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _watch(self) -> None:
        code = await self._process.wait()
        self._signal(signal.SIGKILL)  # its processes must not outlive it
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_cut.wait(), LAST_WORDS_SECONDS)
        self._code, self.is_spent = code, True
        self._transport.abort()
        for output in self._outputs:
            output.read()
        self._conclude(code)
        for output in self._outputs:
            output.close()
        self._on_end(self)

    def _conclude(self, code: int) -> None:
        """Fail the running task with this reason."""
        if self._running is not None:
            assert self._order is not None
            fact = self._fault or _describe_exit(code, self._order.memory_limit)
            if not self.has_begun:
                fact = f"{fact}, before it had begun with the task"
            elif self._fault is None and code >= 0:
                fact = f"{fact}, in the middle of the task"
            failure = Account(type=DIED, message=Excerpt(f"the task's process {fact}"))
            self._finish(TaskEnded(failure=failure, is_spent=True))


def _describe_exit(code: int, memory_limit: int | None) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if memory_limit is not None and -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        return (
            f"was killed by {name} ({_SIGNAL_MEANINGS[-code]}); code that is not Python"
            " may end so when it"
            f" gets no more memory, because of the memory_limit of {format_size(memory_limit)}"
        )
    meaning = _SIGNAL_MEANINGS.get(-code)
    return f"was killed by {name} ({meaning})" if meaning else f"was killed by {name}"


_SIGNAL_MEANINGS: Final[dict[int, str]] = {
    signal.SIGKILL: "by somebody, or by the system because memory was short",
    signal.SIGSEGV: "a crash in code that is not Python, or a recursion too deep",
    signal.SIGABRT: "code that is not Python has given up",
    signal.SIGBUS: "a crash in code that is not Python",
    signal.SIGFPE: "a wrong calculation in code that is not Python",
    signal.SIGILL: "a crash in code that is not Python",
    signal.SIGTERM: "somebody asked it to end",
    signal.SIGXCPU: "it has used up its processor time",
}


IDLE_SECONDS: Final = 60.0
NO_CHILD_SECONDS: Final = 1.0  # after this time an execution without a child is released
REVEALED_BYTES_MAX: Final = 8 * ARGS_BYTES_MAX  # arguments and their secrets
STILLBORN_MAX: Final = 3  # new children that die before they begin, until the task has failed


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The number of children, and their life."""

    children: int | None = None  # upper limit; None: the number of processors
    runs_max: int | None = None  # tasks per child; then it is replaced
    idle: Seconds = IDLE_SECONDS
    grace: Seconds = GRACE_SECONDS  # between SIGTERM and SIGKILL

    @property
    def limit(self) -> int:
        return self.children or os.cpu_count() or 1


class Processes:
    """Children of one event loop. `command` starts one, `setup` is its first message."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        setup: Callable[[], Setup],
        options: PoolOptions | None = None,
        keeps_logs: bool = True,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._command = command
        self._mask = mask
        self._setup = setup
        self._options = options or PoolOptions()
        self._keeps_logs = keeps_logs
        self._limit = self._options.limit
        self._loop = asyncio.get_running_loop()
        self._children: set[Child] = set()  # those that can run a task
        self._leaving: set[Child] = set()  # those that were told to end
        self._idle: list[Child] = []  # longest idle first; the last one is used next
        self._starts: set[asyncio.Task[None]] = set()
        self._waiters: deque[asyncio.Future[Child]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of the children that can run a task."""
        return [child.pid for child in self._children]

    async def run(self, order: TaskOrder, running: RunningAttempt) -> str | None:
        """Run a task in a child; raise its exception as the child described it."""
        try:
            done = await self._perform(order, running)
        except asyncio.CancelledError:
            # It has not begun, so it has neither failed nor timed out.
            raise RetryLater("no child process was free", delay=NO_CHILD_SECONDS) from None
        running.is_hopeless = running.is_hopeless or done.is_hopeless
        if done.later is not None:
            later = done.later
            raise RetryLater(later.reason, delay=later.delay, at=later.at, limit=later.limit)
        if done.failure is not None:
            raise DescribedError(done.failure)
        return done.result

    async def _perform(self, order: TaskOrder, running: RunningAttempt) -> TaskEnded:
        """Run a task in a child, and in another one if that has died before it began.

        All idle children may have been killed at once. If new ones die as well, the task fails,
        because the cause would stay unknown otherwise.
        """
        stillborn = 0
        while True:
            child = self._idle.pop() if self._idle else await self._free_child()
            try:
                done = await child.perform(order, running)
            finally:
                self._give_back(child)
            stillborn += child.runs == 1
            if child.has_begun or stillborn == STILLBORN_MAX:
                return done

    async def close(self) -> None:
        """End all children, and wait for that."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._starts:
            await asyncio.wait(self._starts)
        for child in list(self._children):
            self._retire(child)
        while self._leaving:
            await next(iter(self._leaving)).ended()

    async def _free_child(self) -> Child:
        waiter: asyncio.Future[Child] = self._loop.create_future()
        self._waiters.append(waiter)
        if len(self._children) + len(self._starts) < self._limit:
            self._start_one()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._offer(waiter.result())
            raise

    def _start_one(self) -> None:
        # Not in the context of the present caller: the child will serve others, too.
        start = self._loop.create_task(self._start(), context=contextvars.Context())
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)

    async def _start(self) -> None:
        child = Child(
            on_cut=self._leave_out,
            on_end=self._forget,
            grace=self._options.grace,
            keeps_logs=self._keeps_logs,
            mask=self._mask,
        )
        try:
            await child.start(self._command, self._setup())
        except Exception as error:
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(error)
            return
        self._children.add(child)
        if self._is_closed:
            self._retire(child)
        else:
            self._offer(child)

    def _next_waiter(self) -> asyncio.Future[Child] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _give_back(self, child: Child) -> None:
        runs_max = self._options.runs_max
        if child.is_spent or self._is_closed or (runs_max is not None and child.runs >= runs_max):
            self._retire(child)
        else:
            self._offer(child)

    def _offer(self, child: Child) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(child)
            return
        self._idle.append(child)
        child.idle_since = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._options.idle, self._end_idle)

    def _end_idle(self) -> None:
        """End children that were idle for long enough."""
        since = self._loop.time() - self._options.idle
        for child in [child for child in self._idle if child.idle_since <= since]:
            self._retire(child)
        self._sweep = None
        if self._idle:
            wait = self._idle[0].idle_since - since
            self._sweep = self._loop.call_later(wait, self._end_idle)

    def _retire(self, child: Child) -> None:
        if child not in self._children:
            return
        self._remove(child)
        self._leaving.add(child)
        child.retire()

    def _remove(self, child: Child) -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if self._waiters and len(self._children) + len(self._starts) < self._limit:
            self._start_one()

    def _leave_out(self, child: Child) -> None:
        """Take a child out of use. It reports the end of its task, if it has one."""
        if child in self._idle:
            self._retire(child)

    def _forget(self, child: Child) -> None:
        """Remove an ended child."""
        self._remove(child)
        self._leaving.discard(child)


class ProcessHandler:
    """Handler of one function that runs in children, with its policies."""

    def __init__(
        self,
        place: FunctionLocation,
        *,
        retry: Retry,
        timeout: Seconds | None,
        store_result: bool,
        memory_limit: int | None,
        processes: Callable[[], Processes],
        reveal: RevealArgs | None = None,
        goes_on: bool = False,
        starts_once: bool = False,
    ) -> None:
        self.retry = retry
        self.timeout = timeout
        self.grace = 0.0
        self.goes_on = goes_on
        self.starts_once = starts_once
        self._place = place
        self._store_result = store_result
        self._memory_limit = memory_limit
        self._processes = processes
        self._reveal = reveal

    async def run(self, running: RunningAttempt) -> str | None:
        order = TaskOrder(
            self._place,
            running.claimed,
            self._store_result,
            self._memory_limit,
            devices=running.devices or {},
        )
        if self._reveal is not None and may_refer(running.claimed.args):
            order = _with(order, await self._reveal(running))
        return await self._processes().run(order, running)


def _with(order: TaskOrder, args: dict[str, Any]) -> TaskOrder:
    """Build the order for a call with these arguments, secrets included."""
    text = payload.encode(args, bytes_max=REVEALED_BYTES_MAX)
    claimed = msgspec.structs.replace(order.claimed, args=text)
    return msgspec.structs.replace(order, claimed=claimed, is_revealed=True)
