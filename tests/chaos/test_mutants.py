"""Mutants that can be made. `make mutants` makes them all, and demands that they are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mutants import MUTANTS, Mutant, copy_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_source(mutant: Mutant, tmp_path: Path):
    source = copy_of(mutant, tmp_path)

    for name, _, _ in mutant.changes:
        compile((source / "daybell" / name).read_text(), name, "exec")
