"""Whose request it is."""

from __future__ import annotations

from fastapi import Request

from daybell.api.caller import Caller, KeyNeeded, api_of
from daybell.core.access import Role


async def authenticate(request: Request) -> Caller:
    """Who sent a request. Raises KeyNeeded."""
    api = api_of(request)
    tenant = api.options.open_tenant
    if tenant is None:
        raise KeyNeeded("send a key, as Authorization: Bearer dbk_…")
    return Caller(
        client=api.client.for_tenant(tenant) if tenant != api.client.tenant else api.client,
        tenant=tenant,
        role=Role.SUPERADMIN,
        actor="dev",
        source=request.client.host if request.client else "",
    )
