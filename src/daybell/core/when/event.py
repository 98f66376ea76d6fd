"""Schedules that events fire: the filter on an event's data, and the arguments that it fills."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec

from daybell.core import payload
from daybell.core.event import Event, check_words, result_of
from daybell.core.limits import (
    EVENT_NAME_CHARS_MAX,
    MATCH_CHARS_MAX,
    MATCH_KEYS_MAX,
    NAME_CHARS_MAX,
    text_fault,
)
from daybell.core.when.rule import Schedule
from daybell.core.when.zone import nearest
from daybell.errors import DaybellError, InvalidSchedule, UsageError, shown

RESERVED: Final = "daybell."  # names of events with this prefix come from Daybell alone
_WORDS_MAX: Final = 100  # values of `in`
_PARTS_MAX: Final = 10  # of a path
_MISSING: Final = object()
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
OPERATORS: Final = (*_ORDER, "in", "prefix", "exists")
_EQUAL: Final = "equal"  # the test of a bare value


@dataclass(frozen=True, slots=True, kw_only=True)
class OnEvent(Schedule):
    """Fires with each event of a name whose data passes the filter."""

    has_times: ClassVar[bool] = False

    event: str
    filter: str = "{}"  # canonical JSON

    @property
    def listens_to(self) -> str | None:
        return self.event

    def own_fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {"event": self.event}
        return said if self.filter == "{}" else said | {"filter": json.loads(self.filter)}

    def accepts(self, data: Any) -> bool:
        return all(test.accepts(data) for test in self.tests)

    @property
    def tests(self) -> tuple[FilterTest, ...]:
        """The conditions of the filter."""
        return _read_filter(self.filter)


def on_event(name: str, *, where: Mapping[str, Any] | None = None) -> OnEvent:
    """Fire with each event of this name: `on_event("file.uploaded", where={"size": {"gt": 0}})`.

    `where` names values in the event's data by dotted paths, as in `{"customer.country": "DE"}`.
    All of them have to match. A bare value means equality; the operators are gt, gte, lt, lte, in,
    prefix and exists. Numbers are compared by value, and values of different types never match.
    """
    return read_event_schedule({"event": name, "filter": where})


def read_event_schedule(given: Mapping[str, Any]) -> OnEvent:
    """Parse `{"event": …, "filter": …}`."""
    name, where = given["event"], given.get("filter")
    try:
        check_words(name, what="event name", field="event", chars_max=EVENT_NAME_CHARS_MAX)
    except DaybellError as error:
        raise InvalidSchedule(str(error), field="event") from None
    if name.startswith(RESERVED):
        raise InvalidSchedule(
            f"names of events that begin with {RESERVED!r} are reserved; files are"
            ' {"file": "ROOT/PATTERN"}',
            field="event",
        )
    if where is None:
        return OnEvent(event=name)
    if not isinstance(where, Mapping):
        raise _fault(
            f'filter {shown(where)} is not an object of paths and values, such as {{"size":'
            ' {"gt": 0}}'
        )
    tests = cast("Mapping[Any, Any]", where)
    if len(tests) > MATCH_KEYS_MAX:
        raise _fault(f"filter has {len(tests):,} paths; the limit is {MATCH_KEYS_MAX}")
    for path, said in tests.items():
        _read_tests(path, said)
    text = json.dumps(dict(tests), sort_keys=True, separators=(",", ":"))
    if len(text) > MATCH_CHARS_MAX:
        raise _fault(f"filter has {len(text):,} characters; the limit is {MATCH_CHARS_MAX:,}")
    return OnEvent(event=name, filter=text)


class FilterTest(NamedTuple):
    """One condition of a filter."""

    path: tuple[str, ...]
    operator: str
    value: Any

    def accepts(self, data: Any) -> bool:
        found = _find(data, self.path)
        if self.operator == "exists":
            return (found is not _MISSING) is self.value
        if found is _MISSING:
            return False
        if self.operator == _EQUAL:
            return _is_equal(found, self.value)
        if self.operator == "in":
            return any(_is_equal(found, one) for one in self.value)
        if self.operator == "prefix":
            return isinstance(found, str) and found.startswith(self.value)
        return _kind(found) == _kind(self.value) and _ORDER[self.operator](found, self.value)


@lru_cache(maxsize=16_384)  # every event reads the filters of its listeners
def _read_filter(text: str) -> tuple[FilterTest, ...]:
    return tuple(
        test for path, said in json.loads(text).items() for test in _read_tests(path, said)
    )


def _read_tests(path: object, said: object) -> list[FilterTest]:
    """Parse the conditions on one path."""
    if not isinstance(path, str):
        raise _fault(f"filter: {shown(path)} is not a path; it takes text, such as 'order.total'")
    parts = tuple(path.split("."))
    if "" in parts or len(parts) > _PARTS_MAX or len(path) > NAME_CHARS_MAX or text_fault(path):
        raise _fault(
            f"filter: {shown(path)} is not a path into an event's data; it takes up to"
            f" {_PARTS_MAX} keys with dots between, such as 'order.total'"
        )
    if not isinstance(said, Mapping):
        _check_value(path, said)
        return [FilterTest(parts, _EQUAL, said)]
    given = cast("Mapping[Any, Any]", said)
    if not given:
        raise _fault(f"filter: {shown(path)} has no operator; it takes {', '.join(OPERATORS)}")
    for name, value in given.items():
        _check_operand(path, name, value)
    return [FilterTest(parts, name, value) for name, value in given.items()]


def _check_operand(path: str, name: object, value: object) -> None:
    if name not in OPERATORS:
        near = nearest(name, OPERATORS)
        meant = f"did you mean {near!r}?" if near else f"there are {', '.join(OPERATORS)}"
        raise _fault(f"filter: {shown(path)} has no operator {shown(name)}; {meant}")
    given = shown(value)
    if name == "exists":
        is_valid, takes = isinstance(value, bool), "true or false"
    elif name == "prefix":
        is_valid, takes = isinstance(value, str) and value != "", "text"
    elif name == "in":
        values = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
        is_valid, takes = 0 < len(values) <= _WORDS_MAX, f"a list of 1 to {_WORDS_MAX} values"
        for one in values:
            _check_value(path, one)
    else:
        is_finite = not isinstance(value, float) or math.isfinite(value)
        is_valid = _kind(value) in ("number", "text") and is_finite
        takes = "a number or a text"
    if not is_valid:
        raise _fault(f"filter: {name} of {shown(path)} takes {takes}, not {given}")
    if isinstance(value, str):
        _check_value(path, value)


def _check_value(path: str, value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault(f"filter: {shown(path)} is compared with {value}, which no JSON holds")
    if isinstance(value, str) and (fault := text_fault(value)):
        raise _fault(f"filter: the value of {shown(path)} {fault}")
    if not (value is None or isinstance(value, str | int | float)):
        raise _fault(
            f"filter: {shown(path)} is compared with {shown(value)}; it takes a text, a number,"
            " true, false or null, or an object of operators; one of several values is"
            ' {"in": […]}'
        )


def _fault(message: str) -> InvalidSchedule:
    return InvalidSchedule(message, field="filter")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return (
        "number"
        if isinstance(value, int | float)
        else "text"
        if isinstance(value, str)
        else type(value).__name__
    )


def _is_equal(found: object, value: object) -> bool:
    return _kind(found) == _kind(value) and found == value


def _find(data: object, path: Sequence[str]) -> Any:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return _MISSING
        data = cast("dict[str, object]", data)[part]
    return data


# Arguments of an execution that an event fires.
#
# The job gets the event as argument `event`, in the form of `ctx.wait_for_event`. Arguments of the
# form {"event": "data.path"} get a part of it instead.

EVENT: Final = "event"
TAKE_EVENT: Final = (
    'take the event as argument `event`, or parts of it: args={"path": {"event": "data.path"}}'
)
_PARTS: Final = ("id", "source", "name", "data", "time", "received_at")


def check_event_args(args: str) -> str:
    """Return valid arguments of a schedule that events fire."""
    for name, value in _decode(args).items():
        path = _mapped(value)
        if path is not None and (path.split(".")[0] not in _PARTS or "" in path.split(".")):
            raise UsageError(
                f"args.{name}: {shown(path)} is no part of an event; it takes one of"
                f" {', '.join(_PARTS)}, or a path into the data such as 'data.path'",
                field=f"args.{name}",
            )
    return args


def without_event(args: str) -> str:
    """Return arguments without those that an event would fill."""
    given = _decode(args)
    kept = drop_mapped(given)
    return args if len(kept) == len(given) else msgspec.json.encode(kept).decode()


def drop_mapped(args: Mapping[str, Any]) -> dict[str, Any]:
    """Do the same for decoded arguments."""
    return {name: value for name, value in args.items() if _mapped(value) is None}


def sample_args(args: str) -> str:
    """Return arguments with the names of those that an event fires a job with, to check them."""
    given = _decode(args)
    is_mapped = any(_mapped(value) is not None for value in given.values())
    return args if is_mapped else msgspec.json.encode({EVENT: {}, **given}).decode()


def fill_args(args: str, event: Event) -> str:
    """Return the arguments of an execution that this event fires. A path without a value in the
    event gives null.
    """
    given = _decode(args)
    paths = {name: path for name, value in given.items() if (path := _mapped(value)) is not None}
    whole = result_of(event)
    if not paths:
        said: dict[str, Any] = {EVENT: msgspec.Raw(whole.encode()), **given}
    else:
        values = payload.decode(whole)
        found = {name: _find(values, path.split(".")) for name, path in paths.items()}
        said = given | {name: None if one is _MISSING else one for name, one in found.items()}
    return msgspec.json.encode(said).decode()


def _decode(args: str) -> dict[str, Any]:
    return {} if args == "{}" else payload.decode(args, what="args")


def _mapped(value: object) -> str | None:
    """Return the path of an argument that an event fills."""
    if not isinstance(value, dict) or value.keys() != {EVENT}:
        return None
    path = cast("dict[str, object]", value)[EVENT]
    return path if isinstance(path, str) else None
