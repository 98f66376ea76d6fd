"""Schedulers: fire due schedules and schedules that follow other jobs, and release executions that
wait for dependencies. Any number of schedulers run at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import inf, nextafter
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from daybell.core.execution import NewExecution
from daybell.core.schedule import (
    UPSTREAM_FAILED,
    Begin,
    Decision,
    Dependent,
    Dependents,
    Due,
    Firing,
    Round,
    Schedule,
    ScheduleRewind,
    Tick,
    TickRecord,
    Waiting,
    may_begin,
    next_round,
)
from daybell.core.units import Instant, Seconds
from daybell.core.views import SweepKind
from daybell.core.when import Misfire, Planned, TickPlan, plan
from daybell.core.when import Schedule as Rule
from daybell.core.when.cursor import (
    AHEAD_SECONDS,
    RECORDS_MAX,
    first_unrecorded_tick,
    rewind_schedule,
)
from daybell.core.worker import SCHEDULER
from daybell.engine.events import Events, Fired
from daybell.engine.loop import AGAIN, Clock, Loop
from daybell.errors import InvalidSchedule, Unavailable
from daybell.store.protocol import Store

# Dependencies.
#
# One query finds schedules that follow other jobs and executions that wait for dependencies,
# another one the state of these jobs; `core.schedule` decides. Writes are compare-and-set: a round
# fires only if the cursor of the schedule is unchanged, and an execution is released or skipped
# only while it waits. Ends of dependencies send no notifications; polling finds them.

DEPENDENTS_IDLE_SECONDS: Final = 5.0  # between checks while nothing waits
DEPENDENTS_POLL_SECONDS: Final = 1.0  # between checks while something waits
THOROUGH_SECONDS: Final = 30.0  # between checks that find successes of any age
DEPENDENTS_REST_FACTOR: Final = 10  # the pause after a check, relative to its duration
# The longest pause: a check during a freeze of the process or the store takes long, and tells
# nothing about the cost of checks.
REST_SECONDS_MAX: Final = 30.0
THOROUGH_SECONDS_MAX: Final = 600.0
DEPENDENTS_BATCH_MAX: Final = 500
ENDED_MAX: Final = 500  # dependencies in a query of ends
UPSTREAM_MAX: Final = 50  # dependencies in a query of states, which may read all runs of a job

T = TypeVar("T")


class DependentsLoop:
    """Fires and releases dependents of all tenants."""

    def __init__(
        self, store: Store, *, clock: Clock, mint: Callable[[], UUID], events: Events
    ) -> None:
        self._store = store
        self._clock = clock
        self._mint = mint
        self._events = events
        self._after: UUID | None = None  # the position of an incomplete check
        self._took: Seconds = 0.0  # duration of that check so far
        self._thorough_at = 0.0  # when the next thorough check is due
        self._is_thorough = True
        self.loop = Loop(
            "fire dependents", self.tick, interval=DEPENDENTS_IDLE_SECONDS, clock=clock
        )

    async def tick(self) -> Seconds | None:
        """Fire and release dependents; return the pause. If nothing waits, one cheap query."""
        began = self._clock.monotonic()
        if self._after is None:
            self._is_thorough = began >= self._thorough_at
        found = await self._store.schedules.dependents(
            limit=DEPENDENTS_BATCH_MAX, after=self._after
        )
        for tenant, schedules in _group_by_tenant(found.schedules, lambda one: one.schedule.tenant):
            await self._fire(tenant, schedules, found.now)
        for tenant, waiting in _group_by_tenant(found.waiting, lambda one: one.tenant):
            await self._release(tenant, waiting)
        self._after, is_first = _next_start(found), self._after is None
        self._took += self._clock.monotonic() - began
        if self._after is not None:
            return AGAIN
        took, self._took = self._took, 0.0
        if self._is_thorough:
            wait = min(
                max(THOROUGH_SECONDS, 10 * DEPENDENTS_REST_FACTOR * took), THOROUGH_SECONDS_MAX
            )
            self._thorough_at = self._clock.monotonic() + wait
        if is_first and not found.schedules and not found.waiting:
            return None
        return min(max(DEPENDENTS_POLL_SECONDS, DEPENDENTS_REST_FACTOR * took), REST_SECONDS_MAX)

    async def _fire(self, tenant: str, schedules: Sequence[Dependent], now: Instant) -> None:
        asked: list[tuple[str, Instant]] = []
        for one in schedules:
            assert one.schedule.since is not None, "it follows other jobs"
            asked += [(name, one.schedule.since) for name in one.dependencies]
        question = partial(self._store.schedules.ended_since, thoroughly=self._is_thorough)
        ended = iter(await self._ask(tenant, asked, question, ENDED_MAX))
        firings: list[Firing] = []
        jobs: dict[UUID, str] = {}
        for one in schedules:
            found = [next(ended) for _ in one.dependencies]
            decided = next_round(one.on_failure, found, is_any=one.is_any)
            if decided is not None:
                firings.append(self._make_firing(one, decided))
                jobs[one.schedule.id] = one.schedule.job
        if not firings:
            return
        answers = await self._store.schedules.fire(firings)
        for firing, is_ours in zip(firings, answers, strict=True):
            if is_ours and self._events.is_heard:
                late = max(0.0, now - firing.ticks[0].at)
                self._events.emit(Fired, firing, late, jobs[firing.schedule])

    def _make_firing(self, one: Dependent, decided: Round) -> Firing:
        schedule, at = one.schedule, decided.at
        assert schedule.since is not None, "it follows other jobs"
        new = NewExecution(
            id=self._mint(),
            job=schedule.job,
            args=schedule.args,
            scheduled_for=at,
            schedule=schedule.id,
            # With any, one success fires it, and it waits for all.
            wait_for_dependencies=one.is_any or not decided.fires,
            force=not decided.fires,  # a skipped execution blocks none
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

    async def _release(self, tenant: str, waiting: Sequence[Waiting]) -> None:
        asked = [(name, one.at) for one in waiting for name in one.dependencies]
        stand = iter(await self._ask(tenant, asked, self._store.schedules.upstream, UPSTREAM_MAX))
        decided: dict[Begin, list[UUID]] = {one: [] for one in Begin}
        for one in waiting:
            upstream = [next(stand) for _ in one.dependencies]
            decided[may_begin(one.on_failure, upstream)].append(one.id)
        if decided[Begin.NOW]:
            await self._store.schedules.release_dependents(tenant, decided[Begin.NOW])
        if decided[Begin.SKIP]:
            await self._store.schedules.rule_out_dependents(tenant, decided[Begin.SKIP])

    async def _ask(
        self,
        tenant: str,
        asked: Sequence[tuple[str, Instant]],
        question: Callable[[str, Sequence[tuple[str, Instant]]], Awaitable[list[T]]],
        most: int,
    ) -> list[T]:
        """Query in batches, each different question once; return the answers in order."""
        different = list(dict.fromkeys(asked))
        known: dict[tuple[str, Instant], T] = {}
        for start in range(0, len(different), most):
            some = different[start : start + most]
            known.update(zip(some, await question(tenant, some), strict=True))
        return [known[one] for one in asked]


def _group_by_tenant(
    items: Iterable[T], tenant_of: Callable[[T], str]
) -> list[tuple[str, list[T]]]:
    found: dict[str, list[T]] = {}
    for one in items:
        found.setdefault(tenant_of(one), []).append(one)
    return list(found.items())


def _next_start(found: Dependents) -> UUID | None:
    """Return the position of the next check if this one was incomplete."""
    last = [
        ids[-1]
        for ids in (
            [one.schedule.id for one in found.schedules],
            [one.id for one in found.waiting],
        )
        if len(ids) == DEPENDENTS_BATCH_MAX
    ]
    return min(last, default=None)


logger = logging.getLogger("daybell.scheduler")

TERM_SECONDS: Final = 15.0
POLL_SECONDS: Final = 2.0  # finds schedules whose notification was lost
REARM_SECONDS: Final = 15.0
COLLISION_SECONDS: Final = 0.02  # until schedules that another scheduler locks are tried again
BATCH_MAX: Final = 1000
EXECUTIONS_MAX: Final = 2000  # in a transaction: a schedule that catches up creates many


class Scheduler:
    """Fires the schedules of all tenants."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        mint_many: Callable[[int], list[UUID]] | None = None,  # a cheaper way to mint several
    ) -> None:
        self._store = store
        self._clock = clock
        self._mint = mint
        self._mint_many = mint_many or partial(_mint_each, mint)
        self._events = events
        self._holder = mint()
        self._since: Instant | None = None  # the start of this scheduler, by the store's clock
        self._broken: set[UUID] = set()  # unreadable schedules, logged once
        self._doubtful: set[UUID] = set()  # schedules with a cursor that may be on record
        self._seen_at: Instant | None = None  # the store's time in the last answer
        self._is_held_up = False  # another scheduler locks a whole batch
        # The batch after the one that is being fired, and the next ticks of schedules that were
        # fired since the first batch.
        self._ahead: asyncio.Task[tuple[Due, list[Firing]]] | None = None
        self._following: list[Instant] = []
        self._unlisten: Callable[[], Awaitable[None]] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.epoch: int | None = None  # None: another scheduler is the leader
        self.firing = Loop("fire", self.tick, interval=POLL_SECONDS, clock=clock)
        self.dependents = DependentsLoop(store, clock=clock, mint=mint, events=events)
        self.rearming = Loop("rearm", self.rearm, interval=REARM_SECONDS, clock=clock)
        self._loops = (
            self.firing,
            self.dependents.loop,
            self.rearming,
            Loop("lead schedulers", self.lead, interval=TERM_SECONDS / 2, clock=clock),
        )

    def start(self) -> None:
        for loop in self._loops:
            loop.start()
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        for loop in self._loops:
            await loop.stop()
        await self._forget_ahead()
        try:
            if self._unlisten is not None:
                await self._unlisten()
            if self._since is not None:  # other schedulers count on this one
                await self._store.admin.resign(SCHEDULER, holder=self._holder)
        except Unavailable as error:
            logger.warning("could not resign; the term will end by itself: %s", error)

    async def _listen(self) -> None:
        """Listen for new schedules; without notifications, polling finds them."""
        try:
            self._unlisten = await self._store.listen_schedules(self._wake)
        except Unavailable as error:
            logger.warning("no notifications of new schedules, polling instead: %s", error)

    def _wake(self) -> None:
        self.firing.wake()
        self.dependents.loop.wake()

    async def tick(self) -> Seconds | None:
        """Fire due schedules; return the pause."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self._following = []
        due, firings = await (ahead or self._read_due())
        if not firings:
            # Unreadable schedules stay due and must not cause a busy loop.
            self._is_held_up = False
            return self._until_next(due)
        is_full = len(due.schedules) == BATCH_MAX
        if is_full and not self._is_held_up:  # read the next batch during the writes
            self._ahead = asyncio.create_task(self._read_due(after=due.schedules[-1]))
        try:
            fired = await self._fire(firings)
        except BaseException:
            await self._forget_ahead()
            raise
        self._tell(fired, due)
        if fired:
            self.dependents.loop.wake()  # fired executions may wait for dependencies
        # If few of a full batch could be fired, another scheduler locks the rest, and may be
        # frozen: skip locked schedules from now on.
        self._is_held_up = is_full and len(fired) < len(firings) / 2
        if len(fired) < len(firings):
            await self._forget_ahead()  # the rest of this batch comes first
            return AGAIN if is_full and fired else COLLISION_SECONDS
        self._following += {one.next_at for one in firings if one.next_at is not None}
        return AGAIN if is_full else self._until_next(due)

    async def _read_due(self, after: Schedule | None = None) -> tuple[Due, list[Firing]]:
        """Read due schedules, and plan their firings."""
        sent = self._clock.monotonic()
        due = await self._store.schedules.due_schedules(
            limit=BATCH_MAX, free=self._is_held_up, after=after
        )
        self._clock.correct(due.now, sent)
        if self._seen_at is not None and due.now < self._seen_at - AHEAD_SECONDS:
            self.rearming.wake()  # the store's clock was set back
        self._seen_at = due.now
        return due, self.plan(due, await self._starts(due))

    async def _fire(self, firings: list[Firing]) -> list[Firing]:
        """Fire; return the firings that this scheduler made."""
        fired: list[Firing] = []
        for some in _slices(firings):
            answers = await self._store.schedules.fire(some)
            for firing, is_ours in zip(some, answers, strict=True):
                if is_ours:
                    fired.append(firing)
                elif firing.missed:
                    self._doubtful.add(firing.schedule)
        return fired

    async def _forget_ahead(self) -> None:
        """Drop the batch that was read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _until_next(self, due: Due) -> Seconds:
        """Return the pause after all found schedules were fired."""
        following = self._following if due.next_at is None else [*self._following, due.next_at]
        return _until(min(following, default=None), self._clock.now())

    async def _starts(self, due: Due) -> dict[UUID, Instant | None]:
        """Return the first unrecorded ticks of schedules with a refused missed range: a new
        definition may have set back the cursor.
        """
        starts: dict[UUID, Instant | None] = {}
        if not self._doubtful:
            return starts
        doubtful = self._doubtful.intersection([one.id for one in due.schedules])
        self._doubtful -= doubtful
        for one in due.schedules:
            if one.id in doubtful and one.next_at is not None:
                records = await self._latest(one, due.now)
                starts[one.id] = first_unrecorded_tick(
                    Rule.from_json(one.rule), one.next_at, records, due.now
                )
        return starts

    def plan(self, due: Due, starts: Mapping[UUID, Instant | None] | None = None) -> list[Firing]:
        """Plan the firing of each schedule. Equal rules at equal ticks are planned once. `starts`
        are first ticks of schedules with a recorded cursor.
        """
        plans: dict[tuple[str, str, Instant | None], tuple[Rule, TickPlan]] = {}
        firings: list[Firing] = []
        ids = self._mint_many(len(due.schedules))
        ids.reverse()  # taken from the end, so that ids rise with the order of schedules
        for schedule in due.schedules:
            if schedule.next_at is None:
                continue
            try:
                start = starts.get(schedule.id, schedule.next_at) if starts else schedule.next_at
                key = schedule.rule, schedule.misfire, start
                known = plans.get(key)
                if known is None:
                    known = _plan_rule(schedule, start, due.now)
                    if known[0].max_executions is None:  # else it depends on the count of firings
                        plans[key] = known
                firings.append(self._make_firing(schedule, *known, ids))
            except Exception as error:
                # Any error: one schedule must not stop the others.
                self._complain(schedule, error)
        return firings

    def _make_firing(
        self, schedule: Schedule, rule: Rule, planned: TickPlan, ids: list[UUID]
    ) -> Firing:
        assert schedule.next_at is not None, "the schedule is due"
        ticks, is_over = planned.ticks, False
        if rule.delay is not None:
            is_over = is_last(rule, schedule.next_at, schedule.fired)
            ticks = [] if is_past_end(rule, schedule.next_at) else ticks
        return Firing(
            tenant=schedule.tenant,
            schedule=schedule.id,
            expect=schedule.next_at,
            next_at=planned.next_at,
            ticks=tuple([self._make_tick(schedule, rule, one, ids) for one in ticks]),
            is_over=is_over,
            if_refused_at=planned.if_refused_at,
        )

    def _make_tick(self, schedule: Schedule, rule: Rule, planned: Planned, ids: list[UUID]) -> Tick:
        if planned.kind == "missed":
            return Tick(
                at=planned.at,
                decision=Decision.MISSED,
                reason=planned.reason,
                until=planned.until,
                count=planned.count,
            )
        at: Instant | None = None
        if rule.jitter:
            name = f"{schedule.tenant}/{schedule.job}/{schedule.name}"
            at = planned.at + rule.jitter_of(planned.at, name)
        new = NewExecution(
            id=ids.pop() if ids else self._mint(),
            job=schedule.job,
            args=schedule.args,
            at=at,
            scheduled_for=planned.at,
            schedule=schedule.id,
            own_gate=schedule.own_gate,
            wait_for_dependencies=True,
        )
        return Tick(at=planned.at, execution=new)

    async def lead(self) -> Seconds | None:
        """Renew this scheduler's record and its leadership. A leader that found no other scheduler
        at its start fires `@reboot`.
        """
        if self._since is None:
            self._since = (await self._store.health()).now
        leadership = await self._store.admin.lead(
            SCHEDULER, holder=self._holder, lease=TERM_SECONDS, since=self._since
        )
        if leadership is not None and leadership.epoch != self.epoch:
            self.firing.wake()  # a new leader may have made @reboot schedules due
        self.epoch = None if leadership is None else leadership.epoch
        return None

    async def _latest(self, schedule: Schedule, now: Instant) -> list[TickRecord]:
        """Read the latest recorded ticks up to now."""
        return await self._store.schedules.list_ticks(
            schedule.tenant, schedule.id, limit=RECORDS_MAX, before=nextafter(now, inf)
        )

    async def rearm(self) -> Seconds | None:
        """Re-arm fixed delays with an unreported end, and schedules ahead of the clock."""
        swept = await self._store.upkeep(BATCH_MAX, sweeps=(SweepKind.REARM,))
        await self._rewind()
        return AGAIN if swept.is_full(BATCH_MAX) else None

    async def _rewind(self) -> None:
        """Set back cursors that advanced while the store's clock was ahead."""
        done, after = 0, None
        while True:
            ahead = await self._store.schedules.schedules_ahead(
                by=AHEAD_SECONDS, limit=BATCH_MAX, after=after
            )
            rewinds: list[ScheduleRewind] = []
            for one in ahead.schedules:
                try:
                    rewind = rewind_schedule(one, ahead.now, await self._latest(one, ahead.now))
                except InvalidSchedule as error:
                    self._complain(one, error)
                    continue
                if rewind is not None:
                    rewinds.append(rewind)
            done += sum(await self._store.schedules.turn_back(rewinds)) if rewinds else 0
            if len(ahead.schedules) < BATCH_MAX:
                break
            after = ahead.schedules[-1].id
        if done:
            logger.warning(
                "the store's clock was set back: %d schedules were ahead of it and are re-armed;"
                " ticks that were fired early do not fire again",
                done,
            )
            self.firing.wake()

    def _tell(self, firings: list[Firing], due: Due) -> None:
        if not self._events.is_heard:
            return
        now = self._clock.now()
        jobs = {schedule.id: schedule.job for schedule in due.schedules}
        for firing in firings:
            late = max(0.0, now - firing.expect)
            self._events.emit(Fired, firing, late, jobs[firing.schedule])

    def _complain(self, schedule: Schedule, error: Exception) -> None:
        if schedule.id not in self._broken:
            self._broken.add(schedule.id)
            logger.error(
                "schedule %s of job %s cannot be read and does not fire: %s",
                schedule.name or schedule.id,
                schedule.job,
                error,
                exc_info=None if isinstance(error, InvalidSchedule) else error,
            )


