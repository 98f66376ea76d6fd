"""The context of a PostgreSQL store: its database, names, notifier and caches.

One object per store. Every function of the room modules takes it as the first argument.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from functools import partial
from types import TracebackType
from typing import Any, Final, cast
from uuid import UUID

from daybell.core.flow import Policy
from daybell.core.units import Instant, Seconds
from daybell.core.views import KeepPolicies
from daybell.errors import DaybellError, UsageError
from daybell.store.admin import PendingEntry
from daybell.store.codec import PRIORITIES
from daybell.store.postgres.connection import (
    READ_COMMITTED,
    AuditedDatabase,
    Database,
    Lineage,
    Link,
    Row,
    connect,
    translate_errors,
    watch_peer,
)
from daybell.store.postgres.names import Lanes, Names
from daybell.store.shares import set_holder
from daybell.store.timeouts import Pace, Timeouts
from daybell.store.wakeups import pause

# Wake-ups: NOTIFY after something became claimable, LISTEN while there is nothing to do.
#
# They only reduce latency. A notification is a statement of its own after the commit, at most one
# in three milliseconds: within the transaction it would make commits queue behind each other. A
# notification can be lost; then the next poll finds the work.

logger = logging.getLogger("daybell.store")

CHANNEL: Final = "daybell"
WORKERS: Final = "!"  # in the place of a queue, which cannot be called so
SCHEDULES: Final = "@"
ALL_TENANTS: Final = 0  # in the place of one
GAP_SECONDS: Final = 0.003
RECONNECT_SECONDS: Final = 1.0


def _find_wake(wanted: Mapping[str, Callable[[], None]], said: str) -> Callable[[], None] | None:
    """Return the function to call for a tenant and a queue: one for this tenant, or for all."""
    return wanted.get(said) or wanted.get(f"{ALL_TENANTS}:{said.partition(':')[2]}")


class Notifier:
    """A sender of notifications about queues that have something new."""

    SAY = f"SELECT pg_notify('{CHANNEL}', said) FROM unnest($1::text[]) said"

    def __init__(self, db: Database) -> None:
        self._db = db
        self._touched: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self.near: list[Mapping[str, Callable[[], None]]] = []  # listeners in this process

    def touch(self, tenant: int, queues: Iterable[str], *, here: bool = False) -> None:
        """Report that something in these queues may be claimed. With `here`, listeners in this
        process hear it at once, and not through the server.
        """
        said = {f"{tenant}:{queue}" for queue in queues}
        self._touched |= said
        if here:
            for wake in {_find_wake(wanted, word) for wanted in self.near for word in said}:
                if wake is not None:
                    wake()
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Send the notifications that are left."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        set_holder(None)  # it speaks for all tenants, whichever was the first
        try:
            while self._touched:
                said, self._touched = sorted(self._touched), set()
                # The caller that touched a queue may work at another pace.
                async with self._db.link(Pace.SHORT) as link:
                    await link.execute(self.SAY, said)
                await pause(GAP_SECONDS)
        except DaybellError:
            pass  # listeners poll, too
        finally:
            self._sender = None


class Listener:
    """A connection that waits for notifications; it comes back when it breaks or goes deaf."""

    def __init__(
        self,
        url: str,
        wanted: Mapping[str, Callable[[], None]],
        *,
        lineage: Lineage,
        timeouts: Timeouts,
        interval: Seconds,
        takes_settings: bool = True,
    ) -> None:
        self._url = url
        self._lineage = lineage
        self._timeouts = timeouts
        self._interval = interval  # between two checks of a connection that is silent
        self._settings = timeouts.peer if takes_settings else {}
        self._wanted = dict(wanted)
        self._task: asyncio.Task[None] | None = None
        self._is_warned = False

    async def start(self) -> None:
        """Listen from now on, or as soon as the server can be reached."""
        is_tried = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._listen(is_tried))
        await is_tried.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self, is_tried: asyncio.Event) -> None:
        while True:
            try:
                with translate_errors():
                    link = await connect(
                        self._url,
                        lineage=self._lineage,
                        timeout=self._timeouts.connect,
                        command_timeout=self._timeouts.command,
                        statement_cache_size=0,
                        server_settings=self._settings,
                    )
                    try:
                        await watch_peer(link, timeouts=self._timeouts)
                        ended = asyncio.Event()
                        link.add_termination_listener(partial(_set, ended))
                        await link.add_listener(CHANNEL, self._hear)
                        is_tried.set()
                        for wake in set(self._wanted.values()):
                            wake()  # for notifications from before this connection
                        await self._watch(link, ended)
                    finally:
                        link.terminate()
            except DaybellError as error:
                self._warn(error)  # the poll goes on meanwhile
            is_tried.set()
            await pause(RECONNECT_SECONDS)

    def _warn(self, error: DaybellError) -> None:
        """Log a lasting error once; without wake-ups, work only starts later."""
        is_lasting = isinstance(error, UsageError) or getattr(error, "is_lasting", False)
        if is_lasting and not self._is_warned:
            self._is_warned = True
            logger.warning("no wake-ups, work waits for the next poll: %s", error)

    async def _watch(self, link: Any, ended: asyncio.Event) -> None:
        """Return when the connection has ended. Raises TimeoutError when it has gone deaf."""
        while not ended.is_set():
            try:
                async with asyncio.timeout(self._interval):
                    await ended.wait()
            except TimeoutError:
                await link.execute("SELECT 1")

    def _hear(self, _link: object, _pid: int, _channel: str, said: str) -> None:
        if (wake := _find_wake(self._wanted, said)) is not None:
            wake()


def _set(ended: asyncio.Event, _link: object) -> None:
    ended.set()


# Lower bounds on run_at, from which a claim reads its lanes.

LAG_SECONDS: Final = 0.2  # transactions younger than this are covered by the bound itself
SWEEP_SECONDS: Final = 1.0  # rows that a claimer locked and gave back are found this often
XID_MAX: Final = 2**63 - 1


class Bounds:
    """A lower bound on run_at for each lane and priority: the place that the last claim reached.

    While a session holds an old snapshot open, rows that were claimed long ago cannot be cleaned
    away, and every claim would step over all of them again. Starting where the last one ended
    avoids that.

    A row never lies in the past when it is written. So a row can appear below a bound only if its
    transaction was open for longer than LAG_SECONDS when the bound was set. `snapshot` and `cutoff`
    describe these transactions to the next claim: as soon as one of them has ended, that claim
    ignores the bounds.
    """

    def __init__(self) -> None:
        self._bounds: dict[tuple[int, int], Instant] = {}
        self._swept_at: Instant = 0.0
        self._marks: deque[tuple[Instant, int]] = deque()  # transaction ids of the latest claims
        self.snapshot: str | None = None
        self.cutoff = XID_MAX

    def get(self, lane: int, priority: int) -> Instant:
        return self._bounds.get((lane, priority), 0.0)

    def move(self, head: Row, claimed: Sequence[Row], *, lanes: Lanes, limit: int) -> None:
        """Learn from a claim. Once a second the next claim reads everything."""
        now = head["now"]
        self._note_transactions(head, now)
        if not 0 <= now - self._swept_at < SWEEP_SECONDS:
            self._bounds.clear()
            self._swept_at = now
            return
        if len(claimed) < limit:
            # All due rows are taken, except for those that another claimer has locked. In paused
            # queues no row was taken.
            bound, paused = now - LAG_SECONDS, head["paused"] or ()
            self._bounds = {
                (lane, priority): bound
                for lane, queue in zip(lanes.keys, lanes.queues, strict=True)
                if queue not in paused
                for priority in PRIORITIES
            }
            return
        if head["is_bounded"] == 0:
            self._bounds.clear()
        # Rows come in the order of priority, lane and time; most often all are of one lane.
        ends = claimed[-1:] if _lane_key(claimed[0]) == _lane_key(claimed[-1]) else claimed
        for row in ends:
            bound = max(self._bounds.get(_lane_key(row), 0.0), row["run_at"] - LAG_SECONDS)
            self._bounds[_lane_key(row)] = bound

    def _note_transactions(self, head: Row, now: Instant) -> None:
        """Remember the claim's snapshot, and which of its open transactions were old.

        Ids are given in order, so a transaction with a higher id than a claim of LAG_SECONDS ago
        started after it. Under a quota of running executions a claim gets its id before it waits
        for its turn, so that id proves nothing.
        """
        snapshot, _, xid = head["snapshot"].partition(" ")
        if xid and head["running_max"] is None:
            self._marks.append((now, int(xid)))
        while self._marks and not 0 <= now - self._marks[0][0] <= LAG_SECONDS:
            self._marks.popleft()
        self.cutoff = self._marks[0][1] if self._marks else XID_MAX
        _, xmax, listed = snapshot.split(":")
        is_any_old = self.cutoff > int(xmax) or (
            bool(listed) and int(listed.partition(",")[0]) < self.cutoff
        )
        self.snapshot = snapshot if is_any_old else None


def _lane_key(row: Row) -> tuple[int, int]:
    return row["lane"], row["priority"]


class AfterCommit:
    """Work that a transaction leaves for the time after its commit."""

    __slots__ = ("claimable", "continue_runs", "fill_cache", "is_rearmed", "stop_runs")

    def __init__(self) -> None:
        self.claimable: set[tuple[int, str]] = set()  # tenant, queue: to be notified
        self.stop_runs: dict[tuple[int, UUID], None] = {}  # cancelled by the transaction
        self.continue_runs: dict[tuple[int, UUID], None] = {}  # with more to do
        self.is_rearmed = False  # a schedule has a new time
        self.fill_cache: dict[UUID, Any] = {}  # see `flow.cache`

    def add(self, other: AfterCommit) -> None:
        """Add the work of a transaction that was committed."""
        self.claimable |= other.claimable
        self.stop_runs |= other.stop_runs
        self.continue_runs |= other.continue_runs
        self.fill_cache |= other.fill_cache
        self.is_rearmed |= other.is_rearmed


class Tx:
    """One attempt of a transaction, or a connection for single statements.

    A `Link` that also carries the context and the work to do after the commit. After the block the
    caller takes that work from `after`. If the transaction may be tried again, the work is handed
    to the operation's `AfterCommit` when the block ends without an error, so an attempt that was
    rolled back leaves nothing behind.
    """

    __slots__ = (
        "_operation",
        "_source",
        "after",
        "deleted_leases",
        "execute",
        "fetch",
        "fetchrow",
        "fetchval",
        "link",
        "pg",
    )

    def __init__(
        self,
        pg: StoreContext,
        source: AbstractAsyncContextManager[Link] | None = None,
        operation: AfterCommit | None = None,
    ) -> None:
        self.pg = pg
        self.after = AfterCommit()
        self.deleted_leases: list[UUID] | None = None  # by this transaction, if it is committed
        self._source = source
        self._operation = operation

    def use(self, link: Link) -> Tx:
        """Send statements to this connection."""
        self.link = link
        self.fetch = link.fetch
        self.fetchrow = link.fetchrow
        self.fetchval = link.fetchval
        self.execute = link.execute
        return self

    async def __aenter__(self) -> Tx:
        assert self._source is not None
        return self.use(await self._source.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        assert self._source is not None
        try:
            is_handled = await self._source.__aexit__(kind, error, trace)
        except BaseException:
            self.restore_leases()
            raise
        if kind is not None:
            self.restore_leases()
        elif self._operation is not None:
            self._operation.add(self.after)
        return is_handled

    def take_done_leases(self) -> list[UUID]:
        """Take the leases that are over, to delete their rows. No other transaction gets them."""
        if not self.pg.done_leases:
            return []
        done = self.pg.done_leases.copy()
        self.pg.done_leases.clear()  # the list is shared by all views of the store
        self.deleted_leases = [*(self.deleted_leases or ()), *done]
        return done

    def restore_leases(self) -> None:
        """Leave the leases to the next transaction: this one has not deleted them."""
        if self.deleted_leases:
            self.pg.done_leases += self.deleted_leases
            self.deleted_leases = None

    async def executemany(self, command: str, args: Iterable[Iterable[object]]) -> None:
        await self.link.executemany(command, args)

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        schema_name: str,
        columns: Iterable[str],
        records: Iterable[tuple[object, ...]],
    ) -> str:
        return await self.link.copy_records_to_table(
            table_name, schema_name=schema_name, columns=columns, records=records
        )

    def transaction(self, *, isolation: str | None = None) -> Any:
        return self.link.transaction(isolation=isolation)

    def terminate(self) -> None:
        self.link.terminate()


class HistoryWalk:
    """A walk of retention through the days of history, with its state."""

    def __init__(self, policies: KeepPolicies, now: Instant) -> None:
        self.policies = policies
        self.started_at = now
        self.judged: dict[float, Seconds] = {}  # by the start of a day: the age it was judged at
        self.page = 0  # of the day that is being judged


class FlowState:
    """Limits, as far as this process knows them. All of it only saves time: a slot is released, and
    an execution admitted, without it, some seconds later.
    """

    def __init__(self) -> None:
        self.policies: dict[tuple[int, int], Policy] = {}  # by job and version
        self.held: dict[UUID, int] = {}  # claimed executions with limits, and their attempts
        self.over: set[UUID] = set()  # those that have ended since
        self.checked_at: dict[int, Instant] = {}  # the last repair, by tenant


# Transactions that one fold of the statistics counts at first (`stats`).
FOLD_WINDOW_START: Final = 4096


class StoreContext:
    """State that all operations of one store share, in place: `with_entry` copies references."""

    __slots__ = (
        "bounds",
        "db",
        "done_leases",
        "flow",
        "fold_window",
        "history_walk",
        "limited_tenants",
        "listen_url",
        "names",
        "notifier",
        "open_leases",
        "run_ancestors",
        "shared_workers",
        "step_cursor",
        "task_pools",
        "task_timelines",
    )

    def __init__(self, db: Database, *, listen_url: str | None = None) -> None:
        self.db = db
        self.names = Names(apart=lambda: self.db.apart())
        self.notifier = Notifier(self.db)
        self.fold_window = FOLD_WINDOW_START
        self.history_walk: HistoryWalk | None = None
        self.listen_url = listen_url  # a direct connection to the server, past a pooler
        self.run_ancestors: dict[tuple[int, UUID], Row] = {}  # immutable columns of runs
        self.bounds: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Bounds] = {}
        self.limited_tenants: set[int] = set()  # those with a quota of running executions
        self.shared_workers: set[UUID] = set()  # those that serve several tenants
        # How many executions of a lease have not left it, for those claimed through this store; a
        # lease at zero is over, and its row goes with the next statement that writes leases. Only
        # moves that were made just now count, so a repetition never ends a lease too early; one
        # that is never seen to end is found by the worker's next renewal.
        self.flow = FlowState()
        self.open_leases: dict[tuple[UUID, UUID], int] = {}
        self.done_leases: list[UUID] = []
        self.task_pools: dict[UUID, Any] = {}  # by worker; its sessions have its name
        self.task_timelines: dict[UUID, int] = {}  # timeline of the connections of a pool
        self.step_cursor: tuple[Instant, UUID] | None = None  # last step that retention visited

    def with_entry(self, pending: PendingEntry) -> StoreContext:
        """Return a context that writes an audit entry with its first change."""
        context = copy(self)
        context.db = cast("Database", AuditedDatabase(self.db, pending))
        return context

    async def fetch(
        self, tenant: str, query: str, *values: object, pace: Pace | None = None
    ) -> list[Row]:
        """Return the rows of a statement about a tenant, whose number is the first value."""
        async with self.db.link(pace) as link:
            return await link.fetch(query, await self.names.tenant(link, tenant), *values)

    async def change(self, tenant: str, query: str, *values: object) -> int:
        """Return the number of rows that such a statement changes."""
        async with self.db.link() as link:
            answer = await link.execute(query, await self.names.tenant(link, tenant), *values)
        return int(answer.rpartition(" ")[2])

    def transaction(
        self, isolation: str = READ_COMMITTED, *, after: AfterCommit | None = None
    ) -> Tx:
        """Open a transaction. `after` gets the work that it leaves, once it is committed."""
        return Tx(self, self.db.transaction(isolation), after)

    def autocommit(self, pace: Pace | None = None, *, after: AfterCommit | None = None) -> Tx:
        """Take a connection for one statement, which is committed when it is done."""
        return Tx(self, self.db.link(pace), after)
