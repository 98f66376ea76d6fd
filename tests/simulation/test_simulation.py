"""Many seeds, on both stores. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.paths import missing
from tests.simulation.report import describe

CHUNK = 50  # seeds; as many as it takes for every rare path to be taken


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("first", [1, 1 + CHUNK])
def test_no_promise_is_broken_and_every_rare_path_is_taken(store: str, first: int):
    seen: Counter[str] = Counter()

    for seed in range(first, first + CHUNK):
        outcome = simulate(seed, store)
        assert outcome.failure is None, describe(outcome)
        seen += outcome.seen

    tame = missing(seen, store=store)
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)