def _mint_each(mint: Callable[[], UUID], count: int) -> list[UUID]:
    return [mint() for _ in range(count)]


def _plan_rule(schedule: Schedule, start: Instant | None, now: Instant) -> tuple[Rule, TickPlan]:
    rule = Rule.from_json(schedule.rule)
    if start is None:
        return rule, TickPlan([], None)
    return rule, plan(rule, start, now, misfire_of(schedule), schedule.fired)


def _slices(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """Split firings into transactions of limited size."""
    some, count = list[Firing](), 0
    for firing in firings:
        if some and count + len(firing.ticks) > EXECUTIONS_MAX:
            yield some
            some, count = [], 0
        some.append(firing)
        count += len(firing.ticks)
    yield some


def misfire_of(schedule: Schedule) -> Misfire:
    """Return the misfire policy of a schedule."""
    return _misfire(schedule.misfire)


@lru_cache(maxsize=1024)
def _misfire(text: str) -> Misfire:
    return Misfire.parse(msgspec.json.decode(text)) if text else Misfire()


def is_past_end(rule: Rule, cursor: Instant) -> bool:
    """True if a fixed delay came to a time after its end. Other rules have no such tick."""
    return rule.delay is not None and rule.end_at is not None and cursor > rule.end_at


def is_last(rule: Rule, cursor: Instant, fired: int) -> bool:
    """True if a fixed delay ends with this tick."""
    if is_past_end(rule, cursor):
        return True
    return rule.max_executions is not None and fired + 1 >= rule.max_executions


def _until(at: Instant | None, now: Instant) -> Seconds:
    return POLL_SECONDS if at is None else min(POLL_SECONDS, max(0.0, at - now))
