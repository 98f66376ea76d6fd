"""Keys, tenants and the audit log, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from daybell.client.access import read_role, read_scope
from daybell.client.remote import reading, writing
from daybell.client.remote.transport import Transport, path_of
from daybell.client.requests import Id, Time, read_id, read_limit
from daybell.client.tenants import read_quotas
from daybell.core.access import Key, Role
from daybell.core.audit import AuditCheck, Entry
from daybell.core.duration import Duration
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.tenant import Tenant
from daybell.core.view import Page
from daybell.errors import InvalidName, TenantNotFound, shown


class Access:
    """The verbs of `Client` for who may do what, how much of it, and who did."""

    transport: Transport

    async def create_key(
        self,
        name: str,
        *,
        role: Role | str,
        expires: Duration | None = None,
        created_by: str = "",
        jobs: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> tuple[Key, str]:
        """Make a key; answers it with its token, which is shown this once.

        Who has made it is whoever has the key that this is sent with.
        """
        body = {
            "name": check_name(name, what="key"),
            "role": str(read_role(role)),
            "expires": read_limit(expires, "expires"),
        }
        given = {"jobs": jobs, "queues": queues, "actions": actions}
        read_scope(role, **given)
        body |= {name: list(value) for name, value in given.items() if value is not None}
        # Not sent again: a server that kept the answer for that would keep a secret.
        return await self.transport.post("/keys", body, read=_with_token)

    async def keys(self) -> list[Key]:
        """The tenant's keys, newest first; revoked and expired ones too."""
        return await reading.whole(self.transport, "/keys", reading.key)

    async def revoke_key(self, id: Id) -> Key:
        """Let a key open nothing any more."""
        path = path_of("keys", read_id(id), "revoke")
        return await self.transport.post(path, read=reading.key)

    async def tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        return await reading.whole(self.transport, "/tenants", reading.tenant)

    async def tenant_record(self, name: str) -> Tenant:
        """A tenant with its quotas."""
        return await self.transport.get(_path(name), read=reading.tenant)

    async def add_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Create a tenant. One that exists is refused."""
        read_quotas(quotas)
        body = {"name": check_name(name, what="tenant"), **quotas}
        return await self.transport.post("/tenants", body, read=reading.tenant)

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        read_quotas(quotas)
        return await self.transport.patch(_path(name), quotas, read=reading.tenant)

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
        """Entries of the audit log, newest first."""
        asked = {
            "actor": actor,
            "action": action,
            "target": target,
            "since": None if since is None else writing.time(since),
            "until": None if until is None else writing.time(until),
            "limit": limit,
            "cursor": cursor,
        }
        return await self.transport.get("/audit", asked, read=reading.page_of(reading.entry))

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.get("/audit/verify", asked, read=reading.audit_check)


def _with_token(of: reading.Wire) -> tuple[Key, str]:
    return reading.key(of), str(of["token"])


def _path(name: str) -> str:
    """Where a tenant is. What cannot be a name is nobody's: a slash in it would lead astray."""
    try:
        return path_of("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None
