"""An attempt in a worker: its state, log, masks and steps, and the interface of its handler."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import msgspec

from daybell.core.event import NewStep, Step, StepKind, check_step
from daybell.core.execution import MASKED_CHARS_MAX, Claimed, NewLogPart, join_lines, line_text
from daybell.core.flow import LimitPause
from daybell.core.lifecycle import Transition
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    LOG_CHARS_MAX,
    LOG_LINE_CHARS_MAX,
    PAGE_ITEMS_MAX,
    PROGRESS_MESSAGE_CHARS_MAX,
    RECORD_BATCH_MAX,
    size_fault,
    text_fault,
)
from daybell.core.masking import NO_MASKS, ExecutionMask, Masks
from daybell.core.retry import Retry
from daybell.core.units import Instant, Seconds
from daybell.core.worker import Report
from daybell.core.workflow.run import Plan
from daybell.engine.loop import BACKOFF_MAX_SECONDS, BACKOFF_MIN_SECONDS, Clock
from daybell.errors import DaybellError, RetryLater, Unavailable, UsageError
from daybell.store.protocol import Store, TaskTransaction

# The interface between the engine and the handlers of jobs.


class Handler(Protocol):
    """The handler of one job."""

    @property
    def retry(self) -> Retry: ...
    @property
    def timeout(self) -> Seconds | None: ...
    @property
    def goes_on(self) -> bool:
        """True if it may continue without a lease, while another worker runs it, too."""
        ...

    @property
    def grace(self) -> Seconds:
        """The time that it may take to end after a stop, beyond the default."""
        ...

    @property
    def starts_once(self) -> bool:
        """True if a started attempt must not start again: `on_lost="dead"`."""
        ...

    async def run(self, running: Attempt) -> str | None:
        """Do the work and return the result as JSON, or None without a result.

        Cancelling the task that awaits it stops the work, as far as possible.
        """
        ...


class Handlers(Protocol):
    """The handlers of all jobs that a worker can run."""

    def find(self, claimed: Claimed) -> Handler | None:
        """Return the known handler of this version of the job; None: call `ask`."""
        ...

    async def ask(self, claimed: Claimed) -> Handler | None:
        """Find a handler by the job's definition; None: there is none."""
        ...

    def lacking(self, claimed: Claimed) -> str | None:
        """Return the capability that `ask` missed, such as `task:NAME`; None: unknown."""
        ...

    def mask(self, text: str) -> str:
        """Apply the app's masks to a text."""
        ...

    @property
    def settings(self) -> Masks:
        """The settings of this worker that no output may show."""
        ...


# Steps of durable functions are written in groups: the first at once, those that arrive during a
# write in the next one. Callers wait while the store is away: nothing may depend on a step that is
# not recorded.

logger = logging.getLogger("daybell.worker")

T = TypeVar("T")

Fence = tuple[UUID, int]  # the id of the execution, and the attempt

GROUP_CHARS_MAX: Final = 8 * 1024 * 1024  # of results in a group

Answer = list[Step] | None  # None: another worker has the execution
PendingSteps = tuple[list[NewStep], "asyncio.Future[Answer]"]


