"""Workers and their leases."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol
from uuid import UUID

from daybell.core.instant import Instant, Seconds
from daybell.core.worker import NewWorker, Offer, Renewal, Worker
from daybell.store.outcomes import Losses


class Workers(Protocol):
    """Leases: who is alive, and what to do with the work of those who are not."""

    async def register(
        self, tenant: str, worker: NewWorker, *, lease: Seconds, replaces: UUID | None = None
    ) -> Renewal:
        """Add a worker, live, its lease ending `lease` seconds from the store's now.
        Registering the same id again is answered like a renewal, unless it is dead:
        LeaseLost.

        `replaces` is the id under which the same worker has stopped all its work, because the
        store was late or away. That one is excused from then on: its lease ends as any other, and
        `lost` says that no execution is to be charged for it.
        """
        ...

    async def renew(
        self, tenant: str, *, worker: UUID, lease: Seconds, leases: Sequence[UUID]
    ) -> Renewal:
        """Prolong the worker's lease, for all that it runs, in one write. Raises LeaseLost if
        it is unknown or dead.

        `leases` are all claims that the worker knows of, answered or still under way. What it
        holds under any other lease came from a claim whose answer was lost, and is released to
        be claimed again.
        """
        ...

    async def drain(self, tenant: str, worker: UUID) -> bool:
        """Ask a live worker to stop claiming; it learns so at its next renewal or claim. False:
        no such live worker.
        """
        ...

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        """Give back all that is unfinished under these leases, uncharged; answers how many."""
        ...

    async def retire(self, tenant: str, worker: UUID) -> None:
        """The worker ends in good order: it is dead from now on. What it still holds is found
        by `lost`.
        """
        ...

    async def record_sole(self, tenant: str, *, worker: UUID, execution: UUID | None) -> bool:
        """Record which execution is the only suspect that the worker runs; None: there is no such
        one. False: no such live worker.
        """
        ...

    async def lost(
        self,
        *,
        limit: int = 1000,
        since: Instant = -inf,
        not_after: Instant = inf,
        record_every: Seconds = inf,
    ) -> Losses:
        """Mark workers whose lease has ended as dead, and list executions still in the hands of
        dead workers, of any tenant.

        A renewal that comes at the same moment either wins, and the worker lives, or finds
        itself dead. Workers whose row another transaction has locked are left for the next
        time.

        All times are the store's. The caller knows of its clock that it has run evenly from
        `since` on, and infinite means that it knows nothing yet. A lease has ended when its worker
        was silent for so long in watched time: that of the caller, and of those before it
        (`core.watch`). The caller's is added to the record for others if that is `record_every`
        seconds old. If it is later than `not_after`, the clock has jumped or the store was away:
        nobody is marked, and the record begins anew.

        Marking and listing change no execution: the caller decides for each
        (`core.lifecycle.after_loss`) and applies it with `wait=False`. Says in passing whether
        anything waits at a gate, which `admit` may let in.
        """
        ...

    async def list_workers(self, tenant: str, *, include_dead: bool = False) -> list[Worker]:
        """Workers of this tenant, oldest first."""
        ...

    async def offers(self, tenant: str) -> list[Offer]:
        """What workers of this tenant offer that are live and hold their lease, in no order. Those
        that offer the same are one, so that the answer is short in a large fleet.
        """
        ...
