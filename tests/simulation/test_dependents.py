"""Jobs that depend on jobs in bad weather. `python -m tests.simulation --dependents` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.dependents import DependentCluster
from tests.simulation.report import lived_through

CHUNK = 4  # seeds
OFTEN = ("round fired", "schedulers collided", "released")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_no_job_begins_before_its_dependencies_let_it_and_each_round_once(store: str):
    seen = lived_through(range(1, 1 + CHUNK), store, DependentCluster)

    assert [path for path in OFTEN if not seen[path]] == [], "too tame"
