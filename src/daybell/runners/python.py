"""Python functions as jobs: coroutines run on the event loop, other functions in threads that can
be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from daybell.core import payload
from daybell.core.event import NewStep, Step
from daybell.core.execution import Claimed
from daybell.core.flow import LimitPause
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.references import may_refer
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.errors import InvalidArguments, UsageError

# Threads for blocking functions, one function at a time in each. The standard pool joins its
# threads when the interpreter ends, so one endless function would keep a stopping worker alive for
# ever. These are daemons, and can be interrupted.

T = TypeVar("T")

PATIENCE_CHECK_SECONDS: Final = 0.1  # patience may end before its time: when a lease is lost


class Interrupted(BaseException):
    """Raised inside a task's thread when the task is to stop. Not to be caught by the task."""


class ThreadCall:
    """One call of a function in a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._thread: int | None = None  # set while the function runs
        self._has_begun = False
        self._is_unwanted = False  # it was interrupted, or never begins
        self._news: asyncio.Future[None] | None = None
        self.outcome: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        """Call the function, in the thread."""
        result, error = None, None
        try:
            try:
                if not self._begin():
                    return
                result = self._context.run(self._function)
            except BaseException as raised:
                error = raised
            self._end()
        except Interrupted:  # the function had ended already
            self._end()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(self._deliver, result, error)
        del error  # its traceback leads here

    async def wait(self) -> None:
        """Wait for the outcome. A cancellation does not affect the function."""
        if self.outcome is None:
            self._news = self._loop.create_future()
            await self._news

    @property
    def is_interrupted(self) -> bool:
        return self._is_unwanted

    def interrupt(self) -> None:
        """Raise Interrupted at the function's next step in Python. A blocking call into C
        continues. A call that still waits for a thread never begins.

        Only once: `run` could not handle two.
        """
        with self._lock:
            if self._is_unwanted:
                return
            self._is_unwanted = True
            if self._thread is not None:
                _raise_in(self._thread, Interrupted)
            elif not self._has_begun:
                self.outcome = None, Interrupted()
                del self._function, self._context  # it stays in the queue until a thread is free

    def _begin(self) -> bool:
        with self._lock:
            if self._is_unwanted:
                return False
            self._has_begun = True
            self._thread = threading.get_ident()
            return True

    def _end(self) -> None:
        """Stop interruptions: a later one would hit the next call of this thread.

        One that is still due is raised here. CPython cannot take it back: it would check for it
        before each step of all threads, and never end under a tracer.
        """
        with self._lock:
            self._thread = None
        if self._is_unwanted:
            with contextlib.suppress(Interrupted):
                _raise_in(threading.get_ident(), Interrupted)
                while True:  # until it is raised
                    pass

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        self.outcome = result, error
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def no_patience() -> Seconds:
    """Return no patience."""
    return 0.0


class Threads:
    """As many threads as are busy at once, up to a limit; idle ones wait for more."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._calls: queue.SimpleQueue[ThreadCall] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    async def run(
        self, function: Callable[[], T], *, patience: Callable[[], Seconds] = no_patience
    ) -> T:
        """Call a function in a thread. A cancellation interrupts it, and waits for its end if it
        has begun. A second cancellation, as by a closing event loop, abandons it.

        After a cancellation, `patience` returns the time for which the function may continue
        uninterrupted.
        """
        call = ThreadCall(function)
        self._submit(call)
        while call.outcome is None:
            try:
                await call.wait()
            except asyncio.CancelledError:
                if call.is_interrupted:
                    raise
                try:
                    await _wait_patiently(call, patience)
                finally:
                    call.interrupt()
        result, error = call.outcome
        if error is None:
            return result
        call.outcome = None  # the traceback of the error leads to the frame of the call
        try:
            if isinstance(error, Interrupted):
                raise asyncio.CancelledError
            if isinstance(error, StopIteration):
                # A coroutine cannot raise it; as RuntimeError it has the same meaning.
                raise RuntimeError("the task raised StopIteration") from error
            raise error
        finally:
            del error, call  # which hold this frame through the traceback

    def _submit(self, call: ThreadCall) -> None:
        with self._lock:
            if self._idle == 0 and self._count < self._limit:
                self._count += 1
                name = f"daybell-task-{self._count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
            else:
                self._idle -= 1 if self._idle else 0
        self._calls.put(call)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            call.run()
            del call
            with self._lock:
                self._idle += 1


