"""The two sides of a comparison, with one interface: a store as users call it, and the floor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from benchmarks.executions import QUEUE, RAN, RESULT, TENANT
from benchmarks.floor import PostgresFloor, SqliteFloor
from benchmarks.places import Kind
from daybell.core.execution import NewExecution
from daybell.core.ids import mint
from daybell.core.lifecycle import after_success
from daybell.core.worker import NewWorker
from tests.stores import connect

SideName = Literal["store", "floor"]
SIDES: Final[tuple[SideName, ...]] = ("store", "floor")
WORKER_SECONDS: Final = 3600.0  # no lease is renewed in a benchmark


class Side(Protocol):
    """One side. Everything is timed but `prepare` and `prepare_load`, which come before."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def prepare(self, executions: Sequence[NewExecution]) -> Any: ...
    async def enqueue(self, batch: Any) -> None: ...
    async def enqueue_crowd(self, batches: Sequence[Any], callers: int) -> None: ...
    def prepare_load(self, executions: Sequence[NewExecution]) -> Any: ...
    async def load(self, batch: Any) -> None: ...
    async def cycle(self, limit: int) -> int: ...


class StoreSide:
    """A store, with the work of an engine between claim and apply."""

    def __init__(self, kind: Kind, url: str, *, result: str | None = RESULT) -> None:
        self.store = connect(kind, url)
        self._result = result
        self._worker = mint()

    async def open(self) -> None:
        await self.store.open()
        worker = NewWorker(id=self._worker, name="bench")
        await self.store.queue.register(TENANT, worker, lease=WORKER_SECONDS)

    async def close(self) -> None:
        await self.store.close()

    def prepare(self, executions: Sequence[NewExecution]) -> Any:
        return executions

    prepare_load = prepare

    async def enqueue(self, batch: Any) -> None:
        await self.store.queue.enqueue(TENANT, batch)

    async def enqueue_crowd(self, batches: Sequence[Any], callers: int) -> None:
        rest = iter(batches)

        async def call() -> None:
            for batch in rest:
                await self.store.queue.enqueue(TENANT, batch)

        await asyncio.gather(*(call() for _ in range(callers)))

    async def load(self, batch: Any) -> None:
        await self.store.queue.load(TENANT, batch)

    async def claim(self, limit: int) -> list[Any]:
        """Claim only, for measurements of claims."""
        claim = await self.store.queue.claim(
            TENANT, worker=self._worker, lease=mint(), queues=[QUEUE], limit=limit
        )
        return claim.executions

    async def finish(self, claimed: Sequence[Any]) -> None:
        moves = [after_success(one, result=self._result, ran=RAN) for one in claimed]
        verdicts = await self.store.queue.apply(TENANT, worker=self._worker, transitions=moves)
        assert not verdicts, f"not simply made: {verdicts[0]}"

    async def cycle(self, limit: int) -> int:
        claimed = await self.claim(limit)
        if claimed:
            await self.finish(claimed)
        return len(claimed)


def open_side(kind: Kind, name: SideName, url: str, *, result: str | None = RESULT) -> Side:
    """Make a side of the comparison, not opened yet; its executions end with that result."""
    if name == "store":
        return StoreSide(kind, url, result=result)
    floor = PostgresFloor if kind == "postgres" else SqliteFloor
    return floor(url, result=result)
