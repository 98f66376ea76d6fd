"""Every error Daybell raises, split by who can fix it.

    DaybellError
      ├─ UsageError       the caller's input is wrong
      │    ├─ InvalidArguments   they do not fit the task's signature
      │    ├─ InvalidDuration
      │    ├─ InvalidFields      several fields; the error of each
      │    ├─ InvalidItems       some of many; the error of each by index
      │    ├─ InvalidName        of a job, queue, tenant or worker, or a unique key
      │    ├─ InvalidPriority
      │    ├─ InvalidRetry
      │    ├─ InvalidSchedule
      │    ├─ InvalidWorkflow
      │    ├─ QueryError         a query for executions, with its position
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
      │                   TemplateNotFound, TenantNotFound, AlertNotFound,
      │                   SubscriptionNotFound, ExportNotFound, LimitNotFound
      ├─ AccessDenied     the caller may not
      ├─ SchemaError      the store's schema is too old, too new or damaged: an operator must act
      └─ Unavailable      the store cannot be reached; safe to retry

Control flow raised *by* tasks, outside the tree on purpose, so that `except DaybellError` around
a call to Daybell never swallows a decision of the task: RetryLater, PermanentError (of which
StepsChanged is one), StepFailed, and Suspended, which not even `except Exception` catches.

A message names the thing, the fact and the way out. A program goes by `code`;
docs/reference/errors.md lists all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, cast
from uuid import UUID

SHOWN_CHARS_MAX: Final = 60
# Names that are compared with one that does not exist, and how much of it.
COMPARED_MAX: Final = 200
COMPARED_CHARS_MAX: Final = 60
LISTED_MAX: Final = 5
ITEMS_SHOWN_MAX: Final = 20
FIELD_CHARS_MAX: Final = 200  # of a field's name, which a caller may have made up
FAULTS_MAX: Final = 100  # errors of fields in one answer


class DaybellError(Exception):
    """The root: catch it to catch everything that Daybell itself raises.

    `code` is stable, for programs; `status` is that of an HTTP answer, `remedy` the way out.
    """

    code = "error"
    status = 500
    remedy = "Read the message."

    def problem(self) -> dict[str, Any]:
        """The error as problem+json of RFC 9457, which the HTTP API and `--json` print."""
        return build_problem(self.code, self.status, str(self), **self._extra_fields())

    def _extra_fields(self) -> dict[str, Any]:
        """What the error says beside its message, for programs."""
        return {}


HTTP_FAULT: Final = 500  # the status of an error that is not the caller's
URN: Final = "urn:daybell:problem:"  # `type` is this and the code


def describe_field(field: str, message: str) -> dict[str, str]:
    """One entry of `errors` in a problem document."""
    return {"field": field[:FIELD_CHARS_MAX], "message": message}


def build_problem(
    code: str, status: int, detail: str, *, errors: Iterable[Mapping[str, str]] = (), **more: Any
) -> dict[str, Any]:
    """A problem document of RFC 9457. `errors` names the inputs that are wrong."""
    listed = list(errors)
    return {
        "type": URN + code,
        "code": code,
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        **({"errors": listed} if listed else {}),
        **more,
    }


class UsageError(DaybellError):
    """The input is wrong; the same request fails again.

    `field` names the input that is wrong, where that is known, so that an API can point at it.
    """

    code = "usage-error"
    status = 422
    remedy = "Correct the input that `field` names, then send it again."

    is_lasting = False  # a task that has raised it would do so in every attempt: see `lasting`

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def _extra_fields(self) -> dict[str, Any]:
        if self.field is None:
            return {}
        return {"errors": [describe_field(self.field, str(self))]}


def install_advice(extra: str) -> str:
    """Return the command that installs an extra, as the end of a message."""
    return f"this needs daybell[{extra}]; run: pip install 'daybell[{extra}]'"


class InvalidArguments(UsageError):
    """The arguments do not fit the task's signature or its annotations."""

    code = "invalid-arguments"
    remedy = "Call the task as its signature says."


class InvalidDuration(UsageError):
    """The text is not a length of time that a process can wait for."""

    code = "invalid-duration"
    remedy = 'Write seconds, `"5m"`, `"1h30m"` or `"PT5M"`.'


class QueryError(UsageError):
    """The query for executions has a mistake; `position` counts characters from 0."""

    code = "invalid-query"
    remedy = "Correct the query `q` at the character that `position` names."

    def __init__(self, message: str, *, position: int) -> None:
        super().__init__(f"character {position + 1}: {message}", field="q")
        self.position = position

    def _extra_fields(self) -> dict[str, Any]:
        return {**super()._extra_fields(), "position": self.position}


class InvalidFields(UsageError):
    """Several fields of one request are wrong, so nothing was done; `errors` has them all."""

    code = "invalid-fields"
    remedy = "Correct the fields that `errors` names, then send the request again."

    def __init__(self, errors: Iterable[UsageError]) -> None:
        self.errors = tuple(errors)
        lines = (f"{one.field}: {one}" if one.field else str(one) for one in self.errors)
        said = listed(lines, most=ITEMS_SHOWN_MAX, between="\n")
        super().__init__(
            f"{len(self.errors):,} fields were refused:\n{said}", field=self.errors[0].field
        )

    def _extra_fields(self) -> dict[str, Any]:
        listed = [describe_field(one.field or "body", str(one)) for one in self.errors]
        return {"errors": listed[:FAULTS_MAX]}


