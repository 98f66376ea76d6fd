"""Executions: states, priority, attempts, log lines, failures, and the outcomes of cancellation,
revival and loss.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from types import CodeType, TracebackType
from typing import Final
from uuid import UUID

import msgspec

from daybell.core.limits import (
    ERROR_MESSAGE_BYTES_MAX,
    ERROR_NAMES_MAX,
    ERROR_TRACEBACK_BYTES_MAX,
    LOG_LINE_CHARS_MAX,
    NAME_CHARS_MAX,
)
from daybell.core.units import Instant, Seconds
from daybell.errors import InvalidPriority, PayloadError, shown

# Which work goes first.


class Priority(IntEnum):
    """Lower goes first; the numbers are stored, so they never change their meaning."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The name as users write it and see it: "high"."""
        return self.name.lower()

    @classmethod
    def parse(cls, value: object) -> Priority:
        """Read a name in any case ("medium" means normal) or one of the numbers 0 to 3."""
        if isinstance(value, str):
            name = value.strip().upper()
            found = cls.__members__.get("NORMAL" if name == "MEDIUM" else name)
            if found is not None:
                return found
        elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= cls.LOW:
            return cls(value)
        raise InvalidPriority(
            f"{shown(value)} is not a priority; use critical, high, normal (or medium) or low",
            field="priority",
        )


class State(StrEnum):
    """The state of an execution."""

    WAITING = "waiting"  # not ready: a slot, a dependency or an event is missing
    SCHEDULED = "scheduled"  # its time is in the future: delayed, asleep, or put off
    QUEUED = "queued"  # may be claimed now
    RETRYING = "retrying"  # failed; the wait before the next try is not over
    RUNNING = "running"  # in the hands of one worker, under its lease
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # out of tries, or not to be retried; a person decides
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # a rule said no: overlap, a missed time, expiry, an upstream failure


TERMINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED})
# In lists, in place of arguments that are too large for them: arguments are an object otherwise.
LEFT_OUT: Final = "null"
# Not started and not finished: what the filter `status=pending` means.
PENDING: Final = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED, State.RETRYING})
# Where a way back keeps its reason: what it waits for, or why it has put itself off.
AWAY: Final = frozenset({State.WAITING, State.SCHEDULED})


def reason_in(state: State, reason: str | None) -> str | None:
    """The reason as people see it: why it was away is over when it is due. The row keeps it until
    its next move, so that a claim need not write it.
    """
    return None if state in (State.QUEUED, State.RUNNING) else reason


