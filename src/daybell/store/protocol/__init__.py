"""The seam: what every store promises, operation by operation.

Operations speak the domain and come in batches. Decisions are made above (`core/`); a store
only keeps what was decided, if the guard still holds. Every promise in a docstring here is a
test in `tests/store/`, run against all stores.

What holds for all of them:

- **Tenant.** `tenant` binds an operation to one tenant. Another tenant's id is answered exactly
  like an unknown one. A tenant that does not exist raises TenantNotFound. Operations of upkeep,
  which serve all tenants, take none.
- **Time** is the store's own. Delays are added to it inside the store, and no time that a
  caller measured is compared with it.
- **Committed.** An operation that returned is durable. One that raised Unavailable may or may
  not have happened, and is made to be asked again: ids and lease ids come from the caller,
  moves are fenced, and a repetition is answered as done.
- **Errors** are Daybell's own (`daybell.errors`); a driver's exception never gets out.
"""

from __future__ import annotations

from typing import Protocol

from daybell.store.protocol.admin import Access, Vault
from daybell.store.protocol.catalog import Definitions, Logs, Views
from daybell.store.protocol.queue import Executions, Transactions, Wakeups, Workers
from daybell.store.protocol.runs import Runs, Steps
from daybell.store.protocol.schedules import Dependencies, Schedules
from daybell.store.protocol.upkeep import Gates, Upkeep


class Store(
    Wakeups,
    Definitions,
    Executions,
    Transactions,
    Workers,
    Schedules,
    Dependencies,
    Runs,
    Steps,
    Gates,
    Logs,
    Views,
    Upkeep,
    Access,
    Vault,
    Protocol,
):
    """A place where executions are kept."""

    async def open(self) -> None:
        """Connect, and check that the schema fits this program. Raises SchemaError with what to
        do, or Unavailable.
        """
        ...

    async def pending_migrations(self) -> tuple[str, ...]:
        """Names of the schema's steps that are still to be made. Raises SchemaError if the
        schema is newer or damaged.
        """
        ...

    async def migrate(self) -> tuple[str, ...]:
        """Bring the schema up to date, under a lock, and answer the names of the steps made.
        Several at once make each once.
        """
        ...

    async def close(self) -> None:
        """Let go of all connections. What is under way is finished first. Closing twice is
        fine.
        """
        ...
