"""Showing what runs. Short tasks never pay for it: only what has run for a while is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.core.log import NewLogPart
from daybell.core.worker import Report
from daybell.engine.clock import Clock
from daybell.engine.executor import Executor
from daybell.engine.run import Run
from daybell.engine.suspects import probation
from daybell.errors import ExecutionNotFound, Unavailable, UsageError
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

SHOWN_AFTER_SECONDS: Final = 0.5
_UNKNOWN: Final = object()


class Reporter:
    """Writes start marks, progress, checkpoints and logs of what runs, in batches."""

    def __init__(
        self, store: Store, executor: Executor, *, tenant: str, worker: UUID, clock: Clock
    ) -> None:
        self._store = store
        self._executor = executor
        self._tenant = tenant
        self._worker = worker
        self._clock = clock
        self._sole: UUID | object | None = None  # the suspect that is on record as the only one
        self._recording = asyncio.Lock()

    async def tick(self) -> Seconds | None:
        await self.write([run for run in self._executor if run.started is not None])
        return None

    async def announce(self, run: Run, is_alone: Callable[[], bool]) -> Seconds | None:
        """Put on record that this suspect begins, and whether it is the only one here. Answers how
        long its probation is; None: it is not this worker's any more.
        """
        tenant, worker = self._tenant, self._worker
        try:
            detail = await self._store.get_execution(tenant, run.claimed.id)
        except ExecutionNotFound:
            return None
        async with self._recording:  # what is on record is never older than what is known here
            sole = run.claimed.id if is_alone() else None
            if sole != self._sole:
                self._sole = _UNKNOWN
                if not await self._store.record_sole(tenant, worker=worker, execution=sole):
                    return None
                self._sole = sole
        report = run.as_report(self._clock)
        if await self._store.report(tenant, worker=worker, reports=[report]):
            return None
        return probation(detail)

    async def write(self, runs: list[Run]) -> None:
        """Write what these runs have to show. What cannot be kept is left out. After Unavailable,
        everything can be written again.
        """
        await self._write_logs([run for run in runs if run.log is not None])
        due = [run for run in runs if run.has_news or self._is_to_be_shown(run)]
        for start in range(0, len(due), APPLY_BATCH_MAX):
            chunk = due[start : start + APPLY_BATCH_MAX]
            reports = [run.as_report(self._clock) for run in chunk]
            try:
                await self._send(reports)
            except BaseException:
                for run in chunk:
                    run.has_news = True
                raise

    def _is_to_be_shown(self, run: Run) -> bool:
        return not run.is_shown and run.ran(self._clock) >= SHOWN_AFTER_SECONDS

    async def _write_logs(self, runs: list[Run]) -> None:
        said = [(run, parts) for run in runs if (parts := run.log_parts())]
        parts = [part for _, parts in said for part in parts]
        for start in range(0, len(parts), APPLY_BATCH_MAX):
            await self._send_log(parts[start : start + APPLY_BATCH_MAX])
        for run, parts in said:
            run.forget_log_parts(upto=parts[-1].number)

    async def _send_log(self, parts: list[NewLogPart]) -> None:
        try:
            await self._store.write_log(self._tenant, worker=self._worker, parts=parts)
        except Unavailable:
            raise
        except Exception:
            # What a task says is no reason to hold up its end.
            logger.exception("what %d executions said cannot be kept", len(parts))

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
