"""The admin port: keys, quotas, audit log, requests, secrets, and templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from uuid import UUID

from daybell.core.access import (
    ALL_ENTRIES,
    NO_QUOTAS,
    AuditEntry,
    AuditFilter,
    ChainSegment,
    Key,
    NewAuditEntry,
    NewKey,
    NewRequest,
    NewSecret,
    Quotas,
    Request,
    SealedSecret,
    Secret,
    Tenant,
)
from daybell.core.job import NewTemplate, Template
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page


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

    def auditing(self, tenant: str, entry: NewAuditEntry) -> AbstractContextManager[None]:
        """What this task writes in here is on record: the first transaction in which it changes
        something has the entry as well, so that there is no change without it and no entry
        without a change. One that fails, and is tried again, brings it again.

        Other tasks write for themselves, also those that were started in here. So single enqueues,
        which travel together in a task of their own, are not on record by this; `write_audit` is
        for those.
        """
        ...

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        """Add these entries. Those that are there already (by id) stay as they are."""
        ...

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
        """Entries, newest first. There is no way to change or remove one younger than a year."""
        ...

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
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


# Secrets, sealed, and templates.


class Vault(Protocol):
    """What jobs are made of besides their own definitions."""

    # Secrets.

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        """Keep a secret; one of the same name is replaced, and its version rises. Versions of a
        name never repeat: one that is set after a delete goes on counting.

        Raises VersionConflict if `secret.version` is not the next version.
        """
        ...

    async def list_secrets(self, tenant: str) -> list[Secret]:
        """A tenant's secrets by name, without their values."""
        ...

    async def delete_secret(self, tenant: str, name: str) -> None:
        """Forget a secret. Raises SecretNotFound."""
        ...

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        """Those of these that there are."""
        ...

    # Templates.

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template; one of the same name is replaced, and its version rises, unless both
        are equal: then nothing changes. `expect`: 0 for a name that must be new (DuplicateKey), n
        for the version that must be the current one (VersionConflict).
        """
        ...

    async def get_template(self, tenant: str, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        ...

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        """A tenant's templates, by name. A page ends at PAGE_BYTES_MAX bytes, with one template at
        least.
        """
        ...

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        """Remove a template; jobs that were made from it stay. Raises TemplateNotFound, and
        VersionConflict if it is not at the version expected.
        """
        ...
