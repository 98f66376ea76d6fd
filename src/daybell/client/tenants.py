"""Tenants, and how much each may use."""

from __future__ import annotations

from daybell.client.requests import read_whole
from daybell.core.limits import QUOTA_MAX, check_name
from daybell.core.tenant import Quotas, Tenant
from daybell.errors import Unavailable
from daybell.store.checks import check_quotas
from daybell.store.protocol import Store


class Tenants:
    """The verbs of `Client` for tenants. They are about all of them, not only about its own."""

    store: Store

    async def check_ready(self) -> None:
        """Raise Unavailable unless the store can be read and written."""
        await self.store.list_tenant_records()
        try:
            await self.store.check_writable()
        except Unavailable as refusal:
            refusal.is_read_only = True
            raise

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
        return await self.store.add_tenant(name, Quotas(**read_quotas(quotas)))

    async def update_tenant(self, name: str, **quotas: int | None) -> Tenant:
        """Change a tenant's quotas; those that are not named stay, None is no limit."""
        return await self.store.set_quotas(name, **read_quotas(quotas))


def read_quotas(quotas: dict[str, int | None]) -> dict[str, int | None]:
    """Return quotas that are whole numbers, or None."""
    for name, most in quotas.items():
        if most is not None:
            read_whole(most, name, most=QUOTA_MAX)
    check_quotas(quotas)
    return quotas
