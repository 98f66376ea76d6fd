"""Keys, tenants, idempotent requests, the audit log, secrets, and templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice, takewhile
from uuid import UUID

from msgspec.structs import asdict, replace

from daybell.core import checks
from daybell.core.access import (
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
from daybell.store.memory.tables import KeyRow, SecretRow, Tables


def add_key(tables: Tables, now: Instant, tenant: str, key: NewKey) -> Key:
    checks.check_new_key(key)
    known = tables.keys.get((tenant, key.id))
    if known is not None:
        return known.key
    if any(row.digest == key.digest for row in tables.keys.values()):
        raise DuplicateKey("this token is that of another key already; make a new one")
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


def find_key(tables: Tables, now: Instant, digest: bytes) -> tuple[Key, Instant] | None:
    for row in tables.keys.values():
        if row.digest == digest:
            return row.key, now
    return None


def has_keys(tables: Tables, now: Instant) -> bool:
    return any(row.key.is_valid(now) for row in tables.keys.values())


def list_keys(tables: Tables, tenant: str) -> list[Key]:
    found = [row.key for (owner, _), row in tables.keys.items() if owner == tenant]
    return sorted(found, key=lambda key: key.id, reverse=True)


def revoke_key(tables: Tables, now: Instant, tenant: str, id: UUID) -> Key:
    row = tables.keys.get((tenant, id))
    if row is None:
        raise NotFound(f"no key {id}")
    if row.key.revoked_at is None:
        row = replace(row, key=replace(row.key, revoked_at=now))
        tables.keys[tenant, id] = row
    return row.key


def touch_keys(tables: Tables, now: Instant, used: Mapping[UUID, Seconds]) -> None:
    for (tenant, id), row in list(tables.keys.items()):
        if id in used:
            at = max(now - used[id], row.key.used_at or 0.0)
            tables.keys[tenant, id] = replace(row, key=replace(row.key, used_at=at))


def add_tenant(tables: Tables, now: Instant, name: str, quotas: Quotas) -> Tenant:
    checks.check_quotas(asdict(quotas))
    if check_name(name, what="tenant") in tables.tenants:
        raise checks.duplicate_tenant(name)
    made = Tenant(name=name, created_at=now, quotas=quotas)
    tables.tenants[name] = made
    return made


def get_tenant(tables: Tables, name: str) -> Tenant:
    tenant = tables.tenants.get(name)
    if tenant is None:
        raise TenantNotFound(f"no tenant named {shown(name)}")
    return tenant


def list_tenant_records(tables: Tables) -> list[Tenant]:
    return sorted(tables.tenants.values(), key=lambda tenant: tenant.name)


def set_quotas(tables: Tables, tenant: str, changes: Mapping[str, int | None]) -> Tenant:
    checks.check_quotas(changes)
    old = tables.tenants[tenant]
    tables.tenants[tenant] = replace(old, quotas=replace(old.quotas, **changes))
    return tables.tenants[tenant]


def write_audit(
    tables: Tables, now: Instant, tenant: str, entries: Sequence[NewAuditEntry]
) -> None:
    for entry in entries:
        tables.record(tenant, checks.check_entry(entry), now)


def list_audit(
    tables: Tables, tenant: str, where: AuditFilter, limit: int, cursor: str | None
) -> Page[AuditEntry]:
    checks.check_limit(limit)
    last = checks.check_cursor(cursor)
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


def read_audit_chain(tables: Tables, tenant: str, after: int, limit: int) -> ChainSegment:
    links = (link for (owner, _), link in tables.audit.items() if owner == tenant)
    found = islice((link for link in links if link.number > after), limit)
    return ChainSegment(head=tables.audit_heads.get(tenant, ChainHead()), links=tuple(found))


def begin_request(tables: Tables, now: Instant, tenant: str, request: NewRequest) -> Request:
    checks.check_request(request)
    known = tables.requests.get((tenant, request.key))
    if known is not None and known[0] > now - REPEAT_SECONDS_KEPT:
        return known[1]
    made = Request(**asdict(request), is_new=True)
    tables.requests[tenant, request.key] = now, replace(made, is_new=False)
    return made


def answer_request(tables: Tables, tenant: str, key: str, status: int, answer: str) -> None:
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


def set_secret(tables: Tables, now: Instant, tenant: str, secret: NewSecret) -> Secret:
    checks.check_secret(secret)
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


def list_secrets(tables: Tables, tenant: str) -> list[Secret]:
    found = [
        row.secret for (owner, _), row in tables.secrets.items() if owner == tenant and row.sealed
    ]
    return sorted(found, key=lambda secret: secret.name)


def delete_secret(tables: Tables, tenant: str, name: str) -> None:
    known = tables.secrets.get((tenant, check_secret_name(name)))
    if known is None or not known.sealed:
        raise SecretNotFound(f"no secret named {shown(name)}")
    # The row stays, empty, so that versions of the name do not repeat.
    secret = replace(known.secret, version=known.secret.version + 1)
    tables.secrets[tenant, name] = SecretRow(secret=secret, sealed=b"")


def fetch_secrets(tables: Tables, tenant: str, names: Collection[str]) -> dict[str, SealedSecret]:
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


def set_template(
    tables: Tables,
    now: Instant,
    tenant: str,
    template: NewTemplate,
    author: str,
    expect: int | None,
) -> Template:
    text = checks.check_template(template, author)
    name = template.name
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


def get_template(tables: Tables, tenant: str, name: str) -> Template:
    known = tables.templates.get((tenant, check_name(name, what="template")))
    if known is None:
        raise TemplateNotFound(f"no template named {shown(name)}")
    return known


def list_templates(tables: Tables, tenant: str, limit: int, cursor: str | None) -> Page[Template]:
    checks.check_limit(limit)
    after = checks.check_name_cursor(cursor)
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


def delete_template(tables: Tables, tenant: str, name: str, expect: int | None) -> None:
    known = tables.templates.pop((tenant, check_name(name, what="template")), None)
    if known is None:
        raise TemplateNotFound(f"no template named {shown(name)}")
    if expect is not None and known.version != expect:
        raise version_conflict(name, at=known.version, expect=expect, what="template")
