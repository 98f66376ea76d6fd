"""The memory store as a whole."""

from __future__ import annotations

import time

from daybell.store.memory.definitions import MemoryDefinitions
from daybell.store.memory.executions import MemoryExecutions
from daybell.store.memory.gates import MemoryGates
from daybell.store.memory.schedules import MemorySchedules
from daybell.store.memory.tables import Clock
from daybell.store.memory.upkeep import MemoryUpkeep
from daybell.store.memory.views import MemoryViews
from daybell.store.memory.workers import MemoryWorkers


class MemoryStore(
    MemoryDefinitions,
    MemoryExecutions,
    MemoryWorkers,
    MemorySchedules,
    MemoryGates,
    MemoryViews,
    MemoryUpkeep,
):
    """A store that lives and dies with its process. It serves one event loop."""

    def __init__(self, *, clock: Clock = time.time) -> None:
        super().__init__(clock)

    async def open(self) -> None:
        self._is_open = True

    async def pending_migrations(self) -> tuple[str, ...]:
        return ()

    async def migrate(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        self._is_open = False
