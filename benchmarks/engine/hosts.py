"""Hosts: worker processes, assembled like those of `daybell worker`, that start on request.

A host connects once. For every run it makes a new worker, so that nothing is claimed before the
start. While it runs it writes its progress to a board, memory that it shares with the measuring
process, so that no query disturbs the run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.claimers import Drained
from benchmarks.engine.tasks import Effects, Work, make_app
from benchmarks.loops import run
from benchmarks.places import Place
from daybell.cli.apps import connect_app, select_queues
from daybell.cli.roles import logs
from daybell.cli.roles.narration import Narrator
from daybell.cli.roles.startup import tune_garbage_collector
from daybell.cli.roles.worker import POLL_SECONDS
from daybell.client.leases.store import RemoteStore
from daybell.core.ids import mint
from daybell.engine.lease import make_pacemaker
from daybell.engine.loop import SystemClock
from daybell.engine.upkeep import Process, Upkeep
from daybell.engine.worker import Worker, WorkerOptions
from daybell.sdk.app import App
from daybell.sdk.worker import fit_options
from daybell.store.protocol import Store

RAN, IN_HAND, CHANGED_AT, BOARD_SIZE = 0, 1, 2, 3
LOOK_SECONDS: Final = 0.005
CONCURRENCY: Final = 100  # the default of `daybell worker`
RUN_SECONDS_MAX: Final = 900.0


class Told(NamedTuple):
    """The result of a run in a host."""

    ran: int
    cpu_seconds: float  # up to the last end
    starts: bytes  # of work `record`: by number, on the clock that all processes share


class Server(NamedTuple):
    """The server that workers over HTTP work for."""

    url: str
    key: str


class Hosts:
    """So many worker processes on one place; with a server, by way of it."""

    def __init__(
        self,
        place: Place,
        work: Work,
        count: int,
        *,
        concurrency: int = CONCURRENCY,
        server: Server | None = None,
    ) -> None:
        self._place = place
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
        self._boards: list[Any] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            board = context.RawArray("d", BOARD_SIZE)
            arguments = theirs, board, place.database_url, work, concurrency, server
            process = context.Process(target=live, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._boards.append(board)
            self._processes.append(process)
        for line in self._lines:
            assert line.recv() == "up"

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        for line, process in zip(self._lines, self._processes, strict=True):
            with suppress(OSError):
                line.send(None)
            process.join(20)
            if process.is_alive():
                process.kill()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def ran(self) -> int:
        """Return how many tasks have run since the start."""
        return int(sum(board[RAN] for board in self._boards))

    @property
    def in_hand(self) -> int:
        """Return how many executions run, or have ended and are not written yet."""
        return int(sum(board[IN_HAND] for board in self._boards))

    def start(self, count: int) -> float:
        """Start the first so many hosts; return the moment."""
        for line in self._lines[:count]:
            line.send("prepare")
        for line in self._lines[:count]:
            assert line.recv() == "ready"
        started_at = time.monotonic()
        for line in self._lines[:count]:
            line.send("go")
        return started_at

    def stop(self, count: int) -> list[Told]:
        for line in self._lines[:count]:
            line.send("stop")
        return [line.recv() for line in self._lines[:count]]

    def is_done(self, jobs: int) -> bool:
        """Return True if so many have run and all ends are written."""
        if not all(process.is_alive() for process in self._processes):
            raise RuntimeError("a worker process has died")
        return self.ran >= jobs and self.in_hand == 0

    def drain(self, count: int, jobs: int) -> Drained:
        """Let the first so many hosts run all jobs, and stop."""
        server_cpu = self._place.server_cpu()
        started_at = self.start(count)
        while not self.is_done(jobs):
            if time.monotonic() > started_at + RUN_SECONDS_MAX:
                raise RuntimeError(f"{self.ran} of {jobs} jobs ran in {RUN_SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)
        ended_at = max(board[CHANGED_AT] for board in self._boards[:count])
        used = self._place.server_cpu().since(server_cpu)
        told = self.stop(count)
        ran = sum(one.ran for one in told)
        return Drained(ran, ended_at - started_at, sum(one.cpu_seconds for one in told), used)


async def check_each_ran_once(place: Place, jobs: int) -> None:
    """Check in the store that so many jobs succeeded at their first attempt, and none is left."""
    history = "history" if place.kind == "postgres" else "execution"
    ended = await place.ask(f"SELECT count(*) FROM {history} WHERE state = 6 AND attempt = 1")
    rows = await place.ask(f"SELECT count(*) FROM {history}")
    left = await place.ask("SELECT count(*) FROM live") if place.kind == "postgres" else 0
    assert (ended, rows, left) == (jobs, jobs, 0), f"{ended} ended, {rows} rows, {left} left"
    assert await place.ask("SELECT count(*) FROM attempt") == 0, "some were tried more than once"


def live(
    line: Connection, board: Any, url: str, work: Work, concurrency: int, server: Server | None
) -> None:
    """Run one host."""
    run(serve(line, board, url, work, concurrency, server))


async def serve(
    line: Connection, board: Any, url: str, work: Work, concurrency: int, server: Server | None
) -> None:
    effects = Effects()
    app = make_app(url, work, effects)
    if server is not None:
        app.remote = RemoteStore(server.url, key=server.key)
    app.events.observe(Narrator(SystemClock(), quiet=True, out=sys.stderr), only_trouble=True)
    logs.configure()
    async with connect_app(app) as store, app.lifespan():
        line.send("up")
        word = await asyncio.to_thread(line.recv)
        while word is not None:
            effects.clear()
            board[:] = [0.0] * BOARD_SIZE
            node = assemble(app, store, concurrency)
            tune_garbage_collector()
            line.send("ready")
            line.recv()
            cpu = time.process_time()
            watch = Watch(board, effects, node.workers)
            watching = asyncio.create_task(watch.run())
            await node.start()
            word = await asyncio.to_thread(line.recv)
            watching.cancel()
            await node.stop()
            if word is not None:  # None in the middle of a run: the measuring process has failed
                line.send(Told(effects.ran, watch.cpu - cpu, effects.starts.tobytes()))
                word = await asyncio.to_thread(line.recv)


def assemble(app: App, store: Store, concurrency: int, *, has_pacemaker: bool = True) -> Process:
    """Assemble the parts of `daybell worker`. Without a pacemaker, which is a thread, there can be
    a thousand in a process.
    """
    clock = SystemClock()
    remote = app.remote
    options = WorkerOptions(
        name="bench", queues=select_queues(app, ""), concurrency=concurrency, pid=os.getpid()
    )
    if remote:
        options = msgspec.structs.replace(options, poll=POLL_SECONDS)
    pacemaker = make_pacemaker(
        app.url,
        clock,
        lease=options.lease,
        tenant=options.tenant,
        make=(lambda: remote.again().as_store()) if remote else None,
    )
    worker = Worker(
        store,
        app.handlers,
        fit_options(app, options),
        clock=clock,
        mint=remote.mint if remote else mint,
        events=app.events,
        pacemaker=pacemaker if has_pacemaker else None,
    )
    upkeep = None if remote else Upkeep(store, clock=clock, mint=mint, events=app.events)
    return Process(workers=[worker], upkeep=upkeep)


class Watch:
    """Polls the workers of this process every few milliseconds."""

    def __init__(self, board: Any, effects: Effects, workers: Sequence[Worker]) -> None:
        self._board = board
        self._effects = effects
        self._workers = workers
        self.cpu = time.process_time()  # time of the last change

    async def run(self) -> None:
        seen = (0, 0)
        while True:
            in_hand = sum(len(one.executor) + len(one.current.completer) for one in self._workers)
            now = self._effects.ran, in_hand
            if now != seen:
                seen = now
                self.cpu = time.process_time()
                self._board[CHANGED_AT] = time.monotonic()
                self._board[IN_HAND] = in_hand
                self._board[RAN] = self._effects.ran  # last: a reader that sees it sees the others
            await asyncio.sleep(LOOK_SECONDS)
