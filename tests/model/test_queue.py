"""Random operations on the store and on the model of the queue: they never disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from daybell.core.execution import Claimed, Priority
from daybell.core.ids import mint
from daybell.core.lifecycle import Transition, after_loss, after_release
from daybell.core.views import ExecutionFilter
from daybell.errors import DaybellError
from daybell.store.sqlite import SqliteStore
from tests.builders import TENANT, a_worker, an_execution, death, defined, retry, success
from tests.model.queue import Model, Row
from tests.stores import TEST_ALL, ManualClock
from tests.sweeps import admit, set_gates

SEEDS = 300 if TEST_ALL else 25
STEPS = 150
QUEUES = ("default", "other")
GATED = ("gated",)  # what goes through the gate has a queue of its own
LEASE = 60.0
MOVES: tuple[Callable[[Claimed], Any], ...] = (
    success,
    success,
    retry,
    lambda one: retry(one, delay=0.0),
    death,
    after_release,
    lambda one: after_release(one, delay=5.0, ran=1.0),
    lambda one: after_loss(one, max_crashes=2),
)


def names(executions: Iterable[Row | Claimed]) -> list[tuple[UUID, int]]:
    return [(one.id, one.attempt) for one in executions]


class Twins:
    """The store and the model, which get the same operations."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.store = SqliteStore.in_memory(clock=self.clock.now)
        self.model = Model(self.clock.now)
        self.workers = [mint()]  # one that is not known
        self.held: list[tuple[Any, Claimed]] = []

    async def begin(self) -> None:
        await self.store.open()
        await defined(self.store, "alpha", "beta")
        await self.widen()
        await self.register()

    async def step(self) -> None:
        actions = {
            self.enqueue: 12,
            self.enqueue_again: 2,
            self.claim: 10,
            self.claim_again: 2,
            self.apply: 12,
            self.cancel: 4,
            self.wait: 5,
            self.register: 3,
            self.drain: 1,
            self.renew: 3,
            self.release: 2,
            self.lost: 3,
            self.admit: 2,
            self.widen: 1,
        }
        (action,) = self.chance.choices([*actions], [*actions.values()])
        await action()
        page = await self.store.catalog.list_executions(TENANT, ExecutionFilter(), limit=1000)
        found = {one.id: one for one in page.items}
        assert found.keys() == self.model.rows.keys()
        for id, row in self.model.rows.items():
            one = found[id]
            seen = one.state, one.attempt, one.failures, one.crashes, one.worker, one.outcome
            seen += one.result, one.cancel_requested_at is not None
            expected = self.model.shown_state(row), row.attempt, row.failures, row.crashes
            expected += row.worker, row.outcome, row.result, row.is_cancel_requested
            assert seen == expected, action.__name__
        assert await self.store.catalog.miscounts() == []

    async def same(self, expected: Callable[[], Any], answer: Any, level: Any = None) -> Any:
        """Demand one answer of both, or an error of the same class; return the store's."""
        found: Any
        try:
            found = await answer
        except DaybellError as error:
            with pytest.raises(type(error)):
                expected()
            return None
        assert (found if level is None else level(found)) == expected()
        return found

    def draw(self, *of: Any) -> Any:
        return self.chance.choice(of)

    async def enqueue(self) -> None:
        gate = self.draw(None, None, "narrow")
        queues = GATED if gate else (None, *QUEUES)
        batch = [
            an_execution(
                self.draw("alpha", "alpha", "beta"),
                queue=self.draw(*queues),
                priority=self.draw(None, *Priority),
                delay=self.draw(None, None, 0.0, 5.0, 30.0),
                unique_key=self.draw(None, None, "k1", "k2"),
                gate=gate,
            )
            for _ in range(self.draw(1, 2, 4))
        ]
        await self.same(lambda: self.model.enqueue(batch), self.store.queue.enqueue(TENANT, batch))
        self.sent = batch

    async def enqueue_again(self) -> None:
        if batch := [new for new in getattr(self, "sent", []) if new.id in self.model.rows]:
            answer = self.store.queue.enqueue(TENANT, batch, repeat=True)
            await self.same(lambda: self.model.enqueue(batch), answer)

    async def register(self) -> None:
        worker = a_worker()
        await self.store.queue.register(TENANT, worker, lease=LEASE)
        self.model.register(worker.id, LEASE)
        self.workers.append(worker.id)

    async def claim(self) -> None:
        worker = self.draw(*self.workers[-3:])
        queues = self.draw(QUEUES, QUEUES, QUEUES[::-1], QUEUES[:1], GATED)
        await self._claim(worker, mint(), queues, self.draw(1, 2, 5))

    async def claim_again(self) -> None:
        if self.held:
            await self._claim(self.held[-1][0], self.held[-1][1].lease, QUEUES, 5)

    async def _claim(self, worker: UUID, lease: UUID, queues: tuple[str, ...], limit: int) -> None:
        is_ordered = queues != GATED and lease not in self.model.leases
        order = list if is_ordered else sorted  # else the order is the store's choice
        limit = 100 if queues == GATED else limit
        claim = await self.same(
            lambda: order(names(self.model.claim(worker, lease, queues, limit))),
            self.store.queue.claim(TENANT, worker=worker, lease=lease, queues=queues, limit=limit),
            lambda claim: order(names(claim.executions)),
        )
        if claim is not None:
            self.held += [(worker, one) for one in claim.executions]

    async def apply(self) -> None:
        if self.held:
            worker, one = self.draw(*self.held[-6:])
            same = [other for holder, other in self.held[-6:] if holder == worker]
            await self.make(
                worker, [self.draw(*MOVES)(each) for each in self.draw([one], [one], same)]
            )

    async def make(self, worker: UUID, moves: list[Transition]) -> None:
        await self.same(
            lambda: self.model.apply(worker, moves),
            self.store.queue.apply(TENANT, worker=worker, transitions=moves),
            lambda verdicts: [(each.id, each.attempt, each.ruling) for each in verdicts],
        )

    async def cancel(self) -> None:
        ids = [self.draw(mint(), *list(self.model.rows)[-8:])]
        await self.same(lambda: self.model.cancel(ids), self.store.queue.cancel(TENANT, ids))

    async def wait(self) -> None:
        await self.clock.advance(self.draw(1.0, 5.0, 30.0, 61.0))

    async def drain(self) -> None:
        worker = self.workers[-1]
        if await self.store.queue.drain(TENANT, worker):
            self.model.draining.add(worker)

    async def renew(self) -> None:
        worker = self.draw(*self.workers[-3:])
        leases = [one.lease for holder, one in self.held if holder == worker]
        known = self.draw(leases, leases, leases[:-1], [])
        await self.same(
            lambda: self.model.renew(worker, LEASE, known),
            self.store.queue.renew(TENANT, worker=worker, lease=LEASE, leases=known),
            lambda renewal: sorted(renewal.cancel),
        )

    async def release(self) -> None:
        if self.held:
            worker, one = self.held[-1]
            answer = self.store.queue.release(TENANT, worker=worker, leases=[one.lease])
            await self.same(lambda: self.model.release(worker, [one.lease]), answer)

    async def lost(self) -> None:
        losses = await self.same(
            self.model.lost,
            self.store.queue.lost(),
            lambda losses: sorted(
                (one.claimed.id, one.claimed.attempt) for one in losses.executions
            ),
        )
        for one in losses.executions if self.draw(True, True, False) else ():
            move = after_loss(one.claimed, max_crashes=one.max_crashes, retry=one.retry)
            await self.make(one.worker, [move])

    async def admit(self) -> None:
        await self.same(self.model.admit, admit(self.store))

    async def widen(self) -> None:
        capacity = self.draw(0, 1, 2, 3)
        await set_gates(self.store, TENANT, {"narrow": capacity})
        self.model.set_gate("narrow", capacity)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_store_and_the_model_never_disagree(seed: int):
    twins = Twins(seed)
    await twins.begin()
    for _ in range(STEPS):
        await twins.step()
