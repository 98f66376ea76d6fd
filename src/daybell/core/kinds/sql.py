"""SQL jobs: a statement in a database that workers know by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from daybell.core import payload
from daybell.core.limits import SQL_CHARS_MAX, SQL_ROWS_DEFAULT, SQL_ROWS_MAX
from daybell.core.references import read_fields
from daybell.errors import UsageError, shown

# SQLite's application_id of a file that is a store of Daybell ("dayb"). No statement runs there.
STORE_FILE_ID: Final = 0x64617962
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SqlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which statement, with which parameters, and where."""

    connection: str  # as the workers' configuration calls it
    statement: str  # parameters are :name
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    rows: int = SQL_ROWS_DEFAULT  # so many of them at most are kept as the result

    @classmethod
    def parse(cls, value: Any) -> SqlSettings:
        """Read an object with `connection`, `statement` and the rest."""
        given = read_fields(value, cls, "sql")
        for name in ("connection", "statement"):
            if name not in given:
                raise UsageError(f"sql has no {name}", field=f"sql.{name}")
        rows = given.get("rows", SQL_ROWS_DEFAULT)
        if not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows <= SQL_ROWS_MAX:
            raise UsageError(
                f"rows={shown(rows)} must be a whole number from 0 to {SQL_ROWS_MAX:,}",
                field="sql.rows",
            )
        return cls(
            connection=check_connection_name(given["connection"]),
            statement=_read_statement(given["statement"]),
            parameters=_read_parameters(given.get("parameters")),
            rows=rows,
        )


def check_connection_name(value: object) -> str:
    """Return what can name a connection: as variables and keys of a file can."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise UsageError(
            f"{shown(value)} cannot name a connection; a name has small letters, digits and _, and"
            " begins with a letter",
            field="sql.connection",
        )
    return value


def _read_statement(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UsageError(f"statement={shown(value)} must be SQL", field="sql.statement")
    if len(value) > SQL_CHARS_MAX:
        raise UsageError(
            f"statement has {len(value):,} characters; the limit is {SQL_CHARS_MAX:,}",
            field="sql.statement",
        )
    return value


def _read_parameters(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"parameters={shown(value)} must be given by name, as an object",
            field="sql.parameters",
        )
    parameters = dict(cast("Mapping[str, Any]", value))
    for name in parameters:
        if _PARAMETER.fullmatch(name) is None:
            raise UsageError(f"{shown(name)} cannot name a parameter", field="sql.parameters")
    payload.encode(parameters, what="sql.parameters")
    return parameters
