"""Firing and letting go what depends on other jobs. Any number of schedulers do this at once.

A look at the store says which schedules fire after others, and which executions wait for
dependencies; another one, how those stand; `core.dependencies` decides. What is decided is made by
compare-and-set: a round is fired by whoever moves the schedule's cursor, and an execution begins or
is skipped only while it still waits. Nobody is told of the ends of dependencies, so nothing is
lost if nobody listened: the next look finds them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from daybell.core.dependencies import (
    UPSTREAM_FAILED,
    Begin,
    Dependent,
    Dependents,
    Round,
    Waiting,
    may_begin,
    next_round,
)
from daybell.core.execution import NewExecution
from daybell.core.instant import Instant, Seconds
from daybell.core.schedule import Decision, Firing, Tick
from daybell.engine.clock import Clock
from daybell.engine.events import Events, Fired
from daybell.engine.loop import AGAIN, Loop
from daybell.store.protocol import Store

IDLE_SECONDS: Final = 5.0  # until it is found that others have made the first that waits
LOOK_SECONDS: Final = 1.0  # between looks while something waits
THOROUGH_SECONDS: Final = 30.0  # between looks that overlook no success, however old its execution
REST: Final = 10  # a look that took long is followed by a rest that is so many times longer
# But by no more than this: a look in which the process or the store stood still says nothing of
# what looks cost, and what can begin would wait for ten times as long.
REST_SECONDS_MAX: Final = 30.0
THOROUGH_SECONDS_MAX: Final = 600.0
BATCH_MAX: Final = 500
ENDED_MAX: Final = 500  # dependencies that are asked about at once, what has ended of them
UPSTREAM_MAX: Final = 50  # and how they stood, for which all that a job has done may be read

T = TypeVar("T")


class DependentsLoop:
    """Looks after what depends on other jobs, of all tenants."""

    def __init__(
        self, store: Store, *, clock: Clock, mint: Callable[[], UUID], events: Events
    ) -> None:
        self._store = store
        self._clock = clock
        self._mint = mint
        self._events = events
        self._after: UUID | None = None  # where the look goes on that did not see all
        self._took: Seconds = 0.0  # by that look so far
        self._thorough_at = 0.0  # when the next thorough look is due; the first one is
        self._is_thorough = True
        self.loop = Loop("fire dependents", self.tick, interval=IDLE_SECONDS, clock=clock)

    async def tick(self) -> Seconds | None:
        """Fire and let go what can be; answers how long there is nothing to do. Without anything
        that waits, it is one cheap question every few seconds.
        """
        began = self._clock.monotonic()
        if self._after is None:
            self._is_thorough = began >= self._thorough_at
        found = await self._store.dependents(limit=BATCH_MAX, after=self._after)
        for tenant, schedules in _by_tenant(found.schedules, lambda one: one.schedule.tenant):
            await self._fire(tenant, schedules, found.now)
        for tenant, waiting in _by_tenant(found.waiting, lambda one: one.tenant):
            await self._begin(tenant, waiting)
        self._after, is_first = _rest_of(found), self._after is None
        self._took += self._clock.monotonic() - began
        if self._after is not None:
            return AGAIN
        took, self._took = self._took, 0.0
        if self._is_thorough:
            wait = min(max(THOROUGH_SECONDS, 10 * REST * took), THOROUGH_SECONDS_MAX)
            self._thorough_at = self._clock.monotonic() + wait
        if is_first and not found.schedules and not found.waiting:
            return None
        return min(max(LOOK_SECONDS, REST * took), REST_SECONDS_MAX)

    async def _fire(self, tenant: str, schedules: Sequence[Dependent], now: Instant) -> None:
        asked: list[tuple[str, Instant]] = []
        for one in schedules:
            assert one.schedule.since is not None, "it fires after others"
            asked += [(name, one.schedule.since) for name in one.dependencies]
        question = partial(self._store.ended_since, thoroughly=self._is_thorough)
        ended = iter(await self._ask(tenant, asked, question, ENDED_MAX))
        firings: list[Firing] = []
        jobs: dict[UUID, str] = {}
        for one in schedules:
            found = [next(ended) for _ in one.dependencies]
            decided = next_round(one.on_failure, found, is_any=one.is_any)
            if decided is not None:
                firings.append(self._firing(one, decided))
                jobs[one.schedule.id] = one.schedule.job
        if not firings:
            return
        answers = await self._store.fire(firings)
        for firing, is_ours in zip(firings, answers, strict=True):
            if is_ours and self._events.is_heard:
                late = max(0.0, now - firing.ticks[0].at)
                self._events.emit(Fired, firing, late, jobs[firing.schedule])

    def _firing(self, one: Dependent, decided: Round) -> Firing:
        schedule, at = one.schedule, decided.at
        assert schedule.since is not None, "it fires after others"
        new = NewExecution(
            id=self._mint(),
            job=schedule.job,
            args=schedule.args,
            scheduled_for=at,
            schedule=schedule.id,
            awaits=one.is_any or not decided.fires,  # any fires it, and then all are waited for
            force=not decided.fires,  # it is in nobody's way
        )
        tick = Tick(at=at, execution=new)
        if not decided.fires:
            tick = Tick(at=at, decision=Decision.SKIPPED, reason=UPSTREAM_FAILED, execution=new)
        return Firing(
            tenant=schedule.tenant,
            schedule=schedule.id,
            expect=schedule.since,
            next_at=at,
            ticks=(tick,),
        )

    async def _begin(self, tenant: str, waiting: Sequence[Waiting]) -> None:
        asked = [(name, one.at) for one in waiting for name in one.dependencies]
        stand = iter(await self._ask(tenant, asked, self._store.upstream, UPSTREAM_MAX))
        decided: dict[Begin, list[UUID]] = {one: [] for one in Begin}
        for one in waiting:
            upstream = [next(stand) for _ in one.dependencies]
            decided[may_begin(one.on_failure, upstream)].append(one.id)
        if decided[Begin.NOW]:
            await self._store.release_dependents(tenant, decided[Begin.NOW])
        if decided[Begin.SKIP]:
            await self._store.rule_out_dependents(tenant, decided[Begin.SKIP])

    async def _ask(
        self,
        tenant: str,
        asked: Sequence[tuple[str, Instant]],
        question: Callable[[str, Sequence[tuple[str, Instant]]], Awaitable[list[T]]],
        most: int,
    ) -> list[T]:
        """How each of these stands; what several want to know is asked once."""
        different = list(dict.fromkeys(asked))
        known: dict[tuple[str, Instant], T] = {}
        for start in range(0, len(different), most):
            some = different[start : start + most]
            known.update(zip(some, await question(tenant, some), strict=True))
        return [known[one] for one in asked]


def _by_tenant(items: Iterable[T], tenant_of: Callable[[T], str]) -> list[tuple[str, list[T]]]:
    found: dict[str, list[T]] = {}
    for one in items:
        found.setdefault(tenant_of(one), []).append(one)
    return list(found.items())


def _rest_of(found: Dependents) -> UUID | None:
    """Where the next look has to begin to see what was left out; None: at the beginning."""
    last = [
        ids[-1]
        for ids in (
            [one.schedule.id for one in found.schedules],
            [one.id for one in found.waiting],
        )
        if len(ids) == BATCH_MAX
    ]
    return min(last, default=None)
