"""Python functions as jobs: coroutines on the event loop, the others in threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from daybell.core import arguments, payload
from daybell.core.execution import Claimed
from daybell.core.instant import Seconds
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.retry import Retry
from daybell.runners.threads import Threads


class Running(Protocol):
    """What a handler is given: see `engine.handlers.Running`, which this must fit."""

    claimed: Claimed

    @property
    def is_cancelled(self) -> bool: ...
    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
    ) -> None: ...


class PythonHandler:
    """One function with its policies.

    `enter` notes what is running here. `context_names` are the parameters that are given what
    `make_context` makes.
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
    ) -> None:
        self.retry = retry
        self.timeout = timeout
        self._function = function
        self._store_result = store_result
        self._context_names = context_names
        self._enter = enter
        self._make_context = make_context
        self._threads = threads
        self._is_async = _is_async(function)

    async def run(self, running: Running) -> str | None:
        self._enter(running)
        args, kwargs = self._arguments(running)
        if self._is_async:
            value = await self._function(*args, **kwargs)
        else:
            value = await self._threads.run(lambda: self._function(*args, **kwargs))
        if value is None or not self._store_result:
            return None
        return payload.encode(value, what="result", bytes_max=RESULT_BYTES_MAX)

    def _arguments(self, running: Running) -> tuple[list[Any], dict[str, Any]]:
        text = running.claimed.args
        if text == "{}" and not self._context_names:
            return [], {}  # what is missing, the call itself will say
        given = payload.decode(text, what="args")
        converted = arguments.convert(self._function, given, skip=self._context_names)
        if self._context_names:
            converted |= dict.fromkeys(self._context_names, self._make_context(running))
        return arguments.spread(self._function, converted)


def _is_async(function: Callable[..., Any]) -> bool:
    function = inspect.unwrap(function)
    method = type(function).__call__  # of an object that is used as a function
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)
