"""Limits, demands, collapsing requests and events in bad weather. `python -m tests.simulation
--controls` runs more.
"""

from __future__ import annotations

from tests.simulation.controls import ControlCluster
from tests.simulation.report import lived_through

CHUNK = 4  # seeds
OFTEN = ("parked", "limit used up", "placed", "cached", "fired", "event again")


def test_no_limit_is_exceeded_and_each_event_fires_each_listener_once():
    seen = lived_through(range(1, 1 + CHUNK), ControlCluster)

    assert [path for path in OFTEN if not seen[path]] == [], "too tame"