class Recorder:
    """Writes the steps of one worker's executions."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str,
        worker: UUID,
        clock: Clock,
        stop_stale: Callable[[Fence], object],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._worker = worker
        self.clock = clock
        self.stop_stale = stop_stale  # stops an attempt that this worker no longer holds
        self._waiting: list[PendingSteps] = []
        self._on_its_way: list[PendingSteps] = []
        self._writer: asyncio.Task[None] | None = None
        self._is_closed = False

    async def recall(self, claimed: Claimed) -> list[Step]:
        """Return the recorded steps of an execution."""
        return await self._patiently(
            "read", lambda: self._store.runs.steps(claimed.tenant, claimed.id)
        )

    async def record(self, steps: Sequence[NewStep]) -> Answer:
        """Record steps of one execution, possibly grouped with others. None: another worker has the
        execution. Raises UsageError for steps that cannot be stored.

        A cancelled caller waits for the answer, too: a step is recorded before it can run again.
        """
        checked = [check_step(step) for step in steps]
        if self._is_closed:
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((checked, answer))
        if self._writer is None:
            self._writer = loop.create_task(self._write_all(), name="record")
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            await asyncio.wait([answer])
            _ = answer.cancelled() or answer.exception()  # retrieved, so that asyncio does not log
            raise

    def close(self) -> None:
        """Answer all callers after a lost lease: the store would reject their steps."""
        self._is_closed = True
        unanswered = [*self._on_its_way, *self._waiting]
        self._answer(unanswered, [None] * len(unanswered))
        self._waiting = []

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                self._on_its_way = self._next_group()
                await self._write(self._on_its_way)
        except BaseException as error:  # the event loop ends, or the store fails
            left, self._waiting = [*self._on_its_way, *self._waiting], []
            self._fail(left, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._writer, self._on_its_way = None, []

    def _next_group(self) -> list[PendingSteps]:
        count, size, chars = 0, 0, 0
        for steps, _ in self._waiting:
            size += len(steps)
            chars += sum(len(step.result or "") for step in steps)
            if count and (size > RECORD_BATCH_MAX or chars > GROUP_CHARS_MAX):
                break
            count += 1
        group = self._waiting[:count]
        del self._waiting[:count]
        return group

    async def _write(self, group: list[PendingSteps]) -> None:
        """Write a group; if that fails, bisect it to isolate the failing step."""
        steps = [step for some, _ in group for step in some]
        try:
            written = await self._patiently(
                "written",
                lambda: self._store.runs.record(self._tenant, worker=self._worker, steps=steps),
            )
        except Unavailable:  # and the lease is lost
            self._answer(group, [None] * len(group))
            return
        except Exception as error:
            if len(group) == 1:
                self._fail(group, error)
                return
            middle = len(group) // 2
            await self._write(group[:middle])
            await self._write(group[middle:])
            return
        found = iter(written)
        self._answer(group, [_all_or_none([next(found) for _ in some]) for some, _ in group])

    @staticmethod
    def _answer(group: list[PendingSteps], answers: Sequence[Answer]) -> None:
        for (_, answer), found in zip(group, answers, strict=True):
            if not answer.done():
                answer.set_result(found)

    @staticmethod
    def _fail(group: list[PendingSteps], error: BaseException) -> None:
        for _, answer in group:
            if not answer.done():
                answer.set_exception(error)
                # Its caller may be gone, cancelled a second time as the event loop ends. Then
                # asyncio would log an error of its own.
                answer.exception()

    async def _patiently(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Retry while the store is away, until the lease is lost. Repeating a write is safe."""
        failures = 0
        while True:
            try:
                return await work()
            except Unavailable as error:
                if self._is_closed:
                    raise
                failures += 1
                if failures == 1:
                    logger.warning("steps cannot be %s: %s; trying again", what, error)
            pause = BACKOFF_MIN_SECONDS * 2 ** min(failures - 1, 10)
            pause = min(BACKOFF_MAX_SECONDS, pause) * (0.5 + 0.5 * self.clock.jitter())
            await self.clock.sleep(pause)


def _all_or_none(found: list[Step | None]) -> Answer:
    steps = [step for step in found if step is not None]
    return steps if len(steps) == len(found) else None


# Kinds with output from this worker; answers of other kinds never contain its settings.
SHOWS_SETTINGS: Final = frozenset({"task", "command"})
GRACE_SECONDS: Final = 5.0  # for a stopped attempt to end
EXPAND_SECONDS: Final = 1.0  # until a run that could not start is retried
NO_LINE: Final = ("", 0)
LOG_FULL_MESSAGE: Final = (
    "{:,} more lines were left out: the log of an attempt is limited to {:,} characters"
)


class Stop(Enum):
    """The reason to stop a running attempt."""

    TIMEOUT = "it took longer than its timeout"
    CANCEL = "it was cancelled"
    RELEASE = "the worker shuts down"
    ABANDON = "the worker lost its lease"
    STALE = "another worker has the execution"


