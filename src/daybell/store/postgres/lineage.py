"""The server behind a connection: is it the newest primary that this process has seen?

After a failover the old primary may come back and still take writes: a host of the URL, a name or
an address leads to it again. Work that it accepts is lost when it is rebuilt as a standby. Each
promotion starts a new timeline of the same cluster, so a connection is refused if its server is

- on a lower timeline than one that this process has used,
- of another cluster (its system identifier differs), or
- in recovery: a standby takes no writes.

The memory is that of the process, shared by all its stores with the same URL. A process that
starts anew and reaches only the old primary cannot tell: nothing there knows of the promotion.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import nullcontext
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from daybell.core.instant import Seconds
from daybell.core.postgres_url import explain_refusal, read_hosts, tls_options
from daybell.errors import Unavailable, UsageError

logger = logging.getLogger("daybell.store")

_driver: Any = asyncpg  # it has no types of its own

# pg_control_checkpoint() names the new timeline only after the first checkpoint; the name of the
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
        """Raise Unavailable unless the server is the newest primary. Takes one round trip."""
        if not self.is_unsupported:
            await self._compare(link)

    async def check_with(self, link: Any, condition: str) -> bool:
        """Check the server, and return whether a condition holds, in one round trip. Raises the
        driver's error if one of them cannot be asked.
        """
        holds, cluster, timeline = await read_row(link, f"{condition}, {IDENTITY}")
        self.accept(int(cluster), int(timeline or "0", 16), where=_place(link))
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
            # Refused by a service without these functions, it must not end the transaction.
            async with link.transaction() if link.is_in_transaction() else nullcontext():
                cluster, timeline = await read_row(link, IDENTITY)
        except _UNSUPPORTED as error:
            logger.info("cannot tell an old primary from the current one: %s", error)
            self.is_unsupported = True
            return
        self.accept(int(cluster), int(timeline or "0", 16), where=_place(link))

    def accept(self, cluster: int, timeline: int, *, where: str) -> None:
        """Remember a server that is newer than all before; raise Unavailable if it is not to be
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
_LOCK = Lock()  # a worker's lease is kept by a thread with a store of its own


def lineage_of(url: str) -> Lineage:
    """The lineage that all stores of this process with the same URL share."""
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

    The hosts are tried one by one, each for its part of the time: the driver would wait for a
    silent one until the time of all is over.
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
            refusals.append(error)  # it is down, or not what `target_session_attrs` asks for
        except Unavailable as refusal:
            refusals.insert(0, refusal)  # which says most
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
    """Read one row as text in one round trip: the driver prepares a query before it fetches, and
    copies without. A pooler can send no half of it to another server, either.
    """
    copied = bytearray()

    async def keep(some: bytes) -> None:
        copied.extend(some)

    await link.copy_from_query(f"SELECT {columns}", output=keep)
    return copied.decode().rstrip("\n").split("\t")


def _place(link: Any) -> str:
    address = getattr(link, "_addr", None)
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
