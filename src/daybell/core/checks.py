"""Validation of rows before they are written, the same for every store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf, isnan, nan
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

from daybell.core.access import NewAuditEntry, NewKey, NewRequest, NewSecret, Quotas, check_scope
from daybell.core.collapse import CollapseRule
from daybell.core.execution import ExecutionCopies, NewExecution, State
from daybell.core.flow.shares import WEIGHT_MAX, WEIGHT_MIN
from daybell.core.job import JobDefinition, NewT, RecordKind
from daybell.core.lifecycle import Transition
from daybell.core.limits import (
    ARGS_BYTES_MAX,
    AUDIT_CHARS_MAX,
    DURATION_SECONDS_MAX,
    ENQUEUE_BATCH_MAX,
    INSTANT_MAX,
    PAGE_ITEMS_MAX,
    QUOTA_MAX,
    REQUEST_KEY_CHARS_MAX,
    RESULT_BYTES_MAX,
    RETRIES_MAX,
    SECRET_BYTES_MAX,
    check_key,
    check_name,
    size_fault,
    text_fault,
)
from daybell.core.references import check_secret_name
from daybell.core.schedule import NewSchedule, Overlap, Schedule
from daybell.core.units import Instant
from daybell.core.views import ExecutionFilter, JobFilter
from daybell.core.worker import Report
from daybell.errors import (
    DuplicateKey,
    ExecutionInTheWay,
    InvalidName,
    NotFound,
    PayloadTooLarge,
    UsageError,
    shown,
)

OCCURRENCES_MAX: Final = 10_000  # of a schedule, read at a time
# Retention of short-lived records.
MINUTE_KEPT_SECONDS: Final = 3600.0
AUDIT_KEPT_SECONDS: Final = 365 * 86400.0
KEY_KEPT_SECONDS: Final = 90 * 86400.0  # after it expired or was revoked
SEAL_BYTES_MAX: Final = 1024  # added by a seal
NO_ID: Final = UUID(int=0)
ID_CHARS: Final = len(NO_ID.hex)
ATTEMPT_MAX: Final = 2**31 - 1  # the largest value of an `integer` column


def check_limit(limit: int, *, most: int = PAGE_ITEMS_MAX) -> int:
    """Return a valid page size."""
    if not 1 <= limit <= most:
        raise UsageError(f"limit={limit} must be from 1 to {most:,}", field="limit")
    return limit


def check_cursor(cursor: str | None) -> UUID | None:
    """Return the last id of the page before."""
    if cursor is None:
        return None
    try:
        return UUID(cursor)
    except ValueError:
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        ) from None


def check_countable(where: ExecutionFilter) -> None:
    """Refuse to count by content, which would read every execution in one statement."""
    if where.content is not None:
        raise UsageError(
            "executions cannot be counted by their content in one request; list them, page by page"
        )


def check_version(cursor: str | None) -> int:
    """Return the last version of the page before; without a cursor, a number above any version."""
    if cursor is None:
        return ATTEMPT_MAX
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        )
    return int(cursor)


def check_schedule_cursor(cursor: str | None) -> tuple[bool, Instant, UUID]:
    """Return the place of the last schedule of the page before; see `schedule_cursor`."""
    if cursor is None:
        return False, -inf, NO_ID
    id = check_cursor(cursor[:ID_CHARS])
    assert id is not None
    try:
        is_made, at = _PLACE.unpack(bytes.fromhex(cursor[ID_CHARS:]))
    except (ValueError, StructError):
        is_made, at = False, nan
    if isnan(at):
        raise UsageError(
            f"{shown(cursor)} is not a cursor; pass next_cursor of the page before", field="cursor"
        )
    return is_made, at, id


_PLACE: Final = Struct(">?d")  # True if it was made at run time, and its next time


def schedule_cursor(schedule: Schedule | NewSchedule) -> str:
    """Return the cursor of a page of schedules that ends with this one. Declared schedules come
    before those made at run time, and the next ones first.
    """
    at = inf if schedule.next_at is None else schedule.next_at
    return schedule.id.hex + _PLACE.pack(not schedule.is_declared, at).hex()


def check_definition(definition: JobDefinition) -> str:
    """Return the stored text of a definition; raise if it is invalid."""
    check_name(definition.name, what="job")
    check_name(definition.queue, what="queue")
    if definition.user_id is not None:
        check_key(definition.user_id, what="user_id")
    for what, limit in (("timeout", definition.timeout), ("expires", definition.expires)):
        if fault := _limit_fault(what, limit):
            raise UsageError(f"job {shown(definition.name)}: {fault}", field=what)
    try:
        return definition.to_json()
    except UnicodeEncodeError:
        raise UsageError(
            f"the definition of job {shown(definition.name)} contains half a surrogate pair,"
            " which is not a character",
            field="jobs",
        ) from None


def check_names(names: Sequence[str]) -> None:
    """Check the number and characters of names to look up."""
    if len(names) > PAGE_ITEMS_MAX:
        raise UsageError(
            f"{len(names):,} names at once; the limit is {PAGE_ITEMS_MAX:,}", field="names"
        )
    for name in names:
        if fault := text_fault(name):
            raise UsageError(f"name {shown(name)} {fault}", field="names")


def check_name_cursor(cursor: str | None) -> str:
    """Return the last name of the page before; empty without a cursor."""
    if cursor is not None and (fault := text_fault(cursor)):
        raise UsageError(f"cursor {shown(cursor)} {fault}", field="cursor")
    return cursor or ""


def check_job_filter(where: JobFilter, cursor: str | None) -> None:
    """Check the texts of a filter for jobs."""
    asked = {
        "prefix": where.prefix,
        "text": where.text,
        "user_id": where.user_id,
        "queue": where.queue,
        "label": where.label,
        "mentions": where.mentions,
        "cursor": cursor,
    }
    queues = (("queues", pattern) for pattern in where.queues)
    for name, text in (*asked.items(), *queues):
        if text is not None and (fault := text_fault(text)):
            raise UsageError(f"{name} {shown(text)} {fault}", field=name)


def check_batch(executions: Sequence[NewExecution]) -> None:
    """Check a batch; errors name the position of the row."""
    if len(executions) > ENQUEUE_BATCH_MAX:
        raise UsageError(
            f"{len(executions):,} executions at once; the limit is {ENQUEUE_BATCH_MAX:,}."
            " Send several batches, or use load",
            field="executions",
        )
    if isinstance(executions, ExecutionCopies) and all(map(_is_sound, executions.args)):
        executions = executions[:1]  # its checks hold for all
    for position, execution in enumerate(executions):
        check_execution(execution, position)


def _is_sound(args: str) -> bool:
    """Return True if arguments can be stored; False: unknown."""
    return len(args) <= ARGS_BYTES_MAX and args.isascii() and "\0" not in args


def check_loadable(
    execution: NewExecution,
    position: int,
    *,
    overlap: Overlap = Overlap.ALLOW,
    collapse: CollapseRule | None = None,
) -> None:
    """Check a row of a load, which supports no gates and unique keys."""
    if execution.unique_key is not None or execution.gate is not None or execution.force:
        raise _at(position, "load takes no unique keys, no gates and no force; use enqueue")
    if collapse is not None:
        raise _at(
            position,
            f"load takes no executions of job {shown(execution.job)}, which has {collapse.kind};"
            f" enqueue at most {ENQUEUE_BATCH_MAX:,} at once",
        )
    if overlap is not Overlap.ALLOW:
        raise _at(
            position,
            f"load takes no executions of job {shown(execution.job)}, whose overlap rule is"
            f" {overlap.value!r}; use enqueue",
        )
    check_execution(execution, position)


def check_execution(execution: NewExecution, position: int) -> None:
    """Check a new execution; errors name its position."""
    args = execution.args
    if (not args.isascii() or "\0" in args) and (fault := text_fault(args)):
        raise _at(position, f"its args {fault}")
    if len(args) > ARGS_BYTES_MAX or (not args.isascii() and len(args.encode()) > ARGS_BYTES_MAX):
        raise PayloadTooLarge(
            f"executions[{position}]: its args have more than {ARGS_BYTES_MAX:,} bytes",
            field="args",
        )
    if execution.queue is not None:
        _check_named(position, lambda: check_name(execution.queue, what="queue"))
    if execution.is_plain:
        return
    if execution.unique_key is not None:
        _check_named(position, lambda: check_key(execution.unique_key))
    _check_number(position, "delay", execution.delay, DURATION_SECONDS_MAX)
    _check_number(position, "at", execution.at, INSTANT_MAX)
    for what, limit in (("expires_in", execution.expires_in), ("timeout", execution.timeout)):
        if fault := _limit_fault(what, limit):
            raise _at(position, fault, field=what)
    _check_number(position, "retries", execution.retries, RETRIES_MAX)
    _check_number(position, "scheduled_for", execution.scheduled_for, INSTANT_MAX)


def transition_fault(transition: Transition) -> str | None:
    """Describe the reason why a transition cannot be stored; None if it can."""
    if transition.target is State.RUNNING:
        return "no move leads from running to running"
    for number in (transition.attempt, transition.failures, transition.crashes):
        if not 0 <= number <= ATTEMPT_MAX:
            return f"{number} is not a count"
    if not 0 <= transition.delay <= DURATION_SECONDS_MAX:
        return f"delay={transition.delay} is not a length of time"
    if transition.at is not None and not 0 <= transition.at <= INSTANT_MAX:
        return f"at={transition.at} is not a time"
    if transition.result is not None and (fault := size_fault(transition.result, RESULT_BYTES_MAX)):
        return f"its result {fault}"
    if transition.checkpoint and (fault := size_fault(transition.checkpoint, ARGS_BYTES_MAX)):
        return f"its checkpoint {fault}"
    texts = transition.result, transition.error, transition.reason, transition.checkpoint
    for text in (*texts, transition.note):
        if text is not None and (fault := text_fault(text)):
            return fault
    return None


def check_report(report: Report, position: int) -> None:
    """Check a report; errors name its position."""
    for text in (report.note, report.checkpoint):
        if text is None:
            continue
        if fault := text_fault(text) or size_fault(text, ARGS_BYTES_MAX):
            raise UsageError(f"reports[{position}]: {fault}", field="reports")


def opens_no_session() -> NotFound:
    """Return the error about a token that opens no session."""
    return NotFound("this is no key and no login link, or it has expired or was used or revoked")


def check_new_key(key: NewKey) -> NewKey:
    """Return a valid key."""
    check_name(key.name, what="key")
    if key.expires_in is not None and not 0 < key.expires_in <= DURATION_SECONDS_MAX:
        raise UsageError(
            f"a key cannot expire in {key.expires_in:g} seconds; give it more than 0 and at most"
            f" {DURATION_SECONDS_MAX:,}, or leave it out for one that never does",
            field="expires",
        )
    for what, text in (("hint", key.hint), ("created_by", key.created_by)):
        _check_line(what, text)
    if key.scope is not None:
        check_scope(key.scope, key.role)
    return key


def check_secret(secret: NewSecret) -> NewSecret:
    """Return a valid secret."""
    check_secret_name(secret.name)
    for what, text in (("key_id", secret.key_id), ("author", secret.author)):
        _check_line(what, text)
    if not 0 < len(secret.sealed) <= SECRET_BYTES_MAX + SEAL_BYTES_MAX:
        raise PayloadTooLarge(
            f"secret {secret.name} has {len(secret.sealed):,} bytes once it is sealed; it must have"
            f" some, and at most {SECRET_BYTES_MAX:,} before",
            field="value",
        )
    return secret


def secret_names(names: Collection[str]) -> list[str]:
    """List the names that are valid for secrets."""
    return sorted({name for name in names if name.isascii() and name.isidentifier()})


def check_record(kind: RecordKind[NewT, Any], new: NewT, author: str) -> str:
    """Return a valid record as JSON."""
    check_name(new.name, what=kind.what)
    _check_line("author", author)
    return new.to_json()


def check_quotas(quotas: Mapping[str, int | None]) -> None:
    """Check the names and values of quotas."""
    for name, most in quotas.items():
        if name not in Quotas.__struct_fields__:
            known = ", ".join(Quotas.__struct_fields__)
            raise UsageError(f"there is no quota {shown(name)}; there are {known}", field=name)
        if most is not None and not 0 <= most <= QUOTA_MAX:
            raise UsageError(
                f"quota {name}={most} must be from 0 to {QUOTA_MAX:,}; leave it out for none",
                field=name,
            )


def check_weight(weight: float | None) -> None:
    """Check the weight of a tenant; None: it has none to check."""
    if weight is not None and not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise UsageError(
            f"weight {weight:g} must be from {WEIGHT_MIN:g} to {WEIGHT_MAX:,.0f}", field="weight"
        )


def duplicate_tenant(name: str) -> DuplicateKey:
    """Return the error for a tenant that exists."""
    return DuplicateKey(f"there is a tenant named {shown(name)} already")


def check_entry(entry: NewAuditEntry) -> NewAuditEntry:
    """Return a valid entry of the audit log."""
    for what in ("actor", "action", "target", "source"):
        _check_line(what, getattr(entry, what))
    for what, text in (("before", entry.before), ("after", entry.after)):
        if text is not None and (fault := text_fault(text)):
            raise UsageError(f"{what} of an audit entry {fault}", field=what)
    return entry


def check_request(request: NewRequest) -> NewRequest:
    """Return a request with a valid key."""
    check_request_key(request.key)
    return request


def check_request_key(key: str) -> str:
    """Return a valid idempotency key."""
    if not 1 <= len(key) <= REQUEST_KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
        raise InvalidName(
            f"idempotency key {shown(key)} must be 1 to {REQUEST_KEY_CHARS_MAX} printable ASCII"
            " characters; a UUID is a good one",
            field="Idempotency-Key",
        )
    return key


def _check_line(what: str, text: str) -> None:
    fault = text_fault(text)
    if fault is None and len(text) > AUDIT_CHARS_MAX:
        fault = f"has {len(text):,} characters; the limit is {AUDIT_CHARS_MAX:,}"
    if fault is not None:
        raise UsageError(f"{what} {shown(text)} {fault}", field=what)


def overlap_error(job: str, rule: Overlap, other: UUID | None) -> ExecutionInTheWay:
    """Return the error for an execution that the overlap rule refuses."""
    what = "one before it" if other is None else f"execution {other}"
    return ExecutionInTheWay(
        f"job {shown(job)} has not finished {what}, and its overlap rule is {rule}; wait for it,"
        " cancel it, or force this one",
        execution=other,
    )


def no_transactions(product: str) -> UsageError:
    """Return the error for a transaction on a store without them."""
    return UsageError(
        f"ctx.transaction() needs a PostgreSQL store, and this one is {product}; write with a"
        " connection of your own, and so that writing twice does no harm"
    )


def _check_named(position: int, check: Callable[[], object]) -> None:
    try:
        check()
    except UsageError as error:
        raise UsageError(f"executions[{position}]: {error}", field=error.field) from None


def _check_number(position: int, what: str, value: float | None, most: float) -> None:
    # Comparisons with NaN are false, so it is refused, too.
    if value is not None and not 0 <= value <= most:
        raise _at(position, f"{what}={value} must be from 0 to {most:,}", field=what)


def _limit_fault(what: str, limit: float | None) -> str | None:
    """Describe the fault of a time limit; None if it is valid."""
    if limit is None or 0 < limit <= DURATION_SECONDS_MAX:
        return None
    if limit == 0:
        return f"{what}=0 is no time at all; leave it out if there is no limit"
    return f"{what}={limit} must be more than 0 and at most {DURATION_SECONDS_MAX:,}"


def _at(position: int, fault: str, *, field: str = "executions") -> UsageError:
    return UsageError(f"executions[{position}]: {fault}", field=field)
