"""One execution in a worker's hands, and what it says meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from daybell.core.execution import Claimed
from daybell.core.instant import Instant, Seconds
from daybell.core.limits import (
    LOG_CHARS_MAX,
    LOG_LINE_CHARS_MAX,
    PROGRESS_MESSAGE_CHARS_MAX,
)
from daybell.core.log import MASKED_CHARS_MAX, NewLogPart, joined, line_text
from daybell.core.masking import NO_MASKS, ExecutionMask, Masks
from daybell.core.run import Plan
from daybell.core.step import NewStep, Step, StepKind
from daybell.core.worker import Report
from daybell.engine.clock import Clock
from daybell.engine.handlers import Handler
from daybell.engine.recorder import Recorder
from daybell.errors import RetryLater, Unavailable, UsageError
from daybell.store.protocol.transactions import TaskTransaction

logger = logging.getLogger("daybell.worker")

Fence = tuple[UUID, int]

# What others answer to a job of another kind may be anything, and is never a setting of its worker.
SHOWS_SETTINGS: Final = frozenset({"task", "command"})
GRACE_SECONDS: Final = 5.0  # for what was stopped to end
EXPAND_SECONDS: Final = 1.0  # until a run that could not begin is tried again
NOTHING: Final = ("", 0)
FULL: Final = "{:,} more lines were left out: of what an attempt says, {:,} characters are kept"


class Stop(Enum):
    """Why a running execution is stopped from outside."""

    TIMEOUT = "it took longer than its timeout"
    CANCEL = "somebody cancelled it"
    RELEASE = "the worker shuts down"
    ABANDON = "the worker lost its lease"
    STALE = "it was given to others"


class Run(msgspec.Struct, eq=False):
    """One execution in this worker's hands, from its start to its end."""

    claimed: Claimed
    host: Host
    handler: Handler | None = None
    started: Seconds | None = None
    proven_at: Seconds | None = None  # of a suspect: when it has outlived its probation
    stop: Stop | None = None
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None  # of its timeout; once it is stopped, of the grace
    progress: float | None = None
    note: str | None = None
    checkpoint: str | None = None
    log: Log | None = None  # None: it has said nothing
    transaction: TaskTransaction | None = None
    has_begun: bool = False  # its transaction
    is_over: bool = False  # the task has ended, however
    is_written: bool = False  # its end is made already, with the transaction
    is_expanded: bool = False  # it is the run of a workflow, and nobody's from now on
    is_hopeless: bool = False
    lacking: str | None = None
    is_watchful: bool = False
    has_news: bool = False
    is_shown: bool = False
    durable: Any = None  # what it has done durably, if it has: `runners.durable.Durable`
    masks: ExecutionMask | None = None  # None: it has opened nothing and said nothing
    is_reported: bool = False  # a line of its output was withheld

    @property
    def fence(self) -> Fence:
        return self.claimed.id, self.claimed.attempt

    @property
    def is_cancelled(self) -> bool:
        return self.stop is not None

    @property
    def patience(self) -> Seconds:
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
    ) -> None:
        if progress is not None:
            self.progress = progress
        if note is not None:
            masked = self.mask(note, is_cut=len(note) >= MASKED_CHARS_MAX)
            self.note = masked[:PROGRESS_MESSAGE_CHARS_MAX]
        if checkpoint is not None:
            self.checkpoint = self.mask_json(checkpoint)
        self.has_news = True

    def say(self, level: str, source: str, message: str, *, length: int | None = None) -> None:
        if self.log is None:
            self.log = Log(deque())
        if self.log.has_room:
            self.log.add(self._line(level, source, message, length=length))
        else:
            self.log.left_out += 1

    def print(self, stream: str, text: str) -> None:
        if self.log is None:
            self.log = Log(deque())
        if self.log.begun is None:
            self.log.begun = {}
        if not self.log.has_room:
            text = self._rest_of(self.log, stream, text)
        *ends, rest = text.split("\n")
        for end in ends:
            line, length = self._gathered(self.log.begun.pop(stream, NOTHING), end)
            self.say(stream, "", line, length=length)
        if rest:
            begun = self.log.begun.get(stream, NOTHING)
            self.log.begun[stream] = self._gathered(begun, rest)

    @staticmethod
    def _rest_of(log: Log, stream: str, text: str) -> str:
        """Of what finds no room any more: the line that is not at its end. The others are counted,
        which takes far less than to look at each.
        """
        ended, newline, rest = text.rpartition("\n")
        if newline and log.begun is not None:
            log.left_out += ended.count("\n") + 1
            log.begun.pop(stream, None)
        return rest

    @staticmethod
    def _gathered(begun: tuple[str, int], text: str) -> tuple[str, int]:
        """A line that goes on, and how long it is. Without end, it is not gathered without end."""
        line, length = begun
        return line + text[: MASKED_CHARS_MAX - len(line)], length + len(text)

    def _line(self, level: str, source: str, message: str, *, length: int | None = None) -> str:
        """A line as it is kept. `length` is that of the whole, if this is only its beginning."""
        now = self.host.clock.now()
        if length is None:
            length = len(message)
            if length <= LOG_LINE_CHARS_MAX:  # as nearly all are
                return line_text(now, level, source, self.mask(message))
        if length > MASKED_CHARS_MAX:
            message = self.mask(message[:MASKED_CHARS_MAX], is_cut=True)
            return line_text(now, level, source, message, cut_from=length)
        message = self.mask(message)
        cut_from = length if len(message) > LOG_LINE_CHARS_MAX else None
        return line_text(now, level, source, message, cut_from=cut_from)

    def mask(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text without secrets and settings of the worker, and as the app masks it."""
        return self.host.mask((self.masks or self._masks())(text), is_cut=is_cut)

    def mask_json(self, text: str) -> str:
        """Return JSON without secrets, and without settings of the worker."""
        return (self.masks or self._masks()).in_json(text)

    def hide(self, values: Iterable[str]) -> None:
        self._masks().open(values)

    def give(self, text: str) -> None:
        """Leave a text as it is from now on: the execution was given it."""
        self._masks().give(text)

    def without_secrets(self, text: str) -> str:
        return (self.masks or self._masks())(text)

    def _masks(self) -> ExecutionMask:
        if self.masks is None:
            claimed = self.claimed
            settings = self.host.settings() if claimed.kind in SHOWS_SETTINGS else NO_MASKS
            # All of it can be seen by callers, and is as they or earlier attempts have put it.
            given = f"{claimed.args}{claimed.checkpoint}" if claimed.checkpoint else claimed.args
            self.masks = ExecutionMask(settings, given, self._report_withheld)
        return self.masks

    def _report_withheld(self) -> None:
        if not self.is_reported:
            self.is_reported = True
            logger.warning(
                "execution %s of job %s wrote a setting of this worker (a password or a key); such"
                " lines of its output are withheld",
                self.claimed.id,
                self.claimed.job,
            )

    async def begin(self) -> Any:
        if self.has_begun:
            raise UsageError("an execution has one transaction, and this one has begun it before")
        if self.task is None or asyncio.get_running_loop() is not self.task.get_loop():
            raise UsageError(
                "ctx.transaction() is for async tasks, on the worker's event loop; this one runs on"
                " a loop of its own in a thread"
            )
        self.has_begun = True  # before anything is awaited: two may want to at once
        try:
            transaction = await self.host.begin()
        except BaseException:
            self.has_begun = False
            raise
        if self.is_over:  # one of several at once has failed, and nobody waits for the others
            await transaction.close()
            raise UsageError("the execution has ended, and its transaction with it")
        self.transaction = transaction
        return transaction.connection

    @property
    def ledger(self) -> Ledger | None:
        recorder = self.host.recorder
        return None if recorder is None else Ledger(self, recorder)

    async def expand(self, plan: Plan) -> None:
        try:
            await self.host.expand(self.claimed, plan)
        except Unavailable as error:
            # If it was done all the same, this comes too late, and nobody hears of it.
            raise RetryLater(delay=EXPAND_SECONDS, reason=str(error)) from error
        self.is_expanded = True  # by whomever: if not by us, it is in other hands

    async def undo(self) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            await transaction.close()

    def ran(self, clock: Clock) -> Seconds:
        return 0.0 if self.started is None else max(0.0, clock.monotonic() - self.started)

    def as_report(self, clock: Clock) -> Report:
        """What people may see of it now."""
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

    def last_words(self) -> str | None:
        """The last part of its log: all that was said and is not in a part yet."""
        log = self.log
        if log is None:
            return None
        if log.begun:
            for stream, (line, length) in log.begun.items():
                self.say(stream, "", line, length=length)
            log.begun = None
        if log.left_out:
            full = FULL.format(log.left_out, LOG_CHARS_MAX)
            log.add(self._line("warning", "daybell", full))
            log.left_out = 0
        if len(log.lines) == 1:  # as most often
            return log.lines.popleft()
        return joined(log.take()) if log.lines else None

    def log_parts(self) -> list[NewLogPart]:
        """What was said and not yet written: what could not be written before, and what is new."""
        log = self.log
        if log is None:
            return []
        if log.lines:
            log.number += 1
            claimed = self.claimed
            text = joined(log.take())
            part = NewLogPart(claimed.id, claimed.attempt, claimed.lease, log.number, text)
            log.unwritten += (part,)
        return list(log.unwritten)

    def forget_log_parts(self, upto: int) -> None:
        """They are written, up to the one of that number."""
        if self.log is not None:
            self.log.unwritten = tuple(p for p in self.log.unwritten if p.number > upto)


class Ledger:
    """Where a run writes down its steps: see `runners.durable.Ledger`, which this must fit."""

    def __init__(self, run: Run, recorder: Recorder) -> None:
        self._run = run
        self._recorder = recorder
        self.now: Callable[[], Instant] = recorder.clock.now
        self.monotonic: Callable[[], Seconds] = recorder.clock.monotonic
        self.jitter: Callable[[], float] = recorder.clock.jitter
        self.mask: Callable[[str], str] = run.mask
        self.mask_json: Callable[[str], str] = run.mask_json

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._run.task is not None
        return self._run.task.get_loop()

    @property
    def has_transaction(self) -> bool:
        return self._run.transaction is not None

    @property
    def is_closed(self) -> bool:
        return self._run.is_over

    async def recall(self) -> list[Step]:
        return self._given(await self._recorder.recall(self._run.claimed.id))

    async def record(self, steps: Sequence[NewStep]) -> list[Step]:
        found = await self._recorder.record(steps)
        if found is None:
            self._recorder.stop({self._run.fence}, Stop.STALE)
            raise asyncio.CancelledError
        return self._given(found)

    def _given(self, steps: list[Step]) -> list[Step]:
        """Leave the text of events as it is: whoever publishes one chooses it."""
        for step in steps:
            if step.kind is StepKind.WAIT and step.result:
                self._run.give(step.result)
        return steps


class Log(msgspec.Struct, eq=False):
    """What a run has said and is not written yet. Threads may add to it."""

    lines: deque[str]
    unwritten: tuple[NewLogPart, ...] = ()
    begun: dict[str, tuple[str, int]] | None = None  # lines without their end, by stream
    size: int = 0  # of all that was ever added
    number: int = 0  # of the last part that was made
    left_out: int = 0

    @property
    def has_room(self) -> bool:
        return self.size < LOG_CHARS_MAX

    def add(self, text: str) -> None:
        self.size += len(text) + 1
        self.lines.append(text)

    def take(self) -> list[str]:
        # Not as a whole: what a thread adds in the same moment would be lost.
        return [self.lines.popleft() for _ in range(len(self.lines))]


class Host:
    """What the runs of a worker have in common."""

    def __init__(
        self,
        clock: Clock,
        *,
        begin: Callable[[], Awaitable[TaskTransaction]],
        mask: Callable[[str], str] = str,
        settings: Callable[[], Masks] = lambda: NO_MASKS,
        recorder: Recorder | None = None,
        expand: Callable[[Claimed, Plan], Awaitable[bool]] | None = None,
    ) -> None:
        self.begin = begin
        self.clock = clock
        self.expand = expand or _unable
        self.recorder = recorder
        self.settings = settings
        self._mask = mask

    def mask(self, text: str, *, is_cut: bool = False) -> str:
        """Return a text as the app's own masks leave it.

        A cut may have split a secret, and a mask may have moved that to where it would be seen. So
        as much as a line can show is dropped.
        """
        try:
            masked: Any = self._mask(text)
        except Exception as error:
            # What could not be looked at may hold a secret.
            return f"(left out: the masking function raised {type(error).__name__})"
        if not isinstance(masked, str):
            return f"(left out: the masking function returned no text but {type(masked).__name__})"
        return masked[:-LOG_LINE_CHARS_MAX] if is_cut else masked


async def _unable(claimed: Claimed, plan: Plan) -> bool:
    raise UsageError(f"a workflow cannot run here: {claimed.job}, {len(plan.nodes)} nodes")
