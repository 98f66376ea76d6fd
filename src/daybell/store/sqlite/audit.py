"""The audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from uuid import UUID

from daybell.core.audit import ALL_ENTRIES, Entry, EntryFilter, Head, Link, NewEntry, Stretch
from daybell.core.view import Page, bytes_of, cut_page
from daybell.store import checks, recording
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.recorded import read_head, record


class SqliteAudit(Part):
    """The audit log, of `protocol.Access`."""

    def auditing(self, tenant: str, entry: NewEntry) -> AbstractContextManager[None]:
        return recording.auditing(self, tenant, entry)

    async def write_audit(self, tenant: str, entries: Sequence[NewEntry]) -> None:
        for entry in entries:
            checks.check_entry(entry)
        await self._write(lambda tx: record(tx, tenant, entries))

    async def list_audit(
        self,
        tenant: str,
        where: EntryFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Entry]:
        checks.check_limit(limit)
        last = checks.check_cursor(cursor)
        return await self._read(lambda tx: list_entries(tx, tenant, where, limit, last))

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> Stretch:
        return await self._read(lambda tx: read_stretch(tx, tenant, after, limit))


# Each with the value that it compares with.
_CONDITIONS: Final[tuple[tuple[str, Callable[[EntryFilter], Any]], ...]] = (
    ("actor = ?", lambda where: where.actor),
    ("? IN (action, substr(action, 1, instr(action, '.') - 1))", lambda where: where.action),
    ("target = ?", lambda where: where.target),
    ("at >= ?", lambda where: where.since),
    ("at < ?", lambda where: where.until),
)


def list_entries(
    tx: Transaction, tenant: str, where: EntryFilter, limit: int, last: UUID | None
) -> Page[Entry]:
    owner = tx.names.tenant(tx, tenant)
    given = [(condition, value(where)) for condition, value in _CONDITIONS]
    bound = [(condition, value) for condition, value in given if value is not None]
    conditions = ["tenant = ?", *(condition for condition, _ in bound)]
    values: list[Any] = [owner, *(value for _, value in bound)]
    if last is not None:
        conditions.append("(at, id) < (SELECT at, id FROM audit WHERE id = ? AND tenant = ?)")
        values += (last.bytes, owner)
    rows = tx.execute(
        "SELECT id, at, actor, action, target, before, after, source FROM audit"
        f" WHERE {' AND '.join(conditions)} ORDER BY at DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    )
    return cut_page(
        (read_entry(tenant, row) for row in rows),
        limit,
        size=lambda one: bytes_of(one.before, one.after),
        cursor=lambda one: str(one.id),
    )


_STRETCH: Final = """
SELECT number, hash, id, at, actor, action, target, before, after, source FROM audit
 WHERE tenant = ? AND number > ? ORDER BY number LIMIT ?
"""
# Younger than the chain is what was inserted without its trigger.
_UNCHAINED: Final = """
SELECT count(*), min(CASE WHEN a.at >= h.since THEN a.id END)
  FROM audit a LEFT JOIN audit_head h ON h.tenant = a.tenant
 WHERE a.tenant = ? AND a.number IS NULL
"""


def read_stretch(tx: Transaction, tenant: str, after: int, limit: int) -> Stretch:
    owner = tx.names.tenant(tx, tenant)
    links = tuple(
        Link(number=number, hash=hash or b"", entry=read_entry(tenant, rest))
        for number, hash, *rest in tx.execute(_STRETCH, (owner, after, limit))
    )
    unchained, stray = (0, None) if after else tx.execute(_UNCHAINED, (owner,)).fetchone()
    return Stretch(
        head=read_head(tx, owner) or Head(),
        links=links,
        unchained=unchained,
        stray=None if stray is None else UUID(bytes=stray),
    )


def read_entry(tenant: str, row: Any) -> Entry:
    id, at, actor, action, target, before, after, source = row
    return Entry(
        id=UUID(bytes=id),
        tenant=tenant,
        at=at,
        actor=actor,
        action=action,
        target=target,
        before=before,
        after=after,
        source=source,
    )
