"""Executions: states, priority, attempts, log lines, failures; results of cancels and revivals."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from hashlib import sha256
from types import CodeType, TracebackType
from typing import Final, overload
from uuid import UUID

import msgspec
from msgspec.structs import replace

from daybell.core.limits import (
    ERROR_MESSAGE_BYTES_MAX,
    ERROR_NAMES_MAX,
    ERROR_TRACEBACK_BYTES_MAX,
    LOG_LINE_CHARS_MAX,
    NAME_CHARS_MAX,
)
from daybell.core.units import Instant, Seconds
from daybell.errors import InvalidPriority, PayloadError, shown


class Priority(IntEnum):
    """The order of claims, lowest first. The numbers are stored and never change."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The name: "high"."""
        return self.name.lower()

    @classmethod
    def parse(cls, value: object) -> Priority:
        """Parse a name in any case ("medium" means normal) or a number from 0 to 3."""
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

    WAITING = "waiting"  # for a slot, a dependency or an event
    SCHEDULED = "scheduled"  # for a time: delayed, asleep, or retried later by its task
    QUEUED = "queued"  # can be claimed
    RETRYING = "retrying"  # failed, and waits for the next attempt
    RUNNING = "running"  # claimed by one worker, under its lease
    SUCCEEDED = "succeeded"
    DEAD = "dead"  # no attempts left, or not retried; a person decides
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # by a rule: overlap, misfire, expiry, failed dependency


TERMINAL: Final = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED, State.SKIPPED})
# Replaces large arguments in lists; arguments are an object otherwise.
LEFT_OUT: Final = "null"
# Not started and not finished: the filter `status=pending`.
PENDING: Final = frozenset({State.WAITING, State.SCHEDULED, State.QUEUED, State.RETRYING})
# States with a reason for the wait.
AWAY: Final = frozenset({State.WAITING, State.SCHEDULED})


def reason_in(state: State, reason: str | None) -> str | None:
    """Return the reason for a wait; None after the wait. The row keeps the reason until its next
    transition, so that a claim need not write it.
    """
    return None if state in (State.QUEUED, State.RUNNING) else reason


class Outcome(StrEnum):
    """The end of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"  # its worker's lease ended
    CANCELLED = "cancelled"
    RELEASED = "released"  # returned without a charge: drain, sleep, lost answer, expiry


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution to enqueue. The caller makes the id, so that a repeated request creates one."""

    id: UUID
    job: str
    args: str = "{}"
    queue: str | None = None  # None here and below: the option of the job
    priority: Priority | None = None
    delay: Seconds | None = None  # by the store's clock; without delay and at: now
    at: Instant | None = None
    expires_in: Seconds | None = None  # skipped if not started this long after its time
    unique_key: str | None = None  # one unfinished execution of a job per key
    retries: int | None = None
    timeout: Seconds | None = None
    gate: str | None = None  # waits for a slot of this gate
    scheduled_for: Instant | None = None  # the nominal time of the tick
    schedule: UUID | None = None
    own_gate: bool = False  # its schedule has its own overlap gate
    by_event: bool = False  # an event fired its schedule
    parent: UUID | None = None  # the execution whose task enqueued this one
    force: bool = False  # ignores the overlap rule
    refresh: bool = False  # ignores a cached result
    wait_for_dependencies: bool = False  # starts after the job's dependencies, if it has any
    trace: str | None = None  # the context of a trace: see `core.monitoring.observers`

    @property
    def is_plain(self) -> bool:
        """True without the rarer fields; stores insert such rows faster."""
        return self.scheduled_for is None and self.schedule is None and self._has_no_wishes

    @property
    def is_plain_tick(self) -> bool:
        """True without the rarer fields other than those of a tick."""
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
            and self.trace is None
            and not self.force
        )


