"""Logs: what tasks said while they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from daybell.core.log import LogPart, NewLogPart


class Logs(Protocol):
    """Parts of logs. They are kept as long as what is finished, also those of dead letters."""

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        """Keep these parts, of executions that `worker` has in hand under these leases: what
        was given to others is not written about. A part that is there already stays as it is.
        """
        ...

    async def read_log(
        self, tenant: str, id: UUID, *, after: tuple[int, int] = (0, 0), limit: int = 100
    ) -> list[LogPart]:
        """Parts in the order of attempt and number, beginning after such a pair. Empty for an
        execution that said nothing or is unknown.
        """
        ...
