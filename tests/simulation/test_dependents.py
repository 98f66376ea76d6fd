"""Jobs that depend on jobs in bad weather. `python -m tests.simulation --dependents` runs more."""

from __future__ import annotations

from tests.simulation.dependents import DependentCluster
from tests.simulation.report import lived_through

CHUNK = 4  # seeds
OFTEN = ("round fired", "schedulers collided", "released")


def test_no_job_begins_before_its_dependencies_let_it_and_each_round_once():
    seen = lived_through(range(1, 1 + CHUNK), DependentCluster)

    assert [path for path in OFTEN if not seen[path]] == [], "too tame"
