"""All limits, and the rules for names. A limit turns a mistake into a message instead of a full
disk.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from daybell.errors import InvalidName, UsageError, shown

# Payloads. A row is read and written several times: store large data elsewhere and pass its
# address.
ARGS_BYTES_MAX: Final = 1024 * 1024
RESULT_BYTES_MAX: Final = 1024 * 1024
PAYLOAD_DEPTH_MAX: Final = 64  # far below the interpreter's recursion limit
INTEGER_DIGITS_MAX: Final = 4300  # Python's own limit against quadratic parsing
PROGRESS_MESSAGE_CHARS_MAX: Final = 500

# Errors. People read their first and last screen.
ERROR_MESSAGE_BYTES_MAX: Final = 8 * 1024
ERROR_TRACEBACK_BYTES_MAX: Final = 32 * 1024
ERROR_NAMES_MAX: Final = 32  # classes of an exception that retry rules can name

# Logs. The beginning of a longer log is stored.
LOG_CHARS_MAX: Final = 1024 * 1024  # of one attempt
LOG_LINE_CHARS_MAX: Final = 8 * 1024

# Names and keys: index columns, metric labels, parts of URLs.
NAME_CHARS_MAX: Final = 200
QUEUE_NAME_CHARS_MAX: Final = 100
UNIQUE_KEY_BYTES_MAX: Final = 500  # a PostgreSQL index entry holds 2,704
LABELS_MAX: Final = 32
LABEL_CHARS_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 2000
USER_CHARS_MAX: Final = 200

# Batches. One transaction each: large enough to be cheap, small enough for short locks.
ENQUEUE_BATCH_MAX: Final = 10_000
CLAIM_BATCH_MAX: Final = 1_000
APPLY_BATCH_MAX: Final = 1_000
FIRE_BATCH_MAX: Final = 1_000
REAP_BATCH_MAX: Final = 1_000
PAGE_ITEMS_MAX: Final = 1_000
PAGE_ITEMS_DEFAULT: Final = 50
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024  # of a page of a list, which has at least one item
SCAN_ITEMS_MAX: Final = 5_000  # executions of one kind that one page of a list reads
COUNT_ITEMS_MAX: Final = 10_000  # executions of one kind that one count reads
LIST_VALUE_BYTES_MAX: Final = 16 * 1024  # a larger value is left out of lists: `truncated`
SEARCH_CHARS_MAX: Final = 500  # of a value that is searched for
SEARCH_ARGS_MAX: Final = 10  # arguments in one search
FIRES_MAX: Final = 500  # of one schedule in a calendar
CALENDAR_DAYS_MAX: Final = 400  # in one request for a calendar
QUERY_CHARS_MAX: Final = 2_000  # of a query for executions

# Policies.
RETRIES_MAX: Final = 1_000
RETRY_NAMES_MAX: Final = 100  # exceptions listed in one policy
BACKOFF_FACTOR_MAX: Final = 1_000
CRASHES_MAX_DEFAULT: Final = 3  # lost workers before an execution counts as their cause
DURATION_SECONDS_MAX: Final = 3_653 * 86_400  # ten years with their leap days
DURATION_CHARS_MAX: Final = 64
INSTANT_MAX: Final = 253_402_300_799.0  # the end of the year 9999, the last of datetime

# Schedules. Every scheduler reads them.
CRON_CHARS_MAX: Final = 500
RRULE_CHARS_MAX: Final = 4_000
SCHEDULE_CHARS_MAX: Final = 20_000  # as JSON
SCHEDULE_PARTS_MAX: Final = 50  # of a union, with exclusions
SCHEDULE_DATES_MAX: Final = 1_000  # of a calendar, and of a recurrence rule
BLACKOUTS_MAX: Final = 400  # more would exceed the JSON limit
UNION_CHARS_MAX: Final = 8_000  # of all its expressions
SCHEDULE_EFFORT_MAX: Final = 5_000  # to find one tick; about a microsecond each
EVERY_MILLISECONDS_MIN: Final = 10
EXECUTIONS_MAX: Final = 1_000_000_000  # max_executions
MISFIRE_LIMIT_MAX: Final = 1_000  # missed ticks fired at once
SCHEDULE_BATCH_MAX: Final = 10_000  # created at run time in one call
SCHEDULES_MAX: Final = 100  # of one definition
NEXT_SCHEDULES_MAX: Final = 20  # made at run time, shown of a job
BACKFILL_TICKS_MAX: Final = 10_000  # read in one call
BACKFILL_CONCURRENCY_MAX: Final = 1_000
PAUSE_NOTE_CHARS_MAX: Final = 500

# Processes.
MEMORY_LIMIT_BYTES_MIN: Final = 1_000_000  # a task's memory_limit; less lacks its unit

# Kinds of jobs without code. Of longer output the beginning or the end is stored.
COMMAND_CHARS_MAX: Final = 100_000  # Linux takes 128 KiB for one word
COMMAND_OUTPUT_CHARS_MAX: Final = 8 * 1024  # of the result: the end of standard output
COMMAND_JSON_CHARS_MAX: Final = 64 * 1024  # of standard output that is parsed as JSON
COMMAND_GRACE_SECONDS_MAX: Final = 600.0
ENV_MAX: Final = 200
URL_CHARS_MAX: Final = 8_000
REDIRECTS_MAX: Final = 3
HTTP_BODY_BYTES_MAX: Final = 64 * 1024  # of an answer, uncompressed
HTTP_SECONDS_DEFAULT: Final = 60.0  # for a request without a timeout of the job
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
SQL_CHARS_MAX: Final = 100_000
SQL_ROWS_DEFAULT: Final = 1_000
SQL_ROWS_MAX: Final = 10_000
NOTIFY_PLACES_MAX: Final = 50
NOTIFY_CHARS_MAX: Final = 100_000

# Secrets and templates.
SECRET_NAME_CHARS_MAX: Final = 100
SECRET_CHARS_MIN: Final = 8  # shorter ones can be guessed, and occur in other words
SECRET_BYTES_MAX: Final = 64 * 1024
PARAMETERS_MAX: Final = 100

# The HTTP API. An overloaded process refuses requests and serves others.
REQUEST_BYTES_MAX: Final = 2 * 1024 * 1024  # a body
BULK_BYTES_MAX: Final = 16 * 1024 * 1024  # a body of POST /executions
BODIES_BYTES_MAX: Final = 256 * 1024 * 1024  # all bodies in memory, in shares
HEADER_BYTES_MAX: Final = 32 * 1024  # of a request, with its URL
HEADERS_MAX: Final = 100
HEADER_SECONDS_MAX: Final = 10.0  # to receive them
BODY_SECONDS_MAX: Final = 30.0
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024  # of a refused body, read so that the answer arrives
LINGER_SECONDS_MAX: Final = 10.0
REQUEST_SECONDS_MAX: Final = 60.0  # except streams
# Per process, divided between tenants and keys by store/shares.py: a key gets at most a third.
CONNECTIONS_MAX: Final = 2_000  # idle ones are closed first
REQUESTS_MAX: Final = 200  # concurrent requests, in units: a trigger is one
STREAMS_MAX: Final = 900
TOPICS_MAX: Final = 600  # that streams follow; those that several follow count once
STREAM_TOPICS_MAX: Final = 40  # of one stream
TOPIC_ITEMS_MAX: Final = 200  # of a list that is a topic
LARGE_BYTES_MAX: Final = 8 * 256 * 1024  # of large bodies being processed
LARGE_BODY_BYTES: Final = 64 * 1024  # larger bodies are large
KEY_RATE_DEFAULT: Final = 5_000  # average requests per second of a key

# Connections to PostgreSQL in the pools of a process.
POOL_SIZE: Final = 20
POOL_SIZE_LEAST: Final = 6

# Access.
QUOTA_MAX: Final = 1_000_000_000
AUDIT_CHARS_MAX: Final = 1_000  # actor, action, target, source; before and after are unlimited
REQUEST_KEY_CHARS_MAX: Final = 255  # of an Idempotency-Key
REPEAT_SECONDS_KEPT: Final = 86_400.0  # a request that is repeated within this time is recognized

# Durable functions and events. A replay reads all steps; names of events are in indexes.
STEPS_MAX: Final = 10_000  # of one execution
STEPS_CHARS_MAX: Final = 64 * 1024 * 1024  # of all results of one execution
RECORD_BATCH_MAX: Final = 1_000
EVENT_NAME_CHARS_MAX: Final = 200
EVENT_SOURCE_CHARS_MAX: Final = 400
EVENT_ID_CHARS_MAX: Final = 200
EVENT_BATCH_MAX: Final = 1_000  # in one request
EVENT_SECONDS_KEPT: Final = 7 * 86_400.0  # a later wait finds an event for so long
MATCH_CHARS_MAX: Final = 4_000
MATCH_KEYS_MAX: Final = 20

# Workflows and dependencies. The transaction that ends a node starts its children.
WORKFLOW_NODES_MAX: Final = 10_000
MAP_ITEMS_DEFAULT: Final = 10_000  # of a mapped node without `max_items`
MAP_ITEMS_MAX: Final = 100_000  # `max_items`
NODE_ATTEMPTS_MAX: Final = 20  # shown of a node
RUN_WAITS_MAX: Final = 1_000  # waits for events shown of a run
RUN_ATTEMPTS_MAX: Final = 20_000  # shown of a run, but at least one per node
WORKFLOW_EDGES_MAX: Final = 100_000
WORKFLOW_BYTES_MAX: Final = 8 * 1024 * 1024  # as JSON
PLAN_CHARS_MAX: Final = 64 * 1024 * 1024  # of all nodes of a run, with its parameters
CONDITION_CHARS_MAX: Final = 500
CONDITION_DEPTH_MAX: Final = 50
DEPENDENCIES_MAX: Final = 1_000
WORKFLOW_LEVELS_MAX: Final = 50  # of runs inside runs; more is a cycle

_ASCII_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@+ -]*[A-Za-z0-9_.:@+-])?")
_PUNCTUATION: Final = frozenset("_.:@+- ")
_NAME_RULE: Final = (
    "a name has letters, digits, spaces and any of _ . : @ + -, "
    "begins with a letter, a digit or _, and does not end with a space"
)


# Jobs that send messages: the deliveries of a subscription, and those of an alert rule.
DELIVERY_PREFIX: Final = "events:"
ALERT_PREFIX: Final = "alert:"
MESSAGE_PREFIXES: Final = (DELIVERY_PREFIX, ALERT_PREFIX)


def check_name(value: object, *, what: str) -> str:
    """Return `value` if it is a valid name of a job, queue, tenant or worker; `what` is for errors.

    Letters, marks and digits of any script are valid. Excluded characters would be lost or
    dangerous elsewhere: "/" splits a URL, "," and "=" split a flag, control and direction
    characters forge log lines, a leading "-" starts a flag. A name must be in composed form (NFC),
    so that equal looks mean equal names.
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
    """Return `value` if it is a valid unique key: text that every store can hold and index."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be text, not {type(value).__name__}", field=what)
    if not value:
        raise InvalidName(f"{what} is empty; leave it out to have none", field=what)
    if fault := text_fault(value):
        raise InvalidName(f"{what} {shown(value)} {fault}", field=what)
    if (key_bytes := len(value.encode())) > UNIQUE_KEY_BYTES_MAX:
        raise InvalidName(
            f"{what} {shown(value)} has {key_bytes:,} bytes; the limit is {UNIQUE_KEY_BYTES_MAX}. "
            "Use a digest of it",
            field=what,
        )
    return value


def text_fault(text: str) -> str | None:
    """Describe the reason why a text cannot be stored; None if it can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half a surrogate pair, which is not a character"
    return "contains a NUL character" if "\0" in text else None


def size_fault(text: str, most: int) -> str | None:
    """Describe a text that has too many bytes; None otherwise."""
    # A character has at most four bytes, so most texts need no count.
    if len(text) * 4 <= most:
        return None
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return f"has {size:,} bytes; the limit is {most:,}" if size > most else None


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return `labels` if they are valid for a worker."""
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
