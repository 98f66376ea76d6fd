"""Mutants that can be made. `make mutants` makes them all, and demands that they are noticed."""

from __future__ import annotations

import pytest

from tests.mutating import changed
from tests.simulation.mutants import MUTANTS, Mutant, runs_until_red


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_source(mutant: Mutant):
    for name, text in changed(mutant, is_once=True).items():
        compile(text, name, "exec")


def test_a_broken_promise_is_noticed_and_says_how_to_see_it_again():
    (mutant,) = (one for one in MUTANTS if one.name == "a lost worker is not counted")

    runs, said = runs_until_red(mutant, 20)

    assert runs is not None and runs <= 20
    assert "crashes" in said
