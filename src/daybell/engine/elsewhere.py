"""What this worker cannot run and another live one can: it goes back, for that one to take.

Workers claim by queue and kind. Which tasks a worker's code has is not part of a lane, so two apps
in one queue, or old and new code, take what is the other's. Whoever does so gives it back soon, and
then lets others come first; but it does not ask so often that it wears out the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from math import inf
from typing import Final

from daybell.core.execution import Claimed
from daybell.core.instant import Instant, Seconds
from daybell.core.worker import Offer
from daybell.engine.clock import Clock
from daybell.errors import Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.worker")

LOOK_SECONDS: Final = 10.0  # for so long it counts that somebody offers something,
LOOK_AGAIN_SECONDS: Final = 1.0  # and that nobody does
LOOK_SECONDS_MAX: Final = 2.0  # for an answer of the store
# Until it may be claimed again, so that others know by then when that is: they hear of what is due
# within a second. It grows by an eighth of what it waited so far while they are full, since each
# time is an attempt on record.
BACK_SECONDS: Final = 0.5
BACK_SECONDS_MAX: Final = 60.0
BACK_GROWTH: Final = 1.15
SPREAD: Final = 0.25  # so much longer for some, or who asks first would get all of them again
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


class Elsewhere:
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
        seconds = min(BACK_SECONDS * BACK_GROWTH ** min(times, 40), BACK_SECONDS_MAX)
        seconds *= 1 + SPREAD * self._clock.jitter()
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
            if age <= (LOOK_SECONDS if is_offered else LOOK_AGAIN_SECONDS):
                return is_offered
            # Only advice: nobody waits long for it, nor asks again at once who had no answer.
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS_MAX):
                    self._offers = await self._store.offers(self._tenant)
            self._looked_at = self._clock.monotonic()
            return any(one.has(lacking, queue=queue) for one in self._offers)
