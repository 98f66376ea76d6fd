"""Every limit in one page, and what a name may look like.

A limit is here so that a mistake is answered with a sentence, not with a full disk.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from daybell.errors import InvalidName, UsageError, shown

# Payloads. A row is read and written several times in its life: big data belongs in a file or an
# object store, with its address in the arguments.
ARGS_BYTES_MAX: Final = 1024 * 1024
RESULT_BYTES_MAX: Final = 1024 * 1024
PAYLOAD_DEPTH_MAX: Final = 64  # far below the interpreter's recursion limit, far above honest data
INTEGER_DIGITS_MAX: Final = 4300  # Python's own guard against quadratic parsing
PROGRESS_MESSAGE_CHARS_MAX: Final = 500

# Errors are kept for people, who read the first and the last screen of them.
ERROR_MESSAGE_BYTES_MAX: Final = 8 * 1024
ERROR_TRACEBACK_BYTES_MAX: Final = 32 * 1024
ERROR_NAMES_MAX: Final = 32  # classes of one exception's ancestry that retry rules may name

# Logs. Of what a task says without end, the beginning is kept.
LOG_CHARS_MAX: Final = 1024 * 1024  # of one attempt
LOG_LINE_CHARS_MAX: Final = 8 * 1024

# Names and keys. They are columns of indexes, labels of metrics and parts of URLs.
NAME_CHARS_MAX: Final = 200
QUEUE_NAME_CHARS_MAX: Final = 100
UNIQUE_KEY_BYTES_MAX: Final = 500  # well under a PostgreSQL index entry's 2,704
LABELS_MAX: Final = 32
LABEL_CHARS_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 2000

# Batches. One transaction each: large enough to be cheap, small enough to hold locks briefly.
ENQUEUE_BATCH_MAX: Final = 10_000
CLAIM_BATCH_MAX: Final = 1_000
APPLY_BATCH_MAX: Final = 1_000
FIRE_BATCH_MAX: Final = 1_000
REAP_BATCH_MAX: Final = 1_000
PAGE_ITEMS_MAX: Final = 1_000
PAGE_ITEMS_DEFAULT: Final = 50
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024  # of a page of a list; one item is always on it
SCAN_ITEMS_MAX: Final = 5_000  # executions of one kind that one page of a list reads
COUNT_ITEMS_MAX: Final = 10_000  # executions of one kind that one count reads
LIST_VALUE_BYTES_MAX: Final = 16 * 1024  # a larger value is left out of lists: `truncated`
SEARCH_CHARS_MAX: Final = 500  # of a value that is searched for
SEARCH_ARGS_MAX: Final = 10  # arguments in one search

# Policies.
RETRIES_MAX: Final = 1_000
RETRY_NAMES_MAX: Final = 100  # exceptions listed in one policy
BACKOFF_FACTOR_MAX: Final = 1_000
CRASHES_MAX_DEFAULT: Final = 3  # lost workers before an execution is taken for poison
DURATION_SECONDS_MAX: Final = 3_653 * 86_400  # ten years with their leap days: longer is a typo
DURATION_CHARS_MAX: Final = 64
INSTANT_MAX: Final = 253_402_300_799.0  # the end of the year 9999, where datetime ends

# Schedules. A rule is read by every scheduler and every page that shows it.
CRON_CHARS_MAX: Final = 500
RRULE_CHARS_MAX: Final = 4_000
SCHEDULE_CHARS_MAX: Final = 20_000  # as JSON
SCHEDULE_PARTS_MAX: Final = 50  # of a union, exclusions included
SCHEDULE_DATES_MAX: Final = 1_000  # of a calendar, and of a recurrence rule
BLACKOUTS_MAX: Final = 400  # more could not be read back as JSON
UNION_CHARS_MAX: Final = 8_000  # of all its expressions
SCHEDULE_EFFORT_MAX: Final = 5_000  # to find one tick; about so many microseconds
EVERY_MILLISECONDS_MIN: Final = 10
EXECUTIONS_MAX: Final = 1_000_000_000  # max_executions
MISFIRE_LIMIT_MAX: Final = 1_000  # ticks made up for at once
SCHEDULE_BATCH_MAX: Final = 10_000  # made at run time in one call
SCHEDULES_MAX: Final = 100  # that one definition declares
NEXT_SCHEDULES_MAX: Final = 20  # of those made at run time that a job is shown with
BACKFILL_TICKS_MAX: Final = 10_000  # looked at in one call
BACKFILL_CONCURRENCY_MAX: Final = 1_000
PAUSE_NOTE_CHARS_MAX: Final = 500

# Processes.
MEMORY_LIMIT_BYTES_MIN: Final = 1_000_000  # a task's memory_limit; less is a forgotten unit

# Kinds of jobs without code. What comes back is kept for people: of more, the beginning or the end.
COMMAND_CHARS_MAX: Final = 100_000  # Linux takes 128 KiB for one word
COMMAND_OUTPUT_CHARS_MAX: Final = 8 * 1024  # of the result: how standard output ended
COMMAND_JSON_CHARS_MAX: Final = 64 * 1024  # of standard output that is read as JSON
COMMAND_GRACE_SECONDS_MAX: Final = 600.0
ENV_MAX: Final = 200
URL_CHARS_MAX: Final = 8_000
REDIRECTS_MAX: Final = 3
HTTP_BODY_BYTES_MAX: Final = 64 * 1024  # of an answer, unpacked
HTTP_SECONDS_DEFAULT: Final = 60.0  # from the first byte to the last, if the job has no timeout
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
SQL_CHARS_MAX: Final = 100_000
SQL_ROWS_DEFAULT: Final = 1_000
SQL_ROWS_MAX: Final = 10_000
NOTIFY_PLACES_MAX: Final = 50
NOTIFY_CHARS_MAX: Final = 100_000

# Secrets and templates.
SECRET_NAME_CHARS_MAX: Final = 100
SECRET_CHARS_MIN: Final = 8  # shorter ones are guessed, and are in every other word
SECRET_BYTES_MAX: Final = 64 * 1024
PARAMETERS_MAX: Final = 100

# The HTTP API. A process that is asked for too much says so, and goes on serving others.
REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024  # a body
BULK_BYTES_MAX: Final = 16 * 1024 * 1024  # a body of POST /executions
BODIES_BYTES_MAX: Final = 256 * 1024 * 1024  # all that a process holds at a time, in shares
HEADER_BYTES_MAX: Final = 32 * 1024  # of a request, its address included
HEADERS_MAX: Final = 100
HEADER_SECONDS_MAX: Final = 10.0  # to send them in
BODY_SECONDS_MAX: Final = 30.0
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024  # of a body that was refused, until the client hears it
LINGER_SECONDS_MAX: Final = 10.0
REQUEST_SECONDS_MAX: Final = 60.0  # streams aside
# Of one process, divided between tenants and keys by the rule of store/shares.py: one key gets at
# most a third.
CONNECTIONS_MAX: Final = 2_000  # idle ones make way
REQUESTS_MAX: Final = 200  # worked on at a time, in units: a trigger is one
STREAMS_MAX: Final = 600  # live streams
LARGE_BYTES_MAX: Final = 8 * 256 * 1024  # of large bodies that are worked on at a time
LARGE_BODY_BYTES: Final = 64 * 1024  # a body is large above this
KEY_RATE_DEFAULT: Final = 5_000  # requests per second that a key may send on average

# Connections to PostgreSQL in the pools of a process.
POOL_SIZE: Final = 20
POOL_SIZE_LEAST: Final = 6

# Access.
QUOTA_MAX: Final = 1_000_000_000
AUDIT_CHARS_MAX: Final = 1_000  # who, what and from where; before and after are as long as they are
REQUEST_KEY_CHARS_MAX: Final = 255  # of an Idempotency-Key
REPEAT_SECONDS_KEPT: Final = 86_400.0  # a request that is sent again so late is still the same one

# Durable functions and events. A replay reads all steps; what names an event is in indexes.
STEPS_MAX: Final = 10_000  # of one execution
STEPS_CHARS_MAX: Final = 64 * 1024 * 1024  # of all results of one execution
RECORD_BATCH_MAX: Final = 1_000
EVENT_NAME_CHARS_MAX: Final = 200
EVENT_SOURCE_CHARS_MAX: Final = 400
EVENT_ID_CHARS_MAX: Final = 200
EVENT_SECONDS_KEPT: Final = 7 * 86_400.0  # an event that came so long before its wait is not lost
MATCH_CHARS_MAX: Final = 4_000
MATCH_KEYS_MAX: Final = 20

# Workflows and dependencies. Releasing children happens in the transaction that ends the parent.
WORKFLOW_NODES_MAX: Final = 10_000
MAP_ITEMS_DEFAULT: Final = 10_000  # of a mapped node that has no `max_items`
MAP_ITEMS_MAX: Final = 100_000  # `max_items`
NODE_ATTEMPTS_MAX: Final = 20  # that a run shows of a node
RUN_WAITS_MAX: Final = 1_000  # events that nodes wait for, which a run shows
RUN_ATTEMPTS_MAX: Final = 20_000  # of all nodes together, if that leaves one for each
WORKFLOW_EDGES_MAX: Final = 100_000
WORKFLOW_BYTES_MAX: Final = 8 * 1024 * 1024  # as JSON
PLAN_CHARS_MAX: Final = 64 * 1024 * 1024  # of all nodes of a run, with its parameters put in
CONDITION_CHARS_MAX: Final = 500
CONDITION_DEPTH_MAX: Final = 50
DEPENDENCIES_MAX: Final = 1_000
WORKFLOW_LEVELS_MAX: Final = 50  # a run, one inside it, and so on: more is a circle

_ASCII_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@+ -]*[A-Za-z0-9_.:@+-])?")
_PUNCTUATION: Final = frozenset("_.:@+- ")
_NAME_RULE: Final = (
    "a name has letters, digits, spaces and any of _ . : @ + -, "
    "begins with a letter, a digit or _, and does not end with a space"
)


def check_name(value: object, *, what: str) -> str:
    """Return `value` if it can name a job, queue, tenant or worker; `what` says which of them.

    Letters and digits of any script are fine, with the marks that belong to them. What is left
    out would be lost or dangerous elsewhere: "/" splits a URL, "," and "=" split a flag, control
    and direction characters forge log lines, a leading "-" is read as a flag. Names are compared
    as they are, so one that has a composed form (NFC) must use it: two that look the same are
    the same.
    """
    chars_max = QUEUE_NAME_CHARS_MAX if what == "queue" else NAME_CHARS_MAX
    if not isinstance(value, str):
        raise InvalidName(f"{what} name must be text, not {type(value).__name__}", field=what)
    if not value:
        raise InvalidName(f"{what} name is empty; {_NAME_RULE}", field=what)
    if len(value) > chars_max:
        raise InvalidName(
            f"{what} name {shown(value)} has {len(value):,} characters; the limit is {chars_max}",
            field=what,
        )
    if _ASCII_NAME.fullmatch(value) is None:
        _check_characters(value, what=what)
    return value


def check_key(value: object, *, what: str = "unique key") -> str:
    """Return `value` if it can be a unique key: any text that every store can hold and index."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be text, not {type(value).__name__}", field=what)
    if not value:
        raise InvalidName(f"{what} is empty; leave it out to have none", field=what)
    if "\0" in value:
        raise InvalidName(f"{what} {shown(value)} contains a NUL character", field=what)
    try:
        key_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidName(
            f"{what} {shown(value)} contains half a surrogate pair, which is not a character",
            field=what,
        ) from None
    if key_bytes > UNIQUE_KEY_BYTES_MAX:
        raise InvalidName(
            f"{what} {shown(value)} has {key_bytes:,} bytes; the limit is {UNIQUE_KEY_BYTES_MAX}. "
            "Use a digest of it",
            field=what,
        )
    return value


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return `labels` if they can be a worker's: a few, and short ones."""
    if len(labels) > LABELS_MAX:
        raise UsageError(
            f"{len(labels):,} labels are too many; the limit is {LABELS_MAX}", field="labels"
        )
    for name, value in labels.items():
        for text, what in ((name, "a label's name"), (value, f"the value of label {shown(name)}")):
            if len(text) > LABEL_CHARS_MAX:
                raise UsageError(
                    f"{what} {shown(text)} has {len(text):,} characters; the limit is"
                    f" {LABEL_CHARS_MAX}",
                    field="labels",
                )
    return dict(labels)


def _check_characters(value: str, *, what: str) -> None:
    for character in value:
        # L, M and N: letters, their marks, and numbers.
        if character not in _PUNCTUATION and unicodedata.category(character)[0] not in "LMN":
            raise InvalidName(
                f"{what} name {shown(value)} contains {shown(character)}; {_NAME_RULE}", field=what
            )
    if not (value[0] == "_" or unicodedata.category(value[0])[0] in "LN") or value[-1] == " ":
        edge = "ends with a space" if value[-1] == " " else f"begins with {shown(value[0])}"
        raise InvalidName(f"{what} name {shown(value)} {edge}; {_NAME_RULE}", field=what)
    if not unicodedata.is_normalized("NFC", value):
        composed = unicodedata.normalize("NFC", value)
        raise InvalidName(
            f"{what} name {shown(value)} is not in composed form (NFC); write {shown(composed)}",
            field=what,
        )
