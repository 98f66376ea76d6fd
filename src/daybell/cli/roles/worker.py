"""`daybell worker` and `daybell scheduler`: one process, or a supervisor of several."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final, NoReturn
from uuid import UUID

import msgspec

from daybell import __version__
from daybell.cli import output
from daybell.cli.actions.definitions import restore_superseded
from daybell.cli.apps import (
    connect_app,
    find_app,
    list_sample,
    report_removed_jobs,
    run_hooks,
    select_queues,
    warn_about_app,
)
from daybell.cli.roles import logs
from daybell.cli.roles.narration import Narrator
from daybell.cli.roles.startup import (
    make_upkeep,
    read_kind_options,
    retire_dead_workers,
    tune_garbage_collector,
    wait_for_store,
    warn_task_mismatch,
)
from daybell.cli.runtime import DONE, is_remote, use_server
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.client.leases.store import RemoteStore
from daybell.core.ids import mint, mint_many
from daybell.core.job import DEFAULT_TENANT
from daybell.core.limits import check_labels, check_name
from daybell.core.placement import parse_amounts
from daybell.core.units import Seconds, parse_duration
from daybell.core.worker import SHARED
from daybell.engine.claim import Queues
from daybell.engine.events import Events, observe_run_ends
from daybell.engine.files import FileWatcher, read_root
from daybell.engine.lease import make_pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.metrics import Meter
from daybell.engine.scheduler import Scheduler
from daybell.engine.supervisor import DRAINED, Announce, Supervisor, open_announcer
from daybell.engine.upkeep import Process, Upkeep
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import DaybellError, Unavailable, UsageError, shown
from daybell.runners.processes import PoolOptions
from daybell.runners.python import wait_for_first
from daybell.sdk.app import App
from daybell.sdk.worker import fit_options, has_near
from daybell.settings import Settings, masked_url
from daybell.store.open import check_pooler, store_for
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.cli")

# The time that a process may take to end beyond its drain timeout.
GOODBYE_SECONDS: Final = 10.0
_STARTED_IN: Final = os.getcwd()  # the folder that typed paths are relative to; tasks may move


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `daybell worker`."""

    spec: str | None = None
    flag: str | None = None
    queues: str = ""
    concurrency: int = 100
    processes: int = 1
    children: int | None = None
    max_jobs_per_process: int | None = None
    tenant: str | None = None
    tenants: str | None = None
    labels: str = ""
    resources: str = ""
    drain_timeout: str = "30s"
    name: str | None = None
    parent: int | None = None
    prune: bool = False
    allow_command: bool = False
    allow_private_http: bool = False
    allow_env: str = ""
    pass_env: str = ""
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


async def run_worker(settings: Settings, *, request: WorkerRequest) -> int:
    """Run the executions of an app, in this process or in several."""
    logs.configure(settings, who=process_label(request))
    # Check all that may be wrong with the words typed before any process is started.
    app = find_app(request.spec, settings, flag=request.flag)
    if is_remote(settings, url=app.url):
        app.remote = connect_server(settings, request)
    _limit_runs(app, request)
    app.handlers.kind_options = read_kind_options(
        settings,
        tasks=bool(request.spec or settings.app),
        allow_command=request.allow_command,
        allow_private_http=request.allow_private_http,
        allow_env=request.allow_env,
        pass_env=request.pass_env,
        store_url=app.url,
    )
    options = worker_options(app, settings, request)
    if request.processes > 1 and options.resources:
        raise UsageError(
            "--resources are those of one process; start several workers, each with its own part"
        )
    if request.parent is None:
        warn_about_app(app, options.queues, has_app=bool(request.spec or settings.app))
    if request.processes > 1:
        return await _supervise(app, request, settings, options)
    announce = None if request.parent is None else open_announcer(os.environ)
    with StopSignals() as stop:
        if request.parent is not None:
            stop.hear_parent(request.parent)
        try:
            narrator = Narrator(
                SystemClock(),
                quiet=True,
                out=sys.stderr,
                who=process_label(request),
                level=logs.level_of(settings),
            )
            app.events.observe(narrator, only_trouble=True)
            is_alone = request.parent is None and app.remote is None
            prune = request.prune if is_alone else None
            is_worn_out = await _work(app, settings, options, stop, announce, request, prune=prune)
            ended, code = "stopped", DONE
        except StartInterrupted:
            is_worn_out, ended, code = False, "stopped before it was up", stop.code
    if is_worn_out:
        restart_process()
    logger.info(ended)
    if announce is not None:
        announce(DRAINED)  # any other end with exit code 0 is a task's doing
    return code


