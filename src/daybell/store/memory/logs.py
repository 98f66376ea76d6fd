"""What tasks said."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.log import LogPart, NewLogPart
from daybell.store import checks
from daybell.store.memory.executions import holds
from daybell.store.memory.tables import Part


class MemoryLogs(Part):
    """See `protocol.Logs`."""

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        with self._begin(tenant) as tables:
            for part in parts:
                row = tables.rows.get((tenant, part.id))
                if row is not None and holds(row, worker, part):
                    key = tenant, part.id, part.attempt, part.number
                    tables.logs.setdefault(key, (self._clock(), part.text))

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        checks.check_limit(limit, most=PAGE_ITEMS_MAX)
        with self._begin(tenant) as tables:
            parts = sorted(
                LogPart(attempt, number, text)
                for (owner, execution, attempt, number), (_, text) in tables.logs.items()
                if (owner, execution) == (tenant, id) and (attempt, number) > after
            )
            return parts[:limit]
