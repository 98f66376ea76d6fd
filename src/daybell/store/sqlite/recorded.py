"""Changes that bring an entry of the audit log with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from daybell.core.audit import NewEntry
from daybell.store.recording import Recording
from daybell.store.sqlite.names import Transaction

T = TypeVar("T")

_ADD: Final = """
INSERT INTO audit (id, tenant, at, actor, action, target, before, after, source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def record(tx: Transaction, tenant: str, entries: Sequence[NewEntry]) -> None:
    """Add these entries to the log, but for those that are there."""
    owner = tx.names.tenant(tx, tenant)
    rows = [
        (e.id.bytes, owner, tx.now, e.actor, e.action, e.target, e.before, e.after, e.source)
        for e in entries
    ]
    tx.executemany(_ADD, rows)


class Recorded:
    """An operation with the entry that tells of it, if it changes anything."""

    def __init__(self, operation: Callable[[Transaction], T], recording: Recording) -> None:
        self._operation = operation
        self._recording = recording
        self._has_changed = False

    def __call__(self, tx: Transaction) -> object:
        before = tx.changes()
        answer = self._operation(tx)
        self._has_changed = tx.changes() > before
        if self._has_changed:
            record(tx, self._recording.tenant, [self._recording.entry])
        return answer

    def committed(self) -> None:
        """What it did is on disk."""
        if self._has_changed:
            self._recording.committed()
