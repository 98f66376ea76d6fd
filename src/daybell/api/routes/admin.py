"""Routes of `/keys`, `/tenants`, `/secrets` and `/audit`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from daybell.api.caller import Admin, Caller, Superadmin, answer_created, answer_json, answer_page
from daybell.api.contract import LOCATION, REPLAYED, IdempotencyKey, operation
from daybell.api.idempotency import HEADER, IdempotentRequest, perform_once
from daybell.api.requests import (
    Body,
    BoundFilter,
    Cursor,
    Limit,
    TextFilter,
    answer_list,
    checked_by,
    read_body,
    read_bytes,
    read_json,
    validate_body,
)
from daybell.api.schema import NewKey, NewTenant, Nothing, TenantChange
from daybell.client import answers, wire
from daybell.client.requests import read_id
from daybell.client.sealing import VARIABLE, KeyMissing, check_value
from daybell.core.access import Role, Secret, Tenant
from daybell.core.limits import (
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    SECRET_BYTES_MAX,
    SECRET_CHARS_MIN,
)
from daybell.core.references import check_secret_name
from daybell.core.views import Page
from daybell.errors import AccessDenied, Conflict, SecretNotFound, UsageError, shown

keys_router = APIRouter(prefix="/keys", tags=["access"])

KeyPath = Annotated[
    str,
    Path(
        alias="id",
        description="A key's id.",
        max_length=100,
        json_schema_extra={"format": "uuid"},
    ),
]


@keys_router.post(
    "",
    **operation(
        "create_key",
        answers=wire.NewKeyAnswer,
        status=201,
        says="Made. The token is shown this once.",
        body=NewKey,
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
    ),
)
async def create_key(request: Request, caller: Admin) -> Response:
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
    wanted = await read_body(request, NewKey)
    about = await caller.of_tenant(wanted.tenant)
    _check_role(caller, wanted.role)
    given = wanted.model_dump(include={"jobs", "queues", "actions"}, exclude_none=True)
    after = {"name": wanted.name, "role": str(wanted.role), "expires": wanted.expires, **given}
    with about.auditing("key.create", wanted.name, after=after):
        key, token = await about.client.create_key(
            wanted.name,
            role=wanted.role,
            expires=wanted.expires,
            created_by=caller.actor,
            **given,
        )
    return answer_created(answers.key(key, token=token), location=f"/api/v1/keys/{key.id}")


@keys_router.get("", **operation("list_keys", answers=Page[wire.Key], says="Keys, newest first."))
async def list_keys(
    caller: Admin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List keys, revoked and expired ones too."""
    return answer_list(
        await caller.client.keys(),
        answers.key,
        key=lambda one: one.id,
        read=UUID,
        limit=limit,
        cursor=cursor,
        newest_first=True,
    )


async def revoke_key(request: Request, id: KeyPath, caller: Admin) -> Response:
    """Let a key open nothing any more. That counts within 5 seconds, for open streams too."""
    await read_body(request, Nothing, optional=True)
    known = read_id(id)
    for one in await caller.client.keys():
        if one.id == known:
            _check_role(caller, one.role)
    with caller.auditing("key.revoke", known):
        key = await caller.client.revoke_key(known)
    return answer_json(answers.key(key))


keys_router.post(
    "/{id}/revoke",
    **operation(
        "revoke_key",
        answers=wire.Key,
        says="It opens nothing any more.",
        body=Nothing,
        is_optional=True,
        errors=(404,),
    ),
)(revoke_key)
keys_router.delete(
    "/{id}",
    **operation("delete_key", answers=wire.Key, says="It opens nothing any more.", errors=(404,)),
)(revoke_key)


def _check_role(caller: Caller, role: Role) -> None:
    # A worker's key is an admin's to give, although it stands beside the others.
    if role is not Role.WORKER and not caller.role.may(role):
        raise AccessDenied(
            f"a key with the role {role} takes one; this one's role is {caller.role}"
        )


# `/tenants`: isolated spaces, and how much each may use. For superadmins.

