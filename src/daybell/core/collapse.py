"""Requests of a key that collapse into one execution: debounce, throttle, singleton.

A store keeps the latest execution of each key. It locks that row, reads the execution, and decides
about the next request by `decide`. On PostgreSQL the function `daybell.collapse` decides the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal, Self, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.execution import NewExecution
from daybell.core.limits import RETRIES_MAX, SEARCH_CHARS_MAX
from daybell.core.units import Instant, Seconds, format_duration, parse_limit
from daybell.errors import ExecutionInTheWay, UsageError, shown

# The key of a request: texts, and paths to values of its arguments.

Part = str | tuple[str, ...]
_NAME: Final = r"[^\W\d]\w*"
_PATH: Final = re.compile(rf"{_NAME}(\.\w+)*", re.ASCII)
KEY_SPEC_CHARS_MAX: Final = SEARCH_CHARS_MAX
_DIGEST_FROM: Final = 200  # bytes; a longer key is kept as its digest


def parse_key(value: object, what: str = "key") -> tuple[Part, ...]:
    """Parse an argument's name, a dotted path, or a template: `account`, `order.account`,
    `{account}:{region}`.
    """
    if not isinstance(value, str) or not 0 < len(value) <= KEY_SPEC_CHARS_MAX:
        raise UsageError(
            f"{what}={shown(value)} must name an argument, as in {what}='account', or be a template"
            f" such as '{{account}}:{{region}}', of at most {KEY_SPEC_CHARS_MAX} characters",
            field=what,
        )
    if "{" not in value and "}" not in value:
        return (_path(value, what),)
    parts: list[Part] = []
    for place, text in enumerate(re.split(r"\{([^{}]*)\}", value)):
        if place % 2:
            parts.append(_path(text, what))
        elif "{" in text or "}" in text:
            raise UsageError(f"{what} {shown(value)} has a brace without its pair", field=what)
        elif text:
            parts.append(text)
    return tuple(parts)


def _path(text: str, what: str) -> tuple[str, ...]:
    if not _PATH.fullmatch(text):
        raise UsageError(
            f"{what}: {shown(text)} is not an argument's name or a dotted path such as"
            " order.account",
            field=what,
        )
    return tuple(text.split("."))


def render_key(parts: Sequence[Part], args: Mapping[str, Any]) -> str:
    """Return the key of these arguments. A missing argument counts as null."""
    return "".join(part if isinstance(part, str) else _value_at(part, args) for part in parts)


def _value_at(path: Sequence[str], args: Mapping[str, Any]) -> str:
    value: Any = args
    for name in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name)
        elif isinstance(value, list) and name.isdigit():
            value = dict(enumerate(cast("list[Any]", value))).get(int(name))
        else:
            value = None
    return value if isinstance(value, str) else _canonical(value)


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


parsed_key: Final = lru_cache(maxsize=1024)(parse_key)
ITEM_CHARS_MAX: Final = 200  # a longer value of a key is replaced by its digest


def item_of(key: str | None, args: Mapping[str, Any]) -> str:
    """Return the value of a key, as the name of a bucket or a node. Without a key there is one."""
    if key is None:
        return ""
    return digest(render_key(parsed_key(key), args))


def digest(text: str) -> str:
    """Return a text, or its digest if it is long."""
    if len(text) <= ITEM_CHARS_MAX and "\0" not in text:
        return text
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# The options.


class _Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """A value that may have a key."""

    key: str | None = None

    @classmethod
    def _read(cls, value: object, what: str, name: str, read: Callable[..., Any]) -> Self:
        if not isinstance(value, Mapping):
            return cls(**read(value, what))
        given = dict(cast("Mapping[str, Any]", value))
        for field in given:
            if field not in (name, "key"):
                raise UsageError(
                    f"{what} has no field {shown(field)}; it has {name} and key", field=what
                )
        key = given.get("key")
        if key is not None:
            parse_key(key, f"{what}.key")
        return cls(**read(given.get(name), f"{what}.{name}"), key=key)

    def _write(self, name: str, value: str) -> Any:
        return value if self.key is None else {name: value, "key": self.key}


class Debounce(_Keyed, frozen=True, kw_only=True):
    """Requests wait until none came for so long; the last one runs."""

    wait: Seconds

    @classmethod
    def parse(cls, value: object, what: str) -> Self:
        return cls._read(value, what, "wait", _read_wait)

    def write(self) -> Any:
        return self._write("wait", format_duration(self.wait))


def _read_wait(value: Any, what: str) -> dict[str, Any]:
    return {"wait": parse_limit(value, what=what)}


class RequestThrottle(_Keyed, frozen=True, kw_only=True):
    """At most so many requests in any period become executions."""

    limit: int
    period: Seconds

    @classmethod
    def parse(cls, value: object, what: str) -> Self:
        return cls._read(value, what, "rate", _read_rate)

    def write(self) -> Any:
        return self._write("rate", f"{self.limit}/{format_duration(self.period)}")


def _read_rate(value: object, what: str) -> dict[str, Any]:
    text = value if isinstance(value, str) else ""
    count, slash, period = (part.strip() for part in text.partition("/"))
    if not (slash and count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= STARTS_MAX):
        raise UsageError(
            f"{what} {shown(value)} is not a number of executions in a time, such as '1/10m'; at"
            f" most {STARTS_MAX} are counted",
            field=what,
        )
    period = f"1{period}" if period[:1].isalpha() else period
    return {"limit": int(count), "period": parse_limit(period, what=what)}


STARTS_MAX: Final = RETRIES_MAX
Scope = Literal["running", "unfinished"]
Conflict = Literal["return", "replace", "cancel", "error"]
SCOPES: Final = ("running", "unfinished")
CONFLICTS: Final = ("return", "replace", "cancel", "error")


class Singleton(_Keyed, frozen=True, kw_only=True):
    """One execution at a time takes requests."""

    scope: Scope

    @classmethod
    def parse(cls, value: object, what: str) -> Self:
        return cls._read(value, what, "scope", _read_scope)

    def write(self) -> Any:
        return self._write("scope", self.scope)


def _read_scope(value: object, what: str) -> dict[str, Any]:
    if value not in SCOPES:
        raise UsageError(f"{what} {shown(value)} is not one of {', '.join(SCOPES)}", field=what)
    return {"scope": value}


# The rule of a job, as stores read it.

FORGOTTEN_SECONDS: Final = 86400.0  # after the last use of a key


Kind = Literal["debounce", "throttle", "singleton", "cache"]


class CollapseRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one rule of a job that collapses its requests, and the key that it goes by."""

    kind: Kind
    key: tuple[tuple[str, ...] | str, ...] = ()  # empty: the unique key of the request, or the job
    wait: Seconds = 0.0  # debounce
    most: Seconds | None = None
    limit: int = 1  # throttle
    period: Seconds = 0.0
    scope: Scope = "unfinished"  # singleton
    conflict: Conflict = "return"
    keep: Seconds = 0.0  # cache: the age of a result that is still used
    version: str = ""

    @property
    def takes_unique_key(self) -> bool:
        """True if the unique key of a request is the key of this rule."""
        return not self.key and self.kind != "cache"

    @property
    def seconds_kept(self) -> Seconds:
        """How long a key is remembered after a request."""
        return max(self.period, self.keep) + FORGOTTEN_SECONDS

    def key_of(self, args: str, unique_key: str | None) -> str:
        """Return the key of a request."""
        if self.key:
            key = render_key(self.key, msgspec.json.decode(args))
        elif self.kind == "cache":
            key = _canonical(msgspec.json.decode(args))
        else:
            key = unique_key or ""
        data = key.encode()
        return f"{self.version}:{sha256(data).hexdigest() if len(data) > _DIGEST_FROM else key}"


