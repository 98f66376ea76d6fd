"""Random operations on a store and on the memory store, side by side: they never disagree.

Both get the same ids and the same clock. Every answer is compared, and after every step all that
people can see. What stores are free to choose is levelled out by the functions at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from random import Random
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from daybell.core.execution import (
    PENDING,
    TERMINAL,
    Claimed,
    Enqueued,
    Execution,
    ExecutionDetail,
    NewExecution,
    Outcome,
    State,
)
from daybell.core.lifecycle import (
    Ruling,
    Transition,
    Verdict,
    after_cancel,
    after_expiry,
    after_loss,
    after_release,
    after_retry_later,
    after_wait,
)
from daybell.core.overlap import Overlap
from daybell.core.priority import Priority
from daybell.core.schedule import Decision, Firing, Schedule, Tick
from daybell.core.standing import Look
from daybell.core.step import NewStep, StepKind
from daybell.core.view import ExecutionFilter, Page, Queue
from daybell.core.worker import Claim, Renewal
from daybell.errors import DaybellError
from daybell.store.ids import mint
from daybell.store.memory import MemoryStore
from daybell.store.outcomes import Losses, Lost
from tests.builders import (
    TENANT,
    a_job,
    a_move,
    a_report,
    a_schedule,
    a_step,
    a_tick,
    a_worker,
    an_event,
    an_execution,
    death,
    retry,
    success,
)
from tests.stores import SHARED_KINDS, TEST_ALL, open_place

JOBS = ("alpha", "beta", "gamma")
QUEUES = ("default", "other")
SINGLE = ("solo", "queued", "replaced")  # jobs that run one at a time
GATED = "gated"  # what goes through gates has a queue of its own: its order is the store's choice
KEYS = (None, None, "k1", "k2")
KINDS = ("task", "http")
LEASE = 60.0
STRANGER = mint()

# How often each happens. Work comes first: without it the rest has nothing to look at.
WEIGHTS = {
    "enqueue": 12,
    "enqueue_again": 2,
    "enqueue_single": 4,
    "load": 1,
    "claim": 10,
    "claim_gated": 3,
    "claim_again": 2,
    "apply": 12,
    "report": 2,
    "record": 8,
    "publish": 4,
    "cancel": 4,
    "decide": 4,
    "wait": 5,
    "register": 3,
    "renew": 3,
    "release": 2,
    "lost": 3,
    "define": 2,
    "administer": 4,
    "put_schedules": 2,
    "fire": 5,
    "pause": 2,
    "lead": 1,
    "page_through": 4,
    "next_due": 1,
}
ACTIONS = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
MOVES = {
    "success": success,
    "retry": retry,
    "retry at once": lambda one: retry(one, delay=0.0, checkpoint="[1]"),
    "death": death,
    "release": after_release,
    "release for later": lambda one: after_release(one, delay=5.0, ran=1.0),
    "later": lambda one: after_retry_later(one, delay=5.0, ran=1.0, checkpoint="[2]"),
    "loss": lambda one: after_loss(one, max_crashes=2),
    "cancel": lambda one: after_cancel(one, ran=1.0),
    "expiry": after_expiry,
    "wait": lambda one: a_move(one, State.WAITING, Outcome.RELEASED, reason="files"),
    "wait for an event": lambda one: after_wait(one, ran=1.0),
    "wait for it": lambda one: after_wait(one, ran=1.0, checkpoint="[4]"),
}
SOME_FILTERS = [
    ExecutionFilter(states=states, job=job, queue=queue, dead_letters=dead_letters)
    for states in (None, PENDING, TERMINAL, frozenset({State.QUEUED}), frozenset({State.RUNNING}))
    for job in (None, "alpha", "nothing")
    for queue in (None, "default", GATED)
    for dead_letters in (False, True)
]


class Twins(RuleBasedStateMachine):
    """A store and its model."""

    def __init__(self, runner: asyncio.Runner, kind: str, folder: Any, servers: Any) -> None:
        super().__init__()
        self.runner = runner
        self.stack = AsyncExitStack()
        place = open_place(kind, folder, servers)
        self.place = self.run(self.stack.enter_async_context(place))
        self.model = MemoryStore(clock=self.place.clock.now)
        self.store = self.place.connect()
        self.run(self.open())
        self.sent: list[NewExecution] = []
        self.held: list[tuple[UUID, Claimed]] = []  # all that was ever claimed, with its worker
        self.workers: list[UUID] = []
        self.schedules: list[UUID] = []
        self.holders = (mint(), mint())

    async def open(self) -> None:
        for store in (self.model, self.store):
            await store.open()
            self.stack.push_async_callback(store.close)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the step that failed says more
                self.all_details_agree()
        finally:
            self.run(self.stack.aclose())

    def run(self, operation: Any) -> Any:
        return self.runner.run(operation)

    def both(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """What the model and the store answer; an error is an answer too."""
        return self.run(self.ask(name, *args, **options))

    async def ask(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        answers: list[Any] = []
        for store in (self.model, self.store):
            try:
                answers.append(await getattr(store, name)(*args, **options))
            except DaybellError as error:
                answers.append(type(error))
        return answers[0], answers[1]

    def same(self, name: str, *args: Any, level: Any = None, **options: Any) -> Any:
        """Ask both, and insist on one answer; `level` takes away what may differ."""
        expected, found = self.both(name, *args, **options)
        if not name.startswith(("list", "get", "count")):
            note(f"{name} {args} {options}\n  {expected}")
        if level is None or isinstance(expected, type) or isinstance(found, type):
            assert found == expected, name
        else:
            assert level(found) == level(expected), name
        return found

    @initialize(seed=st.integers(0, 2**64 - 1))
    def begin(self, seed: int) -> None:
        self.chance = Random(seed)
        rules = zip(SINGLE, (Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE), strict=True)
        single = [a_job(name, overlap=rule, queue=GATED) for name, rule in rules]
        jobs = [a_job("alpha", overlap=Overlap.ALLOW), a_job("beta", kind="http"), *single]
        self.same("define_jobs", TENANT, jobs)
        self.same("set_gates", TENANT, {"narrow": 1})
        self.register(self.draw)
        self.load(self.draw)

    # One rule, and chance of our own: Hypothesis leaves out most of many rules in each run and
    # repeats what it drew before, so that hardly anything would ever be claimed and finished.
    @rule()
    def act(self) -> None:
        name = self.draw(*ACTIONS)
        note(f"-- {name}")
        getattr(self, name)(self.draw)

    def draw(self, *of: Any) -> Any:
        return self.chance.choice(of)

    def wait(self, draw: Any) -> None:
        self.run(self.place.clock.advance(draw(1.0, 5.0, 30.0, 61.0)))

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

    def enqueue(self, draw: Any) -> None:
        options = {
            "queue": draw(None, *QUEUES),
            "priority": draw(None, *Priority),
            "delay": draw(None, None, None, 0.0, 5.0, 30.0),
            "unique_key": draw(None, *KEYS),
            "expires_in": draw(None, 60.0),
            "gate": draw(None, None, None, "narrow"),
        }
        if options["gate"]:
            options["queue"] = GATED
        jobs = draw(["alpha"], ["alpha"], ["alpha", "beta"], ["alpha", "beta"], ["beta", "gamma"])
        batch = [an_execution(draw(*jobs), **options) for _ in range(draw(1, 2, 4))]
        answers = self.same("enqueue", TENANT, batch)
        if isinstance(answers, list):
            created = {answer.id for answer in answers}
            self.sent += [new for new in batch if new.id in created]

    def enqueue_single(self, draw: Any) -> None:
        """Ask for what may not overlap; all of a batch alike, since one in the way stops it."""
        options = {
            "delay": draw(None, None, None, 5.0),
            "schedule": draw(None, None, STRANGER, *self.schedules[-2:]),
            "unique_key": draw(None, None, *KEYS),
            "force": draw(False, False, False, True),
        }
        batch = [an_execution(draw(*SINGLE), **options) for _ in range(draw(1, 1, 2))]
        answers = self.same("enqueue", TENANT, batch)
        if isinstance(answers, list):
            created = {answer.id for answer in answers}
            self.sent += [new for new in batch if new.id in created]

    def enqueue_again(self, draw: Any) -> None:
        batch = [draw(*self.sent[-8:]) for _ in range(draw(1, 2, 3)) if self.sent]
        self.same("enqueue", TENANT, batch, level=unskipped, repeat=True)

    def load(self, draw: Any) -> None:
        batch = [an_execution(draw(*JOBS[:2]), delay=draw(None, 5.0)) for _ in range(3)]
        if self.same("load", TENANT, batch) == len(batch):
            self.sent += batch

    def register(self, draw: Any) -> None:
        worker = a_worker()
        self.same("register", TENANT, worker, lease=LEASE)
        self.workers.append(worker.id)

    def claim(self, draw: Any) -> None:
        worker = draw(*self.workers[-3:])
        options = {
            "worker": worker,
            "lease": mint(),
            "queues": draw(QUEUES, QUEUES, QUEUES[::-1], QUEUES[:1]),
            "kinds": draw(KINDS, KINDS, KINDS, KINDS[:1], KINDS[1:]),
        }
        self.hold(worker, self.same("claim", TENANT, limit=draw(1, 2, 5), **options))

    def claim_gated(self, draw: Any) -> None:
        worker = draw(*self.workers[-3:])
        options = {"worker": worker, "lease": mint(), "queues": [GATED], "kinds": KINDS}
        self.hold(worker, self.same("claim", TENANT, limit=100, level=unordered, **options))

    def hold(self, worker: UUID, claim: Any) -> None:
        if isinstance(claim, type):
            self.register(self.draw)  # the others are dead, or soon will be
        else:
            self.held += [(worker, one) for one in claim.executions]

    def claim_again(self, draw: Any) -> None:
        # Once everything under a lease has ended, stores may differ.
        for holder, one in self.running()[-1:]:
            worker = draw(holder, holder, holder, self.workers[-1])
            options = {"worker": worker, "lease": one.lease, "queues": QUEUES}
            self.same("claim", TENANT, limit=5, level=unordered, **options)

    def chosen(self, draw: Any) -> tuple[UUID, list[Claimed]]:
        """Some that one worker has claimed; most of them still run."""
        held = draw(self.running(), self.running(), self.held)[-6:] or self.held[-6:]
        worker, first = draw(*held)
        return worker, [first, *(draw(*held)[1] for _ in range(draw(0, 0, 1, 2)))]

    def apply(self, draw: Any) -> None:
        if not self.held:
            return
        worker, chosen = self.chosen(draw)
        self.make(worker, [MOVES[self.kind(draw, one)](one) for one in chosen])
        self.details_agree([one.id for one in chosen])

    def kind(self, draw: Any, one: Claimed) -> str:
        """How it ends: as cancelled only if that was asked for."""
        kind = draw(*sorted(MOVES))
        current = self.run(self.model.get_execution(TENANT, one.id)).execution
        asked = current.cancel_requested_at is not None
        return "success" if kind == "cancel" and not asked else kind

    def make(self, worker: UUID, moves: list[Transition]) -> None:
        options: dict[str, Any] = {"worker": worker, "transitions": moves}
        self.same("apply", TENANT, level=lambda answer: verdicts(answer, moves), **options)

    def report(self, draw: Any) -> None:
        if not self.held:
            return
        worker, chosen = self.chosen(draw)
        what = {
            "progress": draw(None, 40.0),
            "note": draw(None, "n"),
            "checkpoint": draw(None, "[3]"),
        }
        reports = [a_report(one, **what) for one in {one.id: one for one in chosen}.values()]
        self.same("report", TENANT, worker=worker, reports=reports, level=sorted)

    def record(self, draw: Any) -> None:
        if not self.held:
            return
        worker, chosen = self.chosen(draw)
        self.same("record", TENANT, worker=worker, steps=[self.step(draw, one) for one in chosen])
        if draw(False, True):
            self.make(worker, [after_wait(chosen[0], ran=1.0)])
        self.same("steps", TENANT, chosen[0].id)

    def step(self, draw: Any, one: Claimed) -> NewStep:
        what = {
            StepKind.STEP: {"is_done": draw(False, True), "failures": draw(0, 1), "result": "1"},
            StepKind.SLEEP: {"delay": draw(0.0, 5.0)},
            StepKind.WAIT: {
                "event": draw("paid", "left"),
                "match": draw("{}", '{"order": 1}', '{"order": 2, "by": "ada"}'),
                "timeout": draw(None, None, 0.0, 5.0, 61.0),
            },
        }
        kind = draw(StepKind.STEP, StepKind.SLEEP, StepKind.WAIT, StepKind.WAIT, StepKind.WAIT)
        return a_step(one, draw(0, 1, 2, 3), kind=kind, ran=draw(None, 1.0), **what[kind])

    def publish(self, draw: Any) -> None:
        """Send events, some of them twice, or for one execution; or end waits that are over."""
        if draw(False, False, False, True):
            self.same(draw("time_out_waits", "expire"))
            return
        ids = [one.id for _, one in self.held[-4:]]
        event = an_event(
            draw("paid", "left"),
            id=draw(str(mint()), str(mint()), "known"),
            data=draw("null", '{"order": 1.0}', '{"order": 2, "by": "ada"}', "[1]"),
            execution=draw(None, None, None, STRANGER, *ids),
        )
        self.same("publish", TENANT, event)
        self.same("list_events", TENANT, limit=5, level=lambda page: page.items)

    def cancel(self, draw: Any) -> None:
        known = [new.id for new in self.sent[-8:]] + [one.id for _, one in self.running()[-2:]]
        ids = list(dict.fromkeys(draw(STRANGER, *known) for _ in range(draw(1, 2))))
        self.same("cancel", TENANT, ids)
        self.details_agree(known)

    def decide(self, draw: Any) -> None:
        """Let some die, and decide about dead letters and others."""
        for worker, one in self.running()[: draw(0, 1, 2)]:
            self.make(worker, [death(one)])
        where = draw(ExecutionFilter(dead_letters=True), ExecutionFilter())
        page = self.run(self.model.list_executions(TENANT, where, limit=3))
        ids = [one.id for one in page.items] + [STRANGER]
        self.same(draw("revive", "revive", "discard"), TENANT, ids)
        self.details_agree(ids)

    def renew(self, draw: Any) -> None:
        worker = draw(*self.workers[-3:])
        leases = [one.lease for holder, one in self.held if holder == worker]
        known = draw(leases, leases, leases[:-1], [])
        options = {"worker": worker, "lease": LEASE, "leases": known}
        self.same("renew", TENANT, level=unordered_renewal, **options)

    def release(self, draw: Any) -> None:
        for worker, one in draw(self.running(), self.held)[-1:]:
            self.same("release", TENANT, worker=worker, leases=[one.lease])

    def lost(self, draw: Any) -> None:
        if draw(False, True):
            self.run(self.place.clock.advance(LEASE + 1))
        found = self.same("lost", level=unordered_losses)
        for entry in found.executions if draw(True, True, False) else ():
            policy = {"max_crashes": entry.max_crashes, "retry": entry.retry}
            self.make(entry.worker, [after_loss(entry.claimed, **policy)])

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
            found = self.run(self.model.list_schedules(TENANT, job=job))
            firings = [self.firing(draw, one) for one in found if one.next_at is not None]
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
        self.same("look_at_jobs", TENANT, [*JOBS, *SINGLE, "nothing"], level=as_looked)

    def next_due(self, draw: Any) -> None:
        self.same("next_due", TENANT, queues=draw(QUEUES, QUEUES[:1]), kinds=draw(KINDS, KINDS[:1]))

    @invariant()
    def all_that_people_see_agrees(self) -> None:
        everything = ExecutionFilter()
        self.same("list_executions", TENANT, everything, limit=1000, level=as_seen)
        self.same("list_queues", TENANT, level=levelled_queues)
        self.same("list_workers", TENANT, include_dead=True)
        self.same("list_schedules", TENANT)
        self.same("list_jobs", TENANT)
        self.same("recount_gates")

    def all_details_agree(self) -> None:
        self.details_agree([one.id for one in self.sent])
        for id in {one.id for _, one in self.held}:
            self.same("steps", TENANT, id)
        for name in JOBS:
            self.same("list_versions", TENANT, name)
        for schedule in self.schedules:
            self.same("list_ticks", TENANT, schedule)

    def details_agree(self, ids: list[UUID]) -> None:
        for id in dict.fromkeys(ids):
            self.same("get_execution", TENANT, id, level=as_detailed)

    def running(self) -> list[tuple[UUID, Claimed]]:
        """What is in a worker's hands now, by the model."""
        where = ExecutionFilter(states=frozenset({State.RUNNING}))
        page = self.run(self.model.list_executions(TENANT, where, limit=1000))
        now = {(one.id, one.attempt) for one in page.items}
        return [(worker, one) for worker, one in self.held if (one.id, one.attempt) in now]