tenants_router = APIRouter(prefix="/tenants", tags=["access"])

TenantPath = Annotated[str, Path(alias="name", description="A tenant's name.", max_length=200)]


@tenants_router.post(
    "",
    **operation(
        "create_tenant",
        answers=wire.Tenant,
        status=201,
        says="Created.",
        body=NewTenant,
        examples={"with quotas": {"name": "acme", "jobs": 100, "per_minute": 6000}},
        errors=(409,),
        headers={**LOCATION, **REPLAYED},
    ),
)
async def create_tenant(
    request: Request, caller: Superadmin, key: IdempotencyKey = None
) -> Response:
    """Create a tenant."""
    raw = await read_bytes(request)
    wanted = validate_body(read_json(raw), NewTenant)

    async def perform(this: IdempotentRequest) -> Response:
        made = await _create_tenant(caller, wanted, this)
        return answer_created(
            answers.tenant(made), location=f"/api/v1/tenants/{quote(made.name, safe='')}"
        )

    return await perform_once(request, caller, key, raw, perform)


async def _create_tenant(caller: Caller, wanted: NewTenant, this: IdempotentRequest) -> Tenant:
    entry = this.made("entry")
    if this.is_repeated and await caller.recorded("tenant.create", wanted.name, entry) is not None:
        return await caller.client.tenant_record(wanted.name)
    quotas = wanted.model_dump(exclude={"name"})
    with caller.auditing("tenant.create", wanted.name, after=quotas, id=entry):
        return await caller.client.add_tenant(wanted.name, **quotas)


