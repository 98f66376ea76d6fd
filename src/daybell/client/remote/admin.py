"""Keys, tenants, the audit log and secrets, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from daybell.client.admin import read_quotas, read_role, read_scope, require_secret_name
from daybell.client.remote import messages
from daybell.client.remote.transport import RemoteContext, build_path
from daybell.client.requests import Id, Time, read_id
from daybell.client.sealing import check_value
from daybell.core.access import AuditCheck, AuditEntry, Key, Role, Secret, Tenant
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.options import read_limit
from daybell.core.references import check_secret_name
from daybell.core.units import Duration, from_iso
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
    return await client.transport.post("/keys", body, read=_with_token)


async def keys(client: RemoteContext) -> list[Key]:
    """The tenant's keys, newest first; revoked and expired ones too."""
    return await messages.whole(client.transport, "/keys", messages.key)


async def revoke_key(client: RemoteContext, id: Id) -> Key:
    """Let a key open nothing any more."""
    path = build_path("keys", read_id(id), "revoke")
    return await client.transport.post(path, read=messages.key)


async def tenants(client: RemoteContext) -> list[Tenant]:
    """All tenants with their quotas, by name."""
    return await messages.whole(client.transport, "/tenants", messages.tenant)


async def tenant_record(client: RemoteContext, name: str) -> Tenant:
    """A tenant with its quotas."""
    return await client.transport.get(_tenant_path(name), read=messages.tenant)


async def add_tenant(client: RemoteContext, name: str, **quotas: int | None) -> Tenant:
    """Create a tenant. One that exists is refused."""
    read_quotas(quotas)
    body = {"name": check_name(name, what="tenant"), **quotas}
    return await client.transport.post("/tenants", body, read=messages.tenant)


async def update_tenant(client: RemoteContext, name: str, **quotas: int | None) -> Tenant:
    """Change a tenant's quotas; those that are not named stay, None is no limit."""
    read_quotas(quotas)
    return await client.transport.patch(_tenant_path(name), quotas, read=messages.tenant)


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
) -> Page[AuditEntry]:
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
    return await client.transport.get("/audit", asked, read=messages.page_of(messages.entry))


async def verify_audit(
    client: RemoteContext, *, limit: int = PAGE_ITEMS_MAX, cursor: str | None = None
) -> AuditCheck:
    """Check the hashes of up to `limit` entries of the audit log, oldest first."""
    asked = {"limit": limit, "cursor": cursor}
    return await client.transport.get("/audit/verify", asked, read=messages.audit_check)


def _with_token(of: messages.Wire) -> tuple[Key, str]:
    return messages.key(of), str(of["token"])


def _tenant_path(name: str) -> str:
    """Where a tenant is. What cannot be a name is nobody's: a slash in it would lead astray."""
    try:
        return build_path("tenants", check_name(name, what="tenant"))
    except InvalidName:
        raise TenantNotFound(f"no tenant named {shown(name)}") from None


# Secrets over HTTP: the server seals them, and answers no value.


async def set_secret(client: RemoteContext, name: str, value: str, *, author: str = "") -> Secret:
    """Keep a secret; one of the same name is replaced. The server has the key that seals it,
    and its author is whoever has the API key.
    """
    path = build_path("secrets", check_secret_name(name))
    return await client.transport.put(path, {"value": check_value(value)}, read=_secret)


async def secrets(client: RemoteContext) -> list[Secret]:
    """The tenant's secrets by name, without their values."""
    return await messages.whole(client.transport, "/secrets", _secret)


async def delete_secret(client: RemoteContext, name: str) -> None:
    """Forget a secret; what refers to it fails from then on. Raises SecretNotFound."""
    path = build_path("secrets", require_secret_name(name))
    await client.transport.delete(path, read=lambda _: None)


def _secret(of: messages.Wire) -> Secret:
    return Secret(
        name=of["name"],
        tenant=of["tenant"],
        key_id=of["key_id"],
        version=of["version"],
        created_at=from_iso(of["created_at"]),
        updated_at=from_iso(of["updated_at"]),
        author=of["author"],
    )
