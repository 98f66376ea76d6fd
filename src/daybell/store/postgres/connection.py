"""Connections to PostgreSQL: the pools, their settings, the check of the server's lineage, audit
records, and the translation of driver errors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.access import NewAuditEntry
from daybell.core.limits import POOL_SIZE, POOL_SIZE_LEAST
from daybell.core.postgres_url import explain_refusal, read_hosts, tls_options
from daybell.core.units import Seconds
from daybell.core.worker import LEASE_SECONDS
from daybell.errors import DaybellError, SchemaError, TenantNotFound, Unavailable, UsageError, shown
from daybell.store.admin import PendingEntry
from daybell.store.shares import Holder, Shares, current_holder, set_holder
from daybell.store.timeouts import PATIENT, Pace, Timeouts, timeouts_for

# The check that a server is the newest primary that this process has seen.
#
# After a failover the old primary may come back and still accept writes: a host of the URL, a name
# or an address leads to it again. Work that it accepts is lost when it is rebuilt as a standby.
# Each promotion starts a new timeline of the same cluster. So the store refuses a connection if its
# server is
#
# - on a lower timeline than one that this process has used, - of another cluster (its system
# identifier differs), or - in recovery: a standby accepts no writes.
#
# The memory is per process: all its stores with the same URL share it. A new process that reaches
# only the old primary cannot detect this: the old primary does not know of the promotion.

logger = logging.getLogger("daybell.store")

_driver: Any = asyncpg  # it has no types of its own

# pg_control_checkpoint() names the new timeline only after the first checkpoint. The name of the
# current WAL file has it at once. Every role may call these functions, but not every service that
# speaks PostgreSQL's protocol has them.
_TIMELINE: Final = (
    "CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)
IDENTITY: Final = f"system_identifier, {_TIMELINE} FROM pg_control_system()"
_UNSUPPORTED: Final = (
    asyncpg.FeatureNotSupportedError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.InternalServerError,
)


class Lineage:
    """The cluster that a process uses, and the highest timeline of it so far."""

    def __init__(self) -> None:
        self.cluster: int | None = None  # its system identifier; None: not known yet
        self.timeline = 0
        self.is_unsupported = False  # the service has no timelines to compare

    async def check(self, link: Any) -> None:
        """Raise Unavailable unless the server is the newest primary. This takes one round trip."""
        if not self.is_unsupported:
            await self._compare(link)

    async def check_with(self, link: Any, condition: str) -> bool:
        """Check the server, and return whether a condition holds, in one round trip. Raise the
        driver's error if one of the two queries fails.
        """
        holds, cluster, timeline = await read_row(link, f"{condition}, {IDENTITY}")
        self.accept(int(cluster), int(timeline or "0", 16), where=_server_address(link))
        return holds == "t"

    async def check_after(self, link: Any, statement: str) -> None:
        """Execute a statement, and check the server in the same round trip: behind a pooler,
        each transaction may be at another server.
        """
        if self.is_unsupported:
            await link.execute(statement)
        elif self.cluster is None:
            await link.execute(statement)
            await self._compare(link)
        elif await link.execute(f"{statement}; SELECT 1 WHERE {self._same()}") != "SELECT 1":
            await self._compare(link)

    def _same(self) -> str:
        return f"{_TIMELINE} = '{self.timeline:08X}'"

    async def _compare(self, link: Any) -> None:
        try:
            # A service without these functions refuses it. This must not end the transaction.
            async with link.transaction() if link.is_in_transaction() else nullcontext():
                cluster, timeline = await read_row(link, IDENTITY)
        except _UNSUPPORTED as error:
            logger.info("cannot tell an old primary from the current one: %s", error)
            self.is_unsupported = True
            return
        self.accept(int(cluster), int(timeline or "0", 16), where=_server_address(link))

    def accept(self, cluster: int, timeline: int, *, where: str) -> None:
        """Remember a server that is newer than all before. Raise Unavailable if it must not be
        used. Timeline 0 is that of a standby.
        """
        if not timeline:
            raise Unavailable(
                f"PostgreSQL at {where} is a standby and takes no writes. Name its primary in"
                " DAYBELL_DATABASE_URL, or several hosts, separated by commas"
            )
        if self.cluster not in (None, cluster):
            moved = Unavailable(
                f"PostgreSQL at {where} is another cluster: its system identifier is {cluster},"
                f" and this process has used {self.cluster}. Correct the address, or restart"
                " this process if the database was moved"
            )
            moved.is_lasting = True
            raise moved
        if timeline < self.timeline:
            raise Unavailable(
                f"PostgreSQL at {where} is an old primary: it is on timeline {timeline}, and this"
                f" process has used timeline {self.timeline}. Stop it and rebuild it as a standby,"
                " for example with pg_rewind"
            )
        self.cluster, self.timeline = cluster, timeline


_LINEAGES: WeakValueDictionary[str, Lineage] = WeakValueDictionary()
_LOCK = Lock()  # a thread with a separate store keeps a worker's lease


def lineage_of(url: str) -> Lineage:
    """Return the lineage that all stores of this process with the same URL share."""
    with _LOCK:
        return _LINEAGES.setdefault(url, Lineage())


async def connect(
    url: str,
    *,
    lineage: Lineage | None,
    timeout: Seconds,  # noqa: ASYNC109
    **options: Any,
) -> Any:
    """Connect to the newest primary among the hosts of a URL, or to any server without a lineage.

    Try the hosts one by one, each for its part of the time: the driver would wait for a silent
    one until the time of all is over.
    """
    hosts = read_hosts(url)
    if len(hosts) < 2:
        return await _connect_checked(url, lineage, timeout, options)
    refusals: list[Exception] = []
    for host, port in hosts:
        try:
            only = {**options, "host": host, "port": port}
            return await _connect_checked(url, lineage, timeout / len(hosts), only)
        except (OSError, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
            refusals.append(error)  # down, or refused by `target_session_attrs`
        except Unavailable as refusal:
            refusals.insert(0, refusal)  # it is the most precise
    raise refusals[0]


async def _connect_checked(
    url: str,
    lineage: Lineage | None,
    timeout: Seconds,  # noqa: ASYNC109
    options: dict[str, Any],
) -> Any:
    async with asyncio.timeout(timeout):
        try:
            link = await _driver.connect(url, **tls_options(url, os.environ), **options)
        except ConnectionError as error:
            why = explain_refusal(url, os.environ, str(error))
            if why is None:
                raise
            refused = Unavailable(f"PostgreSQL cannot be used: {why}")
            refused.is_lasting = True
            raise refused from error
        except (asyncpg.UndefinedObjectError, asyncpg.CantChangeRuntimeParamError) as error:
            raise UsageError(
                f"PostgreSQL refuses an option of the URL: {error}. Remove what follows its ?, or"
                " correct it"
            ) from error
        try:
            if lineage is not None:
                await lineage.check(link)
        except BaseException:
            link.terminate()
            raise
        return link


async def read_row(link: Any, columns: str) -> list[str]:
    """Read one row as text in one round trip: the driver prepares a query before it fetches, but
    not before it copies. Also, a pooler cannot send half of it to another server.
    """
    copied = bytearray()

    async def keep(some: bytes) -> None:
        copied.extend(some)

    await link.copy_from_query(f"SELECT {columns}", output=keep)
    return copied.decode().rstrip("\n").split("\t")


def _server_address(link: Any) -> str:
    address = getattr(link, "_addr", None)
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


# Changes that add an entry to the audit log.

# A transaction has an id once it has written or locked a row. Transactions that lock rows and may
# leave them unchanged call `Database.skip_entry`.
HAS_WRITTEN: Final = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
TENANT: Final = "SELECT key FROM daybell.tenant WHERE name = $1"
ADD: Final = "SELECT daybell.record_audit($1, $2, $3, $4, $5, $6, $7, $8)"


async def record_change(link: Link, wanted: PendingEntry) -> bool:
    """Add the entry if this transaction has changed a row. Return whether it has."""
    if wanted.is_idle or not await link.fetchval(HAS_WRITTEN):
        return False
    tenant = await link.fetchval(TENANT, wanted.tenant)
    if tenant is None:
        raise TenantNotFound(f"no tenant named {shown(wanted.tenant)}")
    await record_entries(link, tenant, [wanted.entry])
    return True


async def record_entries(link: Link, tenant: int, entries: Sequence[NewAuditEntry]) -> None:
    """Append these entries to the tenant's chain, except those that exist. It locks the head of the
    chain until the end of the transaction, so this is the last step of one.
    """
    await link.execute(ADD, tenant, *entry_columns(entries))


def entry_columns(entries: Sequence[NewAuditEntry]) -> tuple[list[Any], ...]:
    """Return entries in the form that a statement takes, each once."""
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


T = TypeVar("T")
Row = Any  # asyncpg.Record, which does not know its columns' types


POOL_CONNECTIONS_MAX: Final = 8
# The most connections of each pool: the default, and the least that may be configured. An unused
# pool has no connection.
POOLS: Final = {
    Pace.SHORT: POOL_CONNECTIONS_MAX,
    Pace.FIRE: 2,
    Pace.VIEW: 4,
    Pace.LONG: 4,
    Pace.LOAD: 2,
}
LEAST_POOLS: Final = {
    Pace.SHORT: 2, Pace.FIRE: 1, Pace.VIEW: 1, Pace.LONG: 1, Pace.LOAD: 1
}  # fmt: skip
assert (sum(POOLS.values()), sum(LEAST_POOLS.values())) == (POOL_SIZE, POOL_SIZE_LEAST)
# Uses of kept connections, until one returns to the driver's pool. The next connection may not have
# prepared its statements yet, which takes longer than a short statement.
LENT_MAX: Final = 10_000
POOL_IDLE_SECONDS: Final[Seconds] = 60.0  # then a quiet process releases its sessions
APART_MAX: Final = 2  # short-lived connections beside the pools
# The same behind a pooler in session mode: by default, its pool has 20 servers for all clients.
# With two, a tenant leaves one to the next. Only the scheduler fires.
SESSION_POOLS: Final = {
    Pace.SHORT: 4, Pace.FIRE: 1, Pace.VIEW: 3, Pace.LONG: 2, Pace.LOAD: 2
}  # fmt: skip
# Servers that a process may hold there: these, two that keep a lease, and two that listen.
SESSIONS_BESIDE: Final = 4
POOLER_ROUNDS: Final = 12  # with two servers, others' load hides the mode in half of them
CONFLICT_TRIES: Final = 10

SETTINGS: Final = timeouts_for(LEASE_SECONDS).settings
KEEPS_SETTINGS: Final = f"current_setting('enable_seqscan') = '{SETTINGS['enable_seqscan']}'"
# The name of a session in which a task of a worker writes, before the worker's id. The process that
# removes a dead worker ends the session.
TASK_SESSION: Final = "daybell task "
# A process reads the sizes of the tables after this number of uses of connections, or a slow use,
# but at most once in this interval, and not just after its start: an idle process does not read
# them, and a process that starts over a slow network makes few round trips.
SIZES_USES: Final = 100
SLOW_SECONDS: Final[Seconds] = 0.05
SIZES_SECONDS: Final[Seconds] = 0.5
SIZES_FIRST_SECONDS: Final[Seconds] = 5.0
# The planner uses the number of pages of a table at planning time, and so does this. A table
# without pages is of size 0; each next size is for eight times as many pages.
SIZES: Final = """
    SELECT string_agg(c.oid || ':' || ceil(log(8.0, pg_relation_size(c.oid) / 8192 + 1)), ' '
                      ORDER BY c.oid)
      FROM pg_class c WHERE c.relkind = 'r'
       AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'daybell')