def as_seen(page: Page[Execution]) -> tuple[list[Execution], str | None]:
    return [seen(one) for one in page.items], page.next_cursor


def as_looked(looks: dict[str, Look]) -> dict[str, Look]:
    return {
        name: look if look.last is None else msgspec.structs.replace(look, last=seen(look.last))
        for name, look in looks.items()
    }


def as_detailed(detail: ExecutionDetail) -> ExecutionDetail:
    return msgspec.structs.replace(detail, execution=seen(detail.execution))


def seen(one: Execution) -> Execution:
    """An execution without what a store may choose."""
    if one.gate is not None:
        one = msgspec.structs.replace(one, run_at=0.0)
    if one.state in TERMINAL:
        checkpoint = one.checkpoint if one.state is State.DEAD else None
        one = msgspec.structs.replace(one, progress=None, note=None, checkpoint=checkpoint)
    return one


def unskipped(answers: list[Enqueued]) -> list[tuple[UUID, bool]]:
    """Whether it was skipped need not be told to who asks again."""
    return [(answer.id, answer.created) for answer in answers]


def unordered(claim: Claim) -> list[Claimed]:
    return sorted(map(levelled, claim.executions), key=lambda one: one.id)


def levelled(one: Claimed) -> Claimed:
    return one if one.gate is None else msgspec.structs.replace(one, run_at=0.0)


