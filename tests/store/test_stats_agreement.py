"""After any mix of ends, from several processes at once, all that counts them agrees: counters,
minutes, hours, the counts of views, and the history itself.
"""

import asyncio
import random
from collections import Counter

import pytest

from daybell.core.execution import TERMINAL
from daybell.core.lifecycle import after_loss, after_release
from daybell.core.monitoring.stats import COUNTS, HOUR, MINUTE, StatQuery
from daybell.core.views import ExecutionFilter
from tests.builders import (
    LEASE,
    TENANT,
    an_execution,
    claim,
    death,
    defined,
    enqueued,
    registered,
    retry,
    success,
)
from tests.sweeps import expire, fold_stats

ENDS = sorted(state.value for state in TERMINAL)


class Chaos:
    """Processes that enqueue, run, lose, cancel, revive and fold at the same time."""

    def __init__(self, crowd, clock, number):
        self._crowd, self._clock = crowd, clock
        self._chance = random.Random(number)
        self.revived = 0
        self.new = []

    async def enqueue(self, number):
        for start in range(0, number, 500):
            some = [self._execution() for _ in range(min(500, number - start))]
            self.new += [one.id for one in some]
            await self._crowd[start % 4].queue.enqueue(TENANT, some)

    def _execution(self):
        job, delay = self._chance.choice(("resize", "mail")), self._chance.choice((None, None, 5.0))
        expires_in = self._chance.choice((None, None, None, 0.5))
        return an_execution(job, delay=delay, expires_in=expires_in)

    async def run(self):
        """Go on until all have ended."""
        while True:
            await asyncio.gather(*(self._work(store) for store in self._crowd))
            await self._clock.advance(LEASE + 1)
            await self._bury(self._crowd[0])
            await expire(self._crowd[1])
            counted = await self._crowd[2].catalog.count_executions(TENANT, ExecutionFilter())
            if not set(counted) - TERMINAL:
                return

    async def _work(self, store):
        worker = await registered(store)
        hands = await claim(store, 100, worker=worker)
        await self._cancel(store)
        moves = [move for one in hands.executions if (move := self._move(one)) is not None]
        await store.queue.apply(TENANT, worker=worker, transitions=moves)
        again = self._chance.sample(moves, len(moves) // 5)  # a report that is sent again
        await store.queue.apply(TENANT, worker=worker, transitions=again)
        await fold_stats(store, limit=self._chance.choice((7, 100)))
        letters = await store.catalog.list_executions(
            TENANT, ExecutionFilter(dead_letters=True), limit=20
        )
        ids = [one.id for one in letters.items if self._chance.random() < 0.2]
        if ids:
            revived = await store.queue.revive(TENANT, ids)
            self.revived += sum(one.value == "revived" for one in revived)
        others = [one.id for one in letters.items if self._chance.random() < 0.2]
        await store.queue.discard(TENANT, others)

    def _move(self, claimed):
        way = self._chance.random()
        if way < 0.1:
            return None  # lost with its worker
        if way < 0.2:
            return retry(claimed, delay=self._chance.choice((0.0, 3.0)))
        if way < 0.3:
            return death(claimed)
        return after_release(claimed) if way < 0.35 else success(claimed)

    async def _cancel(self, store):
        await store.queue.cancel(TENANT, self._chance.sample(self.new, len(self.new) // 50))

    async def _bury(self, store):
        lost = (await store.queue.lost()).executions
        for worker in {one.worker for one in lost}:
            moves = [after_loss(one.claimed, max_crashes=3) for one in lost if one.worker == worker]
            await store.queue.apply(TENANT, worker=worker, transitions=moves)


@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.all_only)])
async def test_all_counts_agree_after_a_mix_under_chaos(store, crowd, clock, number):
    await defined(store, "resize", "mail")
    await enqueued(store, 0)
    chaos = Chaos(crowd, clock, number)
    await chaos.enqueue(number)
    await chaos.run()

    async def fold_all():
        while await fold_stats(store):
            pass

    async def of_grain(grain):
        first = clock.now() // grain * grain - 2 * 86400
        query = StatQuery(since=first, until=clock.now() + 2 * grain, step=grain)
        rows = await store.catalog.read_stats(TENANT, query, with_unfinished=False)
        return Counter(
            {name: sum(one.value(name) for one in rows.tallies.values()) for name in COUNTS}
        )

    async def totals():
        rows = await store.catalog.read_totals(TENANT, jobs=10)
        return [
            Counter(
                {name: sum(one.tally.value(name) for one in rows if test(one)) for name in COUNTS}
            )
            for test in (lambda one: one.job is None, lambda one: one.job is not None)
        ]

    await fold_all()
    minutes, hours, (queues, jobs) = await of_grain(MINUTE), await of_grain(HOUR), await totals()
    await fold_all()
    assert (await of_grain(MINUTE), await of_grain(HOUR), await totals()) == (
        minutes, hours, [queues, jobs],
    )  # fmt: skip

    assert minutes == hours == queues == jobs
    history = Counter()
    retried = lost = 0
    cursor = None
    while True:
        page = await store.catalog.list_executions(
            TENANT, ExecutionFilter(), limit=1000, cursor=cursor
        )
        history.update(one.state.value for one in page.items)
        retried += sum(one.failures for one in page.items)
        lost += sum(one.crashes for one in page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    counted = await store.catalog.count_executions(TENANT, ExecutionFilter())
    assert {state.value: n for state, n in counted.items()} == dict(history)
    # A dead letter that was revived has ended twice.
    history["dead"] += chaos.revived
    assert {name: minutes[name] for name in ENDS} == {name: history[name] for name in ENDS}
    assert sum(history.values()) == number + chaos.revived == minutes["enqueued"]
    assert all(history[name] for name in ENDS) and minutes["lost"] and minutes["retried"]
