"""Claims: their size, the order of queues, and executions to return to other workers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from daybell.core.execution import Claimed
from daybell.core.limits import CLAIM_BATCH_MAX, check_name
from daybell.core.options import DEFAULT_QUEUE
from daybell.core.placement import (
    ClaimPlan,
    DemandingLane,
    Site,
    assign_devices,
    plan_claims,
    split_needs,
    sum_used,
)
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Offer
from daybell.engine.attempt import Attempt
from daybell.engine.events import Events, Started
from daybell.engine.execute import Executor, Suspects, is_suspect
from daybell.engine.lease import Leases
from daybell.engine.loop import AGAIN, Clock
from daybell.engine.tenants import TenantTurns
from daybell.errors import Unavailable, UsageError, shown
from daybell.store.protocol import Store

# Executions that this worker cannot run, and another live worker can.
#
# Claims select by queue and kind, not by task. So two apps that share a queue, or old and new code,
# claim executions of each other. A worker returns such an execution, lets other workers claim
# first, and limits the load that this causes.

logger = logging.getLogger("daybell.worker")

OFFERS_FRESH_SECONDS: Final = 10.0  # validity of an answer that another worker offers a task
OFFERS_RETRY_SECONDS: Final = 1.0  # validity of an answer that none does
OFFERS_TIMEOUT_SECONDS: Final = 2.0  # for an answer of the store
# The delay of a returned execution, so that other workers learn of it in time: they poll every
# second. It grows by an eighth of the time waited so far, because each return is a recorded
# attempt.
RETURN_SECONDS: Final = 0.5
RETURN_SECONDS_MAX: Final = 60.0
RETURN_GROWTH: Final = 1.15
RETURN_SPREAD: Final = 0.25  # random increase, so that one worker does not claim them all again
# Extra wait of a worker that returned executions, before it claims due ones: longer for those that
# it returned itself, because two workers may return executions of each other.
YIELD_SECONDS: Final = 0.02
YIELD_OWN_SECONDS: Final = 0.25
YIELD_FOR_SECONDS: Final = 6.0  # after the last return
NEAR_SECONDS: Final = 0.1  # an execution due this soon after a returned one may be the same
RETURNED_MAX: Final = 100
# The wait before the next claim, for each return: other workers take a foreign backlog. It is
# short, because own work may be behind it.
PAUSE_SECONDS: Final = 0.002
PAUSE_SECONDS_MAX: Final = 0.5


class TaskRouting:
    """Decides which executions go to other workers, and yields to these."""

    def __init__(self, store: Store, *, tenant: str, clock: Clock) -> None:
        self._store = store
        self._tenant = tenant
        self._clock = clock
        self._offers: list[Offer] = []
        self._looked_at: Seconds = -inf
        self._looking = asyncio.Lock()
        self._logged: set[str] = set()
        self._returned_at: Seconds | None = None  # the last return
        self._returned: deque[Instant] = deque(maxlen=RETURNED_MAX)  # approximate due times
        self._paused_until = clock.monotonic()

    async def delay(self, claimed: Claimed, lacking: str) -> Seconds | None:
        """Return the delay for an execution that another worker can run; None: there is none."""
        if not await self._is_offered(claimed.queue, lacking):
            return None
        if lacking not in self._logged:
            self._logged.add(lacking)
            logger.warning(
                "returned %s to queue %r: this worker lacks %s, which another worker has; give each"
                " a queue of its own",
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
        """Return how much later than other workers to claim what is due then."""
        if self._returned_at is None:
            return 0.0
        if any(0 <= due - one <= NEAR_SECONDS for one in self._returned):
            return YIELD_OWN_SECONDS
        is_over = self._clock.monotonic() - self._returned_at > YIELD_FOR_SECONDS
        return 0.0 if is_over else YIELD_SECONDS

    @property
    def pause(self) -> Seconds:
        """The time until the next claim is allowed."""
        return self._paused_until - self._clock.monotonic()

    async def _is_offered(self, queue: str, lacking: str) -> bool:
        async with self._looking:  # one query for all executions of a claim
            is_offered = any(one.has(lacking, queue=queue) for one in self._offers)
            age = self._clock.monotonic() - self._looked_at
            if age <= (OFFERS_FRESH_SECONDS if is_offered else OFFERS_RETRY_SECONDS):
                return is_offered
            # The answer is advice: the wait is short, and a failure counts as an answer.
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(OFFERS_TIMEOUT_SECONDS):
                    self._offers = await self._store.catalog.offers(self._tenant)
            self._looked_at = self._clock.monotonic()
            return any(one.has(lacking, queue=queue) for one in self._offers)


# The order of queues: a smooth weighted rotation.


class Queues:
    """A worker's queues with their weights.

    Each claim asks all queues. A queue of weight 3 is first three times as often as one of weight
    1, so that a long backlog never starves another queue.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        for name, weight in weights.items():
            check_name(name, what="queue")
            if not 1 <= weight <= 1000:
                raise UsageError(f"queue {shown(name)}: weight {weight} must be from 1 to 1000")
        self._weights = dict(weights) or {DEFAULT_QUEUE: 1}
        self._credits: dict[str, dict[str, int]] = {}  # by tenant

    @classmethod
    def parse(cls, text: str) -> Queues:
        """Parse `mail=3,default`: names, each with an optional weight."""
        weights: dict[str, int] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, weight = (piece.strip() for piece in part.partition("="))
            # int() raises another error for very many digits.
            if equals and not (weight.isdecimal() and len(weight) < 10):
                raise UsageError(f"{shown(part)}: write queues as name or name=weight")
            if name in weights:
                raise UsageError(f"queue {shown(name)} is named twice in {shown(text)}")
            weights[name] = int(weight) if equals else 1
        return cls(weights)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def order(self, tenant: str = "") -> list[str]:
        """Return the queues in the order of the next claim of a tenant."""
        if len(self._weights) == 1:
            return list(self._weights)
        credit = self._credits.setdefault(tenant, dict.fromkeys(self._weights, 0))
        for name, weight in self._weights.items():
            credit[name] += weight
        order = sorted(self._weights, key=lambda name: -credit[name])
        credit[order[0]] -= sum(self._weights.values())
        return order