SINGLETON: Final = "singleton"  # the reason of a request that was cancelled for another one


class Verb(StrEnum):
    """The decision about a request."""

    NEW = "new"  # create it
    HELD = "held"  # the latest execution is the answer
    MOVED = "moved"  # the same, with these arguments and a later time
    REPLACE = "replace"  # cancel the latest one first
    CANCELLED = "cancelled"  # record it as cancelled
    REFUSED = "refused"


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """The latest execution of a key, if it has not ended."""

    created_at: Instant
    is_startable: bool = False  # no worker has had it
    is_waiting: bool = False  # no worker has it


def decide(
    rule: CollapseRule,
    latest: Latest | None,
    *,
    starts: Sequence[Instant] = (),
    is_cached: bool = False,
    now: Instant,
) -> Verb:
    """Decide about a request. An execution that is to be cancelled is not the latest any more."""
    if rule.kind == "throttle":
        is_full = len(recent(rule, starts, now)) >= rule.limit
        return Verb.HELD if is_full else Verb.NEW
    if rule.kind == "cache":
        return Verb.HELD if latest is not None or is_cached else Verb.NEW
    if latest is None:
        return Verb.NEW
    if rule.kind == "debounce":
        return Verb.MOVED if latest.is_startable else Verb.NEW
    if rule.conflict == "return" or (rule.scope == "running" and latest.is_waiting):
        return Verb.HELD
    return {"replace": Verb.REPLACE, "cancel": Verb.CANCELLED, "error": Verb.REFUSED}[rule.conflict]


def conflict_error(job: str, holder: UUID) -> ExecutionInTheWay:
    """Return the error for a request that a singleton refuses."""
    return ExecutionInTheWay(
        f"job {shown(job)} is a singleton, and execution {holder} has not ended; wait for it,"
        " cancel it, or force this one",
        execution=holder,
    )


def adapt(new: NewExecution, rule: CollapseRule) -> NewExecution:
    """Return a request to create as its rule has it: with the wait of a debounce, and without a
    unique key that is the key of the rule.
    """
    if rule.kind == "debounce" and new.at is None and new.delay is None:
        new = replace(new, delay=rule.wait)
    return replace(new, unique_key=None) if rule.takes_unique_key and new.unique_key else new


def recent(rule: CollapseRule, starts: Sequence[Instant], now: Instant) -> list[Instant]:
    """Return the starts within the last period."""
    return [at for at in starts if at > now - rule.period]


def due_of(rule: CollapseRule, asked: Instant, first: Instant, now: Instant) -> Instant:
    """Return the time of a debounced execution: that of the last request, within `max_wait`."""
    return max(now, asked if rule.most is None else min(asked, first + rule.most))