async def _wait_patiently(call: ThreadCall, patience: Callable[[], Seconds]) -> None:
    """Wait for the outcome while there is patience."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while call.outcome is None and (left := begun + patience() - loop.time()) > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.wait(), min(left, PATIENCE_CHECK_SECONDS))


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in a thread at its next step, in place of one that was not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


# Protocols of durable functions and the code that runs them.

Group: TypeAlias = "BaseExceptionGroup[BaseException]"


class StepLedger(Protocol):
    """The recorded steps of one attempt."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which they are recorded."""
        ...

    @property
    def has_transaction(self) -> bool:
        """True if the task has opened its own transaction."""
        ...

    @property
    def is_closed(self) -> bool:
        """True if the attempt is over."""
        ...

    def now(self) -> Instant:
        """Return the store's time, as estimated here."""
        ...

    def monotonic(self) -> Seconds: ...

    def jitter(self) -> float:
        """Return a number from 0 to below 1, different each time."""
        ...

    def mask(self, text: str, /) -> str:
        """Return a text without secrets."""
        ...

    def mask_json(self, text: str, /) -> str:
        """Return JSON without the secrets in it."""
        ...

    async def recall(self) -> list[Step]:
        """Read the records of earlier attempts, however long that takes."""
        ...

    async def record(self, steps: Sequence[NewStep]) -> list[Step]:
        """Record steps; they are on disk at the return, which has the record of each.

        Raises CancelledError if the execution does not belong to this worker any more.
        """
        ...


class DurableState(Protocol):
    """The durable state of an attempt, for the code that runs its function."""

    async def rewind(self) -> None:
        """Read the record, and start with the first step again."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """Finish a function that returned or raised this. Raises an error of the record, or
        Suspended if another attempt must continue.
        """
        ...


class Rewind(BaseException):
    """Raised in a function that needs the record in a place that cannot wait: the function is
    called again after the record was read.
    """


def is_rewind(error: BaseException) -> bool:
    """True if the exception is a Rewind, or a group with one."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_rewind, cast(Group, error).exceptions))
    return isinstance(error, Rewind)


# In a thread, between is_cancelled and the interruption. Half of the executor's grace: the other
# half is for the cleanup of an interrupted function.
GRACE_SECONDS: Final = 2.5


class RunningAttempt(Protocol):
    """The execution for a handler: see `engine.attempt.Attempt`, which this must match."""

    claimed: Claimed
    is_hopeless: bool
    is_watchful: bool
    durable: Any
    devices: dict[str, list[int]] | None

    @property
    def ledger(self) -> StepLedger | None: ...
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
        pause: LimitPause | None = None,
    ) -> None: ...
    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None: ...
    def print(self, stream: str, text: str) -> None: ...
    async def begin(self) -> Any: ...
    async def undo(self) -> None: ...


RevealArgs = Callable[[RunningAttempt], Awaitable[dict[str, Any]]]


