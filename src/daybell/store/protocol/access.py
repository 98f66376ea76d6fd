"""Keys, tenants' quotas, the audit log, and requests that may come twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from daybell.core.access import Key, NewKey
from daybell.core.audit import ALL_ENTRIES, Entry, EntryFilter, NewEntry, Stretch
from daybell.core.idempotency import NewRequest, Request
from daybell.core.instant import Instant, Seconds
from daybell.core.tenant import NO_QUOTAS, Quotas, Tenant
from daybell.core.view import Page


class Access(Protocol):
    """Who may do what, how much of it, and who did."""

    # Keys.

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        """Keep a key. One with the same id is there already and is answered as it is."""
        ...

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        """The key with this digest, of whichever tenant, and the store's time; revoked and
        expired ones too. None: there is none.
        """
        ...

    async def has_keys(self) -> bool:
        """Whether any key of any tenant is valid now."""
        ...

    async def list_keys(self, tenant: str) -> list[Key]:
        """A tenant's keys, newest first; revoked and expired ones too."""
        ...

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        """Let a key open nothing any more. Once revoked it stays so, with its first time. Raises
        NotFound.
        """
        ...

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        """Note that these keys were used so many seconds ago. A later time that is known stays."""
        ...

    # Tenants.

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        """Create a tenant with these quotas. One that exists is refused with DuplicateKey."""
        ...

    async def get_tenant(self, name: str) -> Tenant:
        """A tenant. Raises TenantNotFound."""
        ...

    async def list_tenant_records(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        ...

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        """Change these quotas of a tenant, by the names that `Quotas` has; the others stay, also
        if somebody else changes them at the same time. None is no limit.

        `define_jobs` and `enqueue` (`load` too) refuse what would exceed them with QuotaExceeded,
        and nothing is written. Claims take no more than `running` leaves. Nodes of runs start as
        far as `queued` leaves room, one of each run in any case; the others start when something
        ends, or `advance_runs` finds room. Ticks of schedules are
        counted and never refused: a quota delays work, it does not lose it. What is over a new
        quota already stays. Other processes heed a change within 5 seconds.
        """
        ...

    # The audit log.

    def auditing(self, tenant: str, entry: NewEntry) -> AbstractContextManager[None]:
        """What this task writes in here is on record: the first transaction in which it changes
        something has the entry as well, so that there is no change without it and no entry
        without a change. One that fails, and is tried again, brings it again.

        Other tasks write for themselves, also those that were started in here. So single enqueues,
        which travel together in a task of their own, are not on record by this; `write_audit` is
        for those.
        """
        ...

    async def write_audit(self, tenant: str, entries: Sequence[NewEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        ...

    async def list_audit(
        self,
        tenant: str,
        where: EntryFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Entry]:
        """Entries, newest first. There is no way to change or remove one younger than a year."""
        ...

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> Stretch:
        """Return the head of a tenant's chain and the entries with numbers above `after`, in order,
        at most `limit`. Entries join the chain in the order of their commits; `retain` removes them
        from its beginning only, and the head keeps the hash of the last removed one.
        """
        ...

    # Requests that may come twice.

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        """Remember a request, or answer what is known of an earlier one with its key. Remembered
        for a day.
        """
        ...

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        """Keep the answer to a request. The first one stays."""
        ...
