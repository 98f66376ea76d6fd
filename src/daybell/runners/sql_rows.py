"""What a statement leaves behind: rows as JSON, as many as are kept, or how many it has changed."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from daybell.core import payload
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.errors import PayloadError

ROWS_BYTES_MAX: Final = RESULT_BYTES_MAX // 2  # masks may still make them longer
BATCH_ROWS_MAX: Final = 100
NOTICES_MAX: Final = 100

Say = Callable[[str, str], None]  # a level and a line of the log


class StatementFailed(Exception):
    """Why a statement did not run. `is_lasting`: it will be no different next time."""

    def __init__(self, message: str, *, is_lasting: bool) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


class Parameters(NamedTuple):
    """The values of a statement's parameters, by name."""

    values: dict[str, Any]
    has_secrets: bool = False


class Rows:
    """Takes rows as long as there is room, and knows how many more to ask for."""

    def __init__(self, columns: Sequence[str], rows_max: int) -> None:
        self._columns = _told_apart(columns)
        self._rows_max = rows_max
        self._kept: list[dict[str, Any]] = []
        self._bytes = 0
        self.is_truncated = False

    @property
    def wanted(self) -> int:
        """How many rows to fetch next: one more than is kept, to know of it; and of wide ones few,
        so that they are not all in memory at once. Nor more at a time than twice as many as were
        seen: those that follow a narrow one may be wide.
        """
        seen = len(self._kept)
        if not seen:
            return 1
        room = (ROWS_BYTES_MAX - self._bytes) // max(1, self._bytes // seen) + 1
        return min(self._rows_max + 1 - seen, 2 * seen, BATCH_ROWS_MAX, room)

    def take(self, row: Iterable[Any]) -> bool:
        """Keep a row; False: there is no room, and none should follow."""
        if len(self._kept) >= self._rows_max:
            self.is_truncated = True
            return False
        values = list(row)
        if self._bytes + sum(map(_length, values)) > ROWS_BYTES_MAX:
            self.is_truncated = True  # known without making it larger
            return False
        kept = dict(zip(self._columns, map(as_json, values), strict=True))
        self._bytes += len(msgspec.json.encode(kept)) + 1
        if self._bytes > ROWS_BYTES_MAX:
            self.is_truncated = True
            return False
        self._kept.append(kept)
        return True

    def result(self) -> dict[str, Any]:
        """What the job answers with."""
        said: dict[str, Any] = {"rows": self._kept, "row_count": len(self._kept)}
        return {**said, "truncated": True} if self.is_truncated else said


class Database(Protocol):
    """One that statements can be run in."""

    async def run(
        self, statement: str, parameters: Parameters, *, rows_max: int, say: Say
    ) -> dict[str, Any]:
        """Run one statement in a transaction of its own. Raises StatementFailed."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class JsonText(str):
    """JSON that is not read yet: its objects may take thirty times the memory of its text."""

    __slots__ = ()


def as_json(value: Any) -> Any:
    """A value of a row as JSON can hold it: bytes as base64, and NaN in words."""
    if isinstance(value, JsonText):
        try:
            return payload.decode(str(value))
        except PayloadError:
            return str(value)  # it nests too deep, or has a number that no float can hold
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [as_json(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _length(value: Any) -> int:
    if isinstance(value, list):
        return sum(_length(one) for one in value)  # pyright: ignore[reportUnknownVariableType]
    return len(value) if isinstance(value, str | bytes) else 0


def _told_apart(columns: Sequence[str]) -> list[str]:
    """Two columns of a name would be one in JSON: `id`, `id_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names