class Outcome(StrEnum):
    """The end of an attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"  # its worker's lease ended
    CANCELLED = "cancelled"
    RELEASED = "released"  # given back, not charged: a drain, a sleep, a lost answer, an expiry


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution as it is asked for. The id is made by the caller, so that asking twice
    creates one.
    """

    id: UUID
    job: str
    args: str = "{}"
    queue: str | None = None  # None here and below: what the job says
    priority: Priority | None = None
    delay: Seconds | None = None  # counted by the store's clock; neither delay nor at: now
    at: Instant | None = None
    expires_in: Seconds | None = None  # not started this long after its time: skipped
    unique_key: str | None = None  # one unfinished execution of a job per key
    retries: int | None = None
    timeout: Seconds | None = None
    gate: str | None = None  # waits for a slot of this gate
    scheduled_for: Instant | None = None  # the tick's nominal time
    schedule: UUID | None = None
    own_gate: bool = False  # its schedule has an overlap gate of its own, beside the job's
    parent: UUID | None = None  # the execution whose task enqueued this one
    force: bool = False  # whatever the job's overlap rule says
    wait_for_dependencies: bool = False  # begins when the job's dependencies let it, if it has any

    @property
    def is_plain(self) -> bool:
        """Whether it uses none of the rarer fields; stores take a shorter way for such rows."""
        return self.scheduled_for is None and self.schedule is None and self._has_no_wishes

    @property
    def is_plain_tick(self) -> bool:
        """The same of what a schedule has fired."""
        return self.queue is None and self.priority is None and self._has_no_wishes

    @property
    def _has_no_wishes(self) -> bool:
        return (
            self.delay is None
            and self.at is None
            and self.expires_in is None
            and self.unique_key is None
            and self.retries is None
            and self.timeout is None
            and self.gate is None
            and self.parent is None
            and not self.force
        )


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: the new execution, or the one that already holds the unique
    key.
    """

    id: UUID
    created: bool = True
    skipped: bool = False  # by its job's overlap rule; only a tick's execution is recorded so
    at_gate: bool = False  # new, and its job's overlap rule was asked: it may have to wait
    state: State | None = None  # as the answer of a server tells it


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An execution in the hands of a worker. `(id, attempt)` names this one start; `lease` the
    claim it came with.
    """

    id: UUID
    # Starts at 1, rises whenever the execution goes back to be claimed again: the fencing token.
    attempt: int
    lease: UUID
    tenant: str
    job: str
    version: int
    kind: str  # what its lane says: the job's needs
    queue: str
    priority: Priority
    args: str
    failures: int  # what the retry policy counts; a release or a deploy adds nothing
    crashes: int  # attempts whose worker was lost
    created_at: Instant
    run_at: Instant
    expires_at: Instant | None = None
    scheduled_for: Instant | None = None
    retries: int | None = None  # overrides the job's policy
    timeout: Seconds | None = None
    checkpoint: str | None = None  # what an earlier attempt left behind
    gate: str | None = None  # a slot to hand on when it ends
    cancel_requested: bool = False
    schedule: UUID | None = None  # to be told when it ends
    previous_success: Instant | None = None  # the last tick of that schedule that succeeded
    node: str | None = None  # of the run that is its parent: the label
    parent: UUID | None = None


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One ended try."""

    attempt: int
    outcome: Outcome
    worker: UUID | None
    started_at: Instant | None  # None: it was claimed but never started
    ended_at: Instant
    error: str | None = None


class AttemptSpan(msgspec.Struct, frozen=True, gc=False):
    """An attempt as a chart shows it: ended or not, and without its error."""

    attempt: int
    outcome: Outcome | None  # None here and as its end: it goes on
    worker: UUID | None
    started_at: Instant | None
    ended_at: Instant | None


class Execution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution as a person sees it."""

    id: UUID
    tenant: str
    job: str
    version: int
    state: State
    queue: str
    priority: Priority
    args: str
    attempt: int
    failures: int
    crashes: int
    created_at: Instant
    run_at: Instant
    scheduled_for: Instant | None = None
    expires_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    worker: UUID | None = None
    unique_key: str | None = None
    retries: int | None = None
    timeout: Seconds | None = None
    gate: str | None = None
    schedule: UUID | None = None
    parent: UUID | None = None
    node: str | None = None  # which node of a workflow it is; the run is its parent
    outcome: Outcome | None = None  # of the last attempt, once finished
    result: str | None = None
    error: str | None = None  # of the last attempt that failed
    reason: str | None = None  # why it is dead, skipped or waiting, as one word
    progress: float | None = None  # 0 to 100
    note: str | None = None  # what the task said with its progress
    checkpoint: str | None = None
    cancel_requested_at: Instant | None = None
    is_discarded: bool = False  # dead, and a person has decided to leave it so
    # Of a list: large values are left out. Arguments are then "null", the others None.
    truncated: bool = False


class ExecutionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with the attempts that have ended, oldest first; the final one included."""

    execution: Execution
    attempts: tuple[AttemptRecord, ...]


# What a task said while it ran: lines, and the text in which stores keep them.
#
# Lines gather while a task runs and are written in parts: one whenever the worker looks round,
# and the last one together with the end, which costs next to nothing. Nearly every task is over
# before the worker looks round.

# What a mask is given of a line. It finds only what is there as a whole, so it sees more than is
# kept; and of what it could not see to the end, so much is dropped that no half of a secret shows.
MASKED_CHARS_MAX: Final = 2 * LOG_LINE_CHARS_MAX

_encode: Final = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line that a task said."""

    at: Instant  # by the clock of its worker: for people, nothing is decided by it
    level: str  # as `logging` calls it, in small letters; "stdout" and "stderr" for what is printed
    source: str  # the logger's name; empty for what is printed
    message: str


_decoder: Final = msgspec.json.Decoder(Line)


LAST: Final = 2**31 - 1  # the number of the part that came with the end


