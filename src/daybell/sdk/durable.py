"""Durable functions: recorded steps, and sleeps and waits that occupy no worker. Each durable call
of an attempt has a position. A later attempt that makes the same call gets the recorded result.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import itertools
import logging
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from daybell.core import payload
from daybell.core.event import NewStep, Step, StepKind
from daybell.core.execution import Failure
from daybell.core.lifecycle import FOR_EVENT, FOR_SLEEP, FOR_STEP
from daybell.core.limits import RESULT_BYTES_MAX, STEPS_CHARS_MAX
from daybell.core.monitoring import observers
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.errors import (
    PayloadTooLarge,
    RetryLater,
    StepFailed,
    StepsChanged,
    Suspended,
    UsageError,
    is_permanent,
    lasting,
    shown,
)
from daybell.runners.python import (
    Interrupted,
    Rewind,
    RunningAttempt,
    StepLedger,
    Threads,
    is_async,
    thread_patience,
)

# Durable calls are coroutines. In an event loop the task awaits them. In a thread they block at
# every wait, and so run in one go.

T = TypeVar("T")

# The name of the enclosing step.
in_step: contextvars.ContextVar[str | None] = contextvars.ContextVar("daybell_step", default=None)

LOOK_SECONDS: Final = 0.2  # a thread that blocks in C notices a stop only between these waits
LAST_SECONDS: Final = 2.0  # for the last write of a stopped thread


def is_in_loop() -> bool:
    """Return True if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_or_await(work: Coroutine[Any, Any, T]) -> Any:
    """Return the coroutine in an event loop; elsewhere run it and return its result."""
    return work if is_in_loop() else run_blocking(work)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only blocks."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine waits for an event loop, and there is none")


@types.coroutine
def _yield_once() -> Generator[None]:
    yield


async def yield_turns(times: int = 1) -> None:
    """Yield to other tasks of the event loop, if there is one."""
    for _ in range(times if is_in_loop() else 0):
        await _yield_once()


class Bridge:
    """Runs coroutines in the worker's event loop, for a task in any loop or thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the worker's loop."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return self._wait_in_thread(work(), is_to_end=True)
        if here is self._loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._loop))

    def _wait_in_thread(self, work: Coroutine[Any, Any, T], *, is_to_end: bool = False) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return self._poll(future)
        except BaseException:
            if is_to_end:  # a step is recorded before it can run again
                concurrent.futures.wait([future], LAST_SECONDS)
            future.cancel()
            raise

    @staticmethod
    def _poll(future: concurrent.futures.Future[T]) -> T:
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except concurrent.futures.CancelledError:
                raise Interrupted from None
            except TimeoutError:
                if future.done():  # the error of the work itself
                    raise

    async def call(
        self, call: Callable[[], Any], in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Any:
        """Call a function: in a thread if it blocks."""
        if not is_in_loop():
            value = call()
            return (
                self._wait_in_thread(_await_value(value)) if inspect.isawaitable(value) else value
            )
        value = call() if is_async(call) else await in_thread(call)
        return await value if inspect.isawaitable(value) else value


async def _await_value(value: Any) -> Any:
    return await value


class WrappedFunction:
    """A job that is made of a function, such as a task."""

    function: Any


def check_function(function: object) -> Callable[..., Any]:
    """Return the function of a step; that of a task if it is one."""
    if isinstance(function, WrappedFunction):
        return function.function
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()  # avoids the warning of a coroutine that was never awaited
        raise UsageError(
            "a step is given a function and its arguments, to be called only if it is not on"
            f' record: ctx.step("charge", charge, 42). {shown(cast("object", function))} is none'
        )
    return function


def refuse_in_step(what: str) -> None:
    """Reject a durable call inside a step."""
    outer = in_step.get()
    if outer is not None:
        raise UsageError(
            f"{what} is asked for inside of step {shown(outer)}, which is remembered as a whole and"
            " not run again. Ask for it outside; time and chance inside are the step's own"
        )


# Recorded results and errors.

Group: TypeAlias = "BaseExceptionGroup[BaseException]"


def convert_result(function: Callable[..., Any], text: str | None) -> Any:
    """Convert a recorded result, also right after the step: later attempts get the same value."""
    value = None if text is None else payload.decode(text, what="result")
    try:
        return payload.convert_result(function, value)
    except (ValueError, TypeError):  # some C functions have no signature
        return value


def describe_change(known: Step, fact: str) -> str:
    """Describe a difference between the code and the record."""
    return (
        f"the code of this durable function has changed since an earlier attempt: {known.kind}"
        f" {shown(known.name)} is on record as its call {known.n}, but {fact}. Either put the"
        " code back that it began with, and retry it; or discard it (or cancel it, if it is not"
        " dead), and start a new execution"
    )


def raise_again(error: str) -> NoReturn:
    """Raise the recorded error of a step: its class, by name, and its message."""
    failure = Failure.of_kept(error)
    raise _build_exception(failure) or StepFailed(failure.message, type=failure.type)


def _build_exception(failure: Failure) -> Exception | None:
    """Create an exception of the recorded class without its __init__, and without imports."""
    kind = _find_class(failure.names[0].split("."))
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return None
    try:
        made = kind.__new__(kind, failure.message)
        made.args = (failure.message,)
        str(made)  # may fail without the attributes of __init__
    except Exception:
        return None
    return made


def _find_class(path: list[str]) -> object:
    for end in range(len(path) - 1, 0, -1):
        found: object = sys.modules.get(".".join(path[:end]))
        if found is not None:
            for name in path[end:]:
                found = getattr(found, name, None)
            return found
    return None


def is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Return True if the error was raised while an exception of this type was handled."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, kind):
        seen = seen.__cause__ or seen.__context__
    return seen is not None


def is_suspension(error: BaseException) -> bool:
    """Return True for a suspension, or a group of suspensions."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_suspension, cast(Group, error).exceptions))
    return isinstance(error, Suspended)


