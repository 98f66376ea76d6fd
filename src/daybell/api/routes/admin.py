"""Routes of `/keys`, `/tenants`, `/secrets` and `/audit`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from daybell.api.bodies import ExportHold, NewKey, NewSecret, NewTenant, Nothing, TenantChange
from daybell.api.caller import Caller, answer_created, answer_json, answer_page
from daybell.api.contract import LOCATION, REPLAYED
from daybell.api.fields import UUID_FORMAT, AgoBound, Limit, Paged, Shorter
from daybell.api.idempotency import HEADER, IdempotentRequest, perform_once
from daybell.api.requests import answer_list
from daybell.api.router import Routes
from daybell.client import wire
from daybell.client.requests import read_id
from daybell.client.sealing import VARIABLE, KeyMissing
from daybell.core.access import Action, Role
from daybell.core.limits import PAGE_ITEMS_MAX
from daybell.core.references import check_secret_name
from daybell.core.views import Page
from daybell.errors import AccessDenied, Conflict, SecretNotFound, UsageError, shown

keys_router = Routes("/keys", tag="access")

KeyPath = Annotated[str, Meta(description="A key's id.", max_length=100), UUID_FORMAT]


@keys_router.post(
    "",
    id="create_key",
    role=Role.ADMIN,
    action=None,
    answers=wire.NewKeyAnswer,
    status=201,
    says="Made. The token is shown this once.",
    examples={
        "for a deploy": {"name": "deploy", "role": "operator", "expires": "90d"},
        "for one program": {
            "name": "billing",
            "role": "operator",
            "jobs": ["billing-*"],
            "actions": ["read", "trigger"],
        },
    },
    errors=(404,),
    headers=LOCATION,
)
async def create_key(request: Request, body: NewKey, caller: Caller) -> Response:
    """Make a key, with a role that is not above your own.

    `jobs`, `queues` and `actions` limit it further. Such a key sees and changes only these jobs and
    queues, and makes no keys.

    It takes no `Idempotency-Key`: the token is in the answer alone, which therefore is not kept. If
    it was lost, list the keys, revoke the new one, and make another.
    """
    if HEADER in request.headers:
        raise UsageError(
            f"{HEADER} is not for keys: their tokens are not kept, so no answer can be repeated; if"
            " one was lost, revoke that key and make another",
            field=HEADER,
        )
    about = await caller.of_tenant(body.tenant)
    _check_role(caller, body.role)
    given = body.limits()
    after = {"name": body.name, "role": str(body.role), "expires": body.expires, **given}
    client = about.audited("key.create", body.name, after=after)
    key = await client.create_key(
        body.name,
        role=body.role,
        expires=body.expires,
        created_by=caller.actor,
        **given,
    )
    return answer_created(key, location=f"/api/v1/keys/{key.key_id}")


@keys_router.get(
    "",
    id="list_keys",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.Key],
    says="Keys, newest first.",
)
async def list_keys(caller: Caller, query: Paged) -> Response:
    """List keys, revoked and expired ones too."""
    return answer_list(
        await caller.client.keys(),
        key=lambda one: one.key_id,
        read=UUID,
        limit=query.limit,
        cursor=query.cursor,
        newest_first=True,
    )


async def revoke_key(id: KeyPath, caller: Caller) -> Response:
    """Let a key open nothing any more. That counts within 5 seconds, for open streams too."""
    known = read_id(id)
    for one in await caller.client.keys():
        if one.key_id == known:
            _check_role(caller, one.role)
    client = caller.audited("key.revoke", known)
    return answer_json(await client.revoke_key(known))


keys_router.post(
    "/{id}/revoke",
    id="revoke_key",
    role=Role.ADMIN,
    action=None,
    answers=wire.Key,
    says="It opens nothing any more.",
    body=Nothing,
    is_body_optional=True,
    errors=(404,),
)(revoke_key)
keys_router.delete(
    "/{id}",
    id="delete_key",
    role=Role.ADMIN,
    action=None,
    answers=wire.Key,
    says="It opens nothing any more.",
    errors=(404,),
)(revoke_key)


def _check_role(caller: Caller, role: Role) -> None:
    # An admin may give a worker's key, although that role is beside the others.
    if role is not Role.WORKER and not caller.role.may(role):
        raise AccessDenied(
            f"a key with the role {role} takes one; this one's role is {caller.role}"
        )


# `/tenants`: isolated spaces with their quotas. For superadmins.

tenants_router = Routes("/tenants", tag="access")

TenantPath = Annotated[str, Meta(description="A tenant's name.", max_length=200)]


@tenants_router.post(
    "",
    id="create_tenant",
    role=Role.SUPERADMIN,
    action=None,
    answers=wire.Tenant,
    status=201,
    says="Created.",
    examples={"with quotas": {"name": "acme", "jobs": 100, "per_minute": 6000}},
    errors=(409,),
    headers={**LOCATION, **REPLAYED},
)
async def create_tenant(
    request: Request, body: NewTenant, raw: bytes, caller: Caller, key: str | None
) -> Response:
    """Create a tenant."""

    async def perform(this: IdempotentRequest) -> Response:
        made = await _create_tenant(caller, body, this)
        return answer_created(made, location=f"/api/v1/tenants/{quote(made.name, safe='')}")

    return await perform_once(request, caller, key, raw, perform)


async def _create_tenant(caller: Caller, wanted: NewTenant, this: IdempotentRequest) -> wire.Tenant:
    entry = this.made("entry")
    if this.is_repeated and await caller.recorded("tenant.create", wanted.name, entry) is not None:
        return await caller.client.tenant_record(wanted.name)
    quotas = msgspec.structs.asdict(wanted)
    del quotas["name"]
    client = caller.audited("tenant.create", wanted.name, after=quotas, id=entry)
    return await client.add_tenant(wanted.name, **quotas)


@tenants_router.get(
    "",
    id="list_tenants",
    role=Role.SUPERADMIN,
    action=None,
    answers=Page[wire.Tenant],
    says="Tenants, by name.",
)
async def list_tenants(caller: Caller, query: Paged) -> Response:
    """List tenants with their quotas."""
    found = await caller.client.tenants()
    return answer_list(found, key=lambda one: one.name, limit=query.limit, cursor=query.cursor)


@tenants_router.get(
    "/{name}",
    id="get_tenant",
    role=Role.SUPERADMIN,
    action=None,
    answers=wire.Tenant,
    says="The tenant.",
    errors=(404,),
)
async def get_tenant(name: TenantPath, caller: Caller) -> Response:
    """Show a tenant with its quotas."""
    return answer_json(await caller.client.tenant_record(name))


@tenants_router.patch(
    "/{name}",
    id="update_tenant",
    role=Role.SUPERADMIN,
    action=None,
    answers=wire.Tenant,
    says="Changed.",
    examples={"more, and no limit": {"per_minute": 60_000, "jobs": None}},
    errors=(404,),
)
async def update_tenant(body: TenantChange, name: TenantPath, caller: Caller) -> Response:
    """Change a tenant's quotas, retention and weight. What is not named stays; null is no limit."""
    tenant = await caller.client.tenant_record(name)
    before = {
        **msgspec.to_builtins(tenant.quotas),
        "keep": tenant.keep.write(),
        "weight": tenant.weight,
    }
    changes = msgspec.to_builtins(body)
    client = caller.audited("tenant.update", name, before=before, after=changes)
    return answer_json(await client.update_tenant(name, **changes))


