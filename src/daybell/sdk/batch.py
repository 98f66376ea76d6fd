"""Batches: a function that takes a list, called with the items of several executions.

Each item is an execution of its own. Executions that start in a worker join a group, which calls
the function when it is full, or when its first item has waited for long enough.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, get_args, get_origin
from weakref import WeakKeyDictionary

import msgspec

from daybell.core import payload
from daybell.core.collapse import parse_key, render_key
from daybell.core.units import Duration, Seconds, parse_duration
from daybell.errors import UsageError, shown
from daybell.runners.python import is_async
from daybell.sdk.context import context_names, current

SIZE_MAX: Final = 10_000
WAIT_DEFAULT: Final = "1s"
NO_FIELDS: Final = dict[str, Any]()


class Batch:
    """The batches of a task: at most `size` items, of which the first waits for `wait` at most.

    With a key, the items of a batch have the same value of it: `Batch(100, key="account")`.
    """

    def __init__(self, size: int, *, wait: Duration = WAIT_DEFAULT, key: str | None = None) -> None:
        if not isinstance(cast("object", size), int) or not 1 <= size <= SIZE_MAX:
            raise UsageError(
                f"batch: size {shown(size)} must be a whole number from 1 to {SIZE_MAX:,}",
                field="batch",
            )
        if key is not None:
            parse_key(key, "batch.key")
        self.size = size
        self.wait: Seconds = parse_duration(wait, what="batch.wait")
        self.key = key

    def __repr__(self) -> str:
        return f"Batch({self.size!r}, wait={self.wait!r}, key={self.key!r})"

    def to_fields(self) -> dict[str, Any]:
        """Return the batch as JSON has it."""
        fields = {"size": self.size, "wait": self.wait, "key": self.key}
        return {name: value for name, value in fields.items() if value is not None}


def read_batch(value: Any) -> Batch:
    """Return a batch that may be given as JSON has it."""
    if isinstance(value, Batch):
        return value
    given = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else NO_FIELDS
    if "size" not in given or given.keys() - {"size", "wait", "key"}:
        said = shown(cast("object", value))
        raise UsageError(
            f"batch={said} is neither a Batch nor an object with size, and wait or key",
            field="batch",
        )
    return Batch(given["size"], wait=given.get("wait", WAIT_DEFAULT), key=given.get("key"))


Joined = tuple[Any, asyncio.Future[Any]]


class Gatherer:
    """Groups of items that wait to be together, and the calls of the function."""

    def __init__(self, function: Callable[..., Any], batch: Batch) -> None:
        self._function = function
        self._batch = batch
        self._key = () if batch.key is None else parse_key(batch.key)
        # Of each event loop: the open groups with their timers.
        self._groups: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[object, tuple[list[Joined], asyncio.TimerHandle]]
        ] = WeakKeyDictionary()
        self._calls: set[asyncio.Task[None]] = set()

    async def join(self, item: Any) -> Any:
        """Add an item, and return its result."""
        loop = asyncio.get_running_loop()
        joined = item, loop.create_future()
        running = current.get()
        if running is None or running.claimed.crashes or running.claimed.failures:
            self._call([joined])  # alone: perhaps it is the cause
        else:
            group = running.claimed.tenant, running.claimed.job, self._key_of(running.claimed.args)
            self._add(loop, group, joined)
        return await joined[1]

    def _key_of(self, args: str) -> str:
        if not self._key:
            return ""
        (item,) = msgspec.json.decode(args, type=dict[str, Any]).values()
        return render_key(self._key, cast("dict[str, Any]", item) if isinstance(item, dict) else {})

    def _add(self, loop: asyncio.AbstractEventLoop, group: object, joined: Joined) -> None:
        groups = self._groups.setdefault(loop, {})
        if group not in groups:
            timer = loop.call_later(self._batch.wait, self._close, loop, group)
            groups[group] = [], timer
        items, _ = groups[group]
        items.append(joined)
        if len(items) >= self._batch.size:
            self._close(loop, group)

    def _close(self, loop: asyncio.AbstractEventLoop, group: object) -> None:
        """Call the function for a group; the next item begins another one."""
        items, timer = self._groups[loop].pop(group)
        timer.cancel()
        self._call(items)

    def _call(self, items: list[Joined]) -> None:
        call = asyncio.get_running_loop().create_task(self._perform(items))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _perform(self, items: list[Joined]) -> None:
        wanted = [one for one in items if not one[1].done()]  # the others were cancelled
        if not wanted:
            return
        values = [item for item, _ in wanted]
        try:
            if is_async(self._function):
                found = await self._function(values)
            else:
                found = await asyncio.to_thread(self._function, values)
            answers = _check_answers(found, len(values))
        except BaseException as error:
            answers = [error] * len(values)
        for (_, future), answer in zip(wanted, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(_as_error(answer))
            else:
                future.set_result(answer)


def _check_answers(found: object, count: int) -> Sequence[Any]:
    """Return the results of a batch, one for each item."""
    if found is None:
        return [None] * count
    if not isinstance(found, list | tuple) or len(cast("Sequence[Any]", found)) != count:
        said = (
            f"{len(cast('Sequence[Any]', found)):,}"
            if isinstance(found, list | tuple)
            else shown(found)
        )
        raise UsageError(
            f"a batch of {count:,} items returned {said}; return a list with a result or an"
            " exception for each item, or None"
        )
    return cast("Sequence[Any]", found)


def _as_error(error: BaseException) -> BaseException:
    """Return an error that a future can have."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"the batch ended with {type(error).__name__}: {error}")


def item_function(function: Callable[..., Any], batch: Batch) -> Callable[..., Any]:
    """Return the function of one item, which a worker calls: it joins a group. Its signature has an
    item in place of the list.
    """
    name = str(getattr(function, "__qualname__", function))
    parameters = inspect.signature(function).parameters
    if len(parameters) != 1 or context_names(function):
        raise UsageError(
            f"{name}() has a batch, so it takes one parameter, the list of items; not"
            f" {', '.join(parameters) or 'none'}",
            field="batch",
        )
    (parameter,) = parameters.values()
    hints = payload.annotations_of(function)
    item = _item_of(hints.get(parameter.name, (Any, Any))[1], name)
    result = _item_of(hints.get("return", (Any, Any))[1], name, default=Any)
    gatherer = Gatherer(function, batch)

    @functools.wraps(function)
    async def join(*args: Any, **kwargs: Any) -> Any:
        (one,) = (*args, *kwargs.values())
        return await gatherer.join(one)

    changed = cast("Any", join)
    del changed.__wrapped__
    changed.__annotations__ = {parameter.name: item, "return": result}
    changed.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=item
            )
        ],
        return_annotation=result,
    )
    changed.of_batch = function
    return join


def _item_of(hint: Any, name: str, default: Any = None) -> Any:
    """Return the type of the items of a list."""
    if hint in (Any, list):
        return Any
    if get_origin(hint) in (list, Sequence):
        (item,) = get_args(hint)
        return item
    if default is not None:
        return default
    raise UsageError(
        f"{name}() has a batch, so its parameter is a list of items, such as list[int], and not"
        f" {shown(hint)}",
        field="batch",
    )
