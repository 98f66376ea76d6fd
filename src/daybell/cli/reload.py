"""`daybell dev --reload`: a process that stays, and one with the app that is started afresh
whenever the app's code has changed.

The app is never imported here. What is wrong with it is shown by the process that imports it, and
the next change tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import typer

from daybell.cli.dev import DevOptions
from daybell.cli.edge import DONE, complain
from daybell.cli.show import printable
from daybell.cli.stopping import Stop
from daybell.core.instant import Seconds
from daybell.errors import UsageError, listed
from daybell.runners.waiting import first_of
from daybell.settings import Settings

DRAIN_SECONDS: Final[Seconds] = 3.0  # a person waits, and what is given back runs again at once
GOODBYE_SECONDS: Final[Seconds] = 5.0
DEBOUNCE_MS: Final = 400  # an editor writes several files, and some more than once
QUIET_MS: Final = 100
IGNORED: Final = frozenset(
    {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
)
NAMED_MAX: Final = 3

Process = asyncio.subprocess.Process


async def reloading(
    settings: Settings, *, spec: str | None, demo: bool, flag: str | None, options: DevOptions
) -> int:
    """`daybell dev` until Ctrl-C, again with every change of the app's code."""
    spec = spec or settings.app
    if demo:
        raise UsageError("--demo brings an app that does not change; leave out --reload")
    if spec is None:
        raise UsageError("say which app to run and watch: module:app, or path/to/file.py")
    words = words_for(spec, options, flag)
    folders = source_folders(spec)
    _say(f"watching {printable(', '.join(map(str, folders)))}")
    changes = Changes(folders)
    with Stop(on_second=lambda: _kill(changes.child)) as stop:
        changes.start()
        try:
            await _run(words, changes, stop)
        finally:
            _kill(changes.child)
            await changes.close()
    return DONE


def words_for(spec: str, options: DevOptions, flag: str | None) -> list[str]:
    """What the process with the app is started with."""
    words = [sys.executable, "-m", "daybell", "dev", spec, "--host", options.host]
    words += ["--port", str(options.port), "--concurrency", str(options.concurrency)]
    words += ["--queues", options.queues] if options.queues else []
    words += ["--parent", str(os.getpid())]
    for name in options.allowed_hosts:
        words += ["--allowed-host", name]
    words += ["--prune"] if options.prune else []
    words += _allowed("command", options.allow_command)
    words += _allowed("private-http", options.allow_private_http)
    words += ["--allow-env", options.allow_env, "--pass-env", options.pass_env]
    words += ["--drain-timeout", f"{DRAIN_SECONDS:g}s"]
    words += [] if flag is None else ["--database-url", flag]
    return words


def _allowed(what: str, said: bool | None) -> list[str]:
    return [] if said is None else [f"--{'' if said else 'no-'}allow-{what}"]


class Changes:
    """Hears of changed code; `child` is the process that runs it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._names: set[str] = set()
        self._heard = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.child: Process | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        self._over.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def wait(self) -> None:
        await self._heard.wait()

    @property
    def is_heard(self) -> bool:
        return self._heard.is_set()

    def take(self) -> str:
        """What has changed since the last time, in words."""
        self._heard.clear()
        names, self._names = sorted(self._names), set()
        return printable(listed(names, most=NAMED_MAX))

    async def _watch(self) -> None:
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

        try:
            async for found in awatch(
                *self._folders,
                watch_filter=lambda _, path: is_code(Path(path), self._folders),
                debounce=DEBOUNCE_MS,
                step=QUIET_MS,
                stop_event=self._over,
            ):
                self._names |= {Path(path).name for _, path in found}
                self._heard.set()
        except Exception as error:
            # Such as too many folders for this machine's limit: then a person has to restart.
            complain(f"error: changes are not heard of: {error}; WATCHFILES_FORCE_POLLING=1 helps")


async def _run(command: Sequence[str], changes: Changes, stop: Stop) -> None:
    while not stop.is_requested:
        child = changes.child = await asyncio.create_subprocess_exec(
            # A session of its own: a terminal's Ctrl-C reaches only us, who pass it on once.
            *command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip
        ended = asyncio.ensure_future(child.wait())
        await first_of(asyncio.shield(ended), stop.wait(), changes.wait())
        if not ended.done():
            if changes.is_heard and not stop.is_requested:
                _say(f"reloading: {changes.take()} changed")
            await _end(child, ended)
            continue
        if not stop.is_requested and not changes.is_heard:
            _say(f"ended with exit code {ended.result()}; waiting for a change")
            await first_of(stop.wait(), changes.wait())
        if changes.is_heard and not stop.is_requested:
            _say(f"reloading: {changes.take()} changed")


async def _end(child: Process, ended: asyncio.Future[int]) -> None:
    """Ask a process to end, and see to it that it does."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    done, _ = await asyncio.wait([ended], timeout=DRAIN_SECONDS + GOODBYE_SECONDS)
    if not done:
        _say("it does not end in time and is killed")
        _kill(child)
        await ended


def _kill(child: Process | None) -> None:
    if child is not None and child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def is_code(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a change of this file is a change of the app's code."""
    if path.suffix != ".py" and path.name != "daybell.toml":
        return False
    for folder in folders:
        if path.is_relative_to(folder):
            return not any(map(_is_foreign, _between(folder, path)))
    return False


def _between(folder: Path, path: Path) -> list[Path]:
    """The folders below this one that lead to a file."""
    return [one for one in path.parents if one != folder and one.is_relative_to(folder)]


def _is_foreign(folder: Path) -> bool:
    name = folder.name
    return name in IGNORED or name.startswith(".") or (folder / "pyvenv.cfg").is_file()


def source_folders(spec: str) -> list[Path]:
    """Where the code of an app is, without importing it: here, and where its package is."""
    place = spec.partition(":")[0]
    here = Path.cwd().resolve()
    if place.endswith(".py") or "/" in place:
        folder = Path(place).resolve().parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        return _apart([folder])
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    found = importlib.util.find_spec(place.partition(".")[0])
    if found is None or found.origin is None:
        return [here]
    # A package that is installed from elsewhere is watched; what lies beside it is not ours.
    own = Path(found.origin).resolve().parent
    return _apart([here, own])


def _apart(folders: Sequence[Path]) -> list[Path]:
    """Without those that lie in another one."""
    return [
        one
        for one in dict.fromkeys(folders)
        if not any(other != one and one.is_relative_to(other) for other in folders)
    ]


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()
