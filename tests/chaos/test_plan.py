"""The faults of a seed are always the same, and no seed is tame."""

import pytest

from daybell.chaos.plan import Kind, plan


def kinds(seed, **options):
    told = {"seconds": 30, "lease": 2.0, "has_proxy": True, "has_restart": True} | options
    return [fault.kind for fault in plan(seed, **told)]


def test_a_seed_says_what_happens():
    assert kinds(1) == kinds(1) != kinds(2)


@pytest.mark.parametrize("seed", range(20))
def test_half_a_minute_has_some_of_everything(seed):
    assert set(kinds(seed)) == set(Kind)


def test_a_file_has_no_connections_and_no_server():
    found = set(kinds(1, has_proxy=False, has_restart=False))

    assert found == {Kind.KILL, Kind.FREEZE, Kind.DRAIN}


def test_a_freeze_and_an_outage_are_longer_than_the_lease():
    faults = plan(1, seconds=60, lease=2.0, has_proxy=True, has_restart=False)

    long = {Kind.FREEZE, Kind.OUTAGE}
    assert all(fault.length > 2.0 for fault in faults if fault.kind in long)
