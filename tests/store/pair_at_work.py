"""What is done to executions, and by workers, on both of a pair."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from daybell.core.event import NewStep, StepKind
from daybell.core.execution import Claimed, Outcome, Priority, State
from daybell.core.ids import mint
from daybell.core.lifecycle import (
    Transition,
    after_cancel,
    after_expiry,
    after_loss,
    after_release,
    after_retry_later,
    after_wait,
)
from daybell.core.views import ExecutionFilter
from tests.builders import (
    TENANT,
    a_move,
    a_report,
    a_step,
    a_worker,
    an_event,
    an_execution,
    death,
    retry,
    success,
)
from tests.store.levels import (
    GATED,
    unordered,
    unordered_losses,
    unordered_renewal,
    unskipped,
    verdicts,
)
from tests.store.pair import JOBS, KEYS, KINDS, LEASE, QUEUES, SINGLE, STRANGER, Pair

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


class AtWork(Pair):
    """A pair with work."""

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
        replaces = draw(None, *self.workers[-3:])
        self.same("register", TENANT, worker, lease=LEASE, replaces=replaces)
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
        current = self.run(self.model.catalog.get_execution(TENANT, one.id)).execution
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
        # What a function does at one place is the same in every attempt: others are refused.
        kinds = StepKind.STEP, StepKind.SLEEP, StepKind.WAIT, StepKind.WAIT, StepKind.WAIT
        n = draw(*range(len(kinds)))
        return a_step(one, n, kind=kinds[n], ran=draw(None, 1.0), **what[kinds[n]])

    def publish(self, draw: Any) -> None:
        """Send events, some of them twice, or for one execution; or end waits that are over."""
        if draw(False, False, False, True):
            self.same("expire")
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
        page = self.run(self.model.catalog.list_executions(TENANT, where, limit=3))
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
