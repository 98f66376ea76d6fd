"""Keys, tenants, and requests that may come twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from msgspec.structs import asdict

from daybell.core.access import Key, NewKey, read_limits, write_limits
from daybell.core.idempotency import NewRequest, Request
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import REPEAT_SECONDS_KEPT, check_name
from daybell.core.tenant import NO_QUOTAS, Quotas, Tenant
from daybell.errors import DuplicateKey, NotFound, TenantNotFound, shown
from daybell.store import checks
from daybell.store.sqlite.connection import Part
from daybell.store.sqlite.names import Transaction


class SqliteAccess(Part):
    """See `protocol.Access`; the audit log is in `audit.py`."""

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        checks.check_new_key(key)
        return await self._write(lambda tx: add_key(tx, tenant, key))

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        return await self._read(lambda tx: find_key(tx, digest))

    async def has_keys(self) -> bool:
        return await self._read(lambda tx: bool(tx.execute(_HAS_KEYS, (tx.now,)).fetchone()))

    async def list_keys(self, tenant: str) -> list[Key]:
        return await self._read(lambda tx: list_keys(tx, tenant))

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        return await self._write(lambda tx: revoke_key(tx, tenant, id))

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        ages = {id.bytes: age for id, age in used.items()}
        await self._write(lambda tx: touch_keys(tx, ages))

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        checks.check_quotas(asdict(quotas))
        checked = check_name(name, what="tenant")
        return await self._write(lambda tx: add_tenant(tx, checked, quotas))

    async def get_tenant(self, name: str) -> Tenant:
        return await self._read(lambda tx: get_tenant(tx, name))

    async def list_tenant_records(self) -> list[Tenant]:
        return await self._read(list_tenant_records)

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        checks.check_quotas(changes)
        return await self._write(lambda tx: set_quotas(tx, tenant, changes))

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        checks.check_request(request)
        return await self._write(lambda tx: begin_request(tx, tenant, request))

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        await self._write(lambda tx: answer_request(tx, tenant, key, status, answer))


# Of the columns that `read_key` reads.
_KEYS: Final = """
SELECT k.id, t.name, k.name, k.role, k.hint, k.created_at, k.created_by, k.expires_at, k.used_at,
       k.revoked_at, k.scope
  FROM api_key k JOIN tenant t ON t.n = k.tenant
