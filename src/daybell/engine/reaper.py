"""Taking work out of dead workers' hands. Any node does it; the store lets one of them win."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import groupby
from math import inf
from uuid import UUID

from daybell.core.instant import Seconds
from daybell.core.lifecycle import Ruling, after_loss
from daybell.core.limits import REAP_BATCH_MAX
from daybell.engine.clock import JUMP_SECONDS, Clock
from daybell.engine.events import Events, WorkerLost
from daybell.engine.executor import is_suspect
from daybell.engine.leases import LEASE_SECONDS
from daybell.engine.loop import AGAIN
from daybell.engine.suspects import probation
from daybell.errors import ExecutionNotFound, Unavailable
from daybell.store.outcomes import Lost
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.reaper")


class Reaper:
    """Finds dead workers, and decides what becomes of what they held.

    While the store was away nobody could renew. So after that the living are given a lease's time
    to be heard of before anybody is declared dead; and likewise when the store's clock has jumped,
    which ends all leases at once without anybody having been silent. Of what was before its own
    first look a node knows only what others have recorded in the store (`core.watch`): where no
    process lives for a whole lease, they add up.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        events: Events,
        lease: Seconds = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._events = events
        self._lease = lease
        self._is_store_away = False
        self._heard_at = clock.monotonic()
        # By the store's clock: the first look, or the one after it was away. Only a clock that
        # cannot jump needs none.
        self._since = -inf if clock.steady_since() == -inf else inf
        self.is_any_waiting = False  # at a gate, as of the last look
        self.is_any_overdue = False  # a wait for an event, as of then

    async def tick(self) -> Seconds | None:
        try:
            return await self._tick()
        except Unavailable:
            self._is_store_away = True
            raise

    async def _tick(self) -> Seconds | None:
        sent = self._clock.monotonic()
        # In a shorter absence nobody has missed more than one renewal.
        was_away = self._is_store_away and sent - self._heard_at > self._lease / 3
        is_first = self._since == inf
        losses = await self._store.lost(
            limit=REAP_BATCH_MAX,
            since=max(self._since, self._clock.steady_since()),
            not_after=-inf if was_away else inf if is_first else self._clock.now() + JUMP_SECONDS,
            record_every=self._lease / 2,
        )
        if is_first or was_away or self._clock.monotonic() - sent > self._lease / 3:
            # An answer that took so long says as little about what the clock did meanwhile.
            self._since = losses.now
        self._is_store_away, self._heard_at = False, sent
        self._clock.correct(losses.now, sent)
        self.is_any_waiting = losses.is_any_waiting
        self.is_any_overdue = losses.is_any_overdue
        moved, lost = 0, losses.executions
        for (tenant, worker), group in groupby(sorted(lost, key=_owner), key=_owner):
            moved += await self._reap(tenant, worker, list(group))
        return AGAIN if moved and len(lost) >= REAP_BATCH_MAX else None

    async def _reap(self, tenant: str, worker: UUID, lost: list[Lost]) -> int:
        proven = await self._proven(tenant, lost)
        moves = [
            after_loss(
                entry.claimed,
                max_crashes=entry.max_crashes,
                retry=entry.retry,
                is_begun=entry.ran is not None,
                is_excused=entry.is_excused,
                is_sole=entry.is_sole,
                is_proven=entry.claimed.id in proven,
            )
            for entry in lost
        ]
        verdicts = await self._store.apply(tenant, worker=worker, transitions=moves, wait=False)
        left = {
            (verdict.id, verdict.attempt)
            for verdict in verdicts
            if verdict.ruling is not Ruling.CANCELLED  # it was taken, too, and is over
        }
        for entry, move in zip(lost, moves, strict=True):
            if (move.id, move.attempt) not in left:
                self._events.emit(WorkerLost, entry.claimed, move)
        moved = len(moves) - len(left)
        if moved:
            logger.warning("worker %s is gone; %d executions were taken from it", worker, moved)
        return moved

    async def _proven(self, tenant: str, lost: list[Lost]) -> set[UUID]:
        """Suspects that had outlived their probation, if others had not: those are more likely to
        be what has killed the worker.
        """
        begun = {
            one.claimed.id: one.ran
            for one in lost
            if one.ran is not None and is_suspect(one.claimed)
        }
        proven = set[UUID]()
        for id, ran in begun.items() if len(begun) > 1 else ():
            with suppress(ExecutionNotFound):
                if ran > probation(await self._store.get_execution(tenant, id)):
                    proven.add(id)
        return proven if len(proven) < len(begun) else set()


def _owner(lost: Lost) -> tuple[str, UUID]:
    return lost.claimed.tenant, lost.worker