class Attempt(msgspec.Struct, eq=False):
    """One attempt in this worker, from its start to its end."""

    claimed: Claimed
    host: AttemptHost
    handler: Handler | None = None
    started: Seconds | None = None
    proven_at: Seconds | None = None  # of a suspect: the end of its probation
    stop: Stop | None = None
    # Until its end: the context of the task refers to the attempt, and cycles wait for the garbage
    # collector.
    task: asyncio.Task[None] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    pauses: list[LimitPause] | None = None  # of limits, which the store has not been told yet
    timer: asyncio.TimerHandle | None = None  # of its timeout; after a stop, of the grace period
    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None
    log: AttemptLog | None = None  # created with the first line
    transaction: TaskTransaction | None = None
    has_begun: bool = False  # its transaction
    is_over: bool = False  # the task has ended
    is_written: bool = False  # its end was written with the transaction
    is_expanded: bool = False  # it became a run of a workflow
    is_hopeless: bool = False  # set by the handler: a retry cannot change its error
    lacking: str | None = None  # set by the handler: the missing capability; nothing was done
    is_watchful: bool = False  # set by the task's context: it polls for stops itself
    has_news: bool = False
    is_shown: bool = False
    durable: Any = None  # `runners.python.DurableState`
    masks: ExecutionMask | None = None  # created with the first output or secret
    devices: dict[str, list[int]] | None = None  # the numbers of its devices, by resource

    @property
    def fence(self) -> Fence:
        return self.claimed.id, self.claimed.attempt

    @property
    def is_cancelled(self) -> bool:
        """True if it has to stop."""
        return self.stop is not None

    @property
    def patience(self) -> Seconds:
        """The time that it may take to end after a stop; none after a lost lease."""
        match self.stop:
            case Stop.ABANDON:
                return 0.0
            case Stop.RELEASE:
                return GRACE_SECONDS / 2
            case _:
                return 0.0 if self.handler is None else self.handler.grace

    def report(
        self,
        *,
        progress: float | None = None,
        note: str | None = None,
        checkpoint: str | None = None,
        pause: LimitPause | None = None,
    ) -> None:
        """Set its progress. Written later in batches; callable from any thread."""
        if progress is not None:
            self.progress = progress
        if note is not None:
            masked = self.mask(note, is_cut=len(note) >= MASKED_CHARS_MAX)
            self.note = masked[:PROGRESS_MESSAGE_CHARS_MAX]
        if checkpoint is not None:
            self.checkpoint = self.mask_json(checkpoint)
        if pause is not None:
            self.pauses = [*(self.pauses or ()), pause]
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self.host.pause_soon, self)
            return
        self.has_news = True

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        """Add a line to its log. Written later in batches; callable from any thread."""
        if self.log is None:
            self.log = AttemptLog(deque())
        if self.log.has_room:
            self.log.add(self._line(level, source, message, length=length))
        else:
            self.log.left_out += 1

    def print(self, stream: str, text: str) -> None:
        """Add output of a stream, not necessarily whole lines."""
        if self.log is None:
            self.log = AttemptLog(deque())
        if self.log.begun is None:
            self.log.begun = {}
        if not self.log.has_room:
            text = self._rest_of(self.log, stream, text)
        *ends, rest = text.split("\n")
        for end in ends:
            line, length = self._extend_line(self.log.begun.pop(stream, NO_LINE), end)
            self.say(stream, "", line, length=length)
        if rest:
            begun = self.log.begun.get(stream, NO_LINE)
            self.log.begun[stream] = self._extend_line(begun, rest)

    @staticmethod
    def _rest_of(log: AttemptLog, stream: str, text: str) -> str:
        """Count lines that exceed the limit, and return the incomplete last one."""
        ended, newline, rest = text.rpartition("\n")
        if newline and log.begun is not None:
            log.left_out += ended.count("\n") + 1
            log.begun.pop(stream, None)
        return rest

    @staticmethod
    def _extend_line(begun: tuple[str, int], text: str) -> tuple[str, int]:
        """Extend an incomplete line up to a limit; return it with its full length."""
        line, length = begun
        return line + text[: MASKED_CHARS_MAX - len(line)], length + len(text)

    def _line(self, level: str, source: str, message: str, *, length: int | None = None) -> str:
        """Format a stored line. `length` is the full length if `message` is cut."""
        now = self.host.clock.now()
        if length is None:
            length = len(message)
            if length <= LOG_LINE_CHARS_MAX:  # the common case
                return line_text(now, level, source, self.mask(message))
        if length > MASKED_CHARS_MAX:
            message = self.mask(message[:MASKED_CHARS_MAX], is_cut=True)
            return line_text(now, level, source, message, cut_from=length)
        message = self.mask(message)
        cut_from = length if len(message) > LOG_LINE_CHARS_MAX else None
        return line_text(now, level, source, message, cut_from=cut_from)

    def mask(self, text: str, *, is_cut: bool = False) -> str:
        """Remove secrets and settings of the worker, and apply the app's masks.

        Stored text is masked anyway; call this before a cut, as half a secret is not recognized.
        """
        return self.host.mask((self.masks or self._masks())(text), is_cut=is_cut)

    def mask_json(self, text: str) -> str:
        """Remove secrets and settings of the worker from JSON."""
        return (self.masks or self._masks()).in_json(text)

    def hide(self, values: Iterable[str]) -> None:
        """Mask opened secrets in everything that is stored about it."""
        self._masks().open(values)

    def give(self, text: str) -> None:
        """Leave this text unmasked from now on: the execution received it as input."""
        self._masks().give(text)

    def without_secrets(self, text: str) -> str:
        """Remove opened secrets and settings of the worker from a text."""
        return (self.masks or self._masks())(text)

    def _masks(self) -> ExecutionMask:
        if self.masks is None:
            claimed = self.claimed
            settings = self.host.settings() if claimed.kind in SHOWS_SETTINGS else NO_MASKS
            # Callers can read these, so their content is not masked.
            given = f"{claimed.args}{claimed.checkpoint}" if claimed.checkpoint else claimed.args
            self.masks = ExecutionMask(settings, given, partial(_report_withheld, claimed))
        return self.masks

    async def begin(self) -> Any:
        """Begin its transaction, which commits with its end; return the connection."""
        if self.has_begun:
            raise UsageError("an execution has one transaction, and this one has begun it before")
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(
                "ctx.transaction() is for async tasks, on the worker's event loop; this one runs on"
                " a loop of its own in a thread"
            )
        self.has_begun = True  # before the first await: two callers may race
        try:
            transaction = await self.host.begin()
        except BaseException:
            self.has_begun = False
            raise
        if self.is_over:  # a concurrent part of the task failed and ended it
            await transaction.close()
            raise UsageError("the execution has ended, and its transaction with it")
        self.transaction = transaction
        return transaction.connection

    @property
    def ledger(self) -> AttemptLedger | None:
        """The ledger of its steps; None: it records no steps."""
        recorder = self.host.recorder
        return None if recorder is None else AttemptLedger(self, recorder)

    async def expand(self, plan: Plan) -> None:
        """Become a run of a workflow, which needs no worker and ends by itself."""
        try:
            await self.host.expand(self.claimed, plan)
        except Unavailable as error:
            # If it succeeded all the same, this report is stale and ignored.
            raise RetryLater(delay=EXPAND_SECONDS, reason=str(error)) from error
        self.is_expanded = True  # if not by this call, by another worker

    async def undo(self) -> None:
        """Roll back its transaction, if it has one."""
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            await transaction.close()

    def ran(self, clock: Clock) -> Seconds:
        return 0.0 if self.started is None else max(0.0, clock.monotonic() - self.started)

    def as_report(self, clock: Clock) -> Report:
        """Return its current progress for a report."""
        self.is_shown, self.has_news = True, False
        return Report(
            id=self.claimed.id,
            attempt=self.claimed.attempt,
            lease=self.claimed.lease,
            ran=self.ran(clock),
            progress=self.progress,
            note=self.note,
            checkpoint=self.checkpoint,
        )

    def add_news(self, move: Transition) -> Transition:
        """Return its end with the progress that no report has yet."""
        self.has_news = False
        note = self.note
        # A mask of the app may return anything.
        if note is not None and (fault := text_fault(note) or size_fault(note, ARGS_BYTES_MAX)):
            logger.error("the note of %s cannot be stored: %s", self.claimed.id, fault)
            note = None
        checkpoint = self.checkpoint if move.checkpoint is None else move.checkpoint
        return msgspec.structs.replace(
            move, progress=self.progress, note=note, checkpoint=checkpoint
        )

    def take_log(self) -> str | None:
        """Return the last part of its log: all lines that no part has yet."""
        log = self.log
        if log is None:
            return None
        if log.begun:
            for stream, (line, length) in log.begun.items():
                self.say(stream, "", line, length=length)
            log.begun = None
        if log.left_out:
            full = LOG_FULL_MESSAGE.format(log.left_out, LOG_CHARS_MAX)
            log.add(self._line("warning", "daybell", full))
            log.left_out = 0
        if len(log.lines) == 1:  # the common case
            return log.lines.popleft()
        return join_lines(log.take()) if log.lines else None

    def log_parts(self) -> list[NewLogPart]:
        """Return the unwritten parts of its log, the new lines included."""
        log = self.log
        if log is None:
            return []
        if log.lines:
            log.number += 1
            claimed = self.claimed
            text = join_lines(log.take())
            part = NewLogPart(claimed.id, claimed.attempt, claimed.lease, log.number, text)
            log.unwritten += (part,)
        return list(log.unwritten)

    def forget_log_parts(self, upto: int) -> None:
        """Drop written parts, up to the one with that number."""
        if self.log is not None:
            self.log.unwritten = tuple(p for p in self.log.unwritten if p.number > upto)