"""
NOT_OPEN: Final = "the store is not open; call open() first"
READ_COMMITTED: Final = "read_committed"
SNAPSHOT: Final = "repeatable_read"

# Errors for rows that the database refuses from any client: wrong data, a violated constraint, or a
# value that the driver cannot encode.
UNSTORABLE: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    UnicodeEncodeError,
    OverflowError,
)
# Errors of work that is rolled back and succeeds at the next try. The tables have no CHECK: a
# violated one is the bound of a partition that was made while a row for its day was being inserted.
_CONFLICTS: Final = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.CheckViolationError,
)
# Errors after which the same call may succeed: broken, refused or overloaded connections, a server
# that starts, stops, is read-only during a failover, or is out of room.
_AWAY: Final = (
    OSError,
    TimeoutError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
    *_CONFLICTS,
)
_ACCESS: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
_NO_SCHEMA: Final = (
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedColumnError,
)


_pace: Final[ContextVar[Pace]] = ContextVar("pace", default=Pace.SHORT)

# Arrays of built-in types, by their fixed numbers: name, and number of the element's type. The
# driver knows two of them. It would query the server for the others, in four round trips on each
# connection.
ARRAYS: Final[dict[int, tuple[str, int]]] = {
    1000: ("_bool", 16),
    1001: ("_bytea", 17),
    1005: ("_int2", 21),
    1007: ("_int4", 23),
    1016: ("_int8", 20),
    1022: ("_float8", 701),
    2951: ("_uuid", 2950),
}


class Connection(_driver.Connection):
    """A connection that knows these arrays, and that can be closed in any state of its server. If
    a driver queries types in another way, nothing changes.
    """

    async def close(self, **options: Any) -> None:
        """Close the connection. Terminate it if the server does not answer. A pool closes expired
        connections in a separate task, where no caller would receive an error.
        """
        base: Any = super()
        with suppress(*_AWAY):
            await base.close(**options)

    async def _introspect_types(self, typeoids: Any, timeout: Any) -> Any:  # noqa: ASYNC109
        if not ARRAYS.keys() >= set(typeoids):
            base: Any = super()
            return await base._introspect_types(typeoids, timeout)
        return [_described(oid) for oid in typeoids], _Named


class _Named:
    """A stand-in for the statement that queried types. It has replaced no other statement."""

    name = "known"


def _described(array: int) -> dict[str, Any]:
    """Return a row as the driver would have received it."""
    name, element = ARRAYS[array]
    described: dict[str, Any] = dict.fromkeys(("basetype", "range_subtype", "attrtypoids"))
    described |= {"oid": array, "ns": "pg_catalog", "name": name, "kind": b"b"}
    return described | {"elemtype": element, "elemdelim": ",", "elemtype_name": name[1:]}


class Link(Protocol):
    """The part of an asyncpg connection that Daybell uses."""

    async def fetch(self, query: str, *args: object) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: object) -> Row | None: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    async def execute(self, query: str, *args: object) -> str: ...
    async def executemany(self, command: str, args: Iterable[Iterable[object]]) -> None: ...
    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        schema_name: str,
        columns: Iterable[str],
        records: Iterable[tuple[object, ...]],
    ) -> str: ...
    def transaction(self, *, isolation: str | None = None) -> Any: ...
    def terminate(self) -> None: ...


class Pool:
    """The connections of one pace.

    The driver's pool starts a task for each acquisition and each release. So this class keeps a
    connection after a successful use and lends it again directly. The driver's pool gets it back
    when a caller waits for one, and after some uses, since that pool replaces old connections.
    """

    def __init__(self, connections: Any, timeouts: Timeouts) -> None:
        self._connections = connections
        self._timeouts = timeouts
        self._kept: list[tuple[Seconds, Any]] = []  # the last one is lent next
        self._waiting = 0
        self._uses = 0
        self._timer: asyncio.TimerHandle | None = None
        self.generation = 0

    @property
    def size(self) -> int:
        """Return the number of open connections."""
        return self._connections.get_size()

    async def take(self) -> Any:
        """Return a connection for the caller alone. Raise TimeoutError if none is free in time."""
        while self._kept:
            _, link = self._kept.pop()
            if _is_usable(link):
                return link
            await self.give_back(link)
        self._waiting += 1
        try:
            return await self._connections.acquire(timeout=self._timeouts.acquire)
        finally:
            self._waiting -= 1

    def keep(self, link: Any, generation: int) -> bool:
        """Keep a connection after a successful use, unless it belongs in the driver's pool."""
        self._uses += 1
        if self._waiting or generation != self.generation or self._uses % LENT_MAX == 0:
            return False
        if not _is_usable(link):
            return False
        loop = asyncio.get_running_loop()
        self._kept.append((loop.time(), link))
        if self._timer is None:
            self._timer = loop.call_later(POOL_IDLE_SECONDS, self._close_idle)
        return True

    async def give_back(self, link: Any) -> None:
        """Return a connection to the driver's pool. Wait for the end of a cancelled statement."""
        await self._connections.release(link, timeout=self._timeouts.connect)

    async def expire(self) -> None:
        """Use no connection again that is open now. The kept ones may be as silent as the one that
        was noticed, so they receive no request to close.
        """
        self.generation += 1
        await self._connections.expire_connections()
        for link in (kept := self._take_kept()):
            terminate(link)
        await self._give_back_all(kept)

    async def close(self) -> None:
        """Close all connections. Terminate those that do not answer."""
        await self._give_back_all(self._take_kept())
        await close_pool(self._connections, self._timeouts.connect)

    def terminate(self) -> None:
        """Drop all connections."""
        self._stop_timer()
        self._connections.terminate()

    def _take_kept(self) -> list[Any]:
        self._stop_timer()
        kept, self._kept = self._kept, []
        return [link for _, link in kept]

    async def _give_back_all(self, links: Iterable[Any]) -> None:
        await asyncio.gather(*map(self.give_back, links))  # each may wait for a silent server

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_idle(self) -> None:
        """Close connections without a recent use: a quiet process has none."""
        loop = asyncio.get_running_loop()
        self._timer, since = None, loop.time() - POOL_IDLE_SECONDS
        idle = [link for at, link in self._kept if at <= since]
        self._kept = [(at, link) for at, link in self._kept if at > since]
        for link in idle:
            terminate(link)
        if self._kept:
            seconds = max(0.0, self._kept[0][0] - since)
            self._timer = loop.call_later(seconds, self._close_idle)


