"""Workflows in bad weather, on both stores. `python -m tests.simulation --flows` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.flows import FlowCluster
from tests.simulation.report import lived_through

OFTEN = ("run succeeded", "run dead", "run cancelled", "inner run", "node retried", "node lost",
         "node skipped", "mapped", "swept", "stale end", "quota used up")  # fmt: skip


@pytest.mark.parametrize(("store", "seeds"), [("memory", range(1, 16)), ("sqlite", range(16, 22))])
def test_runs_end_as_a_reference_says_and_no_node_starts_before_its_rule_allows(
    store: str, seeds: range
):
    seen = lived_through(seeds, store, FlowCluster)

    assert store == "sqlite" or [path for path in OFTEN if not seen[path]] == [], "too tame"