# The claims of a worker: of work without resources, then of each lane with demands that fits.


class Placement:
    """Plans the claims of a worker by its labels and resources, and gives devices to executions."""

    def __init__(
        self,
        store: Store,
        *,
        site: Site,
        kinds: Sequence[str],
        clock: Clock,
        has_near: bool = False,
    ) -> None:
        self._store = store
        self._site = site
        self._kinds = tuple(kinds)
        self._clock = clock
        # By tenant: its lanes, and when they were read.
        self._lanes: dict[str, list[DemandingLane]] = {}
        self._looked_at: dict[str, Seconds] = {}
        # Another one can only take what others have left, unless work is near its parent here.
        self._has_any = bool(site.labels or site.resources or has_near)
        self._devices: dict[UUID, dict[str, list[int]]] = {}

    async def look(self, tenant: str, queues: Sequence[str]) -> None:
        """Learn the lanes with demands, and how long their work is due, from time to time."""
        now = self._clock.monotonic()
        looked_at = self._looked_at.setdefault(tenant, -inf if self._has_any else now)
        is_used = self._has_any or tenant in self._lanes
        if now - looked_at < (DEMANDS_FRESH_SECONDS if is_used else DEMANDS_POLL_SECONDS):
            return
        self._looked_at[tenant] = now
        lanes = await self._store.catalog.list_demands(tenant, queues)
        self._lanes.pop(tenant, None)
        if lanes:
            self._lanes[tenant] = lanes

    def plan(self, tenant: str, queues: Sequence[str], held: Iterable[Claimed]) -> list[ClaimPlan]:
        """Return the next claims of a tenant, while the worker holds these executions."""
        lanes = self._lanes.get(tenant)
        if not lanes:
            return [ClaimPlan(queues, self._kinds)]
        used = sum_used(one.demands for one in held if one.demands)
        return plan_claims(self._site, self._kinds, queues, lanes, used=used)

    def update(
        self, plan: ClaimPlan, tenant: str, queues: Sequence[str], held: Iterable[Claimed]
    ) -> ClaimPlan | None:
        """Return a plan as it is after the claims before it; None: nothing fits any more."""
        if plan.most == inf:
            return plan
        plans = self.plan(tenant, queues, held)[1:]
        same = (one for one in plans if (one.queues, one.needs) == (plan.queues, plan.needs))
        return next(same, None)

    def place(self, claimed: Claimed, running: Iterable[Claimed]) -> dict[str, list[int]]:
        """Return the numbers of the devices of an execution that starts."""
        here = {one.id for one in running}
        self._devices = {id: own for id, own in self._devices.items() if id in here}
        demands = split_needs(claimed.demands)[1]
        found = assign_devices(self._site, demands, self._devices.values())
        if found:
            self._devices[claimed.id] = found
        return found

    @property
    def has_demands(self) -> bool:
        """True if there are lanes with demands."""
        return bool(self._lanes)


