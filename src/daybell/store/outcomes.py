"""Small answers of store operations."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.instant import Instant, Seconds


class Cancellation(StrEnum):
    """The answer to a cancellation. True if it came in time."""

    CANCELLED = "cancelled"  # it had not started, and is over now
    REQUESTED = "requested"  # it runs; it will end as cancelled
    FINISHED = "finished"  # too late
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return self in (Cancellation.CANCELLED, Cancellation.REQUESTED)


class Revival(StrEnum):
    REVIVED = "revived"
    NOT_LISTED = "not_listed"  # it is not dead, or was discarded
    KEY_HELD = "key_held"  # another unfinished execution of the job has its unique key
    OVER_QUOTA = "over_quota"  # the tenant has as many unfinished executions as it may have
    UNKNOWN = "unknown"


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """An execution in the hands of a dead worker, with what its job says about that."""

    worker: UUID
    claimed: Claimed
    max_crashes: int
    retry: bool  # the job's `on_lost` is not "dead"
    # How long it has run, at least, when its worker was last heard of; None: it had not begun, by
    # its worker's reports.
    ran: Seconds | None
    is_sole: bool  # its worker has recorded it as the only suspect there
    is_excused: bool = False  # its worker stopped because the store was late: see `register`


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What the dead hold, and the store's time by which they were judged.

    `is_any_waiting` is whether anything waits at a gate, or a run for room in its tenant's quota;
    `is_any_overdue` whether a wait for an event has lasted long enough, so that neither need be
    asked for.
    """

    now: Instant
    executions: list[Lost]
    is_any_waiting: bool
    is_any_overdue: bool = False
