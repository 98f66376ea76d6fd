"""Many seeds, on both stores. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

from tests.simulation.paths import SQLITE_ONLY, missing
from tests.simulation.report import lived_through

SEEDS = 50  # as many as it takes for every rare path to be taken


def test_no_promise_is_broken_and_every_rare_path_is_taken():
    seen = lived_through(range(1, 1 + SEEDS), "memory")

    tame = missing(seen, store="memory")
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)


def test_no_promise_is_broken_on_sqlite():
    """Other seeds, fewer, because each takes longer. `make simulate` runs thousands."""
    seen = lived_through(range(1 + SEEDS, 21 + SEEDS), "sqlite")

    assert [path for path in SQLITE_ONLY if not seen[path]] == [], "too tame"
