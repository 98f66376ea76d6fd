"""Many executions at once, by their ids: cancelled, or run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from daybell.client.bulk import Retrial
from daybell.client.requests import Id, read_id
from daybell.core.execution import Enqueued
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.errors import Conflict, DuplicateKey, JobNotFound, NotFound, UsageError
from daybell.store.outcomes import Cancellation, Revival
from daybell.store.protocol import Store


class Picks:
    """The verbs of `Client` for executions that are named one by one. One that cannot be done stops
    no other.
    """

    store: Store
    tenant: str

    async def retry(self, id: Id, *, force: bool = False) -> Enqueued:
        raise NotImplementedError  # see `Client`

    async def cancel_picked(self, ids: Iterable[Id]) -> Counter[Cancellation]:
        """Cancel these; answers how many went which way."""
        answers: Counter[Cancellation] = Counter()
        for some in _batches(ids):
            answers.update(await self.store.cancel(self.tenant, some))
        return answers

    async def retry_picked(self, ids: Iterable[Id], *, force: bool = False) -> Counter[Retrial]:
        """Run these again, each as `retry` would; answers how many went which way."""
        answers: Counter[Retrial] = Counter()
        for some in _batches(ids):
            revivals = await self.store.revive(self.tenant, some)
            for id, revival in zip(some, revivals, strict=True):
                if revival is Revival.REVIVED:
                    answers[Retrial.REVIVED] += 1
                elif revival is Revival.KEY_HELD:
                    answers[Retrial.KEY_HELD] += 1
                else:
                    answers[await self._retry_other(id, force=force)] += 1
        return answers

    async def _retry_other(self, id: UUID, *, force: bool) -> Retrial:
        """Run one again that was not dead when it was looked at."""
        try:
            answer = await self.retry(id, force=force)
        except DuplicateKey:
            return Retrial.KEY_HELD
        except (JobNotFound, UsageError):
            return Retrial.REFUSED
        except (Conflict, NotFound):
            return Retrial.CHANGED
        return Retrial.REVIVED if answer.id == id else Retrial.RENEWED


def _batches(ids: Iterable[Id]) -> Iterable[Sequence[UUID]]:
    wanted = list(dict.fromkeys(read_id(id) for id in ids))
    for start in range(0, len(wanted), PAGE_ITEMS_MAX):
        yield wanted[start : start + PAGE_ITEMS_MAX]
