"""The terminal of a command: stop signals, confirmation prompts and single key presses."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
import socket
import sys
import termios
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, Final, Self

import typer

from daybell.cli.runtime import DONE, FAILED, INTERRUPTED
from daybell.engine.loop import SystemClock
from daybell.errors import UsageError

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# One that comes sooner is an echo of the first: `timeout` and some service managers signal a
# process, and then its group.
ECHO_SECONDS: Final = 0.5
SECOND: Final = b"ended at once; what ran goes to others when its lease has ended\n"
PR_SET_PDEATHSIG: Final = 1


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C end a blocking call at once: the event loop, which would handle it, is blocked."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class StartInterrupted(Exception):
    """An end was requested before there was anything to end."""


class StopSignals:
    """While entered, handles the signals that ask a process to end.

    The handlers are Python's own, not the event loop's: a task that blocks the loop cannot block
    the second signal.
    """

    def __init__(self, *, on_second: Callable[[], None] | None = None) -> None:
        self._on_second = on_second
        self._requested = asyncio.Event()
        self._clock = SystemClock()
        self._heard_at: float | None = None
        self.code = DONE  # the exit code if nothing had begun; a user that gave up sees it
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for one in SIGNALS:
            self._before[one] = signal.signal(one, self._hear)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup has it ignored
            self.hear_parent()
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def hear_parent(self, parent: int | None = None) -> None:
        """Take SIGHUP as a request; have it sent when the parent has ended, in any way."""
        self._before.setdefault(signal.SIGHUP, signal.getsignal(signal.SIGHUP))
        signal.signal(signal.SIGHUP, self._hear_parent)
        if parent is None:
            return
        if sys.platform == "linux":
            import ctypes

            # Sent once per thread of the parent that dies: no signal to count.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
        if os.getppid() != parent:  # the parent had ended before
            self.request()

    def request(self) -> None:
        """Request an end from inside."""
        self._requested.set()

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    async def wait(self) -> None:
        """Wait until an end is requested."""
        await self._requested.wait()

    def on_request(self, act: Callable[[], object]) -> asyncio.Task[None]:
        """Call `act` when an end is requested."""

        async def wait() -> None:
            await self._requested.wait()
            act()

        return self._loop.create_task(wait())

    @contextlib.contextmanager
    def heeding(self) -> Generator[None]:
        """Cancel the awaited calls of the body when an end is requested; raise StartInterrupted.

        For calls before there is anything to end: a database that does not answer, a hook that
        hangs. It stays in this task, so that another hook can leave a context that one has entered.
        """
        task = asyncio.current_task()
        assert task is not None
        stopping = self.on_request(task.cancel)
        try:
            yield
        except asyncio.CancelledError:
            if not self.is_requested or task.uncancel():
                raise  # the cancellation came from elsewhere
            raise StartInterrupted from None
        finally:
            stopping.cancel()

    def _hear_parent(self, _number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._requested.set)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self._heard_at is None:
            self._heard_at = now
            self.code = INTERRUPTED if number == signal.SIGINT else DONE
            self._loop.call_soon_threadsafe(self._requested.set)
            return
        if now - self._heard_at < ECHO_SECONDS:
            return
        if self._on_second is not None:
            self._on_second()
        for stream in (sys.stdout, sys.stderr):
            # The signal may have come in the middle of a write.
            with contextlib.suppress(Exception):
                stream.flush()
        with contextlib.suppress(OSError):
            os.write(2, SECOND)
        os._exit(128 + number)


# Asking before something is done to many things at once.


def current_actor() -> str:
    """Return the name of this terminal's user for the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in a container
        user = "unknown"
    return f"cli {user}@{socket.gethostname()}"


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless --yes was given; without a terminal there is no person to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to ask on; add --yes")
    try:
        with interruptible():
            is_wanted = typer.confirm(question[0].upper() + question[1:])
    except typer.Abort as abort:
        typer.echo("\nnothing was done")
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise typer.Exit(FAILED) from None  # the input has ended: that is no yes
    if not is_wanted:
        typer.echo("nothing was done")
        raise typer.Exit(FAILED)


# Keys as they are pressed, without waiting for a line.

LOCAL_FLAGS, CHARACTERS = 3, 6  # positions in the answer of termios


class KeyReader:
    """While entered, calls back with each typed key. The terminal is as before afterwards.

    Ctrl-C still is a signal. Ctrl-Z is not: it would leave the terminal to a shell as it is now.
    """

    def __init__(self, on_key: Callable[[str], None], *, on_end: Callable[[], None]) -> None:
        self._on_key = on_key
        self._on_end = on_end
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            changed = termios.tcgetattr(self._fd)
            changed[LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
            changed[CHARACTERS][termios.VSUSP] = b"\0"
            termios.tcsetattr(self._fd, termios.TCSADRAIN, changed)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            self.restore()

    def restore(self) -> None:
        """Restore the terminal; typed keys that were not read are dropped."""
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)

    def _read(self) -> None:
        try:
            typed = os.read(self._fd, 1024)
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._on_end()
        for key in typed.decode(errors="replace"):
            self._on_key(key)
