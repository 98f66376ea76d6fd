"""Retry policies: the number of attempts, the waits between them, and the errors to retry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeGuard, cast, get_args

import msgspec

from daybell.core import payload
from daybell.core.execution import dotted_name
from daybell.core.limits import (
    BACKOFF_FACTOR_MAX,
    DURATION_SECONDS_MAX,
    INSTANT_MAX,
    NAME_CHARS_MAX,
    RETRIES_MAX,
    RETRY_NAMES_MAX,
)
from daybell.core.units import Duration, Instant, Seconds, from_datetime, parse_duration
from daybell.errors import (
    InvalidArguments,
    InvalidRetry,
    PermanentError,
    RetryLater,
    shown,
    suggested,
)

RETRIES: Final = 3
BASE_SECONDS: Final = 1.0
FACTOR: Final = 2.0
CAP_SECONDS: Final = 3600.0
JITTER: Final = 0.1

Backoff = Literal["exponential", "fixed", "delays", "function"]
# Any allows a function to name its exception class.
WaitFunction = Callable[[int], Duration | None] | Callable[[int, Any], Duration | None]
Report = Callable[[Exception], None]
ErrorRule = type[BaseException] | str  # a class, or its dotted name
ErrorRules = ErrorRule | Iterable[ErrorRule]

_SHARED_KEYS: Final = ("retries", "jitter", "retry_on", "never_on")
_KEYS: Final = frozenset((*_SHARED_KEYS, "backoff", "base", "delay", "factor", "cap", "delays"))
_PERMANENT: Final = dotted_name(PermanentError)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry policy; by default 3 retries after 1 s, 2 s and 4 s.

    Created by `Retry.exponential`, `fixed`, `delays` or `function`. `jitter` is the random part of
    each wait, so that executions that failed together do not return together: with 0.1, a wait is
    90 % to 100 % of the nominal time.

    `retry_on` limits retries to these errors; `never_on` excludes errors and wins. Classes match
    with their subclasses, names as stored in a policy: a dotted name exactly (`builtins.OSError`),
    a name without a dot in any module.
    """

    retries: int = RETRIES  # after the first attempt
    backoff: Backoff = "exponential"
    base: float = BASE_SECONDS
    factor: float = FACTOR
    cap: float = CAP_SECONDS
    jitter: float = JITTER
    waits: tuple[float, ...] = ()  # of "delays"; the last one repeats
    # Of "function"; None if the policy comes from a store.
    wait_function: Callable[..., Duration | None] | None = None
    retry_on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the numbers, which may come from a file or a request."""
        _check_integer(self.retries, "retries", most=RETRIES_MAX)
        _check_number(self.factor, "factor", least=1, most=BACKOFF_FACTOR_MAX)
        _check_number(self.jitter, "jitter", least=0, most=1)
        _check_number(self.base, "base", least=0, most=DURATION_SECONDS_MAX)
        _check_number(self.cap, "cap", least=0, most=DURATION_SECONDS_MAX)
        if self.base > self.cap:
            raise InvalidRetry(
                f"the first wait, base={self.base:g} s, is longer than cap={self.cap:g} s; "
                "raise cap or lower base",
                field="cap",
            )
        if self.wait_function is not None:
            _takes_error(self.wait_function)
        if self.backoff == "delays" and not self.waits:
            raise InvalidRetry('delays is empty; give at least one, like "10s"', field="delays")

    @classmethod
    def exponential(
        cls,
        base: Duration = BASE_SECONDS,
        *,
        factor: float = FACTOR,
        cap: Duration | None = None,
        retries: int = RETRIES,
        jitter: float = JITTER,
        retry_on: ErrorRules = (),
        never_on: ErrorRules = (),
    ) -> Retry:
        """Wait `base`, then `factor` times longer each time, at most `cap` (1 h)."""
        first = parse_duration(base, what="base")
        return cls(
            retries=retries,
            base=first,
            factor=factor,
            cap=max(CAP_SECONDS, first) if cap is None else parse_duration(cap, what="cap"),
            jitter=jitter,
            retry_on=_names(retry_on, "retry_on"),
            never_on=_names(never_on, "never_on"),
        )

    @classmethod
    def fixed(
        cls,
        delay: Duration,
        *,
        retries: int = RETRIES,
        jitter: float = JITTER,
        retry_on: ErrorRules = (),
        never_on: ErrorRules = (),
    ) -> Retry:
        """Wait the same time before each retry."""
        wait = parse_duration(delay, what="delay")
        return cls(
            retries=retries,
            backoff="fixed",
            base=wait,
            factor=1.0,
            cap=wait,
            jitter=jitter,
            retry_on=_names(retry_on, "retry_on"),
            never_on=_names(never_on, "never_on"),
        )

    @classmethod
    def delays(
        cls,
        *waits: Duration,
        retries: int | None = None,
        jitter: float = JITTER,
        retry_on: ErrorRules = (),
        never_on: ErrorRules = (),
    ) -> Retry:
        """Wait these times, one retry each; with more `retries` the last one repeats."""
        seconds = tuple(parse_duration(wait, what="delays") for wait in waits)
        longest = max(seconds, default=0.0)
        return cls(
            retries=len(seconds) if retries is None else retries,
            backoff="delays",
            base=min(BASE_SECONDS, longest),
            cap=longest,
            waits=seconds,
            jitter=jitter,
            retry_on=_names(retry_on, "retry_on"),
            never_on=_names(never_on, "never_on"),
        )

    @classmethod
    def function(
        cls,
        function: WaitFunction,
        *,
        retries: int = RETRIES,
        jitter: float = 0.0,
        retry_on: ErrorRules = (),
        never_on: ErrorRules = (),
    ) -> Retry:
        """Call `function(failures)` or `function(failures, error)` for each wait; None gives up.

        `error` is the exception of the task, or TimeoutError. If the function raises or returns no
        duration, the worker logs that and uses the default wait, so that a bug in it does not lose
        the execution. A store keeps only `retries` and the fact that there is a function: a process
        without the code uses the default wait, too.
        """
        if not callable(function):
            raise InvalidRetry(f"{shown(function)} is not a function", field="backoff")
        return cls(
            retries=retries,
            backoff="function",
            jitter=jitter,
            wait_function=function,
            retry_on=_names(retry_on, "retry_on"),
            never_on=_names(never_on, "never_on"),
        )

    def delay(
        self,
        failures: int,
        *,
        jitter: float,
        error: BaseException | None = None,
        report: Report | None = None,
    ) -> float | None:
        """Return the wait after the `failures`-th failure; None: no attempts are left.

        `jitter` is a random number in [0, 1). The wait is at most `cap`. A wait function gets
        `error`; its own error is passed to `report`.
        """
        assert failures >= 1, failures
        assert 0 <= jitter <= 1, jitter
        if failures > self.retries:
            return None
        nominal = self._nominal(failures, error, report)
        return None if nominal is None else nominal * (1 - self.jitter * jitter)

    def has_given_up(self, failures: int) -> bool:
        """Return True if the `failures`-th failure was final. With a function that takes the error,
        only the number of attempts is known.
        """
        if failures <= self.retries and self.wait_function is not None:
            return not _takes_error(self.wait_function) and self.delay(failures, jitter=0) is None
        return failures > self.retries

    def allows(self, error_type_names: Sequence[str]) -> bool:
        """Return True if an error with these class names, as in `Failure.names`, may be retried."""
        if _PERMANENT in error_type_names or _matches(self.never_on, error_type_names):
            return False
        return not self.retry_on or _matches(self.retry_on, error_type_names)

    @classmethod
    def parse(cls, value: object) -> Retry:
        """Parse nothing, a number of retries, a policy, or an object.

        Objects are {"retries": 5, "backoff": "exponential", "base": "1s", "factor": 2,
        "cap": "1h"}, {"backoff": "fixed", "delay": "30s"} or {"delays": ["1s", "10s"]}, each with
        optional "jitter", "retry_on" and "never_on".
        """
        if value is None:
            return cls()
        if isinstance(value, Retry):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(retries=value)
        if isinstance(value, Mapping):
            return _from_mapping(cast("Mapping[str, Any]", value))
        raise InvalidRetry(
            f"retries={shown(value)} is not how often to try again; give a whole number, such as 3,"
            ' or an object such as {"retries": 5, "base": "1s", "cap": "1h"} (in Python, a Retry)',
            field="retries",
        )

    def to_json(self) -> str:
        """Return JSON text with every number, so that new defaults do not change stored jobs."""
        fields: dict[str, Any] = {"retries": self.retries, "backoff": self.backoff}
        if self.backoff == "delays":
            fields["delays"] = self.waits
        elif self.backoff == "fixed":
            fields["delay"] = self.base
        elif self.backoff == "exponential":
            fields |= {"base": self.base, "factor": self.factor, "cap": self.cap}
        fields["jitter"] = self.jitter
        rules = {"retry_on": self.retry_on, "never_on": self.never_on}
        return payload.encode(fields | {k: v for k, v in rules.items() if v}, what="retry")

    @classmethod
    def from_json(cls, text: str) -> Retry:
        """Parse the output of to_json."""
        return cls.parse(payload.decode(text, what="retry"))

    def _nominal(
        self, failures: int, error: BaseException | None, report: Report | None
    ) -> float | None:
        if self.backoff == "delays":
            return self.waits[min(failures, len(self.waits)) - 1]
        if self.wait_function is not None:
            try:
                given = (failures, error) if _takes_error(self.wait_function) else (failures,)
                wait = self.wait_function(*given)
                return None if wait is None else parse_duration(wait, what="its wait")
            except Exception as mistake:
                if report is not None:
                    report(mistake)
        try:
            return min(self.cap, self.base * self.factor ** (failures - 1))
        except OverflowError:
            return self.cap if self.base else 0.0


def _takes_error(function: Callable[..., object]) -> bool:
    """Return True if a wait function takes the error as its second argument; raise if it cannot be
    called.

    A second parameter with a default counts only if it is called `error`.
    """
    called = f"function {shown(getattr(function, '__name__', function))}"
    takes = "it takes (failures) or (failures, error)"
    if inspect.iscoroutinefunction(function):
        raise InvalidRetry(f"{called} is async; a wait is computed at once", field="backoff")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some C functions have no signature
        return False
    positional = [
        one
        for one in signature.parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)
    ]
    others = [one for one in positional if one.kind is one.VAR_POSITIONAL]
    second = next(iter([*positional[1:], *others]), None)
    wants_error = second is not None and (second.default is second.empty or second.name == "error")
    try:
        signature.bind(*((1, None) if wants_error else (1,)))
    except TypeError as error:
        raise InvalidRetry(
            f"{called} cannot be called: {error}; {takes}", field="backoff"
        ) from None
    return wants_error


def read_retry_time(asked: RetryLater) -> tuple[Seconds, Instant | None]:
    """Return the delay and the time that a task asked for, one of them 0 or None.

    Raises UsageError for invalid values; the attempt has failed then.
    """
    if asked.delay is not None:
        return parse_duration(asked.delay, what="delay"), None
    at: object = asked.at
    if isinstance(at, datetime):
        return 0.0, from_datetime(at)
    if not _is_number(at) or not 0 <= at <= INSTANT_MAX:
        raise InvalidArguments(
            f"at={shown(at)} is not a time; pass an aware datetime or seconds since 1970",
            field="at",
        )
    return 0.0, float(at)


def _from_mapping(fields: Mapping[str, Any]) -> Retry:
    for key in fields:
        if key not in _KEYS:
            known = sorted(_KEYS)
            hint = suggested(key, known, otherwise=f"it has {', '.join(known)}")
            raise InvalidRetry(f"a retry policy has no {shown(key)}; {hint}", field="retries")
    shared = {k: fields[k] for k in _SHARED_KEYS if k in fields}
    backoff = fields.get("backoff", "delays" if "delays" in fields else "exponential")
    if backoff == "delays" and isinstance(fields.get("delays"), list | tuple):
        return _make(Retry.delays, fields, "delays", *fields["delays"], **shared)
    if backoff == "fixed" and "delay" in fields:
        return _make(Retry.fixed, fields, "delay", fields["delay"], **shared)
    if backoff == "exponential":
        shape = {k: fields[k] for k in ("base", "factor", "cap") if k in fields}
        return _make(Retry.exponential, fields, "base factor cap", **shape, **shared)
    if backoff == "function":
        plain = _make(Retry.exponential, fields, "", **shared)
        return msgspec.structs.replace(plain, backoff="function")
    needs = {"delays": 'a list "delays"', "fixed": 'a duration "delay"'}
    if backoff in ("delays", "fixed"):
        raise InvalidRetry(f"backoff {backoff!r} needs {needs[backoff]}", field=backoff)
    raise InvalidRetry(
        f"backoff {shown(backoff)} is not known; use one of {', '.join(get_args(Backoff)[:3])}",
        field="backoff",
    )


def _make(
    form: Callable[..., Retry], fields: Mapping[str, Any], own: str, /, *args: Any, **kwargs: Any
) -> Retry:
    """Call `form`; reject fields of another form, which would have no effect."""
    foreign = _KEYS - {*_SHARED_KEYS, "backoff", *own.split()}
    for key in fields:
        if key in foreign:
            name = form.__name__
            raise InvalidRetry(
                f"{key!r} has no meaning with {name} backoff; leave it out", field=key
            )
    return form(*args, **kwargs)


def _names(rules: object, what: str) -> tuple[str, ...]:
    if isinstance(rules, str | type) or not isinstance(rules, Iterable):
        rules = (rules,)
    listed = list(cast("Iterable[object]", rules))
    if len(listed) > RETRY_NAMES_MAX:
        raise InvalidRetry(f"{what} has {len(listed)} errors; the limit is {RETRY_NAMES_MAX}")
    names: list[str] = []
    for rule in listed:
        name: object = rule
        if isinstance(rule, type) and issubclass(rule, BaseException):
            name = dotted_name(rule)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise InvalidRetry(
                f"{what}: {shown(listed[len(names)])} is neither an exception class nor its name",
                field=what,
            )
        names.append(name)
    return tuple(names)


def _matches(rules: Sequence[str], names: Sequence[str]) -> bool:
    return any(
        rule == name or ("." not in rule and name.rpartition(".")[2] == rule)
        for rule in rules
        for name in names
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_integer(value: object, what: str, *, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidRetry(
            f"{what}={shown(value)} must be a whole number from 0 to {most}", field=what
        )


def _check_number(value: object, what: str, *, least: int, most: int) -> None:
    if not _is_number(value) or not least <= value <= most:
        raise InvalidRetry(
            f"{what}={shown(value)} must be a number from {least} to {most}", field=what
        )