def _report_withheld(claimed: Claimed) -> None:
    logger.warning(
        "execution %s of job %s wrote a setting of this worker (a password or a key); such lines of"
        " its output are withheld",
        claimed.id,
        claimed.job,
    )


class AttemptLedger:
    """The ledger of an attempt's steps; implements `runners.python.StepLedger`."""

    def __init__(self, run: Attempt, recorder: Recorder) -> None:
        self._run = run
        self._recorder = recorder
        self.now: Callable[[], Instant] = recorder.clock.now
        self.monotonic: Callable[[], Seconds] = recorder.clock.monotonic
        self.jitter: Callable[[], float] = recorder.clock.jitter
        self.mask: Callable[[str], str] = run.mask
        self.mask_json: Callable[[str], str] = run.mask_json

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._run.loop is not None
        return self._run.loop

    @property
    def has_transaction(self) -> bool:
        return self._run.transaction is not None

    @property
    def is_closed(self) -> bool:
        return self._run.is_over

    async def recall(self) -> list[Step]:
        return self._unmask_events(await self._recorder.recall(self._run.claimed))

    async def record(self, steps: Sequence[NewStep]) -> list[Step]:
        found = await self._recorder.record(steps)
        if found is None:
            self._recorder.stop_stale(self._run.fence)
            raise asyncio.CancelledError
        return self._unmask_events(found)

    def _unmask_events(self, steps: list[Step]) -> list[Step]:
        """Leave the text of events unmasked: the publisher chose it."""
        for step in steps:
            if step.kind is StepKind.WAIT and step.result:
                self._run.give(step.result)
        return steps


