"""The command as a user runs it: a process of its own, in a folder of its own."""

import atexit
import codecs
import contextlib
import functools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from tests.cli.forks import Forks, is_readable

T = TypeVar("T")

SECONDS = 300  # before a test gives up waiting: the machine may be busy
TYPING: list["Typing"] = []  # commands to hang up on when a test is over


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def as_json(ended: Ended) -> Any:
    """Return the JSON that a command has printed; it must have succeeded."""
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def environment(**variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DAYBELL_")}
    return clean | {"PYTHONWARNINGS": "error", "COLUMNS": "80"} | variables


@functools.cache
def forks() -> Forks:
    """Where short commands run, as long as this process does."""
    made = Forks(environment())
    atexit.register(made.close)
    return made


def daybell(*words: str, folder: Path, stdin: bytes | None = None, **variables: str) -> Ended:
    with (
        open(os.devnull, "rb") if stdin is None else tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        if stdin is not None:
            given.write(stdin)
            given.seek(0)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        told = environment(**variables)
        fork = forks().start(words, folder=folder, environment=told, streams=streams)
        code = fork.wait(SECONDS)
        return Ended(code, read(out), read(err))


def run_script(script: Path, *, folder: Path, **variables: str) -> Ended:
    """The same for a script of a user."""
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        fork = forks().start(
            (),
            folder=folder,
            environment=environment(**variables),
            streams=[nothing.fileno(), out.fileno(), err.fileno()],
            script=script,
        )
        code = fork.wait(SECONDS)
        return Ended(code, read(out), read(err))


def read(file: IO[str]) -> str:
    """All that was written to a file."""
    file.seek(0)
    return file.read()


def on_terminal(*words: str, folder: Path, **variables: str) -> Ended:
    """The same with a terminal for what goes to stderr."""
    ours, theirs = pty.openpty()
    with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out:
        fork = forks().start(
            words,
            folder=folder,
            environment=environment(TERM="xterm", **variables),
            streams=[nothing.fileno(), out.fileno(), theirs],
        )
        os.close(theirs)
        shown = bytearray()
        # It ends with an error, not with an empty read, when nobody is left at the other side.
        with contextlib.suppress(OSError):
            while some := os.read(ours, 65536):
                shown += some
        os.close(ours)
        return Ended(fork.wait(SECONDS), read(out), shown.decode())


class Typing:
    """A command with a terminal for all it reads and shows, and somebody who types."""

    def __init__(self, *words: str, folder: Path, columns: int = 80, **variables: str) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        self.modes = termios.tcgetattr(theirs)  # before the command can change them
        self.screen = os.fdopen(ours, "r+b", buffering=0)
        self.process = forks().start(
            words,
            folder=folder,
            environment=environment(TERM="xterm", **variables) | {"COLUMNS": str(columns)},
            streams=[theirs] * 3,
            is_at_terminal=True,
        )
        os.close(theirs)
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        TYPING.append(self)

    def close(self) -> None:
        """Hang up, whether or not it has ended."""
        self.process.kill()
        self.process.wait(SECONDS)
        self.screen.close()

    def type(self, keys: str, *, after: str) -> None:
        """Press these keys as soon as that is shown."""
        while after not in self.shown:
            assert self.read(), f"{after!r} was not shown:\n{self.shown}"
        self.screen.write(keys.encode())

    def insist(self, keys: str, *, after: str) -> None:
        """The same, and again while nothing happens.

        A Ctrl-C between a prompt and the read behind it is not heard before the next key: Python
        asks for signals only when the read is interrupted. A person presses it again, too.
        """
        self.type(keys, after=after)
        shown = self._answer()
        for _ in range(SECONDS):
            while is_readable(self.screen.fileno(), 1):
                if not self.read() or self._answer() != shown:
                    return
            self.screen.write(keys.encode())

    def _answer(self) -> str:
        """All that is shown but the echo of Ctrl-C, and the blank that a prompt ends with."""
        return self.shown.replace("^C", "").rstrip()

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        while self.read():
            pass
        self.screen.close()
        return self.process.wait(SECONDS)

    def read(self) -> bool:
        """Read what it shows next; False if it has ended."""
        if not is_readable(self.screen.fileno(), SECONDS):
            self.close()
            raise AssertionError(f"it goes on in silence:\n{self.shown}")
        try:
            some = os.read(self.screen.fileno(), 65536)
        except OSError:  # the last one on the other side is gone
            return False
        self.shown += self._decoder.decode(some)
        return True


class Running:
    """A command that keeps running, with what it has said so far.

    It is a fork, unless it has to be `afresh`: a Python that starts, as a user's does.
    """

    def __init__(self, *words: str, folder: Path, afresh: bool = False, **variables: str) -> None:
        reading, writing = os.pipe()
        told = environment(**variables)
        with open(os.devnull, "rb") as nothing, open(writing, "wb") as output:
            streams = [nothing.fileno(), output.fileno(), output.fileno()]
            start = started if afresh else forks().start
            self.process = start(words, folder=folder, environment=told, streams=streams)
        self.lines: list[str] = []
        self._output = os.fdopen(reading, encoding="utf-8", buffering=1)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self._output.close()

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, *, times: int = 1) -> list[str]:
        """The lines that match, as soon as there are so many."""
        deadline = time.monotonic() + SECONDS
        with self._changed:
            while True:
                found = [line for line in self.lines if re.search(pattern, line)]
                if len(found) >= times:
                    return found
                left = deadline - time.monotonic()
                if left <= 0 or (not self._reader.is_alive() and self.process.poll() is not None):
                    raise AssertionError(f"{pattern!r} was not said {times} times:\n{self.said}")
                self._changed.wait(min(left, 0.2))

    def insist(self, number: signal.Signals) -> int:
        """Its exit code, once signals, again and again, have ended it."""

        def is_over() -> bool:
            if self.process.poll() is None:
                self.signal(number)
            return self.process.poll() is not None

        until(is_over)
        return self.end()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def _read(self) -> None:
        for line in self._output:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()


def started(
    words: Sequence[str], *, folder: Path, environment: dict[str, str], streams: Sequence[int]
) -> subprocess.Popen[bytes]:
    """A command in a Python of its own."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, "-m", "daybell", *words],
        cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr,
    )  # fmt: skip


def until(condition: Callable[[], T]) -> T:
    """What the condition answers, once that is something."""
    deadline = time.monotonic() + SECONDS
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return answer


def is_alive(pid: int) -> bool:
    """Whether the process runs: neither gone nor waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
