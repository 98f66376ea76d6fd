"""Waits of remote workers: one listener of the store for all of them, and renewals in groups.

Workers with the same queues and kinds are a group. When something may be claimable, the waits of a
group end a few at a time, until a claim finds no more: so one execution does not call a thousand
workers. A group without a worker that waits costs nothing; an idle one costs a claim a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.job import JobDefinition
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Claim, Renewal
from daybell.errors import DaybellError
from daybell.store.protocol import Store
from daybell.store.shares import set_holder
from daybell.store.wakeups import pause

logger = logging.getLogger("daybell.api")

PROBE_SECONDS: Final[Seconds] = 1.0  # between two claims of a group that finds nothing
FRESH_SECONDS: Final[Seconds] = 0.8  # for which an answer without executions holds
STEP_SECONDS: Final[Seconds] = 0.02  # between two rounds that end waits
GATHER_SECONDS: Final[Seconds] = 0.5  # renewals of idle workers
GATHER_SHARE: Final = 1 / 30  # likewise, of the lease
GROUPS_MAX: Final = 1_000


class WaitEnd(Enum):
    """The end of a wait."""

    DUE = "something may be claimable"
    NEWS = "a renewal has news for the worker"
    OVER = "the time is over, or the server stops"


class GroupKey(NamedTuple):
    """What the workers of a group have in common."""

    tenant: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]


class WaitGroup:
    """The waits of workers that claim the same."""

    def __init__(self, monotonic: Callable[[], Seconds], *, is_for_news: bool = False) -> None:
        self._monotonic = monotonic
        self._is_for_news = is_for_news  # it has no queues
        self.waits: dict[asyncio.Future[WaitEnd], UUID] = {}  # in their order, with the worker
        self._is_dry = False
        self._signals = 0
        self._claimed_at: Seconds | None = None
        self._answered: Claim | None = None
        self._rousing: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None

    @property
    def is_unused(self) -> bool:
        return not self.waits and self._rousing is None

    def wake(self) -> None:
        """End waits: something may be claimable."""
        if self._is_for_news:
            return
        self._is_dry = False
        self._signals += 1
        if self.waits:
            self._end_next()

    def _end_next(self) -> None:
        """End one wait, and more after a while, unless a claim finds the end of the work."""
        if self._rousing is None:
            self._rousing = asyncio.get_running_loop().create_task(self._rouse())
        else:
            self._end_some(1)

    async def _rouse(self) -> None:
        count = 1
        try:
            while self.waits and not self._is_dry:
                self._end_some(count)
                count *= 2
                await pause(STEP_SECONDS)
        finally:
            self._rousing = None

    def _end_some(self, count: int) -> None:
        for wait in list(self.waits)[:count]:
            del self.waits[wait]
            if not wait.done():
                wait.set_result(WaitEnd.DUE)

    def last_claim(self, lease: UUID) -> Claim | None:
        """Return an empty claim if the last one found nothing, a moment ago, and no signal came
        since; None: ask the store.
        """
        last, at = self._answered, self._claimed_at
        if not self._is_dry or last is None or at is None or last.is_limited:
            return None
        age = self._monotonic() - at
        if age >= FRESH_SECONDS:
            return None
        return Claim(lease=lease, now=last.now + age, executions=[], next_due=last.next_due)

    async def claim(self, limit: int, ask: Callable[[], Awaitable[Claim]]) -> Claim:
        """Claim, and remember whether there was nothing left."""
        signals = self._signals
        self._claimed_at = self._monotonic()
        found = await ask()
        is_dry = len(found.executions) < limit
        if is_dry and signals == self._signals:
            self._is_dry, self._answered = True, found
            self._wake_at(found.next_due, found.now)
        elif not is_dry:
            self.wake()  # there may be more, for other workers
        return found

    def _wake_at(self, due: Instant | None, now: Instant) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(max(0.0, due - now), self.wake)

    async def wait(self, worker: UUID, seconds: Seconds) -> WaitEnd:
        """Wait until something may be claimable, or there is news for the worker."""
        loop = asyncio.get_running_loop()
        wait: asyncio.Future[WaitEnd] = loop.create_future()
        self.waits[wait] = worker
        if self._probe is None and not self._is_for_news:
            self._probe = loop.call_later(PROBE_SECONDS, self._probe_store)
        if not self._is_dry and not self._is_for_news:
            self._end_next()  # what came before this wait
        try:
            async with asyncio.timeout(seconds):
                return await wait
        except TimeoutError:
            return WaitEnd.OVER
        finally:
            self.waits.pop(wait, None)

    def _probe_store(self) -> None:
        """Let one worker claim: signals of the store can be lost."""
        self._probe = None
        if self.waits:
            self._probe = asyncio.get_running_loop().call_later(PROBE_SECONDS, self._probe_store)
            self._end_some(1)

    def tell(self, is_busy: Callable[[UUID], bool]) -> None:
        """End the waits of workers that hold executions: a renewal may have news of these."""
        for wait, worker in list(self.waits.items()):
            if not wait.done() and is_busy(worker):
                wait.set_result(WaitEnd.NEWS)

    def close(self) -> None:
        for timer in (self._due, self._probe):
            if timer is not None:
                timer.cancel()
        self._due = self._probe = None
        if self._rousing is not None:
            self._rousing.cancel()
        for wait in self.waits:
            if not wait.done():
                wait.set_result(WaitEnd.OVER)


class TenantListener:
    """The listener for the queues that workers of one tenant wait for."""

    def __init__(self) -> None:
        self.queues: frozenset[str] = frozenset()
        self.stop: Callable[[], Awaitable[None]] | None = None
        self.lock = asyncio.Lock()

    def hears(self, queues: Collection[str]) -> bool:
        """Return True if it listens for these queues."""
        return self.stop is not None and self.queues.issuperset(queues)


class Polls:
    """All waits of remote workers in this process."""

    def __init__(self, monotonic: Callable[[], Seconds]) -> None:
        self._monotonic = monotonic
        self._groups: dict[GroupKey, WaitGroup] = {}
        self._listeners: dict[str, TenantListener] = {}
        self._is_closed = False
        self.held = HeldClaims()
        self.renewals = IdleRenewals()
        self._news: set[tuple[str, UUID]] = set()  # workers without a wait to be told by
        self.definitions: OrderedDict[tuple[str, str, int], JobDefinition] = OrderedDict()

    def group(self, key: GroupKey) -> WaitGroup:
        """Return the group of these queues and kinds."""
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) >= GROUPS_MAX:
                unused = [one for one, group in self._groups.items() if group.is_unused]
                for one in unused:
                    self._groups.pop(one).close()
            found = WaitGroup(self._monotonic, is_for_news=not key.queues)
            self._groups[key] = found
        return found

    async def wait(self, store: Store, key: GroupKey, worker: UUID, seconds: Seconds) -> WaitEnd:
        """Wait in a group. A server that stops ends all waits."""
        if self._is_closed:
            return WaitEnd.OVER
        await self._listen(store, key)
        end = WaitEnd.NEWS
        if (key.tenant, worker) not in self._news:
            end = await self.group(key).wait(worker, seconds)
        if end is WaitEnd.NEWS:
            self.forget_news(key.tenant, worker)
        return end

    def forget_news(self, tenant: str, worker: UUID) -> None:
        """Note that a worker renews its lease, which brings its news."""
        self._news.discard((tenant, worker))

    async def _listen(self, store: Store, key: GroupKey) -> None:
        """Listen for these queues, too; without notifications, the groups probe every second."""
        listener = self._listeners.setdefault(key.tenant, TenantListener())
        if listener.hears(key.queues):
            return
        async with listener.lock:
            if listener.hears(key.queues) or self._is_closed:
                return
            queues = listener.queues.union(key.queues)
            set_holder(None)  # it listens for all workers
            try:
                stop = await store.listen(
                    key.tenant,
                    queues,
                    lambda: self._wake(key.tenant),
                    ask=lambda: self._tell(key.tenant),
                )
            except DaybellError as error:
                logger.warning("no notifications for remote workers, only polls: %s", error)
                return
            before, listener.stop, listener.queues = listener.stop, stop, queues
            if before is not None:
                await before()
            else:
                self._tell(key.tenant)  # what was said before it listened

    def _wake(self, tenant: str) -> None:
        for key, group in self._groups.items():
            if key.tenant == tenant:
                group.wake()

    def _tell(self, tenant: str) -> None:
        """Have the workers of a tenant that hold executions renew, now or when they wait next."""
        self._news = {key for key in self._news if key[0] != tenant}
        self._news.update(self.held.workers(tenant))
        for key, group in self._groups.items():
            if key.tenant == tenant:
                group.tell(partial(self.held.is_busy, tenant))

    async def close(self) -> None:
        """End all waits, and refuse new ones."""
        self._is_closed = True
        for group in self._groups.values():
            group.close()
        for listener in self._listeners.values():
            async with listener.lock:
                if listener.stop is not None:
                    await listener.stop()
                    listener.stop = None


class RenewalBatch(NamedTuple):
    """Renewals that wait to be made together."""

    waits: dict[UUID, asyncio.Future[Renewal | None]]
    task: asyncio.Task[None]


class IdleRenewals:
    """Renewals of workers that know of no claim: those of half a second are one write."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, Seconds], RenewalBatch] = {}

    async def renew(self, store: Store, tenant: str, worker: UUID, lease: Seconds) -> Renewal:
        """Renew. Raises LeaseLost and Unavailable."""
        key = tenant, lease
        batch = self._batches.get(key)
        if batch is None:
            loop = asyncio.get_running_loop()
            batch = RenewalBatch({}, loop.create_task(self._send(store, *key)))
            self._batches[key] = batch
        wait = batch.waits.get(worker)
        if wait is None:
            wait = batch.waits[worker] = asyncio.get_running_loop().create_future()
        renewal = await asyncio.shield(wait)
        if renewal is None:  # dead, unknown, or it holds something
            return await store.queue.renew(tenant, worker=worker, lease=lease, leases=())
        return renewal

    async def _send(self, store: Store, tenant: str, lease: Seconds) -> None:
        set_holder(None)  # it speaks for many workers
        await pause(min(GATHER_SECONDS, lease * GATHER_SHARE))
        waits = self._batches.pop((tenant, lease)).waits
        try:
            found = await store.queue.renew_idle(tenant, workers=list(waits), lease=lease)
        except BaseException as error:
            for wait in waits.values():
                if not wait.done():
                    wait.set_exception(error)
                    wait.exception()  # retrieved, in case that no request waits for it any more
            if not isinstance(error, Exception):
                raise
            return
        for worker, wait in waits.items():
            if not wait.done():
                wait.set_result(found.get(worker))


