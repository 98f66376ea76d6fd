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
ADD: Final = "SELECT daybell.record_audit($1, $2, $3, $4, $5, $6, $7, $8)"


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
    """Append these entries to the tenant's chain, except those that exist. It locks the head of the
    chain until the end of the transaction, so this is the last step of one.
    """
    await link.execute(ADD, tenant, *columns(entries))


def columns(entries: Sequence[NewEntry]) -> tuple[list[Any], ...]:
    """Entries as a statement takes them, each once."""
    each = {entry.id: entry for entry in entries}.values()
    return (
        [entry.id for entry in each],
        [entry.actor for entry in each],
        [entry.action for entry in each],
        [entry.target for entry in each],
        [entry.before for entry in each],
        [entry.after for entry in each],
        [entry.source for entry in each],
    )