logger = logging.getLogger("daybell.worker")

TURNS: Final = 5  # turns of the event loop between the end of one call and the start of the next
NO_RETRIES: Final = Retry(retries=0)

_threads = Threads()


class Durable:
    """The durable calls of one attempt, in their order."""

    def __init__(self, running: RunningAttempt, ledger: StepLedger) -> None:
        self._running = running
        self._ledger = ledger
        self._bridge = Bridge(ledger.loop)
        # Before the first attempt nothing is recorded.
        self._record: dict[int, Step] | None = {} if running.claimed.attempt == 1 else None
        self._kept_chars = 0  # size of the recorded results
        self._reset()

    def _reset(self) -> None:
        self._places = itertools.count(1)
        self._last = 0
        self._unwritten: list[NewStep] = []  # values of now(), recorded with the next step
        self._open: dict[int, str] = {}  # calls that have not ended
        self._at_work: set[int] = set()
        self._parked: dict[int, Suspended] = {}
        self._rest: asyncio.Event | None = None  # set when no call is at work
        self._changes = 0  # of `_at_work`
        self._suspended: Suspended | None = None
        self._chance: Random | None = None
        self._raised: list[NewStep] = []  # failed steps, after their errors were raised
        self._raised_before: dict[int, int] = {}  # their number at the start of a call
        self._settled = 0  # the number of those on record

    # Operations of the context.

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: Retry,
    ) -> Any:
        """Call a function, unless its result is recorded."""
        n = self._place(f"step {shown(name)}")
        call = functools.partial(function, *args, **kwargs)
        return run_or_await(self._step(n, name, function, call, policy))

    def sleep(self, name: str, delay: Callable[[], Seconds]) -> Any:
        """Continue after a delay, which is computed once."""
        return run_or_await(self._sleep(self._place(f"sleep {shown(name)}"), name, delay))

    def wait(
        self, name: str, match: str, timeout: Seconds | None, read: Callable[[str | None], Any]
    ) -> Any:
        """Continue after an event; `read` converts it to the result."""
        n = self._place(f"wait for {shown(name)}")
        return run_or_await(self._wait(n, name, match, timeout, read))

    def now(self) -> Instant:
        """Return the time, as recorded by an earlier attempt at this position."""
        n = self._place("now()")
        del self._open[n]
        if self._record is None and is_in_loop():
            raise Rewind  # the record must be read first, which cannot be awaited here
        if self._record is None:
            run_blocking(self._load())
        known = self._find_recorded(n, StepKind.NOW, "now")
        if known is not None and known.result is not None:
            return payload.decode(known.result)
        text = payload.encode(round(self._ledger.now(), 6))
        self._unwritten.append(self._new(n, StepKind.NOW, "now", result=text))
        return payload.decode(text)

    def random(self) -> float:
        """Return a number from 0 up to 1: the same sequence in every attempt."""
        self._check_place("random()")
        if self._chance is None:
            self._chance = Random(self._running.claimed.id.int)
        return self._chance.random()

    # For the runner: see `runners.python.DurableState`.

    async def rewind(self) -> None:
        await self._load()
        self._reset()

    def finish(self, error: BaseException | None) -> None:
        suspended = self._suspended
        if suspended is not None:
            if (
                error is not None
                and not is_suspension(error)
                and not is_caused_by(error, Suspended)
            ):
                return  # another concurrent call failed
            if error is None or not is_suspension(error):
                with lasting():
                    raise UsageError(
                        f"{suspended.what} has suspended the execution, and its code went on all"
                        " the same. Let `Suspended` pass: catch `Exception` instead of everything,"
                        " and of several calls at once, wait for all"
                    ) from error
            raise suspended
        if error is not None:
            return
        if self._open:
            n, what = next(iter(self._open.items()))
            with lasting():
                raise UsageError(
                    f"{what} (call {n}) was begun and its end was not waited for; write `await`"
                    " before it, or gather all before the function returns"
                )
        left = [step for n, step in (self._record or {}).items() if n > self._last]
        if left:
            raise StepsChanged(describe_change(left[0], "the function returns before it"))

    # Positions.

    def _place(self, what: str) -> int:
        self._check_place(what)
        self._last = n = next(self._places)
        self._open[n] = what
        self._raised_before[n] = len(self._raised)
        return n

    def _check_place(self, what: str) -> None:
        with lasting():
            refuse_in_step(what)
            if self._ledger.is_closed:
                raise UsageError(f"{what} is asked for by an attempt that has ended")
            if self._ledger.has_transaction and what not in ("now()", "random()"):
                raise UsageError(
                    f"{what} comes after ctx.transaction() has begun. Steps are on record at once,"
                    " also if the transaction is rolled back: make them before it"
                )

    def _find_recorded(self, n: int, kind: StepKind, name: str) -> Step | None:
        """Return the recorded step of a position; raise if the code makes another call there."""
        assert self._record is not None
        known = self._record.get(n)
        if known is None or (known.kind is kind and known.name == name):
            return known
        raise StepsChanged(describe_change(known, f"the code does {kind} {shown(name)} there now"))

    async def _load(self) -> None:
        if self._record is None:
            steps = await self._bridge.ask(self._ledger.recall)
            if self._record is None:  # unless a concurrent call was faster
                self._record = {step.n: step for step in steps}
                self._kept_chars = sum(len(step.result or "") for step in steps)

    @contextmanager
    def _track(self, n: int) -> Generator[None]:
        self._at_work.add(n)
        self._changes += 1
        try:
            yield
        finally:
            self._open.pop(n, None)
            self._parked.pop(n, None)
            self._leave(n)

    def _leave(self, n: int) -> None:
        self._at_work.discard(n)
        self._changes += 1
        if not self._at_work and self._rest is not None:
            self._rest.set()

    async def _park(self, n: int, wish: Suspended) -> NoReturn:
        """Suspend when no other call is at work, so that none has to be repeated."""
        if self._suspended is None:
            self._parked[n] = wish
            if is_in_loop():
                await yield_turns()  # lets concurrent calls start first
                self._leave(n)
                await self._quiet()
        if self._suspended is None:
            self._suspended = self._earliest()
        raise self._suspended

    async def _quiet(self) -> None:
        """Wait until no call has been at work for some turns: code may react to the end of a call
        with another call, or cancel waiting ones.
        """
        seen = -1
        self._rest = self._rest or asyncio.Event()
        while self._at_work or seen != self._changes:
            seen = self._changes
            if self._at_work:
                self._rest.clear()
                await self._rest.wait()
            await yield_turns(TURNS)

    def _earliest(self) -> Suspended:
        wishes = list(self._parked.values())
        timed = [wish for wish in wishes if wish.at is not None or wish.delay is not None]
        if len(timed) <= 1:
            return (timed or wishes)[0]
        now = self._ledger.now()
        return min(timed, key=lambda wish: now + (wish.delay or 0) if wish.at is None else wish.at)

    # Calls.

    async def _enter(self, n: int, kind: StepKind, name: str) -> Step | None:
        if self._suspended is not None:  # the code cleans up after a suspension
            await yield_turns()
            raise self._suspended
        await self._load()
        return self._find_recorded(n, kind, name)

    async def _step(
        self,
        n: int,
        name: str,
        function: Callable[..., Any],
        call: Callable[[], Any],
        policy: Retry,
    ) -> Any:
        with self._track(n):
            known = await self._enter(n, StepKind.STEP, name)
            failures = 0
            if known is not None and known.error is None:
                return convert_result(function, known.result)
            if known is not None and known.error is not None:
                if known.is_done:  # an earlier attempt continued after the error
                    raise_again(known.error)
                failures = known.failures
                names = Failure.of_kept(known.error).names
                if not policy.allows(names) or policy.has_given_up(max(1, failures)):
                    failures = 0
            started = self._ledger.monotonic()
            try:
                value = await self._call(name, call)
            except RetryLater:
                raise
            except Exception as error:
                ran = self._ledger.monotonic() - started
                await self._record_failure(n, name, error, policy, failures=failures + 1, ran=ran)
            ran = max(0.0, self._ledger.monotonic() - started)
            text = self._encode_result(name, function, value)
            step = await self._write(self._new(n, StepKind.STEP, name, result=text, ran=ran))
            return convert_result(function, step.result)

    async def _call(self, name: str, call: Callable[[], Any]) -> Any:
        token = in_step.set(name)
        try:
            if not observers.active:
                return await self._bridge.call(call, self._in_thread)
            with observers.stepping(name, self._ledger.mask):
                return await self._bridge.call(call, self._in_thread)
        finally:
            in_step.reset(token)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await _threads.run(call, patience=lambda: thread_patience(self._running))

    def _encode_result(self, name: str, function: Callable[..., Any], value: Any) -> str | None:
        if value is None:
            return None
        what = f"the result of step {shown(name)}"
        with lasting():  # a retry would end here, too
            text = payload.encode(value, what=what, bytes_max=RESULT_BYTES_MAX)
            payload.check_result_sets(function, value, text, what=what)
            self._kept_chars += len(text)
            if self._kept_chars > STEPS_CHARS_MAX:
                raise PayloadTooLarge(
                    f"with {what}, those of all steps of the execution have"
                    f" {self._kept_chars:,} characters; the limit is {STEPS_CHARS_MAX:,}, since"
                    " attempts read them all. Store large ones elsewhere and return their addresses"
                )
        return self._ledger.mask_json(text)

    async def _record_failure(
        self, n: int, name: str, error: Exception, policy: Retry, *, failures: int, ran: Seconds
    ) -> NoReturn:
        failure = Failure.from_exception(error, mask=self._ledger.mask)
        step = self._new(
            n,
            StepKind.STEP,
            name,
            error=failure.to_json(),
            failures=failures,
            is_done=False,
            ran=max(0.0, ran),
        )
        await self._write(step)
        delay = None if is_permanent(error) else self._delay(policy, failures, failure, error)
        if delay is None:
            self._raised.append(replace(step, is_done=True))
            raise error
        await self._park(n, Suspended(f"step {shown(name)}", reason=FOR_STEP, delay=delay))

    def _delay(
        self, policy: Retry, failures: int, failure: Failure, error: Exception
    ) -> Seconds | None:
        if not policy.allows(failure.names):
            return None
        return policy.delay(
            max(1, failures),
            jitter=self._ledger.jitter(),
            error=error,
            report=lambda mistake: logger.warning(
                "the retry function of a step failed, so the default wait is used: %r", mistake
            ),
        )

    async def _sleep(self, n: int, name: str, delay: Callable[[], Seconds]) -> None:
        with self._track(n):
            known = await self._enter(n, StepKind.SLEEP, name)
            if known is None:
                known = await self._write(self._new(n, StepKind.SLEEP, name, delay=delay()))
            wake_at = known.wake_at or 0.0
            # The store returns the execution at run_at at the earliest, by its own clock.
            if max(self._ledger.now(), self._running.claimed.run_at) < wake_at:
                await self._park(n, Suspended(f"sleep {shown(name)}", reason=FOR_SLEEP, at=wake_at))

    async def _wait(
        self,
        n: int,
        name: str,
        match: str,
        within: Seconds | None,
        read: Callable[[str | None], Any],
    ) -> Any:
        with self._track(n):
            known = await self._enter(n, StepKind.WAIT, name)
            if known is None or not known.is_done:
                new = self._new(n, StepKind.WAIT, name, event=name, match=match, timeout=within)
                known = await self._write(new)
            if not known.is_done:
                await self._park(n, Suspended(f"the wait for {shown(name)}", reason=FOR_EVENT))
            return read(known.result)

    def _new(self, n: int, kind: StepKind, name: str, **fields: Any) -> NewStep:
        claimed = self._running.claimed
        return NewStep(
            id=claimed.id,
            attempt=claimed.attempt,
            lease=claimed.lease,
            n=n,
            name=name,
            kind=kind,
            **fields,
        )

    async def _write(self, new: NewStep) -> Step:
        unwritten, self._unwritten = self._unwritten, []
        # A call after a raised error depends on it: record the error as final.
        upto = max(self._settled, self._raised_before[new.n])
        unwritten += self._raised[self._settled : upto]
        self._settled = upto
        steps = await self._bridge.ask(functools.partial(self._ledger.record, [*unwritten, new]))
        return steps[-1]