# `/secrets`: values that jobs use and that no caller can read. No answer ever has one.

secrets_router = Routes("/secrets", tag="secrets")

SecretPath = Annotated[
    str,
    Meta(
        description="A secret's name: letters, digits and _, beginning with no digit.",
        max_length=200,
    ),
]


@secrets_router.get(
    "",
    id="list_secrets",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.Secret],
    says="Secrets, by name.",
)
async def list_secrets(caller: Caller, query: Paged) -> Response:
    """List secrets, without their values."""
    found = await caller.client.secrets()
    return answer_list(found, key=lambda one: one.name, limit=query.limit, cursor=query.cursor)


@secrets_router.put(
    "/{name}",
    id="set_secret",
    role=Role.ADMIN,
    action=Action.SECRETS,
    answers=wire.Secret,
    says="It is what was said.",
    examples={"a token": {"value": "sk-0123456789abcdef"}},
    also={201: "Created."},
    errors=(409,),
)
async def set_secret(body: NewSecret, name: SecretPath, caller: Caller) -> Response:
    """Set a secret. One of the same name is replaced; workers use the new value within 5 seconds.

    Jobs refer to it as `{"secret": "NAME"}`. It may be sent again when the answer was lost.
    """
    check_secret_name(name)
    before = await _find_secret(caller, name)
    after = {"key_id": _sealing_key(caller)}
    client = caller.audited("secret.set", name, before=_secret_payload(before), after=after)
    made = await client.set_secret(name, body.value, author=caller.actor)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer_json(made, status=status)