"""
_ADD_KEY: Final = """
INSERT INTO api_key (id, tenant, digest, role, scope, name, hint, created_by, created_at,
                     expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ONE_KEY: Final = f"{_KEYS} WHERE k.tenant = ? AND k.id = ?"


def add_key(tx: Transaction, tenant: str, key: NewKey) -> Key:
    owner = tx.names.tenant(tx, tenant)
    expires_at = None if key.expires_in is None else tx.now + key.expires_in
    about = (*write_limits(key.role, key.scope), key.name, key.hint, key.created_by)
    tx.execute(_ADD_KEY, (key.id.bytes, owner, key.digest, *about, tx.now, expires_at))
    row = tx.execute(_ONE_KEY, (owner, key.id.bytes)).fetchone()
    if row is None:
        raise DuplicateKey("this token is that of another key already; make a new one")
    return read_key(row)


_FIND_KEY: Final = f"{_KEYS} WHERE k.digest = ?"
_HAS_KEYS: Final = """
SELECT 1 FROM api_key WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1
"""
_LIST_KEYS: Final = f"{_KEYS} WHERE k.tenant = ? ORDER BY k.id DESC"


def find_key(tx: Transaction, digest: bytes) -> tuple[Key, Instant] | None:
    row = tx.execute(_FIND_KEY, (digest,)).fetchone()
    return None if row is None else (read_key(row), tx.now)


def list_keys(tx: Transaction, tenant: str) -> list[Key]:
    rows = tx.execute(_LIST_KEYS, (tx.names.tenant(tx, tenant),))
    return [read_key(row) for row in rows]


_REVOKE: Final = """
UPDATE api_key SET revoked_at = ? WHERE tenant = ? AND id = ? AND revoked_at IS NULL
"""


def revoke_key(tx: Transaction, tenant: str, id: UUID) -> Key:
    owner = tx.names.tenant(tx, tenant)
    tx.execute(_REVOKE, (tx.now, owner, id.bytes))
    row = tx.execute(_ONE_KEY, (owner, id.bytes)).fetchone()
    if row is None:
        raise NotFound(f"no key {id}")
    return read_key(row)


_TOUCH: Final = "UPDATE api_key SET used_at = max(ifnull(used_at, 0), ?) WHERE id = ?"


def touch_keys(tx: Transaction, ages: Mapping[bytes, Seconds]) -> None:
    tx.executemany(_TOUCH, [(tx.now - age, id) for id, age in ages.items()])


def read_key(row: Any) -> Key:
    id, tenant, name, kept, hint, created_at, created_by, *times, limits = row
    expires_at, used_at, revoked_at = times
    role, scope = read_limits(kept, limits)
    return Key(
        id=UUID(bytes=id),
        tenant=tenant,
        name=name,
        role=role,
        hint=hint,
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
        scope=scope,
    )


_TENANTS: Final = """
SELECT name, created_at, jobs_max, queued_max, per_minute_max, running_max FROM tenant
"""


def get_tenant(tx: Transaction, name: str) -> Tenant:
    row = tx.execute(f"{_TENANTS} WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise TenantNotFound(f"no tenant named {shown(name)}")
    return read_tenant(row)


def list_tenant_records(tx: Transaction) -> list[Tenant]:
    return [read_tenant(row) for row in tx.execute(f"{_TENANTS} ORDER BY name")]


_ADD_TENANT: Final = """
INSERT INTO tenant (name, created_at, jobs_max, queued_max, per_minute_max, running_max)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
# One that has this quota already is not written, and nothing of it is on record.
_SET_QUOTA: Final = "UPDATE tenant SET {0} = ?2 WHERE n = ?1 AND {0} IS NOT ?2"


def add_tenant(tx: Transaction, name: str, quotas: Quotas) -> Tenant:
    limits = (quotas.jobs, quotas.queued, quotas.per_minute, quotas.running)
    if tx.execute(_ADD_TENANT, (name, tx.now, *limits)).rowcount == 0:
        raise checks.duplicate_tenant(name)
    return get_tenant(tx, name)


def set_quotas(tx: Transaction, tenant: str, changes: Mapping[str, int | None]) -> Tenant:
    n = tx.names.tenant(tx, tenant)
    for name, most in changes.items():
        tx.execute(_SET_QUOTA.format(f"{name}_max"), (n, most))
    tx.names.quotas_changed()
    return get_tenant(tx, tenant)


def read_tenant(row: Any) -> Tenant:
    name, created_at, jobs, queued, per_minute, running = row
    quotas = Quotas(jobs=jobs, queued=queued, per_minute=per_minute, running=running)
    return Tenant(name=name, created_at=created_at, quotas=quotas)


_FORGET_OLD: Final = "DELETE FROM idempotency WHERE tenant = ? AND key = ? AND at <= ?"
_BEGIN: Final = """
INSERT INTO idempotency (tenant, key, id, digest, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_KNOWN: Final = """
SELECT key, digest, id, status, answer FROM idempotency WHERE tenant = ? AND key = ?
"""


def begin_request(tx: Transaction, tenant: str, new: NewRequest) -> Request:
    owner = tx.names.tenant(tx, tenant)
    tx.execute(_FORGET_OLD, (owner, new.key, tx.now - REPEAT_SECONDS_KEPT))
    fields = (owner, new.key, new.id.bytes, new.digest, tx.now)
    is_new = tx.execute(_BEGIN, fields).rowcount == 1
    key, digest, id, status, answer = tx.execute(_KNOWN, (owner, new.key)).fetchone()
    return Request(
        key=key, digest=digest, id=UUID(bytes=id), is_new=is_new, status=status, answer=answer
    )


_ANSWER: Final = """
UPDATE idempotency SET status = ?, answer = ? WHERE tenant = ? AND key = ? AND status IS NULL
"""


def answer_request(tx: Transaction, tenant: str, key: str, status: int, answer: str) -> None:
    tx.execute(_ANSWER, (status, answer, tx.names.tenant(tx, tenant), key))
