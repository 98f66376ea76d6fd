"""Claiming: as much as can start soon, and no more.

What a worker has claimed is invisible to idle ones, so it claims ahead only as far as its recent
rate of starts justifies: with tasks of a second not at all, with tasks of microseconds hundreds.
Nothing is claimed while too many ends wait to be written: see `completer.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.limits import CLAIM_BATCH_MAX
from daybell.engine.clock import Clock
from daybell.engine.elsewhere import Elsewhere
from daybell.engine.events import Events, Started
from daybell.engine.executor import Executor, is_suspect
from daybell.engine.leases import Leases
from daybell.engine.loop import AGAIN
from daybell.engine.queues import Queues
from daybell.engine.suspects import Suspects
from daybell.store.protocol import Store

POLL_SECONDS: Final = 1.0
# Until a tenant at its quota may have room again: ends elsewhere tell nobody. Twice as long each
# time that there was none, because whoever asks keeps the tenant's others waiting for a moment.
LIMITED_SECONDS: Final = 0.1
LIMITED_SECONDS_MAX: Final = 1.0
CLAIM_MAX: Final = min(500, CLAIM_BATCH_MAX)  # larger ones gain nothing and wait longer
AHEAD_MAX: Final = 2 * CLAIM_MAX
STRANDED_SECONDS: Final = 1.0  # without a start, until what waits for one here goes back
RATE_SMOOTHING: Final = 0.3
CLAIM_SECONDS_MAX: Final = 0.1  # a store slower than this is no reason to take even more ahead


class Dispatcher:
    """From the store into the executor."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        tenant: str,
        worker: UUID,
        queues: Queues,
        kinds: Sequence[str],
        concurrency: int,
        leases: Leases,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        elsewhere: Elsewhere,
        ahead: Seconds = 0.0,
    ) -> None:
        self._store = store
        self._executor = executor
        self._tenant = tenant
        self._worker = worker
        self._queues = queues
        self._kinds = tuple(kinds)
        self._concurrency = concurrency
        self._ahead_seconds = ahead
        self._leases = leases
        self._clock = clock
        self._mint = mint
        self._events = events
        self.elsewhere = elsewhere
        self._buffer: deque[Claimed] = deque()
        self._suspects = Suspects(executor, clock)
        self._asked: tuple[UUID, int] | None = None  # a claim without an answer: lease and limit
        self._started = 0
        self._rate = 0.0  # starts a second, smoothed
        self._rated_at = clock.monotonic()
        self._claim_seconds = 0.01
        self._is_filling = False  # it will look at its slots in a moment
        self._is_dry = False  # the last claim came back short
        self._is_held_up = False  # by ends that wait to be written
        self._limited_seconds = LIMITED_SECONDS  # how long to wait for a quota the next time
        self._moved_at = clock.monotonic()  # when something was started last
        self.is_open = True
        self.wake: Callable[[], None] = _nothing  # set by whoever runs the loop
        self.room: Callable[[], int] = _boundless  # likewise: how many more ends can be reported
        self.give_back: Callable[[Claimed, Seconds], None] = _keep  # likewise
        self.lose: Callable[[], None] = _nothing  # likewise: the lease may be over

    async def tick(self) -> Seconds | None:
        self._return_stranded()
        is_repeated = self._asked is not None
        if not is_repeated and (pause := self.elsewhere.pause) > 0:
            return pause
        asking = self._ask()
        if asking is None:
            if self._is_held_up:
                self._is_dry = False  # it was woken for something that it cannot claim yet
            return None
        lease, limit = asking
        sent = self._clock.monotonic()
        claim = await self._store.claim(
            self._tenant,
            worker=self._worker,
            lease=lease,
            queues=self._queues.order(),
            limit=limit,
            kinds=self._kinds,
        )
        self._asked = None
        self._learn(self._clock.monotonic() - sent)
        self._clock.correct(claim.now, sent)
        self._leases.answer(lease, len(claim.executions))
        self._buffer.extend(claim.executions)
        self._start()
        # A repeated claim is answered with what it took then, and says nothing of what is due now.
        is_short = not is_repeated and len(claim.executions) < limit
        self._is_dry = is_short and not claim.is_limited
        if claim.executions or not claim.is_limited:
            self._limited_seconds = LIMITED_SECONDS
        if not is_short:
            return AGAIN
        if claim.is_limited:
            return self._wait_for_quota()
        if claim.next_due is None:
            return POLL_SECONDS
        patience = max(self._suspects.patience, self.elsewhere.patience(claim.next_due))
        seconds = max(0.0, claim.next_due - claim.now) + patience
        return min(POLL_SECONDS, seconds)

    def _wait_for_quota(self) -> Seconds:
        seconds = self._limited_seconds
        self._limited_seconds = min(2 * seconds, LIMITED_SECONDS_MAX)
        return seconds

    def _ask(self) -> tuple[UUID, int] | None:
        """The claim to make: again the one without an answer, or a new one if there is room.

        What the one without an answer took is invisible to everybody else, so it does not wait for
        a free slot.
        """
        if not self.is_open:
            return None
        if self._asked is None and (limit := self._wanted()) > 0:
            lease = self._mint()
            if self._leases.ask(lease):
                self._asked = lease, limit
        return self._asked

    def fill(self) -> None:
        """Slots were freed: see to them soon, once for all that ends in this turn of the loop."""
        self._limited_seconds = LIMITED_SECONDS
        if not self._is_filling:
            self._is_filling = True
            asyncio.get_running_loop().call_soon(self._fill)

    def make_room(self) -> None:
        """Ends were written: claim again, if they were in the way."""
        if self._is_held_up:
            self.fill()

    def _fill(self) -> None:
        """Start what is buffered, as far as there are slots; ask for more when it runs low.

        Not where the last claim found all there was: what comes later, the store or the poll tells.
        """
        self._is_filling = False
        self._start()
        if not self._is_dry and self._wanted() > 0:
            self.wake()

    def _start(self) -> None:
        if not self.is_open:
            return
        slots = self._concurrency - len(self._executor)
        if slots <= 0 or not (self._buffer or self._suspects):
            return
        now = self._clock.monotonic()
        if now >= self._executor.held_until:
            self.lose()  # the answer had to wait for a process that stood still
            return
        slots -= self._start_suspects(slots)
        if self._buffer and slots > 0:
            self._moved_at = now
        emit, start, take = self._events.emit, self._executor.start, self._buffer.popleft
        while self._buffer and slots > 0:
            claimed = take()
            if is_suspect(claimed):
                delay = self._suspects.add(claimed)
                if delay is not None:
                    self.give_back(claimed, delay)
                continue
            slots -= 1
            self._started += 1
            emit(Started, claimed, is_plain=True)
            start(claimed)
        self._start_suspects(slots)  # that have come with this claim, once all are known

    def _start_suspects(self, slots: int) -> int:
        """Start suspects, as far as they need not wait for each other; answers how many."""
        count = 0
        while count < slots and (claimed := self._suspects.next()) is not None:
            count += 1
            self._events.emit(Started, claimed, is_plain=True)
            self._executor.start(claimed)
        return count

    def close(self) -> list[Claimed]:
        """Claim nothing more, and hand over what was claimed and not started."""
        self.is_open = False
        unstarted = [*self._buffer, *self._suspects.clear()]
        self._buffer.clear()
        return unstarted

    @property
    def unanswered(self) -> list[UUID]:
        """The lease of a claim that may have been made, if there is one."""
        return [] if self._asked is None else [self._asked[0]]

    def _return_stranded(self) -> None:
        """Give back what was claimed ahead of quick tasks and now waits behind slow ones, while
        other workers may be idle.
        """
        for claimed, delay in self._suspects.stranded():
            self.give_back(claimed, delay)
        now = self._clock.monotonic()
        if not self._buffer or now - self._moved_at < STRANDED_SECONDS:
            return
        for claimed in self._buffer:
            self.give_back(claimed, 0.0)
        self._buffer.clear()
        self._rate, self._started, self._rated_at = 0.0, 0, now

    def _wanted(self) -> int:
        """How many to claim now; nothing while what is in hand will last."""
        buffered = len(self._buffer)
        ahead = self._ahead()
        free = self._concurrency + ahead - len(self._executor) - buffered
        wanted = min(free, room := self.room() - buffered)
        self._is_held_up = room < free
        # Not one at a time when many pass: wait until half of what may be ahead is used up.
        return min(wanted, CLAIM_MAX) if wanted > ahead // 2 else 0

    def _ahead(self) -> int:
        """What will start while the next two claims are on their way, beyond the free slots.

        With few slots more, or there would be a claim for every few.
        """
        seconds = max(min(self._claim_seconds, CLAIM_SECONDS_MAX) * 2, self._ahead_seconds)
        starting = int(self._rate * seconds)
        return 0 if starting < self._concurrency / 4 else min(starting, AHEAD_MAX)

    def _learn(self, claim_seconds: Seconds) -> None:
        now = self._clock.monotonic()
        elapsed = now - self._rated_at
        if elapsed >= 0.005:
            self._rate += RATE_SMOOTHING * (self._started / elapsed - self._rate)
            self._started, self._rated_at = 0, now
        self._claim_seconds += RATE_SMOOTHING * (claim_seconds - self._claim_seconds)


def _nothing() -> None:
    pass


def _boundless() -> int:
    return AHEAD_MAX + CLAIM_MAX


def _keep(claimed: Claimed, delay: Seconds) -> None:
    raise AssertionError("nobody takes back what was claimed")
