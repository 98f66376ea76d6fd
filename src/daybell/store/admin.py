"""Refusals of tenant quotas, and audit entries on their way to a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from daybell.core.access import NewAuditEntry
from daybell.core.checks import check_entry
from daybell.core.units import Instant, Seconds
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


def quota_error(tenant: str, quota: str, *, most: int, wait: Seconds) -> QuotaExceeded:
    """What a caller hears who wants more than the tenant may use."""
    what = _WHAT[quota].format(most=most)
    return QuotaExceeded(
        f"tenant {shown(tenant)} may {what}, or have its quota {quota} raised",
        quota=quota,
        retry_after=wait,
    )


# Entries of the audit log on their way to the transaction that they tell of.
#
# A block of `auditing` belongs to one task of one event loop, and so do the writes that it puts
# on record: a task that was started in the block writes for itself, and often for others as well.


class PendingEntry:
    """An entry that waits for the first write of its block."""

    __slots__ = ("entry", "is_idle", "is_on_record", "store", "task", "tenant")

    def __init__(self, store: object, tenant: str, entry: NewAuditEntry) -> None:
        self.store = store
        self.tenant = tenant
        self.entry = entry
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        self.is_on_record = False
        self.is_idle = False  # the write under way has changed nothing, whatever it has locked

    def committed(self) -> None:
        """The transaction that has the entry is made. Until then, one that is tried again has to
        bring it, too.
        """
        self.is_on_record = True


_recording: Final[ContextVar[PendingEntry | None]] = ContextVar("recording", default=None)


@contextmanager
def auditing(store: object, tenant: str, entry: NewAuditEntry) -> Generator[None]:
    """Have the first write that this task makes to the store in the block bring the entry."""
    token = _recording.set(PendingEntry(store, tenant, check_entry(entry)))
    try:
        yield
    finally:
        _recording.reset(token)


def pending_entry(store: object) -> PendingEntry | None:
    """The entry that a write to the store by this task has to bring, if there is one."""
    recording = _recording.get()
    if recording is None or recording.is_on_record or recording.store is not store:
        return None
    return recording if asyncio.current_task() is recording.task else None


def skip_entry(store: object) -> None:
    """Say that the write under way has changed nothing. For those that lock what they look at,
    where a store takes that for a change.
    """
    recording = pending_entry(store)
    if recording is not None:
        recording.is_idle = True