class NewLogPart(msgspec.Struct, frozen=True, gc=False):
    """A part of a running execution's log, as its worker writes it."""

    id: UUID
    attempt: int
    lease: UUID
    number: int  # of the part within the attempt, from 1; written twice, it is kept once
    text: str


class LogPart(msgspec.Struct, frozen=True, order=True, gc=False):
    """A part of an execution's log, as it is kept."""

    attempt: int
    number: int
    text: str

    @property
    def lines(self) -> Iterator[Line]:
        return lines_of(self.text)


def line_text(
    at: Instant, level: str, source: str, message: str, *, cut_from: int | None = None
) -> str:
    """A `Line` as it is kept: JSON, so that whatever was said, it stays one line.

    `cut_from` is how long the message was, if it is not all there.
    """
    if cut_from is None and len(message) > LOG_LINE_CHARS_MAX:
        cut_from = len(message)
    if cut_from is not None:
        message = f"{message[:LOG_LINE_CHARS_MAX]}… ({cut_from:,} characters)"
    try:
        return _encode((at, level, source, message)).decode()
    except UnicodeEncodeError:  # halves of surrogate pairs, which no text in a store can have
        sound = (text.encode("utf-8", "replace").decode() for text in (level, source, message))
        return _encode((at, *sound)).decode()


def join_lines(lines: Iterable[str]) -> str:
    """The text of a part."""
    return "\n".join(lines)


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a part."""
    return (_decoder.decode(line) for line in text.split("\n"))


# What is kept of an exception: enough for a person to act on and for a retry rule to match.
#
# An exception is the least trustworthy object in a worker, so nothing here lets one do harm: not
# by raising when it is shown, not by its size, not by characters that a store cannot hold.

Mask = Callable[[str], str]

_FRAMES_MAX: Final = 100  # of one exception; a runaway recursion repeats itself anyway
_PLAIN_FRAMES_MAX: Final = 30
_PLAIN_CAUSES_MAX: Final = 5
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_FRAME_TEXTS_MAX: Final = 1_000  # that are kept
_frame_texts: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
# Exceptions of which the library shows more: suggestions, source, other exceptions.
_ELABORATE: Final = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO: Final = f"{_PACKAGE}demo.py"  # a user's app that comes with the package


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt failed. Its texts are cut and cleaned however it is made.

    `names` are the dotted names of the exception's class and its ancestors, nearest first. A
    failure that was no exception (a timeout, an exit code) has its type as its only name.
    """

    type: str
    message: str = ""
    traceback: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Cut and clean the texts."""
        setattr_ = msgspec.structs.force_setattr
        setattr_(self, "type", _clean(self.type, NAME_CHARS_MAX))
        setattr_(self, "message", _clean(self.message, ERROR_MESSAGE_BYTES_MAX))
        setattr_(self, "traceback", _clean(self.traceback, ERROR_TRACEBACK_BYTES_MAX))
        setattr_(self, "names", _clean_names(self.names) or (self.type,))

    @classmethod
    def from_exception(cls, error: BaseException, *, mask: Mask = str) -> Failure:
        """Describe `error`, whatever it does when it is asked. Source lines are read from disk."""
        account = Account.of(error)
        return cls(
            type=account.type,
            message=account.message.kept(ERROR_MESSAGE_BYTES_MAX, mask),
            traceback=account.traceback.kept(ERROR_TRACEBACK_BYTES_MAX, mask),
            names=account.names,
        )

    def to_json(self) -> str:
        """Return JSON text that any store can hold."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Read what to_json wrote; fields that a later version added are ignored."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise PayloadError(f"a stored failure cannot be read: {error}") from error

    @classmethod
    def of_kept(cls, text: str) -> Failure:
        """A kept error. One that another program wrote in its own way is taken as it is."""
        try:
            return cls.from_json(text)
        except PayloadError:
            return cls(type=text)


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """A text that may be cut for good only when masks have seen it: they find what is there as a
    whole. Of one without end, both ends, each with as much to spare as is kept in all.
    """

    head: str
    tail: str = ""
    length: int | None = None  # of the whole; None: head is all of it

    @classmethod
    def of(cls, text: str, bytes_max: int) -> Excerpt:
        room = 2 * bytes_max
        if len(text) <= 2 * room:
            return cls(_storable(text).decode())
        head, tail = _storable(text[:room]).decode(), _storable(text[-room:]).decode()
        return cls(head, tail, len(text))

    def kept(self, bytes_max: int, mask: Mask) -> str:
        """The text in at most so many bytes of UTF-8, without what a mask takes out."""
        if self.length is None:
            return _clean(mask(self.head), bytes_max)
        # Either may have half a secret at the cut, which the mask may have moved.
        head, tail = mask(self.head)[:-bytes_max], mask(self.tail)[bytes_max:]
        return _without_middle(head, tail, self.length, bytes_max)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as one process tells another of it."""

    type: str
    message: Excerpt
    traceback: Excerpt = Excerpt("")
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Account:
        if isinstance(error, DescribedError):
            return error.account
        mro = type(error).__mro__[:-1]
        names = _clean_names([dotted_name(ancestor) for ancestor in mro[:ERROR_NAMES_MAX]])
        return cls(
            type=names[0].removeprefix("builtins."),
            message=Excerpt.of(_message(error), ERROR_MESSAGE_BYTES_MAX),
            traceback=Excerpt.of(_traceback(error), ERROR_TRACEBACK_BYTES_MAX),
            names=names,
        )


class DescribedError(Exception):
    """Stands for an exception of another process, where it was described already; or for what
    went wrong without one. `retry_after` is how long not to try again, if somebody has said so.
    """

    def __init__(self, account: Account, *, retry_after: Seconds | None = None) -> None:
        super().__init__(account)
        self.account = account
        self.retry_after = retry_after

    @classmethod
    def as_text(
        cls, type: str, message: str, *, retry_after: Seconds | None = None
    ) -> DescribedError:
        """What went wrong, in words: an exit code, an answer's status."""
        excerpt = Excerpt.of(message, ERROR_MESSAGE_BYTES_MAX)
        return cls(Account(type=type, message=excerpt, names=(type,)), retry_after=retry_after)

    @property
    def type(self) -> str:
        """The name of the exception's class."""
        return self.account.type

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names of the exception's class and its ancestors, nearest first."""
        return self.account.names

    @property
    def message(self) -> str:
        """The exception's message; of a very long one, its beginning."""
        return self.account.message.head

    def __str__(self) -> str:
        """What shows in a traceback that this is the cause of. Nobody has masked it yet."""
        account = self.account
        told = account.traceback if account.traceback.head else account.message
        text = told.head if told.length is None else f"{told.head}\n…\n{told.tail}"
        return text if account.traceback.head else f"{account.type}: {text}"