class InvalidItems(UsageError):
    """Some of many items are wrong, so nothing was done. `errors` has the error of each refused
    item, by index.
    """

    code = "invalid-items"
    remedy = "Correct the items that the message names, then send all of them again."

    def __init__(self, errors: Mapping[int, DaybellError], *, count: int) -> None:
        self.errors = dict(sorted(errors.items()))
        lines = (f"items[{index}]: {error}" for index, error in self.errors.items())
        said = listed(lines, most=ITEMS_SHOWN_MAX, between="\n")
        super().__init__(
            f"{len(errors):,} of {count:,} items were refused, so nothing was done:\n{said}",
            field="items",
        )


class InvalidName(UsageError):
    """The name or key has characters or a length that Daybell does not accept."""

    code = "invalid-name"
    remedy = "Use letters, digits, `-`, `_` and `.`; see the limits of names."


class InvalidPriority(UsageError):
    """The word is not one of the four priorities."""

    code = "invalid-priority"
    remedy = "Use `critical`, `high`, `normal` or `low`."


class InvalidRetry(UsageError):
    """The retry policy cannot be read."""

    code = "invalid-retry"
    remedy = "Correct the retry policy; see the guide on retries."


class InvalidSchedule(UsageError):
    """The schedule cannot be read, or never fires."""

    code = "invalid-schedule"
    remedy = "Correct the schedule; `daybell cron explain` shows what an expression means."


class InvalidWorkflow(UsageError):
    """The graph is not a workflow: a cycle, a missing node, nothing to run."""

    code = "invalid-workflow"
    remedy = "Correct the node or edge that the message names."


class PayloadError(UsageError):
    """The value cannot be stored as JSON, or the text is not JSON."""

    code = "payload-error"
    remedy = "Pass values that JSON can hold."


class PayloadTooLarge(PayloadError):
    """The value is larger than a row may carry."""

    code = "payload-too-large"
    status = 413
    remedy = "Store the value elsewhere and pass a reference to it."


class UnknownJob(UsageError):
    """This program has no definition of the job or task."""

    code = "undefined-job"
    remedy = "Import the module that declares the task, or correct the name."


class Conflict(DaybellError):
    """The request does not fit the current state."""

    code = "conflict"
    status = 409
    remedy = "Read the current state, then decide again."


class DuplicateKey(Conflict):
    """The name or key is taken."""

    code = "duplicate-key"
    remedy = "Choose another name or key, or use what exists."


class ExecutionInTheWay(Conflict):
    """An execution of the job has not finished, and the overlap rule admits no other."""

    code = "execution-in-the-way"
    remedy = "Wait for the execution that the error names, or use `force`."

    def __init__(self, message: str, *, execution: UUID | None = None) -> None:
        super().__init__(message)
        self.execution = execution

    def _extra_fields(self) -> dict[str, Any]:
        return {} if self.execution is None else {"execution_id": str(self.execution)}


class IllegalTransition(Conflict):
    """The lifecycle has no such move from the state of the execution."""

    code = "illegal-transition"
    remedy = "Read the execution's state; see the lifecycle page."


class LeaseLost(Conflict):
    """The worker did not renew its lease in time, so its work was requeued."""

    code = "lease-lost"
    remedy = "Stop the work; another worker has it. Make leases longer than pauses of the machine."


class QuotaExceeded(Conflict):
    """A quota of the tenant is used up. `retry_after` is the number of seconds to wait."""

    code = "quota-exceeded"
    status = 429
    remedy = "Wait for `retry_after` seconds, or raise the tenant's quota."

    def __init__(self, message: str, *, quota: str, retry_after: float = 60.0) -> None:
        super().__init__(message)
        self.quota = quota
        self.retry_after = retry_after

    def _extra_fields(self) -> dict[str, Any]:
        return {"quota": self.quota}


