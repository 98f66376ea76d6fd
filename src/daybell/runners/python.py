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
from daybell.core.limits import RESULT_BYTES_MAX
from daybell.core.references import may_refer
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.errors import InvalidArguments, UsageError

# Threads for functions that block, one function at a time in each.
#
# The standard pool joins its threads when the interpreter ends, so one function that never
# returns would keep a stopping worker alive for ever. These are daemons, and can be interrupted.

T = TypeVar("T")

PATIENCE_CHECK_SECONDS: Final = 0.1  # patience may end before its time: when a lease is lost


class Interrupted(BaseException):
    """Raised inside a task's thread when the task is to stop. Not to be caught by the task."""


class ThreadCall:
    """One function on its way through a thread."""

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
        """In the thread."""
        result, error = None, None
        try:
            try:
                if not self._begin():
                    return
                result = self._context.run(self._function)
            except BaseException as raised:
                error = raised
            self._end()
        except Interrupted:  # it came when the function had ended already
            self._end()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, result, error)

    async def wait(self) -> None:
        """Until there is an outcome. Cancelling this leaves the function alone."""
        if self.outcome is None:
            self._news = self._loop.create_future()
            await self._news

    @property
    def is_interrupted(self) -> bool:
        return self._is_unwanted

    def interrupt(self) -> None:
        """Raise Interrupted at the function's next step in Python. What blocks in C goes on; what
        still waits for a thread is over, and never begins.

        Only once: `run` could not get out of the way of two.
        """
        with self._lock:
            if self._is_unwanted:
                return
            self._is_unwanted = True
            if self._thread is not None:
                _raise_in(self._thread, Interrupted)
            elif not self._has_begun:
                self.outcome = None, Interrupted()
                del self._function, self._context  # this stays in the queue for who knows how long

    def _begin(self) -> bool:
        with self._lock:
            if self._is_unwanted:
                return False
            self._has_begun = True
            self._thread = threading.get_ident()
            return True

    def _end(self) -> None:
        """Let no interruption come any more: it would hit whatever this thread does next."""
        with self._lock:
            self._thread = None
        if self._is_unwanted:
            _raise_in(threading.get_ident(), None)

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        self.outcome = result, error
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def no_patience() -> Seconds:
    """No patience."""
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
        """Run it in a thread. Cancelling interrupts it, and still waits until it has ended, if it
        has begun. Cancelling once more, as an event loop does that is closed, leaves it to itself.

        Once it is cancelled, `patience` is asked how long it may take to end uninterrupted.
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
        try:
            if isinstance(error, Interrupted):
                raise asyncio.CancelledError
            if isinstance(error, StopIteration):
                # A coroutine cannot raise it; as RuntimeError it means the same to who reads it.
                raise RuntimeError("the task raised StopIteration") from error
            raise error
        finally:
            del error, call  # which hold on to this frame, through the traceback

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
    """Wait for the outcome for as long as there is patience."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while call.outcome is None and (left := begun + patience() - loop.time()) > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(call.wait(), min(left, PATIENCE_CHECK_SECONDS))


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have a thread raise an error at its next step; None takes back what it has not raised yet."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


# What durable functions need of who runs them, and what is asked of them in the end.

Group: TypeAlias = "BaseExceptionGroup[BaseException]"


class StepLedger(Protocol):
    """Where one attempt writes down its steps."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it is written in."""
        ...

    @property
    def has_transaction(self) -> bool:
        """Whether the task's own transaction is open."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the attempt is over."""
        ...

    def now(self) -> Instant:
        """The store's time, as well as it is known here."""
        ...

    def monotonic(self) -> Seconds: ...

    def jitter(self) -> float:
        """A number from 0 up to 1, different each time."""
        ...

    def mask(self, text: str, /) -> str:
        """A text without secrets."""
        ...

    def mask_json(self, text: str, /) -> str:
        """JSON without the secrets in it."""
        ...

    async def recall(self) -> list[Step]:
        """What earlier attempts have written; read for as long as it takes."""
        ...

    async def record(self, steps: Sequence[NewStep]) -> list[Step]:
        """Write steps; when this returns, they are on disk, and this is what is on record of each.

        Raises CancelledError if the execution is not this worker's any more.
        """
        ...


