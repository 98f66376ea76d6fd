"""Connections to PostgreSQL: a pool, its settings, and what becomes of a driver's errors.

Session settings are part of what is promised. A statement, lock or idle transaction that takes
too long is ended by the server, so that a half-open peer cannot hold a lock for ever. Sequential
scans are off because a plan made while a table was small would be kept while it grows to millions.

Behind a pooler in transaction mode (PgBouncer) no session setting survives and no prepared
statement can be relied on. That is found out when connecting; then every statement runs in a
transaction of its own, planned afresh.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Protocol, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.errors import SchemaError, Unavailable, UsageError
from daybell.store import recording
from daybell.store.postgres.recorded import record_change
from daybell.store.recording import Recording

T = TypeVar("T")
Row = Any  # asyncpg.Record, which knows nothing of its columns' types

_driver: Any = asyncpg  # it has no types of its own

CONNECT_SECONDS: Final = 10.0
COMMAND_SECONDS: Final = 60.0
POOL_CONNECTIONS_MAX: Final = 8
CONFLICT_TRIES: Final = 10

SETTINGS: Final[dict[str, str]] = {
    "application_name": "daybell",
    "default_transaction_isolation": "read committed",  # what the statements are written for
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",  # planning costs more than most statements here
    "timezone": "UTC",
    "statement_timeout": "60s",
    "lock_timeout": "20s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# The same for one transaction behind a pooler, as far as a session can set it.
SET_LOCAL: Final = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in SETTINGS.items()
    if not name.startswith(("tcp_", "default_", "application_name"))
)
# The settings above are for the server's end of a connection. This end, too, must notice a machine
# that is gone without a word, as in a failover: before the lease of a worker is over.
CLIENT_END: Final[dict[str, int]] = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 8000,
}
KEEPS_SETTINGS: Final = f"current_setting('enable_seqscan') = '{SETTINGS['enable_seqscan']}'"
NOT_OPEN: Final = "the store is not open; call open() first"
READ_COMMITTED: Final = "read_committed"
SNAPSHOT: Final = "repeatable_read"

# Rows that the database will not take, whoever sends them: wrong data, a broken constraint, or a
# value that the driver cannot even encode.
UNSTORABLE: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    UnicodeEncodeError,
    OverflowError,
)
# What is undone and succeeds at the next try. The tables have no CHECK of their own: a violated one
# is the bound of a partition, when a day was made while a row for it was on its way to the rest.
_CONFLICTS: Final = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.CheckViolationError,
)
# Everything after which the same call may succeed: broken, refused or overloaded connections, a
# server that starts, stops, is read-only for the moment of a failover, or out of room.
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


# Arrays of built-in types, by their fixed numbers: name, and number of the element's type. The
# driver knows two of them, and would ask the server for the others, in four round trips on each
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


class InformedConnection(_driver.Connection):
    """A connection that knows these arrays. Where a driver asks in another way, nothing changes."""

    async def _introspect_types(self, typeoids: Any, timeout: Any) -> Any:  # noqa: ASYNC109
        if not ARRAYS.keys() >= set(typeoids):
            base: Any = super()
            return await base._introspect_types(typeoids, timeout)
        return [_described(oid) for oid in typeoids], _Named


class _Named:
    """In the place of the statement that asked: one that has replaced no other."""

    name = "known"


def _described(array: int) -> dict[str, Any]:
    """A row as the driver would have got it."""
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


class Database:
    """A pool of connections to one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool: Any = None
        self._works: set[asyncio.Future[None]] = set()  # what takes several steps, and is under way
        self.is_pooled = False  # behind a pooler in transaction mode

    @property
    def is_open(self) -> bool:
        return self._pool is not None

    async def open(self, fit: str = "true") -> bool:
        """Connect, and find out whether a pooler sits in between. Answers whether the condition
        `fit` holds; if it cannot be asked, it does not.
        """
        if self._pool is not None:
            return False
        with translated():
            try:
                return await self._try_settings(fit)
            except ValueError:
                # What it says may be a part of the URL, and that part the password.
                raise UsageError(
                    "not a usable PostgreSQL URL: it must read postgresql://user:password@host:port/"
                    "database, with special characters escaped, such as %2F for /"
                ) from None

    async def _try_settings(self, fit: str) -> bool:
        """Make the pool; one without settings if the server does not see what we set at the start
        of a session. A pooler refuses or drops it.
        """
        self.is_pooled = False
        pool = await self._new_pool()
        try:
            async with pool.acquire() as link:
                if await _holds(link, f"{KEEPS_SETTINGS} AND {fit}"):
                    self._pool = pool
                    return True
                if await _holds(link, KEEPS_SETTINGS):
                    self._pool = pool
                    return False
        except asyncpg.PostgresError as error:
            if "startup parameter" not in str(error):
                raise
        finally:
            if self._pool is None:
                pool.terminate()
        self.is_pooled = True
        self._pool = await self._new_pool()
        return False

    async def _new_pool(self) -> Any:
        return await _driver.create_pool(
            self.url,
            # Restoring what it should keep, the driver logs tracebacks while a server is away.
            min_size=0,
            max_size=POOL_CONNECTIONS_MAX,
            max_inactive_connection_lifetime=300.0,
            command_timeout=COMMAND_SECONDS + 10.0,
            timeout=CONNECT_SECONDS,
            reset=_keep,
            init=watch_peer,
            **self._options(),
        )

    async def close(self) -> None:
        """Close all connections, after what is under way."""
        if self._pool is None:
            return
        if self._works:
            await asyncio.wait(self._works, timeout=CONNECT_SECONDS)
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
        except _AWAY:
            self._pool.terminate()
        finally:
            self._pool = None

    @asynccontextmanager
    async def link(self) -> AsyncGenerator[Link]:
        """A connection for one statement. What it wrote is committed when the statement is
        done.
        """
        wanted = recording.wanted(self)
        async with self._borrowed() as link:
            if self.is_pooled or wanted is not None:
                # Parse and execute are two trips, and a pooler may send them to two servers.
                async with self._begun(link, READ_COMMITTED, wanted):
                    yield link
            else:
                try:
                    yield link
                except UNSTORABLE:
                    # The driver refuses what it cannot encode between two halves of a request, and
                    # the next one would be part of the first. This ends it.
                    await link.execute("SELECT 1")
                    raise

    @asynccontextmanager
    async def transaction(self, isolation: str = READ_COMMITTED) -> AsyncGenerator[Link]:
        """A connection with a transaction around all that is done on it."""
        wanted = recording.wanted(self)
        async with self._borrowed() as link, self._begun(link, isolation, wanted):
            yield link

    @asynccontextmanager
    async def apart(self) -> AsyncGenerator[Link]:
        """A connection of its own, committed at the end whatever becomes of the caller's; for what
        is seldom made and must not be rolled back. Who holds a pooled one cannot starve here.
        """
        if not self.is_open:
            raise UsageError(NOT_OPEN)
        with translated():
            link = await _driver.connect(self.url, timeout=CONNECT_SECONDS, **self._options())
            await watch_peer(link)
            try:
                async with self._begun(link, READ_COMMITTED):
                    yield cast(Link, link)
            finally:
                await link.close()

    @asynccontextmanager
    async def _begun(
        self, link: Link, isolation: str, wanted: Recording | None = None
    ) -> AsyncGenerator[None]:
        async with link.transaction(isolation=isolation):
            if self.is_pooled:
                await link.execute(SET_LOCAL)  # a pooler keeps no setting beyond the transaction
            if wanted is not None:
                wanted.is_idle = False
            yield
            is_recorded = wanted is not None and await record_change(link, wanted)
        if wanted is not None and is_recorded:
            wanted.committed()

    async def settled(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work`, again if it fell victim to a deadlock: then nothing of it was committed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._works.add(done)
        try:
            for _ in range(CONFLICT_TRIES - 1):
                try:
                    return await work()
                except Unavailable as error:
                    if not isinstance(error.__cause__, _CONFLICTS):
                        raise
            return await work()
        finally:
            self._works.discard(done)
            done.cancel()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[Link]:
        if self._pool is None:
            raise UsageError(NOT_OPEN)
        with translated():
            async with self._pool.acquire(timeout=COMMAND_SECONDS) as link:
                try:
                    yield cast(Link, link)
                except asyncpg.ReadOnlySQLTransactionError:
                    # Another server of the URL may be the one to write to now. None of the old
                    # connections breaks by itself, so each is made anew before it is used again.
                    await self._pool.expire_connections()
                    raise

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"connection_class": InformedConnection}
        if self.is_pooled:
            return options | {"statement_cache_size": 0}
        return options | {"server_settings": SETTINGS, "max_cached_statement_lifetime": 0}


async def _holds(link: Link, condition: str) -> bool:
    """Ask for the truth of a condition, in one round trip: the number of rows comes without them.
    What cannot be asked, as where a table is missing, does not hold.
    """
    try:
        return await link.execute(f"SELECT 1 WHERE {condition}") == "SELECT 1"
    except (*_NO_SCHEMA, *_ACCESS):
        return False


async def _keep(_: object) -> None:
    """No reset when a connection goes back to the pool: nothing here changes a session, and a
    reset is a round trip."""


async def watch_peer(link: Any) -> None:
    """Have a connection break when its server is gone, rather than wait for an answer."""
    transport = getattr(link, "_transport", None)
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in CLIENT_END.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


@contextmanager
def translated() -> Generator[None]:
    """Turn a driver's exception into one of ours."""
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
    except _AWAY as error:
        raise Unavailable(f"PostgreSQL cannot be reached or is busy: {_said(error)}") from error
    except asyncpg.PostgresError as error:
        raise Unavailable(f"PostgreSQL answered with an error: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
