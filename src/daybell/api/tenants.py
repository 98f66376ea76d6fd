"""`/tenants`: isolated spaces, and how much each may use. For superadmins."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response

from daybell.api import sights
from daybell.api.answers import answer, created
from daybell.api.body import checked, read_body, read_bytes, read_json
from daybell.api.caller import Caller, Superadmin
from daybell.api.contract import LOCATION, REPLAYED, IdempotencyKey, operation
from daybell.api.idempotency import Try, once
from daybell.api.lists import Cursor, Limit, paged
from daybell.api.schema import NewTenant, TenantChange
from daybell.client import wire
from daybell.core.limits import PAGE_ITEMS_DEFAULT
from daybell.core.tenant import Tenant

router = APIRouter(prefix="/tenants", tags=["access"])

TenantPath = Annotated[str, Path(alias="name", description="A tenant's name.", max_length=200)]


@router.post(
    "",
    **operation(
        "create_tenant",
        answers=sights.Tenant,
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
    wanted = checked(read_json(raw), NewTenant)

    async def perform(this: Try) -> Response:
        made = await _create(caller, wanted, this)
        return created(wire.tenant(made), location=f"/api/v1/tenants/{quote(made.name, safe='')}")

    return await once(request, caller, key, raw, perform)


async def _create(caller: Caller, wanted: NewTenant, this: Try) -> Tenant:
    entry = this.made("entry")
    if this.is_repeated and await caller.recorded("tenant.create", wanted.name, entry) is not None:
        return await caller.client.tenant_record(wanted.name)
    quotas = wanted.model_dump(exclude={"name"})
    with caller.auditing("tenant.create", wanted.name, after=quotas, id=entry):
        return await caller.client.add_tenant(wanted.name, **quotas)


@router.get("", **operation("list_tenants", answers=sights.Tenants, says="Tenants, by name."))
async def list_tenants(
    caller: Superadmin, limit: Limit = PAGE_ITEMS_DEFAULT, cursor: Cursor = None
) -> Response:
    """List tenants with their quotas."""
    found = await caller.client.tenants()
    return paged(found, wire.tenant, key=lambda one: one.name, limit=limit, cursor=cursor)


@router.get(
    "/{name}",
    **operation("get_tenant", answers=sights.Tenant, says="The tenant.", errors=(404,)),
)
async def get_tenant(name: TenantPath, caller: Superadmin) -> Response:
    """Show a tenant with its quotas."""
    return answer(wire.tenant(await caller.client.tenant_record(name)))


@router.patch(
    "/{name}",
    **operation(
        "update_tenant",
        answers=sights.Tenant,
        says="Changed.",
        body=TenantChange,
        examples={"more, and no limit": {"per_minute": 60_000, "jobs": None}},
        errors=(404,),
    ),
)
async def update_tenant(request: Request, name: TenantPath, caller: Superadmin) -> Response:
    """Change a tenant's quotas. Those that are not named stay; null is no limit."""
    wanted = await read_body(request, TenantChange)
    before = wire.tenant(await caller.client.tenant_record(name))["quotas"]
    quotas = wanted.model_dump(exclude_unset=True)
    with caller.auditing("tenant.update", name, before=before, after=quotas):
        made = await caller.client.update_tenant(name, **quotas)
    return answer(wire.tenant(made))
