"""A child process as its worker sees it. What runs in it is `sdk/child.py`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from daybell.core.failure import Account, Excerpt
from daybell.core.instant import Seconds
from daybell.core.limits import LOG_LINE_CHARS_MAX
from daybell.core.size import format_size
from daybell.runners.outputs import Output
from daybell.runners.python import Running
from daybell.runners.wire import (
    Begun,
    Done,
    Frames,
    Halt,
    News,
    Order,
    Said,
    Setup,
    WireError,
    framed,
    read_answer,
)

logger = logging.getLogger("daybell.worker")

# Of the executor's grace for what was stopped, after which it waits no longer; the rest is for us.
GRACE_SECONDS: Final = 3.0
LAST_WORDS_SECONDS: Final = 1.0  # to hear what a child has said before it died

DIED: Final = "ProcessDied"


class Child(asyncio.Protocol):
    """One process, which runs one task at a time. `on_cut` is told that it can be reached no more,
    `on_end` that it is gone.
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
        self._outputs = [Output(name, say=self._say, mask=mask) for name in ("stdout", "stderr")]
        self._frames = Frames()
        self._is_cut = asyncio.Event()
        self._order: Order | None = None
        self._running: Running | None = None
        self._done: Done | None = None
        self._news: asyncio.Future[None] | None = None
        self._fault: str | None = None  # why it had to be killed
        self._code: int | None = None  # that it ended with
        self.has_begun = False  # what it was ordered to run last
        self.runs = 0
        self.is_spent = False  # it must not run another
        self.idle_since: Seconds = 0.0

    async def start(self, command: Sequence[str], setup: Setup) -> None:
        """Start the process: `command`, with the number of its end of the line and our id."""
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
        self._transport.write(framed(setup))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def perform(self, order: Order, running: Running) -> Done:
        """Have it run one task. Cancelling this stops the task and waits until that has worked:
        SIGTERM, which raises Interrupted in it or, if it looks by itself whether it is to stop, at
        half of the grace, and SIGKILL when the grace is over. How the task
        ended is then told in place of the cancellation: it shows where the task was. Unless it has
        not even begun: if `has_begun` is false afterwards, no line of the task has run.
        """
        self.runs += 1
        self.has_begun = False
        self._order, self._running, self._done = order, running, None
        if self._code is not None:
            self._conclude(self._code)
        else:
            self._transport.write(framed(order))
        try:
            return await self._answer()
        except asyncio.CancelledError:
            self.is_spent = True  # its state is that of code which was broken off anywhere
            done = await self._stopped()
            if not self.has_begun:
                raise
            return done

    def retire(self) -> None:
        """Let it end by itself; if it does not, kill it."""
        self.is_spent = True
        self._transport.close()
        self._loop.call_later(self._grace, self.kill)

    async def ended(self) -> None:
        """Until it is gone."""
        await asyncio.wait([self._watching])

    def kill(self) -> None:
        """End it now, with all that it has started, unless that has a session of its own."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._code is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _answer(self) -> Done:
        while self._done is None:
            self._news = self._loop.create_future()
            await self._news
        return self._done

    async def _stopped(self) -> Done:
        self._transport.write(framed(Halt()))
        self._loop.call_soon(self._signal, signal.SIGTERM)  # when that is written
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
        """Interrupt a task that had time to end by itself. Others were told everything before."""
        with suppress(ProcessLookupError, PermissionError):
            self._process.send_signal(signal.SIGTERM)  # which knows whether it is still that one

    def data_received(self, data: bytes) -> None:
        """A part of what the child says. What it printed before is heard before."""
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
        """It has ended, or has closed what is not its own to close."""
        self._is_cut.set()
        if self._code is None:
            wait = self._grace if self.is_spent else LAST_WORDS_SECONDS
            self._loop.call_later(wait, self._kill_mute)
        self._on_cut(self)

    def _kill_mute(self) -> None:
        if self._code is None:
            self._fault = self._fault or "closed its line to the worker"
            self.kill()

    def _hear(self, message: Begun | News | Said | Done) -> None:
        running = self._running
        if isinstance(message, Begun):
            self.has_begun = True
        elif isinstance(message, Done):
            self._finish(message)
        elif isinstance(message, Said):
            self._relay(message)
        elif running is not None:
            running.report(
                progress=message.progress, note=message.note, checkpoint=message.checkpoint
            )

    def _say(self, level: str, source: str, line: str, length: int | None) -> None:
        if self._running is not None and self._keeps_logs:
            self._running.say(level, source, line, length=length)

    def _relay(self, said: Said) -> None:
        """Keep a record with the execution, and log it here as if it had been said here."""
        self._say(said.level, said.source, said.message, said.length)
        message = self._mask(said.message)
        if said.length is not None:
            # It may end with half a secret, which no mask knows.
            message = f"{message[:-LOG_LINE_CHARS_MAX]}… ({said.length:,} characters)"
        level = logging.getLevelNamesMapping().get(said.level.upper(), logging.INFO)
        target = logging.getLogger(said.source)
        if target.isEnabledFor(level):
            target.handle(target.makeRecord(said.source, level, "", 0, message, (), None))

    def _finish(self, done: Done) -> None:
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
        self._signal(signal.SIGKILL)  # what it has started must not outlive it
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
        """Whatever it was running has failed, and this is why."""
        if self._running is not None:
            assert self._order is not None
            fact = self._fault or _how_it_ended(code, self._order.memory_limit)
            if not self.has_begun:
                fact = f"{fact}, before it had begun with the task"
            elif self._fault is None and code >= 0:
                fact = f"{fact}, in the middle of the task"
            failure = Account(type=DIED, message=Excerpt(f"the task's process {fact}"))
            self._finish(Done(failure=failure, is_spent=True))


def _how_it_ended(code: int, memory_limit: int | None) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if memory_limit is not None and -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        return (
            f"was killed by {name} ({_MEANING[-code]}); code that is not Python may end so when it"
            f" gets no more memory, because of the memory_limit of {format_size(memory_limit)}"
        )
    meaning = _MEANING.get(-code)
    return f"was killed by {name} ({meaning})" if meaning else f"was killed by {name}"


_MEANING: Final[dict[int, str]] = {
    signal.SIGKILL: "by somebody, or by the system because memory was short",
    signal.SIGSEGV: "a crash in code that is not Python, or a recursion too deep",
    signal.SIGABRT: "code that is not Python has given up",
    signal.SIGBUS: "a crash in code that is not Python",
    signal.SIGFPE: "a wrong calculation in code that is not Python",
    signal.SIGILL: "a crash in code that is not Python",
    signal.SIGTERM: "somebody asked it to end",
    signal.SIGXCPU: "it has used up its processor time",
}
