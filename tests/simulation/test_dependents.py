"""Jobs that depend on jobs in bad weather. `python -m tests.simulation --dependents` runs more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.dependents import DependentCluster
from tests.simulation.report import describe

CHUNK = 4  # seeds
OFTEN = ("round fired", "schedulers collided", "released")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_no_job_begins_before_its_dependencies_let_it_and_each_round_once(store: str):
    seen: Counter[str] = Counter()

    for seed in range(1, 1 + CHUNK):
        outcome = simulate(seed, store, DependentCluster)
        assert outcome.failure is None, describe(outcome)
        seen += outcome.seen

    assert [path for path in OFTEN if not seen[path]] == [], "too tame"
