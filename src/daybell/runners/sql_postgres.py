"""Statements in PostgreSQL, also behind a pooler: no prepared statement is kept.

Values are sent as text that the server parses like literals: "2026-03-01", "now" or "1 day" work in
a parameter as in quotes. Results that are neither numbers nor truth values nor JSON stay text, so
that numeric keeps all its digits.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from daybell.core.postgres_url import explain_refusal, tls_options
from daybell.errors import UsageError
from daybell.runners import sql_statement
from daybell.runners.sql_statement import (
    NOTICES_MAX,
    JsonText,
    Parameters,
    Rows,
    Say,
    StatementFailed,
)
from daybell.settings import MASK, masked_url

# A limit for received data. One value can be as large as a gigabyte, and the driver buffers it
# before Daybell can decide. So a meter counts the bytes and cuts the connection in time.

# Of all rows of one request: far more than are kept. Short elements of an array take up to 25 times
# as much in Python, on each of a few connections.
RECEIVED_BYTES_MAX: Final = 8 * 1024 * 1024
_HEAD_BYTES: Final = 5  # of a message: its kind, and a length that includes itself but not the kind
_ROW: Final = ord("D")
_READY: Final = ord("Z")  # for the next request

_driver = cast("Any", asyncpg)  # no types of its own


class Meter(asyncio.Protocol):
    """Counts the bytes before a connection's protocol, and cuts the connection beyond the limit."""

    def __init__(self, protocol: Any, transport: Any) -> None:
        self._protocol = protocol
        self._transport = transport
        self._head = bytearray()
        self._left = 0  # of the present message
        self._rows = 0  # bytes of them since the last request was answered
        self.is_over = False
        self.connection_lost = protocol.connection_lost
        self.eof_received = protocol.eof_received
        self.pause_writing = protocol.pause_writing
        self.resume_writing = protocol.resume_writing

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self._look(data)
        if self.is_over:
            self._transport.abort()
        else:
            self._protocol.data_received(data)

    def _look(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = min(_HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == _HEAD_BYTES:
                    self._begin(self._head[0], int.from_bytes(self._head[1:]) - 4)
                    self._head.clear()
            at += step

    def _begin(self, kind: int, size: int) -> None:
        self._left = size
        if kind == _READY:
            self._rows = 0
        elif kind == _ROW:
            self._rows += size
        if size > RECEIVED_BYTES_MAX or self._rows > RECEIVED_BYTES_MAX:
            self.is_over = True


class MeteredConnection(_driver.Connection):
    """A connection behind a meter."""

    def __init__(self, protocol: Any, transport: Any, *args: Any, **options: Any) -> None:
        super().__init__(protocol, transport, *args, **options)  # pyright: ignore[reportUnknownMemberType]
        self.meter = Meter(protocol, transport)
        transport.set_protocol(self.meter)


CONNECTIONS_MAX: Final = 5
IDLE_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 3.0

# Permanent errors: features, cardinality, data, constraints, dependent objects, transactions,
# cursors, schemas, and syntax with all names. The first letters of a state.
LASTING: Final = ("0A", "21", "22", "23", "25001", "2B", "2D", "34", "3F", "42")
_SEVERAL: Final = "cannot insert multiple commands"
_ROWS_OF_THEIR_OWN: Final = ("composite", "range", "multirange")
_MOMENT: Final = re.compile(
    r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(?:([+-]\d\d)(:\d\d(?::\d\d)?)?)?"
)


def _read_moment(text: str) -> str:
    """Format a time as ISO 8601. Values without a form there, such as infinity, stay."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    date, time, hours, minutes = found.groups()
    return f"{date}T{time}" + (f"{hours}{minutes or ':00'}" if hours else "")


_AS_TEXT: Final = (
    "bit", "box", "cid", "cidr", "circle", "date", "inet", "interval", "line", "lseg", "macaddr",
    "macaddr8", "money", "numeric", "path", "pg_lsn", "point", "polygon", "tid", "time",
    "timetz", "uuid", "varbit", "xid8",
)  # fmt: skip
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(_AS_TEXT, str),
    **dict.fromkeys(("int2", "int4", "int8", "oid", "xid"), int),
    **dict.fromkeys(("float4", "float8"), float),
    **dict.fromkeys(("json", "jsonb"), JsonText),
    **dict.fromkeys(("timestamp", "timestamptz"), _read_moment),
    "bool": "t".__eq__,
}


class PostgresDatabase:
    """A few connections to one database, opened on demand."""

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self._pool: Any = None

    async def run(
        self, statement: str, parameters: Parameters, *, rows_max: int, say: Say
    ) -> dict[str, Any]:
        """See `Database`. A cancellation cancels the statement on the server."""
        _check_copy(statement)
        text, names = sql_statement.number_parameters(statement)
        try:
            async with await self._acquire() as link:
                notices, meter = _Notices(say), link.meter
                link.add_log_listener(notices)
                try:
                    return await _run(
                        link, text, [parameters.values[name] for name in names], rows_max
                    )
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    if meter.is_over:
                        raise self._flooded() from None
                    raise
                finally:
                    with suppress(asyncpg.InterfaceError):  # the connection is gone
                        link.remove_log_listener(notices)
        except _IsStore:
            raise StatementFailed(
                f"on connection {self._name!r}: the database is a store of Daybell, and its jobs"
                " and secrets are not for statements; use a role without rights in the tables of"
                " the schema daybell",
                is_lasting=True,
            ) from None
        except UsageError as error:
            raise StatementFailed(f"on connection {self._name!r}: {error}",
                                  is_lasting=False) from None  # fmt: skip
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise self._failed(error, parameters, names) from None

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), CLOSE_SECONDS)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pool.terminate()

    async def _acquire(self) -> Any:
        if self._pool is None:
            # Without a connection yet, this neither waits nor fails, unless the URL is invalid.
            self._pool = _driver.create_pool(
                self._url,
                min_size=0,
                max_size=CONNECTIONS_MAX,
                max_inactive_connection_lifetime=IDLE_SECONDS,
                timeout=CONNECT_SECONDS,
                statement_cache_size=0,
                **tls_options(self._url, os.environ),
                server_settings={"application_name": "daybell", "datestyle": "ISO"},
                connection_class=MeteredConnection,
                init=_begin,
                reset=_forget,
            )
        await self._pool
        return self._pool.acquire()

    def _flooded(self) -> StatementFailed:
        return StatementFailed(
            f"on connection {self._name!r}: a row, or a few of them, has more than"
            f" {RECEIVED_BYTES_MAX // 1024**2} MiB; select less of it, as with left() or"
            " substring(). The statement was rolled back",
            is_lasting=True,
        )

    def _failed(
        self, error: Exception, parameters: Parameters, names: list[str]
    ) -> StatementFailed:
        where = f"on connection {self._name!r}"
        state = cast("str | None", getattr(error, "sqlstate", None))
        if isinstance(error, asyncpg.ClientConfigurationError):
            return StatementFailed(f"{where}, the URL is unusable: {self._said(error)}",
                                   is_lasting=False)  # fmt: skip
        is_drivers_own = getattr(error, "severity", None) is None  # the server always sends one
        if is_drivers_own and isinstance(
            error, asyncpg.DataError | asyncpg.UnsupportedClientFeatureError
        ):
            # Its message may contain the beginning of a value, which masks would not find.
            number = _NUMBER.search(str(error))
            said = f"parameter :{names[int(number[1]) - 1]}: " if number else ""
            said += str(error.__cause__ or error)
            if isinstance(error, asyncpg.UnsupportedClientFeatureError):
                said += ". Cast it to text, or take it through to_jsonb()"
            return StatementFailed(f"{where}: {said}", is_lasting=True)
        if state is None:
            said = explain_refusal(self._url, os.environ, str(error))
            said = said or self._said(error) or "no answer in time"
            return StatementFailed(f"{where}, the database cannot be used: {said}",
                                   is_lasting=False)  # fmt: skip
        said = _message(error, with_detail=not parameters.has_secrets)
        if _SEVERAL in said:
            said = (
                "the statement is several; a job runs one. Put them into a function or a DO block"
            )
        return StatementFailed(
            f"{where}, SQLSTATE {state}: {said}", is_lasting=state.startswith(LASTING)
        )

    def _said(self, error: Exception) -> str:
        """Return a message of the driver without the password. A message of the server may have
        values that a caller has chosen, but never the password.
        """
        said = _message(error)
        said = said.replace(self._url, masked_url(self._url))
        with suppress(ValueError):
            password = urlsplit(self._url).password or ""
            for secret in {password, unquote(password)} - {""}:
                said = said.replace(secret, MASK)
        return said


def _message(error: Exception, *, with_detail: bool = True) -> str:
    """Return a message with its detail and hint. A detail shows the beginning of long values: with
    secrets among them, it is left out.
    """
    extra = [getattr(error, name, None) for name in ("detail", "hint")[not with_detail :]]
    parts = (getattr(error, "message", None) or str(error), *extra)
    return ". ".join(str(part).rstrip(".") for part in parts if part)


_NUMBER: Final = re.compile(r"^invalid input for query argument \$([0-9]+)")


class _Notices:
    """Puts notices of the server into the log."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._count = 0

    def __call__(self, _: Any, notice: Any) -> None:
        self._count += 1
        if self._count <= NOTICES_MAX:
            severity = str(getattr(notice, "severity", "NOTICE"))
            self._say(
                "warning" if severity == "WARNING" else "info", f"{severity}: {notice.message}"
            )
        elif self._count == NOTICES_MAX + 1:
            self._say("info", f"more than {NOTICES_MAX} notices; the rest is left out")


async def _run(link: Any, text: str, values: list[Any], rows_max: int) -> dict[str, Any]:
    try:
        return await _run_in_transaction(link, text, values, rows_max)
    except asyncpg.ActiveSQLTransactionError:
        # VACUUM and similar statements are refused before they have an effect. They have no
        # parameters, and this is a single statement.
        if values:
            raise
        status = await link.execute(text)
        return {"row_count": _affected(status)}


async def _run_in_transaction(
    link: Any, text: str, values: list[Any], rows_max: int
) -> dict[str, Any]:
    transaction = link.transaction()
    await transaction.start()
    try:
        result = await _run_prepared(link, text, values, rows_max)
    except BaseException:
        # The cause of a lost connection counts.
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await transaction.rollback()
        raise
    await transaction.commit()
    return result


async def _run_prepared(link: Any, text: str, values: list[Any], rows_max: int) -> dict[str, Any]:
    prepared = await link.prepare(text)
    literals = [
        _literal(value, is_array=kind.kind == "array")
        for value, kind in zip(values, prepared.get_parameters(), strict=True)
    ]
    columns = prepared.get_attributes()
    if not columns:
        await prepared.fetch(*literals)
        return {"row_count": _affected(prepared.get_statusmsg())}
    _check_columns(columns)
    rows = Rows([column.name for column in columns], rows_max)
    cursor = await prepared.cursor(*literals)
    while True:
        wanted = rows.wanted
        batch = await cursor.fetch(wanted)
        if not all(rows.take(row.values()) for row in batch) or len(batch) < wanted:
            return rows.result()


def _affected(status: str | None) -> int:
    last = (status or "").rpartition(" ")[2]
    return int(last) if last.isdecimal() else 0


def _literal(value: Any, *, is_array: bool) -> Any:
    """Format a value as a literal without quotes. Nested values are JSON, or an array."""
    if value is None or isinstance(value, str):
        return value
    if is_array and isinstance(value, list):
        return [_literal(one, is_array=True) for one in cast("list[Any]", value)]
    return msgspec.json.encode(value).decode()


def _check_columns(columns: Any) -> None:
    for column in columns:
        kind = column.type
        if kind.kind in _ROWS_OF_THEIR_OWN or kind.name.removesuffix("[]") == "record":
            raise StatementFailed(
                f"column {column.name!r} is a {kind.name}, which has no JSON; select it as text, or"
                " through to_jsonb()",
                is_lasting=True,
            )


def _check_copy(statement: str) -> None:
    """Refuse COPY FROM STDIN, which would wait for data."""
    words = (
        one.text.lower()
        for one in sql_statement.read_tokens(statement, "postgresql")
        if one.kind == "word"
    )
    if next(words, "") == "copy" and any(word in ("stdin", "stdout") for word in words):
        raise StatementFailed(
            "COPY from or to the client has no client here; use INSERT … SELECT, or COPY with a"
            " file of the server",
            is_lasting=True,
        )


# Rights of every role that the session can become, in any table of the store. A role that may only
# call daybell.enqueue has none there.
_CAN_USE_STORE: Final = """
SELECT 1 FROM pg_namespace n
WHERE n.nspname = 'daybell'
  AND EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'live')
  AND EXISTS (SELECT FROM pg_roles r WHERE pg_has_role(session_user, r.oid, 'MEMBER')
              AND (r.rolsuper OR r.oid = n.nspowner
                   OR has_schema_privilege(r.oid, n.oid, 'CREATE')
                   OR EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid
                              AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
                              AND (has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE')
                                   OR has_table_privilege(r.oid, c.oid, 'DELETE, TRUNCATE')))))
"""


class _IsStore(Exception):
    """The database is a store of Daybell, and the connection has rights there."""


async def _begin(link: Any) -> None:
    """Refuse a session with rights in the store: its statements would have the rights of every
    tenant. Set other sessions up for text values.
    """
    if await link.execute(_CAN_USE_STORE) != "SELECT 0":
        raise _IsStore
    await _teach(link)


async def _teach(link: Any) -> None:
    """Set a connection up for text values. None of this needs the server."""
    for kind, reader in _READERS.items():
        await link.set_type_codec(
            kind, schema="pg_catalog", encoder=str, decoder=reader, format="text"
        )
    await link.set_type_codec(
        "bytea", schema="pg_catalog", encoder=_as_bytes, decoder=bytes, format="binary"
    )


def _as_bytes(text: str) -> bytes:
    """Format bytes as PostgreSQL does."""
    try:
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(r"bytes are written as base64, or as \x and hexadecimal digits") from None


async def _forget(link: Any) -> None:
    """Reset the session: roles, locks, settings, tables."""
    await link.execute("DISCARD ALL")
