"""A schedule in plain English."""

from __future__ import annotations

from daybell.core.when.rule import Schedule


def describe(schedule: Schedule) -> str:
    """What a schedule means."""
    return schedule.to_json()