class ExecutionCopies(Sequence[NewExecution]):
    """Executions that differ only in their ids and arguments. Stores read the columns; an execution
    is made only if it is read.
    """

    def __init__(self, pattern: NewExecution, ids: Sequence[UUID], args: Sequence[str]) -> None:
        self.pattern = pattern
        self.ids = ids
        self.args = args

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> NewExecution: ...
    @overload
    def __getitem__(self, index: slice) -> ExecutionCopies: ...
    def __getitem__(self, index: int | slice) -> NewExecution | ExecutionCopies:
        if isinstance(index, slice):
            return ExecutionCopies(self.pattern, self.ids[index], self.args[index])
        return replace(self.pattern, id=self.ids[index], args=self.args[index])

    def __iter__(self) -> Iterator[NewExecution]:
        for id, args in zip(self.ids, self.args, strict=True):
            yield replace(self.pattern, id=id, args=args)


def distinct_in(executions: Iterable[NewExecution]) -> Iterable[NewExecution]:
    """Return executions with all properties of these, other than ids and arguments."""
    if isinstance(executions, ExecutionCopies):
        return [executions.pattern] if executions.ids else []
    return executions


def columns_of(executions: Sequence[NewExecution]) -> tuple[Sequence[UUID], Sequence[str]]:
    """Return the ids and the arguments of executions."""
    if isinstance(executions, ExecutionCopies):
        return executions.ids, executions.args
    return [one.id for one in executions], [one.args for one in executions]


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The answer to an enqueue: the new execution, or the one that holds the unique key."""

    id: UUID
    created: bool = True
    skipped: bool = False  # by the overlap rule; only executions of ticks are recorded as skipped
    at_gate: bool = False  # new, with an overlap rule: it may have to wait
    state: State | None = None  # in answers of a server


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An execution claimed by a worker. `(id, attempt)` identifies this start; `lease` is that of
    its claim.
    """

    id: UUID
    # The fencing token: starts at 1, and rises with every return to the queue.
    attempt: int
    lease: UUID
    tenant: str
    job: str
    version: int
    kind: str  # the job's needs, without demands
    queue: str
    priority: Priority
    args: str
    failures: int  # counted by the retry policy; releases add none
    crashes: int  # attempts with a lost worker
    created_at: Instant
    run_at: Instant
    expires_at: Instant | None = None
    scheduled_for: Instant | None = None
    retries: int | None = None  # overrides the job's policy
    timeout: Seconds | None = None
    checkpoint: str | None = None  # of an earlier attempt
    gate: str | None = None  # holds a slot of this gate
    cancel_requested: bool = False
    schedule: UUID | None = None  # of a fixed delay, or with failures to count
    previous_success: Instant | None = None  # the last successful tick of that schedule
    node: str | None = None  # the label in the run `parent`
    parent: UUID | None = None
    demands: str = ""  # the end of the needs: see `core.placement`
    is_limited: bool = False  # holds limits of its job: see `core.flow`


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One ended attempt."""

    attempt: int
    outcome: Outcome
    worker: UUID | None
    started_at: Instant | None  # None: claimed but not started
    ended_at: Instant
    error: str | None = None


class AttemptSpan(msgspec.Struct, frozen=True, gc=False):
    """An attempt for charts, ended or not, without its error."""

    attempt: int
    outcome: Outcome | None  # None while it runs
    worker: UUID | None
    started_at: Instant | None
    ended_at: Instant | None


class Execution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution in answers."""

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
    node: str | None = None  # the node of the workflow run `parent`
    outcome: Outcome | None = None  # of the last attempt, once finished
    result: str | None = None
    error: str | None = None  # of the last failed attempt
    reason: str | None = None  # one word: why it is dead, skipped or waiting
    progress: float | None = None  # 0 to 100
    note: str | None = None  # the task's message with its progress
    checkpoint: str | None = None
    cancel_requested_at: Instant | None = None
    is_discarded: bool = False  # a dead letter that a person discarded
    # In lists, large values are left out: arguments are "null", others None.
    truncated: bool = False


class ExecutionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An execution with its ended attempts, oldest first."""

    execution: Execution
    attempts: tuple[AttemptRecord, ...]


# Log lines.
#
# Lines gather while a task runs and are written in parts: at the worker's reports, and the last
# part with the end, at nearly no cost. Most tasks end before the first report.

# The length of a line that masks see. A mask recognizes only a complete secret, so it sees more
# than is stored; the uncertain end of a cut line is dropped.
MASKED_CHARS_MAX: Final = 2 * LOG_LINE_CHARS_MAX

_encode: Final = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One log line."""

    at: Instant  # by the worker's clock; no decision depends on it
    level: str  # of `logging`, in lower case; "stdout" and "stderr" for output
    source: str  # the name of the logger; empty for output
    message: str


