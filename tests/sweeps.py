"""Single sweeps of upkeep, and gates of any name and capacity, which only tests create."""

from __future__ import annotations

from typing import Any, Final

from daybell.core.views import DEFAULT_RETENTION, Miscount, Removed, Retention, SweepKind
from daybell.store.postgres.context import AfterCommit, Tx
from daybell.store.postgres.gates import admit_gates, notify_claimable
from daybell.store.sqlite import gates
from daybell.store.sqlite.transaction import Transaction


async def expire(store: Any, *, limit: int = 1000) -> int:
    return (await store.upkeep(limit, sweeps=[SweepKind.EXPIRE])).expired


async def rearm_schedules(store: Any, *, limit: int = 1000) -> int:
    return (await store.upkeep(limit, sweeps=[SweepKind.REARM])).rearmed


async def advance_runs(store: Any, *, limit: int = 100) -> int:
    return (await store.upkeep(limit, sweeps=[SweepKind.ADVANCE])).advanced


async def admit(store: Any, *, limit: int = 1000) -> int:
    return (await store.upkeep(limit, sweeps=[SweepKind.ADMIT])).admitted


async def recount_gates(store: Any) -> list[Miscount]:
    return list((await store.upkeep(sweeps=[SweepKind.RECOUNT])).miscounts)


async def fold_stats(store: Any, *, limit: int = 1000) -> bool:
    return (await store.upkeep(limit, sweeps=[SweepKind.FOLD])).folded.has_more


async def fold_all(store: Any) -> None:
    """Fold all ends. One fold may not do: it covers a window of transactions, and other databases
    of the same server use their numbers up.
    """
    while await fold_stats(store):
        pass


async def retain(store: Any, policy: Retention = DEFAULT_RETENTION) -> Removed:
    return (await store.upkeep(sweeps=[SweepKind.RETAIN], policy=policy)).removed


_SQLITE: Final = """
INSERT INTO gate (tenant, name, capacity) VALUES (?, ?, ?)
    ON CONFLICT (tenant, name) DO UPDATE SET capacity = excluded.capacity
"""
_POSTGRES: Final = """
    INSERT INTO daybell.gate (tenant, key, capacity)
    SELECT $1, key, capacity FROM unnest($2::text[], $3::int[]) u(key, capacity) ORDER BY key
    ON CONFLICT (tenant, key) DO UPDATE SET capacity = excluded.capacity
    """


async def set_gates(store: Any, tenant: str, capacities: dict[str, int]) -> None:
    """Create gates, or change their capacity and admit into new room."""
    if not hasattr(store, "context"):
        await store.db.write(lambda tx: _set_gates(tx, tenant, capacities))
        return
    pg, after = store.context, AfterCommit()

    async def work() -> None:
        tx: Tx
        async with pg.transaction(after=after) as tx:
            number = await pg.names.tenant(tx, tenant)
            await tx.execute(_POSTGRES, number, list(capacities), list(capacities.values()))
            await admit_gates(tx, number, capacities)

    await pg.db.settled(work)
    notify_claimable(pg, after)


def _set_gates(tx: Transaction, tenant: str, capacities: dict[str, int]) -> None:
    owner = tx.names.tenant(tx, tenant)
    for name, capacity in capacities.items():
        tx.execute(_SQLITE, (owner, name, capacity))
        gates.admit(tx, tx.names.gate(tx, owner, name))


BY_NAME: Final = {
    one.__name__: one
    for one in (
        expire,
        rearm_schedules,
        advance_runs,
        admit,
        recount_gates,
        fold_stats,
        retain,
        set_gates,
    )
}
NAMES: Final = {
    SweepKind.EXPIRE: "expire",
    SweepKind.REARM: "rearm_schedules",
    SweepKind.ADVANCE: "advance_runs",
    SweepKind.ADMIT: "admit",
    SweepKind.RECOUNT: "recount_gates",
    SweepKind.FOLD: "fold_stats",
    SweepKind.RETAIN: "retain",
}


def name_of(operation: str, options: dict[str, Any]) -> str:
    """The name of an operation; of upkeep, that of its sweep."""
    if operation != "upkeep":
        return operation
    (sweep,) = options["sweeps"]
    return NAMES[sweep]
