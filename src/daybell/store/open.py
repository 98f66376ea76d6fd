"""Open a store by its URL. An implementation is imported only when a URL needs it."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, unquote

from daybell.core.limits import POOL_SIZE
from daybell.core.postgres_url import check_options
from daybell.core.units import Instant, Seconds
from daybell.core.views import Check
from daybell.core.worker import LEASE_SECONDS
from daybell.errors import UsageError, shown
from daybell.settings import MASK, masked_url
from daybell.store.protocol import Store

if TYPE_CHECKING:
    from daybell.store.postgres import PostgresStore

SCHEMES: Final = ("sqlite", "postgresql", "postgres", "memory")
_TAKES: Final = (
    "use sqlite:///file.db, sqlite:////absolute/file.db, postgresql://user:password@host/database"
    " or memory://"
)
PORT_MAX: Final = 65535
_OPTIONS: Final = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": (
        "any", "primary", "standby", "prefer-standby", "read-write", "read-only"
    ),
    "ssl_min_protocol_version": ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    "ssl_max_protocol_version": ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
}  # fmt: skip
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")


def store_for(
    url: str,
    *,
    listen_url: str | None = None,
    clock: Callable[[], Instant] | None = None,
    lease: Seconds = LEASE_SECONDS,
    pool_size: int = POOL_SIZE,
) -> Store:
    """Return the store that a URL names, not opened yet.

    `listen_url` is a direct way to a PostgreSQL server for wake-ups, past a pooler. `clock`
    replaces the time of a store that has no server to ask; PostgreSQL has one. The timeouts of
    connections follow from `lease`, that of the workers. PostgreSQL has at most `pool_size`
    connections in pools.
    """
    scheme, mark, rest = url.strip().partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        # The text before :// may be a part of a password.
        is_scheme = mark and re.fullmatch(r"[a-z][\w+.\-]*", scheme)
        raise UsageError(_unknown(url, scheme if is_scheme else ""), field="database_url")
    if scheme == "memory":
        return _memory(rest, clock)
    if scheme == "sqlite":
        return _sqlite(rest, clock)
    if clock is not None:
        raise UsageError("PostgreSQL goes by its own clock; leave clock out", field="clock")
    _check_authority(url.strip(), rest)
    _check_options(url.strip())
    if listen_url is not None:
        _check_options(listen_url, field="listen_url")
    store: PostgresStore = load_postgres().PostgresStore(
        url.strip(), listen_url=listen_url, lease=lease, pool_size=pool_size
    )
    return store


def load_postgres() -> ModuleType:
    """Import the store of PostgreSQL, with its driver: commands on SQLite start without it."""
    return import_module("daybell.store.postgres")


def as_postgres(store: Store) -> PostgresStore | None:
    """Return a store of PostgreSQL as such, without loading the driver for the others."""
    module: Any = sys.modules.get("daybell.store.postgres")
    is_postgres = module is not None and isinstance(store, module.PostgresStore)
    return cast("PostgresStore", store) if is_postgres else None


async def has_role(store: Store, role: str) -> bool:
    """Return True if the store has this role, to grant rights to; only PostgreSQL has roles."""
    postgres = as_postgres(store)
    if postgres is None:
        return False
    await postgres.db.open()
    async with postgres.db.link() as link:
        return bool(await link.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", role))


async def check_pooler(store: Store, *, is_worker: bool = False) -> list[Check]:
    """Check whether a pooler in session mode has enough servers for one process. `is_worker`: the
    process is a working worker, which holds those that keep its lease and listen.
    """
    postgres = as_postgres(store)
    if postgres is None or not postgres.db.is_session_pooled:
        return []
    most = postgres.db.sessions_max - load_postgres().SESSIONS_BESIDE * is_worker
    count = await postgres.db.count_sessions(most)
    return [
        Check(
            name="pool",
            is_ok=count >= most,
            found=f"the pooler is in session mode and has servers for {count} of {most} connections"
            " that a process may need",
            advice="when it runs out, leases are lost and work is run twice; raise its pool size"
            f" (default_pool_size of PgBouncer) to {postgres.db.sessions_max} for each process, or"
            " use pool_mode = transaction",
        )
    ]


def _memory(rest: str, clock: Callable[[], Instant] | None) -> Store:
    if rest.strip("/"):
        raise UsageError(
            f"{masked_url(f'memory://{rest}')} names a place, but memory has none; write memory://",
            field="database_url",
        )
    from daybell.store.sqlite import SqliteStore

    return SqliteStore.in_memory() if clock is None else SqliteStore.in_memory(clock=clock)


def _sqlite(rest: str, clock: Callable[[], Instant] | None) -> Store:
    place = masked_url(f"sqlite://{rest}")
    if not rest.strip("/") or rest.strip("/") == ":memory:":
        raise UsageError(
            f"{place} names no file; write sqlite:///daybell.db, or memory:// for a store"
            " that ends with the process",
            field="database_url",
        )
    if not rest.startswith("/"):
        raise UsageError(
            f"{place} has two slashes; write {place.replace('//', '///', 1)} for a file in this"
            " folder, four slashes for an absolute path",
            field="database_url",
        )
    if "?" in rest:
        raise UsageError(
            f"{place} has options after its ?; there are none. A ? in a file name is written %3F",
            field="database_url",
        )
    from daybell.store.sqlite import SqliteStore

    path = unquote(rest[1:])
    return SqliteStore(path) if clock is None else SqliteStore(path, clock=clock)


def _check_authority(url: str, rest: str) -> None:
    """Refuse a URL that a driver would split in the wrong place, password included."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    hosts = authority.rpartition("@")[2].split(",")
    is_cut = "@" not in authority and "@" in rest.partition("?")[0]
    is_double = authority.count("@") > 1  # a driver may stop at the first
    if is_cut or is_double or not all(_HOST.fullmatch(host) for host in hosts):
        raise UsageError(
            f"{masked_url(url)} cannot be read: it is postgresql://user:password@host:5432/database."
            " Write characters such as @ : / ? # % in a password as %40 %3A %2F %3F %23 %25",
            field="database_url",
        )
    for host in hosts:
        port = host.rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
        if port and not 1 <= int(port) <= PORT_MAX:
            raise UsageError(
                f"{masked_url(url)}: {port} is not a port; it is from 1 to {PORT_MAX}",
                field="database_url",
            )


