"""Many seeds, on both stores. `python -m tests.simulation --help` says how to look at one."""

from __future__ import annotations

import pytest

from tests.simulation.paths import missing
from tests.simulation.report import lived_through

CHUNK = 50  # seeds; as many as it takes for every rare path to be taken


# Other seeds on each store: most of what they find out is found out on any. All on all with all
# tests, and many more by `make simulate`.
@pytest.mark.parametrize(
    ("first", "store"),
    [
        (1, "memory"),
        (1 + CHUNK, "sqlite"),
        pytest.param(1, "sqlite", marks=pytest.mark.all_only),
        pytest.param(1 + CHUNK, "memory", marks=pytest.mark.all_only),
    ],
)
def test_no_promise_is_broken_and_every_rare_path_is_taken(store: str, first: int):
    seen = lived_through(range(first, first + CHUNK), store)

    tame = missing(seen, store=store)
    assert not tame, "too tame; what has never happened:\n" + "\n".join(tame)