def dotted_name(of: type) -> str:
    """Return the name that retry rules use for a class: `builtins.ValueError`, `httpx.ReadError`.

    It is where the class says that it was defined, which may not be where it is imported from.
    """
    module, name = getattr(of, "__module__", None), getattr(of, "__qualname__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)


def _clean_names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_clean(name, NAME_CHARS_MAX) for name in names[:ERROR_NAMES_MAX])


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # a __str__ that raises SystemExit must not stop the worker
        return f"<its __str__ raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        own = _own(error.__traceback__)
        if (text := _plain_traceback(error, own)) is not None:
            return text
        return "".join(traceback.format_exception(type(error), error, own, limit=-_FRAMES_MAX))
    except BaseException as broken:  # as above
        return f"<formatting the traceback raised {type(broken).__name__}>"


def _plain_traceback(
    error: BaseException, trace: TracebackType | None, causes: int = 0
) -> str | None:
    """Format as the standard library does, at a fraction of its price: a job that fails does so at
    the same lines again and again. None: there is more to show than lines and messages.
    """
    kind = type(error)
    name, module = kind.__qualname__, kind.__module__
    if isinstance(error, _ELABORATE) or hasattr(error, "__notes__"):
        return None
    parts: list[str] = []
    while trace is not None:
        part = _frame_text(trace)
        # The library shows what repeats itself only three times, and says how often.
        if len(parts) == _PLAIN_FRAMES_MAX or parts[-3:].count(part) == 3:
            return None
        parts.append(part)
        trace = trace.tb_next
    if parts:
        parts.insert(0, "Traceback (most recent call last):\n")
    try:
        message = str(error)
    except BaseException:  # which the library has words for
        return None
    name = name if module in ("__main__", "builtins") else f"{module}.{name}"
    parts.append(f"{name}: {message}\n" if message else f"{name}\n")
    if error.__cause__ is not None:
        cause, link = error.__cause__, _CAUSE
    elif error.__context__ is not None and not error.__suppress_context__:
        cause, link = error.__context__, _CONTEXT
    else:
        return "".join(parts)
    if causes == _PLAIN_CAUSES_MAX:  # there may be no end of them
        return None
    before = _plain_traceback(cause, cause.__traceback__, causes + 1)
    return None if before is None else "".join([before, link, *parts])