def _is_usable(link: Any) -> bool:
    try:
        return not link.is_closed()
    except asyncpg.InterfaceError:  # closed, and taken from the pool
        return False


class Database:
    """Pools of connections to one database, one for each pace of work.

    All timeouts follow from `lease`, that of the workers of this database. All pools together have
    at most `pool_size` connections.
    """

    def __init__(
        self, url: str, *, lease: Seconds = LEASE_SECONDS, pool_size: int = POOL_SIZE
    ) -> None:
        self.url = url
        self.pool_size = pool_size
        self.lease = lease
        self.connections_made = 0
        self._paces = {pace: timeouts_for(lease, pace) for pace in Pace}
        self.timeouts = self._paces[Pace.SHORT]
        self._pools: dict[Pace, Pool] = {}
        self._sizes = share_out(pool_size)
        self._shares = {pace: Shares(count) for pace, count in self._sizes.items()}
        self._apart = asyncio.Semaphore(APART_MAX)
        self._works: set[asyncio.Future[None]] = set()  # work of several steps, in progress
        self.is_pooled = False  # behind a pooler in transaction mode
        self.is_session_pooled = False  # behind a pooler in session mode
        self.lineage = lineage_of(url)
        self._is_probed = False  # a connection has shown whether that is so
        self._timeline = 0  # of the pools' servers; 0: not known
        self._table_sizes: str | None = None  # of the tables, when they were last read
        self._sizes_due: Seconds | None = None  # by the clock of the loop; None: not used yet
        self._sizes_reader: asyncio.Task[None] | None = None
        self._uses = 0  # of connections, since then
        self._growth = 0  # how often they were others than before
        self._planned: dict[int, int] = {}  # by server process: the growth that its plans know

    @property
    def is_open(self) -> bool:
        return bool(self._pools)

    def skip_entry(self) -> None:
        """Note that the current write has changed nothing, although it has locked rows. In this
        class, a write adds no audit entry.
        """

    @property
    def sessions_max(self) -> int:
        """Return the number of servers that a process may hold of a pooler in session mode."""
        return sum(map(self._size_of, POOLS)) + SESSIONS_BESIDE

    def _size_of(self, pace: Pace) -> int:
        size = self._sizes[pace]
        return min(size, SESSION_POOLS[pace]) if self.is_session_pooled else size

    async def open(self, fit: str = "true") -> bool:
        """Connect, and detect a pooler between client and server. Return whether the condition
        `fit` holds; if its query fails, it does not.
        """
        if self._pools:
            return False
        with translate_errors():
            try:
                return await self._try_settings(fit)
            except ValueError:
                # The message may contain a part of the URL, and that part may be the password.
                raise UsageError(
                    "not a usable PostgreSQL URL: it must read postgresql://user:password@host:port/"
                    "database, with special characters escaped, such as %2F for /"
                ) from None

    async def _try_settings(self, fit: str) -> bool:
        """Make the pools. Make them without settings if the server does not receive the settings
        at the start of a session: a pooler refuses or drops them.
        """
        self.is_pooled = self.is_session_pooled = self._is_probed = False
        is_fit = await self._try_pools(fit)
        if is_fit is None and await self._keeps_servers():
            self.is_session_pooled = True
            is_fit = await self._try_pools(fit)
        if is_fit is not None:
            return is_fit
        self.is_session_pooled = False
        self.is_pooled = self._is_probed = True
        self._pools = await self._make_pools()
        return False

    async def _try_pools(self, fit: str) -> bool | None:
        """Make the pools, and return whether `fit` holds; None: the server refused the settings, or
        has not kept them, and no pool is left.
        """
        pools = await self._make_pools()
        try:
            link = await pools[Pace.SHORT].take()
            try:
                if (is_fit := await self._probe(link, fit)) is not None:
                    self._pools, self._is_probed = pools, True
                    return is_fit
            finally:
                await pools[Pace.SHORT].give_back(link)
        except asyncpg.PostgresError as error:
            if "startup parameter" not in str(error):
                raise
        finally:
            if not self._pools:
                for pool in pools.values():
                    pool.terminate()
        return None

    async def _keeps_servers(self) -> bool:
        """Return True behind a pooler in session mode: each connection keeps its server. Use two
        connections in turn. In transaction mode the second gets the server of the first, or one
        of them gets another server once both have left theirs, the first one first or last.
        """
        timeouts = self.timeouts
        options = {**self._common(timeouts), "statement_cache_size": 0}
        async with AsyncExitStack() as stack:
            one = await self.connect(self.url, **options)
            stack.push_async_callback(one.close, timeout=timeouts.connect)
            first = await _backend(one)
            try:
                other = await self.connect(self.url, **options)
                stack.push_async_callback(other.close, timeout=timeouts.connect)
                second = await _backend(other)
            except TimeoutError:
                if await _backend(one) == first:
                    raise self._short_of_servers() from None
                return False
            if first == second:
                return False
            for number in range(POOLER_ROUNDS):
                links = [one, other]
                transactions = [link.transaction() for link in links]
                await asyncio.gather(*(transaction.start() for transaction in transactions))
                now = await asyncio.gather(*map(_backend, links))
                for transaction in transactions[:: 1 if number % 2 else -1]:
                    await transaction.commit()
                if now != [first, second]:
                    return False
        return True

    def _short_of_servers(self) -> Unavailable:
        return Unavailable(
            f"the pooler has no free server within {self.timeouts.connect:g} s. It is in session"
            f" mode, where a process of Daybell may keep {self.sessions_max}: raise its pool size"
            " (default_pool_size of PgBouncer), or use pool_mode = transaction"
        )

    async def count_sessions(self, most: int) -> int:
        """Count the servers that a pooler in session mode has for this process, up to `most`: those
        that the pools hold, and those that can be had now.
        """
        held = sum(pool.size for pool in self._pools.values())

        async def try_one() -> None:
            link = await self.connect(self.url, **self._options(self.timeouts))
            stack.push_async_callback(link.close, timeout=self.timeouts.connect)
            await _backend(link)

        async with AsyncExitStack() as stack:
            tries = [try_one() for _ in range(most - held)]
            opened = await asyncio.gather(*tries, return_exceptions=True)
        return held + sum(one is None for one in opened)

    async def _probe(self, link: Link, fit: str) -> bool | None:
        """Return whether `fit` holds, or None if the session has not kept its settings."""
        try:
            try:
                is_fit = await self.lineage.check_with(link, f"{KEEPS_SETTINGS} AND {fit}")
            except (*_NO_SCHEMA, *_ACCESS, asyncpg.FeatureNotSupportedError):
                is_fit = False
                await self.lineage.check(link)
            if not is_fit and not await _holds(link, KEEPS_SETTINGS):
                return None
        except TimeoutError:
            terminate(link)
            raise
        except Unavailable:
            terminate(link)  # an old primary; another host is tried when it is next connected
            return False
        return is_fit

    async def _make_pools(self) -> dict[Pace, Pool]:
        """Return pools for all paces. A pool without a use has no connection."""
        return {pace: await self._make_pool(pace) for pace in POOLS}

    async def _make_pool(self, pace: Pace) -> Pool:
        timeouts = self._paces[pace]
        connections = await _driver.create_pool(
            self.url,
            # To restore a minimum, the driver logs tracebacks while a server is unavailable.
            min_size=0,
            max_size=self._size_of(pace),
            max_inactive_connection_lifetime=POOL_IDLE_SECONDS,
            reset=_keep,
            init=partial(self._prepare, timeouts=timeouts),
            connect=self.connect,
            **self._options(timeouts),
        )
        return Pool(connections, timeouts)

    async def _prepare(self, link: Any, *, timeouts: Timeouts) -> None:
        await watch_peer(link, timeouts=timeouts)
        if self.is_session_pooled:
            await link.execute(timeouts.set_session)

    async def close(self) -> None:
        """Close all connections, after the work in progress."""
        if not self._pools:
            return
        if self._works:
            await asyncio.wait(self._works, timeout=2 * self.timeouts.connect)
        if self._sizes_reader is not None:
            await asyncio.gather(self._sizes_reader, return_exceptions=True)
        pools, self._pools = list(self._pools.values()), {}
        await asyncio.gather(*(pool.close() for pool in pools))

    @contextmanager
    def at_pace(self, pace: Pace) -> Generator[None]:
        """Do the work of this block on connections with the timeouts of a pace."""
        token = _pace.set(pace)
        try:
            yield
        finally:
            _pace.reset(token)

    @asynccontextmanager
    async def link(self, pace: Pace | None = None) -> AsyncGenerator[Link]:
        """Provide a connection for one statement. Its writes are committed when the statement is
        done.
        """
        async with self._borrowed(pace) as link:
            if self.is_pooled:
                # Parse and execute are two trips. A pooler may send them to two servers.
                async with self._begun(link, READ_COMMITTED, pace=pace):
                    yield link
            else:
                try:
                    yield link
                except UNSTORABLE:
                    # The driver refuses a value that it cannot encode in the middle of a request.
                    # The next request would be part of the first. This statement ends it.
                    await link.execute("SELECT 1")
                    raise

    @asynccontextmanager
    async def transaction(
        self,
        isolation: str = READ_COMMITTED,
        *,
        pace: Pace | None = None,
        wanted: PendingEntry | None = None,
    ) -> AsyncGenerator[Link]:
        """Provide a connection with a transaction around all its statements."""
        async with (
            self._borrowed(pace) as link,
            self._begun(link, isolation, wanted, pace=pace),
        ):
            yield link

    @asynccontextmanager
    async def apart(self, pace: Pace | None = None) -> AsyncGenerator[Link]:
        """Provide a separate connection. Its commit is independent of the caller's transaction:
        for rare writes that must persist. A caller that holds a pooled one cannot starve here.
        """
        if not self.is_open:
            raise UsageError(NOT_OPEN)
        timeouts = self._paces[pace or _pace.get()]
        async with AsyncExitStack() as stack:
            stack.enter_context(translate_errors())
            if pace is not Pace.MIGRATION:  # which is made once, without a time limit
                async with asyncio.timeout(timeouts.acquire):
                    await self._apart.acquire()
                stack.callback(self._apart.release)
            link = await self.connect(self.url, **self._options(timeouts))
            stack.push_async_callback(link.close, timeout=timeouts.connect)
            await self._prepare(link, timeouts=timeouts)
            async with self._begun(link, READ_COMMITTED, pace=pace):
                yield cast(Link, link)

    @asynccontextmanager
    async def _begun(
        self,
        link: Link,
        isolation: str,
        wanted: PendingEntry | None = None,
        *,
        pace: Pace | None = None,
    ) -> AsyncGenerator[None]:
        transaction = link.transaction(isolation=isolation)
        await transaction.start()
        try:
            if self.is_pooled:
                await self.set_local(link, pace)
            if wanted is not None:
                wanted.is_idle = False
            yield
            is_recorded = wanted is not None and await record_change(link, wanted)
        except TimeoutError:
            terminate(link)  # a rollback would wait for the same connection once more
            raise
        except BaseException:
            await _undo(link, transaction)
            raise
        await transaction.commit()
        if wanted is not None and is_recorded:
            wanted.committed()

    async def settled(self, work: Callable[[], Awaitable[T]], *, patient: bool = True) -> T:
        """Do `work`. Retry it if the server has rolled it back and the next try may succeed.

        Retry at once after a deadlock. If the caller is `patient`, wait for a lock that another
        session holds until the server would have ended an idle holder. Give a statement that took
        too long the time of a long one, once.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._works.add(done)
        started, conflicts = loop.time(), 0
        try:
            while True:
                try:
                    return await work()
                except Unavailable as error:
                    cause = error.__cause__
                    if isinstance(cause, _CONFLICTS):
                        conflicts += 1
                        if conflicts == CONFLICT_TRIES:
                            raise
                    elif isinstance(cause, asyncpg.LockNotAvailableError):
                        if not patient or loop.time() - started > self.timeouts.patience:
                            raise
                    elif isinstance(cause, asyncpg.QueryCanceledError) and not _is_long():
                        break
                    else:
                        raise
            with self.at_pace(Pace.LONG):
                return await work()
        finally:
            self._works.discard(done)
            done.cancel()

    def _borrowed(self, pace: Pace | None = None) -> AbstractAsyncContextManager[Link]:
        """Take a connection of a pool. If there is none, the error says that nothing was sent."""
        if not self._pools:
            raise UsageError(NOT_OPEN)
        pace, holder = pace or _pace.get(), current_holder()
        return self._acquired(pace) if holder is None else self._acquired_for(holder, pace)

    @asynccontextmanager
    async def _acquired_for(self, holder: Holder, pace: Pace) -> AsyncGenerator[Link]:
        """Do the same within a holder's share. Wait for it no longer than for a free connection."""
        shares = self._shares[pace]
        if not shares.take(holder):
            try:
                async with asyncio.timeout(self._paces[pace].acquire):
                    await shares.wait(holder)
            except TimeoutError as late:
                error = Unavailable("no connection of this key's share was free in time")
                error.was_sent = False
                raise error from late
        set_holder(None)  # a second connection needs no turn: it would wait for this one
        try:
            async with self._acquired(pace) as link:
                yield link
        finally:
            set_holder(holder)
            shares.give_back(holder)

    @asynccontextmanager
    async def _acquired(self, pace: Pace) -> AsyncGenerator[Link]:
        pool, link, is_sound = self._pools[pace], None, False
        try:
            with translate_errors():
                if self._timeline != self.lineage.timeline:
                    await self._follow()
                try:
                    link = await pool.take()
                except TimeoutError:
                    if self.is_session_pooled:
                        raise self._short_of_servers() from None
                    raise
                if pace in PATIENT:
                    link = await self._checked(pool, link)
                started, generation = asyncio.get_running_loop().time(), pool.generation
                try:
                    await self.replan(link)
                    yield link
                    is_sound = True
                except TimeoutError:
                    # No answer, not even that the server has ended the statement.
                    terminate(link)
                    await self._expire()
                    raise
                except asyncpg.ReadOnlySQLTransactionError:
                    # Another server of the URL may accept the writes now. None of the old
                    # connections breaks without help, so each is replaced before its next use.
                    await self._expire()
                    raise
                finally:
                    if not (is_sound and pool.keep(link, generation)):
                        await pool.give_back(link)
                    self._watch_sizes(started)
        except Unavailable as error:
            error.was_sent = link is not None
            raise

    async def _checked(self, pool: Pool, link: Any) -> Any:
        """Replace a silent connection: a long statement would wait for it too long."""
        try:
            await link.execute("SELECT 1", timeout=self.timeouts.command)
        except TimeoutError:
            terminate(link)
            await pool.give_back(link)
            await self._expire()
            return await pool.take()
        except BaseException:
            await pool.give_back(link)
            raise
        return link

    async def replan(self, link: Any) -> None:
        """Make a connection plan its statements again if tables have grown since the last plan. A
        plan that was made for an empty table reads all of a full one.
        """
        if self.is_pooled:
            return  # the server plans every statement when it runs
        process = link.get_server_pid()
        if self._planned.get(process, self._growth) != self._growth:
            await link.execute("DISCARD PLANS")
        self._planned[process] = self._growth

    async def read_sizes(self, link: Any) -> None:
        """Read the sizes of the tables. If they have changed, each connection plans again."""
        sizes = await link.fetchval(SIZES)
        self._growth += sizes != self._table_sizes
        self._table_sizes = sizes

    def _watch_sizes(self, started: Seconds) -> None:
        """Count a use of a connection that started at this time. If a read of the table sizes is
        due, start a task for it, so that no use waits for it.
        """
        now = asyncio.get_running_loop().time()
        self._uses += 1
        if now - started > SLOW_SECONDS:
            self._uses += SIZES_USES  # its plan may be old
        if self._sizes_due is None:
            self._sizes_due = now + SIZES_FIRST_SECONDS
        is_due = self._uses > SIZES_USES and now >= self._sizes_due
        if is_due and self._sizes_reader is None and not self.is_pooled:
            self._sizes_due, self._uses = now + SIZES_SECONDS, 0
            self._sizes_reader = asyncio.get_running_loop().create_task(self._read_due_sizes())

    async def _read_due_sizes(self) -> None:
        set_holder(None)  # it reads for all tenants
        try:
            async with self._borrowed(Pace.SHORT) as link:
                await self.read_sizes(link)
                await self.replan(link)  # the next use gets the same connection
        except DaybellError:
            pass  # a later use starts another task
        finally:
            self._sizes_reader = None

    async def _expire(self) -> None:
        """Use no connection again that is open now."""
        for pool in self._pools.values():
            await pool.expire()

    async def _follow(self) -> None:
        """Use no connection of an older timeline again, after a failover that any store of this
        process has detected.
        """
        known, self._timeline = self._timeline, self.lineage.timeline
        if known not in (0, self._timeline):
            await self._expire()

    async def set_local(self, link: Link, pace: Pace | None = None) -> None:
        """Apply the settings to one transaction: after it, a pooler keeps neither the settings nor
        the server.
        """
        settings = self._paces[pace or _pace.get()].set_local
        if self.is_pooled:
            await self.lineage.check_after(link, settings)
        else:
            await link.execute(settings)

    async def connect(self, url: str, **options: Any) -> Any:
        """Connect to the newest primary only. Behind a pooler, each transaction checks its server
        instead.
        """
        is_checked = self._is_probed and not self.is_pooled
        link = await connect(url, lineage=self.lineage if is_checked else None, **options)
        self.connections_made += 1
        if (encoding := link.get_settings().server_encoding) != "UTF8":
            link.terminate()
            raise UsageError(
                f"the database is encoded in {encoding}, and Daybell stores UTF-8; make one with"
                " CREATE DATABASE daybell ENCODING 'UTF8' TEMPLATE template0, and name that in the"
                " URL",
                field="database_url",
            )
        return link

    @staticmethod
    def _common(timeouts: Timeouts) -> dict[str, Any]:
        return {
            "connection_class": Connection,
            "timeout": timeouts.connect,
            "command_timeout": timeouts.command,
        }

    def _options(self, timeouts: Timeouts) -> dict[str, Any]:
        common = self._common(timeouts)
        if self.is_pooled:
            return {**common, "statement_cache_size": 0}
        common["max_cached_statement_lifetime"] = 0
        if self.is_session_pooled:
            return common  # the pooler accepts no settings at the start
        return {**common, "server_settings": timeouts.settings}


