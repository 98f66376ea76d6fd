"""Telling the store what executions led to, in groups.

While one group is being written, the next gathers: alone on an idle system an end is written at
once, under load hundreds go together. Nothing is dropped while the store is away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from daybell.core.execution import TERMINAL, Claimed, State
from daybell.core.failure import Failure
from daybell.core.instant import Seconds
from daybell.core.lifecycle import Ruling, Transition, Verdict, after_failure
from daybell.core.limits import APPLY_BATCH_MAX
from daybell.core.retry import Retry
from daybell.engine.events import Ended, Events
from daybell.engine.leases import Leases
from daybell.engine.loop import AGAIN
from daybell.errors import DaybellError
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

End = tuple[Claimed, Transition]
Judged = Mapping[tuple[UUID, int], Verdict]  # those that were not simply made


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
        self._group_max = APPLY_BATCH_MAX
        self._refusals: set[UUID] = set()  # on their way as failed attempts
        self.stale = 0  # reports that came too late
        self.wake: Callable[[], None] = _nothing  # set by whoever runs the loop
        self.returned: Callable[[], None] = _nothing  # told of what can be claimed again, some time

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, claimed: Claimed, move: Transition) -> None:
        """Have an end written."""
        waiting = self._waiting
        waiting.append((claimed, move))
        if len(waiting) == 1:  # else it is awake, or will look once more after this group
            self.wake()

    async def tick(self) -> Seconds | None:
        group = self._waiting[: self._group_max]
        if not group:
            return None
        try:
            verdicts = await self._store.apply(
                self._tenant, worker=self._worker, transitions=[move for _, move in group]
            )
        except DaybellError:
            raise
        except Exception:
            self._isolate(len(group))
            raise
        # Only now: had this raised, they would still be here to be sent again.
        del self._waiting[: len(group)]
        self._group_max = min(2 * self._group_max, APPLY_BATCH_MAX)
        judged = {(verdict.id, verdict.attempt): verdict for verdict in verdicts}
        if judged:
            group = [end for end in group if not self._is_sent_anew(*end, judged)]
        if self._refusals:
            self._refusals.difference_update(move.id for _, move in group)
        self._leases.leave([move.lease for _, move in group])
        if any(move.target not in TERMINAL for _, move in group):
            self.returned()
        self._tell(group, judged)
        return AGAIN if self._waiting else None

    def _tell(self, group: list[End], judged: Judged) -> None:
        for claimed, move in group:
            verdict = judged.get((move.id, move.attempt)) if judged else None
            is_plain = verdict is None and move.target is State.SUCCEEDED
            self._events.emit(Ended, claimed, move, verdict, is_plain=is_plain)

    def _isolate(self, count: int) -> None:
        """Something in a group of so many breaks the store in a way that it does not know itself:
        find it by halves, and let all others go first. Nothing is given up.
        """
        if count > 1:
            self._group_max = count // 2
        else:
            self._waiting.append(self._waiting.pop(0))

    def _is_sent_anew(self, claimed: Claimed, move: Transition, judged: Judged) -> bool:
        """Take in that a move was not simply made; say whether another is made in its place."""
        verdict = judged.get((move.id, move.attempt))
        if verdict is None:
            return False
        if verdict.ruling is Ruling.REFUSED:
            logger.error(
                "the end of %s (%s) cannot be kept: %s", move.id, claimed.job, verdict.detail
            )
            if move.id not in self._refusals:
                self._refusals.add(move.id)
                self._waiting.append((claimed, _refused(claimed, move, verdict)))
                return True
            # Not even that can be kept: it is left to the end of the lease.
        elif verdict.ruling is Ruling.STALE:
            self.stale += 1
            logger.warning(
                "the report of attempt %d of %s (%s) came too late and was refused: %s",
                move.attempt,
                move.id,
                claimed.job,
                verdict.detail or "it has moved on",
            )
        return False


def _refused(claimed: Claimed, move: Transition, verdict: Verdict) -> Transition:
    """What the store cannot keep ends as a failed attempt that says so."""
    message = f"its outcome cannot be kept: {verdict.detail}"
    return after_failure(
        claimed,
        Retry(),
        error=Failure(type="PayloadError", message=message).to_json(),
        kinds=(),
        ran=move.ran or 0.0,
        jitter=0.0,
        permanent=True,
    )


def _nothing() -> None:
    pass
