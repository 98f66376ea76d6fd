"""What tasks said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.log import LAST, LogPart, NewLogPart
from daybell.store import checks
from daybell.store.sqlite.apply import FENCE, fence
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction

_WRITE: Final = f"""
INSERT INTO log (execution, attempt, number, written_at, text)
SELECT n, attempt, ?, ?, ? FROM execution WHERE {FENCE} ON CONFLICT DO NOTHING
"""
_READ: Final = f"""
WITH e AS (SELECT n, attempt, log FROM execution WHERE tenant = ? AND id = ?)
SELECT attempt, number, text
  FROM (SELECT log.attempt, number, text FROM log JOIN e ON execution = e.n
        UNION ALL
        SELECT attempt.attempt, {LAST}, attempt.log FROM attempt JOIN e ON execution = e.n
        UNION ALL
        SELECT attempt, {LAST}, log FROM e)
 WHERE text IS NOT NULL AND (attempt, number) > (?, ?) ORDER BY 1, 2 LIMIT ?
"""


class SqliteLogs(Part):
    """See `protocol.Logs`."""

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        def operation(tx: Transaction) -> None:
            owner = tx.names.tenant(tx, tenant)
            rows = [
                (part.number, tx.now, part.text, *fence(owner, worker.bytes, part))
                for part in parts
                if part.attempt <= checks.ATTEMPT_MAX
            ]
            tx.executemany(_WRITE, rows)

        await self._write(operation)

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        checks.check_limit(limit, most=PAGE_ITEMS_MAX)

        def operation(tx: Transaction) -> list[LogPart]:
            owner = tx.names.tenant(tx, tenant)
            return [LogPart(*row) for row in tx.execute(_READ, (owner, id.bytes, *after, limit))]

        return await self._read(operation)
