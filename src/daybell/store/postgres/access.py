"""Keys, tenants, and requests that may come twice."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec.structs import asdict

from daybell.core.access import Key, NewKey, read_limits, write_limits
from daybell.core.idempotency import NewRequest, Request
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import REPEAT_SECONDS_KEPT, check_name
from daybell.core.tenant import NO_QUOTAS, Quotas, Tenant
from daybell.errors import DuplicateKey, NotFound, TenantNotFound, shown
from daybell.store import checks
from daybell.store.postgres.connection import Row
from daybell.store.postgres.gates import Connected
from daybell.store.postgres.names import read_quotas

KEYS = """
    SELECT k.id, t.name AS tenant, k.name, k.role, k.hint, k.created_at, k.created_by, k.expires_at,
           k.used_at, k.revoked_at, k.scope, daybell.now() AS now
      FROM daybell.api_key k JOIN daybell.tenant t ON t.key = k.tenant"""
TENANT_COLUMNS = "name, created_at, jobs_max, queued_max, per_minute_max, running_max"
TENANTS = f"SELECT {TENANT_COLUMNS} FROM daybell.tenant"


class Admitting(Connected):
    """Who may do what, and how much of it; the audit log is in `audit.py`."""

    ADD_KEY = """
    INSERT INTO daybell.api_key (tenant, id, digest, role, scope, name, hint, created_by,
                                 created_at, expires_at)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, now, now + $9::float8 FROM daybell.now() t(now)
    ON CONFLICT DO NOTHING
    """
    ONE_KEY = f"{KEYS} WHERE k.tenant = $1 AND k.id = $2"

    async def add_key(self, tenant: str, key: NewKey) -> Key:
        checks.check_new_key(key)
        limits = write_limits(key.role, key.scope)
        about = (key.id, key.digest, *limits, key.name, key.hint, key.created_by)
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            await link.execute(self.ADD_KEY, owner, *about, key.expires_in)
            row = await link.fetchrow(self.ONE_KEY, owner, key.id)
            if row is None:
                raise DuplicateKey("this token is that of another key already; make a new one")
        return _key(row)

    FIND_KEY = f"{KEYS} WHERE k.digest = $1"

    async def find_key(self, digest: bytes) -> tuple[Key, Instant] | None:
        async with self.db.link() as link:
            row = await link.fetchrow(self.FIND_KEY, digest)
        return None if row is None else (_key(row), row["now"])

    HAS_KEYS = """
    SELECT EXISTS (SELECT FROM daybell.api_key
                    WHERE revoked_at IS NULL
                      AND (expires_at IS NULL OR expires_at > (SELECT daybell.now())))
    """

    async def has_keys(self) -> bool:
        async with self.db.link() as link:
            return await link.fetchval(self.HAS_KEYS)

    async def list_keys(self, tenant: str) -> list[Key]:
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            rows = await link.fetch(f"{KEYS} WHERE k.tenant = $1 ORDER BY k.id DESC", owner)
        return [_key(row) for row in rows]

    REVOKE = """
    UPDATE daybell.api_key SET revoked_at = daybell.now()
     WHERE tenant = $1 AND id = $2 AND revoked_at IS NULL
    """

    async def revoke_key(self, tenant: str, id: UUID) -> Key:
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            await link.execute(self.REVOKE, owner, id)
            row = await link.fetchrow(self.ONE_KEY, owner, id)
        if row is None:
            raise NotFound(f"no key {id}")
        return _key(row)

    # In one order, so that two who note the same keys do not wait for each other.
    TOUCH = """
    WITH k AS MATERIALIZED (
      SELECT k.id, k.tenant, daybell.now() - u.age AS at
        FROM daybell.api_key k JOIN unnest($1::uuid[], $2::float8[]) u(id, age) ON u.id = k.id
       ORDER BY k.id, k.tenant FOR NO KEY UPDATE OF k)
    UPDATE daybell.api_key a SET used_at = greatest(a.used_at, k.at)
      FROM k WHERE a.id = k.id AND a.tenant = k.tenant
    """

    async def touch_keys(self, used: Mapping[UUID, Seconds]) -> None:
        async with self.db.link() as link:
            await link.execute(self.TOUCH, list(used), list(used.values()))

    ADD_TENANT = f"""
    INSERT INTO daybell.tenant (name, jobs_max, queued_max, per_minute_max, running_max)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING {TENANT_COLUMNS}
    """

    async def add_tenant(self, name: str, quotas: Quotas = NO_QUOTAS) -> Tenant:
        checks.check_quotas(asdict(quotas))
        limits = (quotas.jobs, quotas.queued, quotas.per_minute, quotas.running)
        async with self.db.link() as link:
            checked = check_name(name, what="tenant")
            row = await link.fetchrow(self.ADD_TENANT, checked, *limits)
            if row is None:
                raise checks.duplicate_tenant(name)  # in here: what is refused is not on record
        return _tenant(row)

    async def get_tenant(self, name: str) -> Tenant:
        async with self.db.link() as link:
            row = await link.fetchrow(f"{TENANTS} WHERE name = $1", name)
        if row is None:
            raise TenantNotFound(f"no tenant named {shown(name)}")
        return _tenant(row)

    async def list_tenant_records(self) -> list[Tenant]:
        async with self.db.link() as link:
            return [_tenant(row) for row in await link.fetch(f"{TENANTS} ORDER BY name")]

    # One that has this quota already is not written, and nothing of it is on record.
    SET_QUOTA = """
    UPDATE daybell.tenant SET {0} = $2 WHERE key = $1 AND {0} IS DISTINCT FROM $2
    """

    async def set_quotas(self, tenant: str, **changes: int | None) -> Tenant:
        checks.check_quotas(changes)
        async with self.db.transaction() as link:
            key = await self.names.tenant(link, tenant)
            for name, most in changes.items():
                await link.execute(self.SET_QUOTA.format(f"{name}_max"), key, most)
            row = await link.fetchrow(f"{TENANTS} WHERE key = $1", key)
        self.names.forget_quotas(key)
        return _tenant(row)

    # An old one is taken over as if it had not been there.
    BEGIN_REQUEST = f"""
    INSERT INTO daybell.idempotency AS i (tenant, key, id, digest) VALUES ($1, $2, $3, $4)
    ON CONFLICT (tenant, key) DO UPDATE
       SET at = excluded.at, id = excluded.id, digest = excluded.digest, status = NULL,
           answer = NULL
     WHERE i.at <= excluded.at - {REPEAT_SECONDS_KEPT}
    """
    KNOWN_REQUEST = """
    SELECT key, digest, id, status, answer FROM daybell.idempotency WHERE tenant = $1 AND key = $2
    """

    async def begin_request(self, tenant: str, request: NewRequest) -> Request:
        checks.check_request(request)
        new = (request.key, request.id, request.digest)
        async with self.db.transaction() as link:
            owner = await self.names.tenant(link, tenant)
            is_new = await link.execute(self.BEGIN_REQUEST, owner, *new) == "INSERT 0 1"
            row = await link.fetchrow(self.KNOWN_REQUEST, owner, request.key)
        assert row is not None, "it was there, or is now"
        return Request(**row, is_new=is_new)

    ANSWER_REQUEST = """
    UPDATE daybell.idempotency SET status = $3, answer = $4
     WHERE tenant = $1 AND key = $2 AND status IS NULL
    """

    async def answer_request(self, tenant: str, key: str, *, status: int, answer: str) -> None:
        async with self.db.link() as link:
            owner = await self.names.tenant(link, tenant)
            await link.execute(self.ANSWER_REQUEST, owner, key, status, answer)


def _key(row: Row) -> Key:
    role, scope = read_limits(row["role"], row["scope"])
    return Key(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        role=role,
        hint=row["hint"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        expires_at=row["expires_at"],
        used_at=row["used_at"],
        revoked_at=row["revoked_at"],
        scope=scope,
    )


def _tenant(row: Row) -> Tenant:
    return Tenant(name=row["name"], created_at=row["created_at"], quotas=read_quotas(row))
