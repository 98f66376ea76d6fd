"""The client of a server instead of a database, with its verbs for keys, tenants, the audit log and
secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeAlias

from daybell.client.admin import (
    check_value,
    read_quotas,
    read_role,
    read_scope,
    require_secret_name,
)
from daybell.client.client import Client
from daybell.client.remote import requests, responses
from daybell.client.remote.executions import Events, Executions, ExecutionsByFilter, Logs, Overviews
from daybell.client.remote.jobs import Jobs, Templates
from daybell.client.remote.transport import Transport, build_path
from daybell.client.requests import Id, Time, read_id, read_limit
from daybell.core.access import AuditCheck, AuditEntry, Key, Role, Secret, Tenant
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, from_iso
from daybell.core.views import Page
from daybell.errors import InvalidName, TenantNotFound, shown

# Keys, tenants and the audit log, over HTTP.


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
        return await responses.whole(self.transport, "/keys", responses.key)

    async def revoke_key(self, id: Id) -> Key:
        """Let a key open nothing any more."""
        path = build_path("keys", read_id(id), "revoke")
        return await self.transport.post(path, read=responses.key)

    async def tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        return await responses.whole(self.transport, "/tenants", responses.tenant)

    async def tenant_record(self, name: str) -> Tenant:
        """A tenant with its quotas."""
        return await self.transport.get(_tenant_path(name), read=responses.tenant)

    async def add_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Create a tenant. One that exists is refused."""
        read_quotas(quotas)
        body = {"name": check_name(name, what="tenant"), **quotas}
        return await self.transport.post("/tenants", body, read=responses.tenant)

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        read_quotas(quotas)
        return await self.transport.patch(_tenant_path(name), quotas, read=responses.tenant)

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
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first."""
        asked = {
            "actor": actor,
            "action": action,
            "target": target,
            "since": None if since is None else requests.time(since),
            "until": None if until is None else requests.time(until),
            "limit": limit,
            "cursor": cursor,
        }
        return await self.transport.get("/audit", asked, read=responses.page_of(responses.entry))

    async def verify_audit(
        self, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
    ) -> AuditCheck:
        """Check the hashes of up to `limit` entries of the audit log, oldest first."""
        asked = {"limit": limit, "cursor": cursor}
        return await self.transport.get("/audit/verify", asked, read=responses.audit_check)


def _with_token(of: responses.Wire) -> tuple[Key, str]:
    return responses.key(of), str(of["token"])


def _tenant_path(name: str) -> str:
    """Where a tenant is. What cannot be a name is nobody's: a slash in it would lead astray."""
    try:
        return build_path("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None


# Secrets over HTTP: the server seals them, and answers no value.


class Secrets:
    """The verbs of `Client` for secrets."""

    transport: Transport

    async def set_secret(self, name: str, value: str, *, author: str = "") -> Secret:
        """Keep a secret; one of the same name is replaced. The server has the key that seals it,
        and its author is whoever has the API key.
        """
        path = build_path("secrets", check_secret_name(name))
        return await self.transport.put(path, {"value": check_value(value)}, read=_secret)

    async def secrets(self) -> list[Secret]:
        """The tenant's secrets by name, without their values."""
        return await responses.whole(self.transport, "/secrets", _secret)

    async def delete_secret(self, name: str) -> None:
        """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
        path = build_path("secrets", require_secret_name(name))
        await self.transport.delete(path, read=lambda _: None)


def _secret(of: responses.Wire) -> Secret:
    return Secret(
        name=of["name"],
        tenant=of["tenant"],
        key_id=of["key_id"],
        version=of["version"],
        created_at=from_iso(of["created_at"]),
        updated_at=from_iso(of["updated_at"]),
        author=of["author"],
    )


class RemoteClient(
    Jobs, Templates, Executions, Events, Overviews, ExecutionsByFilter, Logs, Access, Secrets
):
    """A tenant's jobs, executions, queues and workers, by way of a `daybell server`.

    It has the verbs of `Client` that a server offers, with the same answers and errors. The key
    decides whose jobs these are; a superadmin's may name another tenant. Entering it connects to
    nobody yet; leaving it closes the connections that were made.
    """

    def __init__(self, url: str, *, key: str | None = None, tenant: str | None = None) -> None:
        self.tenant = None if tenant is None else check_name(tenant, what="tenant")
        self.transport = Transport(url, key=key, tenant=self.tenant)

    @property
    def place(self) -> str:
        """The server, for messages."""
        return self.transport.place

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()


AnyClient: TypeAlias = Client | RemoteClient
