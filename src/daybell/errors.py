"""Every error Daybell raises, split by who can fix it.

    DaybellError
      ├─ UsageError       the caller's input is wrong
      │    ├─ ExtraMissing       a package of an extra is not installed
      │    ├─ InvalidArguments   they do not fit the task's signature
      │    ├─ InvalidDuration
      │    ├─ InvalidItems       some of many; the error of each by index
      │    ├─ InvalidName        of a job, queue, tenant or worker, or a unique key
      │    ├─ InvalidPriority
      │    ├─ InvalidRetry
      │    ├─ InvalidSchedule
      │    ├─ InvalidWorkflow
      │    ├─ PayloadError       a value that JSON cannot hold, or text that is not JSON
      │    │    └─ PayloadTooLarge
      │    └─ UnknownJob         nobody here knows how to run it
      ├─ Conflict         the world moved
      │    ├─ DuplicateKey
      │    ├─ ExecutionInTheWay  the job's overlap rule says no
      │    ├─ IllegalTransition
      │    ├─ LeaseLost
      │    ├─ QuotaExceeded      the tenant may not use more
      │    └─ VersionConflict
      ├─ NotFound         JobNotFound, ExecutionNotFound, ScheduleNotFound, SecretNotFound,
      │                   TemplateNotFound, TenantNotFound
      ├─ AccessDenied     the caller may not
      ├─ SchemaError      the store's schema is too old, too new or damaged: an operator must act
      └─ Unavailable      the store cannot be reached; safe to retry

Control flow raised *by* tasks, outside the tree on purpose, so that `except DaybellError` around
a call to Daybell never swallows a decision of the task: RetryLater, PermanentError (of which
StepsChanged is one), StepFailed, and Suspended, which not even `except Exception` catches.

A message names the thing, the fact and the way out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, cast
from uuid import UUID

SHOWN_CHARS_MAX: Final = 60
# Names that are compared with one that does not exist, and how much of it.
COMPARED_MAX: Final = 200
COMPARED_CHARS_MAX: Final = 60
LISTED_MAX: Final = 5
ITEMS_SHOWN_MAX: Final = 20


class DaybellError(Exception):
    """The root: catch it to catch everything that Daybell itself raises."""


class UsageError(DaybellError):
    """What the caller asked for makes no sense, and asking again will not help.

    `field` names the input that is wrong, where that is known, so that an API can point at it.
    """

    is_lasting = False  # a task that has raised it would do so in every attempt: see `lasting`

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ExtraMissing(UsageError):
    """A package is not installed. It comes with an extra of Daybell."""

    def __init__(self, what: str, extra: str, *, field: str | None = None) -> None:
        super().__init__(f"{what}: {install_advice(extra)}", field=field)


def install_advice(extra: str) -> str:
    """Return the command that installs an extra, as the end of a message."""
    return f"this needs daybell[{extra}]; run: pip install 'daybell[{extra}]'"


class InvalidArguments(UsageError):
    """The arguments do not fit the task's signature or its annotations."""


class InvalidDuration(UsageError):
    """Not a length of time that can be waited for."""


class InvalidItems(UsageError):
    """Some of many items were refused, so nothing was done. `errors` has the error of each refused
    item, by index.
    """

    def __init__(self, errors: Mapping[int, DaybellError], *, count: int) -> None:
        self.errors = dict(sorted(errors.items()))
        lines = (f"items[{index}]: {error}" for index, error in self.errors.items())
        said = listed(lines, most=ITEMS_SHOWN_MAX, between="\n")
        super().__init__(
            f"{len(errors):,} of {count:,} items were refused, so nothing was done:\n{said}",
            field="items",
        )


class InvalidName(UsageError):
    """Not a name, or not a key, that Daybell accepts."""


class InvalidPriority(UsageError):
    """Not one of the four priorities."""


class InvalidRetry(UsageError):
    """Not a retry policy."""


class InvalidSchedule(UsageError):
    """Not a schedule, or one that never fires."""


class InvalidWorkflow(UsageError):
    """Not a workflow: a cycle, a node that does not exist, nothing to run."""


class PayloadError(UsageError):
    """A value that cannot be stored as JSON, or text that is not JSON."""


class PayloadTooLarge(PayloadError):
    """A value that is JSON, but more of it than a row should carry."""


class UnknownJob(UsageError):
    """A job or task that this program has no definition of."""


class Conflict(DaybellError):
    """The request was right when it was made, but the world has moved since."""


class DuplicateKey(Conflict):
    """The name or key is taken."""


class ExecutionInTheWay(Conflict):
    """An execution of the job has not finished, and its overlap rule lets no other in."""

    def __init__(self, message: str, *, execution: UUID | None = None) -> None:
        super().__init__(message)
        self.execution = execution


class IllegalTransition(Conflict):
    """An execution cannot go there from the state that it is in."""


class LeaseLost(Conflict):
    """The worker was silent for too long and its work has been given to others."""


class QuotaExceeded(Conflict):
    """The tenant may not use more. `retry_after` says in how many seconds to ask again."""

    def __init__(self, message: str, *, quota: str, retry_after: float = 60.0) -> None:
        super().__init__(message)
        self.quota = quota
        self.retry_after = retry_after


class VersionConflict(Conflict):
    """Someone else changed it first: read it again, then decide again.

    `version` is the current one, where that is known.
    """

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class NotFound(DaybellError):
    """It does not exist, or not for this tenant."""