# Claims that workers hold, so that a report need not carry what only the store knows.

Held = dict[tuple[UUID, int], Claimed]
HELD_MAX: Final = 200_000  # executions; those of the oldest claims are asked for again


class HeldClaims:
    """The executions that remote workers hold, as far as they were claimed by way of this process,
    without their arguments.
    """

    def __init__(self) -> None:
        self._claims: OrderedDict[tuple[str, UUID, UUID], Held] = OrderedDict()
        self._workers: dict[tuple[str, UUID], set[UUID]] = {}  # with their leases
        self._count = 0

    def add(self, tenant: str, worker: UUID, claim: Claim) -> Held:
        """Add the answer to a claim, or replace an earlier answer to it."""
        key = tenant, worker, claim.lease
        self.drop(tenant, worker, claim.lease)
        held = {(one.id, one.attempt): _without_values(one) for one in claim.executions}
        if held:
            self._claims[key] = held
            self._workers.setdefault(key[:2], set()).add(claim.lease)
            self._count += len(held)
            while self._count > HELD_MAX and len(self._claims) > 1:
                self.drop(*next(iter(self._claims)))
        return held

    async def find(self, store: Store, tenant: str, worker: UUID, lease: UUID) -> Held:
        """Return what a worker holds under a lease. Raises LeaseLost and Unavailable."""
        held = self._claims.get((tenant, worker, lease))
        if held is not None:
            return held
        # Without queues, it takes nothing new.
        claim = await store.queue.claim(
            tenant, worker=worker, lease=lease, queues=(), limit=CLAIM_BATCH_MAX
        )
        return self.add(tenant, worker, claim)

    def leave(self, tenant: str, worker: UUID, lease: UUID, fence: tuple[UUID, int]) -> None:
        """Remove one execution that the worker does not hold any more."""
        held = self._claims.get((tenant, worker, lease))
        if held is not None and held.pop(fence, None) is not None:
            self._count -= 1
            if not held:
                self.drop(tenant, worker, lease)

    def keep(self, tenant: str, worker: UUID, leases: Collection[UUID]) -> None:
        """Remove the leases of a worker that it does not name."""
        for lease in self._workers.get((tenant, worker), set[UUID]()).difference(leases):
            self.drop(tenant, worker, lease)

    def drop(self, tenant: str, worker: UUID, lease: UUID) -> None:
        """Remove a lease."""
        held = self._claims.pop((tenant, worker, lease), None)
        if held is None:
            return
        self._count -= len(held)
        leases = self._workers[tenant, worker]
        leases.discard(lease)
        if not leases:
            del self._workers[tenant, worker]

    def workers(self, tenant: str) -> list[tuple[str, UUID]]:
        """Return the workers of a tenant that hold anything."""
        return [key for key in self._workers if key[0] == tenant]

    def is_busy(self, tenant: str, worker: UUID) -> bool:
        """Return True if a worker holds anything."""
        return (tenant, worker) in self._workers


def _without_values(one: Claimed) -> Claimed:
    """Return an execution without its values; the arguments of a workflow make its plan."""
    args = one.args if one.kind == "workflow" else "{}"
    return msgspec.structs.replace(one, args=args, checkpoint=None)
