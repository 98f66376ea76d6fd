"""What executions said while they ran."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from daybell.client.requests import Id, read_id
from daybell.core.log import LogPart
from daybell.store.protocol import Store

# A part may be as large as an attempt's whole log: a handful at a time is enough of them.
PARTS_PER_READ: Final = 10

START: Final = (0, 0)  # before the first part of the first attempt


class Logs:
    """The verbs of `Client` for logs."""

    store: Store
    tenant: str

    async def log(
        self, id: Id, *, after: tuple[int, int] = START, limit: int = PARTS_PER_READ
    ) -> list[LogPart]:
        """Parts of an execution's log by attempt and number, beginning after such a pair.

        Empty for an execution that said nothing, and for one that is unknown.
        """
        return await self.store.read_log(self.tenant, read_id(id), after=after, limit=limit)

    async def log_parts(self, id: Id, *, after: tuple[int, int] = START) -> AsyncGenerator[LogPart]:
        """All parts that there are by now, a few in memory at a time."""
        while parts := await self.log(id, after=after):
            for part in parts:
                yield part
            after = (parts[-1].attempt, parts[-1].number)
            if len(parts) < PARTS_PER_READ:
                return
