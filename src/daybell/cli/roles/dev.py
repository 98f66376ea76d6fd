"""`daybell dev`: worker, scheduler and API in one process, with reload on code changes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import typer

from daybell import __version__
from daybell.cli import output, runtime
from daybell.cli.actions.definitions import is_private_store, restore_superseded
from daybell.cli.apps import (
    connect_app,
    find_app,
    list_sample,
    report_removed_jobs,
    run_hooks,
    select_queues,
    warn_about_app,
)
from daybell.cli.output import printable
from daybell.cli.roles import logs
from daybell.cli.roles.narration import Narrator
from daybell.cli.roles.startup import (
    describe_names,
    is_everywhere,
    make_upkeep,
    read_kind_options,
    warn_task_mismatch,
)
from daybell.cli.runtime import DONE, print_stderr, run_command, with_flag
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.client.admin import login_link
from daybell.core.access import LOGIN_SECONDS
from daybell.core.ids import mint, mint_many
from daybell.core.units import Seconds
from daybell.engine.claim import Queues
from daybell.engine.events import observe_run_ends
from daybell.engine.files import FileWatcher, read_root
from daybell.engine.lease import make_pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.metrics import Meter
from daybell.engine.scheduler import Scheduler
from daybell.engine.upkeep import Process
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import UsageError, listed
from daybell.runners.python import wait_for_first
from daybell.sdk.app import App
from daybell.sdk.worker import has_near
from daybell.settings import Settings, masked_url

DRAIN_SECONDS: Final = 10.0  # a person is waiting


@dataclass(frozen=True, kw_only=True, repr=False)
class DemoSettings(Settings):
    """Settings of the demo. It uses a file of its own, unless a store is given: its jobs have names
    that a newcomer's first app may have, too."""

    database_url: str = "sqlite:///demo.db"


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `daybell dev`."""

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    has_dashboard: bool = True
    concurrency: int = 100
    queues: str = ""
    has_app: bool = True  # False: only jobs without code are run
    is_demo: bool = False
    drain_timeout: Seconds = DRAIN_SECONDS
    parent: int | None = None  # the process to end with
    prune: bool = False  # remove jobs that have left the code
    allow_command: bool | None = None  # None: if only this machine has access
    allow_private_http: bool | None = None  # likewise
    allow_env: str = ""
    pass_env: str = ""
    watch_roots: tuple[str, ...] = ()


async def dev(
    settings: Settings, *, spec: str | None, demo: bool, flag: str | None, options: DevOptions
) -> int:
    """Find the app, and run it until Ctrl-C."""
    if demo and spec is not None:
        raise UsageError(f"--demo brings its own app; leave out {spec!r} or --demo")
    logs.configure(settings, level=logging.INFO)
    if demo:
        flag = flag or DemoSettings.load().database_url
        options = msgspec.structs.replace(options, is_demo=True)
    options = msgspec.structs.replace(options, has_app=demo or bool(spec or settings.app))
    with _uncached_code(is_reloaded=options.parent is not None):
        app = find_app("daybell.demo:app" if demo else spec, settings, flag=flag)
    if settings.api_url is not None:
        place = masked_url(settings.api_url)
        print_stderr(
            f"note: DAYBELL_API_URL is set, so other commands ask {place} and not this store"
        )
    return await run_all(settings, app=app, options=options)


@contextlib.contextmanager
def _uncached_code(*, is_reloaded: bool) -> Generator[None]:
    """Import code without writing bytecode if it may be edited within a second.

    Python compares bytecode with its source by size and whole seconds: an edit right after a start
    that keeps the size would run the old code.
    """
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = before or is_reloaded
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def run_app(app: App) -> None:
    """Run `app.run()`, which is `daybell dev` for this app. Returns after Ctrl-C."""
    logs.configure(Settings.load(), level=logging.INFO)
    app.load_included()
    run_command(partial(run_all, app=app, options=DevOptions()), {})


async def run_all(settings: Settings, *, app: App, options: DevOptions) -> int:
    """Run worker, scheduler, upkeep and API for one app, until an end is requested."""
    code = DONE
    # The leader's identity is no news where everything is in one process.
    logging.getLogger("daybell.leader").setLevel(logging.WARNING)
    with StopSignals() as stop:
        if options.parent is not None:
            stop.hear_parent(options.parent)
        try:
            await _run(settings, app, options, stop)
        except StartInterrupted:
            code = stop.code
    _echo("stopped")
    return code


async def _run(settings: Settings, app: App, options: DevOptions, stop: StopSignals) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    warn_about_app(app, select_queues(app, options.queues), has_app=options.has_app)
    allow_kinds(app, settings, options)
    async with AsyncExitStack() as stack:
        with stop.heeding():
            store = await stack.enter_async_context(connect_app(app, migrate=True))
            await restore_superseded(app, go_back=is_private_store(app.url))
            await report_removed_jobs(app, prune=options.prune)
            meter = Meter(clock)
            app.events.observe(meter, only_trouble=True)
            url = await stack.enter_async_context(serve_api(app, options, meter))
            meter.loop.start()
            stack.push_async_callback(meter.loop.stop)
            metered = meter.metered(store)
            level = logs.level_of(settings)
            app.observe(Narrator(clock, on_gone=stop.request, level=level))
            await stack.enter_async_context(observe_run_ends(store, events=app.events, clock=clock))
            how = _worker_options(settings, app, options)
            await warn_task_mismatch(store, how)
            worker = Worker(
                metered,
                app.handlers,
                how,
                clock=clock,
                mint=mint,
                events=app.events,
                pacemaker=make_pacemaker(
                    app.url,
                    clock,
                    lease=settings.lease,
                    tenant=app.tenant,
                    wrap=meter.metered,
                ),
            )
            meter.watch_slots(lambda: len(worker.executor), how.concurrency)
            upkeep = make_upkeep(metered, settings, clock=clock, events=app.events)
            scheduler = Scheduler(
                metered, clock=clock, mint=mint, events=app.events, mint_many=mint_many
            )
            roots = [read_root(one, tenant=app.tenant) for one in options.watch_roots]
            watchers = [FileWatcher(metered, one, clock=clock) for one in roots]
            node = Process(workers=[worker], upkeep=upkeep, scheduler=scheduler, watchers=watchers)
            await stack.enter_async_context(run_hooks(app, settings))
            await node.start()
            stack.push_async_callback(node.stop)
        page = await dashboard_address(app, options, url)
        _announce(app, options, how.kinds, (url, page), clock.monotonic() - began)
        await wait_for_first(stop.wait(), worker.is_draining.wait())
        _say_stopping(worker, options)


@asynccontextmanager
async def serve_api(app: App, options: DevOptions, meter: Meter) -> AsyncGenerator[str]:
    """Serve the API, and yield its address. On loopback, the user that starts it needs no key."""
    # Modules that only this function needs take longer to import than all the rest.
    from daybell.api.caller import ApiOptions
    from daybell.api.server import ApiService, ServerOptions
    from daybell.cli.roles.server import key_usage_loop, require_key

    clock, client = SystemClock(), await app.open()
    is_open = _is_loopback(options.host)
    front = ApiService(
        client,
        options=ServerOptions(
            host=options.host, port=options.port, has_dashboard=options.has_dashboard
        ),
        api=ApiOptions(open_tenant=app.tenant if is_open else None, open_uid=os.geteuid()),
        monotonic=clock.monotonic,
        ask=client.check_ready,
        allowed_hosts=options.allowed_hosts,
        own_readings=meter.readings,
    )
    telling = key_usage_loop(front, clock)
    try:
        front.bind()
        if not is_open:
            await require_key(client, host=options.host, flag=app.url)
        await front.start()
        telling.start()
        yield front.url
    finally:
        await telling.stop()
        await front.stop()


def allow_kinds(app: App, settings: Settings, options: DevOptions) -> None:
    """Allow commands on loopback: the user that may define them could run them anyway."""
    is_own = _is_loopback(options.host)
    command, private = options.allow_command, options.allow_private_http
    app.handlers.kind_options = read_kind_options(
        settings,
        tasks=options.has_app,
        allow_command=is_own if command is None else command,
        allow_private_http=is_own if private is None else private,
        allow_env=options.allow_env,
        pass_env=options.pass_env,
        store_url=app.url,
    )


def _worker_options(settings: Settings, app: App, options: DevOptions) -> WorkerOptions:
    return WorkerOptions(
        name=f"dev@{socket.gethostname()}",
        tenant=app.tenant,
        queues=select_queues(app, options.queues),
        kinds=app.handlers.kinds,
        concurrency=options.concurrency,
        lease=settings.lease,
        drain_timeout=options.drain_timeout,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        tasks=app.handlers.tasks,
        has_near=has_near(app),
    )


async def dashboard_address(app: App, options: DevOptions, url: str) -> str:
    """Return the address of the dashboard; if a key is needed, a link that logs a browser in."""
    if _is_loopback(options.host):
        return f"{url}/"
    client = await app.open()
    made = await client.create_login(created_by="dev")
    return f"{login_link(url, made.token)} (works once, for {LOGIN_SECONDS / 60:.0f} min)"


def _announce(
    app: App,
    options: DevOptions,
    kinds: Sequence[str],
    addresses: tuple[str, str],
    took: float,
) -> None:
    url, page = addresses
    queues = select_queues(app, options.queues)
    lines = {
        "store": masked_url(app.url),
        "queues": f"{list_sample(Queues.parse(queues).names)}; {options.concurrency} at a time",
        "tasks": list_sample(app.tasks) or "none",
        **({"flows": _flows(app, is_demo=options.is_demo)} if app.workflows else {}),
        "kinds": describe_kinds(kinds, host=options.host),
        **({"page": page} if options.has_dashboard else {}),
        "api": f"{url}/api/v1, described at {url}/docs",
        "health": f"{url}/healthz and {url}/readyz",
    }
    if is_everywhere(options.host):
        lines["names"] = describe_names(options.allowed_hosts)
    _echo(f"Daybell {__version__} is up after {output.format_duration(took)}; Ctrl-C stops it")
    for name, line in lines.items():
        _echo(f"  {name:<7} {output.printable(line)}")
    if options.is_demo:
        for look in (
            "executions list",
            *(f"executions list --job {one} --nodes" for one in app.workflows),
        ):
            _echo(f"  look    {output.printable(with_flag(f'daybell {look}', app.url))}")


def _flows(app: App, *, is_demo: bool) -> str:
    """Name the app's workflows; in the demo, also explain the lines about their nodes."""
    named = list_sample(app.workflows)
    return f'{named}; "orders, convert[1]" is item 1 of its node convert' if is_demo else named


