"""Keys, tenants, idempotent requests, the audit log, secrets, and templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice, takewhile
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.access import (
    ALL_ENTRIES,
    NO_QUOTAS,
    AuditEntry,
    AuditFilter,
    ChainHead,
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
    bound_id,
)
from daybell.core.job import NewTemplate, Template, next_template_version, version_conflict
from daybell.core.limits import REPEAT_SECONDS_KEPT, check_name
from daybell.core.references import check_secret_name
from daybell.core.units import Instant, Seconds
from daybell.core.views import Page, bytes_of, cut_page
from daybell.errors import (
    DuplicateKey,
    NotFound,
    SecretNotFound,
    TemplateNotFound,
    TenantNotFound,
    shown,
)
from daybell.store import admin
from daybell.store.memory.tables import KeyRow, Part, SecretRow, Tables


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

    def auditing(self, tenant: str, entry: NewAuditEntry) -> AbstractContextManager[None]:
        return admin.auditing(self, tenant, entry)

    async def write_audit(self, tenant: str, entries: Sequence[NewAuditEntry]) -> None:
        with self._begin(tenant) as tables:
            for entry in entries:
                tables.record(tenant, checks.check_entry(entry), self._clock())

    async def list_audit(
        self,
        tenant: str,
        where: AuditFilter = ALL_ENTRIES,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[AuditEntry]:
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

    async def read_audit_chain(self, tenant: str, *, after: int, limit: int) -> ChainSegment:
        with self._begin(tenant) as tables:
            links = (link for (owner, _), link in tables.audit.items() if owner == tenant)
            found = islice((link for link in links if link.number > after), limit)
            return ChainSegment(
                head=tables.audit_heads.get(tenant, ChainHead()), links=tuple(found)
            )

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


def in_log(entry: AuditEntry) -> tuple[Instant, UUID]:
    return entry.at, entry.id


def fits(entry: AuditEntry, where: AuditFilter) -> bool:
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


# Secrets, sealed, and templates.


class MemoryVault(Part):
    """See `protocol.Vault`."""

    async def set_secret(self, tenant: str, secret: NewSecret) -> Secret:
        with self._begin(tenant) as tables:
            checks.check_secret(secret)
            now = self._clock()
            known = tables.secrets.get((tenant, secret.name))
            at = 0 if known is None else known.secret.version
            if secret.version not in (None, at + 1):
                raise version_conflict(secret.name, at=at, expect=secret.version - 1, what="secret")
            made = Secret(
                name=secret.name,
                tenant=tenant,
                key_id=secret.key_id,
                version=at + 1,
                created_at=known.secret.created_at if known and known.sealed else now,
                updated_at=now,
                author=secret.author,
            )
            tables.secrets[tenant, secret.name] = SecretRow(secret=made, sealed=secret.sealed)
            return made

    async def list_secrets(self, tenant: str) -> list[Secret]:
        with self._begin(tenant) as tables:
            found = [
                row.secret
                for (owner, _), row in tables.secrets.items()
                if owner == tenant and row.sealed
            ]
            return sorted(found, key=lambda secret: secret.name)

    async def delete_secret(self, tenant: str, name: str) -> None:
        with self._begin(tenant) as tables:
            known = tables.secrets.get((tenant, check_secret_name(name)))
            if known is None or not known.sealed:
                raise SecretNotFound(f"no secret named {shown(name)}")
            # The row stays, empty, so that versions of the name do not repeat.
            key_id, version = bound_id(known.secret.key_id), known.secret.version + 1
            secret = replace(known.secret, key_id=key_id, version=version)
            tables.secrets[tenant, name] = SecretRow(secret=secret, sealed=b"")

    async def fetch_secrets(self, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
        with self._begin(tenant) as tables:
            found = {name: tables.secrets.get((tenant, name)) for name in names}
            return {
                name: SealedSecret(
                    name=name,
                    key_id=row.secret.key_id,
                    version=row.secret.version,
                    sealed=row.sealed,
                )
                for name, row in found.items()
                if row is not None and row.sealed
            }

    async def set_template(
        self, tenant: str, template: NewTemplate, *, author: str = "", expect: int | None = None
    ) -> Template:
        with self._begin(tenant) as tables:
            text = checks.check_template(template, author)
            name, now = template.name, self._clock()
            known = tables.templates.get((tenant, name))
            at = 0 if known is None else known.version
            kept = None if known is None else known.template.to_json()
            version = next_template_version(name, at=at, kept=kept, text=text, expect=expect)
            if known is not None and version == at:
                return known
            made = tables.templates[tenant, name] = Template(
                tenant=tenant,
                template=NewTemplate.from_json(name, text),
                version=version,
                created_at=now if known is None else known.created_at,
                updated_at=now,
                author=author,
            )
            return made

    async def get_template(self, tenant: str, name: str) -> Template:
        with self._begin(tenant) as tables:
            known = tables.templates.get((tenant, check_name(name, what="template")))
            if known is None:
                raise TemplateNotFound(f"no template named {shown(name)}")
            return known

    async def list_templates(
        self, tenant: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[Template]:
        checks.check_limit(limit)
        after = checks.check_name_cursor(cursor)
        with self._begin(tenant) as tables:
            found = [
                one
                for (owner, name), one in sorted(tables.templates.items())
                if owner == tenant and name > after
            ]
        return cut_page(
            found,
            limit,
            size=lambda one: bytes_of(one.template.to_json()),
            cursor=lambda one: one.name,
        )

    async def delete_template(self, tenant: str, name: str, *, expect: int | None = None) -> None:
        with self._begin(tenant) as tables:
            known = tables.templates.pop((tenant, check_name(name, what="template")), None)
            if known is None:
                raise TemplateNotFound(f"no template named {shown(name)}")
            if expect is not None and known.version != expect:
                raise version_conflict(name, at=known.version, expect=expect, what="template")
