"""Random operations on PostgreSQL and on SQLite in memory, side by side: they never disagree.

Every answer is compared, and after every few steps all that people can see.
"""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from daybell.core.schedule import Overlap
from daybell.core.views import ExecutionFilter
from tests.builders import TENANT, a_job
from tests.store.levels import GATED, as_seen, levelled_queues
from tests.store.pair import SINGLE
from tests.store.pair_at_work import AtWork
from tests.store.pair_upkeep import Upkeep
from tests.stores import POSTGRES, TEST_ALL

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
}
ACTIONS = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
# To read everything takes longer than the step before. What differs mostly stays.
SEEN_EVERY = 1 if TEST_ALL else 4


class Twins(AtWork, Upkeep):
    """A store and its model, to which anything may happen."""

    @initialize(seed=st.integers(0, 2**64 - 1))
    def begin(self, seed: int) -> None:
        self.chance = Random(seed)
        self.steps = 0
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

    @invariant()
    def all_that_people_see_agrees(self) -> None:
        self.steps += 1
        if self.steps % SEEN_EVERY == 0:
            self.all_agrees()

    def all_details_agree(self) -> None:
        super().all_details_agree()
        self.all_agrees()

    def all_agrees(self) -> None:
        everything = ExecutionFilter()
        self.same("list_executions", TENANT, everything, limit=1000, level=as_seen)
        self.same("list_queues", TENANT, level=levelled_queues)
        self.same("list_workers", TENANT, include_dead=True)
        self.same("list_schedules", TENANT)
        self.same("list_jobs", TENANT)
        self.same("recount_gates")


@pytest.mark.postgres
@pytest.mark.parametrize("kind", POSTGRES)
def test_the_two_stores_never_disagree(kind, tmp_path, servers):
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
