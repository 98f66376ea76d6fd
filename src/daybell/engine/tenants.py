"""Workers of several tenants: which tenant is next, and the tenant of each claim.

The worker has one registration and one lease, under SHARED. Each of its claims is of one tenant.
The tenants with work take turns, as the keys of a share do (`core.flow.shares`), each as often as
its weight says. Times without work are not saved up, and no turn is kept for a tenant without work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, Final, NamedTuple, TypeVar, cast
from uuid import UUID

from daybell.core.event import NewStep, Step
from daybell.core.execution import NewLogPart
from daybell.core.flow.shares import ShareNode, Turns
from daybell.core.lifecycle import Transition, Verdict
from daybell.core.units import Seconds
from daybell.core.worker import Claim, Report
from daybell.engine.loop import Clock
from daybell.errors import DaybellError
from daybell.store.protocol import Store

LOOK_SECONDS: Final = 1.0  # between two looks at the tenants, without a wake-up
# A wake-up does not name its tenant, so the worker looks. With many tenants this takes time: a look
# uses at most a tenth of it.
LOOK_PART: Final = 10
LOOK_SECONDS_MIN: Final = 0.002
PAUSE_SECONDS: Final = 0.005  # after a claim that found nothing; it doubles with each
PAUSE_SECONDS_MAX: Final = 0.1
CLAIMS_REMEMBERED: Final = 10_000  # then those that have ended are forgotten

T = TypeVar("T")
A = TypeVar("A")


class ServedTenant:
    """A tenant that the worker serves."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.due: Seconds = inf  # when to claim, by the worker's clock
        self.is_full = False  # its quota was
        self.has_limited = False  # the last claim took executions that hold limits
        self.pause: Seconds = 0.0  # after claims that found nothing
        self.paused_until: Seconds = -inf
        self.is_idle = True
        self.node = ShareNode(number, 0, 0.0, 0.0, 1.0, number)


class TenantTurns:
    """The tenants that a worker serves, and their turns."""

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        *,
        queues: Sequence[str],
        clock: Clock,
        on_tenant: Callable[[str], None] | None = None,  # called with each new tenant
    ) -> None:
        self._on_tenant = on_tenant
        self._store = store
        self._names = names
        self._queues = queues
        self._clock = clock
        self._served: dict[str, ServedTenant] = {}
        self._root = ShareNode(0, -1, 0.0, 0.0, 1.0, None)
        self._numbers = 0
        self._look_at: Seconds = -inf  # the next look
        self._looked_at: Seconds = -inf
        self._is_woken = False

    def wake(self) -> None:
        """Note that a tenant may have new work."""
        self._is_woken = True

    def note_ends(self, tenant: str) -> bool:
        """Note that executions of a tenant have ended. True if it was at its quota: claim again."""
        served = self._served.get(tenant)
        if served is None or not served.is_full:
            return False
        served.is_full, served.due = False, -inf
        return True

    async def look(self) -> None:
        """Read the tenants, their weights, and which have work."""
        now = self._clock.monotonic()
        if now < self._look_at or not (self._is_woken or now - self._looked_at >= LOOK_SECONDS):
            return
        self._is_woken = False
        try:
            found = await self._store.catalog.list_tenant_work(self._names, queues=self._queues)
        except DaybellError:
            self._is_woken = True
            raise
        self._looked_at = self._clock.monotonic()
        self._look_at = self._looked_at + max(LOOK_SECONDS_MIN, LOOK_PART * (self._looked_at - now))
        served: dict[str, ServedTenant] = {}
        for one in found:
            tenant = served[one.tenant] = self._served.get(one.tenant) or self._new(one.tenant)
            tenant.node.weight = one.weight
            if one.next_at is not None and not tenant.is_full:
                due = self._looked_at + max(0.0, one.next_at - one.now)
                tenant.due = min(tenant.due, max(due, tenant.paused_until))
        self._served = served  # without those that are gone

    def _new(self, name: str) -> ServedTenant:
        self._numbers += 1
        if self._on_tenant is not None:
            self._on_tenant(name)
        return ServedTenant(name, self._numbers)

    def start(self, count: int) -> TenantRound:
        """Return the next turns, `count` in total."""
        now = self._clock.monotonic()
        ready = {one.node.key: one for one in self._served.values() if one.due <= now}
        for one in ready.values():
            if one.is_idle:  # it saved no turns up
                one.is_idle, one.node.used = False, max(one.node.used, self._root.clock)
            one.node.taken = 0
        self._root.taken = 0
        turns = Turns(self._root, count)
        turns.descend(one.node for one in ready.values())
        return TenantRound(turns, [TenantTurn(ready[one.key], one.turns) for one in turns.leaves])

    def finish(self, round_: TenantRound) -> None:
        """Note the turns that were taken. A tenant that found less has no work."""
        found = {turn.number: turn for turn in round_.turns if turn.is_asked}
        taken = {number: turn.taken for number, turn in found.items()}
        for leaf in round_.order.finish(taken)[1]:
            if leaf.key in found:
                found[leaf.key].rest()

    @property
    def is_dry(self) -> bool:
        """True if no tenant is known to have work now."""
        now = self._clock.monotonic()
        return all(one.due > now for one in self._served.values())

    @property
    def wait(self) -> Seconds:
        """The time until the next claim or look."""
        look_at = self._look_at if self._is_woken else self._looked_at + LOOK_SECONDS
        due = min((one.due for one in self._served.values()), default=inf)
        return max(0.0, min(due, look_at) - self._clock.monotonic())