class SentClaim(NamedTuple):
    """A claim that was sent."""

    lease: UUID
    limit: int
    plan: ClaimPlan
    tenant: str


class ClaimAnswer(NamedTuple):
    """The answers to the claims of one tenant."""

    wait: Seconds | None  # until the next; None: until there is room
    taken: int
    has_limited: bool
    is_full: bool  # the tenant's quota is


DEMANDS_FRESH_SECONDS: Final = 1.0
DEMANDS_POLL_SECONDS: Final = 15.0  # of a worker that is not concerned
POLL_SECONDS: Final = 1.0
# The wait for a tenant at its quota, as ends elsewhere send no notification. It doubles with each
# try, because a claim briefly blocks other workers of the tenant.
LIMITED_SECONDS: Final = 0.1
LIMITED_SECONDS_MAX: Final = 1.0
CLAIM_MAX: Final = min(500, CLAIM_BATCH_MAX)  # larger claims gain nothing and take longer
AHEAD_MAX: Final = 2 * CLAIM_MAX
STRANDED_SECONDS: Final = 1.0  # since the last claim, until buffered executions are returned
RATE_SMOOTHING: Final = 0.3
CLAIM_SECONDS_MAX: Final = 0.1  # limit of the claim duration that the buffer compensates


class Dispatcher:
    """Claims executions and starts them in the executor."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        tenant: str,
        worker: UUID,
        queues: Queues,
        placement: Placement,
        concurrency: int,
        leases: Leases,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        elsewhere: Callable[[str], TaskRouting],  # by tenant
        tenants: TenantTurns | None = None,  # that the worker serves, if several
        ahead: Seconds = 0.0,
        poll: Seconds = POLL_SECONDS,
        wake: Callable[[], None],  # the loop around `tick`
        room: Callable[[], int],  # the number of ends that can still wait for their report
        give_back: Callable[[Claimed, Seconds], None],  # returns an unstarted execution
        lose: Callable[[], None],  # handles a lease that may be over
    ) -> None:
        self._store = store
        self._executor = executor
        self._tenant = tenant
        self._worker = worker
        self._queues = queues
        self._placement = placement
        self._concurrency = concurrency
        self._ahead_seconds = ahead
        self._poll = poll
        self._leases = leases
        self._clock = clock
        self._mint = mint
        self._events = events
        self._elsewhere = elsewhere
        self._tenants = tenants
        self._buffer: deque[Claimed] = deque()
        self._suspects = Suspects(executor, clock)
        self._asked: SentClaim | None = None  # a claim without an answer
        self._started = 0
        self._rate = 0.0  # starts a second, smoothed
        self._rated_at = clock.monotonic()
        self._claim_seconds = 0.01
        self._is_filling = False  # `_fill` is scheduled
        self._has_limited = False  # the last claim took executions that hold limits
        self._is_dry = False  # the last claim found less than its limit
        self._is_held_up = False  # by ends that wait to be written
        self._limited_seconds = LIMITED_SECONDS  # the next wait for a quota
        self._filled_at = clock.monotonic()  # the last claim that found anything
        self.is_open = True
        self._wake = wake
        self._room = room
        self._give_back = give_back
        self._lose = lose

    async def tick(self) -> Seconds | None:
        self._return_stranded()
        if self._tenants is None:
            answer = await self._claim_from(self._tenant)
        elif self._asked is None:
            return await self._take_turns(self._tenants)
        else:
            answer = await self._claim_from(self._asked.tenant)
        return None if answer.wait is None else min(self._poll, answer.wait)

    async def _take_turns(self, tenants: TenantTurns) -> Seconds | None:
        """Let the tenants claim that have work, each as often as its weight says."""
        await tenants.look()
        size = self._claim_size() if self.is_open else 0
        if size <= 0:
            return None
        round_ = tenants.start(size)
        try:
            for turn in round_.turns:
                most = turn.count
                if turn.has_limited:  # nothing ahead: others wait for the limits
                    most = min(most, self._concurrency - len(self._executor) - len(self._buffer))
                if most <= 0:
                    continue
                answer = await self._claim_from(turn.tenant, most)
                if answer.wait is None:
                    return None
                turn.note(
                    answer.taken,
                    answer.wait,
                    now=self._clock.monotonic(),
                    has_limited=answer.has_limited,
                    is_full=answer.is_full,
                )
        finally:
            tenants.finish(round_)
        is_any = any(turn.is_asked for turn in round_.turns)
        return min(self._poll, tenants.wait) if is_any or not round_.turns else None

    async def _claim_from(self, tenant: str, most: int | None = None) -> ClaimAnswer:
        """Make the claims of a tenant, of at most so many executions."""
        is_repeated = self._asked is not None
        if not is_repeated and (pause := self._elsewhere(tenant).pause) > 0:
            return ClaimAnswer(pause, 0, has_limited=False, is_full=False)
        queues = self._queues.names
        if is_repeated:
            assert self._asked is not None
            plans = [self._asked.plan]
        else:
            await self._placement.look(tenant, queues)
            plans = self._placement.plan(tenant, queues, self._held())
        found = ClaimAnswer(None, 0, has_limited=False, is_full=False)
        is_dry = True
        for planned in plans:
            plan = planned
            if not is_repeated:
                fitting = self._placement.update(planned, tenant, queues, self._held())
                if fitting is None:
                    continue
                plan = fitting
            asking = self._ask(tenant, plan, None if most is None else most - found.taken)
            if asking is None:
                if self._is_held_up:
                    self._is_dry = False  # the wake-up remains valid until there is room
                return found
            one = await self._claim(asking, is_repeated=is_repeated)
            found = ClaimAnswer(
                one.wait if found.wait is None else min(found.wait, one.wait or 0.0),
                found.taken + one.taken,
                has_limited=found.has_limited or one.has_limited,
                is_full=found.is_full or one.is_full,
            )
            is_dry = is_dry and self._is_dry
        self._is_dry = is_dry
        return found

    async def _claim(self, asked: SentClaim, *, is_repeated: bool) -> ClaimAnswer:
        """Claim, start what there is, and return the time until the next claim."""
        lease, limit, plan, tenant = asked
        sent = self._clock.monotonic()
        claim = await self._store.queue.claim(
            tenant,
            worker=self._worker,
            lease=lease,
            queues=self._queues.order(tenant) if plan.most == inf else plan.queues,
            limit=limit,
            kinds=plan.needs,
        )
        self._asked = None
        self._learn(self._clock.monotonic() - sent)
        self._clock.correct(claim.now, sent)
        self._leases.answer(lease, len(claim.executions))
        if claim.executions:
            self._filled_at = self._clock.monotonic()
            self._buffer.extend(claim.executions)
        has_limited = any(one.is_limited for one in claim.executions)
        self._has_limited = has_limited and self._tenants is None
        self._start()
        if has_limited and self._buffer:
            self._return_limited()
        # The answer to a repeated claim is old and does not tell what is due now.
        is_short = not is_repeated and len(claim.executions) < limit
        is_full = is_short and claim.is_limited
        self._is_dry = is_short and not claim.is_limited
        if claim.executions or not claim.is_limited:
            self._limited_seconds = LIMITED_SECONDS
        wait = AGAIN
        if is_full:
            wait = self._wait_for_quota()
        elif is_short and claim.next_due is None:
            wait = inf
        elif is_short:
            assert claim.next_due is not None
            routing = self._elsewhere(tenant)
            patience = max(self._suspects.patience, routing.patience(claim.next_due))
            wait = max(0.0, claim.next_due - claim.now) + patience
        return ClaimAnswer(wait, len(claim.executions), has_limited=has_limited, is_full=is_full)

    def _held(self) -> Iterator[Claimed]:
        """Yield the executions that this worker holds."""
        yield from (run.claimed for run in self._executor)
        yield from self._buffer
        yield from self._suspects

    def _wait_for_quota(self) -> Seconds:
        seconds = self._limited_seconds
        self._limited_seconds = min(2 * seconds, LIMITED_SECONDS_MAX)
        return seconds

    def _ask(self, tenant: str, plan: ClaimPlan, most: int | None) -> SentClaim | None:
        """Return the claim to make: the one without an answer, or a new one if there is room.

        A claim without an answer does not wait for a free slot: no other worker sees its
        executions.
        """
        if not self.is_open:
            return None
        limit = self._claim_size() if most is None else most
        if self._asked is None and limit > 0:
            lease = self._mint()
            if self._leases.ask(lease):
                self._asked = SentClaim(lease, int(min(limit, plan.most)), plan, tenant)
        return self._asked

    def fill(self) -> None:
        """Handle freed slots soon, once for all ends in this turn of the event loop."""
        self._limited_seconds = LIMITED_SECONDS
        if not self._is_filling:
            self._is_filling = True
            asyncio.get_running_loop().call_soon(self._fill)

    def make_room(self) -> None:
        """Claim again if ends that waited to be written were in the way."""
        if self._is_held_up:
            self.fill()

    def _fill(self) -> None:
        """Start buffered executions in free slots, and claim more when the buffer runs low.

        After a short claim, wait for the notification or the poll.
        """
        self._is_filling = False
        self._start()
        is_dry = self._is_dry
        if self._tenants is not None:
            is_dry = self._tenants.is_dry
        if (self._placement.has_demands or not is_dry) and self._claim_size() > 0:
            self._wake()  # an end may have freed resources

    def _start(self) -> None:
        if not self.is_open:
            return
        slots = self._concurrency - len(self._executor)
        if slots <= 0 or not (self._buffer or self._suspects):
            return
        now = self._clock.monotonic()
        if now >= self._executor.held_until:
            self._lose()  # the process stood still before it read the answer
            return
        slots -= self._start_suspects(slots)
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
            self._place(start(claimed))
        self._start_suspects(slots)  # including those of this claim

    def _return_limited(self) -> None:
        """Return executions that hold limits and have no slot here."""
        kept = [one for one in self._buffer if not one.is_limited]
        for claimed in self._buffer:
            if claimed.is_limited:
                self._give_back(claimed, 0.0)
        self._buffer.clear()
        self._buffer.extend(kept)

    def _start_suspects(self, slots: int) -> int:
        """Start suspects that need not wait for others; return their number."""
        count = 0
        while count < slots and (claimed := self._suspects.next()) is not None:
            count += 1
            self._events.emit(Started, claimed, is_plain=True)
            self._place(self._executor.start(claimed))
        return count

    def _place(self, run: Attempt) -> None:
        """Give devices to an attempt that starts."""
        if run.claimed.demands:
            running = (one.claimed for one in self._executor)
            run.devices = self._placement.place(run.claimed, running)

    def close(self) -> list[Claimed]:
        """Stop claiming, and return the executions that have not started."""
        self.is_open = False
        unstarted = [*self._buffer, *self._suspects.clear()]
        self._buffer.clear()
        return unstarted

    @property
    def unanswered(self) -> list[UUID]:
        """The lease of a claim without an answer, if there is one."""
        return [] if self._asked is None else [self._asked.lease]

    def _return_stranded(self) -> None:
        """Return executions that were claimed ahead and wait behind slow ones: other workers may be
        idle. A buffer lasts for two claims; a start now and then does not make it last longer.
        """
        for claimed, delay in self._suspects.take_stranded():
            self._give_back(claimed, delay)
        now = self._clock.monotonic()
        patience = max(STRANDED_SECONDS, 2 * self._ahead_seconds)
        if not self._buffer or now - self._filled_at < patience:
            return
        for claimed in self._buffer:
            self._give_back(claimed, 0.0)
        self._buffer.clear()
        self._rate, self._started, self._rated_at = 0.0, 0, now

    def _claim_size(self) -> int:
        """Return the size of the next claim; 0 while the buffer lasts."""
        buffered = len(self._buffer)
        ahead = self._ahead()
        free = self._concurrency + ahead - len(self._executor) - buffered
        wanted = min(free, room := self._room() - buffered)
        self._is_held_up = room < free
        # Claim in bulk: wait until half of the buffer is used up.
        return min(wanted, CLAIM_MAX) if wanted > ahead // 2 else 0

    def _ahead(self) -> int:
        """Return how many will start during the next two claims, beyond the free slots.

        Ahead of few slots it buffers nothing, and nothing that holds limits: others wait for them.
        """
        if self._has_limited:
            return 0
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
