"""One way to write durable calls, for tasks with an event loop and for those in threads.

A call is a coroutine. With a loop it is awaited by the task. Without one, all that it waits for is
waited for in the thread, so that it runs through in one go.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, cast

from daybell.errors import UsageError, shown
from daybell.runners.python import is_async
from daybell.runners.threads import Interrupted

T = TypeVar("T")

# The step that the code in hand is part of.
in_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("daybell_step", default=None)

LOOK_SECONDS: Final = 0.2  # a thread that waits in C does not hear that it is to stop
LAST_SECONDS: Final = 2.0  # for the last write of one that has heard it


def is_in_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def awaited_or_done(work: Coroutine[Any, Any, T]) -> Any:
    """The coroutine, for code in an event loop; for other code, what it returns."""
    return work if is_in_loop() else done(work)


def done(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but by blocking."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for an event loop, and there is none")


@types.coroutine
def _turn() -> Generator[None]:
    yield


async def turn(times: int = 1) -> None:
    """Let others in the event loop go first, if there is one."""
    for _ in range(times if is_in_loop() else 0):
        await _turn()


class Bridge:
    """The way from wherever a task runs to the worker's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have something done in the worker's loop."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return self._waited(work(), is_to_end=True)
        if here is self._loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def _waited(self, work: Coroutine[Any, Any, T], *, is_to_end: bool = False) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return self._looked_at(future)
        except BaseException:
            if is_to_end:  # what a step has done is on record before it can be done again
                concurrent.futures.wait([future], LAST_SECONDS)
            future.cancel()
            raise

    @staticmethod
    def _looked_at(future: concurrent.futures.Future[T]) -> T:
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except concurrent.futures.CancelledError:
                raise Interrupted from None
            except TimeoutError:
                if future.done():  # then it is the work's own
                    raise

    async def call(
        self, call: Callable[[], Any], in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Any:
        """Call a function where it does no harm: what blocks, in a thread."""
        if not is_in_loop():
            value = call()
            return self._waited(_whole(value)) if inspect.isawaitable(value) else value
        value = call() if is_async(call) else await in_thread(call)
        return await value if inspect.isawaitable(value) else value


async def _whole(value: Any) -> Any:
    return await value


def check_function(function: object) -> Callable[..., Any]:
    """Return what a step calls, of a task its function."""
    from daybell.sdk.task import Task  # which needs the context, which needs this

    if isinstance(function, Task):
        return cast("Task[..., Any, Any]", function).function
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()  # or Python would complain that nobody has awaited it
        raise UsageError(
            "a step is given a function and its arguments, to be called only if it is not on"
            f' record: ctx.step("charge", charge, 42). {shown(cast("object", function))} is none'
        )
    return function


def refuse_in_step(what: str) -> None:
    """Refuse what has no place in a step."""
    outer = in_step.get()
    if outer is not None:
        raise UsageError(
            f"{what} is asked for inside of step {shown(outer)}, which is remembered as a whole and"
            " not run again. Ask for it outside; time and chance inside are the step's own"
        )