class TenantTurn:
    """The turns of a tenant in a round of claims."""

    def __init__(self, served: ServedTenant, count: int) -> None:
        self._served = served
        self.tenant = served.name
        self.number = served.node.key
        self.count = count
        self.taken = 0
        self.is_asked = False

    @property
    def has_limited(self) -> bool:
        """True if the last claim took executions that hold limits."""
        return self._served.has_limited

    def note(
        self, taken: int, wait: Seconds, *, now: Seconds, has_limited: bool, is_full: bool
    ) -> None:
        """Note the answer to the claims: their number, the time until the next, and if the tenant's
        quota is full.
        """
        served = self._served
        self.is_asked, self.taken = True, taken
        served.due, served.is_full, served.has_limited = now + wait, is_full, has_limited
        # What is due for a tenant may be nothing that this worker can claim.
        served.pause = 0.0 if taken else min(PAUSE_SECONDS_MAX, 2 * served.pause + PAUSE_SECONDS)
        served.paused_until = now + served.pause

    def rest(self) -> None:
        """Take no part until there is work again."""
        self._served.is_idle = True


class TenantRound(NamedTuple):
    """A round of claims."""

    order: Turns
    turns: list[TenantTurn]


# The operations of a worker that name executions of several tenants.


class TenantClaims:
    """The tenant of each claim."""

    def __init__(self, known: Callable[[], Sequence[UUID]]) -> None:
        self.tenant_of: dict[UUID, str] = {}
        self._known = known

    def add(self, lease: UUID, tenant: str) -> None:
        if len(self.tenant_of) >= self._most:
            known = set(self._known())
            self.tenant_of = {one: of for one, of in self.tenant_of.items() if one in known}
            self._most = max(CLAIMS_REMEMBERED, 2 * len(known))
        self.tenant_of[lease] = tenant

    def find_tenant(self, lease: UUID) -> str:
        """Return the tenant of a claim; of a forgotten one any, as its lease is over for each."""
        return self.tenant_of.get(lease) or next(iter(self.tenant_of.values()))

    _most = CLAIMS_REMEMBERED


