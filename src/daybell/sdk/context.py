"""The context of a running task: execution, progress, checkpoint, durable calls, transaction."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from daybell.client.events import approval_event
from daybell.client.requests import Time, read_time
from daybell.core import payload
from daybell.core.event import check_match, check_words
from daybell.core.execution import MASKED_CHARS_MAX
from daybell.core.flow import LimitPause
from daybell.core.limits import EVENT_NAME_CHARS_MAX, check_name
from daybell.core.retry import Retry
from daybell.core.units import Duration, Seconds, parse_duration, parse_limit
from daybell.errors import UsageError, lasting, shown
from daybell.runners.python import RunningAttempt
from daybell.sdk.durable import (
    NO_RETRIES,
    check_function,
    durable_of,
    read_approval,
    read_received_event,
    refuse_in_step,
)

P = ParamSpec("P")
R = TypeVar("R")
H_co = TypeVar("H_co", covariant=True)
H = TypeVar("H")


class Enqueueing(Protocol[P, H_co]):
    """A task that a context can enqueue."""

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> H_co: ...


# The running execution. Executions that it enqueues become its children.
current: contextvars.ContextVar[RunningAttempt | None] = contextvars.ContextVar(
    "daybell", default=None
)


@dataclass(frozen=True, kw_only=True)
class CurrentExecution:
    """The execution that runs the calling code."""

    execution_id: UUID
    job: str
    attempt: int
    tenant: str
    queue: str
    run_id: UUID | None = None  # of a workflow node
    node: str | None = None  # of a workflow node

    @property
    def id(self) -> UUID:
        """The execution's id, by the name of `Context.id`."""
        return self.execution_id


def current_execution() -> CurrentExecution | None:
    """Return the execution that runs the calling code; None outside of tasks.

    Threads of a task need a copy of its context, as `asyncio.to_thread` makes.
    """
    running = current.get()
    if running is None:
        return None
    claimed = running.claimed
    return CurrentExecution(
        execution_id=claimed.id,
        job=claimed.job,
        attempt=claimed.attempt,
        tenant=claimed.tenant,
        queue=claimed.queue,
        run_id=None if claimed.node is None else claimed.parent,
        node=claimed.node,
    )


