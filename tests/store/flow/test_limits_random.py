"""Limits and shares under random work, crashes, lost answers and cancellations: never one too
many, no slot is left behind, and all work has its turn. Each mutant breaks a line that keeps a
promise, and has to be noticed.
"""

import os
from collections import Counter, defaultdict
from random import Random

import pytest

from daybell.core import flow
from daybell.core.execution import State
from daybell.core.flow import Bucket, ConcurrencyOption, RateOption
from daybell.core.flow.shares import ShareOption, Turns
from daybell.core.ids import mint
from daybell.core.lifecycle import after_release
from daybell.store.sqlite import SqliteStore, queue
from daybell.store.sqlite.flow import limits as sqlite_limits
from daybell.store.sqlite.flow import shares as sqlite_shares
from tests.builders import TENANT, a_job, a_worker, an_execution, retry, success
from tests.stores import ManualClock

SEEDS = range(200 if os.environ.get("DAYBELL_TEST_ALL") == "1" else 6)
STEPS = 120
LEASE = 10.0
KEYS = "abc"
SHARED, OWN, STARTS, WINDOW = 3, 1, 4, 20.0
TERMINAL = {State.SUCCEEDED, State.CANCELLED, State.DEAD, State.SKIPPED}


class Cluster:
    """Workers of one store, and what they hold, as they know it."""

    def __init__(self, store, clock, seed):
        self.store, self.clock, self.chance = store, clock, Random(seed)
        self.workers, self.held, self.ids = [], {}, []
        self.starts = defaultdict(list)
        self.most = Counter()

    async def define(self):
        shared = ConcurrencyOption(limit=SHARED, name="shared")
        await self.store.catalog.define_jobs(
            TENANT,
            [
                a_job(
                    "charge",
                    concurrency=(shared, ConcurrencyOption(limit=OWN, key="k")),
                    share=ShareOption(key=("k",)),
                ),
                a_job("index", share=ShareOption(key=("k",), weights={"a": 3.0})),
                a_job("refund", concurrency=(shared,), queue="other"),
                a_job("call", rate=(RateOption(rate=f"{STARTS}/20s", key="k"),)),
            ],
        )

    async def join(self):
        worker = a_worker(queues=("default", "other"))
        await self.store.queue.register(TENANT, worker, lease=LEASE)
        self.workers.append(worker.id)

    def buckets(self, job, args):
        if job in ("call", "index"):
            return []
        own = [("charge:k", args)] if job == "charge" else []
        return [("shared", ""), *own]

    async def enqueue(self):
        new = [
            an_execution(self.chance.choice(("charge", "refund", "call", "index")),
                         args=f'{{"k": "{self.chance.choice(KEYS)}"}}',
                         delay=self.chance.choice((None, None, 2.0)))
            for _ in range(self.chance.randint(1, 6))
        ]  # fmt: skip
        self.ids += [one.id for one in await self.store.queue.enqueue(TENANT, new)]

    async def claim(self, worker):
        claim = await self.store.queue.claim(
            TENANT, worker=worker, lease=mint(), queues=["default", "other"],
            limit=self.chance.randint(1, 5),
        )  # fmt: skip
        for one in claim.executions:
            self.held[one.id] = worker, one, self.clock.now()
            if one.job == "call":
                self.starts[one.args].append(self.clock.now())
        self.check()

    def check(self):
        """Check that no limit has one too many."""
        found = Counter()
        for _, one, _ in self.held.values():
            found.update(self.buckets(one.job, one.args))
        for (name, _), count in found.items():
            self.most[name] = max(self.most[name], count)
            assert count <= (SHARED if name == "shared" else OWN), f"{count} have {name}"

    async def end(self, worker):
        """Report ends, sometimes twice, as after a lost answer."""
        own = [(one, since) for of, one, since in self.held.values() if of == worker]
        some = self.chance.sample(own, self.chance.randint(0, len(own)))
        moves = [self.move(one, self.clock.now() - since) for one, since in some]
        for one, _ in some:
            del self.held[one.id]
        for _ in range(self.chance.choice((1, 1, 2)) if moves else 0):
            await self.store.queue.apply(TENANT, worker=worker, transitions=moves)

    def move(self, one, ran):
        kind = self.chance.random()
        if kind < 0.7:
            return success(one, ran=ran)
        if kind < 0.85:
            return retry(one, ran=ran, delay=self.chance.choice((0.0, 3.0)))
        return after_release(one)

    async def lose(self, worker):
        """A worker dies. Once its lease is over, its executions go back."""
        self.workers.remove(worker)
        await self.clock.advance(LEASE + 1)
        for other in self.workers:
            await self.store.queue.renew(
                TENANT, worker=other, lease=LEASE, leases=self.leases(other)
            )
        await self.reap()

    def leases(self, worker):
        return [one.lease for of, one, _ in self.held.values() if of == worker]

    async def reap(self):
        for lost in (await self.store.queue.lost()).executions:
            moves = [after_release(lost.claimed)]
            await self.store.queue.apply(TENANT, worker=lost.worker, transitions=moves, wait=False)
            self.held.pop(lost.claimed.id, None)

    async def cancel(self):
        if self.ids:
            await self.store.queue.cancel(TENANT, [self.chance.choice(self.ids)])

    async def step(self):
        worker = self.chance.choice(self.workers)
        kind = self.chance.random()
        if kind < 0.2:
            await self.enqueue()
        elif kind < 0.55:
            await self.claim(worker)
        elif kind < 0.85:
            await self.end(worker)
        elif kind < 0.9:
            await self.cancel()
        elif kind < 0.93 and len(self.workers) > 1:
            await self.lose(worker)
            await self.join()
        else:
            await self.clock.advance(self.chance.choice((0.1, 1.0, 2.5)))
            for other in self.workers:
                leases = self.leases(other)
                await self.store.queue.renew(TENANT, worker=other, lease=LEASE, leases=leases)

    async def finish(self):
        """Work until all has ended: a slot that is left behind would keep some waiting."""
        await self.join()
        worker = self.workers[-1]
        for other in self.workers[:-1]:
            self.workers.remove(other)
        await self.clock.advance(LEASE + 1)
        for _ in range(400):
            await self.store.queue.renew(
                TENANT, worker=worker, lease=LEASE, leases=self.leases(worker)
            )
            await self.reap()
            await self.claim(worker)
            held = [one for of, one, _ in self.held.values() if of == worker]
            self.held = {id: of for id, of in self.held.items() if of[0] != worker}
            await self.store.queue.apply(
                TENANT, worker=worker, transitions=[success(one, ran=0.0) for one in held]
            )
            if not held and await self.is_over():
                return
            await self.clock.advance(3.0)
        raise AssertionError("some executions never started")

    async def is_over(self):
        for id in self.ids:
            story = await self.store.catalog.get_execution(TENANT, id)
            if story.execution.state not in TERMINAL:
                return False
        return True

    async def check_rest(self):
        """Check that no slot is left, and that no window has seen one start too many."""
        for limit in await self.store.catalog.list_limits(TENANT):
            assert (limit.held, limit.waiting) == (0, 0), limit
        for times in self.starts.values():
            for first, last in zip(times, times[STARTS:], strict=False):
                assert last - first > WINDOW, (first, last)


