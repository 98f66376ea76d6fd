"""Workflows in bad weather. `python -m tests.simulation --flows` runs more."""

from __future__ import annotations

from tests.simulation.flows import FlowCluster
from tests.simulation.report import lived_through

OFTEN = ("run succeeded", "run dead", "run cancelled", "inner run", "node retried", "node lost",
         "node skipped", "mapped", "swept", "stale end", "quota used up")  # fmt: skip


SEEDS = 21


def test_runs_end_as_a_reference_says_and_no_node_starts_before_its_rule_allows():
    seen = lived_through(range(1, 1 + SEEDS), FlowCluster)

    assert [path for path in OFTEN if not seen[path]] == [], "too tame"
