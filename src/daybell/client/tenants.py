"""Tenants, and how much each may use."""

from __future__ import annotations

from msgspec.structs import replace

from daybell.client.requests import read_whole
from daybell.core.limits import QUOTA_MAX, check_name
from daybell.core.tenant import Quotas, Tenant
from daybell.errors import DuplicateKey, UsageError, shown
from daybell.store.protocol import Store


class Tenants:
    """The verbs of `Client` for tenants. They are about all of them, not only about its own."""

    store: Store

    async def tenants(self) -> list[Tenant]:
        """All tenants with their quotas, by name."""
        return await self.store.list_tenant_records()

    async def tenant_record(self, name: str) -> Tenant:
        """A tenant with its quotas. Raises TenantNotFound."""
        return await self.store.get_tenant(name)

    async def ensure_tenant(self, name: str) -> None:
        """Create a tenant; one that exists is left as it is."""
        await self.store.add_tenants([check_name(name, what="tenant")])

    async def add_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Create a tenant. One that exists is refused with DuplicateKey."""
        wanted = read_quotas(Quotas(), quotas)
        if not await self.store.add_tenants([check_name(name, what="tenant")]):
            raise DuplicateKey(f"there is a tenant named {shown(name)} already")
        if wanted.has_any:
            return await self.store.set_quotas(name, wanted)
        return await self.store.get_tenant(name)

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        tenant = await self.store.get_tenant(name)
        wanted = read_quotas(tenant.quotas, quotas)
        return tenant if wanted == tenant.quotas else await self.store.set_quotas(name, wanted)


def read_quotas(before: Quotas, changes: dict[str, int | None]) -> Quotas:
    """Quotas with some of them changed."""
    for name, most in changes.items():
        if name not in before.__struct_fields__:
            raise UsageError(
                f"there is no quota {shown(name)}; there are {', '.join(before.__struct_fields__)}",
                field=name,
            )
        if most is not None:
            read_whole(most, name, most=QUOTA_MAX)
    return replace(before, **changes)
