"""Durable steps per second, of one execution alone and of a hundred at once.

One worker in this process, as `app.worker()` makes it, on a store with durable commits. Beside it,
in turns, a plain driver that inserts the same rows if the execution is still at its attempt: alone
one commit for each; of a hundred at once, as many callers as there are executions, which share the
same number of connections, or, in SQLite, a commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Final
from uuid import UUID

import asyncpg

from benchmarks.finding import Finding
from benchmarks.growth import found
from benchmarks.places import Kind, Place, open_ground
from daybell import App, Context
from daybell.sdk.task import Handle
from daybell.store.postgres.connection import POOL_CONNECTIONS_MAX
from daybell.store.postgres.connection import SETTINGS as SESSION
from daybell.store.sqlite import connection

ALONE: Final = 500  # steps of one execution
CROWD: Final = 100  # executions at once
EACH: Final = 50  # steps of each
WAIT_SECONDS_MAX: Final = 60.0
RESULT: Final = '{"order":42,"cents":1200}'
COLUMNS: Final = "n, kind, is_done, failures, started_at, finished_at, name, result"

INSERT_POSTGRES: Final = f"""
INSERT INTO daybell.step (tenant, execution, {COLUMNS})
SELECT $1, $2, $3, 1, true, 0, $4, $4, 'step', $5
 WHERE EXISTS (SELECT FROM daybell.live WHERE tenant = $1 AND id = $2 AND attempt = 1)
"""
INSERT_SQLITE: Final = f"""
INSERT INTO step (execution, {COLUMNS})
SELECT n, ?, 1, 1, 0, ?, ?, 'step', ? FROM execution WHERE tenant = 1 AND id = ? AND attempt = 1
"""

Run = Callable[[list[UUID], int], Awaitable[None]]  # for so many executions, so many steps of each


async def measure(kind: Kind, *, rounds: int, scale: float) -> list[Finding]:
    """Measure everything on one kind of store."""
    alone, each = max(50, int(ALONE * scale)), max(10, int(EACH * scale))
    with open_ground(kind) as ground:
        place = await ground.place("durable")
        floor = PostgresFloor(place) if kind == "postgres" else SqliteFloor(place)
        work = Work(place)
        await floor.open()
        try:
            async with work.app, work.app.worker(concurrency=CROWD):
                lines = await compare(place, work, floor.run, 1, alone, rounds)
                lines += await compare(place, work, floor.run, CROWD, each, rounds)
        finally:
            await floor.close()
    return lines


async def compare(
    place: Place, work: Work, floor: Run, executions: int, each: int, rounds: int
) -> list[Finding]:
    """Steps and raw inserts in turns, after a round that is dropped."""
    kind = place.kind
    rates: dict[str, list[float]] = {"steps": [], "floor": []}
    for round_ in range(-1, max(1, rounds)):
        ids = await held(place, executions)
        for what, run in (("steps", work.run), ("floor", floor)):
            began = time.perf_counter()
            await run(ids, each)
            took = time.perf_counter() - began
            if round_ >= 0:
                rates[what].append(executions * each / took)
            await work.rest()
    ratios = [one / raw for one, raw in zip(rates["steps"], rates["floor"], strict=True)]
    what = "one execution" if executions == 1 else f"{executions} executions at once"
    return [
        found(Finding(kind, f"steps of {what}", median(rates["steps"]), "steps/s")),
        found(
            Finding(
                kind,
                f"steps of {what}, as a ratio to raw fenced inserts",
                median(ratios),
                "x",
                f"from {min(ratios):.2f} to {max(ratios):.2f}; raw:"
                f" {median(rates['floor']):,.0f}/s",
            )
        ),
    ]


class Work:
    """An app with a durable function, which notices ends at once."""

    def __init__(self, place: Place) -> None:
        self.app = App(place.database_url)
        self._left = 0
        self._is_over = asyncio.Event()
        self._handles: list[Handle[None]] = []

        async def order() -> dict[str, int]:
            return {"order": 42, "cents": 1200}

        @self.app.task
        async def chain(ctx: Context, steps: int) -> None:
            for _ in range(steps):
                await ctx.step("step", order)
            self._left -= 1
            if not self._left:
                self._is_over.set()

        self._chain = chain

    async def run(self, ids: list[UUID], each: int) -> None:
        """As many executions at once, from their enqueue to the last step of the last."""
        self._left = len(ids)
        self._is_over.clear()
        self._handles = await self._chain.enqueue_many({"steps": each} for _ in ids)
        await self._is_over.wait()

    async def rest(self) -> None:
        """Wait until the store has recorded all ends, which are not measured."""
        for handle in self._handles:
            await handle.result(timeout=WAIT_SECONDS_MAX)
        self._handles = []


class PostgresFloor:
    """Plain asyncpg."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()

    async def open(self) -> None:
        for _ in range(POOL_CONNECTIONS_MAX):
            link = await asyncpg.connect(
                self._place.url, server_settings=SESSION, max_cached_statement_lifetime=0
            )
            self._idle.put_nowait(link)

    async def close(self) -> None:
        while not self._idle.empty():
            await self._idle.get_nowait().close()

    async def run(self, ids: list[UUID], each: int) -> None:
        await asyncio.gather(*(self._chain(id, each) for id in ids))

    async def _chain(self, id: UUID, each: int) -> None:
        for n in range(each):
            link = await self._idle.get()
            answer = await link.execute(INSERT_POSTGRES, 1, id, n, time.time(), RESULT)
            self._idle.put_nowait(link)
            assert answer == "INSERT 0 1", answer


class SqliteFloor:
    """Plain sqlite3, on the event loop's own thread."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def open(self) -> None:
        self._link = connection.connect(self._place.url)

    async def close(self) -> None:
        self._link.close()

    async def run(self, ids: list[UUID], each: int) -> None:
        for n in range(each):
            await self._begin()
            for id in ids:
                now = time.time()
                self._link.execute(INSERT_SQLITE, (n, now, now, RESULT, id.bytes))
            self._link.execute("COMMIT")

    async def _begin(self) -> None:
        """The worker in this process writes now and then, and needs the loop for it."""
        while True:
            try:
                self._link.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                await asyncio.sleep(0)
            else:
                return


async def held(place: Place, count: int) -> list[UUID]:
    """Return executions for steps, in a queue without a worker."""
    app = App(place.database_url)

    @app.task(queue="held")
    async def nothing() -> None: ...

    async with app:
        handles = await nothing.enqueue_many({} for _ in range(count))
    return [handle.id for handle in handles]
