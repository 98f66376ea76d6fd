"""The faults of a seed are always the same, and no seed is tame."""

import pytest

from daybell.chaos.faults import ALONE, OF_PROCESSES, Kind, draw_faults
from daybell.chaos.fleet import WORKER


def kinds(seed, **options):
    told = {"seconds": 30, "lease": 2.0, "has_proxy": True, "has_restart": True} | options
    return [fault.kind for fault in draw_faults(seed, **told)]


def test_a_seed_says_what_happens():
    assert kinds(1) == kinds(1) != kinds(2)


@pytest.mark.parametrize("seed", range(20))
def test_half_a_minute_has_some_of_everything(seed):
    assert set(kinds(seed)) == set(Kind)


def test_a_file_has_no_connections_and_no_server():
    found = set(kinds(1, has_proxy=False, has_restart=False))

    assert found == {Kind.KILL, Kind.FREEZE, Kind.DRAIN, Kind.EXIT}


def test_a_freeze_and_an_outage_are_longer_than_the_lease():
    faults = draw_faults(1, seconds=60, lease=2.0, has_proxy=True, has_restart=False)

    long = {Kind.FREEZE, Kind.OUTAGE}
    assert all(fault.length > 2.0 for fault in faults if fault.kind in long)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_else_disturbs_what_is_to_be_seen_of_deaf_held_and_slow_connections(seed):
    faults = draw_faults(seed, seconds=120, lease=2.0, has_proxy=True, has_restart=True)

    for one in [fault for fault in faults if fault.kind in ALONE]:
        inside = [
            fault
            for fault in faults
            if fault is not one and one.at <= fault.at <= one.at + one.length
        ]
        assert all(fault.kind in OF_PROCESSES and fault.role == WORKER for fault in inside)
        assert one.kind is not Kind.DEAF or not inside


def test_only_some_kinds_may_be_asked_for():
    assert set(kinds(1, only=[Kind.LATE, Kind.KILL])) == {Kind.LATE, Kind.KILL}
    assert kinds(1, only=[]) == []
