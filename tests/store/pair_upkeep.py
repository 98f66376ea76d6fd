"""What happens less often than work, on both of a pair: schedules, pauses, lists and more."""

from __future__ import annotations

from typing import Any

from daybell.core.execution import PENDING, TERMINAL, State
from daybell.core.ids import mint
from daybell.core.schedule import Decision, Firing, Overlap, Schedule, Tick
from daybell.core.views import ExecutionFilter
from tests.builders import TENANT, a_job, a_schedule, a_tick, an_execution
from tests.store.levels import GATED, as_looked, as_seen
from tests.store.pair import JOBS, KEYS, LEASE, QUEUES, SINGLE, STRANGER, Pair

SOME_FILTERS = [
    ExecutionFilter(states=states, job=job, queue=queue, dead_letters=dead_letters)
    for states in (None, PENDING, TERMINAL, frozenset({State.QUEUED}), frozenset({State.RUNNING}))
    for job in (None, "alpha", "nothing")
    for queue in (None, "default", GATED)
    for dead_letters in (False, True)
]


class Upkeep(Pair):
    """A pair that is looked after."""

    def define(self, draw: Any) -> None:
        timeout = draw(None, 1.0, 2.0)
        job = a_job(
            draw(*JOBS),
            timeout=timeout,
            expires=timeout,
            kind=draw("task", "task", "http"),
            overlap=Overlap.ALLOW,
            expect=draw(None, None, None, 0, 1, 2),
            promote=draw(False, True),
        )
        self.same("define_jobs", TENANT, [job])

    def administer(self, draw: Any) -> None:
        """What happens less often than work."""
        what = draw("delete", "pause", "resume", "resume", "gate", "admit", "drain", "retire")
        if what == "delete":
            self.same("delete_job", TENANT, draw("beta", "gamma"))
        elif what in ("pause", "resume"):
            self.same("pause_queue", TENANT, draw(*QUEUES), paused=what == "pause")
        elif what == "gate":
            self.same("set_gates", TENANT, {"narrow": draw(0, 1, 2, 3)})
        elif what == "admit":
            self.same("admit")
        else:
            self.same(what, TENANT, draw(STRANGER, self.workers[0], self.workers[-1]))

    def put_schedules(self, draw: Any) -> None:
        now = self.place.clock.now()
        new = a_schedule(
            draw("alpha", "alpha", "gamma", *SINGLE),
            id=draw(mint(), *self.schedules[-2:]),
            next_at=draw(None, now, now, now, now + 5),
            delay=draw(None, 5.0),
            pause_after=draw(None, 1, 2),
            is_reboot=draw(False, False, False, True),
            own_gate=draw(False, True),
        )
        self.same("put_schedules", TENANT, [new])
        self.schedules.append(new.id)
        if draw(False, False, True):
            self.same("delete_schedules", TENANT, [draw(*self.schedules)])

    def fire(self, draw: Any) -> None:
        """Fire what is due, as a scheduler would; now and then from a cursor that is not there."""
        self.put_schedules(draw)
        firings: list[Firing] = []
        for schedule in self.same("due_schedules").schedules[:2]:
            firing = self.firing(draw, schedule)
            firings += [firing] * draw(1, 1, 2)
        self.same("fire", firings)
        self.same("due_schedules", limit=1)

    def firing(self, draw: Any, schedule: Schedule) -> Firing:
        assert schedule.next_at is not None
        options = {"schedule": schedule.id, "unique_key": draw(*KEYS), "delay": draw(None, 5.0)}
        options["own_gate"] = schedule.own_gate
        if schedule.job in SINGLE:
            options["queue"] = GATED
        new = an_execution(schedule.job, **options, scheduled_for=schedule.next_at)
        decision = draw(Decision.FIRED, Decision.FIRED, *Decision)
        is_fired = decision is Decision.FIRED
        ticks = [
            Tick(
                at=schedule.next_at,
                decision=decision,
                execution=new if is_fired else None,
                count=draw(1, 3),
            )
        ]
        if draw(False, True) and schedule.delay is None:  # which has one at a time
            ticks.append(a_tick(schedule.next_at + 1, job=schedule.job, schedule=schedule.id))
        self.sent += [tick.execution for tick in ticks if tick.execution is not None]
        return Firing(
            tenant=TENANT,
            schedule=schedule.id,
            expect=schedule.next_at - draw(0, 0, 0, 1),
            next_at=schedule.next_at + 5 if schedule.delay is None else None,
            ticks=tuple(ticks),
            is_over=draw(False, False, False, True) and schedule.delay is not None,
        )

    def pause(self, draw: Any) -> None:
        """Pause a job, resume it, or sweep."""
        job = draw("alpha", "gamma", *SINGLE)
        what = draw("pause_job", "resume_job", "resume_job", "rearm_schedules", "occurrences")
        if what == "rearm_schedules":
            self.same(what)
        elif what == "pause_job":
            self.same(what, TENANT, job, note=draw("one", "two"))
        elif what == "occurrences" and self.schedules:
            since = self.place.clock.now() - 30
            options = {"since": since, "until": since + 60}
            self.same("list_occurrences", TENANT, draw(*self.schedules), **options)
        elif what == "resume_job":
            found = [
                one
                for one in self.run(self.model.schedules.list_schedules(TENANT))
                if one.job == job and one.next_at is not None
            ]
            firings = [self.firing(draw, one) for one in found]
            self.same(what, TENANT, job, firings[: draw(0, 1)])

    def lead(self, draw: Any) -> None:
        holder = draw(*self.holders)
        if draw(False, True):
            self.same("resign", "upkeep", holder=holder)
        since = draw(None, self.place.clock.now() - draw(0.0, 30.0, 90.0))
        self.same("lead", "upkeep", holder=draw(*self.holders), lease=LEASE, since=since)

    def page_through(self, draw: Any) -> None:
        where, cursor = draw(*SOME_FILTERS), None
        for _ in range(3):
            options = {"limit": draw(1, 2, 4), "cursor": cursor}
            page = self.same("list_executions", TENANT, where, level=as_seen, **options)
            cursor = page.next_cursor
            if cursor is None:
                break
        self.same("count_executions", TENANT, where)
        self.same("job_activity", TENANT, [*JOBS, *SINGLE, "nothing"], level=as_looked)
