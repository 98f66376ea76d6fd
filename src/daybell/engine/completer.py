"""Telling the store what executions led to, in groups.

While one group is being written, the next gathers: alone on an idle system an end is written at
once, under load hundreds go together. Nothing is dropped while the store is away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.failure import Failure
from daybell.core.instant import Seconds
from daybell.core.lifecycle import Ruling, Transition, Verdict, after_failure
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.core.retry import Retry
from daybell.engine.events import Ended, Events
from daybell.engine.leases import Leases
from daybell.engine.loop import AGAIN
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

End = tuple[Claimed, Transition]


class Completer:
    """Ends on their way to the store."""

    def __init__(
        self, store: Store, *, tenant: str, worker: UUID, leases: Leases, events: Events
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self._leases = leases
        self._events = events
        self._waiting: list[End] = []
        self.stale = 0  # reports that came too late
        self.wake: Callable[[], None] = _nothing  # set by whoever runs the loop

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claimed: Claimed, move: Transition) -> None:
        """Have an end written."""
        self._waiting.append((claimed, move))
        self.wake()

    async def tick(self) -> Seconds | None:
        group = self._waiting[:APPLY_BATCH_MAX]
        if not group:
            return None
        verdicts = await self._store.apply(
            self._tenant, worker=self._worker, transitions=[move for _, move in group]
        )
        # Only now: had this raised, they would still be here to be sent again.
        del self._waiting[: len(group)]
        judged = {(verdict.id, verdict.attempt): verdict for verdict in verdicts}
        for claimed, move in group:
            verdict = judged.get((move.id, move.attempt)) if judged else None
            if verdict is not None and verdict.ruling is Ruling.REFUSED:
                self._refused(claimed, move, verdict)
                continue
            if verdict is not None and verdict.ruling is Ruling.STALE:
                self.stale += 1
                logger.warning(
                    "the report of attempt %d of %s (%s) came too late and was refused: %s",
                    move.attempt,
                    move.id,
                    claimed.job,
                    verdict.detail or "it has moved on",
                )
            self._leases.leave(move.lease)
            self._events.emit(Ended, claimed, move, verdict)
        return AGAIN if self._waiting else None

    def _refused(self, claimed: Claimed, move: Transition, verdict: Verdict) -> None:
        """What the store cannot keep ends as a failed attempt that says so."""
        logger.error("the end of %s (%s) cannot be kept: %s", move.id, claimed.job, verdict.detail)
        message = f"its outcome cannot be kept: {verdict.detail}"
        failed = after_failure(
            claimed,
            Retry(),
            error=Failure(type="PayloadError", message=message).to_json(),
            kinds=(),
            ran=move.ran or 0.0,
            jitter=0.0,
            permanent=True,
        )
        self._waiting.append((claimed, failed))


def _nothing() -> None:
    pass
