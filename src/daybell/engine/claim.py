"""Claims: how many executions to take, from which queue first, and which to return for another
worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.limits import CLAIM_BATCH_MAX, check_name
from daybell.core.options import DEFAULT_QUEUE
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Offer
from daybell.engine.events import Events, Started
from daybell.engine.execute import Executor, Suspects, is_suspect
from daybell.engine.lease import Leases
from daybell.engine.loop import AGAIN, Clock
from daybell.errors import Unavailable, UsageError, shown
from daybell.store.protocol import Store

# What this worker cannot run and another live one can: it goes back, for that one to take.
#
# Workers claim by queue and kind. Which tasks a worker's code has is not part of a lane, so two
# apps in one queue, or old and new code, take what is the other's. Whoever does so gives it back
# soon, and then lets others come first; but it does not ask so often that it wears out the store.

logger = logging.getLogger("daybell.worker")

OFFERS_FRESH_SECONDS: Final = 10.0  # for so long it counts that somebody offers something,
OFFERS_RETRY_SECONDS: Final = 1.0  # and that nobody does
OFFERS_TIMEOUT_SECONDS: Final = 2.0  # for an answer of the store
# Until it may be claimed again, so that others know by then when that is: they hear of what is due
# within a second. It grows by an eighth of what it waited so far while they are full, since each
# time is an attempt on record.
RETURN_SECONDS: Final = 0.5
RETURN_SECONDS_MAX: Final = 60.0
RETURN_GROWTH: Final = 1.15
RETURN_SPREAD: Final = (
    0.25  # so much longer for some, or who asks first would get all of them again
)
# Others come first; much earlier to what this worker itself has given back, since each of two may
# give back what is the other's.
YIELD_SECONDS: Final = 0.02
YIELD_OWN_SECONDS: Final = 0.25
YIELD_FOR_SECONDS: Final = 6.0  # after the last that went back
NEAR_SECONDS: Final = 0.1  # what is due so soon after what went back was to be may be that
RETURNED_MAX: Final = 100
# For each that went back, before the next claim: a backlog that is not ours is for others to take.
# Not for long: what is ours may be behind it.
PAUSE_SECONDS: Final = 0.002
PAUSE_SECONDS_MAX: Final = 0.5


class TaskRouting:
    """Knows what other live workers offer, and how to make room for them."""

    def __init__(self, store: Store, *, tenant: str, clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._clock = clock
        self._offers: list[Offer] = []
        self._looked_at: Seconds = -inf
        self._looking = asyncio.Lock()
        self._told: set[str] = set()
        self._returned_at: Seconds | None = None  # the last one that went back
        self._returned: deque[Instant] = deque(maxlen=RETURNED_MAX)  # when each is due, about
        self._paused_until = clock.monotonic()

    async def delay(self, claimed: Claimed, lacking: str) -> Seconds | None:
        """After how long one goes back that somebody else can run; None: nobody is known to."""
        if not await self._is_offered(claimed.queue, lacking):
            return None
        if lacking not in self._told:
            self._told.add(lacking)
            logger.warning(
                "%s of queue %r goes back, as all that this worker lacks (%s) and another one has;"
                " give each a queue of its own",
                claimed.job, claimed.queue, lacking,
            )  # fmt: skip
        now = self._clock.monotonic()
        self._returned_at = now
        pause = max(0.0, self._paused_until - now) + PAUSE_SECONDS
        self._paused_until = now + min(pause, PAUSE_SECONDS_MAX)
        times = max(0, claimed.attempt - claimed.failures - claimed.crashes - 1)
        seconds = min(RETURN_SECONDS * RETURN_GROWTH ** min(times, 40), RETURN_SECONDS_MAX)
        seconds *= 1 + RETURN_SPREAD * self._clock.jitter()
        self._returned.append(self._clock.now() + seconds)
        return seconds

    def patience(self, due: Instant) -> Seconds:
        """How much later to ask for what is due then than others do: what went back would come
        again.
        """
        if self._returned_at is None:
            return 0.0
        if any(0 <= due - one <= NEAR_SECONDS for one in self._returned):
            return YIELD_OWN_SECONDS
        is_over = self._clock.monotonic() - self._returned_at > YIELD_FOR_SECONDS
        return 0.0 if is_over else YIELD_SECONDS

    @property
    def pause(self) -> Seconds:
        """How long not to ask at all."""
        return self._paused_until - self._clock.monotonic()

    async def _is_offered(self, queue: str, lacking: str) -> bool:
        async with self._looking:  # once for all that were claimed together
            is_offered = any(one.has(lacking, queue=queue) for one in self._offers)
            age = self._clock.monotonic() - self._looked_at
            if age <= (OFFERS_FRESH_SECONDS if is_offered else OFFERS_RETRY_SECONDS):
                return is_offered
            # Only advice: nobody waits long for it, nor asks again at once who had no answer.
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(OFFERS_TIMEOUT_SECONDS):
                    self._offers = await self._store.offers(self._tenant)
            self._looked_at = self._clock.monotonic()
            return any(one.has(lacking, queue=queue) for one in self._offers)


# Which queue is asked first: a smooth weighted rotation.


class Queues:
    """A worker's queues with their weights.

    Each claim goes through all queues, in an order in which a queue of weight 3 is first three
    times as often as one of weight 1. So a long backlog in one never starves another.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        for name, weight in weights.items():
            check_name(name, what="queue")
            if not 1 <= weight <= 1000:
                raise UsageError(f"queue {shown(name)}: weight {weight} must be from 1 to 1000")
        self._weights = dict(weights) or {DEFAULT_QUEUE: 1}
        self._credit = dict.fromkeys(self._weights, 0)

    @classmethod
    def parse(cls, text: str) -> Queues:
        """Read `mail=3,default`: names, each with a weight if it is not 1."""
        weights: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, weight = (piece.strip() for piece in part.partition("="))
            # Ten digits are too many already, and int() refuses very many with another error.
            if equals and not (weight.isdecimal() and len(weight) < 10):
                raise UsageError(f"{shown(part)}: write queues as name or name=weight")
            if name in weights:
                raise UsageError(f"queue {shown(name)} is named twice in {shown(text)}")
            weights[name] = int(weight) if equals else 1
        return cls(weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def order(self) -> list[str]:
        """The queues in the order in which the next claim should look at them."""
        if len(self._weights) == 1:
            return list(self._weights)
        for name, weight in self._weights.items():
            self._credit[name] += weight
        order = sorted(self._weights, key=lambda name: -self._credit[name])
        self._credit[order[0]] -= sum(self._weights.values())
        return order


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
        elsewhere: TaskRouting,
        ahead: Seconds = 0.0,
        wake: Callable[[], None],  # the loop around `tick`
        room: Callable[[], int],  # how many more ends can be reported
        give_back: Callable[[Claimed, Seconds], None],  # an execution that was not started
        lose: Callable[[], None],  # the lease may be over
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
        self._elsewhere = elsewhere
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
        self._wake = wake
        self._room = room
        self._give_back = give_back
        self._lose = lose

    async def tick(self) -> Seconds | None:
        self._return_stranded()
        is_repeated = self._asked is not None
        if not is_repeated and (pause := self._elsewhere.pause) > 0:
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
        patience = max(self._suspects.patience, self._elsewhere.patience(claim.next_due))
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
            self._wake()

    def _start(self) -> None:
        if not self.is_open:
            return
        slots = self._concurrency - len(self._executor)
        if slots <= 0 or not (self._buffer or self._suspects):
            return
        now = self._clock.monotonic()
        if now >= self._executor.held_until:
            self._lose()  # the answer had to wait for a process that stood still
            return
        slots -= self._start_suspects(slots)
        if self._buffer and slots > 0:
            self._moved_at = now
        is_followed = self._events.is_followed
        start, take = self._executor.start, self._buffer.popleft
        while self._buffer and slots > 0:
            claimed = take()
            if is_suspect(claimed):
                delay = self._suspects.add(claimed)
                if delay is not None:
                    self._give_back(claimed, delay)
                continue
            slots -= 1
            self._started += 1
            if is_followed:
                self._events.emit(Started, claimed, is_plain=True)
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
            self._give_back(claimed, delay)
        now = self._clock.monotonic()
        if not self._buffer or now - self._moved_at < STRANDED_SECONDS:
            return
        for claimed in self._buffer:
            self._give_back(claimed, 0.0)
        self._buffer.clear()
        self._rate, self._started, self._rated_at = 0.0, 0, now

    def _wanted(self) -> int:
        """How many to claim now; nothing while what is in hand will last."""
        buffered = len(self._buffer)
        ahead = self._ahead()
        free = self._concurrency + ahead - len(self._executor) - buffered
        wanted = min(free, room := self._room() - buffered)
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