@tenants_router.get(
    "", **operation("list_tenants", answers=Page[wire.Tenant], says="Tenants, by name.")
)
async def list_tenants(
    caller: Superadmin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List tenants with their quotas."""
    found = await caller.client.tenants()
    return answer_list(found, answers.tenant, key=lambda one: one.name, limit=limit, cursor=cursor)


@tenants_router.get(
    "/{name}",
    **operation("get_tenant", answers=wire.Tenant, says="The tenant.", errors=(404,)),
)
async def get_tenant(name: TenantPath, caller: Superadmin) -> Response:
    """Show a tenant with its quotas."""
    return answer_json(answers.tenant(await caller.client.tenant_record(name)))


@tenants_router.patch(
    "/{name}",
    **operation(
        "update_tenant",
        answers=wire.Tenant,
        says="Changed.",
        body=TenantChange,
        examples={"more, and no limit": {"per_minute": 60_000, "jobs": None}},
        errors=(404,),
    ),
)
async def update_tenant(request: Request, name: TenantPath, caller: Superadmin) -> Response:
    """Change a tenant's quotas. Those that are not named stay; null is no limit."""
    wanted = await read_body(request, TenantChange)
    before = answers.tenant(await caller.client.tenant_record(name)).quotas
    quotas = wanted.model_dump(exclude_unset=True)
    with caller.auditing("tenant.update", name, before=before, after=quotas):
        made = await caller.client.update_tenant(name, **quotas)
    return answer_json(answers.tenant(made))


# `/secrets`: values that jobs use and nobody reads. No answer ever has one.

secrets_router = APIRouter(prefix="/secrets", tags=["secrets"])

SecretPath = Annotated[
    str,
    Path(
        alias="name",
        description="A secret's name: letters, digits and _, beginning with no digit.",
        max_length=200,
    ),
]


class NewSecret(Body):
    """A secret's value, which no answer repeats."""

    value: Annotated[
        str,
        checked_by(check_value),
        Field(
            description="The value. Sealed at once; opened only by workers, where a job runs.",
            min_length=SECRET_CHARS_MIN,
            max_length=SECRET_BYTES_MAX,
            json_schema_extra={"writeOnly": True, "format": "password"},
        ),
    ]


@secrets_router.get(
    "", **operation("list_secrets", answers=Page[wire.Secret], says="Secrets, by name.")
)
async def list_secrets(
    caller: Admin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List secrets, without their values."""
    found = await caller.client.secrets()
    return answer_list(found, answers.secret, key=lambda one: one.name, limit=limit, cursor=cursor)


@secrets_router.put(
    "/{name}",
    **operation(
        "set_secret",
        answers=wire.Secret,
        says="It is what was said.",
        body=NewSecret,
        examples={"a token": {"value": "sk-0123456789abcdef"}},
        also={201: "Created."},
        errors=(409,),
    ),
)
async def set_secret(request: Request, name: SecretPath, caller: Admin) -> Response:
    """Set a secret. One of the same name is replaced; workers use the new value within 5 seconds.

    Jobs refer to it as `{"secret": "NAME"}`. It may be sent again when the answer was lost.
    """
    wanted = await read_body(request, NewSecret)
    check_secret_name(name)
    before = await _find_secret(caller, name)
    after = {"key_id": _sealing_key(caller)}
    with caller.auditing("secret.set", name, before=_secret_payload(before), after=after):
        made = await caller.client.set_secret(name, wanted.value, author=caller.actor)
    status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
    return answer_json(answers.secret(made), status=status)


@secrets_router.delete(
    "/{name}",
    **operation(
        "delete_secret",
        answers=wire.DeletedName,
        says="It is gone; what refers to it fails from now on.",
        errors=(404,),
    ),
)
async def delete_secret(name: SecretPath, caller: Admin) -> Response:
    """Delete a secret. Jobs that refer to it fail until it is set again."""
    before = await _find_secret(caller, name)
    if before is None:
        raise SecretNotFound(f"there is no secret named {shown(name)}")
    with caller.auditing("secret.delete", name, before=_secret_payload(before)):
        await caller.client.delete_secret(name)
    return answer_json(wire.DeletedName(name=name, status="deleted"))


def _sealing_key(caller: Caller) -> str:
    """The id of the key that seals. The caller cannot change the settings of the server."""
    try:
        return caller.client.sealer().key_id
    except UsageError as error:
        why = "" if isinstance(error, KeyMissing) else f" ({error})"
        raise Conflict(
            f"the server has no key that seals secrets{why}; its operator makes one with `daybell"
            f" secrets key`, and sets {VARIABLE} to it for the server and all workers"
        ) from None


async def _find_secret(caller: Caller, name: str) -> Secret | None:
    return next((one for one in await caller.client.secrets() if one.name == name), None)


def _secret_payload(secret: Secret | None) -> dict[str, Any] | None:
    """What the audit log is told of it."""
    return None if secret is None else {"version": secret.version, "key_id": secret.key_id}


# `/audit`: who changed what, from where.

audit_router = APIRouter(prefix="/audit", tags=["access"])


@audit_router.get(
    "",
    **operation(
        "list_audit", answers=Page[wire.AuditEntry], says="A page of the log, newest first."
    ),
)
async def list_audit(
    caller: Admin,
    actor: TextFilter = None,
    action: TextFilter = None,
    target: TextFilter = None,
    since: BoundFilter = None,
    until: BoundFilter = None,
    limit: Limit = PAGE_ITEMS_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Show who changed what. `action` is all of it, such as `job.update`, or only its noun."""
    page = await caller.client.audit(
        actor=actor,
        action=action,
        target=target,
        since=since,
        until=until,
        limit=limit,
        cursor=cursor,
    )
    return answer_page(page, map(answers.audit_entry, page.items), cursor=lambda one: str(one.id))


@audit_router.get(
    "/verify",
    **operation("verify_audit", answers=wire.AuditCheck, says="How far the chain holds."),
)
async def verify_audit(
    caller: Admin, limit: Limit = PAGE_ITEMS_MAX, cursor: Cursor = None
) -> Response:
    """Check the hashes of the audit log, oldest entries first.

    `cursor` is `next_cursor` of the answer before, or the `head` of an earlier check, from which
    the log must still continue.
    """
    return answer_json(
        answers.audit_check(await caller.client.verify_audit(limit=limit, cursor=cursor))
    )
