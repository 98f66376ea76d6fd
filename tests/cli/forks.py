"""Commands in processes that need not start: forks of one that has imported everything.

Python and its imports take most of the time of a short command. So one process, this file run as
a module, does that once and forks for every command, and for every script that imports Daybell. A
fork has an id, a folder, an environment and streams of its own, and ends as Python ends. What
depends on how Python starts is tested in processes that do start: those of `subprocess`, and of
`terminal.Running` if it is told to.
"""

import atexit
import contextlib
import fcntl
import functools
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
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TextIO

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = "daybell"
LONGEST: Final = 200_000  # bytes of a request; the kernel's buffer has to hold it
# What commands import when they run.
LATER: Final = (
    *("asyncpg", "sqlite3", "tomllib", "uvloop", "zoneinfo"),
    *("rich.console", "rich.live", "rich.progress", "rich.table"),
    *("daybell.store.postgres", "daybell.store.sqlite"),
)


class Forks:
    """The process that forks; it ends when it is closed, or when its owner ends."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._python = python_of(environment)
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
        is_at_terminal: bool = False,
        script: Path | None = None,
    ) -> "Fork":
        """Start a command, or a script, with these for stdin, stdout and stderr.

        If stdin is a terminal, it can be made the command's own: a typed Ctrl-C reaches it.
        """
        assert python_of(environment) == self._python, "a fork starts no Python"
        request = {
            "words": words,
            "folder": str(folder),
            "environment": dict(environment),
            "is_at_terminal": is_at_terminal,
            "script": None if script is None else str(script),
        }
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*streams, writing])
        finally:
            os.close(writing)
        return Fork(reading)


class Fork:
    """A command that runs, as subprocess would show it."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.returncode: int | None = None
        self.pid = int(self._answer(None))

    def poll(self) -> int | None:
        """The exit code, once there is one."""
        if self.returncode is None and is_readable(self._answers, 0):
            self.wait(None)
        return self.returncode

    def wait(self, seconds: float | None) -> int:
        """The exit code, as subprocess has it; whoever takes longer is killed."""
        if self.returncode is None:
            try:
                self.returncode = int(self._answer(seconds))
            except TimeoutError:
                self.kill()
                self.returncode = int(self._answer(None))
                raise
            finally:
                os.close(self._answers)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _answer(self, seconds: float | None) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            if not is_readable(self._answers, seconds):
                raise TimeoutError(f"the command has not ended in {seconds} seconds")
            byte = os.read(self._answers, 1)
            assert byte, "the process that forks is gone"
            line += byte
        return line


def python_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def is_readable(number: int, seconds: float | None) -> bool:
    """Whether there is something to read, or will be in this time."""
    return bool(select.select([number], [], [], seconds)[0])


def serve(requests: socket.socket) -> None:
    """Fork for every request; returns in a fork that has become the command's process."""
    # Ctrl-C is for those who use the forks.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, numbers, _, _ = socket.recv_fds(requests, LONGEST, 4)
        reap()
        if not data:
            sys.exit()  # whoever asked is gone
        if not os.fork():
            break
        for number in numbers:
            os.close(number)
    signal.signal(signal.SIGINT, before)
    requests.close()
    *streams, answers = numbers
    attend(answers, streams)
    become(json.loads(data), streams)


def reap() -> None:
    """Bury the forks that have ended; their CPU time counts as that of this process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


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
    """Make this process look like one that was started as `python -m daybell`, or with a script."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["is_at_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    if request["script"]:
        program = ModuleType("__main__")
        program.__file__ = request["script"]
        sys.path[0] = str(Path(request["script"]).parent)
        started_as = [request["script"]]
    else:
        program = importlib.import_module(f"{COMMAND}.__main__")
        program.__name__ = "__main__"
        sys.path[0] = os.getcwd()
        started_as = ["-m", COMMAND]
    sys.modules["__main__"] = program
    sys.argv[:] = [str(program.__file__), *request["words"]]
    sys.orig_argv[:] = [sys.executable, *started_as, *request["words"]]
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
    keep_commands()
    commands = importlib.import_module(f"{COMMAND}.cli")
    for found in pkgutil.walk_packages(commands.__path__, f"{COMMAND}.cli."):
        importlib.import_module(found.name)
    for name in LATER:
        importlib.import_module(name)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("typer._adapters")  # of newer versions
    root = importlib.import_module("typer.main").get_command(commands.app)
    root.commands = {name: root.load(name) for name in root.commands}
    # A fork that looks at all of this when it collects garbage has to copy the memory it is in.
    gc.collect()
    gc.freeze()


def keep_commands() -> None:
    """Have Typer make its commands of our functions once, and not again in every fork."""
    typer: Any = importlib.import_module("typer.main")
    typer.get_command = functools.cache(typer.get_command)


def exit_code() -> object:
    """What the command that was typed, or the script, asks its process to end with."""
    program = sys.modules["__main__"]
    try:
        if program.__spec__ is None:
            text = Path(str(program.__file__)).read_text()
            exec(compile(text, str(program.__file__), "exec"), program.__dict__)
            return 0
        importlib.import_module(f"{COMMAND}.cli").main()
    except SystemExit as end:
        return end.code


def leave(code: int) -> None:
    """End this process as Python does, but let the system take away what was imported.

    To take that apart piece by piece, in memory that has to be copied first, takes longer than
    most commands. Returns if there is more to do than this: then Python has to do it.
    """
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    gc.collect()  # what nobody has closed says so
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import_all()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)
    code = exit_code()
    if isinstance(code, int):
        leave(code)
    sys.exit(code)  # pyright: ignore[reportArgumentType]
