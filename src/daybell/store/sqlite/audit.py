"""The audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from uuid import UUID

from daybell.core.audit import ALL_ENTRIES, Entry, EntryFilter, NewEntry
from daybell.core.view import Page, bytes_of, cut_page
from daybell.store import checks, recording
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction
from daybell.store.sqlite.recorded import record


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
