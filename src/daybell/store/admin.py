"""Refusals of tenant quotas, and audit entries on their way to a transaction."""

from __future__ import annotations

from typing import Final

from daybell.core.access import NewAuditEntry
from daybell.core.checks import check_entry
from daybell.core.units import Instant, Seconds
from daybell.errors import QuotaExceeded, shown

MINUTE_SECONDS: Final = 60
# The store cannot tell when an execution will end, or a job be deleted.
QUEUED_WAIT_SECONDS: Final = 10.0
JOBS_WAIT_SECONDS: Final = 60.0

_WHAT: Final = {
    "jobs": "have {most:,} jobs; delete some first",
    "queued": "have {most:,} unfinished executions; wait until some have ended",
    "per_minute": "enqueue {most:,} executions per minute; wait for the next",
}


def minute_of(now: Instant) -> int:
    """Return the minute since 1970 that is counted."""
    return int(now // MINUTE_SECONDS)


def rest_of_minute(now: Instant) -> Seconds:
    """Return the time until the next minute begins."""
    return (minute_of(now) + 1) * MINUTE_SECONDS - now


def quota_error(tenant: str, quota: str, *, most: int, wait: Seconds) -> QuotaExceeded:
    """Return the error for a caller that wants more than the tenant may use."""
    what = _WHAT[quota].format(most=most)
    return QuotaExceeded(
        f"tenant {shown(tenant)} may {what}, or have its quota {quota} raised",
        quota=quota,
        retry_after=wait,
    )


# Audit entries on their way to the transaction that they describe.


class PendingEntry:
    """An entry that the first transaction that changes something brings with it."""

    __slots__ = ("entry", "is_idle", "is_on_record", "tenant")

    def __init__(self, tenant: str, entry: NewAuditEntry) -> None:
        self.tenant = tenant
        self.entry = check_entry(entry)
        self.is_on_record = False
        self.is_idle = False  # the current write has changed nothing, but may hold locks

    def committed(self) -> None:
        """Note that the transaction with the entry is committed; until then a retry brings it."""
        self.is_on_record = True
