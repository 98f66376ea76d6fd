"""Evaluation of alert rules by the leader: read the facts, decide, and move incidents."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.alerts import findings
from daybell.core.alerts.findings import Finding
from daybell.core.alerts.incidents import (
    MOVES_MAX,
    AlertWork,
    Incident,
    IncidentMove,
    MoveKind,
    close_silently,
    decide,
)
from daybell.core.alerts.rules import AlertCondition, AlertRule, StoredRule, rules_of_job
from daybell.core.execution import Execution, State
from daybell.core.job import Job, JobDefinition
from daybell.core.monitoring.stats import (
    HOUR,
    MINUTE,
    MINUTES_KEPT_SECONDS,
    StatQuery,
    Tally,
    total_of,
)
from daybell.core.schedule import Schedule, TickRecord
from daybell.core.units import Instant, Seconds
from daybell.core.views import Check, ExecutionFilter, Queue
from daybell.core.worker import Offer
from daybell.errors import DaybellError, JobNotFound, QuotaExceeded, Unavailable
from daybell.store.protocol import Store

logger = logging.getLogger("daybell.alerts")

LOOKED_AT_MAX: Final = 1_000  # executions that one rule reads in a round
SCHEDULES_MAX: Final = 10_000  # and schedules, if it is not for a single job
TICKS_MAX: Final = 500  # schedules whose ticks are read
JOBS_MAX: Final = 100  # jobs whose numbers or executions are read one by one
LEARN_SECONDS: Final = 3600.0  # until a learnt grace is computed again

# Findings, and the subjects that were checked. None: all of them.
Facts = tuple[list[Finding], Collection[str] | None]


class Alerts:
    """Evaluates all rules in rounds. Whatever processes do so at the same time, and whenever one of
    them ends, each incident opens and closes once, with one message each (`move_incident`).
    """

    def __init__(self, store: Store, *, mint: Callable[[], UUID]) -> None:
        self._store = store
        self._mint = mint
        self._learnt: dict[tuple[str, str], tuple[Instant, Tally]] = {}
        self._recorded: dict[tuple[str, str, str], str] = {}  # marks of events, by rule and subject
        self._cursors: dict[tuple[str, str], UUID] = {}  # of rules that watch very many schedules

    async def tick(self) -> Seconds | None:
        """Evaluate all rules once."""
        work = await self._store.admin.alert_work()
        rules = list(work.rules)
        for job in work.jobs:
            rules += rules_of_job(
                job.tenant, job.definition, version=job.version, since=job.created_at
            )
        incidents: dict[tuple[str, str], list[Incident]] = {}
        for incident in work.incidents:
            incidents.setdefault((incident.tenant, incident.rule), []).append(incident)
        rounds: dict[str, TenantFacts] = {}
        failed = set[str]()  # tenants
        # Heartbeats come last: they report that all others were evaluated.
        for rule in sorted(rules, key=_is_heartbeat):
            if rule.tenant not in rounds:
                rounds[rule.tenant] = TenantFacts(self._store, rule.tenant, work, self._learnt)
            own = incidents.pop((rule.tenant, rule.name), [])
            if _is_heartbeat(rule) and rule.tenant in failed:
                continue
            if not await self._evaluate(rule, rounds[rule.tenant], own, work.now):
                failed.add(rule.tenant)
        for orphans in incidents.values():
            for incident in orphans:
                await self._store.admin.move_incident(incident.tenant, close_silently(incident))
        return None

    async def _evaluate(
        self, stored: StoredRule, round_: TenantFacts, incidents: list[Incident], now: Instant
    ) -> bool:
        """Evaluate a rule. One that fails does not keep the others from being evaluated; return
        False for it.
        """
        try:
            found, checked = await self._find(stored, round_, [one.subject for one in incidents])
        except Unavailable:
            raise
        except DaybellError as error:
            logger.warning("alert rule %s of tenant %s: %s", stored.name, stored.tenant, error)
            return False
        new = [one for one in found if not self._is_recorded(stored, one)]
        moves = decide(stored, new, incidents, now=now, checked=checked, mint=self._mint)
        for move, _ in zip(moves, range(MOVES_MAX), strict=False):
            await self._move(stored, move)
        return True

    async def _move(self, stored: StoredRule, move: IncidentMove) -> None:
        try:
            is_made = await self._store.admin.move_incident(stored.tenant, move)
        except QuotaExceeded as error:
            logger.warning("no message of alert rule %s: %s", stored.name, error)
            is_made = await self._store.admin.move_incident(stored.tenant, move.without_message())
        if move.kind is MoveKind.RECORD:
            self._recorded[stored.tenant, stored.name, move.subject] = move.mark
        if is_made:
            logger.info("%s of %s: %s (%s)", stored.name, stored.tenant, move.subject, move.kind)

    def _is_recorded(self, stored: StoredRule, finding: Finding) -> bool:
        known = self._recorded.get((stored.tenant, stored.name, finding.subject), "")
        return finding.is_event and finding.mark <= known

    async def _find(self, stored: StoredRule, round_: TenantFacts, known: Collection[str]) -> Facts:
        """Return the findings of a rule, of which the subjects `known` have open incidents."""
        on, rule = stored.rule.on, stored.rule
        if on in (AlertCondition.MISSED_RUN, AlertCondition.PAUSED):
            key = stored.tenant, stored.name
            after = self._cursors.get(key)
            found, checked, cursor = await round_.of_schedules(rule, known, after)
            self._cursors.pop(key, None)
            if cursor is not None:
                self._cursors[key] = cursor
            return found, checked
        return await _READERS[on](round_, rule, known)


def _is_heartbeat(stored: StoredRule) -> bool:
    return stored.rule.on is AlertCondition.HEARTBEAT


class TenantFacts:
    """The facts of a tenant in one round; what several rules need is read once."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        work: AlertWork,
        learnt: dict[tuple[str, str], tuple[Instant, Tally]],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._learnt = learnt
        self.now = work.now
        self._known: dict[Any, Any] = {}

    async def _once(self, key: Any, read: Callable[[], Awaitable[Any]]) -> Any:
        if key not in self._known:
            self._known[key] = await read()
        return self._known[key]

    async def _executions(
        self, where: ExecutionFilter, *, most: int = LOOKED_AT_MAX
    ) -> tuple[list[Execution], bool]:
        """Return the newest executions that a filter lets through, and True if these are all."""
        key = where, most

        async def read() -> tuple[list[Execution], bool]:
            found: list[Execution] = []
            cursor = None
            while len(found) < most:
                page = await self._store.catalog.list_executions(
                    self._tenant, where, limit=most - len(found), cursor=cursor
                )
                found += page.items
                cursor = page.next_cursor
                if cursor is None:
                    return found, True
            return found, False

        return await self._once(key, read)

    async def _definition(self, name: str) -> Job | None:
        async def read() -> Job | None:
            try:
                return await self._store.catalog.get_job(self._tenant, name)
            except JobNotFound:
                return None

        return await self._once(("job", name), read)

    # Conditions about executions.

    async def dead_letters(self, rule: AlertRule, known: Collection[str]) -> Facts:
        where = ExecutionFilter(dead_letters=True, job=rule.only_job)
        letters, is_complete = await self._executions(where)
        if is_complete:
            return findings.dead_letters(rule, letters), None
        for job in {*known} - {one.job for one in letters}:
            letters += (await self._executions(msgspec.structs.replace(where, job=job), most=1))[0]
        return findings.dead_letters(rule, letters), known

    async def _jobs_with_failures(self, rule: AlertRule, known: Collection[str]) -> list[str]:
        """Return the jobs of a rule that have dead executions, the newest first, and those with
        open incidents.
        """
        if rule.only_job is not None:
            return [rule.only_job]
        where = ExecutionFilter(states=frozenset({State.DEAD}))
        dead, _ = await self._executions(where)
        jobs = dict.fromkeys(one.job for one in dead if rule.watches(job=one.job, queue=one.queue))
        return list({*list(jobs)[:JOBS_MAX], *known})

    async def failures(self, rule: AlertRule, known: Collection[str]) -> Facts:
        jobs = await self._jobs_with_failures(rule, known)
        found: list[Finding] = []
        for job in jobs:
            states = frozenset({State.SUCCEEDED, State.DEAD})
            where = ExecutionFilter(job=job, states=states, queue=_exact(rule.queue))
            ended, _ = await self._executions(where, most=rule.count + 10)
            found += findings.failures(rule, job, ended)
        return found, jobs

    async def successes(self, rule: AlertRule, known: Collection[str]) -> Facts:
        where = ExecutionFilter(job=rule.only_job, states=frozenset({State.SUCCEEDED}))
        ended, _ = await self._executions(where, most=20)
        return findings.successes(rule, ended, now=self.now), None

    async def late_starts(self, rule: AlertRule, known: Collection[str]) -> Facts:
        queued, is_complete = await self._queued(rule)
        return findings.late_starts(rule, queued, now=self.now), None if is_complete else ()

    async def _queued(self, rule: AlertRule) -> tuple[list[Execution], bool]:
        """Return executions that can be claimed, and were created before the grace."""
        where = ExecutionFilter(
            states=frozenset({State.QUEUED}),
            job=rule.only_job,
            queue=_exact(rule.queue),
            until=self.now - (rule.grace or 0.0),
        )
        return await self._executions(where)

    async def long_runs(self, rule: AlertRule, known: Collection[str]) -> Facts:
        least = findings.LEARNT_LEAST_SECONDS if rule.grace is None else rule.grace
        where = ExecutionFilter(
            states=frozenset({State.RUNNING}), job=rule.only_job, until=self.now - least
        )
        running, is_complete = await self._executions(where)
        jobs = dict.fromkeys(one.job for one in running if rule.watches(job=one.job))
        graces = {job: await self._grace(rule, job) for job in jobs}
        return findings.long_runs(rule, running, graces, now=self.now), None if is_complete else ()

    # Conditions about queues and workers.

    async def _queues(self) -> list[Queue]:
        return await self._once("queues", lambda: self._store.catalog.list_queues(self._tenant))

    async def queue_ages(self, rule: AlertRule, known: Collection[str]) -> Facts:
        return findings.queue_ages(rule, await self._queues(), now=self.now), None

    async def without_worker(self, rule: AlertRule, known: Collection[str]) -> Facts:
        queued, is_complete = await self._queued(rule)
        offers: Collection[Offer] = await self._once(
            "offers", lambda: self._store.catalog.offers(self._tenant)
        )
        paused = {one.name for one in await self._queues() if one.is_paused}
        definitions: dict[str, JobDefinition] = {}
        for name in list(dict.fromkeys(one.job for one in queued))[:JOBS_MAX]:
            job = await self._definition(name)
            if job is not None:
                definitions[name] = job.definition
        found = findings.without_worker(
            rule, queued, definitions, offers, paused_queues=paused, now=self.now
        )
        return found, None if is_complete else ()

    async def store_health(self, rule: AlertRule, known: Collection[str]) -> Facts:
        del rule, known
        health = await self._once("health", self._store.health)
        checks: Collection[Check] = health.checks
        return findings.store_health(checks), None

    async def heartbeat(self, rule: AlertRule, known: Collection[str]) -> Facts:
        return [findings.Finding("alerting", "All rules are evaluated.")], None

    # Conditions about statistics.

    async def failure_rate(self, rule: AlertRule, known: Collection[str]) -> Facts:
        if rule.job is None:
            tally = await self._tally(None, rule.queue, within=rule.within)
            subject = "all jobs" if rule.queue is None else f"queue {rule.queue}"
            return findings.failure_rate(rule, subject, tally), None
        jobs = await self._jobs_with_failures(rule, known)
        found: list[Finding] = []
        for job in jobs:
            tally = await self._tally(job, rule.queue, within=rule.within)
            found += findings.failure_rate(rule, job, tally)
        return found, jobs

    async def lost_workers(self, rule: AlertRule, known: Collection[str]) -> Facts:
        tally = await self._tally(rule.only_job, rule.queue, within=rule.within)
        subject = rule.only_job or ("all jobs" if rule.queue is None else f"queue {rule.queue}")
        return findings.lost_workers(rule, subject, tally), None

    async def _tally(self, job: str | None, queue: str | None, *, within: Seconds) -> Tally:
        """Return the numbers of the last minutes or hours, up to now."""
        step = MINUTE if within < MINUTES_KEPT_SECONDS else HOUR
        query = StatQuery(
            job=job,
            queue=queue,
            since=(self.now - within) // step * step,
            until=self.now // step * step + step,
            step=step,
        )
        try:
            rows = await self._store.catalog.read_stats(self._tenant, query, with_unfinished=False)
        except JobNotFound:
            return Tally()
        return total_of(rows)

    async def _grace(self, rule: AlertRule, job: str) -> Seconds | None:
        """Return the grace of a rule for a job, fixed or learnt; None: not known yet."""
        if rule.grace is not None:
            return rule.grace
        at, tally = self._learnt.get((self._tenant, job), (-inf, Tally()))
        if self.now - at > LEARN_SECONDS:
            tally = await self._tally(job, None, within=findings.LEARNT_SECONDS)
            self._learnt[self._tenant, job] = self.now, tally
        return findings.learnt_grace(rule, tally)

    # Conditions about schedules.

    async def of_schedules(
        self, rule: AlertRule, known: Collection[str], after: UUID | None
    ) -> tuple[list[Finding], Collection[str] | None, UUID | None]:
        """Return the findings of a rule about schedules. If a tenant has very many of them, a round
        reads a part and those with open incidents, and the next one continues with the schedule
        after the one returned.
        """
        is_from_start = after is None
        schedules, after = await self._schedules(rule.only_job, after)
        budget = [TICKS_MAX]
        found = await self._of_schedules(rule, schedules, budget)
        if is_from_start and after is None and budget[0] >= 0:
            return found, None, None
        # The subject of a schedule begins with its job, whose name has no "/".
        budget = [TICKS_MAX]
        for job in {subject.partition("/")[0] for subject in known}:
            own, _ = await self._schedules(job, None)
            found += await self._of_schedules(rule, own, budget)
        found = list({one.subject: one for one in found}.values())
        return found, known if budget[0] >= 0 else (), after

    async def _schedules(
        self, job: str | None, after: UUID | None
    ) -> tuple[list[Schedule], UUID | None]:
        """Return schedules after this one, and the last of them if there may be more."""
        schedules: list[Schedule] = []
        while len(schedules) < SCHEDULES_MAX:
            page = await self._store.schedules.list_schedules(self._tenant, job=job, after=after)
            if not page:
                return schedules, None
            schedules += page
            after = page[-1].id
        return schedules, after

    async def _of_schedules(
        self, rule: AlertRule, schedules: Collection[Schedule], budget: list[int]
    ) -> list[Finding]:
        if rule.on is AlertCondition.PAUSED:
            return await self._paused(rule, schedules)
        found = [await self._missed(rule, schedule, budget) for schedule in schedules]
        return [one for one in found if one is not None]

    async def _missed(
        self, rule: AlertRule, schedule: Schedule, budget: list[int]
    ) -> Finding | None:
        if not findings.is_watched(rule, schedule):
            return None
        grace = await self._grace(rule, schedule.job)
        if grace is None:
            return None
        due_by = self.now - grace
        at = findings.overdue_tick(schedule, due_by)
        if at is not None:
            return findings.missed_run(schedule, at, "no scheduler has fired it")
        if not findings.needs_ticks(schedule, due_by):
            return None
        budget[0] -= 1
        if budget[0] < 0:
            return None
        # The latest tick that was expected by then: a few before it may be skipped.
        ticks = await self._store.schedules.list_ticks(
            self._tenant, schedule.id, before=due_by + 0.001, limit=20
        )
        tick = findings.missed_tick(schedule, ticks, due_by)
        return None if tick is None else findings.missed_run(schedule, tick.at, _why(tick))

    async def _paused(self, rule: AlertRule, schedules: Collection[Schedule]) -> list[Finding]:
        pairs: list[tuple[Job, Schedule]] = []
        for schedule in schedules:
            if schedule.is_paused and schedule.failures and rule.watches(job=schedule.job):
                job = await self._definition(schedule.job)
                if job is not None:
                    pairs.append((job, schedule))
        return findings.paused(rule, pairs)


