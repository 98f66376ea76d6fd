"""A context for tests that call a function which takes `ctx` directly."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from daybell.client import mint
from daybell.client.requests import Time, read_time
from daybell.core import payload
from daybell.core.event import matches
from daybell.core.execution import Claimed, Failure, Priority
from daybell.core.flow import LimitPause
from daybell.core.limits import RESULT_BYTES_MAX, check_name
from daybell.core.options import read_whole
from daybell.core.retry import Retry
from daybell.core.units import Duration, Instant, Seconds, from_datetime, parse_duration, to_iso
from daybell.errors import UsageError, is_permanent, shown
from daybell.runners.python import StepLedger
from daybell.sdk.context import Context
from daybell.sdk.durable import (
    NO_RETRIES,
    Approval,
    ReceivedEvent,
    check_function,
    convert_result,
    is_in_loop,
    read_received_event,
    run_or_await,
)
from daybell.testing.store import begin_transaction, check_connection

START: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)  # at the begin of a test: a Tuesday noon
INT_MAX: Final = 2**31 - 1


def context(
    *,
    job: str = "job",
    attempt: int = 1,
    failures: int = 0,
    checkpoint: Mapping[str, Any] | None = None,
    cancelled: bool = False,
    scheduled_for: datetime | None = None,
    previous_success: datetime | None = None,
    now: datetime = START,
    events: Mapping[str, Any] | None = None,
    approvals: Mapping[str, bool | Approval] | None = None,
    connection: Any = None,
) -> TestContext:
    """Return a context to call a function with: `report(testing.context(attempt=2))`.

    It needs no store and no worker. Steps run at once, sleeps take no time, and a wait gets the
    value of its name in `events` and `approvals`. `connection` is for `ctx.transaction()`, as for a
    `Bench`.
    """
    check_connection(connection)
    claimed = Claimed(
        id=mint(),
        attempt=read_whole(attempt, "attempt", least=1, most=INT_MAX),
        lease=mint(),
        tenant="default",
        job=check_name(job, what="job"),
        version=1,
        kind="task",
        queue="default",
        priority=Priority.NORMAL,
        args="{}",
        failures=read_whole(failures, "failures", least=0, most=INT_MAX),
        crashes=0,
        created_at=from_datetime(now),
        run_at=from_datetime(now),
        scheduled_for=None if scheduled_for is None else from_datetime(scheduled_for),
        previous_success=None if previous_success is None else from_datetime(previous_success),
        checkpoint=None if checkpoint is None else payload.encode(dict(checkpoint)),
    )
    running = CalledExecution(claimed, is_cancelled=cancelled, now=from_datetime(now))
    return TestContext(running, dict(events or {}), dict(approvals or {}), connection)


class CalledExecution:
    """An execution without a store: see `runners.python.RunningAttempt`."""

    def __init__(self, claimed: Claimed, *, is_cancelled: bool, now: Instant) -> None:
        self.claimed = claimed
        self.is_cancelled = is_cancelled
        self.is_hopeless = False
        self.is_watchful = False
        self.patience: Seconds = 0.0
        self.durable: Any = None
        self.devices: dict[str, list[int]] | None = None
        self.ledger: StepLedger | None = None
        self.now = now
        self.reports: list[tuple[float, str | None]] = []
        self.pauses: list[tuple[str, float]] = []  # of limits

    def without_secrets(self, text: str) -> str:
        return text

    def hide(self, values: Iterable[str]) -> None:
        """Return the text: nothing is stored, so nothing is masked."""

    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
        pause: LimitPause | None = None,
    ) -> None:
        if pause is not None:
            self.pauses.append((pause.name, pause.seconds))
        if progress is not None:
            self.reports.append((progress, note))

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        """Do nothing: no log is stored."""

    def print(self, stream: str, text: str) -> None:
        """Do nothing: no output is stored."""

    async def begin(self) -> Any:
        raise AssertionError("see TestContext.transaction")

    async def undo(self) -> None:
        raise AssertionError("see TestContext.transaction")


class TestContext(Context):
    """A context that keeps the reports of a function, for a test to examine.

    `reports` are the calls of `progress`, as (percent, note); `logged` are those of `log`, as
    (level, message); `steps` are the names of the steps that ran, `sleeps` the lengths of the
    sleeps in seconds. `checkpoint` is as the function left it.
    """

    __test__ = False  # tells pytest that this is no test

    def __init__(
        self,
        running: CalledExecution,
        events: dict[str, Any],
        approvals: dict[str, bool | Approval],
        connection: Any,
    ) -> None:
        super().__init__(running)
        self._called = running
        self._events = events
        self._approvals = approvals
        self._connection = connection
        self._random_count = 0
        self.steps: list[str] = []
        self.sleeps: list[Seconds] = []
        self.logged: list[tuple[str, str]] = []
        self._logger = TaskLogger(f"daybell.task.{self.job}")
        self._logger.parent = logging.getLogger(self._logger.name)  # for caplog
        self._logger.addHandler(LogCapture(self.logged))

    @property
    def reports(self) -> list[tuple[float, str | None]]:
        return self._called.reports

    @property
    def log(self) -> logging.Logger:
        return self._logger

    def cancel(self) -> None:
        """Make `is_cancelled` true from now on."""
        self._called.is_cancelled = True

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return the connection of the test, in a transaction that ends with the block."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Any]:
        transaction = await begin_transaction(
            self._connection, None, call="testing.context(connection=…)"
        )
        try:
            yield transaction.connection
            await transaction.commit()
        finally:
            await transaction.close()

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retries: int | Retry | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the function now. Its result goes through JSON, as in production."""
        name = check_name(name, what="step")
        policy = NO_RETRIES if retries is None else Retry.parse(retries)
        called = check_function(function)
        self.steps.append(name)

        async def call() -> Any:
            value = await _retried(lambda: called(*args, **kwargs), policy)
            if value is None:
                return None
            what = f"the result of step {shown(name)}"
            text = payload.encode(value, what=what, bytes_max=RESULT_BYTES_MAX)
            payload.check_result_sets(called, value, text, what=what)
            return convert_result(called, text)

        return run_or_await(call())

    def sleep(self, delay: Duration, *, name: str = "sleep") -> Any:
        check_name(name, what="sleep")
        return self._pass(parse_duration(delay, what="sleep"))

    def sleep_until(self, at: Time, *, name: str = "sleep") -> Any:
        check_name(name, what="sleep")
        return self._pass(max(0.0, read_time(at, "sleep_until") - self._called.now))

    def _pass(self, seconds: Seconds) -> Any:
        self.sleeps.append(seconds)
        self._called.now += seconds
        return run_or_await(_answer(None))

    def wait_for_event(
        self,
        name: str,
        *,
        match: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        event: ReceivedEvent | None = None
        wanted = payload.encode(dict(match or {}), what="match")
        if name in self._events:
            data = payload.encode(self._events[name], what="data")
            if matches(wanted, data):
                event = self._received(name, payload.decode(data))
        if event is None and timeout is None:
            raise UsageError(
                f"no event {shown(name)} that fits is there, and the function waits for it without"
                f" a timeout: testing.context(events={{{name!r}: …}})"
            )
        return run_or_await(_answer(event))

    def _received(self, name: str, data: Any) -> ReceivedEvent | None:
        text = {"name": name, "data": data, "source": "test", "id": str(mint()), "time": None}
        return read_received_event(
            payload.encode({**text, "received_at": to_iso(self._called.now)})
        )

    def wait_for_approval(self, name: str = "approval", *, timeout: Duration | None = None) -> Any:
        said = self._approvals.get(name)
        if said is None and timeout is None:
            raise UsageError(
                f"nothing is decided about {shown(name)}, and the function waits for it without a"
                f" timeout: testing.context(approvals={{{name!r}: True}})"
            )
        if isinstance(said, bool):
            said = Approval(approved=said)
        if said is None:
            said = Approval(approved=False, timed_out=True)
        return run_or_await(_answer(said))

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._called.now, UTC)

    def random(self) -> float:
        """Return the same numbers in every test: 0.5, 0.25, 0.75, 0.125, …"""
        self._random_count += 1
        number, fraction, result = self._random_count, 0.5, 0.0
        while number:
            result += fraction * (number % 2)
            number, fraction = number // 2, fraction / 2
        return result


class TaskLogger(logging.Logger):
    """Keeps the records that a worker keeps without a set level: all from INFO on."""

    def getEffectiveLevel(self) -> int:
        level = super().getEffectiveLevel()
        return min(level, logging.INFO) if level == logging.getLogger().level else level


class LogCapture(logging.Handler):
    """Keeps the level and the text of records."""

    def __init__(self, logged: list[tuple[str, str]]) -> None:
        super().__init__()
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        self._logged.append((record.levelname.lower(), record.getMessage()))


async def _retried(call: Callable[[], Any], policy: Retry) -> Any:
    """Call a function until it succeeds or must not be retried, without pauses."""
    failures = 0
    while True:
        try:
            value = call()
            if not inspect.isawaitable(value):
                return value
            return await value if is_in_loop() else asyncio.run(_whole(value))
        except Exception as error:
            failures += 1
            names = Failure.from_exception(error, mask=str).names
            may_try = not is_permanent(error) and policy.allows(names)
            if not may_try or policy.has_given_up(failures):
                raise


async def _whole(value: Any) -> Any:
    return await value


def _answer(value: Any) -> Coroutine[Any, Any, Any]:
    async def answer() -> Any:
        return value

    return answer()
