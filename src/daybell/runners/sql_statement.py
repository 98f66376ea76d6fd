"""SQL statements: named parameters on the way in, rows as JSON on the way out."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from daybell.core import payload
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.errors import PayloadError

ROWS_BYTES_MAX: Final = RESULT_BYTES_MAX // 2  # masks may make them longer
BATCH_ROWS_MAX: Final = 100
NOTICES_MAX: Final = 100

Say = Callable[[str, str], None]  # a level and a line of the log


class StatementFailed(Exception):
    """A statement failed. `is_lasting`: a retry would fail again."""

    def __init__(self, message: str, *, is_lasting: bool) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


class Parameters(NamedTuple):
    """The values of a statement's parameters, by name."""

    values: dict[str, Any]
    has_secrets: bool = False


class Rows:
    """Collects rows up to the limits, and computes how many more to fetch."""

    def __init__(self, columns: Sequence[str], rows_max: int) -> None:
        self._columns = _unique_names(columns)
        self._rows_max = rows_max
        self._kept: list[dict[str, Any]] = []
        self._bytes = 0
        self.is_truncated = False

    @property
    def wanted(self) -> int:
        """Return how many rows to fetch next: one more than is kept, to notice a truncation, and
        few if they are wide, so that they are not all in memory. At most twice as many as before,
        since wide rows may follow a narrow one.
        """
        seen = len(self._kept)
        if not seen:
            return 1
        room = (ROWS_BYTES_MAX - self._bytes) // max(1, self._bytes // seen) + 1
        return min(self._rows_max + 1 - seen, 2 * seen, BATCH_ROWS_MAX, room)

    def take(self, row: Iterable[Any]) -> bool:
        """Keep a row; False: no space, and no row should follow."""
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
        """Return the result of the job."""
        said: dict[str, Any] = {"rows": self._kept, "row_count": len(self._kept)}
        return {**said, "truncated": True} if self.is_truncated else said


class Database(Protocol):
    """A database for statements."""

    async def run(
        self, statement: str, parameters: Parameters, *, rows_max: int, say: Say
    ) -> dict[str, Any]:
        """Run one statement in a transaction of its own. Raises StatementFailed."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class JsonText(str):
    """Unparsed JSON: its objects may take thirty times the memory of its text."""

    __slots__ = ()


def as_json(value: Any) -> Any:
    """Convert a value of a row for JSON: bytes as base64, NaN as text."""
    if isinstance(value, JsonText):
        try:
            return payload.decode(str(value))
        except PayloadError:
            return str(value)  # too deep, or a number that no float can hold
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


def _unique_names(columns: Sequence[str]) -> list[str]:
    """Make names of columns unique for JSON: `id`, `id_2`."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


# Parameters of a statement: `:name`, outside of quotes and comments. Values are never inserted into
# the text. The parser only separates parameters from texts, casts and slices of arrays; the
# database checks the rest.

Dialect = Literal["postgresql", "sqlite"]

# Databases know ASCII; other characters may be part of a word.
_LETTER: Final = r"A-Za-z_\u0080-\U0010ffff"
_SPACE: Final = re.compile(r"[ \t\n\r\f\v]+")
_WORD: Final = re.compile(rf"[{_LETTER}][{_LETTER}0-9$]*")
_NUMBER: Final = re.compile(rf"[0-9][{_LETTER}0-9.]*")
_PARAMETER: Final = re.compile(rf":[{_LETTER}][{_LETTER}0-9]*")
_COLONS: Final = re.compile(r"::|:=")
_LINE_COMMENT: Final = re.compile(r"--[^\n]*")
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_ESCAPED: Final = re.compile(r"'(?:[^'\\]|''|\\.)*(?:'|\Z)", re.DOTALL)
_DOLLAR: Final = re.compile(rf"\$(?:[{_LETTER}][{_LETTER}0-9]*)?\$")
# Two texts with a line break between them are one text, so the second has escapes if the first has.
_GOES_ON: Final = re.compile(
    r"(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:[ \t\n\r\f\v]+|--[^\n\r]*(?:[\n\r]|\Z))*(?=')"
)
_QUOTED: Final = {
    mark: re.compile(f"{mark}(?:[^{mark}]|{mark}{mark})*(?:{mark}|\\Z)") for mark in "'\"`"
}
_BRACKETED: Final = re.compile(r"\[[^\]]*(?:\]|\Z)")
# The parameters of SQLite. JSON operators such as ?| of PostgreSQL are no parameters.
_OTHER: Final = {
    "postgresql": re.compile(r"\$[0-9]+"),
    "sqlite": re.compile(rf"\?[0-9]*|[@$#][{_LETTER}0-9$]+"),
}

TokenKind = Literal["space", "comment", "word", "operand", "parameter", "other parameter", "mark"]


class Token(NamedTuple):
    """A part of a statement. The concatenation of all parts is the statement."""

    kind: TokenKind
    text: str