class SharedPort:
    """A port that sends each item to the tenant of its claim."""

    def __init__(
        self, port: Any, claims: TenantClaims, *, on_ends: Callable[[str], None] = lambda _: None
    ) -> None:
        self._port = port
        self._claims = claims
        self._on_ends = on_ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    async def _each(
        self,
        items: Sequence[T],
        lease_of: Callable[[T], UUID],
        call: Callable[[str, list[T]], Awaitable[A]],
    ) -> list[tuple[list[T], A]]:
        """Call for the items of each tenant, at the same time. Raise the first error at the end."""
        groups: dict[str, list[T]] = {}
        for item in items:
            groups.setdefault(self._claims.find_tenant(lease_of(item)), []).append(item)
        calls = [call(tenant, group) for tenant, group in groups.items()]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return list(zip(groups.values(), cast("list[A]", answers), strict=True))


class SharedQueue(SharedPort):
    """The queue, from the view of a worker of several tenants."""

    async def claim(self, tenant: str, *, lease: UUID, **options: Any) -> Claim:
        self._claims.add(lease, tenant)
        return await self._port.claim(tenant, lease=lease, **options)

    async def apply(
        self, tenant: str, *, worker: UUID, transitions: Sequence[Transition], wait: bool = True
    ) -> list[Verdict]:
        del tenant

        async def call(one: str, moves: list[Transition]) -> list[Verdict]:
            verdicts = await self._port.apply(one, worker=worker, transitions=moves, wait=wait)
            self._on_ends(one)
            return verdicts

        answers = await self._each(transitions, lambda move: move.lease, call)
        return [verdict for _, verdicts in answers for verdict in verdicts]

    async def report(
        self, tenant: str, *, worker: UUID, reports: Sequence[Report]
    ) -> list[tuple[UUID, int]]:
        del tenant

        def call(one: str, some: list[Report]) -> Awaitable[list[tuple[UUID, int]]]:
            return self._port.report(one, worker=worker, reports=some)

        answers = await self._each(reports, lambda report: report.lease, call)
        return [fence for _, stale in answers for fence in stale]

    async def write_log(self, tenant: str, *, worker: UUID, parts: Sequence[NewLogPart]) -> None:
        del tenant

        def call(one: str, some: list[NewLogPart]) -> Awaitable[None]:
            return self._port.write_log(one, worker=worker, parts=some)

        await self._each(parts, lambda part: part.lease, call)

    async def release(self, tenant: str, *, worker: UUID, leases: Sequence[UUID]) -> int:
        del tenant

        def call(one: str, some: list[UUID]) -> Awaitable[int]:
            return self._port.release(one, worker=worker, leases=some)

        sent = [lease for lease in leases if lease in self._claims.tenant_of]
        return sum(count for _, count in await self._each(sent, lambda lease: lease, call))


class SharedRuns(SharedPort):
    """Runs and steps, from the view of a worker of several tenants."""

    async def record(
        self, tenant: str, *, worker: UUID, steps: Sequence[NewStep]
    ) -> list[Step | None]:
        del tenant

        def call(one: str, some: list[tuple[int, NewStep]]) -> Awaitable[list[Step | None]]:
            return self._port.record(one, worker=worker, steps=[step for _, step in some])

        found: dict[int, Step | None] = {}
        numbered = list(enumerate(steps))
        for some, answers in await self._each(numbered, lambda item: item[1].lease, call):
            found |= dict(zip((place for place, _ in some), answers, strict=True))
        return [found[place] for place, _ in numbered]


class SharedStore:
    """A store from the view of a worker of several tenants. `known` are the claims that have not
    ended; `on_ends` is called with each tenant of which executions have.
    """

    def __init__(
        self, store: Store, *, known: Callable[[], Sequence[UUID]], on_ends: Callable[[str], None]
    ) -> None:
        self._store = store
        claims = TenantClaims(known)
        self.queue = SharedQueue(store.queue, claims, on_ends=on_ends)
        self.runs = SharedRuns(store.runs, claims)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