POLL_SECONDS: Final = 30.0  # of a worker that waits at a server


def connect_server(settings: Settings, request: WorkerRequest) -> RemoteStore:
    """Return the server that a worker without a database works for."""
    use_server()
    if request.prune:
        raise UsageError("--prune changes jobs in the database, which this worker does not reach")
    if request.resources:
        raise UsageError(
            "--resources are for a worker beside the database: one over HTTP takes no executions"
            " that demand labels or resources"
        )
    if request.tenants is not None:
        raise UsageError(
            "--tenants is for a worker beside the database: over HTTP, the key decides for which"
            " tenant a worker works; start one for each tenant, each with its key"
        )
    assert settings.api_url is not None
    # Of this process and those that it starts: tasks do not find a database by chance.
    os.environ["DAYBELL_API_URL"] = os.environ["DAYBELL_DATABASE_URL"] = settings.api_url
    if settings.api_key is not None:
        os.environ["DAYBELL_API_KEY"] = settings.api_key
    return RemoteStore(settings.api_url, key=settings.api_key, lease=settings.lease)


def process_label(request: WorkerRequest) -> str:
    """Return the name of a process among several for its lines; a single process needs none."""
    return request.name or "" if request.parent is not None else ""


def _limit_runs(app: App, request: WorkerRequest) -> None:
    runs_max = request.max_jobs_per_process
    app.handlers.runs_max = runs_max
    app.handlers.pool_options = PoolOptions(children=request.children, runs_max=runs_max)


def worker_options(app: App, settings: Settings, request: WorkerRequest) -> WorkerOptions:
    """Return the worker's options, as far as they were given."""
    if request.tenant is not None:
        app.tenant = check_name(request.tenant, what="tenant")
    tenants = None if request.tenants is None else read_tenants(request)
    app.is_shared = tenants is not None
    queues = select_queues(app, request.queues)
    Queues.parse(queues)
    options = WorkerOptions(
        name=check_name(request.name or socket.gethostname(), what="worker"),
        tenant=app.tenant if tenants is None else SHARED,
        tenants=tenants or (),
        queues=queues,
        kinds=app.handlers.kinds,
        concurrency=request.concurrency,
        lease=settings.lease,
        drain_timeout=parse_duration(request.drain_timeout, what="drain timeout"),
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        labels=read_labels(request.labels),
        resources=parse_amounts(request.resources),
        tasks=app.handlers.tasks,
        has_near=has_near(app),
    )
    if app.remote is not None:
        options = msgspec.structs.replace(options, poll=POLL_SECONDS)
    return fit_options(app, options)


def read_tenants(request: WorkerRequest) -> tuple[str, ...]:
    """Read `--tenants acme,bolt`; none are all: `--tenants '*'`."""
    text = request.tenants or ""
    if request.tenant is not None:
        raise UsageError("--tenant and --tenants are given: which tenants does the worker serve?")
    if request.prune:
        raise UsageError("--prune removes jobs of one tenant: start it with --tenant")
    names = [name for part in text.split(",") if (name := part.strip())]
    if names == [SHARED]:
        return ()
    if not names or SHARED in names:
        raise UsageError(f"--tenants {shown(text)}: write names, as in a,b; or '*' for all tenants")
    for name in names:
        check_name(name, what="tenant")
        if names.count(name) > 1:
            raise UsageError(f"tenant {shown(name)} is named twice in {shown(text)}")
    return tuple(names)


async def check_tenants(store: Store, options: WorkerOptions) -> None:
    """Raise TenantNotFound for a tenant of the command line that does not exist."""
    for name in options.tenants:
        await store.admin.get_tenant(name)