def read_tokens(statement: str, dialect: Dialect) -> Iterator[Token]:
    """Divide a statement into tokens."""
    reader = _TokenReader(statement, dialect)
    while reader.position < len(statement):
        yield reader.next()


def parameter_names(statement: str, dialect: Dialect) -> list[str]:
    """Return the parameters of a statement, each once, in order of appearance."""
    found = (one.text[1:] for one in read_tokens(statement, dialect) if one.kind == "parameter")
    return list(dict.fromkeys(found))


def foreign_parameters(statement: str, dialect: Dialect) -> list[str]:
    """Return texts that the database would take for parameters, and that have no values."""
    return [one.text for one in read_tokens(statement, dialect) if one.kind == "other parameter"]


def number_parameters(statement: str) -> tuple[str, list[str]]:
    """Return a statement with $1, $2 … in place of names, for PostgreSQL, and the names."""
    order = parameter_names(statement, "postgresql")
    numbers = {f":{name}": f"${number}" for number, name in enumerate(order, 1)}
    text = "".join(
        numbers[one.text] if one.kind == "parameter" else one.text
        for one in read_tokens(statement, "postgresql")
    )
    return text, order


class _TokenReader:
    """Reads one token after the other."""

    def __init__(self, statement: str, dialect: Dialect) -> None:
        self._statement = statement
        self._dialect: Dialect = dialect
        self.position = 0
        self._brackets = 0  # number of open [
        self._last: Token | None = None  # neither space nor comment
        self._is_after_space = False

    def next(self) -> Token:
        token = self._read()
        self.position += len(token.text)
        if token.kind in ("space", "comment"):
            self._is_after_space = True
            return token
        if token.kind == "mark":
            self._brackets += {"[": 1, "]": -1}.get(token.text, 0)
            self._brackets = max(0, self._brackets)
        self._last, self._is_after_space = token, False
        return token

    def _read(self) -> Token:
        first = self._statement[self.position]
        token = self._special(first)
        return (
            token
            or self._match("space", _SPACE)
            or self._word()
            or self._match("operand", _NUMBER)
            or self._match("other parameter", _OTHER[self._dialect])
            or Token("mark", first)
        )

    def _special(self, first: str) -> Token | None:
        match first:
            case "'" | '"' | "`":
                return self._quoted()
            case "[":
                return self._bracket()
            case "$":
                return self._dollar()
            case "/":
                return self._comment()
            case "-":
                return self._match("comment", _LINE_COMMENT)
            case ":":
                return self._colon()
            case _:
                return None

    def _match(self, kind: TokenKind, pattern: re.Pattern[str]) -> Token | None:
        found = pattern.match(self._statement, self.position)
        return None if found is None else Token(kind, found[0])

    def _word(self) -> Token | None:
        word = self._match("word", _WORD)
        if word is None or self._dialect != "postgresql" or word.text not in ("e", "E"):
            return word
        return self._escaped(self.position + 1) or word

    def _escaped(self, begin: int) -> Token | None:
        """Read a text with escapes, E'…', with its continuation in other lines."""
        end = begin
        while found := _ESCAPED.match(self._statement, end):
            end = found.end()
            further = _GOES_ON.match(self._statement, end)
            if further is None:
                break
            end = further.end()
        return None if end == begin else Token("operand", self._statement[self.position : end])

    def _quoted(self) -> Token | None:
        mark = self._statement[self.position]
        if mark == "`" and self._dialect != "sqlite":
            return None
        return self._match("operand", _QUOTED[mark])

    def _bracket(self) -> Token | None:
        return self._match("operand", _BRACKETED) if self._dialect == "sqlite" else None

    def _dollar(self) -> Token | None:
        if self._dialect != "postgresql":
            return None
        opening = _DOLLAR.match(self._statement, self.position)
        if opening is None:
            return None
        end = self._statement.find(opening[0], opening.end())
        stop = len(self._statement) if end < 0 else end + len(opening[0])
        return Token("operand", self._statement[self.position : stop])

    def _comment(self) -> Token | None:
        if not self._statement.startswith("/*", self.position):
            return None
        depth, end = 1, self.position + 2
        while depth and (mark := _COMMENT_MARK.search(self._statement, end)):
            end = mark.end()
            if mark[0] == "*/":
                depth -= 1
            elif self._dialect == "postgresql":  # comments of SQLite do not nest
                depth += 1
        stop = len(self._statement) if depth else end
        return Token("comment", self._statement[self.position : stop])

    def _colon(self) -> Token | None:
        if self._dialect == "postgresql":
            if colons := self._match("mark", _COLONS):
                return colons
            if self._is_slice:
                return Token("mark", ":")
        return self._match("parameter", _PARAMETER)

    @property
    def _is_slice(self) -> bool:
        """True if a colon is that of `a[1:n]`: it follows a value, which a parameter never does.

        A word with a space after it may be a keyword: `ARRAY[CASE WHEN :yes …`.
        """
        last = self._last
        if not self._brackets or last is None:
            return False
        if last.kind == "word":
            return not self._is_after_space
        return last.kind in ("operand", "parameter") or last.text in (")", "]")