def _exact(pattern: str | None) -> str | None:
    """Return a pattern that is a name; None: all queues are read, and the rule chooses."""
    return None if pattern is None or pattern.endswith("*") else pattern


def _why(tick: TickRecord) -> str:
    if tick.execution is None:
        return f"the tick is recorded as {tick.decision}"
    return f"execution {tick.execution} has not succeeded"


_READERS: Final[
    dict[AlertCondition, Callable[[TenantFacts, AlertRule, Collection[str]], Awaitable[Facts]]]
] = {
    AlertCondition.DEAD_LETTER: TenantFacts.dead_letters,
    AlertCondition.FAILURES: TenantFacts.failures,
    AlertCondition.FAILURE_RATE: TenantFacts.failure_rate,
    AlertCondition.LATE_START: TenantFacts.late_starts,
    AlertCondition.LONG_RUN: TenantFacts.long_runs,
    AlertCondition.QUEUE_AGE: TenantFacts.queue_ages,
    AlertCondition.NO_WORKER: TenantFacts.without_worker,
    AlertCondition.LOST_WORKERS: TenantFacts.lost_workers,
    AlertCondition.STORE_HEALTH: TenantFacts.store_health,
    AlertCondition.SUCCEEDED: TenantFacts.successes,
    AlertCondition.HEARTBEAT: TenantFacts.heartbeat,
}
