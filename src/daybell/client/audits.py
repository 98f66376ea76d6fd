"""The audit log: who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from daybell.client.requests import Time, read_bound
from daybell.core.audit import Entry, EntryFilter, NewEntry
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.core.view import Page
from daybell.store.protocol import Store


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
        where = EntryFilter(
            actor=actor,
            action=action,
            target=target,
            since=None if since is None else read_bound(since, "since"),
            until=None if until is None else read_bound(until, "until"),
        )
        return await self.store.list_audit(self.tenant, where, limit=limit, cursor=cursor)

    def auditing(self, entry: NewEntry) -> AbstractContextManager[None]:
        """Have the first change that this task makes in the block bring the entry with it, in the
        same transaction. Not for `enqueue`, which travels with others': see `record`.
        """
        return self.store.auditing(self.tenant, entry)

    async def record(self, entries: Sequence[NewEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        await self.store.write_audit(self.tenant, entries)