def read_labels(text: str) -> dict[str, str]:
    """Read `zone=eu,disk=ssd`."""
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key:
            raise UsageError(f"{shown(part)}: write labels as key=value,key=value")
        if key in labels:
            raise UsageError(f"label {shown(key)} is given twice in {shown(text)}")
        labels[key] = value
    return check_labels(labels)


async def _work(
    app: App,
    settings: Settings,
    options: WorkerOptions,
    stop: StopSignals,
    announce: Announce | None,
    request: WorkerRequest,
    *,
    prune: bool | None,
) -> bool:
    """Run a worker to its end; return true if another should take its place."""
    clock = SystemClock()
    meter = Meter(clock)
    remote = app.remote
    pacemaker = make_pacemaker(
        app.url,
        clock,
        lease=options.lease,
        tenant=options.tenant,
        make=None if remote is None else lambda: remote.again().as_store(),
        wrap=None if request.metrics_port is None else meter.metered,
    )
    async with AsyncExitStack() as stack:
        if pacemaker is not None and app.url.startswith("postgres"):  # a file may not be there yet
            stack.push_async_callback(pacemaker.close)
            pacemaker.open_ahead()
        store = await wait_for_store(
            lambda: stack.enter_async_context(connect_app(app)), app.url, stop
        )
        with stop.heeding():
            served = await _meter(stack, store, meter, request.metrics_host, request.metrics_port)
            worker = Worker(
                served,
                app.handlers,
                options,
                clock=clock,
                mint=mint if remote is None else remote.mint,
                events=app.events,
                pacemaker=pacemaker,
                on_stuck=restart_process,
                announce=announce,
                on_tenant=await _define_in_tenants(stack, app, store, options, clock),
            )
            meter.watch_slots(lambda: len(worker.executor), options.concurrency)
            upkeep = await _make_upkeep(stack, app, store, served, settings, clock)
            node = Process(workers=[worker], upkeep=upkeep)
            await stack.enter_async_context(run_hooks(app, settings))
            tune_garbage_collector()
            await node.start(patiently=True)
            stack.push_async_callback(node.stop)
            if prune is not None:  # not before, as nothing that is claimed depends on it
                await _try_compare_with_store(app, options, prune=prune)
            await _warn_of_pooler(app, store)
            stack.callback(asyncio.create_task(_say_started(worker, app, options)).cancel)
        worn_out = wait_until_worn(worker, app.handlers.is_worn)
        await wait_for_first(stop.wait(), worker.is_draining.wait(), worn_out)
        if not stop.is_requested and not worker.is_draining.is_set():
            return True
        _say_stopping(len(worker.executor), options.drain_timeout, stop)
        return False


async def _define_in_tenants(
    stack: AsyncExitStack, app: App, store: Store, options: WorkerOptions, clock: SystemClock
) -> Callable[[str], None] | None:
    """Return a function that defines the app's jobs in a tenant soon, if the worker serves several.
    A failure concerns that tenant only.
    """
    if not app.is_shared:
        return None
    await check_tenants(store, options)
    wanted: asyncio.Queue[str] = asyncio.Queue()
    known = set[str]()

    def add(tenant: str) -> None:
        if tenant not in known:
            known.add(tenant)
            wanted.put_nowait(tenant)

    async def define() -> None:
        while True:
            tenant = await wanted.get()
            try:
                with app.declaring.quietly():
                    await app.define_for(tenant)
            except DaybellError as error:
                logger.warning("the jobs of the code are not defined in %s: %s", tenant, error)
                if isinstance(error, Unavailable):
                    wanted.put_nowait(tenant)
                    await clock.sleep(1.0)

    task = asyncio.get_running_loop().create_task(define())
    stack.callback(task.cancel)
    return add


async def _make_upkeep(
    stack: AsyncExitStack,
    app: App,
    store: Store,
    served: Store,
    settings: Settings,
    clock: SystemClock,
) -> Upkeep | None:
    """Return the upkeep of a worker with a database, and report the ends of runs."""
    if app.remote is not None:
        stack.push_async_callback(app.remote.close)
        return None
    await stack.enter_async_context(observe_run_ends(store, events=app.events, clock=clock))
    return make_upkeep(served, settings, clock=clock, events=app.events)


