"""A seed is worth something only if it gives the same run again, whatever ran before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.cluster import Cluster, simulate
from tests.simulation.dependents import DependentCluster
from tests.simulation.flows import FlowCluster

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("kind", [Cluster, DependentCluster, FlowCluster])
def test_a_seed_gives_the_same_run_after_another_one(kind: type[Cluster]):
    first = simulate(7, kind).trace()
    simulate(8, kind)

    assert len(first) > 100
    assert simulate(7, kind).trace() == first


def test_a_seed_gives_the_same_run_in_another_process_with_other_hashes():
    here = "\n".join(simulate(7).trace())

    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "7", "--trace"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},  # here it is drawn by chance
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line for line in there.splitlines() if not line.startswith("seed ")]
    assert "\n".join(lines) == here
