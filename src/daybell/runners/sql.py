"""SQL jobs: named connections, parameters, and one statement per execution."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from daybell.core import payload
from daybell.core.execution import DescribedError
from daybell.core.job import JobDefinition
from daybell.core.kinds.settings import SqlSettings, check_connection_name
from daybell.core.postgres_url import check_options, is_same_login, read_hosts
from daybell.core.references import names_in_args
from daybell.errors import UsageError, shown
from daybell.runners import sql_statement
from daybell.runners.kind import KindHandler, Reveal
from daybell.runners.python import MaskedAttempt
from daybell.runners.sql_sqlite import SqliteDatabase
from daybell.runners.sql_statement import Database, Dialect, Parameters, StatementFailed
from daybell.settings import masked_url

SOURCE: Final = "sql"  # of lines in the log
FAILED: Final = "SqlFailed"
_TAKES: Final = "write postgresql://user:password@host/database or sqlite:////absolute/file.db"
_SCHEME: Final = re.compile(r"[a-z][\w+.\-]*", re.IGNORECASE)


class Connections:
    """The named databases of a worker, for one event loop. Each is opened on first use. Raises
    UsageError for a URL without a database, and for that of the store; a statement checks again.
    """

    def __init__(self, urls: Mapping[str, str], *, store_url: str = "memory://") -> None:
        self._urls = {check_connection_name(name): url.strip() for name, url in urls.items()}
        self._dialects: dict[str, Dialect] = {
            name: read_dialect(name, url) for name, url in self._urls.items()
        }
        self._opened: dict[str, Database] = {}
        for name, url in self._urls.items():
            _refuse_store(name, url, store_url.strip())

    @property
    def names(self) -> list[str]:
        return sorted(self._urls)

    def dialect(self, name: str) -> Dialect | None:
        """Return the SQL dialect of a connection; None: no such connection."""
        return self._dialects.get(name)

    def database(self, name: str) -> Database:
        """Return the database of an existing name."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def close(self) -> None:
        """Close all open databases."""
        opened, self._opened = list(self._opened.values()), {}
        for database in opened:
            await database.close()

    def _open(self, name: str) -> Database:
        url = self._urls[name]
        if self._dialects[name] == "postgresql":
            from daybell.runners.sql_postgres import PostgresDatabase  # loads asyncpg

            return PostgresDatabase(name, url)
        return SqliteDatabase(name, _file_path(url))


def read_dialect(name: str, url: str) -> Dialect:
    """Return the dialect of a URL. Raises UsageError if statements cannot run there."""
    scheme, mark, rest = url.partition("://")
    where = f"connection {name}: {shown(masked_url(url))}"
    scheme = scheme.lower()
    if mark and scheme in ("postgresql", "postgres"):
        try:
            check_options(url)
            read_hosts(url)
        except UsageError as error:
            raise UsageError(f"{where}: {error}", field="connections") from None
        except ValueError:
            raise UsageError(f"{where} cannot be read; {_TAKES}", field="connections") from None
        return "postgresql"
    if mark and scheme == "sqlite":
        if not rest.startswith("/") or "?" in rest or not unquote(rest[1:]).strip("/"):
            raise UsageError(f"{where} names no file; {_TAKES}", field="connections")
        return "sqlite"
    # The text before :// may be a part of a password.
    is_scheme = mark and _SCHEME.fullmatch(scheme)
    fact = f"has a scheme that is not known, {scheme}" if is_scheme else "is no database URL"
    raise UsageError(f"{where} {fact}; {_TAKES}", field="connections")


def _refuse_store(name: str, url: str, store_url: str) -> None:
    """Refuse the store: a statement there would have the rights of every tenant."""
    scheme, store = url.partition("://")[0].lower(), store_url.partition("://")[0].lower()
    is_store = False
    if scheme.startswith("postgres") and store.startswith("postgres"):
        with suppress(ValueError):  # the store's URL is checked elsewhere
            is_store = is_same_login(url, store_url)
    elif scheme == store == "sqlite":
        one, other = _file_path(url), _file_path(store_url)
        is_store = os.path.realpath(one) == os.path.realpath(other)
        with suppress(OSError):  # one of them does not exist yet
            is_store = is_store or os.path.samefile(one, other)
    if is_store:
        raise UsageError(
            f"connection {name}: {shown(masked_url(url))} is the store itself, whose jobs and"
            " secrets are not for statements; name another database, or in PostgreSQL a role"
            " without rights in the schema daybell",
            field="connections",
        )


def _file_path(url: str) -> str:
    return unquote(url.partition("://")[2][1:])


class SqlHandler(KindHandler):
    """Handler of one statement with its parameters."""

    def __init__(self, definition: JobDefinition, reveal: Reveal, connections: Connections) -> None:
        super().__init__(definition, reveal)
        self._settings = SqlSettings.parse(msgspec.json.decode(definition.settings))
        self._connections = connections

    async def perform(self, running: MaskedAttempt) -> Any:
        """Run the statement; return its rows, or the number of changed rows."""
        settings, loop = self._settings, asyncio.get_running_loop()
        try:
            dialect = self._dialect()
            given = await self.revealed(running, settings.parameters)
            given = {**given, **await self.reveal.args(running)}
            _check_parameters(settings.statement, dialect, given)
            started = loop.time()
            result = await self._connections.database(settings.connection).run(
                settings.statement,
                Parameters(given, has_secrets=self._has_secrets(running)),
                rows_max=settings.rows,
                say=lambda level, message: running.say(level, SOURCE, message),
            )
        except StatementFailed as error:
            running.is_hopeless = running.is_hopeless or error.is_lasting
            raise DescribedError.as_text(FAILED, str(error)) from None
        running.say("info", SOURCE, _summary(result, loop.time() - started))
        return result

    def _has_secrets(self, running: MaskedAttempt) -> bool:
        args = payload.decode(running.claimed.args, what="args")
        return bool(names_in_args(self._settings.parameters) or names_in_args(args))

    def _dialect(self) -> Dialect:
        dialect = self._connections.dialect(self._settings.connection)
        if dialect is None:  # the worker may have been restarted without it
            known = ", ".join(self._connections.names) or "none"
            raise StatementFailed(
                f"this worker has no connection {self._settings.connection!r}; it knows {known}",
                is_lasting=False,
            )
        return dialect


def _check_parameters(statement: str, dialect: Dialect, given: Mapping[str, Any]) -> None:
    wanted = sql_statement.parameter_names(statement, dialect)
    others = sql_statement.foreign_parameters(statement, dialect)
    if others:
        raise StatementFailed(
            f"the statement has the parameter {others[0]}; a parameter is written :name",
            is_lasting=True,
        )
    for name in wanted:
        if name not in given:
            raise StatementFailed(
                f"the statement has :{name}, and nobody has given it a value; put it into the job's"
                " sql.parameters or into the arguments",
                is_lasting=True,
            )
    for name in given:
        if name not in wanted:
            known = ", ".join(f":{one}" for one in wanted) or "none"
            raise StatementFailed(
                f"the statement has no parameter {shown(name)}; it has {known}", is_lasting=True
            )


def _summary(result: Mapping[str, Any], seconds: float) -> str:
    count = result["row_count"]
    rows = "1 row" if count == 1 else f"{count:,} rows"
    did = "kept" if "rows" in result else "changed"
    more = ", and there were more" if result.get("truncated") else ""
    return f"{rows} {did}{more}, in {seconds:.3f} s"
