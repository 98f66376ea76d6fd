"""`daybell dev`: everything on this machine, in one process."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import typer

from daybell import __version__
from daybell.cli import edge, logs, show
from daybell.cli.allowing import kind_options
from daybell.cli.apps import alive, connected, find_app, queues_of, sample, settle_gone, warn
from daybell.cli.edge import DONE, complain, run_command, with_flag
from daybell.cli.going_back import is_own, settle_superseded
from daybell.cli.names import is_everywhere, told
from daybell.cli.narration import Narrator
from daybell.cli.others import tell_of_others
from daybell.cli.stopping import BrokenOff, Stop
from daybell.core.instant import Seconds
from daybell.engine.clock import SystemClock
from daybell.engine.node import Node, Upkeep
from daybell.engine.pacemaker import pacemaker_of
from daybell.engine.queues import Queues
from daybell.engine.run_ends import told_run_ends
from daybell.engine.scheduler import Scheduler
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import UsageError
from daybell.runners.waiting import first_of
from daybell.sdk.app import App
from daybell.settings import Settings, masked_url
from daybell.store.ids import mint

DRAIN_SECONDS: Final = 10.0  # a person is waiting


@dataclass(frozen=True, kw_only=True, repr=False)
class DemoSettings(Settings):
    """The demo keeps to a file of its own, unless it is told otherwise: its jobs have names that
    a newcomer's first app may have, too."""

    database_url: str = "sqlite:///demo.db"


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `daybell dev` can be told."""

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    concurrency: int = 100
    queues: str = ""
    has_app: bool = True  # False: only jobs without code are run
    is_demo: bool = False
    drain_timeout: Seconds = DRAIN_SECONDS
    parent: int | None = None  # the process to end with
    prune: bool = False  # remove jobs that have left the code
    allow_command: bool | None = None  # None: if nobody gets in but from this machine
    allow_private_http: bool | None = None  # likewise
    allow_env: str = ""
    pass_env: str = ""


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
    app = find_app("daybell.demo:app" if demo else spec, settings, flag=flag)
    if settings.api_url is not None:
        place = masked_url(settings.api_url)
        complain(f"note: DAYBELL_API_URL is set, so other commands ask {place} and not this store")
    return await run_all(settings, app=app, options=options)


def run_app(app: App) -> None:
    """What `app.run()` does: `daybell dev` for this app. Returns after Ctrl-C."""
    logs.configure(Settings.load(), level=logging.INFO)
    app.load_included()
    run_command(partial(run_all, app=app, options=DevOptions()), {})


async def run_all(settings: Settings, *, app: App, options: DevOptions) -> int:
    """Worker, scheduler, upkeep and API for one app, until somebody wants an end."""
    code = DONE
    # Who leads is no news where everything is in one process.
    logging.getLogger("daybell.leader").setLevel(logging.WARNING)
    with Stop() as stop:
        if options.parent is not None:
            stop.hear_parent(options.parent)
        try:
            await _run(settings, app, options, stop)
        except BrokenOff:
            code = stop.code
    _echo("stopped")
    return code


async def _run(settings: Settings, app: App, options: DevOptions, stop: Stop) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    warn(app, queues_of(app, options.queues), has_app=options.has_app)
    allow(app, settings, options)
    async with AsyncExitStack() as stack:
        with stop.heeding():
            store = await stack.enter_async_context(connected(app, migrate=True))
            await settle_superseded(app, go_back=is_own(app.url))
            await settle_gone(app, prune=options.prune)
            url = await stack.enter_async_context(served(app, options))
            level = logs.level_of(settings)
            app.observe(Narrator(clock, on_gone=stop.request, level=level))
            await stack.enter_async_context(told_run_ends(store, events=app.events, clock=clock))
            how = _worker_options(settings, app, options)
            await tell_of_others(store, how)
            worker = Worker(
                store,
                app.handlers,
                how,
                clock=clock,
                mint=mint,
                events=app.events,
                pacemaker=pacemaker_of(app.url, clock, lease=settings.lease, tenant=app.tenant),
            )
            upkeep = Upkeep(store, clock=clock, mint=mint, events=app.events, lease=settings.lease)
            scheduler = Scheduler(store, clock=clock, mint=mint, events=app.events)
            node = Node(workers=[worker], upkeep=upkeep, scheduler=scheduler)
            await stack.enter_async_context(alive(app, settings))
            await node.start()
            stack.push_async_callback(node.stop)
        _announce(app, options, how.kinds, url, clock.monotonic() - began)
        await first_of(stop.wait(), worker.is_draining.wait())
        _say_stopping(worker, options)


@asynccontextmanager
async def served(app: App, options: DevOptions) -> AsyncGenerator[str]:
    """Serve the API, and yield its address. On loopback, the user that starts it needs no key."""
    # What only this needs takes longer to import than all the rest.
    from daybell.api.front import Front
    from daybell.api.listening import is_loopback
    from daybell.api.options import ApiOptions
    from daybell.api.server import ServerOptions
    from daybell.cli.serving import demand_key, tell_loop

    clock, client = SystemClock(), await app.open()
    is_open = is_loopback(options.host)
    front = Front(
        client,
        options=ServerOptions(host=options.host, port=options.port),
        api=ApiOptions(open_tenant=app.tenant if is_open else None, open_uid=os.geteuid()),
        monotonic=clock.monotonic,
        ask=client.check_ready,
        allowed_hosts=options.allowed_hosts,
    )
    telling = tell_loop(front, clock)
    try:
        front.bind()
        if not is_open:
            await demand_key(client, host=options.host, flag=app.url)
        await front.start()
        telling.start()
        yield front.url
    finally:
        await telling.stop()
        await front.stop()


def allow(app: App, settings: Settings, options: DevOptions) -> None:
    """Allow commands on loopback: the user that may define them could run them anyway."""
    from daybell.api.listening import is_loopback

    is_own = is_loopback(options.host)
    command, private = options.allow_command, options.allow_private_http
    app.handlers.kind_options = kind_options(
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
        queues=queues_of(app, options.queues),
        kinds=app.handlers.kinds,
        concurrency=options.concurrency,
        lease=settings.lease,
        drain_timeout=options.drain_timeout,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        tasks=app.handlers.tasks,
    )


def _announce(app: App, options: DevOptions, kinds: Sequence[str], url: str, took: float) -> None:
    queues = queues_of(app, options.queues)
    lines = {
        "store": masked_url(app.url),
        "queues": f"{sample(Queues.parse(queues).names)}; {options.concurrency} at a time",
        "tasks": sample(app.tasks) or "none",
        **({"flows": _flows(app, is_demo=options.is_demo)} if app.workflows else {}),
        "kinds": offered(kinds, host=options.host),
        "api": f"{url}/api/v1, described at {url}/docs",
        "health": f"{url}/healthz and {url}/readyz",
    }
    if is_everywhere(options.host):
        lines["names"] = told(options.allowed_hosts)
    _echo(f"Daybell {__version__} is up after {show.length(took)}; Ctrl-C stops it")
    for name, line in lines.items():
        _echo(f"  {name:<7} {show.printable(line)}")
    if options.is_demo:
        for look in (
            "executions list",
            *(f"executions list --job {one} --nodes" for one in app.workflows),
        ):
            _echo(f"  look    {show.printable(with_flag(f'daybell {look}', app.url))}")


def _flows(app: App, *, is_demo: bool) -> str:
    """The app's workflows; in the demo also what lines about their nodes mean."""
    named = sample(app.workflows)
    return f'{named}; "orders, convert[1]" is item 1 of its node convert' if is_demo else named


def offered(kinds: Sequence[str], *, host: str) -> str:
    """The kinds of jobs that are run, and whose commands may be among them."""
    from daybell.api.listening import is_loopback

    said = ", ".join(kinds)
    if "command" not in kinds or not is_loopback(host):
        return said
    return f"{said}; only you may define jobs, on this machine (--no-allow-command)"


def _say_stopping(worker: Worker, options: DevOptions) -> None:
    running = len(worker.executor)
    wait = f"waiting up to {options.drain_timeout:.0f} s for {show.count(running, 'execution')}"
    _echo(f"stopping: {wait}; once more ends it at once" if running else "stopping")


def _echo(line: str) -> None:
    if edge.spoken is not None:
        edge.spoken.info("%s", " ".join(line.split()))
        return
    typer.echo(line)
    sys.stdout.flush()  # whoever reads through a pipe wants it now
