"""Versions of jobs that are not what somebody takes them for."""

from __future__ import annotations

from daybell.errors import VersionConflict, shown


def moved(job: str, *, at: int, expect: int) -> VersionConflict:
    """What a person hears who means another version of a job than there is."""
    return VersionConflict(
        f"job {shown(job)} is at version {at}, not {expect}; read it again, then decide again"
    )