class TraceReader:
    """Reads the contexts of traces; attempts that start together share a statement."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: dict[str, set[UUID]] = {}  # by tenant
        self._reading: asyncio.Future[dict[UUID, str]] | None = None

    async def read(self, claimed: Claimed) -> str | None:
        """Return the context of an execution: its own, or that of the run that it is a node of, or
        of the task that enqueued it.
        """
        wanted = self._wanted.setdefault(claimed.tenant, set())
        wanted.add(claimed.id)
        if claimed.parent is not None:
            wanted.add(claimed.parent)
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        found = await asyncio.shield(self._reading)
        of_parent = None if claimed.parent is None else found.get(claimed.parent)
        return found.get(claimed.id) or of_parent

    async def _read(self) -> dict[UUID, str]:
        wanted, self._wanted, self._reading = self._wanted, dict[str, set[UUID]](), None
        found: dict[UUID, str] = {}
        for tenant, all_of_tenant in wanted.items():
            ids = list(all_of_tenant)
            for start in range(0, len(ids), PAGE_ITEMS_MAX):
                some = ids[start : start + PAGE_ITEMS_MAX]
                found |= await self._store.queue.read_traces(tenant, some)
        return found


class AttemptLog(msgspec.Struct, eq=False):
    """The unwritten log of an attempt. Threads may add to it."""

    lines: deque[str]
    unwritten: tuple[NewLogPart, ...] = ()
    begun: dict[str, tuple[str, int]] | None = None  # incomplete lines, by stream
    size: int = 0  # of all lines ever added
    number: int = 0  # of the last part
    left_out: int = 0

    @property
    def has_room(self) -> bool:
        return self.size < LOG_CHARS_MAX

    def add(self, text: str) -> None:
        self.size += len(text) + 1
        self.lines.append(text)

    def take(self) -> list[str]:
        # One by one: a thread may add a line at the same time.
        return [self.lines.popleft() for _ in range(len(self.lines))]


class AttemptHost:
    """The parts of a worker that its attempts share."""

    def __init__(
        self,
        clock: Clock,
        *,
        begin: Callable[[], Awaitable[TaskTransaction]],
        mask: Callable[[str], str] = str,
        settings: Callable[[], Masks] = lambda: NO_MASKS,
        recorder: Recorder | None = None,
        expand: Callable[[Claimed, Plan], Awaitable[bool]] | None = None,
        read_trace: Callable[[Claimed], Awaitable[str | None]] | None = None,
        pause: Callable[[Claimed, LimitPause], Awaitable[bool]] | None = None,
    ) -> None:
        self.read_trace = read_trace
        self.begin = begin
        self.clock = clock
        self.expand = expand or _refuse_expansion
        self.recorder = recorder
        self.settings = settings
        self._mask = mask
        self._pause = pause
        self._pausing = set[asyncio.Task[None]]()

    def pause_soon(self, run: Attempt) -> None:
        """Pause the limits that a running task has asked to pause."""
        task = asyncio.get_running_loop().create_task(self.pause_limits(run))
        self._pausing.add(task)
        task.add_done_callback(self._pausing.discard)

    async def pause_limits(self, run: Attempt) -> None:
        """Pause the limits that an attempt has named, while it has them. To do it twice does no
        harm. A pause that fails is logged: the task goes on.
        """
        pauses = tuple(run.pauses or ())
        for pause in pauses:
            try:
                if self._pause is None or not await self._pause(run.claimed, pause):
                    logger.warning(
                        "%s asked to pause limit %r, which it does not have",
                        run.claimed.job, pause.name,
                    )  # fmt: skip
            except DaybellError as error:
                logger.warning("limit %r could not be paused: %s", pause.name, error)
        run.pauses = [one for one in run.pauses or () if one not in pauses] or None

    def mask(self, text: str, *, is_cut: bool = False) -> str:
        """Apply the app's masks to a text.

        The end of a cut text may hold half a secret, and a mask may have moved it: drop as much as
        a line shows.
        """
        try:
            masked: Any = self._mask(text)
        except Exception as error:
            # Unmasked text may hold a secret.
            return f"(left out: the masking function raised {type(error).__name__})"
        if not isinstance(masked, str):
            return f"(left out: the masking function returned no text but {type(masked).__name__})"
        return masked[:-LOG_LINE_CHARS_MAX] if is_cut else masked


async def _refuse_expansion(claimed: Claimed, plan: Plan) -> bool:
    raise UsageError(f"a workflow cannot run here: {claimed.job}, {len(plan.nodes)} nodes")
