"""Many seeds. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

from tests.simulation.paths import missing
from tests.simulation.report import lived_through

SEEDS = 50  # as many as it takes for every rare path to be taken


def test_no_promise_is_broken_and_every_rare_path_is_taken():
    seen = lived_through(range(1, 1 + SEEDS))

    tame = missing(seen)
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)
