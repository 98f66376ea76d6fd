"""Durable functions: steps that are remembered, sleeps and waits that hold no worker.

Each durable call of an attempt has a place in the order of calls. A later attempt runs the function
from its beginning again. What is on record for a place is answered without being done again, until
the first call that is not on record. So the same calls have to come in the same order; what is on
record says whether they do.

Nothing here waits for time to pass: a call that has to wait raises Suspended, as soon as no other
one is at work, and the next attempt comes back to it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NoReturn, cast

from msgspec.structs import replace

from daybell.core import arguments, payload
from daybell.core.failure import Failure
from daybell.core.instant import Instant, Seconds
from daybell.core.lifecycle import FOR_EVENT, FOR_SLEEP, FOR_STEP
from daybell.core.limits import RESULT_BYTES_MAX, STEPS_CHARS_MAX
from daybell.core.retry import Retry
from daybell.core.step import NewStep, Step, StepKind
from daybell.errors import (
    PayloadTooLarge,
    RetryLater,
    StepsChanged,
    Suspended,
    UsageError,
    is_permanent,
    lasting,
    shown,
)
from daybell.runners.durable import Ledger, Rewind
from daybell.runners.python import Running, patience_with
from daybell.runners.threads import Threads
from daybell.sdk import bridge
from daybell.sdk.remembered import changed, converted, follows, raise_again, suspended_in

logger = logging.getLogger("daybell.worker")

TURNS: Final = 5  # of the event loop, from the end of one call to the next that code may make
NO_RETRIES: Final = Retry(retries=0)

_threads = Threads()


class Durable:
    """The durable calls of one attempt, in their order."""

    def __init__(self, running: Running, ledger: Ledger) -> None:
        self._running = running
        self._ledger = ledger
        self._bridge = bridge.Bridge(ledger.loop)
        # The first attempt knows without asking that nothing is on record.
        self._record: dict[int, Step] | None = {} if running.claimed.attempt == 1 else None
        self._kept_chars = 0  # of results that are on record
        self._begin()

    def _begin(self) -> None:
        self._places = itertools.count(1)
        self._last = 0
        self._unwritten: list[NewStep] = []  # times that were told, to go with the next step
        self._open: dict[int, str] = {}  # calls that have not come to their end
        self._at_work: set[int] = set()
        self._parked: dict[int, Suspended] = {}
        self._rest: asyncio.Event | None = None  # set when no call is at work
        self._changes = 0  # of those at work
        self._suspended: Suspended | None = None
        self._chance: Random | None = None
        self._raised: list[NewStep] = []  # failed steps, from when their errors were raised
        self._raised_before: dict[int, int] = {}  # how many, when a call began
        self._settled = 0  # of them

    # What a task asks for.

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: Retry,
    ) -> Any:
        """Call a function, unless its result is on record."""
        n = self._place(f"step {shown(name)}")
        call = functools.partial(function, *args, **kwargs)
        return bridge.awaited_or_done(self._step(n, name, function, call, policy))

    def sleep(self, name: str, delay: Callable[[], Seconds]) -> Any:
        """Go on after a while; how long is asked for once."""
        return bridge.awaited_or_done(self._sleep(self._place(f"sleep {shown(name)}"), name, delay))

    def wait(
        self, name: str, match: str, timeout: Seconds | None, read: Callable[[str | None], Any]
    ) -> Any:
        """Go on when an event has come; `read` makes of it what is answered."""
        n = self._place(f"wait for {shown(name)}")
        return bridge.awaited_or_done(self._wait(n, name, match, timeout, read))

    def now(self) -> Instant:
        """The time, as it was when an earlier attempt asked at this place."""
        n = self._place("now()")
        del self._open[n]
        if self._record is None and bridge.is_in_loop():
            raise Rewind  # reading takes a while, and there is nobody to await it here
        if self._record is None:
            bridge.done(self._load())
        known = self._known(n, StepKind.NOW, "now")
        if known is not None and known.result is not None:
            return payload.decode(known.result)
        text = payload.encode(round(self._ledger.now(), 6))
        self._unwritten.append(self._new(n, StepKind.NOW, "now", result=text))
        return payload.decode(text)

    def random(self) -> float:
        """A number from 0 up to 1: in every attempt the same ones in the same order."""
        self._check_place("random()")
        if self._chance is None:
            self._chance = Random(self._running.claimed.id.int)
        return self._chance.random()

    # For who runs the function: see `runners.durable.Durable`.

    async def rewind(self) -> None:
        await self._load()
        self._begin()

    def finish(self, error: BaseException | None) -> None:
        suspended = self._suspended
        if suspended is not None:
            if error is not None and not suspended_in(error) and not follows(error, Suspended):
                return  # of several calls at once, another one has failed
            if error is None or not suspended_in(error):
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
            raise StepsChanged(changed(left[0], "the function returns before it"))

    # Places.

    def _place(self, what: str) -> int:
        self._check_place(what)
        self._last = n = next(self._places)
        self._open[n] = what
        self._raised_before[n] = len(self._raised)
        return n

    def _check_place(self, what: str) -> None:
        with lasting():
            bridge.refuse_in_step(what)
            if self._ledger.is_closed:
                raise UsageError(f"{what} is asked for by an attempt that has ended")
            if self._ledger.has_transaction and what not in ("now()", "random()"):
                raise UsageError(
                    f"{what} comes after ctx.transaction() has begun. Steps are on record at once,"
                    " also if the transaction is rolled back: make them before it"
                )

    def _known(self, n: int, kind: StepKind, name: str) -> Step | None:
        """What is on record for a place, if it is what the code asks for there now."""
        assert self._record is not None
        known = self._record.get(n)
        if known is None or (known.kind is kind and known.name == name):
            return known
        raise StepsChanged(changed(known, f"the code does {kind} {shown(name)} there now"))

    async def _load(self) -> None:
        if self._record is None:
            steps = await self._bridge.ask(self._ledger.recall)
            if self._record is None:  # another call may have been quicker
                self._record = {step.n: step for step in steps}
                self._kept_chars = sum(len(step.result or "") for step in steps)

    @contextmanager
    def _working(self, n: int) -> Generator[None]:
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
        """Suspend, but not while others are at work: what they do is not to be done twice."""
        if self._suspended is None:
            self._parked[n] = wish
            if bridge.is_in_loop():
                await bridge.turn()  # several at once have all been begun after that
                self._leave(n)
                await self._quiet()
        if self._suspended is None:
            self._suspended = self._earliest()
        raise self._suspended

    async def _quiet(self) -> None:
        """Until no call is at work, and for some turns none has begun or ended: code that hears of
        an end may begin another, or cancel those that wait.
        """
        seen = -1
        self._rest = self._rest or asyncio.Event()
        while self._at_work or seen != self._changes:
            seen = self._changes
            if self._at_work:
                self._rest.clear()
                await self._rest.wait()
            await bridge.turn(TURNS)

    def _earliest(self) -> Suspended:
        wishes = list(self._parked.values())
        timed = [wish for wish in wishes if wish.at is not None or wish.delay is not None]
        if len(timed) <= 1:
            return (timed or wishes)[0]
        now = self._ledger.now()
        return min(timed, key=lambda wish: now + (wish.delay or 0) if wish.at is None else wish.at)

    # The calls.

    async def _enter(self, n: int, kind: StepKind, name: str) -> Step | None:
        if self._suspended is not None:  # the code cleans up on its way out
            await bridge.turn()
            raise self._suspended
        await self._load()
        return self._known(n, kind, name)

    async def _step(
        self,
        n: int,
        name: str,
        function: Callable[..., Any],
        call: Callable[[], Any],
        policy: Retry,
    ) -> Any:
        with self._working(n):
            known = await self._enter(n, StepKind.STEP, name)
            failures = 0
            if known is not None and known.error is None:
                return converted(function, known.result)
            if known is not None and known.error is not None:
                if known.is_done:  # the function has gone on after it, in an earlier attempt
                    raise_again(known.error)
                failures = known.failures
                names = Failure.of_kept(known.error).names
                if not policy.allows(names) or policy.has_given_up(max(1, failures)):
                    failures = 0
            started = self._ledger.monotonic()
            try:
                value = await self._called(name, call)
            except RetryLater:
                raise
            except Exception as error:
                ran = self._ledger.monotonic() - started
                await self._failed(n, name, error, policy, failures=failures + 1, ran=ran)
            ran = max(0.0, self._ledger.monotonic() - started)
            text = self._kept(name, function, value)
            step = await self._written(self._new(n, StepKind.STEP, name, result=text, ran=ran))
            return converted(function, step.result)

    async def _called(self, name: str, call: Callable[[], Any]) -> Any:
        token = bridge.in_step.set(name)
        try:
            return await self._bridge.call(call, self._in_thread)
        finally:
            bridge.in_step.reset(token)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await _threads.run(call, patience=lambda: patience_with(self._running))

    def _kept(self, name: str, function: Callable[..., Any], value: Any) -> str | None:
        if value is None:
            return None
        what = f"the result of step {shown(name)}"
        with lasting():  # its function has run, and another time would end here, too
            text = payload.encode(value, what=what, bytes_max=RESULT_BYTES_MAX)
            arguments.check_result_sets(function, value, text, what=what)
            self._kept_chars += len(text)
            if self._kept_chars > STEPS_CHARS_MAX:
                raise PayloadTooLarge(
                    f"with {what}, those of all steps of the execution have"
                    f" {self._kept_chars:,} characters; the limit is {STEPS_CHARS_MAX:,}, since"
                    " attempts read them all. Store large ones elsewhere and return their addresses"
                )
        return self._ledger.mask_json(text)

    async def _failed(
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
        await self._written(step)
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
        with self._working(n):
            known = await self._enter(n, StepKind.SLEEP, name)
            if known is None:
                known = await self._written(self._new(n, StepKind.SLEEP, name, delay=delay()))
            wake_at = known.wake_at or 0.0
            # The store gave this out at run_at or later, so that is past by its clock.
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
        with self._working(n):
            known = await self._enter(n, StepKind.WAIT, name)
            if known is None or not known.is_done:
                new = self._new(n, StepKind.WAIT, name, event=name, match=match, timeout=within)
                known = await self._written(new)
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

    async def _written(self, new: NewStep) -> Step:
        unwritten, self._unwritten = self._unwritten, []
        # Who begins a call after an error was raised has built upon that.
        upto = max(self._settled, self._raised_before[new.n])
        unwritten += self._raised[self._settled : upto]
        self._settled = upto
        steps = await self._bridge.ask(functools.partial(self._ledger.record, [*unwritten, new]))
        return steps[-1]


def durable_of(running: Running) -> Durable:
    """What this attempt does durably."""
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