def durable_of(running: RunningAttempt) -> Durable:
    """Return the durable state of this attempt."""
    if running.durable is None:
        ledger = running.ledger
        with lasting():
            if ledger is None:
                raise UsageError(
                    "steps, sleeps and waits are not for tasks in a process of their own; leave out"
                    ' isolation="process", and give what needs it to a task that this one enqueues'
                )
        running.durable = Durable(running, ledger)
    return cast("Durable", running.durable)


# Events for durable functions.


@dataclass(frozen=True, kw_only=True)
class ReceivedEvent:
    """An event that ended a wait."""

    name: str
    data: Any
    source: str
    id: str
    time: datetime | None  # of the event, if the sender specified it
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class Approval:
    """The decision of a person; true if approved."""

    approved: bool
    by: str | None = None
    note: str | None = None
    timed_out: bool = False  # no decision in time

    def __bool__(self) -> bool:
        return self.approved


def read_received_event(result: str | None) -> ReceivedEvent | None:
    """Parse the event that ended a wait; None after a timeout."""
    if result is None:
        return None
    event = payload.decode(result, what="event")
    return ReceivedEvent(
        name=event["name"],
        data=event["data"],
        source=event["source"],
        id=event["id"],
        time=None if event["time"] is None else datetime.fromisoformat(event["time"]),
        received_at=datetime.fromisoformat(event["received_at"]),
    )


def read_approval(result: str | None) -> Approval:
    """Parse a decision. An event without a decision does not approve."""
    event = read_received_event(result)
    if event is None:
        return Approval(approved=False, timed_out=True)
    said = cast("dict[str, Any]", event.data) if isinstance(event.data, dict) else {}
    by, note = said.get("by"), said.get("note")
    return Approval(
        approved=said.get("approved") is True,
        by=by if isinstance(by, str) else None,
        note=note if isinstance(note, str) else None,
    )