class JobNotFound(NotFound):
    """No such job."""


class ExecutionNotFound(NotFound):
    """No such execution."""


class ScheduleNotFound(NotFound):
    """No such schedule."""


class SecretNotFound(NotFound):
    """No such secret."""


class TemplateNotFound(NotFound):
    """No such template."""


class TenantNotFound(NotFound):
    """No such tenant."""


class AccessDenied(DaybellError):
    """There is no key, or not one that opens this."""


class SchemaError(DaybellError):
    """The store's schema is too old, too new or damaged; the message says which and what to do.

    Not an Unavailable: trying again changes nothing until an operator has acted.
    """


class Unavailable(DaybellError):
    """The store cannot be reached; nothing is known to be wrong with the request. Safe to retry."""

    is_lasting = False  # nothing changes until somebody acts: a wrong password, a file's rights
    is_read_only = False  # the store can be read, but not written
    was_sent = True  # False: no statement has reached the store


class PermanentError(Exception):
    """Raised by a task: this can never work, so do not try again whatever the retry policy says."""


class StepsChanged(PermanentError):
    """The code of a durable function does other steps than it did in an earlier attempt."""


class StepFailed(Exception):
    """A step had failed in an earlier attempt, with an exception whose class is not here any
    more. `type` is its name.
    """

    def __init__(self, message: str, *, type: str) -> None:
        super().__init__(message)
        self.type = type


class Suspended(BaseException):
    """Raised in a durable function that has to wait: it goes on in another attempt. Not to be
    caught by the task.

    It is due `at` a moment, or after a `delay`; without either, when an event has come.
    """

    def __init__(
        self, what: str, *, reason: str, at: float | None = None, delay: float | None = None
    ) -> None:
        super().__init__(f"{what} has suspended the execution; it goes on in another attempt")
        self.what = what
        self.reason = reason
        self.at = at
        self.delay = delay


def _may_be_duration(reason: object) -> bool:
    """Whether it is no sentence: seconds, or text that begins as "5m" or "PT5M" do."""
    return not isinstance(reason, str) or re.match(r"[0-9.]|P[0-9T]", reason) is not None


class RetryLater(Exception):
    """Raised by a task: not now. Run again after `delay` or at `at`, without counting a failure.

    `delay` is a duration; `at` is a datetime with a time zone, or seconds since 1970. Exactly one
    of them is given. `core.retry.read_retry_time` reads them; a value that it refuses makes the
    attempt fail. A duration alone, `RetryLater("5m")`, is the delay.
    """

    def __init__(
        self,
        reason: str | float | timedelta = "",
        *,
        delay: float | str | timedelta | None = None,
        at: float | datetime | None = None,
    ) -> None:
        if delay is None and at is None and _may_be_duration(reason):
            reason, delay = "", reason
        if (delay is None) == (at is None):
            raise InvalidArguments("RetryLater takes either delay= or at=, exactly one of them")
        self.reason = str(reason)
        self.delay = delay
        self.at = at
        when = f"at {at}" if delay is None else f"in {delay}"
        super().__init__(f"retry {when}: {reason}" if reason else f"retry {when}")


@contextmanager
def lasting() -> Generator[None]:
    """What is refused in this block is a mistake in a task's code, which no other attempt mends."""
    try:
        yield
    except UsageError as error:
        error.is_lasting = True
        raise


def is_permanent(error: BaseException) -> bool:
    """Whether a task that has raised this is not to be tried again, whatever its retry policy. Of
    several errors at once, one is enough.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_permanent, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, PermanentError) or (isinstance(error, UsageError) and error.is_lasting)


def shown(value: object) -> str:
    """How a message shows a value that someone sent: escaped, short, and never raising."""
    try:
        text = repr(value[:SHOWN_CHARS_MAX] if isinstance(value, str) else value)
    except Exception:
        return f"<{type(value).__name__}>"
    cut = isinstance(value, str) and len(value) > SHOWN_CHARS_MAX
    return f"{text[:SHOWN_CHARS_MAX]}…" if cut or len(text) > SHOWN_CHARS_MAX + 2 else text


def listed(names: Iterable[str], *, most: int = LISTED_MAX, between: str = ", ") -> str:
    """How a message lists names: the first of them, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - most:,} more" if len(known) > most else ""
    return between.join(known[:most]) + more


_COMMAND: Final = re.compile(r"`(daybell (?!scheduler|server|migrate|secrets rotate)[^`]*)`")


def with_tenant(text: str, tenant: str) -> str:
    """Name a tenant in the commands of an advice, which stand between backticks. Commands are
    about the default tenant otherwise.
    """
    if tenant == "default":
        return text
    return _COMMAND.sub(
        lambda found: found[0] if "--tenant" in found[1] else f"`{found[1]} --tenant {tenant}`",
        text,
    )


def suggested(name: object, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """What may be meant by a name that does not exist, as the end of a message. If none is like it:
    `otherwise`, or the names that there are.
    """
    among = list(islice(known, COMPARED_MAX))
    # It takes the square of their length, and others made them: they are cut on both sides.
    by_begin = {one[:COMPARED_CHARS_MAX]: one for one in reversed(among)}
    near = difflib.get_close_matches(str(name)[:COMPARED_CHARS_MAX], by_begin, n=1)
    if near:
        return f"did you mean {by_begin[near[0]]!r}?"
    return f"there are {', '.join(among)}" if otherwise is None else otherwise
