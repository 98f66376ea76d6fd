"""Every mutant applies to the present source. `make mutants` runs them all, and requires that they
are noticed.
"""

from __future__ import annotations

import pytest

from tests.chaos.mutants import MUTANTS, Mutant
from tests.mutating import ROOT, changed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_source(mutant: Mutant):
    for name, text in changed(mutant, is_once=False).items():
        if name.endswith(".py"):
            compile(text, name, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_notice_a_mutant_exist(mutant: Mutant):
    assert [name for name in mutant.tests if not (ROOT / name).exists()] == []