async def _say_started(worker: Worker, app: App, options: WorkerOptions) -> None:
    await worker.has_registered.wait()  # the server or the database may be away
    logger.info(
        "worker %s (%s) runs %s of %s%s in %s, %d at a time; kinds: %s",
        options.name,
        worker.id,
        list_sample(app.tasks) or "jobs without code",
        options.queues,
        _say_tenants(options),
        masked_url(app.url),
        options.concurrency,
        ", ".join(options.kinds),
    )


def _say_tenants(options: WorkerOptions) -> str:
    if options.tenant == SHARED:
        names = ", ".join(options.tenants)
        return f" of tenants {names}" if names else " of all tenants"
    return "" if options.tenant == DEFAULT_TENANT else f" of tenant {options.tenant}"


async def _meter(
    stack: AsyncExitStack, store: Store, meter: Meter, host: str, port: int | None
) -> Store:
    """Serve the metrics of this process, and count the operations of the store, if it has a port
    for that.
    """
    if port is None:
        return store
    # The server takes longer to import than all the rest.
    from daybell.cli.roles.metrics import serve_metrics

    await stack.enter_async_context(serve_metrics(meter, store, host=host, port=port))
    return meter.metered(store)


async def _warn_of_pooler(app: App, store: Store) -> None:
    if not app.url.startswith("postgres"):
        return
    for check in await check_pooler(store, is_worker=True):
        if not check.is_ok:
            logger.warning("%s; %s", check.found, check.advice)


def _say_stopping(running: int, seconds: Seconds, stop: StopSignals) -> None:
    why = "asked to stop" if stop.is_requested else "asked to drain"
    if not running:
        logger.info("%s; nothing runs", why)
        return
    verb = "runs" if running == 1 else "run"
    more = "; once more ends it at once" if stop.is_requested else ""
    logger.info(
        "%s; %s still %s: waiting up to %g s%s",
        why, output.format_count(running, "execution"), verb, seconds, more,
    )  # fmt: skip


async def wait_until_worn(worker: Worker, worn: asyncio.Event) -> None:
    """Wait until the process has run as many tasks as it may, and the last of them has ended.

    That is not hurried, unlike a stop: a task that takes longer than a process lives would be
    released over and over again.
    """
    await worn.wait()
    logger.info("has run its number of tasks; claims no more and starts afresh")
    worker.claim_no_more()
    await worker.executor.wait()


