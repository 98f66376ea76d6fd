"""Search of executions by their content: arguments, unique key, error, end.

No index has these, so a search reads executions one after the other: a bounded number per page.
The page may be short or empty, and its cursor continues the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import msgspec

from daybell.core import payload
from daybell.core.execution import Execution
from daybell.core.failure import Failure
from daybell.core.instant import Instant
from daybell.errors import PayloadError

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class Candidate(NamedTuple):
    """The columns of an execution that a search compares; those that it does not need are None."""

    id: UUID
    args: str | None = None
    unique_key: str | None = None
    error: str | None = None
    finished_at: Instant | None = None
    worker: UUID | None = None

    @classmethod
    def of(cls, execution: Execution) -> Candidate:
        """The same columns of a whole execution."""
        return cls(*(getattr(execution, name) for name in cls._fields))


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on the content of an execution; what is left out does not restrict."""

    args: tuple[tuple[str, str], ...] = ()  # (name, value) as texts; a name may be a dotted path
    unique_key: str | None = None
    error: str | None = None  # the name of a class, or a part of the text in any case of letters
    ended_since: Instant | None = None
    ended_until: Instant | None = None
    workers: frozenset[UUID] | None = None  # any of them

    @property
    def is_of_ended(self) -> bool:
        """True if only executions that have ended can match."""
        return self.ended_since is not None or self.ended_until is not None

    @property
    def columns(self) -> frozenset[str]:
        """The fields of a candidate that the conditions need."""
        given = {
            "args": self.args,
            "unique_key": self.unique_key is not None,
            "error": self.error is not None,
            "finished_at": self.is_of_ended,
            "worker": self.workers is not None,
        }
        return frozenset(name for name, is_needed in given.items() if is_needed)

    def matches(self, one: Candidate) -> bool:
        """True if an execution meets all conditions."""
        end = one.finished_at
        return (
            (self.unique_key is None or one.unique_key == self.unique_key)
            and (self.workers is None or one.worker in self.workers)
            and (self.ended_since is None or (end is not None and end >= self.ended_since))
            and (self.ended_until is None or (end is not None and end < self.ended_until))
            and (self.error is None or matches_error(one.error, self.error))
            and (not self.args or matches_args(one.args, self.args))
        )


def matches_error(kept: str | None, wanted: str) -> bool:
    """True if an error is of the class `wanted`, also as an ancestor, or has the text in its first
    line or message. The traceback is not searched: its source lines name much else.
    """
    if kept is None:
        return False
    failure = Failure.of_kept(kept)
    if wanted.casefold() in f"{failure.type}: {failure.message}".casefold():
        return True
    return any(name == wanted or name.endswith(f".{wanted}") for name in failure.names)


def matches_args(text: str | None, wanted: Iterable[tuple[str, str]]) -> bool:
    """True if arguments, as JSON text, have each of the values at its path."""
    if text is None:
        return False
    try:
        args = payload.decode(text)
    except PayloadError:
        return False
    return all(
        any(_equals(found, value) for found in _values_at(args, name.split(".")))
        for name, value in wanted
    )


def _values_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values at a path. A key may contain dots itself; a list is entered by a number."""
    if not path:
        yield value
    elif isinstance(value, dict):
        for length in range(1, len(path) + 1):
            key = ".".join(path[:length])
            if key in value:
                yield from _values_at(cast("dict[str, Any]", value)[key], path[length:])
    elif isinstance(value, list) and path[0].isdecimal() and len(path[0]) < 10:
        items = cast("list[Any]", value)
        if int(path[0]) < len(items):
            yield from _values_at(items[int(path[0])], path[1:])


def _equals(value: Any, wanted: str) -> bool:
    """True if a JSON value is the one that a text means: `42` is the number and the string."""
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or value is None:
        return wanted in _WORDS and value is _WORDS[wanted]
    if isinstance(value, int | float):
        number = _NUMBER.fullmatch(wanted)
        return number is not None and value == (float if any(number.groups()) else int)(wanted)
    return False  # objects and lists are searched by a path
