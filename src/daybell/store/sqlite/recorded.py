"""Changes that bring an entry of the audit log with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import asdict

from daybell.core.audit import Entry, Head, Link, NewEntry, extend_chain
from daybell.store.recording import Recording
from daybell.store.sqlite.names import Transaction

T = TypeVar("T")

_ADD: Final = """
INSERT INTO audit (number, hash, id, tenant, at, actor, action, target, before, after, source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_HEAD: Final = "SELECT number, hash, removed, anchor FROM audit_head WHERE tenant = ?"
# A head that was deleted does not bring the numbers back.
_NEW_HEAD: Final = """
INSERT INTO audit_head (tenant, since, number, hash, removed, anchor)
SELECT ?1, ?2, ifnull(max(number), 0), x'', 0, x'' FROM audit WHERE tenant = ?1
"""
_MOVE_HEAD: Final = "UPDATE audit_head SET number = ?, hash = ? WHERE tenant = ?"
_KNOWN: Final = "SELECT 1 FROM audit WHERE id = ? AND tenant = ?"


def read_head(tx: Transaction, owner: int) -> Head | None:
    """Return the head of a tenant's chain, if it has one."""
    row = tx.execute(_HEAD, (owner,)).fetchone()
    if row is None:
        return None
    number, last, removed, anchor = row
    return Head(number=number, hash=last, removed=removed, anchor=anchor)


def record(tx: Transaction, tenant: str, entries: Sequence[NewEntry]) -> None:
    """Append these entries to the tenant's chain, except those that exist."""
    owner = tx.names.tenant(tx, tenant)
    each = {entry.id: entry for entry in entries}
    new = [
        Entry(tenant=tenant, at=tx.now, **asdict(entry))
        for entry in each.values()
        if tx.execute(_KNOWN, (entry.id.bytes, owner)).fetchone() is None
    ]
    if not new:
        return
    head = read_head(tx, owner)
    if head is None:
        tx.execute(_NEW_HEAD, (owner, tx.now))
        head = read_head(tx, owner)
        assert head is not None, "it was just inserted"
    head, links = extend_chain(head, new)
    tx.executemany(_ADD, [_row(owner, link) for link in links])
    tx.execute(_MOVE_HEAD, (head.number, head.hash, owner))


def _row(owner: int, link: Link) -> tuple[object, ...]:
    e = link.entry
    about = (e.actor, e.action, e.target, e.before, e.after, e.source)
    return link.number, link.hash, e.id.bytes, owner, e.at, *about


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
