"""Schedulers: fire due schedules, fire schedules that follow other jobs, and release executions
that wait for dependencies. Any number of schedulers run at the same time.
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
from daybell.core.when import Misfire, Plan, Planned, plan
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

# Firing and letting go what depends on other jobs. Any number of schedulers do this at once.
#
# A look at the store says which schedules fire after others, and which executions wait for
# dependencies; another one, how those stand; `core.schedule` decides. What is decided is made
# by compare-and-set: a round is fired by whoever moves the schedule's cursor, and an execution
# begins or is skipped only while it still waits. Nobody is told of the ends of dependencies, so
# nothing is lost if nobody listened: the next look finds them.

DEPENDENTS_IDLE_SECONDS: Final = 5.0  # until it is found that others have made the first that waits
DEPENDENTS_POLL_SECONDS: Final = 1.0  # between looks while something waits
THOROUGH_SECONDS: Final = 30.0  # between looks that overlook no success, however old its execution
DEPENDENTS_REST_FACTOR: Final = (
    10  # a look that took long is followed by a rest that is so many times longer
)
# But by no more than this: a look in which the process or the store stood still says nothing of
# what looks cost, and what can begin would wait for ten times as long.
REST_SECONDS_MAX: Final = 30.0
THOROUGH_SECONDS_MAX: Final = 600.0
DEPENDENTS_BATCH_MAX: Final = 500
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
        self.loop = Loop(
            "fire dependents", self.tick, interval=DEPENDENTS_IDLE_SECONDS, clock=clock
        )

    async def tick(self) -> Seconds | None:
        """Fire and let go what can be; answers how long there is nothing to do. Without anything
        that waits, it is one cheap question every few seconds.
        """
        began = self._clock.monotonic()
        if self._after is None:
            self._is_thorough = began >= self._thorough_at
        found = await self._store.dependents(limit=DEPENDENTS_BATCH_MAX, after=self._after)
        for tenant, schedules in _group_by_tenant(found.schedules, lambda one: one.schedule.tenant):
            await self._fire(tenant, schedules, found.now)
        for tenant, waiting in _group_by_tenant(found.waiting, lambda one: one.tenant):
            await self._begin(tenant, waiting)
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
            wait_for_dependencies=one.is_any
            or not decided.fires,  # any fires it, and then all are waited for
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


def _group_by_tenant(
    items: Iterable[T], tenant_of: Callable[[T], str]
) -> list[tuple[str, list[T]]]:
    found: dict[str, list[T]] = {}
    for one in items:
        found.setdefault(tenant_of(one), []).append(one)
    return list(found.items())


def _next_start(found: Dependents) -> UUID | None:
    """Where the next look has to begin to see what was left out; None: at the beginning."""
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
POLL_SECONDS: Final = 2.0  # what is new is told; this finds what was said to nobody
REARM_SECONDS: Final = 15.0
COLLISION_SECONDS: Final = 0.02  # until a look at what another scheduler has in its hands
BATCH_MAX: Final = 1000
EXECUTIONS_MAX: Final = 2000  # created at once: catching up makes many of each schedule


class Scheduler:
    """Fires the schedules of all tenants."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        mint: Callable[[], UUID],
        events: Events,
        mint_many: Callable[[int], list[UUID]] | None = None,  # for less than as many single ones
    ) -> None:
        self._store = store
        self._clock = clock
        self._mint = mint
        self._mint_many = mint_many or partial(_mint_singly, mint)
        self._events = events
        self._holder = mint()
        self._since: Instant | None = None  # when it came up, by the store's clock
        self._broken: set[UUID] = set()  # schedules whose rule cannot be read, said once
        self._doubtful: set[UUID] = set()  # schedules that may stand at a tick which is on record
        self._seen_at: Instant | None = None  # the store's time of the last look
        self._is_held_up = False  # by others, who have a whole batch in their hands
        # What is due after the batch that is being fired; and when those fire next that were fired
        # since it began with the earliest.
        self._ahead: asyncio.Task[tuple[Due, list[Firing]]] | None = None
        self._following: list[Instant] = []
        self._unlisten: Callable[[], Awaitable[None]] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.epoch: int | None = None  # None: another scheduler leads
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
            if self._since is not None:  # it has asked, so the others count on it
                await self._store.resign(SCHEDULER, holder=self._holder)
        except Unavailable as error:
            logger.warning("could not sign off, others believe it there for a while: %s", error)

    async def _listen(self) -> None:
        """Be told of new schedules. Where that cannot be, the poll finds them."""
        try:
            self._unlisten = await self._store.listen_schedules(self._wake)
        except Unavailable as error:
            logger.warning("cannot be told of new schedules, asking for them: %s", error)

    def _wake(self) -> None:
        self.firing.wake()
        self.dependents.loop.wake()

    async def tick(self) -> Seconds | None:
        """Fire what is due; answers how long there is nothing to do."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self._following = []
        due, firings = await (ahead or self._look())
        if not firings:
            # Those that cannot be read stay due; they must not keep it from waiting.
            self._is_held_up = False
            return self._until_next(due)
        is_full = len(due.schedules) == BATCH_MAX
        if is_full and not self._is_held_up:  # the next ones are read while these are written
            self._ahead = asyncio.create_task(self._look(after=due.schedules[-1]))
        try:
            fired = await self._fire(firings)
        except BaseException:
            await self._forget_ahead()
            raise
        self._tell(fired, due)
        if fired:
            self.dependents.loop.wake()  # what was fired may wait for jobs that have succeeded
        # Of a full batch that hardly moves, most is in the hands of somebody who may have frozen:
        # what comes after it is not to wait for him.
        self._is_held_up = is_full and len(fired) < len(firings) / 2
        if len(fired) < len(firings):
            await self._forget_ahead()  # those that are left come before
            return AGAIN if is_full and fired else COLLISION_SECONDS
        self._following += {one.next_at for one in firings if one.next_at is not None}
        return AGAIN if is_full else self._until_next(due)

    async def _look(self, after: Schedule | None = None) -> tuple[Due, list[Firing]]:
        """What is due, and what to do about it."""
        sent = self._clock.monotonic()
        due = await self._store.due_schedules(limit=BATCH_MAX, free=self._is_held_up, after=after)
        self._clock.correct(due.now, sent)
        if self._seen_at is not None and due.now < self._seen_at - AHEAD_SECONDS:
            self.rearming.wake()  # the store's clock was set back
        self._seen_at = due.now
        return due, self.plan(due, await self._starts(due))

    async def _fire(self, firings: list[Firing]) -> list[Firing]:
        """Fire these; answers which were fired here."""
        fired: list[Firing] = []
        for some in _slices(firings):
            answers = await self._store.fire(some)
            for firing, is_ours in zip(some, answers, strict=True):
                if is_ours:
                    fired.append(firing)
                elif firing.missed:
                    self._doubtful.add(firing.schedule)
        return fired

    async def _forget_ahead(self) -> None:
        """Begin with the earliest again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _until_next(self, due: Due) -> Seconds:
        """How long there is nothing to do, once all that was found is fired."""
        following = self._following if due.next_at is None else [*self._following, due.next_at]
        return _until(min(following, default=None), self._clock.now())

    async def _starts(self, due: Due) -> dict[UUID, Instant | None]:
        """The first tick that is not on record, of schedules whose missed range was refused: the
        cursor may have been set back by a new definition.
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
        """What to do about each schedule. The same rule at the same tick is planned once. `starts`
        says where to begin with those that stand at a tick which is on record.
        """
        plans: dict[tuple[str, str, Instant | None], tuple[Rule, Plan]] = {}
        firings: list[Firing] = []
        ids = self._mint_many(len(due.schedules))
        ids.reverse()  # they are taken from the end, and rise with the order of the schedules
        for schedule in due.schedules:
            if schedule.next_at is None:
                continue
            try:
                start = starts.get(schedule.id, schedule.next_at) if starts else schedule.next_at
                key = schedule.rule, schedule.misfire, start
                known = plans.get(key)
                if known is None:
                    known = _plan_rule(schedule, start, due.now)
                    if known[0].max_executions is None:  # else it depends on how often it has fired
                        plans[key] = known
                firings.append(self._firing(schedule, *known, ids))
            except Exception as error:
                # Whatever it is: one that cannot be planned must not stop the others.
                self._complain(schedule, error)
        return firings

    def _firing(self, schedule: Schedule, rule: Rule, planned: Plan, ids: list[UUID]) -> Firing:
        assert schedule.next_at is not None, "it is due"
        ticks, is_over = planned.ticks, False
        if rule.delay is not None:
            is_over = is_last(rule, schedule.next_at, schedule.fired)
            ticks = [] if is_past_end(rule, schedule.next_at) else ticks
        return Firing(
            tenant=schedule.tenant,
            schedule=schedule.id,
            expect=schedule.next_at,
            next_at=planned.next_at,
            ticks=tuple([self._tick(schedule, rule, one, ids) for one in ticks]),
            is_over=is_over,
            if_refused_at=planned.if_refused_at,
        )

    def _tick(self, schedule: Schedule, rule: Rule, planned: Planned, ids: list[UUID]) -> Tick:
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
        """Hold what one scheduler should, and let the others know of this one. Who leads, and found
        nobody there when he came up, fires `@reboot`.
        """
        if self._since is None:
            self._since = (await self._store.health()).now
        leadership = await self._store.lead(
            SCHEDULER, holder=self._holder, lease=TERM_SECONDS, since=self._since
        )
        if leadership is not None and leadership.epoch != self.epoch:
            self.firing.wake()  # it may have made something due
        self.epoch = None if leadership is None else leadership.epoch
        return None

    async def _latest(self, schedule: Schedule, now: Instant) -> list[TickRecord]:
        """The latest ticks on record whose time has come."""
        return await self._store.list_ticks(
            schedule.tenant, schedule.id, limit=RECORDS_MAX, before=nextafter(now, inf)
        )

    async def rearm(self) -> Seconds | None:
        """Find fixed delays whose end was not reported, and schedules ahead of the clock."""
        is_full = await self._store.rearm_schedules(limit=BATCH_MAX) >= BATCH_MAX
        await self._turn_back()
        return AGAIN if is_full else None

    async def _turn_back(self) -> None:
        """Set back the cursors of schedules that advanced while the store's clock was ahead."""
        done, after = 0, None
        while True:
            ahead = await self._store.schedules_ahead(
                by=AHEAD_SECONDS, limit=BATCH_MAX, after=after
            )
            turns: list[ScheduleRewind] = []
            for one in ahead.schedules:
                try:
                    turn = rewind_schedule(one, ahead.now, await self._latest(one, ahead.now))
                except InvalidSchedule as error:
                    self._complain(one, error)
                    continue
                if turn is not None:
                    turns.append(turn)
            done += sum(await self._store.turn_back(turns)) if turns else 0
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


