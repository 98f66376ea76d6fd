"""Python functions as jobs: coroutines on the event loop, the others in threads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, cast

from daybell.core import arguments, payload
from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.references import may_refer
from daybell.core.retry import Retry
from daybell.errors import InvalidArguments, UsageError
from daybell.runners.durable import Durable, Ledger, rewinds
from daybell.runners.threads import Threads

# In a thread, between is_cancelled and the interruption. It is half of what the executor waits for
# what it has stopped: the other half is for what an interrupted function does on its way out.
GRACE_SECONDS: Final = 2.5


class Running(Protocol):
    """What a handler is given: see `engine.handlers.Running`, which this must fit."""

    claimed: Claimed
    is_hopeless: bool
    is_watchful: bool
    durable: Any

    @property
    def ledger(self) -> Ledger | None: ...
    @property
    def is_cancelled(self) -> bool: ...
    @property
    def patience(self) -> Seconds: ...
    def without_secrets(self, text: str) -> str: ...
    def hide(self, values: Iterable[str]) -> None: ...
    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
    ) -> None: ...
    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None: ...
    def print(self, stream: str, text: str) -> None: ...
    async def begin(self) -> Any: ...
    async def undo(self) -> None: ...


RevealArgs = Callable[[Running], Awaitable[dict[str, Any]]]


class PythonHandler:
    """One function with its policies.

    `enter` notes what is running here. `context_names` are the parameters that are given what
    `make_context` makes. `reveal` answers arguments with the secrets that they refer to.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        retry: Retry,
        timeout: Seconds | None,
        store_result: bool,
        context_names: frozenset[str],
        enter: Callable[[Running], object],
        make_context: Callable[[Running], Any],
        threads: Threads,
        reveal: RevealArgs | None = None,
        goes_on: bool = False,
        starts_once: bool = False,
    ) -> None:
        self.retry = retry
        self.timeout = timeout
        self.grace = GRACE_SECONDS
        self.goes_on = goes_on
        self.starts_once = starts_once
        self._function = function
        self._store_result = store_result
        self._context_names = context_names
        self._enter = enter
        self._make_context = make_context
        self._threads = threads
        self._reveal = reveal
        self.is_async = is_async(function)
        self._needs_none = _needs_none(function, context_names)

    async def run(self, running: Running) -> str | None:
        given = None
        text = running.claimed.args
        if self._reveal is not None and text != "{}" and may_refer(text):
            given = await self._reveal(running)
        try:
            value = await self._call(running, given)
        except BaseException as error:
            if running.durable is None:
                raise
            value = await self._go_on(running, given, error)
        if running.durable is not None:
            cast("Durable", running.durable).finish(None)
        return self.keep(running, value)

    async def _call(self, running: Running, given: dict[str, Any] | None) -> Any:
        call = self.bind(running, given)
        if self.is_async:
            return await call()
        value = await self._threads.run(call, patience=lambda: patience_with(running))
        if inspect.isawaitable(value):  # of a coroutine function in a plain decorator
            value = await value
        return value

    async def _go_on(
        self, running: Running, given: dict[str, Any] | None, error: BaseException
    ) -> Any:
        """What a durable function has raised may be a wish to be called again."""
        durable = cast("Durable", running.durable)
        if rewinds(error):
            # What it needs is read now. What it did before that is done again in every attempt.
            await durable.rewind()
            try:
                return await self._call(running, given)
            except BaseException as again:
                error = again
        durable.finish(error)
        raise error

    def bind(self, running: Running, revealed: dict[str, Any] | None = None) -> Callable[[], Any]:
        """The function with its arguments, or with those that were `revealed`. What it runs in is
        noted from here on.
        """
        self._enter(running)
        # Only our own refusals are hopeless: the same errors may come out of the function, too.
        try:
            args, kwargs = self._arguments(running, revealed)
        except UsageError as error:
            running.is_hopeless = True
            if revealed is not None:
                raise _without_values(error) from None
            raise
        return functools.partial(self._function, *args, **kwargs)

    def keep(self, running: Running, value: Any) -> str | None:
        """What is kept of a result."""
        if value is None or not self._store_result:
            return None
        try:
            text = payload.encode(value, what="result", bytes_max=RESULT_BYTES_MAX)
            if text[0] in "[{":  # a set would be among the lists
                arguments.check_result_sets(self._function, value, text, what="result")
            return text
        except UsageError:
            running.is_hopeless = True
            raise

    def _arguments(
        self, running: Running, revealed: dict[str, Any] | None
    ) -> tuple[list[Any], dict[str, Any]]:
        text = running.claimed.args
        if text == "{}" and self._needs_none:
            return [], {}
        given = payload.decode(text, what="args") if revealed is None else revealed
        converted = arguments.convert(self._function, given, skip=self._context_names)
        if self._context_names:
            converted |= dict.fromkeys(self._context_names, self._make_context(running))
        return arguments.spread(self._function, converted)


def _without_values(error: UsageError) -> UsageError:
    """What is wrong with arguments that have secrets in them. A message may show a part of a value,
    which no mask would know.
    """
    which = "its arguments" if error.field is None else f"its argument {error.field!r}"
    return InvalidArguments(
        f"{which} cannot be used as the task declares it; what is wrong is not said, because there"
        " are secrets in what it was called with",
        field=error.field,
    )


def patience_with(running: Running) -> Seconds:
    """How long a thread may take to end by itself, once it is to. One that has never looked whether
    it is to will not now, and has no use for it.
    """
    return running.patience if running.is_watchful else 0.0


def check_function(function: Callable[..., Any]) -> None:
    """Refuse a function that would end before it has begun: calling it only makes a generator."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"{name}() has a yield in it, so calling it does nothing yet; a task does its work"
            " when it is called, and returns its result"
        )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, as far as can be told without."""
    return _is(inspect.iscoroutinefunction, function)


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Ask the function itself and not what it wraps: a decorator may have made another kind of it.

    An object that is used as a function is asked about its method.
    """
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(type(function).__call__)


def _needs_none(function: Callable[..., Any], context_names: frozenset[str]) -> bool:
    """Whether it can be called with nothing at all."""
    if context_names:
        return False
    try:
        arguments.convert(function, {})
    except InvalidArguments:
        return False
    except ValueError:  # some of what is written in C does not tell: the call itself will
        return True
    return True