def describe_kinds(kinds: Sequence[str], *, host: str) -> str:
    """Name the kinds of jobs that run here, and the users that may define commands."""
    said = ", ".join(kinds)
    if "command" not in kinds or not _is_loopback(host):
        return said
    return f"{said}; only you may define jobs, on this machine (--no-allow-command)"


def _say_stopping(worker: Worker, options: DevOptions) -> None:
    running = len(worker.executor)
    wait = (
        f"waiting up to {options.drain_timeout:.0f} s for"
        f" {output.format_count(running, 'execution')}"
    )
    _echo(f"stopping: {wait}; once more ends it at once" if running else "stopping")


def _echo(line: str) -> None:
    if runtime.spoken is not None:
        runtime.spoken.info("%s", " ".join(line.split()))
        return
    typer.echo(line)
    sys.stdout.flush()  # a reader of a pipe wants it now


# `daybell dev --reload`: a process that stays, and one with the app that is started afresh whenever
# the app's code has changed.
#
# The app is never imported here. The process that imports the app shows its errors, and the next
# change tries again.

CHILD_DRAIN_SECONDS: Final[Seconds] = (
    3.0  # a person waits, and a released execution runs again at once
)
GOODBYE_SECONDS: Final[Seconds] = 5.0
DEBOUNCE_MS: Final = 400  # an editor writes several files, and some more than once
QUIET_MS: Final = 100
IGNORED: Final = frozenset(
    {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
)
NAMED_MAX: Final = 3

ChildProcess = asyncio.subprocess.Process


async def run_with_reload(
    settings: Settings, *, spec: str | None, demo: bool, flag: str | None, options: DevOptions
) -> int:
    """Run `daybell dev` until Ctrl-C, again with every change of the app's code."""
    spec = spec or settings.app
    if demo:
        raise UsageError("--demo brings an app that does not change; leave out --reload")
    if spec is None:
        raise UsageError("say which app to run and watch: module:app, or path/to/file.py")
    words = child_command(spec, options, flag)
    folders = source_folders(spec)
    _say(f"watching {printable(', '.join(map(str, folders)))}")
    changes = Changes(folders)
    with StopSignals(on_second=lambda: _kill(changes.child)) as stop:
        changes.start()
        try:
            await _run_child(words, changes, stop)
        finally:
            _kill(changes.child)
            await changes.close()
    return DONE


def child_command(spec: str, options: DevOptions, flag: str | None) -> list[str]:
    """Return the command line of the process with the app."""
    words = [sys.executable, "-m", "daybell", "dev", spec, "--host", options.host]
    words += ["--port", str(options.port), "--concurrency", str(options.concurrency)]
    words += ["--queues", options.queues] if options.queues else []
    words += ["--parent", str(os.getpid())]
    for root in options.watch_roots:
        words += ["--watch-root", root]
    for name in options.allowed_hosts:
        words += ["--allowed-host", name]
    words += [] if options.has_dashboard else ["--no-dashboard"]
    words += ["--prune"] if options.prune else []
    words += _allowed("command", options.allow_command)
    words += _allowed("private-http", options.allow_private_http)
    words += ["--allow-env", options.allow_env, "--pass-env", options.pass_env]
    words += ["--drain-timeout", f"{CHILD_DRAIN_SECONDS:g}s"]
    words += [] if flag is None else ["--database-url", flag]
    return words


def _allowed(what: str, said: bool | None) -> list[str]:
    return [] if said is None else [f"--{'' if said else 'no-'}allow-{what}"]


class Changes:
    """Watches for changed code; `child` is the process that runs it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._names: set[str] = set()
        self._heard = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.child: ChildProcess | None = None

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
        """Describe the changes since the last call."""
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
            print_stderr(
                f"error: changes are not heard of: {error}; WATCHFILES_FORCE_POLLING=1 helps"
            )


async def _run_child(command: Sequence[str], changes: Changes, stop: StopSignals) -> None:
    while not stop.is_requested:
        child = changes.child = await asyncio.create_subprocess_exec(
            # A session of its own: a terminal's Ctrl-C reaches only us; we pass it on once.
            *command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip
        ended = asyncio.ensure_future(child.wait())
        await wait_for_first(asyncio.shield(ended), stop.wait(), changes.wait())
        if not ended.done():
            if changes.is_heard and not stop.is_requested:
                _say(f"reloading: {changes.take()} changed")
            await _end(child, ended)
            continue
        if not stop.is_requested and not changes.is_heard:
            _say(f"ended with exit code {ended.result()}; waiting for a change")
            await wait_for_first(stop.wait(), changes.wait())
        if changes.is_heard and not stop.is_requested:
            _say(f"reloading: {changes.take()} changed")


async def _end(child: ChildProcess, ended: asyncio.Future[int]) -> None:
    """Ask a process to end, and ensure that it does."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    done, _ = await asyncio.wait([ended], timeout=CHILD_DRAIN_SECONDS + GOODBYE_SECONDS)
    if not done:
        _say("it does not end in time and is killed")
        _kill(child)
        await ended


def _kill(child: ChildProcess | None) -> None:
    if child is not None and child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def is_code(path: Path, folders: Iterable[Path]) -> bool:
    """Return true if a change of this file is a change of the app's code."""
    if path.suffix != ".py" and path.name != "daybell.toml":
        return False
    for folder in folders:
        if path.is_relative_to(folder):
            return not any(map(_is_foreign, _between(folder, path)))
    return False


def _between(folder: Path, path: Path) -> list[Path]:
    """Return the folders below this one that lead to a file."""
    return [one for one in path.parents if one != folder and one.is_relative_to(folder)]


def _is_foreign(folder: Path) -> bool:
    name = folder.name
    return name in IGNORED or name.startswith(".") or (folder / "pyvenv.cfg").is_file()


def source_folders(spec: str) -> list[Path]:
    """Return the folders of an app's code, without importing it: here, and that of its package."""
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
    # A package that is installed from elsewhere is watched; files beside it are not ours.
    own = Path(found.origin).resolve().parent
    return _apart([here, own])


def _apart(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without those that lie in another one."""
    return [
        one
        for one in dict.fromkeys(folders)
        if not any(other != one and one.is_relative_to(other) for other in folders)
    ]


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()


def _is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host."""
    from daybell.api.server import is_loopback

    return is_loopback(host)
