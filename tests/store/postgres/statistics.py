"""Tables whose statistics are missing, right or wrong, made on purpose.

The servers of the tests run without autovacuum. So a table is analysed when a test says so, and
never else. `make_statistics` loads tables between analyses:

| state | what the planner knows when the tables are full |
| --- | --- |
| `never` | nothing: no table was ever analysed |
| `empty` | the tables were analysed while they had no page, as autovacuum does |
| `full` | the tables were analysed after the load |
| `stale` | the tables were analysed with a few rows, before a bulk load |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal

import asyncpg

Statistics = Literal["never", "empty", "full", "stale"]
STATES: Final[tuple[Statistics, ...]] = ("never", "empty", "full", "stale")
FEW: Final = 50  # rows of a table when it was last analysed, in the state `stale`

# Tables that grow with the work; the others keep names, which a store remembers.
LARGE: Final = (
    "agenda", "attempt", "dead", "event", "event_key", "gate", "history", "idempotency",
    "lease", "live", "log", "node", "parked", "repeated", "run", "schedule", "step",
    "tenant_minute", "tick", "wait", "worker",
)  # fmt: skip

Load = Callable[[int], Awaitable[None]]
Plan = Callable[[], Awaitable[None]]


async def plan_nothing() -> None:
    """Keep no plan from before the load."""


async def make_statistics(
    sql: asyncpg.Connection, state: Statistics, load: Load, rows: int, *, plan: Plan = plan_nothing
) -> None:
    """Empty the large tables, and load so many rows with `load`, which adds them. `plan` is called
    when the planner knows least: before the load, except in the state `full`.
    """
    # Without rows, pages and statistics.
    await sql.execute(f"TRUNCATE {', '.join(f'daybell.{table}' for table in LARGE)} CASCADE")
    if state == "stale":
        await load(FEW)
    if state in ("empty", "stale"):
        await sql.execute("ANALYZE")
    if state != "full":
        await plan()
    await load(rows)
    if state == "full":
        await sql.execute("ANALYZE")
        await plan()
