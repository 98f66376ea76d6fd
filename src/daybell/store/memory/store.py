"""The memory store as a whole."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import NoReturn
from uuid import UUID

from daybell.core import checks
from daybell.core.access import NewAuditEntry
from daybell.core.execution import Cancellation, Enqueued, NewExecution
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.schedule import Firing
from daybell.store.memory.admin import MemoryAccess, MemoryVault
from daybell.store.memory.catalog import MemoryDefinitions, MemoryViews
from daybell.store.memory.progress import MemoryGates
from daybell.store.memory.queue import MemoryExecutions, MemoryLogs, MemoryWorkers
from daybell.store.memory.runs import MemoryRuns, MemorySteps
from daybell.store.memory.schedules import MemoryDependencies, MemorySchedules
from daybell.store.memory.tables import Clock
from daybell.store.memory.upkeep import MemoryUpkeep
from daybell.store.wakeups import Listeners, Signal, Wake

StopListening = Callable[[], Awaitable[None]]


class MemoryStore(
    MemoryDefinitions,
    MemoryExecutions,
    MemoryWorkers,
    MemorySchedules,
    MemoryRuns,
    MemoryDependencies,
    MemorySteps,
    MemoryGates,
    MemoryLogs,
    MemoryViews,
    MemoryUpkeep,
    MemoryAccess,
    MemoryVault,
):
    """A store that lives and dies with its process. It serves one event loop."""

    def __init__(self, *, clock: Clock = time.time) -> None:
        super().__init__(clock)
        self._listeners = Listeners()
        self._schedule_listeners = Listeners()

    def _give(self, signal: Signal) -> None:
        if signal is Signal.ASK:
            self._listeners.ask()
        elif signal is Signal.CLAIM:
            self._listeners.wake()
        else:
            self._schedule_listeners.wake()

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> StopListening:
        with self._begin(tenant):
            return self._listeners.add(wake, ask)

    async def listen_schedules(self, wake: Wake) -> StopListening:
        with self._begin():
            return self._schedule_listeners.add(wake)

    async def enqueue(
        self,
        tenant: str,
        executions: Sequence[NewExecution],
        *,
        repeat: bool = False,
        entries: Sequence[NewAuditEntry] = (),
    ) -> list[Enqueued]:
        answers = await super().enqueue(tenant, executions, repeat=repeat, entries=entries)
        self._listeners.wake()
        return answers

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        verdicts = await super().apply(tenant, worker=worker, transitions=transitions, wait=wait)
        await self._go_on()
        return verdicts

    async def cancel(self, tenant: str, ids: Sequence[UUID]) -> list[Cancellation]:
        answers = await super().cancel(tenant, ids)
        await self._go_on()
        return answers

    async def load(self, tenant: str, executions: Iterable[NewExecution]) -> int:
        count = await super().load(tenant, executions)
        self._listeners.wake()
        return count

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        answers = await super().fire(firings)
        self._listeners.wake()
        return answers

    async def release_dependents(self, tenant: str, ids: Sequence[UUID]) -> int:
        count = await super().release_dependents(tenant, ids)
        self._listeners.wake()
        return count

    async def resume_job(self, tenant: str, name: str, firings: Sequence[Firing] = ()) -> None:
        await super().resume_job(tenant, name, firings)
        self._listeners.wake()

    async def drain(self, tenant: str, worker: UUID) -> bool:
        is_drained = await super().drain(tenant, worker)
        self._listeners.ask()
        return is_drained

    async def begin(self, worker: UUID) -> NoReturn:
        raise checks.no_transactions("in memory")

    async def open(self) -> None:
        self._is_open = True

    async def pending_migrations(self) -> tuple[str, ...]:
        return ()

    async def migrate(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        self._is_open = False
