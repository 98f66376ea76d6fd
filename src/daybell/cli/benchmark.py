"""The measurement of `daybell bench`: enqueue jobs, then let a worker run all of them."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import repeat
from typing import Any, Final

import msgspec

from daybell.cli import output
from daybell.cli.roles import logs
from daybell.cli.runtime import DONE, FAILED, with_flag
from daybell.cli.terminal import StartInterrupted, StopSignals
from daybell.client import Client
from daybell.core.ids import mint
from daybell.core.limits import ENQUEUE_BATCH_MAX
from daybell.engine.events import Ended
from daybell.engine.loop import Clock, SystemClock
from daybell.engine.worker import Worker, WorkerOptions
from daybell.errors import Conflict, DaybellError, SchemaError
from daybell.sdk.app import App
from daybell.settings import Settings, masked_url

TENANT: Final = "daybell-bench"
QUEUE: Final = "daybell-bench"
JOB: Final = "daybell-bench"
NO_ARGUMENTS: Final[dict[str, Any]] = {}


class LeftoverWork(DaybellError):
    """The store holds executions that another measurement has enqueued."""

    code = "leftover-work"
    remedy = "Purge the queue of the benchmark, as the message says."


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a measurement."""

    jobs: int
    finished: int
    enqueue_seconds: float
    run_seconds: float
    left_behind: str

    @property
    def enqueue_rate(self) -> float:
        return self.jobs / max(self.enqueue_seconds, 1e-9)

    @property
    def run_rate(self) -> float:
        return self.finished / max(self.run_seconds, 1e-9)

    def as_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "finished": self.finished,
            "enqueue_seconds": round(self.enqueue_seconds, 3),
            "enqueue_per_second": round(self.enqueue_rate),
            "run_seconds": round(self.run_seconds, 3),
            "run_per_second": round(self.run_rate),
        }


async def measure(
    url: str, *, jobs: int, concurrency: int, keep: bool, stop: StopSignals
) -> Measurement:
    """Measure in a tenant of its own, apart from all other work.

    Raises LeftoverWork if it meets another measurement, StartInterrupted if it ends too early.
    """
    app = App(url, tenant=TENANT)

    @app.task(name=JOB, queue=QUEUE, store_result=False)
    async def nothing() -> None:
        """Does nothing, as often as it is asked to."""

    clock = SystemClock()
    counter = Counter(jobs)
    app.observe(counter)
    # Use one store for all of it, and not the app's own: a memory store exists only there.
    async with contextlib.AsyncExitStack() as stack:
        with stop.heeding():
            client = await _prepare(await _open(url, stack), app)
        try:
            with stop.heeding():
                enqueue_seconds = await _enqueue(client, jobs, clock)
            options = WorkerOptions(
                name="bench", tenant=TENANT, queues=QUEUE, concurrency=concurrency
            )
            worker = Worker(
                client.store, app.handlers, options, clock=clock, mint=mint, events=app.events
            )
            run_seconds = await _run(worker, counter, stop, clock)
        finally:
            # Remove also the jobs of an interrupted measurement: the next one would meet them.
            await (client.purge_queue(QUEUE) if keep else client.delete_job(JOB, force=True))
    kept = (
        f"{output.format_count(counter.finished, 'execution')} in the history of"
        f" tenant {TENANT}, as long"
    )
    return Measurement(
        jobs=jobs,
        finished=counter.finished,
        enqueue_seconds=enqueue_seconds,
        run_seconds=run_seconds,
        left_behind=f"{kept} as retention says",
    )


async def _open(url: str, stack: contextlib.AsyncExitStack) -> Client:
    """Open a store. A missing SQLite file is created; any other store is measured at the version
    that it has.
    """
    try:
        return await stack.enter_async_context(Client(url))
    except SchemaError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return await stack.enter_async_context(Client(url, migrate=True))


async def _prepare(owner: Client, app: App) -> Client:
    await owner.ensure_tenant(TENANT)
    client = owner.for_tenant(TENANT)
    app.handlers.learn(await client.define_jobs(app.definitions(), author="code"))
    if left := (await client.count(status="pending", job=JOB)).total:
        raise LeftoverWork(
            f"{output.format_count(left, 'execution')} of another bench wait on this"
            " store; if that was cut"
            f" off, run: daybell queues purge {QUEUE} --tenant {TENANT}"
        )
    return client


class Counter:
    """An observer that counts ended executions."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.finished = 0
        self.is_done = asyncio.Event()

    def __call__(self, event: object) -> None:
        if isinstance(event, Ended):
            self.finished += 1
            if self.finished >= self.wanted:
                self.is_done.set()


async def _enqueue(client: Client, jobs: int, clock: Clock) -> float:
    began = clock.monotonic()
    with output.show_progress("enqueue", total=jobs) as advance:
        for start in range(0, jobs, ENQUEUE_BATCH_MAX):
            size = min(ENQUEUE_BATCH_MAX, jobs - start)
            await client.enqueue_many(JOB, repeat(NO_ARGUMENTS, size))
            advance(size)
    return clock.monotonic() - began


async def _run(worker: Worker, counter: Counter, stop: StopSignals, clock: Clock) -> float:
    began = clock.monotonic()
    stopping = stop.on_request(counter.is_done.set)
    with output.show_progress("run", total=counter.wanted) as advance:
        shown = 0
        await worker.start()
        try:
            while not counter.is_done.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(counter.is_done.wait(), 0.2)
                advance(counter.finished - shown)
                shown = counter.finished
            took = clock.monotonic() - began
        finally:
            stopping.cancel()
            await worker.stop()
    return took


async def bench(
    settings: Settings, *, asked: dict[str, Any], flag: str | None, as_json: bool
) -> int:
    """Measure the store of the settings and print the rates."""
    logs.configure()
    with StopSignals() as stop:
        try:
            measured = await measure(settings.database_url, stop=stop, **asked)
        except StartInterrupted:
            return stop.code
        except LeftoverWork as error:
            raise Conflict(with_flag(str(error), flag)) from error
    jobs, concurrency = asked["jobs"], asked["concurrency"]
    if as_json:
        output.echo_json(measured.as_json())
    else:
        output.echo_fields(
            {
                "store": masked_url(settings.database_url),
                "enqueue": f"{measured.enqueue_rate:,.0f} jobs a second",
                "run": f"{measured.run_rate:,.0f} jobs a second, {concurrency} at a time,"
                " one process",
                "finished": f"{measured.finished:,} of {jobs:,}",
                "left behind": measured.left_behind,
            }
        )
    return DONE if measured.finished == jobs else FAILED
