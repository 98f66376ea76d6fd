"""`/tenants`: isolated spaces, and how much each may use. For superadmins."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Request, Response

from daybell.api import sights
from daybell.api.answers import answer, created
from daybell.api.body import read_body
from daybell.api.caller import Superadmin
from daybell.api.contract import LOCATION, operation
from daybell.api.schema import NewTenant, TenantChange
from daybell.client import wire

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
        headers=LOCATION,
    ),
)
async def create_tenant(request: Request, caller: Superadmin) -> Response:
    """Create a tenant."""
    wanted = await read_body(request, NewTenant)
    quotas = wanted.model_dump(exclude={"name"})
    with caller.auditing("tenant.create", wanted.name, after=quotas):
        made = await caller.client.add_tenant(wanted.name, **quotas)
    return created(wire.tenant(made), location=f"/api/v1/tenants/{quote(made.name, safe='')}")


@router.get("", **operation("list_tenants", answers=sights.Tenants, says="Tenants, by name."))
async def list_tenants(caller: Superadmin) -> Response:
    """List tenants with their quotas."""
    return answer({"items": [wire.tenant(one) for one in await caller.client.tenants()]})


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