@secrets_router.delete(
    "/{name}",
    id="delete_secret",
    role=Role.ADMIN,
    action=Action.SECRETS,
    answers=wire.DeletedName,
    says="It is gone; what refers to it fails from now on.",
    errors=(404,),
)
async def delete_secret(name: SecretPath, caller: Caller) -> Response:
    """Delete a secret. Jobs that refer to it fail until it is set again."""
    before = await _find_secret(caller, name)
    if before is None:
        raise SecretNotFound(f"there is no secret named {shown(name)}")
    client = caller.audited("secret.delete", name, before=_secret_payload(before))
    await client.delete_secret(name)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


def _sealing_key(caller: Caller) -> str:
    """Return the id of the sealing key. The caller cannot change the settings of the server."""
    try:
        return caller.client.sealer().key_id
    except UsageError as error:
        why = "" if isinstance(error, KeyMissing) else f" ({error})"
        raise Conflict(
            f"the server has no key that seals secrets{why}; its operator makes one with `daybell"
            f" secrets key`, and sets {VARIABLE} to it for the server and all workers"
        ) from None


async def _find_secret(caller: Caller, name: str) -> wire.Secret | None:
    return next((one for one in await caller.client.secrets() if one.name == name), None)


def _secret_payload(secret: wire.Secret | None) -> dict[str, Any] | None:
    """Return the fields of a secret for the audit log."""
    return None if secret is None else {"version": secret.version, "key_id": secret.key_id}


# `/exports`: how far repeated exports have come.

exports_router = Routes("/exports", tag="access")

ExportPath = Annotated[str, Meta(description="The name of an export policy.", max_length=200)]


@exports_router.get(
    "",
    id="list_exports",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.ExportPolicy],
    says="Export policies, by name.",
)
async def list_exports(caller: Caller, query: Paged) -> Response:
    """List how far each repeated export has come."""
    return answer_list(
        await caller.client.export_policies(),
        key=lambda one: one.name,
        read=str,
        limit=query.limit,
        cursor=query.cursor,
    )


@exports_router.put(
    "/{name}",
    id="hold_export",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.ExportPolicy,
    says="The policy as it is now.",
)
async def hold_export(body: ExportHold, name: ExportPath, caller: Caller) -> Response:
    """Record how far an export has come. Retention keeps what ended later."""
    client = caller.audited("export.hold", name, after=body)
    return answer_json(await client.hold_export(name, body.until, author=caller.actor))


@exports_router.delete(
    "/{name}",
    id="release_export",
    role=Role.ADMIN,
    action=Action.DEFINE,
    answers=wire.DeletedName,
    says="Retention waits for it no longer.",
    errors=(404,),
)
async def release_export(name: ExportPath, caller: Caller) -> Response:
    """Forget a repeated export."""
    await caller.audited("export.release", name).release_export(name)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


# `/audit`: all changes, with their actor and address.

audit_router = Routes("/audit", tag="access")


class AuditQuery(Paged):
    """The entries to list."""

    actor: Shorter | None = None
    action: Shorter | None = None
    target: Shorter | None = None
    since: AgoBound | None = None
    until: AgoBound | None = None


class VerifyQuery(Paged):
    """How far to check, and from where."""

    limit: Limit = PAGE_ITEMS_MAX


@audit_router.get(
    "",
    id="list_audit",
    role=Role.ADMIN,
    action=Action.READ,
    answers=Page[wire.AuditEntry],
    says="A page of the log, newest first.",
)
async def list_audit(
    caller: Caller,
    query: AuditQuery,
) -> Response:
    """Show who changed what. `action` is all of it, such as `job.update`, or only its noun."""
    page = await caller.client.audit(
        actor=query.actor,
        action=query.action,
        target=query.target,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
    )
    return answer_page(page, cursor=lambda one: str(one.entry_id))


@audit_router.get(
    "/verify",
    id="verify_audit",
    role=Role.ADMIN,
    action=Action.READ,
    answers=wire.AuditCheck,
    says="How far the chain holds.",
)
async def verify_audit(caller: Caller, query: VerifyQuery) -> Response:
    """Check the hashes of the audit log, oldest entries first.

    `cursor` is `next_cursor` of the answer before, or the `head` of an earlier check, from which
    the log must still continue.
    """
    return answer_json(await caller.client.verify_audit(limit=query.limit, cursor=query.cursor))
