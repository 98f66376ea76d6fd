"""Recurrence rules of RFC 5545, as calendars exchange them."""

from __future__ import annotations

from typing import Unpack

from daybell.core.when.options import Options
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import Fold, Gap


def rrule(
    text: str, *, gap: Gap = "shift", fold: Fold = "first", **options: Unpack[Options]
) -> Schedule:
    """When a recurrence rule says: `rrule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9")`."""
    raise NotImplementedError