def share_out(size: int) -> dict[Pace, int]:
    """Distribute connections over the pools. Each has its least, and the same part of the rest as
    by default. Connections left over are for short statements.
    """
    rest, rest_default = size - POOL_SIZE_LEAST, POOL_SIZE - POOL_SIZE_LEAST
    sizes = {
        pace: least + rest * (POOLS[pace] - least) // rest_default
        for pace, least in LEAST_POOLS.items()
    }
    sizes[Pace.SHORT] += size - sum(sizes.values())
    return sizes


def _is_long() -> bool:
    return _pace.get() in (*PATIENT, Pace.MIGRATION)


async def _holds(link: Link, condition: str) -> bool:
    """Return whether a condition holds, in one round trip: the number of rows comes without rows.
    A condition with a failing query, for example for a missing table, does not hold.
    """
    try:
        return await link.execute(f"SELECT 1 WHERE {condition}") == "SELECT 1"
    except (*_NO_SCHEMA, *_ACCESS):
        return False


async def _backend(link: Any) -> str:
    """Return the server process behind a connection, in one round trip."""
    [pid] = await read_row(link, "pg_backend_pid()")
    return pid


async def _keep(_: object) -> None:
    """Do not reset a connection that goes back to the pool: nothing here changes a session, and
    a reset is a round trip."""