_decoder: Final = msgspec.json.Decoder(Line)


LAST: Final = 2**31 - 1  # the number of the part that is stored with the end


class NewLogPart(msgspec.Struct, frozen=True, gc=False):
    """A part of a running execution's log, to write."""

    id: UUID
    attempt: int
    lease: UUID
    number: int  # within the attempt, from 1; a repeated part is stored once
    text: str


class LogPart(msgspec.Struct, frozen=True, order=True, gc=False):
    """A stored part of an execution's log."""

    attempt: int
    number: int
    text: str

    @property
    def lines(self) -> Iterator[Line]:
        return lines_of(self.text)


def line_text(
    at: Instant, level: str, source: str, message: str, *, cut_from: int | None = None
) -> str:
    """Format a stored line: JSON, so that every message is one line.

    `cut_from` is the full length of a cut message.
    """
    if cut_from is None and len(message) > LOG_LINE_CHARS_MAX:
        cut_from = len(message)
    if cut_from is not None:
        message = f"{message[:LOG_LINE_CHARS_MAX]}… ({cut_from:,} characters)"
    try:
        return _encode((at, level, source, message)).decode()
    except UnicodeEncodeError:  # lone surrogates, which stores cannot hold
        sound = (text.encode("utf-8", "replace").decode() for text in (level, source, message))
        return _encode((at, *sound)).decode()


def join_lines(lines: Iterable[str]) -> str:
    """Join the lines of a part."""
    return "\n".join(lines)


def lines_of(text: str) -> Iterator[Line]:
    """Parse the lines of a part."""
    return (_decoder.decode(line) for line in text.split("\n"))


# Failures: a summary of an exception for people and retry rules.
#
# Exceptions are untrusted objects: their methods may raise, their texts may be huge or contain
# characters that a store cannot hold.

Mask = Callable[[str], str]

_FRAMES_MAX: Final = 100  # of one exception
_PLAIN_FRAMES_MAX: Final = 30
_PLAIN_CAUSES_MAX: Final = 5
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_FRAME_TEXTS_MAX: Final = 1_000  # cached texts
_frame_texts: Final[dict[tuple[int, int], tuple[CodeType, str]]] = {}
_CLASS_NAMES_MAX: Final = 1_000  # cached classes
_class_names: Final[dict[int, tuple[type[BaseException], tuple[str, ...]]]] = {}
# Exceptions with more details: suggestions, source, other exceptions.
_ELABORATE: Final = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO: Final = f"{_PACKAGE}demo.py"  # counts as a user's app


FINGERPRINT_CHARS: Final = 12
_VARYING: Final = re.compile(
    r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|'[^']*'|\"[^\"]*\"|[0-9]+"
)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of an attempt, with cut and cleaned texts.

    `names` are the dotted names of the exception's class and its ancestors, nearest first. A
    failure without an exception (a timeout, an exit code) has its type as the only name.
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
        """Describe an exception, even if its methods raise. Source lines are read from disk."""
        account = Account.of(error)
        return cls(
            type=account.type,
            message=account.message.cut(ERROR_MESSAGE_BYTES_MAX, mask),
            traceback=account.traceback.cut(ERROR_TRACEBACK_BYTES_MAX, mask),
            names=account.names,
        )

    @property
    def fingerprint(self) -> str:
        """A text that failures share if they differ in numbers, ids and quoted parts of the first
        line of the message at most.
        """
        first = self.message.partition("\n")[0]
        text = f"{self.type}: {_VARYING.sub('#', first)}"
        return sha256(text.encode(errors="surrogatepass")).hexdigest()[:FINGERPRINT_CHARS]

    def to_json(self) -> str:
        """Return JSON text that any store can hold."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Parse the output of to_json; unknown fields are ignored."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise PayloadError(f"a stored failure cannot be read: {error}") from error

    @classmethod
    def of_kept(cls, text: str) -> Failure:
        """Parse a stored error; text of another program becomes the type."""
        try:
            return cls.from_json(text)
        except PayloadError:
            return cls(type=text)


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """A text to be masked before its final cut, as masks recognize only complete secrets. A long
    text has two ends, each with enough to spare for the cut.
    """

    head: str
    tail: str = ""
    length: int | None = None  # of the whole; None: head is complete

    @classmethod
    def of(cls, text: str, bytes_max: int) -> Excerpt:
        room = 2 * bytes_max
        if len(text) <= 2 * room:
            return cls(text if _is_plain(text) else _storable(text).decode())
        head, tail = _storable(text[:room]).decode(), _storable(text[-room:]).decode()
        return cls(head, tail, len(text))

    def cut(self, bytes_max: int, mask: Mask) -> str:
        """Return the masked text in at most so many bytes of UTF-8."""
        if self.length is None:
            return _clean(mask(self.head), bytes_max)
        # Drop half a secret at each cut, which the mask may have moved.
        head, tail = mask(self.head)[:-bytes_max], mask(self.tail)[bytes_max:]
        return _without_middle(head, tail, self.length, bytes_max)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A description of an exception for another process."""

    type: str
    message: Excerpt
    traceback: Excerpt = Excerpt("")
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException) -> Account:
        if isinstance(error, DescribedError):
            return error.account
        names = _names_of(type(error))
        return cls(
            type=names[0].removeprefix("builtins."),
            message=Excerpt.of(_message(error), ERROR_MESSAGE_BYTES_MAX),
            traceback=Excerpt.of(_traceback(error), ERROR_TRACEBACK_BYTES_MAX),
            names=names,
        )