def _check_options(url: str, *, field: str = "database_url") -> None:
    """Refuse options that the driver would refuse: it would blame the whole URL, not the option."""
    try:
        check_options(url)
    except UsageError as error:
        raise _option_fault(url, str(error), field) from None
    query = url.partition("?")[2].partition("#")[0]
    try:
        given = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    except ValueError:
        fault = "what follows its ? is not of the form name=value&…"
        raise _option_fault(url, fault, field) from None
    for name, values in _OPTIONS.items():
        value = given.get(name, values[0])
        if value not in values:
            value = value if value in masked_url(url) else MASK
            raise _option_fault(url, f"{name}={value} is not one of {', '.join(values)}", field)
    root = given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")
    is_verified = given.get("sslmode", "").startswith("verify-")
    file = os.path.expanduser(root or "~/.postgresql/root.crt")
    if is_verified and not os.path.isfile(file):
        raise _option_fault(
            url,
            f"sslmode={given['sslmode']} needs the certificate of the server's authority, and there"
            f" is no file {file}; name one with sslrootcert=",
            field,
        )


def _option_fault(url: str, fault: str, field: str) -> UsageError:
    return UsageError(f"{masked_url(url)}: {fault}", field=field)


def _unknown(url: str, scheme: str) -> str:
    text = shown(masked_url(url))
    if not scheme:
        is_file = url.endswith((".db", ".sqlite", ".sqlite3"))
        hint = f"for that file write sqlite:///{masked_url(url)}" if is_file else _TAKES
        return f"{text} is not a database URL; {hint}"
    plain = scheme.partition("+")[0]
    closest = difflib.get_close_matches(plain, SCHEMES, n=1, cutoff=0.6)
    if closest:
        return f"there is no store for {scheme}:// ({text}); did you mean {closest[0]}://?"
    return f"there is no store for {scheme}:// ({text}); {_TAKES}"
