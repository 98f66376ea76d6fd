"""Claimers: separate processes that claim and finish concurrently, and start together."""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from benchmarks.executions import RESULT
from benchmarks.loops import run
from benchmarks.places import Kind, Place
from benchmarks.sides import Side, SideName, open_side

WARM_BATCH: Final = 20
WARM_CYCLES: Final = 8  # PostgreSQL settles on a plan for a prepared statement after five


class Order(NamedTuple):
    """The work of a claimer: about `quota` executions, or until there are none."""

    batch: int
    quota: float


class Told(NamedTuple):
    """The result of a claimer. The clock is the same for all processes of a machine."""

    done: int
    ended_at: float
    cpu_seconds: float


class Drained(NamedTuple):
    """The result of a crew, from the common start to the last finish."""

    done: int
    seconds: float
    client_cpu: float
    server_cpu: float

    @property
    def rate(self) -> float:
        return self.done / self.seconds


class Crew:
    """Claimers of one side on one place, which stay for several rounds."""

    def __init__(
        self, place: Place, side: SideName, size: int, *, result: str | None = RESULT
    ) -> None:
        self._place = place
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work, args=(theirs, place.kind, side, place.url, result), daemon=True
            )
            process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for line, process in zip(self._lines, self._processes, strict=True):
            if process.is_alive():
                line.send(None)
            process.join(20)

    @property
    def warm_rows(self) -> int:
        """Return how many executions `warm` needs."""
        return len(self._lines) * WARM_BATCH * (WARM_CYCLES + 1)

    def warm(self) -> None:
        """Let every claimer run every statement often enough."""
        self.drain(len(self._lines), WARM_BATCH, quota=WARM_BATCH * WARM_CYCLES)

    def drain(self, claimers: int, batch: int, *, quota: float = math.inf) -> Drained:
        """Let the first so many claimers finish all executions, or so many each."""
        lines = self._lines[:claimers]
        order = Order(batch, quota)
        for line in lines:
            line.send(order)
        for line in lines:
            assert line.recv() == "ready"
        server_cpu = self._place.server_cpu()
        started_at = time.monotonic()
        for line in lines:
            line.send("go")
        told: Sequence[Told] = [line.recv() for line in lines]
        return Drained(
            done=sum(one.done for one in told),
            seconds=max(one.ended_at for one in told) - started_at,
            client_cpu=sum(one.cpu_seconds for one in told),
            server_cpu=self._place.server_cpu().since(server_cpu),
        )


def work(line: Connection, kind: Kind, side: SideName, url: str, result: str | None) -> None:
    """Run one claimer."""
    run(serve(line, open_side(kind, side, url, result=result)))


async def serve(line: Connection, side: Side) -> None:
    await side.open()
    while (order := line.recv()) is not None:
        # After tables were emptied, the first use of a statement plans it anew.
        await side.cycle(1)
        gc.collect()
        line.send("ready")
        line.recv()
        line.send(await drain(side, order))
    await side.close()


async def drain(side: Side, order: Order) -> Told:
    """Claim and finish. Near the end the remaining rows may be locked by other claimers: only the
    second empty answer counts.
    """
    done, empty = 0, 0
    cpu = time.process_time()
    ended_at = time.monotonic()
    while done < order.quota and empty < 2:
        count = await side.cycle(order.batch)
        empty = 0 if count else empty + 1
        if count:
            done += count
            ended_at = time.monotonic()
    return Told(done, ended_at, time.process_time() - cpu)
