"""The SQLite store: its life cycle, wake-ups and upkeep, and its ports."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import weakref
from collections.abc import Callable, Collection
from copy import copy
from typing import Self

from msgspec.structs import replace

from daybell.core import checks
from daybell.core.access import (
    NewAuditEntry,
)
from daybell.core.views import (
    DEFAULT_RETENTION,
    SWEEPS,
    Folded,
    Health,
    Miscount,
    Removed,
    Retention,
    SweepKind,
    Swept,
)
from daybell.store import migrate
from daybell.store.admin import PendingEntry
from daybell.store.sqlite import (
    connection,
    gates,
    progress,
    queue,
    stats,
    upkeep,
)
from daybell.store.sqlite import steps as steps_room
from daybell.store.sqlite.connection import (
    IN_MEMORY,
    AuditedDatabase,
    Clock,
    Database,
)
from daybell.store.sqlite.ports import (
    SqliteAdmin,
    SqliteCatalog,
    SqliteQueue,
    SqliteRuns,
    SqliteSchedules,
)
from daybell.store.sqlite.schedules import rearm_schedules
from daybell.store.sqlite.transaction import Transaction
from daybell.store.sqlite.wakeups import StopListening, Wakeups
from daybell.store.wakeups import Wake


class SqliteStore:
    """A store in one file, for many processes of one machine; at IN_MEMORY, for one event loop."""

    def __init__(self, path: str, *, clock: Clock = time.time) -> None:
        self.db = Database(path, clock)
        self._memory: sqlite3.Connection | None = None  # of a database in memory, even if closed
        self.wakeups = Wakeups(self.db)
        self._retain_walk = upkeep.RetentionWalk()  # of `retain` through executions
        self.queue = SqliteQueue(self.db, self.wakeups)
        self.schedules = SqliteSchedules(self.db, self.wakeups)
        self.runs = SqliteRuns(self.db, self.wakeups)
        self.catalog = SqliteCatalog(self.db, self.wakeups)
        self.admin = SqliteAdmin(self.db, self.wakeups)

    @classmethod
    def in_memory(cls, *, clock: Clock = time.time) -> Self:
        """Return a store that lives and dies with this object."""
        return cls(IN_MEMORY, clock=clock)

    async def open(self) -> None:
        if self.db.is_open:
            return
        if self.db.is_in_memory:
            self._open_in_memory()
            return
        applied = await asyncio.to_thread(upkeep.read_applied, self.db.path)
        if applied is None:
            raise connection.missing_file_error(self.db.path)
        migrate.check(migrate.known_migrations(upkeep.PACKAGE), applied)
        await self.db.open(self.wakeups.give, progress.take_pending_runs)

    def _open_in_memory(self) -> None:
        """Open a database that lives as long as this store, closed or not."""
        if self._memory is None:
            self._memory = upkeep.create_in_memory(self.db.clock)
            weakref.finalize(self, self._memory.close)
        self.db.open_inline(self._memory, self.wakeups.give, progress.take_pending_runs)

    async def close(self) -> None:
        await self.wakeups.close()
        await self.db.close()

    async def pending_migrations(self) -> tuple[str, ...]:
        if self.db.is_in_memory:
            return ()
        applied = await asyncio.to_thread(upkeep.read_applied, self.db.path)
        known = migrate.known_migrations(upkeep.PACKAGE)
        return tuple(step.label for step in migrate.pending(known, applied or []))

    async def migrate(self) -> tuple[str, ...]:
        if self.db.is_in_memory:
            return ()
        made = await asyncio.to_thread(upkeep.apply_migrations, self.db.path, self.db.clock)
        return tuple(step.label for step in made)

    async def listen(
        self, tenant: str, queues: Collection[str], wake: Wake, *, ask: Wake | None = None
    ) -> StopListening:
        await self.db.read(lambda tx: tx.names.tenant(tx, tenant))
        return self.wakeups.listen(wake, ask)

    async def listen_schedules(self, wake: Wake) -> StopListening:
        return self.wakeups.listen_schedules(wake)

    async def upkeep(
        self,
        limit: int = 1000,
        *,
        sweeps: Collection[SweepKind] = SWEEPS,
        policy: Retention = DEFAULT_RETENTION,
    ) -> Swept:
        checks.check_limit(limit)
        return Swept(
            expired=await self._sweep(queue.expire, limit) if SweepKind.EXPIRE in sweeps else 0,
            rearmed=await self._sweep(rearm_schedules, limit) if SweepKind.REARM in sweeps else 0,
            advanced=await self._advance_runs(limit) if SweepKind.ADVANCE in sweeps else 0,
            admitted=await self._sweep(gates.admit_all, limit) if SweepKind.ADMIT in sweeps else 0,
            miscounts=await self._recount_gates() if SweepKind.RECOUNT in sweeps else (),
            folded=await self._fold_stats(limit) if SweepKind.FOLD in sweeps else Folded(),
            removed=await self._retain(policy) if SweepKind.RETAIN in sweeps else Removed(),
        )

    async def _sweep(self, sweep: Callable[[Transaction, int], int], limit: int) -> int:
        return await self.db.write(lambda tx: sweep(tx, limit))

    async def _advance_runs(self, limit: int) -> int:
        found = await self.db.read(lambda tx: steps_room.find_pending_runs(tx, limit))
        for key in found:
            await self.db.write(lambda tx, key=key: progress.continue_run(tx, key))
        return len(found)

    async def _fold_stats(self, limit: int) -> Folded:
        has_ends, is_told = await self.db.read(stats.find_ends)
        has_more = has_ends and await self.db.write(lambda tx: stats.fold_all(tx, limit))
        return Folded(has_more, is_told)

    async def _recount_gates(self) -> tuple[Miscount, ...]:
        wrong = await self.db.read(gates.miscounts)
        return await self.db.write(gates.recount) if wrong else ()

    async def _retain(self, policy: Retention) -> Removed:
        total = Removed()
        for _ in range(upkeep.ROUNDS_MAX):
            walked = await self.db.write(lambda tx: upkeep.remove(tx, policy, self._retain_walk))
            self._retain_walk, removed = walked
            total = upkeep.add_removed(total, removed)
            if total.is_complete:
                return replace(total, gates=await self._remove_gates())
        return total

    async def _remove_gates(self) -> int:
        unused, newest = await self.db.read(gates.unused_gates)
        if not unused:
            return 0
        return await self.db.write(lambda tx: gates.remove_gates(tx, unused, newest))

    async def check_writable(self) -> None:
        await self.db.write(upkeep.write_header)

    @property
    def connections_made(self) -> int:
        return 0

    async def figures(self) -> dict[str, float]:
        return await self.db.read(lambda tx: stats.figures(tx, self.db.path))

    async def health(self) -> Health:
        return await self.db.read(lambda tx: upkeep.health(tx, self.db.path))

    def audited(self, tenant: str, entry: NewAuditEntry) -> Self:
        view = copy(self)
        view.db = db = AuditedDatabase(self.db, PendingEntry(tenant, entry))
        view.queue = self.queue.over(db)
        view.schedules = self.schedules.over(db)
        view.runs = self.runs.over(db)
        view.catalog = self.catalog.over(db)
        view.admin = self.admin.over(db)
        return view
