"""What is said of quotas, in the same words by every store."""

from __future__ import annotations

from typing import Final

from daybell.core.instant import Instant, Seconds
from daybell.errors import QuotaExceeded, shown

MINUTE_SECONDS: Final = 60
# Nobody knows when something will end, or be deleted.
QUEUED_WAIT_SECONDS: Final = 10.0
JOBS_WAIT_SECONDS: Final = 60.0

_WHAT: Final = {
    "jobs": "have {most:,} jobs; delete some first",
    "queued": "have {most:,} unfinished executions; wait until some have ended",
    "per_minute": "enqueue {most:,} executions per minute; wait for the next",
}


def minute_of(now: Instant) -> int:
    """The minute since 1970 that is counted."""
    return int(now // MINUTE_SECONDS)


def rest_of_minute(now: Instant) -> Seconds:
    """How long it is until the next one begins."""
    return (minute_of(now) + 1) * MINUTE_SECONDS - now


def exceeded(tenant: str, quota: str, *, most: int, wait: Seconds) -> QuotaExceeded:
    """What a caller hears who wants more than the tenant may use."""
    what = _WHAT[quota].format(most=most)
    return QuotaExceeded(
        f"tenant {shown(tenant)} may {what}, or have its quota {quota} raised",
        quota=quota,
        retry_after=wait,
    )