def restart_process() -> NoReturn:
    """Become a new process with the same id, so that no other process has to be told."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os.chdir(_STARTED_IN)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


async def _supervise(
    app: App, request: WorkerRequest, settings: Settings, options: WorkerOptions
) -> int:
    """Run several processes, and keep them running."""
    remote = app.remote
    is_server = remote is not None
    command = partial(child_command, request, settings, options, is_server=is_server)
    grace = options.drain_timeout + GOODBYE_SECONDS
    mourn = partial(retire_dead_workers, url=app.url, tenant=options.tenant, lease=options.lease)
    if remote is not None:
        mourn = partial(retire_remotely, remote)
    clock = SystemClock()
    supervisor = Supervisor(command, request.processes, clock=clock, grace=grace, on_death=mourn)
    with StopSignals(on_second=supervisor.kill) as stop:
        try:
            # An error of the store is reported once, not by each process.
            if remote is None:
                check = partial(_try, app, options, prune=request.prune)
                await wait_for_store(check, app.url, stop)
        except StartInterrupted:
            logger.info("stopped before it was up")
            return stop.code
        logger.info("running %d processes", request.processes)
        stopping = stop.on_request(supervisor.stop)
        try:
            return await supervisor.run()
        finally:
            stopping.cancel()


def child_command(
    request: WorkerRequest,
    settings: Settings,
    options: WorkerOptions,
    slot: int,
    *,
    is_server: bool = False,
) -> list[str]:
    """Return the command line of one of several processes. `is_server`: they work by way of the
    server in the environment.
    """
    words = [sys.executable, "-m", "daybell", "worker"]
    words += [spec] if (spec := request.spec or settings.app) else []
    words += ["--processes", "1", "--parent", str(os.getpid())]
    words += ["--name", f"{options.name}-{slot}", "--queues", options.queues]
    words += ["--concurrency", str(options.concurrency), "--labels", request.labels]
    words += ["--drain-timeout", request.drain_timeout]
    if request.tenants is not None:
        words += ["--tenants", request.tenants]
    else:
        words += ["--tenant", options.tenant]
    if request.children is not None:
        words += ["--children", str(request.children)]
    if request.max_jobs_per_process is not None:
        words += ["--max-jobs-per-process", str(request.max_jobs_per_process)]
    words += ["--allow-command"] if request.allow_command else []
    words += ["--allow-private-http"] if request.allow_private_http else []
    if request.metrics_port is not None:
        port = request.metrics_port + slot if request.metrics_port else 0
        words += ["--metrics-host", request.metrics_host, "--metrics-port", str(port)]
    words += ["--allow-env", request.allow_env, "--pass-env", request.pass_env]
    words += ["--api-url", os.environ["DAYBELL_API_URL"]] if is_server else []
    return words


async def retire_remotely(server: RemoteStore, workers: list[UUID]) -> None:
    """Declare workers dead whose process was seen to end; upkeep gives their executions to
    others.
    """
    try:
        for worker in workers:
            await server.queue.retire("", worker)
    except DaybellError as error:
        logger.warning("what ran waits for the lease to end: %s", error)
    finally:
        await server.close()


async def _try(app: App, options: WorkerOptions, *, prune: bool) -> None:
    async with connect_app(app):
        await _compare_with_store(app, options, prune=prune)


async def _try_compare_with_store(app: App, options: WorkerOptions, *, prune: bool) -> None:
    """Compare for a worker that runs already, and does not end because the store is away."""
    try:
        await _compare_with_store(app, options, prune=prune)
    except Unavailable as error:
        logger.warning("cannot compare the code with the store: %s", error)


async def _compare_with_store(app: App, options: WorkerOptions, *, prune: bool) -> None:
    """Report differences between the code and the store, once for all processes."""
    if options.tenant == SHARED:
        await check_tenants((await app.open()).store, options)
    else:
        await restore_superseded(app, go_back=False)
        await report_removed_jobs(app, prune=prune)
    await warn_task_mismatch((await app.open()).store, options)


async def _open(store: Store, url: str) -> None:
    """Open the store. A missing file is created and brought up to date, as by a worker."""
    if not url.startswith("postgres"):
        await store.migrate()
    await store.open()


async def run_scheduler(
    settings: Settings,
    *,
    metrics_host: str = "127.0.0.1",
    metrics_port: int | None = None,
    watch_roots: Sequence[str] = (),
) -> int:
    """Do the upkeep of the store until an end is requested."""
    logs.configure(settings)
    roots = [read_root(one, tenant=DEFAULT_TENANT) for one in watch_roots]
    pool_size, url = settings.pool_size, settings.database_url
    store = store_for(url, lease=settings.lease, pool_size=pool_size)
    clock, events = SystemClock(), Events()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        with StopSignals() as stop:
            try:
                await wait_for_store(partial(_open, store, url), url, stop)
            except StartInterrupted:
                logger.info("stopped before it was up")
                return stop.code
            meter = Meter(clock)
            if metrics_port is not None:
                events.observe(meter, only_trouble=True)
            served = await _meter(stack, store, meter, metrics_host, metrics_port)
            upkeep = make_upkeep(served, settings, clock=clock, events=events)
            level = logs.level_of(settings)
            narrator = Narrator(clock, quiet=True, out=sys.stderr, level=level)
            events.observe(narrator, only_trouble=True)
            scheduler = Scheduler(
                served, clock=clock, mint=mint, events=events, mint_many=mint_many
            )
            watchers = [FileWatcher(served, one, clock=clock) for one in roots]
            node = Process(upkeep=upkeep, scheduler=scheduler, watchers=watchers)
            await node.start()
            logger.info("looking after %s", masked_url(settings.database_url))
            try:
                await stop.wait()
            finally:
                await node.stop()
    logger.info("stopped")
    return DONE
