"""Keys, tenants, the audit log and secrets, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from daybell.client import wire
from daybell.client.admin import read_quotas, read_role, read_scope, require_secret_name
from daybell.client.remote import messages
from daybell.client.remote.messages import answer
from daybell.client.remote.transport import RemoteContext, build_path
from daybell.client.requests import Id, Time, read_id
from daybell.client.sealing import check_value
from daybell.core.access import LOGIN_SECONDS, Role
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.options import read_limit
from daybell.core.references import check_secret_name
from daybell.core.units import Duration
from daybell.core.views import Page
from daybell.errors import InvalidName, TenantNotFound, shown


async def create_key(
    client: RemoteContext,
    name: str,
    *,
    role: Role | str,
    expires: Duration | None = None,
    created_by: str = "",
    jobs: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> wire.NewKeyAnswer:
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
    return await client.transport.post("/keys", body, read=answer(wire.NewKeyAnswer))


async def create_login(
    client: RemoteContext,
    *,
    role: Role | str | None = None,
    expires: Duration = LOGIN_SECONDS,
    created_by: str = "",
) -> wire.NewKeyAnswer:
    """Make a login link; answers it with its token, which opens one session of a browser.

    The session ends with the key that this is sent with, and has its scope. Without a role it has
    that of the key.
    """
    body = {
        "role": None if role is None else str(read_role(role)),
        "expires": read_limit(expires, "expires"),
    }
    return await client.transport.post("/session/links", body, read=answer(wire.NewKeyAnswer))


async def keys(client: RemoteContext) -> list[wire.Key]:
    """The tenant's keys, newest first; revoked and expired ones too."""
    return await messages.whole(client.transport, "/keys", answer(wire.Key))


async def revoke_key(client: RemoteContext, id: Id) -> wire.Key:
    """Let a key open nothing any more."""
    path = build_path("keys", read_id(id), "revoke")
    return await client.transport.post(path, read=answer(wire.Key))


async def tenants(client: RemoteContext) -> list[wire.Tenant]:
    """All tenants with their quotas, by name."""
    return await messages.whole(client.transport, "/tenants", answer(wire.Tenant))


async def tenant_record(client: RemoteContext, name: str) -> wire.Tenant:
    """A tenant with its quotas."""
    return await client.transport.get(_tenant_path(name), read=answer(wire.Tenant))


async def add_tenant(client: RemoteContext, name: str, **quotas: int | None) -> wire.Tenant:
    """Create a tenant. One that exists is refused."""
    read_quotas(quotas)
    body = {"name": check_name(name, what="tenant"), **quotas}
    return await client.transport.post("/tenants", body, read=answer(wire.Tenant))


async def update_tenant(client: RemoteContext, name: str, **quotas: int | None) -> wire.Tenant:
    """Change a tenant's quotas; those that are not named stay, None is no limit."""
    read_quotas(quotas)
    return await client.transport.patch(_tenant_path(name), quotas, read=answer(wire.Tenant))


async def audit(
    client: RemoteContext,
    *,
    actor: str | None = None,
    action: str | None = None,
    target: str | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: int = PAGE_ITEMS_DEFAULT,
    cursor: str | None = None,
) -> Page[wire.AuditEntry]:
    """Entries of the audit log, newest first."""
    asked = {
        "actor": actor,
        "action": action,
        "target": target,
        "since": None if since is None else messages.encode_time(since),
        "until": None if until is None else messages.encode_time(until),
        "limit": limit,
        "cursor": cursor,
    }
    return await client.transport.get("/audit", asked, read=answer(Page[wire.AuditEntry]))


async def verify_audit(
    client: RemoteContext, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
) -> wire.AuditCheck:
    """Check the hashes of up to `limit` entries of the audit log, oldest first."""
    asked = {"limit": limit, "cursor": cursor}
    return await client.transport.get("/audit/verify", asked, read=answer(wire.AuditCheck))


def _tenant_path(name: str) -> str:
    """Where a tenant is. What cannot be a name is nobody's: a slash in it would lead astray."""
    try:
        return build_path("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None


# Secrets over HTTP: the server seals them, and answers no value.


async def set_secret(
    client: RemoteContext, name: str, value: str, *, author: str = ""
) -> wire.Secret:
    """Keep a secret; one of the same name is replaced. The server has the key that seals it,
    and its author is whoever has the API key.
    """
    path = build_path("secrets", check_secret_name(name))
    return await client.transport.put(path, {"value": check_value(value)}, read=answer(wire.Secret))


async def secrets(client: RemoteContext) -> list[wire.Secret]:
    """The tenant's secrets by name, without their values."""
    return await messages.whole(client.transport, "/secrets", answer(wire.Secret))


async def delete_secret(client: RemoteContext, name: str) -> None:
    """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
    path = build_path("secrets", require_secret_name(name))
    await client.transport.delete(path, read=lambda _: None)
