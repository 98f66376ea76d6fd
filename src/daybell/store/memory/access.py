"""Keys, tenants, the audit log, and requests that may come twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice, takewhile
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core.access import Key, NewKey
from daybell.core.audit import ALL_ENTRIES, Entry, EntryFilter, Head, NewEntry, Stretch
from daybell.core.idempotency import NewRequest, Request
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import REPEAT_SECONDS_KEPT, check_name
from daybell.core.tenant import NO_QUOTAS, Quotas, Tenant
from daybell.core.view import Page, bytes_of, cut_page
from daybell.errors import DuplicateKey, NotFound, TenantNotFound, shown
from daybell.store import checks, recording
from daybell.store.memory.tables import KeyRow, Part, Tables


class MemoryAccess(Part):
    """See `protocol.Access`."""

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        with self._begin(tenant) as tables:
            checks.check_new_key(key)
            known = tables.keys.get((tenant, key.id))
            if known is not None:
                return known.key
            if any(row.digest == key.digest for row in tables.keys.values()):
                raise DuplicateKey("this token is that of another key already; make a new one")
            now = self._clock()
            made = Key(
                id=key.id,
                tenant=tenant,
                name=key.name,
                role=key.role,
                hint=key.hint,
                created_at=now,
                created_by=key.created_by,
                expires_at=None if key.expires_in is None else now + key.expires_in,
                scope=key.scope,
            )
            tables.keys[tenant, key.id] = KeyRow(key=made, digest=key.digest)
            return made

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        with self._begin() as tables:
            for row in tables.keys.values():
                if row.digest == digest:
                    return row.key, self._clock()
            return None

    async def has_keys(self) -> bool:
        with self._begin() as tables:
            now = self._clock()
            return any(row.key.is_valid(now) for row in tables.keys.values())

    async def list_keys(self, tenant: str) -> list[Key]:
        with self._begin(tenant) as tables:
            found = [row.key for (owner, _), row in tables.keys.items() if owner == tenant]
            return sorted(found, key=lambda key: key.id, reverse=True)

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        with self._begin(tenant) as tables:
            row = tables.keys.get((tenant, id))
            if row is None:
                raise NotFound(f"no key {id}")
            if row.key.revoked_at is None:
                row = replace(row, key=replace(row.key, revoked_at=self._clock()))
                tables.keys[tenant, id] = row
            return row.key

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        with self._begin() as tables:
            now = self._clock()
            for (tenant, id), row in list(tables.keys.items()):
                if id in used:
                    at = max(now - used[id], row.key.used_at or 0.0)
                    tables.keys[tenant, id] = replace(row, key=replace(row.key, used_at=at))

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        with self._begin() as tables:
            checks.check_quotas(asdict(quotas))
            if check_name(name, what="tenant") in tables.tenants:
                raise checks.duplicate_tenant(name)
            made = Tenant(name=name, created_at=self._clock(), quotas=quotas)
            tables.tenants[name] = made
            return made

    async def get_tenant(self, name: str) -> Tenant:
        with self._begin() as tables:
            tenant = tables.tenants.get(name)
            if tenant is None:
                raise TenantNotFound(f"no tenant named {shown(name)}")
            return tenant

    async def list_tenant_records(self) -> list[Tenant]:
        with self._begin() as tables:
            return sorted(tables.tenants.values(), key=lambda tenant: tenant.name)

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        with self._begin(tenant) as tables:
            checks.check_quotas(changes)
            old = tables.tenants[tenant]
            tables.tenants[tenant] = replace(old, quotas=replace(old.quotas, **changes))
            return tables.tenants[tenant]

    def auditing(self, tenant: str, entry: NewEntry) -> AbstractContextManager[None]:
        return recording.auditing(self, tenant, entry)

    async def write_audit(self, tenant: str, entries: Sequence[NewEntry]) -> None:
        with self._begin(tenant) as tables:
            for entry in entries:
                tables.record(tenant, checks.check_entry(entry), self._clock())

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
        with self._begin(tenant) as tables:
            found = [
                link.entry
                for (owner, _), link in tables.audit.items()
                if owner == tenant and fits(link.entry, where)
            ]
            found.sort(key=in_log, reverse=True)
            if last is not None:
                link = tables.audit.get((tenant, last))
                end = None if link is None else in_log(link.entry)
                found = [] if end is None else [one for one in found if in_log(one) < end]
        return cut_page(
            found,
            limit,
            size=lambda one: bytes_of(one.before, one.after),
            cursor=lambda one: str(one.id),
        )

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> Stretch:
        with self._begin(tenant) as tables:
            links = (link for (owner, _), link in tables.audit.items() if owner == tenant)
            found = islice((link for link in links if link.number > after), limit)
            return Stretch(head=tables.audit_heads.get(tenant, Head()), links=tuple(found))

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        with self._begin(tenant) as tables:
            checks.check_request(request)
            now = self._clock()
            known = tables.requests.get((tenant, request.key))
            if known is not None and known[0] > now - REPEAT_SECONDS_KEPT:
                return known[1]
            made = Request(**asdict(request), is_new=True)
            tables.requests[tenant, request.key] = now, replace(made, is_new=False)
            return made

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        with self._begin(tenant) as tables:
            known = tables.requests.get((tenant, key))
            if known is not None and known[1].status is None:
                at, request = known
                answered = replace(request, status=status, answer=answer)
                tables.requests[tenant, key] = at, answered


def in_log(entry: Entry) -> tuple[Instant, UUID]:
    return entry.at, entry.id


def fits(entry: Entry, where: EntryFilter) -> bool:
    return (
        where.actor in (None, entry.actor)
        and where.action in (None, entry.action, entry.action.partition(".")[0])
        and where.target in (None, entry.target)
        and (where.since is None or entry.at >= where.since)
        and (where.until is None or entry.at < where.until)
    )


def remove_requests(tables: Tables, before: Instant) -> int:
    old = [key for key, (at, _) in tables.requests.items() if at < before]
    for key in old:
        del tables.requests[key]
    return len(old)


def remove_entries(tables: Tables, before: Instant) -> int:
    """Remove old entries from the beginnings of the chains; keep the hash of each last one."""
    old = list(takewhile(lambda link: link.entry.at < before, tables.audit.values()))
    for link in old:
        tenant = link.entry.tenant
        del tables.audit[tenant, link.entry.id]
        tables.audit_heads[tenant] = replace(
            tables.audit_heads[tenant], removed=link.number, anchor=link.hash
        )
    return len(old)


def remove_keys(tables: Tables, before: Instant) -> int:
    """Those that have opened nothing for so long."""
    old = [
        key
        for key, row in tables.keys.items()
        if min(row.key.revoked_at or before, row.key.expires_at or before) < before
    ]
    for key in old:
        del tables.keys[key]
    return len(old)