class DescribedError(Exception):
    """An exception of another process, or a failure without an exception. `retry_after` is the
    requested time until the next attempt.
    """

    def __init__(self, account: Account, *, retry_after: Seconds | None = None) -> None:
        super().__init__(account)
        self.account = account
        self.retry_after = retry_after

    @classmethod
    def as_text(
        cls, type: str, message: str, *, retry_after: Seconds | None = None
    ) -> DescribedError:
        """Describe a failure without an exception, such as an exit code or a status."""
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
        """The exception's message, or its beginning."""
        return self.account.message.head

    def __str__(self) -> str:
        """Return the text for a traceback in which this is the cause; it is not masked yet."""
        account = self.account
        excerpt = account.traceback if account.traceback.head else account.message
        text = excerpt.head
        if excerpt.length is not None:
            text = f"{text}\n…\n{excerpt.tail}"
        return text if account.traceback.head else f"{account.type}: {text}"


def dotted_name(of: type) -> str:
    """Return the name of a class for retry rules: `builtins.ValueError`, `httpx.ReadError`.

    It names the module that defines the class, not the one that it is imported from.
    """
    module, name = getattr(of, "__module__", None), getattr(of, "__qualname__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)


def _names_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Return the names of a class and its ancestors, nearest first; cached, because a failing job
    raises the same class. By its id: a metaclass may break its hash.
    """
    known = _class_names.get(id(kind))
    if known is not None:
        return known[1]
    names = _clean_names([dotted_name(one) for one in kind.__mro__[:-1][:ERROR_NAMES_MAX]])
    if len(_class_names) >= _CLASS_NAMES_MAX:
        _class_names.clear()
    _class_names[id(kind)] = kind, names  # keeps the class alive, so that its id stays unique
    return names


def _clean_names(names: Sequence[str]) -> tuple[str, ...]:
    joined = "".join(names)
    if len(joined) <= NAME_CHARS_MAX and len(names) <= ERROR_NAMES_MAX and _is_plain(joined):
        return tuple(names)  # the common case
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
    except BaseException as broken:
        return f"<formatting the traceback raised {type(broken).__name__}>"


def _plain_traceback(
    error: BaseException, trace: TracebackType | None, causes: int = 0
) -> str | None:
    """Format as the standard library does, but with cached frames, because a failing job fails at
    the same lines. None: the library would show more than lines and messages.
    """
    kind = type(error)
    name, module = kind.__qualname__, kind.__module__
    if isinstance(error, _ELABORATE) or hasattr(error, "__notes__"):
        return None
    parts: list[str] = []
    while trace is not None:
        part = _frame_text(trace)
        # The library abbreviates frames that repeat more than three times.
        if len(parts) == _PLAIN_FRAMES_MAX or parts[-3:].count(part) == 3:
            return None
        parts.append(part)
        trace = trace.tb_next
    if parts:
        parts.insert(0, "Traceback (most recent call last):\n")
    try:
        message = str(error)
    except BaseException:  # the library reports it
        return None
    name = name if module in ("__main__", "builtins") else f"{module}.{name}"
    parts.append(f"{name}: {message}\n" if message else f"{name}\n")
    if error.__cause__ is not None:
        cause, link = error.__cause__, _CAUSE
    elif error.__context__ is not None and not error.__suppress_context__:
        cause, link = error.__context__, _CONTEXT
    else:
        return "".join(parts)
    if causes == _PLAIN_CAUSES_MAX:
        return None
    before = _plain_traceback(cause, cause.__traceback__, causes + 1)
    return None if before is None else "".join([before, link, *parts])


def _frame_text(trace: TracebackType) -> str:
    """Format one frame of a traceback; cached by code and position."""
    code = trace.tb_frame.f_code
    key = id(code), trace.tb_lasti
    known = _frame_texts.get(key)
    if known is not None:
        return known[1]
    text = "".join(traceback.extract_tb(trace, limit=1).format())
    if len(_frame_texts) >= _FRAME_TEXTS_MAX:
        _frame_texts.clear()
    _frame_texts[key] = code, text  # keeps the code alive, so that its id stays unique
    return text


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's code on; all of it without user code."""
    part = trace
    while part is not None:
        file = part.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file == _DEMO:
            return part
        part = part.tb_next
    return trace


def _clean(text: str, bytes_max: int) -> str:
    """Return `text` in at most `bytes_max` bytes of UTF-8, with unstorable characters escaped.

    A longer text loses its middle.
    """
    if len(text) <= bytes_max:
        if _is_plain(text):
            return text
        kept = _storable(text)
        if len(kept) <= bytes_max:
            return kept.decode()
    return _without_middle(text, text, len(text), bytes_max)


def _without_middle(head: str, tail: str, length: int, bytes_max: int) -> str:
    """Join the start of `head` and the end of `tail`, of a text of this length."""
    # A character has at least one byte, so bytes_max characters at either end are enough.
    mark = f"\n… cut: {length:,} characters in all …\n".encode()
    half = max(0, (bytes_max - len(mark)) // 2)
    start, end = _storable(head[:bytes_max])[:half], _storable(tail[-bytes_max:])[-half:]
    return (start + mark + end).decode(errors="ignore")


def _is_plain(text: str) -> bool:
    """Return True if a text can be stored as it is, with a byte for each character: most can."""
    return text.isascii() and "\0" not in text


def _storable(text: str) -> bytes:
    # PostgreSQL has no NUL in text, and UTF-8 has no lone surrogates.
    return text.replace("\0", "\\x00").encode(errors="backslashreplace")


# Answers of store operations.


class Cancellation(StrEnum):
    """The answer to a cancel; true if it was in time."""

    CANCELLED = "cancelled"  # it had not started
    REQUESTED = "requested"  # it runs, and will end as cancelled
    FINISHED = "finished"  # it had ended
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return self in (Cancellation.CANCELLED, Cancellation.REQUESTED)


class Revival(StrEnum):
    REVIVED = "revived"
    NOT_LISTED = "not_listed"  # not dead, or discarded
    KEY_HELD = "key_held"  # an unfinished execution holds its unique key
    OVER_QUOTA = "over_quota"  # the tenant has too many unfinished executions
    UNKNOWN = "unknown"


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """An execution of a dead worker, with the options of its job for that case."""

    worker: UUID
    claimed: Claimed
    max_crashes: int
    retry: bool  # False for `on_lost="dead"`
    # Minimum run time at the last report; None: not started, by the worker's reports.
    ran: Seconds | None
    is_sole: bool  # recorded as the only suspect of its worker
    is_excused: bool = False  # its worker stopped because the store was late: see `register`


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """The executions of dead workers, and the store's time of the decision.

    `is_any_waiting`: an execution waits at a gate, or a run for the tenant's quota.
    `is_any_overdue`: a wait for an event has timed out. Both save a query of their own.
    """

    now: Instant
    executions: list[Lost]
    is_any_waiting: bool
    is_any_overdue: bool = False
