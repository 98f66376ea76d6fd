"""Many seeds, on both stores. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

import pytest

from tests.simulation.paths import missing
from tests.simulation.report import lived_through

CHUNK = 50  # seeds; as many as it takes for every rare path to be taken
STORES = ("memory", "sqlite")


@pytest.mark.parametrize("store", STORES)
def test_no_promise_is_broken_and_every_rare_path_is_taken(store: str):
    seen = lived_through(range(1, 1 + CHUNK), store)

    tame = missing(seen, store=store)
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)


@pytest.mark.parametrize("store", STORES)
def test_no_promise_is_broken_by_others(store: str):
    """As many again, for another process to run. `make simulate` runs thousands."""
    lived_through(range(1 + CHUNK, 1 + 2 * CHUNK), store)