class PythonHandler:
    """Handler of one function with its policies.

    `enter` records the running execution. `context_names` are the parameters that receive the
    result of `make_context`. `reveal` returns arguments with their secrets.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        retry: Retry,
        timeout: Seconds | None,
        store_result: bool,
        context_names: frozenset[str],
        enter: Callable[[RunningAttempt], object],
        make_context: Callable[[RunningAttempt], Any],
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
        self._needs_none = _takes_no_arguments(function, context_names)

    async def run(self, running: RunningAttempt) -> str | None:
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
            cast("DurableState", running.durable).finish(None)
        return self.keep(running, value)

    async def _call(self, running: RunningAttempt, given: dict[str, Any] | None) -> Any:
        call = self.bind(running, given)
        if self.is_async:
            return await call()
        value = await self._threads.run(call, patience=lambda: thread_patience(running))
        if inspect.isawaitable(value):  # of a coroutine function in a plain decorator
            value = await value
        return value

    async def _go_on(
        self, running: RunningAttempt, given: dict[str, Any] | None, error: BaseException
    ) -> Any:
        """Handle the exception of a durable function: a Rewind calls it again."""
        durable = cast("DurableState", running.durable)
        if is_rewind(error):
            # Read the record now. The code before that point runs again in every attempt.
            await durable.rewind()
            try:
                return await self._call(running, given)
            except BaseException as again:
                error = again
        durable.finish(error)
        raise error

    def bind(
        self, running: RunningAttempt, revealed: dict[str, Any] | None = None
    ) -> Callable[[], Any]:
        """Bind the function to its arguments, or to the `revealed` ones. Records the running
        execution for its context.
        """
        self._enter(running)
        # Only errors of Daybell are permanent: the function may raise the same class.
        try:
            args, kwargs = self._arguments(running, revealed)
        except UsageError as error:
            running.is_hopeless = True
            if revealed is not None:
                raise _without_values(error) from None
            raise
        return functools.partial(self._function, *args, **kwargs)

    def keep(self, running: RunningAttempt, value: Any) -> str | None:
        """Convert a result for the store."""
        if value is None or not self._store_result:
            return None
        try:
            text = payload.encode(value, what="result", bytes_max=RESULT_BYTES_MAX)
            if text[0] in "[{":  # a set would become a list
                payload.check_result_sets(self._function, value, text, what="result")
            return text
        except UsageError:
            running.is_hopeless = True
            raise

    @functools.cached_property
    def _reader(self) -> payload.CallReader:
        return payload.call_reader(self._function, self._context_names)

    def _arguments(
        self, running: RunningAttempt, revealed: dict[str, Any] | None
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        text = running.claimed.args
        if text == "{}" and self._needs_none:
            return (), {}
        make_context = functools.partial(self._make_context, running)
        if revealed is None:
            return self._reader.read(text, make_context)
        return self._reader.arrange(revealed, make_context)


def _without_values(error: UsageError) -> UsageError:
    """Describe invalid arguments with secrets in them. A message may show a part of a value, which
    masks would not find.
    """
    which = "its arguments" if error.field is None else f"its argument {error.field!r}"
    return InvalidArguments(
        f"{which} cannot be used as the task declares it; what is wrong is not said, because there"
        " are secrets in what it was called with",
        field=error.field,
    )


def thread_patience(running: RunningAttempt) -> Seconds:
    """Return how long a thread may take to end by itself after a stop request. A function that has
    never read `is_cancelled` gets no time.
    """
    return running.patience if running.is_watchful else 0.0


def check_function(function: Callable[..., Any]) -> None:
    """Refuse a generator function: a call would only make a generator."""
    if _is_kind(inspect.isgeneratorfunction, function) or _is_kind(
        inspect.isasyncgenfunction, function
    ):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"{name}() has a yield in it, so calling it does nothing yet; a task does its work"
            " when it is called, and returns its result"
        )


def is_async(function: Callable[..., Any]) -> bool:
    """True if a call makes a coroutine, as far as can be known without one."""
    return _is_kind(inspect.iscoroutinefunction, function)


def _is_kind(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Examine the function itself and not the wrapped one, since a decorator may have changed its
    kind. Of a callable object its method counts.
    """
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(type(function).__call__)


def _takes_no_arguments(function: Callable[..., Any], context_names: frozenset[str]) -> bool:
    """True if it can be called without arguments."""
    if context_names:
        return False
    try:
        payload.convert(function, {})
    except InvalidArguments:
        return False
    except ValueError:  # some functions in C have no signature: the call itself decides
        return True
    return True


# The execution as runners of jobs without code see it.


class MaskedAttempt(RunningAttempt, Protocol):
    """An execution that removes secrets from a text before the text is cut."""

    lacking: str | None

    def mask(self, text: str) -> str: ...


# Waiting for several things at once. Here, because this is the lowest layer that waits.


async def wait_for_first(*waits: Awaitable[object]) -> None:
    """Wait for the first of several; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