class DurableState(Protocol):
    """What an attempt has done durably, for who runs its function."""

    async def rewind(self) -> None:
        """Read what is on record, and begin with the first step again."""
        ...

    def finish(self, error: BaseException | None) -> None:
        """The function has returned, or raised this. Raises what is wrong with that; Suspended if
        it is to go on in another attempt.
        """
        ...


class Rewind(BaseException):
    """Raised in a function that needs what is on record, where that cannot be waited for: it is
    called again when it was read.
    """


def is_rewind(error: BaseException) -> bool:
    """Whether this is such a wish: of one of several at once, perhaps."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_rewind, cast(Group, error).exceptions))
    return isinstance(error, Rewind)


# In a thread, between is_cancelled and the interruption. It is half of what the executor waits for
# what it has stopped: the other half is for what an interrupted function does on its way out.
GRACE_SECONDS: Final = 2.5


class RunningAttempt(Protocol):
    """The attempt that a handler runs; `engine.attempt.Attempt` implements it."""

    claimed: Claimed
    is_hopeless: bool
    is_watchful: bool
    durable: Any

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
    ) -> None: ...
    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None: ...
    def print(self, stream: str, text: str) -> None: ...
    async def begin(self) -> Any: ...
    async def undo(self) -> None: ...


RevealArgs = Callable[[RunningAttempt], Awaitable[dict[str, Any]]]


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
        """What a durable function has raised may be a wish to be called again."""
        durable = cast("DurableState", running.durable)
        if is_rewind(error):
            # What it needs is read now. What it did before that is done again in every attempt.
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

    def keep(self, running: RunningAttempt, value: Any) -> str | None:
        """What is kept of a result."""
        if value is None or not self._store_result:
            return None
        try:
            text = payload.encode(value, what="result", bytes_max=RESULT_BYTES_MAX)
            if text[0] in "[{":  # a set would be among the lists
                payload.check_result_sets(self._function, value, text, what="result")
            return text
        except UsageError:
            running.is_hopeless = True
            raise

    def _arguments(
        self, running: RunningAttempt, revealed: dict[str, Any] | None
    ) -> tuple[list[Any], dict[str, Any]]:
        text = running.claimed.args
        if text == "{}" and self._needs_none:
            return [], {}
        given = payload.decode(text, what="args") if revealed is None else revealed
        converted = payload.convert(self._function, given, skip=self._context_names)
        if self._context_names:
            converted |= dict.fromkeys(self._context_names, self._make_context(running))
        return payload.spread(self._function, converted)


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


def thread_patience(running: RunningAttempt) -> Seconds:
    """How long a thread may take to end by itself, once it is to. One that has never looked whether
    it is to will not now, and has no use for it.
    """
    return running.patience if running.is_watchful else 0.0


def check_function(function: Callable[..., Any]) -> None:
    """Refuse a function that would end before it has begun: calling it only makes a generator."""
    if _is_kind(inspect.isgeneratorfunction, function) or _is_kind(
        inspect.isasyncgenfunction, function
    ):
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"{name}() has a yield in it, so calling it does nothing yet; a task does its work"
            " when it is called, and returns its result"
        )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, as far as can be told without."""
    return _is_kind(inspect.iscoroutinefunction, function)


def _is_kind(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Ask the function itself and not what it wraps: a decorator may have made another kind of it.

    An object that is used as a function is asked about its method.
    """
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or kind(type(function).__call__)


def _takes_no_arguments(function: Callable[..., Any], context_names: frozenset[str]) -> bool:
    """Whether it can be called with nothing at all."""
    if context_names:
        return False
    try:
        payload.convert(function, {})
    except InvalidArguments:
        return False
    except ValueError:  # some of what is written in C does not tell: the call itself will
        return True
    return True


# What the runners of jobs without code are given.


class MaskedAttempt(RunningAttempt, Protocol):
    """An execution whose secrets can be taken out of a text that is cut before it is kept."""

    lacking: str | None

    def mask(self, text: str) -> str: ...


# Waiting for several things at once. Here, because this is the lowest layer that waits.


async def wait_for_first(*waits: Awaitable[object]) -> None:
    """Return when one of them has come; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
