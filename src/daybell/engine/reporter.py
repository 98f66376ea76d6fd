"""Showing what runs. Short tasks never pay for it: only what has run for a while is written."""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.core.worker import Report
from daybell.engine.clock import Clock
from daybell.engine.executor import Executor
from daybell.errors import UsageError
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

SHOWN_AFTER_SECONDS: Final = 0.5


class Reporter:
    """Writes start marks, progress and checkpoints of what runs, in batches."""

    def __init__(
        self, store: Store, executor: Executor, *, tenant: str, worker: UUID, clock: Clock
    ) -> None:
        self._store = store
        self._executor = executor
        self._tenant = tenant
        self._worker = worker
        self._clock = clock

    async def tick(self) -> Seconds | None:
        due = [
            run
            for run in self._executor
            if run.started is not None
            and (run.has_news or (not run.is_shown and run.ran(self._clock) >= SHOWN_AFTER_SECONDS))
        ]
        for start in range(0, len(due), APPLY_BATCH_MAX):
            runs = due[start : start + APPLY_BATCH_MAX]
            reports = [run.as_report(self._clock) for run in runs]
            try:
                await self._send(reports)
            except BaseException:
                for run in runs:
                    run.has_news = True
                raise
        return None

    async def _send(self, reports: list[Report]) -> None:
        """Write them; one that cannot be kept is left out and does not hurt the others."""
        try:
            await self._store.report(self._tenant, worker=self._worker, reports=reports)
        except UsageError as error:
            if len(reports) == 1:
                logger.error("what %s shows of itself cannot be kept: %s", reports[0].id, error)
                return
            middle = len(reports) // 2
            await self._send(reports[:middle])
            await self._send(reports[middle:])