async def work(store, clock, seed):
    cluster = Cluster(store, clock, seed)
    await cluster.define()
    for _ in range(3):
        await cluster.join()
    for _ in range(STEPS):
        await cluster.step()
    await cluster.finish()
    await clock.advance(3.0)
    await cluster.claim(cluster.workers[-1])
    await cluster.check_rest()
    return cluster.most


async def in_memory(seed):
    clock = ManualClock()
    store = SqliteStore.in_memory(clock=clock.now)
    await store.open()
    try:
        return await work(store, clock, seed)
    finally:
        await store.close()


async def test_no_limit_is_exceeded_and_no_slot_is_left_behind(store, clock):
    await work(store, clock, seed=1)


async def test_no_limit_is_exceeded_in_any_order_of_events():
    most = Counter()
    for seed in SEEDS:
        most |= await in_memory(seed)

    assert most == {"shared": SHARED, "charge:k": OWN}  # both were used up


def ignore_limit(patch):
    real = Bucket.room_at
    patch.setattr(Bucket, "room_at", lambda self, cost, now: min(now, real(self, cost, now)))


def ignore_windows(patch):
    patch.setattr(Bucket, "_window_at", lambda self, cost, count, seconds, now: now)


def look_at_one_bucket(patch):
    real = flow.admit

    def admit(applicants, buckets, *, now):
        first = {key: one for key, one in buckets.items() if one.name == "shared"}
        free = {key: one for key, one in buckets.items() if key not in first}
        for one in free.values():
            one.held = 0
        return real(applicants, buckets, now=now)

    patch.setattr(flow, "admit", admit)


def free_what_runs(patch):
    broken = sqlite_limits._LEFT.replace("(e.state <= 3 OR e.state = 5)", "e.state <= 3")
    patch.setattr(sqlite_limits, "_LEFT", broken)


def come_back_as_admitted(patch):
    mapped = "ifnull((SELECT l.entry FROM lane l WHERE l.n = execution.lane), lane)"
    for name in ("_BACK",):
        broken = getattr(queue, name).replace(mapped, "lane")
        assert broken != getattr(queue, name)
        patch.setattr(queue, name, broken)


def forget_lost_slots(patch):
    patch.setattr(sqlite_limits, "_LEFT", f"{sqlite_limits._LEFT} AND 0")


def forget_starts(patch):
    patch.setattr(sqlite_limits, "_log_starts", lambda tx, starts: None)


def remove_leaves_with_work(patch):
    head, tail, end = sqlite_shares._REMOVE.partition("   AND NOT EXISTS (SELECT 1 FROM execution")
    patch.setattr(sqlite_shares, "_REMOVE", head + end.partition("\n")[2])
    assert tail
    real = Turns.finish

    def finish(self, taken):
        changed, empty = real(self, taken)
        for leaf in self.leaves:
            leaf.taken = 0
        return changed, [*empty, *self.leaves]

    patch.setattr(Turns, "finish", finish)


def sort_nothing(patch):
    patch.setattr(sqlite_shares, "sort_rows", lambda tx, entry, rows: None)


def take_no_turns(patch):
    patch.setattr(sqlite_shares, "take_turns", lambda tx, entry, wanted: None)


MUTANTS = [
    remove_leaves_with_work, sort_nothing, take_no_turns,
    ignore_limit, ignore_windows, look_at_one_bucket, free_what_runs, come_back_as_admitted,
    forget_lost_slots, forget_starts,
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
async def test_a_broken_line_is_noticed(mutant, monkeypatch):
    mutant(monkeypatch)

    with pytest.raises(AssertionError):
        for seed in range(40):
            await in_memory(seed)
