"""Folding beside transactions that are open: each committed end is counted once."""

from contextlib import AsyncExitStack
from random import Random

import asyncpg
import pytest

from daybell.core.monitoring.stats import StatQuery
from tests.builders import TENANT, dead, finished
from tests.sweeps import fold_stats

# An end as any writer makes it: only the time at which it is committed differs.
END = """
    INSERT INTO daybell.{} (tenant, job, version, lane, attempt, state, priority, failures, crashes,
                            id, args, created_at, run_at, started_at, finished_at, outcome)
    SELECT tenant, job, version, lane, attempt, {}, priority, failures, crashes, gen_random_uuid(),
           args, created_at, run_at, started_at, daybell.now() - {}, 1 FROM daybell.history LIMIT 1
    RETURNING id
"""


async def fold(store):
    while await fold_stats(store):
        pass


async def counted(store, name):
    query = StatQuery(since=0.0, until=9e9 // 3600 * 3600, step=3600)
    rows = await store.catalog.read_stats(TENANT, query, with_unfinished=False)
    return sum(tally.value(name) for tally in rows.tallies.values())


class Writer:
    """A session with a transaction that may stay open for long."""

    def __init__(self, link):
        self.link = link
        self.transaction = None
        self.ends = 0

    async def step(self, random):
        """Take one step; return the number of ends that it has committed."""
        if self.transaction is None:
            self.transaction = self.link.transaction()
            await self.transaction.start()
            return 0
        what = random.choice(["end", "end", "nested", "commit", "roll back"])
        if what == "end":
            await self.link.execute(END.format("history", 6, random.choice([0, 30, 90_000])))
            self.ends += 1
            return 0
        if what == "nested":
            async with self.link.transaction():
                await self.link.execute(END.format("history", 6, 0))
            self.ends += 1
            return 0
        committed = self.ends if what == "commit" else 0
        await (self.transaction.commit if what == "commit" else self.transaction.rollback)()
        self.transaction, self.ends = None, 0
        return committed


@pytest.mark.parametrize("seed", range(10))
async def test_however_late_an_end_is_committed_it_is_counted_once(store, place, seed):
    random = Random(seed)
    await finished(store)
    ends = 1
    async with AsyncExitStack() as stack:
        writers = []
        for _ in range(4):
            link = await asyncpg.connect(place.url)
            stack.push_async_callback(link.close)
            writers.append(Writer(link))
        for _ in range(120):
            if random.random() < 0.2:
                await fold_stats(store, limit=random.choice([1, 5, 1000]))
            else:
                ends += await random.choice(writers).step(random)
        for writer in writers:
            if writer.transaction is not None:
                await writer.transaction.commit()
                ends += writer.ends
    await fold(store)

    assert await counted(store, "succeeded") == ends
    await fold(store)
    assert await counted(store, "succeeded") == ends


@pytest.mark.parametrize("is_folded", [True, False])
@pytest.mark.parametrize("act", ["revive", "discard"])
async def test_a_dead_letter_that_leaves_while_its_end_is_folded_is_counted_once(
    store, place, act, is_folded
):
    await dead(store)
    await finished(store)
    link = await asyncpg.connect(place.url)
    try:
        transaction = link.transaction()
        await transaction.start()
        id = await link.fetchval(END.format("dead", 7, 0))
        await fold(store)  # sees nothing of it, and goes on
        await transaction.commit()
    finally:
        await link.close()
    if is_folded:
        await fold(store)

    await getattr(store.queue, act)(TENANT, [id])
    await fold(store)

    assert await counted(store, "dead") == 2


async def test_numbers_of_another_cluster_are_not_waited_for(store, place):
    await finished(store, 2)
    await fold(store)
    link = await asyncpg.connect(place.url)
    try:
        # As after a restored dump: the numbers are higher than those that this cluster has reached.
        await link.execute("UPDATE daybell.history SET ended_by = 9e15::bigint")
        await link.execute("UPDATE daybell.stat_fold SET until = 9e15::bigint + 1")
    finally:
        await link.close()
    await fold(store)
    await finished(store, 3)
    await fold(store)

    assert await counted(store, "succeeded") == 5
