"""Commands in processes that need not start: forks of one that has imported everything.

Python and its imports take most of the time of a short command. So one process, this file run as
a module, does that once and forks for every command. A fork has an id, a folder, an environment
and streams of its own, and ends as Python ends. What depends on how Python starts is tested in
processes that do start: those of `subprocess`, `terminal.Running` and `terminal.Typing`.
"""

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = "daybell"
LONGEST: Final = 200_000  # bytes of a request; the kernel's buffer has to hold it
# What commands import when they run.
LATER: Final = (
    *("asyncpg", "sqlite3", "tomllib", "typer._adapters", "uvloop", "zoneinfo"),
    *("rich.console", "rich.live", "rich.progress", "rich.table"),
    *("daybell.store.memory", "daybell.store.postgres", "daybell.store.sqlite"),
)


class Forks:
    """The process that forks; it ends when it is closed, or when its owner ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        self._requests.close()
        self._process.wait()

    def start(
        self,
        words: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> "Fork":
        """Start a command with these for stdin, stdout and stderr."""
        request = {"words": words, "folder": str(folder), "environment": dict(environment)}
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, writing])
        finally:
            os.close(writing)
        return Fork(reading)


class Fork:
    """A command that runs."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.pid = int(self._answer(None))

    def wait(self, seconds: float) -> int:
        """The exit code, as subprocess has it; whoever takes longer is killed."""
        try:
            return int(self._answer(seconds))
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            os.close(self._answers)

    def _answer(self, seconds: float | None) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._answers], [], [], seconds)[0]:
                raise TimeoutError(f"the command has not ended in {seconds} seconds")
            byte = os.read(self._answers, 1)
            assert byte, "the process that forks is gone"
            line += byte
        return line


def serve(requests: socket.socket) -> None:
    """Fork for every request; returns in a fork that has become the command's process."""
    # Nobody asks how a fork has ended, and Ctrl-C is for those who use them.
    ignored = (signal.SIGCHLD, signal.SIGINT)
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    while True:
        data, numbers, _, _ = socket.recv_fds(requests, LONGEST, 4)
        if not data:
            sys.exit()  # whoever asked is gone
        if not os.fork():
            break
        for number in numbers:
            os.close(number)
    for number, handler in zip(ignored, before, strict=True):
        signal.signal(number, handler)
    requests.close()
    *streams, answers = numbers
    attend(answers, streams)
    become(json.loads(data), streams)


def attend(answers: int, streams: list[int]) -> None:
    """Fork again; the parent tells the id of the new process, and how it has ended."""
    pid = os.fork()
    if not pid:
        os.close(answers)
        return
    for number in streams:
        os.close(number)  # a reader waits for the last one to do so
    os.write(answers, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # it took too long, and nobody waits any more
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process look like one that was started as `python -m daybell`."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = os.getcwd()
    program = importlib.import_module(f"{COMMAND}.__main__")
    program.__name__ = "__main__"
    sys.modules["__main__"] = program
    sys.argv[:] = [str(program.__file__), *request["words"]]
    sys.orig_argv[:] = [sys.executable, "-m", COMMAND, *request["words"]]
    sys.stdin = sys.__stdin__ = opened(0, like=sys.stdin)
    sys.stdout = sys.__stdout__ = opened(1, like=sys.stdout)
    sys.stderr = sys.__stderr__ = opened(2, like=sys.stderr)


def opened(number: int, *, like: TextIO) -> io.TextIOWrapper:
    """A stream as Python opens it when it starts."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    mode, buffering = ("wb", 0 if is_unbuffered else -1) if number else ("rb", -1)
    return io.TextIOWrapper(
        open(number, mode, buffering, closefd=False),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=not is_unbuffered and (number == 2 or os.isatty(number)),
        write_through=is_unbuffered,
    )


def import_all() -> None:
    commands = importlib.import_module(f"{COMMAND}.cli")
    for found in pkgutil.iter_modules(commands.__path__, f"{COMMAND}.cli."):
        importlib.import_module(found.name)
    for name in LATER:
        importlib.import_module(name)
    # A fork that looks at all of this when it collects garbage has to copy the memory it is in.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import_all()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)
    importlib.import_module(f"{COMMAND}.cli").main()