async def _undo(link: Link, transaction: Any) -> None:
    """Roll back. A connection without a successful rollback cannot be used again."""
    try:
        await transaction.rollback()
    except _AWAY:
        terminate(link)


def terminate(link: Link) -> None:
    """Drop a connection without waiting for its server."""
    with suppress(asyncpg.InterfaceError):  # the pool no longer holds it
        link.terminate()


async def close_pool(pool: Any, seconds: Seconds) -> None:
    """Close the connections of a pool. Terminate those that do not answer."""
    try:
        await asyncio.wait_for(pool.close(), seconds)
    except _AWAY:
        pool.terminate()


async def watch_peer(link: Any, *, timeouts: Timeouts) -> None:
    """Make a connection break when its server is gone, instead of waiting for an answer."""
    transport = getattr(link, "_transport", None)
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in timeouts.client_end.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


@contextmanager
def translate_errors() -> Generator[None]:
    """Convert an exception of the driver to one of Daybell."""
    try:
        yield
    except asyncpg.ClientConfigurationError as error:
        raise UsageError(f"not a usable PostgreSQL URL: {_said(error)}") from error
    except _ACCESS as error:
        refused = Unavailable(
            f"PostgreSQL refuses this access: {error}. Check the user, password, database and"
            " rights behind DAYBELL_DATABASE_URL"
        )
        refused.is_lasting = True
        raise refused from error
    except _NO_SCHEMA as error:
        raise SchemaError(
            f"the database lacks what this program needs: {error}. Run `daybell migrate`"
        ) from error
    except _CONFLICTS as error:
        raise Unavailable(f"others were in the way, try again: {_said(error)}") from error
    except UNSTORABLE as error:
        raise UsageError(f"PostgreSQL cannot keep this: {_said(error)}") from error
    except ConnectionRefusedError as error:
        raise Unavailable(
            f"PostgreSQL cannot be reached: {_said(error)}; is it running there, and is"
            " DAYBELL_DATABASE_URL right?"
        ) from error
    except _AWAY as error:
        raise Unavailable(f"PostgreSQL cannot be reached or is busy: {_said(error)}") from error
    except asyncpg.PostgresError as error:
        raise Unavailable(f"PostgreSQL answered with an error: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


class AuditedDatabase:
    """A database that adds an audit entry with its first change. It opens and closes nothing."""

    def __init__(self, database: Database | AuditedDatabase, pending: PendingEntry) -> None:
        is_view = isinstance(database, AuditedDatabase)
        self._database: Database = database._database if is_view else database
        self._pending = pending

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def skip_entry(self) -> None:
        self._pending.is_idle = True

    def link(self, pace: Pace | None = None) -> AbstractAsyncContextManager[Link]:
        if self._pending.is_on_record:
            return self._database.link(pace)
        return self._database.transaction(pace=pace, wanted=self._pending)

    def transaction(self, isolation: str = READ_COMMITTED) -> AbstractAsyncContextManager[Link]:
        wanted = None if self._pending.is_on_record else self._pending
        return self._database.transaction(isolation, wanted=wanted)
