"""Throughput: enqueue, and claim with finish, of a store next to the floor.

Store and floor have a database each and take turns within every round (A B A B …), so that a
machine which changes its pace changes it for both. Databases are emptied before each run, and what
is enqueued is made beforehand.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final

from benchmarks.claimers import Crew
from benchmarks.comparison import Comparison, Sample
from benchmarks.executions import prepared, sliced
from benchmarks.places import Ground, Kind, Place, open_ground
from benchmarks.progress import say
from benchmarks.sides import SIDES, Side, SideName, open_side

CALLERS: Final = 50
BATCH: Final = 1_000
BULK: Final = 50_000
CLAIMERS: Final = (1, 2, 4)
# Rows for about half a second each; a batch of one costs two commits.
DRAINS: Final[dict[int, int]] = {1: 700, 10: 6_000, 100: 20_000, 500: 30_000}
BULK_BAR: Final = 0.60
# The promised batch of claim and finish, and its part of the floor.
DRAIN_BARS: Final[dict[Kind, tuple[int, float]]] = {"postgres": (500, 0.70), "sqlite": (100, 0.60)}

Action = Callable[[Side], Awaitable[Sample]]


class Bench:
    """Both sides on one kind of store."""

    def __init__(self, kind: Kind, places: dict[SideName, Place], *, rounds: int, scale: float):
        self._kind: Kind = kind
        self._places = places
        self._sides = {name: open_side(kind, name, place.url) for name, place in places.items()}
        self._rounds = rounds
        self._scale = scale

    async def open(self) -> None:
        for side in self._sides.values():
            await side.open()

    async def close(self) -> None:
        for side in self._sides.values():
            await side.close()

    async def enqueue(self) -> list[Comparison]:
        singles, crowd = self._size(700), self._size(6_000)
        batches, bulk = self._size(20_000), self._size(BULK)
        return [
            await self._enqueue("enqueue, one after the other", self._single(singles)),
            await self._enqueue(f"enqueue, {CALLERS} callers at once", self._crowd(crowd)),
            await self._enqueue(f"enqueue, batches of {BATCH:,}", self._batches(batches)),
            await self._enqueue(f"load, {bulk:,} in bulk", self._bulk(bulk), bar=BULK_BAR),
        ]

    async def drain(self) -> list[Comparison]:
        with ExitStack() as stack:
            crews = {
                name: stack.enter_context(Crew(place, name, max(CLAIMERS)))
                for name, place in self._places.items()
            }
            for name, crew in crews.items():
                await self._fill(name, crew.warm_rows)
                crew.warm()
            return [
                await self._drain(crews, claimers, batch)
                for batch in DRAINS
                for claimers in CLAIMERS
            ]

    async def _enqueue(self, what: str, action: Action, *, bar: float | None = None) -> Comparison:
        line = Comparison(self._kind, what, bar)
        for round_ in range(-1, self._rounds):
            for name, side in self._sides.items():
                await self._places[name].clear()
                server_cpu = self._places[name].server_cpu()
                sample = await action(side)
                sample.server_cpu = self._places[name].server_cpu().since(server_cpu)
                if round_ >= 0:  # the round before is a warm-up
                    line.samples[name].append(sample)
        announce(line)
        return line

    def _single(self, count: int) -> Action:
        async def action(side: Side) -> Sample:
            batches = [side.prepare(one) for one in sliced(prepared(count), 1)]
            with Stopwatch(count) as watch:
                for batch in batches:
                    await side.enqueue(batch)
            return watch.sample

        return action

    def _crowd(self, count: int) -> Action:
        async def action(side: Side) -> Sample:
            batches = [side.prepare(one) for one in sliced(prepared(count), 1)]
            with Stopwatch(count) as watch:
                await side.enqueue_crowd(batches, CALLERS)
            return watch.sample

        return action

    def _batches(self, count: int) -> Action:
        async def action(side: Side) -> Sample:
            batches = [side.prepare(some) for some in sliced(prepared(count), BATCH)]
            with Stopwatch(count) as watch:
                for batch in batches:
                    await side.enqueue(batch)
            return watch.sample

        return action

    def _bulk(self, count: int) -> Action:
        async def action(side: Side) -> Sample:
            batch = side.prepare_load(prepared(count))
            with Stopwatch(count) as watch:
                await side.load(batch)
            return watch.sample

        return action

    async def _drain(self, crews: dict[SideName, Crew], claimers: int, batch: int) -> Comparison:
        promised, ratio = DRAIN_BARS[self._kind]
        line = Comparison(
            self._kind,
            f"claim + finish, batches of {batch}, {claimers} claimers".replace(
                " 1 claimers", " 1 claimer"
            ),
            ratio if batch == promised else None,
        )
        rows = self._size(DRAINS[batch])
        for _ in range(self._rounds):
            for name, crew in crews.items():
                await self._fill(name, rows + claimers)
                done = crew.drain(claimers, batch)
                # Each claimer has taken one more while it was preparing.
                assert done.done == rows, f"{done.done} of {rows} were finished"
                line.samples[name].append(
                    Sample(done.done, done.seconds, done.client_cpu, done.server_cpu)
                )
        announce(line)
        return line

    async def _fill(self, name: SideName, rows: int) -> None:
        await self._places[name].clear()
        side = self._sides[name]
        await side.load(side.prepare_load(prepared(rows)))

    def _size(self, count: int) -> int:
        return max(100, int(count * self._scale))


class Stopwatch:
    """Time and processor time of a block; garbage is collected before it starts."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> Stopwatch:
        gc.collect()
        self._cpu, self._started_at = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._started_at
        self.sample = Sample(self._count, seconds, time.process_time() - self._cpu)


def announce(line: Comparison) -> None:
    say(
        f"{line.store:9} {line.what:43} {line.rate('store'):>8,.0f}/s"
        f" floor {line.rate('floor'):>8,.0f}/s ratio {line.ratio:.2f} {line.verdict:14}"
        f" µs {processor_time(line, 'store')}, floor {processor_time(line, 'floor')}"
    )


def processor_time(line: Comparison, side: SideName) -> str:
    """Microseconds per execution, of clients and server."""
    return f"{line.cpu(side, 'client_cpu'):.1f} + {line.cpu(side, 'server_cpu'):.1f}"


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Comparison]:
    """All lines of one kind of store."""
    with open_ground(kind) as ground:
        bench = Bench(kind, await make_places(ground), rounds=rounds, scale=scale)
        await bench.open()
        try:
            return [*await bench.enqueue(), *await bench.drain()]
        finally:
            await bench.close()


async def make_places(ground: Ground) -> dict[SideName, Place]:
    return {name: await ground.place(name) for name in SIDES}