def _frame_text(trace: TracebackType) -> str:
    """The lines that a traceback has of one frame, which are the same for the same place of the
    same code.
    """
    code = trace.tb_frame.f_code
    key = id(code), trace.tb_lasti
    known = _frame_texts.get(key)
    if known is not None:
        return known[1]
    text = "".join(traceback.extract_tb(trace, limit=1).format())
    if len(_frame_texts) >= _FRAME_TEXTS_MAX:
        _frame_texts.clear()
    _frame_texts[key] = code, text  # the code is kept, and so its id is not given to another
    return text


def _own(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins with the user's code; all of it if none is in it."""
    part = trace
    while part is not None:
        file = part.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file == _DEMO:
            return part
        part = part.tb_next
    return trace


def _clean(text: str, bytes_max: int) -> str:
    """Return `text` in at most `bytes_max` bytes of UTF-8, escaped where it is not storable.

    Too long a text loses its middle: it begins with what happened and ends with where.
    """
    if len(text) <= bytes_max:
        kept = _storable(text)
        if len(kept) <= bytes_max:
            return kept.decode()
    return _without_middle(text, text, len(text), bytes_max)


def _without_middle(head: str, tail: str, length: int, bytes_max: int) -> str:
    """The beginning of `head` and the end of `tail`, of a text that was so long."""
    # A character is one byte at least, so bytes_max of them at either end are enough to cut from.
    mark = f"\n… cut: {length:,} characters in all …\n".encode()
    half = max(0, (bytes_max - len(mark)) // 2)
    start, end = _storable(head[:bytes_max])[:half], _storable(tail[-bytes_max:])[-half:]
    return (start + mark + end).decode(errors="ignore")


def _storable(text: str) -> bytes:
    # PostgreSQL has no NUL in text, and UTF-8 has no lone surrogates.
    return text.replace("\0", "\\x00").encode(errors="backslashreplace")


# Small answers of store operations.


class Cancellation(StrEnum):
    """The answer to a cancellation. True if it came in time."""

    CANCELLED = "cancelled"  # it had not started, and is over now
    REQUESTED = "requested"  # it runs; it will end as cancelled
    FINISHED = "finished"  # too late
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return self in (Cancellation.CANCELLED, Cancellation.REQUESTED)


class Revival(StrEnum):
    REVIVED = "revived"
    NOT_LISTED = "not_listed"  # it is not dead, or was discarded
    KEY_HELD = "key_held"  # another unfinished execution of the job has its unique key
    OVER_QUOTA = "over_quota"  # the tenant has as many unfinished executions as it may have
    UNKNOWN = "unknown"


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """An execution in the hands of a dead worker, with what its job says about that."""

    worker: UUID
    claimed: Claimed
    max_crashes: int
    retry: bool  # the job's `on_lost` is not "dead"
    # How long it has run, at least, when its worker was last heard of; None: it had not begun, by
    # its worker's reports.
    ran: Seconds | None
    is_sole: bool  # its worker has recorded it as the only suspect there
    is_excused: bool = False  # its worker stopped because the store was late: see `register`


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What the dead hold, and the store's time by which they were judged.

    `is_any_waiting` is whether anything waits at a gate, or a run for room in its tenant's quota;
    `is_any_overdue` whether a wait for an event has lasted long enough, so that neither need be
    asked for.
    """

    now: Instant
    executions: list[Lost]
    is_any_waiting: bool
    is_any_overdue: bool = False