def unordered_losses(losses: Losses) -> list[Lost]:
    entries = sorted(losses.executions, key=lambda entry: entry.claimed.id)
    return [msgspec.structs.replace(one, claimed=levelled(one.claimed)) for one in entries]


def levelled_queues(queues: list[Queue]) -> list[Queue]:
    return [
        msgspec.structs.replace(queue, oldest_run_at=None) if queue.name == GATED else queue
        for queue in queues
    ]


def unordered_renewal(answer: Renewal) -> Renewal:
    return msgspec.structs.replace(answer, cancel=tuple(sorted(answer.cancel)))


def verdicts(answer: list[Verdict], moves: list[Transition]) -> list[tuple[UUID, int, Ruling]]:
    """Rulings, in no order. Cancelling what was to be cancelled may be told or not."""
    wanted = {(move.id, move.attempt) for move in moves if move.target is State.CANCELLED}
    return sorted(
        (verdict.id, verdict.attempt, verdict.ruling)
        for verdict in answer
        if not (verdict.ruling is Ruling.CANCELLED and (verdict.id, verdict.attempt) in wanted)
    )


@pytest.mark.parametrize("kind", SHARED_KINDS)
def test_a_store_and_its_model_never_disagree(kind, tmp_path, servers):
    numbers = itertools.count()

    def twins() -> Twins:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return Twins(runner, kind, folder, servers)

    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            cast("type[Twins]", twins),  # any function that makes one will do
            settings=settings(
                max_examples=300 if TEST_ALL else 25,
                stateful_step_count=100 if TEST_ALL else 60,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
                # Shrinking takes minutes on a real database.
                phases=list(Phase) if TEST_ALL else [Phase.generate],
            ),
        )
