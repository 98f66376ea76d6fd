"""Entries of the audit log on their way to the transaction that they tell of.

A block of `auditing` belongs to one task of one event loop, and so do the writes that it puts on
record: a task that was started in the block writes for itself, and often for others as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from daybell.core.audit import NewEntry
from daybell.store.checks import check_entry


class Recording:
    """An entry that waits for the first write of its block."""

    __slots__ = ("entry", "is_idle", "is_on_record", "store", "task", "tenant")

    def __init__(self, store: object, tenant: str, entry: NewEntry) -> None:
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


_recording: Final[ContextVar[Recording | None]] = ContextVar("recording", default=None)


@contextmanager
def auditing(store: object, tenant: str, entry: NewEntry) -> Generator[None]:
    """Have the first write that this task makes to the store in the block bring the entry."""
    token = _recording.set(Recording(store, tenant, check_entry(entry)))
    try:
        yield
    finally:
        _recording.reset(token)


def wanted(store: object) -> Recording | None:
    """The entry that a write to the store by this task has to bring, if there is one."""
    recording = _recording.get()
    if recording is None or recording.is_on_record or recording.store is not store:
        return None
    return recording if asyncio.current_task() is recording.task else None


def idle(store: object) -> None:
    """Say that the write under way has changed nothing. For those that lock what they look at,
    where a store takes that for a change.
    """
    recording = wanted(store)
    if recording is not None:
        recording.is_idle = True