def _mint_singly(mint: Callable[[], UUID], count: int) -> list[UUID]:
    return [mint() for _ in range(count)]


def _plan_rule(schedule: Schedule, start: Instant | None, now: Instant) -> tuple[Rule, Plan]:
    rule = Rule.from_json(schedule.rule)
    if start is None:
        return rule, Plan([], None)
    return rule, plan(rule, start, now, misfire_of(schedule), schedule.fired)


def _slices(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    """Firings that go together: a thousand schedules that catch up are not one transaction."""
    some, count = list[Firing](), 0
    for firing in firings:
        if some and count + len(firing.ticks) > EXECUTIONS_MAX:
            yield some
            some, count = [], 0
        some.append(firing)
        count += len(firing.ticks)
    yield some


def misfire_of(schedule: Schedule) -> Misfire:
    """What is done about its missed ticks."""
    return _misfire(schedule.misfire)


@lru_cache(maxsize=1024)
def _misfire(text: str) -> Misfire:
    return Misfire.parse(msgspec.json.decode(text)) if text else Misfire()


def is_past_end(rule: Rule, cursor: Instant) -> bool:
    """Whether a fixed delay came to a time after its end. Other rules have no such tick."""
    return rule.delay is not None and rule.end_at is not None and cursor > rule.end_at


def is_last(rule: Rule, cursor: Instant, fired: int) -> bool:
    """Whether a fixed delay ends with this tick."""
    if is_past_end(rule, cursor):
        return True
    return rule.max_executions is not None and fired + 1 >= rule.max_executions


def _until(at: Instant | None, now: Instant) -> Seconds:
    return POLL_SECONDS if at is None else min(POLL_SECONDS, max(0.0, at - now))
