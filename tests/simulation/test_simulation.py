"""Many seeds. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

from tests.simulation.paths import missing
from tests.simulation.report import lived_through

SEEDS = 25  # about twice as many as it takes for every rare path to be taken
SEEDS_MAX = 100  # a change of the code moves rare paths to other seeds


def test_no_promise_is_broken_and_every_rare_path_is_taken():
    seen = lived_through(range(1, 1 + SEEDS))
    for seed in range(1 + SEEDS, 1 + SEEDS_MAX):
        if not missing(seen):
            break
        seen += lived_through([seed])

    tame = missing(seen)
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)