class VersionConflict(Conflict):
    """Another caller has changed it since it was read.

    `version` is the current one, where that is known.
    """

    code = "version-conflict"
    remedy = "Read the current version, then make the change again."

    def __init__(self, message: str, *, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


class NotFound(DaybellError):
    """It does not exist in this tenant."""

    code = "not-found"
    status = 404
    remedy = "Check the name or id, and the tenant."


class JobNotFound(NotFound):
    """The tenant has no such job."""

    code = "unknown-job"
    remedy = "Check the name; `daybell jobs list` shows all jobs."


class ExecutionNotFound(NotFound):
    """The tenant has no such execution."""

    code = "unknown-execution"
    remedy = "Check the id; retention may have removed the execution."


class LimitNotFound(NotFound):
    """The tenant has no such limit."""

    code = "unknown-limit"
    remedy = "Check the name; `daybell limits list` shows all limits. A job that uses it makes it."


class ScheduleNotFound(NotFound):
    """The job has no such schedule."""

    code = "unknown-schedule"
    remedy = "Check the name; `daybell jobs schedules` lists those of a job."


class SecretNotFound(NotFound):
    """The tenant has no such secret."""

    code = "unknown-secret"
    remedy = "Set the secret with `daybell secrets set`."


class TemplateNotFound(NotFound):
    """The tenant has no such template."""

    code = "unknown-template"
    remedy = "Check the name of the template."


class AlertNotFound(NotFound):
    """The tenant has no such alert rule, or no such open incident."""

    code = "unknown-alert"
    remedy = "Check the name; `daybell alerts list` lists rules and open incidents."


class SubscriptionNotFound(NotFound):
    """The tenant has no such subscription to outgoing events."""

    code = "unknown-subscription"
    remedy = "Check the name; `daybell subscriptions list` lists subscriptions."


class ExportNotFound(NotFound):
    """The tenant has no such export policy."""

    code = "unknown-export"
    remedy = "Check the name; `daybell doctor` lists export policies."


class TenantNotFound(NotFound):
    """There is no such tenant."""

    code = "unknown-tenant"
    remedy = "Create the tenant with `daybell tenants create`."


class AccessDenied(DaybellError):
    """The key does not allow the request."""

    code = "access-denied"
    status = 403
    remedy = "Use a key with the role, scope and tenant that the request takes."


class SchemaError(DaybellError):
    """The store's schema is too old, too new or damaged.

    Not an Unavailable: trying again changes nothing until an operator has acted.
    """

    code = "schema-error"
    status = 503
    remedy = "Do as the message says, most often `daybell migrate`."


class Unavailable(DaybellError):
    """The store or the server cannot be reached."""

    code = "unavailable"
    status = 503
    remedy = "Send the request again; it is safe."

    is_lasting = False  # nothing changes until somebody acts: a wrong password, a file's rights
    is_read_only = False  # the store can be read, but not written
    was_sent = True  # False: no statement has reached the store


# Errors without a class, which a server or the command line reports: by code the status, the cause
# and the way out.
CODES_WITHOUT_CLASS: Final[Mapping[str, tuple[int, str, str]]] = {
    "bad-host": (400, "The Host header is missing or malformed.", "Send the host of the server."),
    "bad-request": (400, "The bytes are not a request of HTTP/1.1.", "Send a valid request."),
    "busy": (503, "The server has too many requests.", "Send the request again in a second."),
    "environment": (
        HTTP_FAULT,
        "The command line cannot use a folder, file or descriptor.",
        "Do as the message says.",
    ),
    "foreign-origin": (
        403,
        "The request comes from a page of another site.",
        "Send it from a page of this server, or with a key.",
    ),
    "internal-error": (
        HTTP_FAULT,
        "A mistake in Daybell; the log of the server has it.",
        "Report it; the request may be sent again.",
    ),
    "key-in-address": (
        400,
        "The address has a key in it.",
        "Replace the key, and send it as `Authorization: Bearer dbk_…`.",
    ),
    "method-not-allowed": (
        405,
        "The path does not take the method.",
        "Use a method that `Allow` names.",
    ),
    "request-header-fields-too-large": (
        431,
        "The head of the request is too large.",
        "Send fewer or smaller headers.",
    ),
    "request-timeout": (408, "The body did not come in time.", "Send the request again."),
    "too-late": (
        503,
        "The server gave up after a time limit.",
        "Send the request again, a change with the same `Idempotency-Key`.",
    ),
    "wrong-host": (
        421,
        "The server does not go by the name in the Host header.",
        "Start it with `--allowed-host NAME`.",
    ),
}


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
    attempt fail. A duration alone, `RetryLater("5m")`, is the delay. With `limit`, the name of a
    limit of the job, no other execution starts that needs it, for the same value of its key, until
    then.
    """

    def __init__(
        self,
        reason: str | float | timedelta = "",
        *,
        delay: float | str | timedelta | None = None,
        at: float | datetime | None = None,
        limit: str | None = None,
    ) -> None:
        if delay is None and at is None and _may_be_duration(reason):
            reason, delay = "", reason
        if (delay is None) == (at is None):
            raise InvalidArguments("RetryLater takes either delay= or at=, exactly one of them")
        if limit is not None and not isinstance(cast("object", limit), str):
            raise InvalidArguments("RetryLater: limit= must be the name of a limit of the job")
        self.reason = str(reason)
        self.delay = delay
        self.at = at
        self.limit = limit
        when = f"at {at}" if delay is None else f"in {delay}"
        super().__init__(f"retry {when}: {reason}" if reason else f"retry {when}")


def faults_of(error: UsageError) -> tuple[UsageError, ...]:
    """Return the errors of all fields that were refused together; else the error itself."""
    return error.errors if isinstance(error, InvalidFields) else (error,)


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


_COMMAND: Final = re.compile(
    r"`(daybell (?!scheduler|server|migrate|tenants|secrets rotate)[^`]*)`"
)


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