class Context:
    """The context of a task, for its parameter of this type. It is safe to use from threads."""

    def __init__(self, running: RunningAttempt) -> None:
        self._running = running
        self._checkpoint: Checkpoint | None = None

    @property
    def id(self) -> UUID:
        """The execution's id, the same in all attempts."""
        return self._running.claimed.id

    @property
    def job(self) -> str:
        return self._running.claimed.job

    @property
    def run_id(self) -> UUID | None:
        """The id of the workflow run, for a node."""
        claimed = self._running.claimed
        return None if claimed.node is None else claimed.parent

    @property
    def node(self) -> str | None:
        """The label of the workflow node, such as "extract", or "process[17]" for an item."""
        return self._running.claimed.node

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. It rises with every attempt; numbers of attempts that
        did not start are skipped. Failures are counted in `failures`.
        """
        return self._running.claimed.attempt

    @property
    def failures(self) -> int:
        """The number of failures so far, which the retry policy counts."""
        return self._running.claimed.failures

    @property
    def devices(self) -> dict[str, list[int]]:
        """The numbers of the devices of this execution, by resource: `{"gpu": [1]}`."""
        return dict(self._running.devices or {})

    @property
    def scheduled_for(self) -> datetime | None:
        """The nominal time of the schedule's tick; None without a schedule."""
        at = self._running.claimed.scheduled_for
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def previous_success(self) -> datetime | None:
        """The nominal time of the schedule's last successful tick; None if there is none.

        A report covers the time since then.
        """
        at = self._running.claimed.previous_success
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def is_cancelled(self) -> bool:
        """True if the task should stop: cancelled, timed out, or the worker is shutting down.

        A function in a thread that polls this gets 2.5 s to end before it is interrupted; another
        one is interrupted at once.
        """
        self._running.is_watchful = True
        return self._running.is_cancelled

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(f"daybell.task.{self.job}")

    def progress(self, percent: float, note: str | None = None) -> None:
        """Set the progress. It is written a moment later, in a batch."""
        try:
            is_percentage = 0 <= percent <= 100
        except TypeError:
            is_percentage = False
        if not is_percentage:
            raise UsageError(
                f"progress {shown(percent)} must be a number from 0 to 100", field="progress"
            )
        if note is not None:
            # The limit of masks; the final cut comes after them.
            note = note[:MASKED_CHARS_MAX].encode("utf-8", "replace").decode()
            note = note.replace("\0", " ")
        self._running.report(progress=float(percent), note=note)

    @property
    def limits(self) -> TaskLimits:
        """The limits of the job: `ctx.limits["stripe"].pause("30s")` lets no execution start that
        needs it, for the same value of its key. Running executions go on.
        """
        return TaskLimits(self._running)

    @property
    def checkpoint(self) -> Checkpoint:
        """A dictionary that the next attempt gets in its last state."""
        if self._checkpoint is None:
            text = self._running.claimed.checkpoint
            self._checkpoint = Checkpoint(self._running, payload.decode(text) if text else {})
        return self._checkpoint

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Begin a transaction in the store's database, on an asyncpg connection, that commits
        together with the end of this execution: `async with ctx.transaction() as connection: …`.

        It stays open after the block until the task returns; then the writes and the end are one
        commit. If the task fails, is stopped, or has lost its lease, nothing is written. One per
        execution; it needs a PostgreSQL store.
        """
        with lasting():
            refuse_in_step("ctx.transaction()")
        return Transaction(self._running)

    # Durable calls. A task without `async` does not await them: they block.

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, R]],
        /,
        *args: Any,
        retries: int | Retry | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retries: int | Retry | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retries: int | Retry | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a function once and record its result: `await ctx.step("charge", charge, 42)`.

        When this returns, the result is on disk, and later attempts get it without a call. It is
        JSON, converted by the function's return annotation. With `retries` a failed step is
        retried without a charge to the execution. After the last retry the function's error is
        raised here.
        """
        with lasting():
            name = check_name(name, what="step")
            policy = NO_RETRIES if retries is None else Retry.parse(retries)
            function = check_function(function)
        return durable_of(self._running).step(name, function, args, kwargs, policy)

    def sleep(self, delay: Duration, *, name: str = "sleep") -> Any:
        """Continue after a delay, without occupying a worker."""
        with lasting():
            seconds = parse_duration(delay, what="sleep")
            name = check_name(name, what="sleep")
        return durable_of(self._running).sleep(name, lambda: seconds)

    def sleep_until(self, at: Time, *, name: str = "sleep") -> Any:
        """Continue at a time: an aware datetime, or ISO 8601 with an offset."""
        with lasting():
            until, name = read_time(at, "sleep_until"), check_name(name, what="sleep")
        ledger, durable = self._running.ledger, durable_of(self._running)

        def left() -> Seconds:
            return 0.0 if ledger is None else max(0.0, until - ledger.now())

        return durable.sleep(name, left)

    def wait_for_event(
        self,
        name: str,
        *,
        match: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Continue after an event of this name, with these values in its data; return the
        ReceivedEvent, or None after the timeout.

        Events since the creation of the execution count.
        """
        with lasting():
            if not isinstance(match, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(
                    f'match is a dictionary of what the event says, such as {{"order_id": 42}}; not'
                    f" {shown(match)}",
                    field="match",
                )
            name = check_words(name, what="event", field="name", chars_max=EVENT_NAME_CHARS_MAX)
            wanted = check_match(payload.encode({} if match is None else dict(match), what="match"))
            within = None if timeout is None else parse_limit(timeout, what="timeout")
        return durable_of(self._running).wait(name, wanted, within, read_received_event)

    def wait_for_approval(self, name: str = "approval", *, timeout: Duration | None = None) -> Any:
        """Continue after a decision of a person; return the Approval, which is true if approved.

        Decisions come from `daybell executions approve`, HTTP, or `handle.approve()`. After the
        timeout it is false, with `timed_out`.
        """
        with lasting():
            event = approval_event(check_name(name, what="approval"))
            within = None if timeout is None else parse_limit(timeout, what="timeout")
        return durable_of(self._running).wait(event, "{}", within, read_approval)

    def now(self) -> datetime:
        """Return the time in UTC, the same in later attempts."""
        return datetime.fromtimestamp(durable_of(self._running).now(), UTC)

    def random(self) -> float:
        """Return a random number from 0 up to 1, the same in later attempts."""
        return durable_of(self._running).random()

    async def enqueue(self, task: Enqueueing[P, H], /, *args: P.args, **kwargs: P.kwargs) -> H:
        """Enqueue a child of this execution, as `task.enqueue()` in a task does."""
        return await task.enqueue(*args, **kwargs)


class Transaction(AbstractAsyncContextManager[Any, None]):
    """The block of `ctx.transaction()`."""

    def __init__(self, running: RunningAttempt) -> None:
        self._running = running

    async def __aenter__(self) -> Any:
        return await self._running.begin()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            await self._running.undo()

    def __enter__(self) -> NoReturn:
        raise UsageError(
            "ctx.transaction() is for async tasks: write `async with ctx.transaction() as"
            " connection:` in an `async def`"
        )

    def __exit__(self, *_: object) -> None:
        """Never called; Python requires it for `__enter__`."""

    __await__ = __enter__


class Checkpoint(MutableMapping[str, Any]):
    """JSON data that outlives the attempt, saved a moment after every assignment.

    Changes inside a value are not noticed: assign it again.
    """

    def __init__(self, running: RunningAttempt, data: dict[str, Any]) -> None:
        self._running = running
        self._data = data

    def __repr__(self) -> str:
        return f"Checkpoint({self._data!r})"

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"a checkpoint's keys are text, as in JSON; not {shown(key)}")
        self._save({**self._data, key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self._data:
            raise KeyError(key)
        self._save({name: value for name, value in self._data.items() if name != key})

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def _save(self, data: dict[str, Any]) -> None:
        text = payload.encode(data, what="checkpoint")
        if payload.has_set(data):
            raise UsageError(
                f"{payload.path_of_set(data, 'checkpoint')} is a set, which JSON does not have, and"
                " the next attempt would find a list. Assign a list, such as sorted(…)"
            )
        self._data = data
        self._running.report(checkpoint=text)


class TaskLimits:
    """The limits of a running task, by name."""

    def __init__(self, running: RunningAttempt) -> None:
        self._running = running

    def __getitem__(self, name: str) -> TaskLimit:
        return TaskLimit(self._running, name)


class TaskLimit:
    """A limit of a running task."""

    def __init__(self, running: RunningAttempt, name: str) -> None:
        self._running = running
        self._name = name

    def pause(self, duration: Duration) -> None:
        """Start no execution that needs this limit for so long."""
        seconds = parse_limit(duration, what="duration")
        self._running.report(pause=LimitPause(self._name, seconds))


def context_names(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters for a Context: by annotation, or `ctx` without one."""
    return frozenset(
        name
        for name, (written, resolved) in payload.annotations_of(function).items()
        if resolved in (Context, Context | None)
        or (resolved is Any and (name == "ctx" or _is_our_name(written)))
    )


def _is_our_name(written: Any) -> bool:
    """Return True for an annotation that was imported for type checkers only."""
    text = getattr(written, "__forward_arg__", written)
    return isinstance(text, str) and text in ("Context", "daybell.Context")
