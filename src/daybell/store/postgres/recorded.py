"""Changes that bring an entry of the audit log with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from daybell.core.audit import NewEntry
from daybell.errors import TenantNotFound, shown
from daybell.store.recording import Recording

if TYPE_CHECKING:
    from daybell.store.postgres.connection import Link

# A transaction has an id once it has written something, or locked it. Those that lock what they
# may leave as it is say so themselves; see `recording.idle`.
HAS_WRITTEN: Final = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
TENANT: Final = "SELECT key FROM daybell.tenant WHERE name = $1"
ADD: Final = """
    INSERT INTO daybell.audit (tenant, id, actor, action, target, before, after, source)
    SELECT $1, u.* FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[],
                               $7::text[], $8::text[]) u
    ON CONFLICT DO NOTHING
    """


async def record_change(link: Link, wanted: Recording) -> bool:
    """Add the entry, if this transaction has changed something; answers whether it has."""
    if wanted.is_idle or not await link.fetchval(HAS_WRITTEN):
        return False
    tenant = await link.fetchval(TENANT, wanted.tenant)
    if tenant is None:
        raise TenantNotFound(f"no tenant named {shown(wanted.tenant)}")
    await record(link, tenant, [wanted.entry])
    return True


async def record(link: Link, tenant: int, entries: Sequence[NewEntry]) -> None:
    """Add these entries to the log, but for those that are there."""
    await link.execute(ADD, tenant, *columns(entries))


def columns(entries: Sequence[NewEntry]) -> tuple[list[Any], ...]:
    """Entries as a statement takes them."""
    return (
        [entry.id for entry in entries],
        [entry.actor for entry in entries],
        [entry.action for entry in entries],
        [entry.target for entry in entries],
        [entry.before for entry in entries],
        [entry.after for entry in entries],
        [entry.source for entry in entries],
    )
