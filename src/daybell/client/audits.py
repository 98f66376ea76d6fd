"""The audit log: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from daybell.client.filters import now_for
from daybell.client.requests import Time, read_bound
from daybell.core.audit import AuditCheck, Entry, EntryFilter, NewEntry, Position, follow_chain
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.view import Page
from daybell.store import checks
from daybell.store.protocol import Store

STRETCH_MAX: Final = 100  # entries read at a time; each may have 128 KB


class Audits:
    """The verbs of `Client` for the audit log."""

    store: Store
    tenant: str

    async def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        limit: int = PAGE_ITEMS_DEFAULT,
        cursor: str | None = None,
    ) -> Page[Entry]:
        """Entries of the audit log, newest first. An action is all of it, or only its noun."""
        now = await now_for(self.store, since, until)
        where = EntryFilter(
            actor=actor,
            action=action,
            target=target,
            since=None if since is None else read_bound(since, "since", now=now),
            until=None if until is None else read_bound(until, "until", now=now),
        )
        return await self.store.list_audit(self.tenant, where, limit=limit, cursor=cursor)

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first.

        `cursor` is `next_cursor` of an earlier check, or its `head`: then the log must still
        continue from there.
        """
        checks.check_limit(limit)
        at = Position() if cursor is None else Position.parse(cursor)
        first, entries, unchained, broken, is_last = at, 0, 0, None, False
        while entries < limit and broken is None and not is_last:
            most = min(STRETCH_MAX, limit - entries)
            stretch = await self.store.read_audit_chain(self.tenant, after=at.number, limit=most)
            is_last = len(stretch.links) < most
            if at is first:
                unchained = stretch.unchained
            start = max(at.number, stretch.head.removed)
            at, broken = follow_chain(at, stretch, is_last=is_last)
            entries += max(at.number - start, 0)
        return AuditCheck(
            entries=entries,
            unchained=unchained,
            head=str(at),
            broken=broken,
            next_cursor=None if broken or is_last else str(at),
        )

    def auditing(self, entry: NewEntry) -> AbstractContextManager[None]:
        """Have the first change that this task makes in the block bring the entry with it, in the
        same transaction. Not for `enqueue`, which travels with others': see `record`.
        """
        return self.store.auditing(self.tenant, entry)

    async def record(self, entries: Sequence[NewEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        await self.store.write_audit(self.tenant, entries)
