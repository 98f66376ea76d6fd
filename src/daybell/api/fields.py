"""Types of the fields of requests: rules of the domain, with their texts in the document."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from daybell.api.validation import checked_by
from daybell.client.requests import (
    ARGS_PREFIX,
    Filters,
    read_bound,
    read_id,
    read_query,
    read_time,
)
from daybell.core.execution import Priority, State
from daybell.core.job import MANUAL, PAUSED
from daybell.core.limits import (
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    QUERY_CHARS_MAX,
    SEARCH_ARGS_MAX,
    SEARCH_CHARS_MAX,
    check_key,
    check_name,
)
from daybell.core.logs import LEVELS
from daybell.core.units import parse_delay, parse_limit
from daybell.core.views import ORDERS, SortOrder
from daybell.errors import UsageError, shown

T = TypeVar("T")
Optional: TypeAlias = T | None  # null says the same as nothing
UUID_FORMAT: Final = Meta(extra_json_schema={"format": "uuid"})


def check_plain_text(value: str) -> str:
    """Refuse a text that not every store can keep."""
    if "\0" in value:
        raise UsageError(f"{shown(value)} contains a NUL character")
    return value


Text: TypeAlias = Annotated[str, checked_by(check_plain_text)]
Name: TypeAlias = Annotated[str, checked_by(lambda value: check_name(value, what="job"))]
QueueName: TypeAlias = Annotated[str, checked_by(lambda value: check_name(value, what="queue"))]
TenantName: TypeAlias = Annotated[str, checked_by(lambda value: check_name(value, what="tenant"))]
TemplateName: TypeAlias = Annotated[
    str,
    checked_by(lambda value: check_name(value, what="template")),
    Meta(description="The name that jobs refer to.", examples=["backup"]),
]
AlertName: TypeAlias = Annotated[
    str,
    checked_by(lambda value: check_name(value, what="alert")),
    Meta(description="The name of the rule.", examples=["dead-letters"]),
]
SubscriptionName: TypeAlias = Annotated[
    str,
    checked_by(lambda value: check_name(value, what="subscription")),
    Meta(description="The name of the subscription.", examples=["chat"]),
]
UniqueKey: TypeAlias = Annotated[str, checked_by(check_key)]
Id: TypeAlias = Annotated[str, checked_by(read_id), UUID_FORMAT]
# The client refuses other words, and names the right ones; these are for the document.
StatusWord: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": ["pending", *map(str, State)]})
]
JobStatusWord: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": ["pending", *map(str, State), PAUSED, MANUAL]})
]
LevelWord: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [*LEVELS]})]
Delay: TypeAlias = Annotated[
    float | str,
    checked_by(parse_delay),
    Meta(
        description='Text such as "90s", "1h30m" or "PT5M"; up to a day, also seconds.',
        examples=["10m"],
    ),
]
TimeLimit: TypeAlias = Annotated[
    float | str,
    checked_by(lambda value: parse_limit(value, what="duration")),
    Meta(description='Seconds, or text such as "90s", "1h30m" or "PT5M".', examples=[3600]),
]
Time: TypeAlias = Annotated[
    str,
    checked_by(lambda value: read_time(value, "time")),
    Meta(description="ISO 8601 with an offset.", examples=["2030-12-24T18:00:00+01:00"]),
]
Bound: TypeAlias = Annotated[
    str,
    checked_by(lambda value: read_bound(value, "time")),
    Meta(description="ISO 8601 with an offset, or a date.", examples=["2026-11-15"]),
]
AgoBound: TypeAlias = Annotated[
    str,
    checked_by(lambda value: read_bound(value, "time", now=0.0)),
    Meta(
        description='ISO 8601 with an offset, a date, or a length of time: "1h" is an hour ago.',
        examples=["1h", "2026-11-15"],
    ),
]
Searched: TypeAlias = Annotated[
    str, checked_by(check_plain_text), Meta(min_length=1, max_length=SEARCH_CHARS_MAX)
]
PriorityWord: TypeAlias = Annotated[
    str, checked_by(Priority.parse), Meta(description="critical, high, normal (or medium), low")
]
Args: TypeAlias = Annotated[dict[str, Any], Meta(description="The arguments, by name.")]
Shorter: TypeAlias = Annotated[Text, Meta(max_length=500)]
Version: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]

# Parameters in the path.
JobPath: TypeAlias = Annotated[str, Meta(description="A job's id or name.", max_length=200)]
ExecutionPath: TypeAlias = Annotated[
    str, Meta(description="An execution's id.", max_length=100), UUID_FORMAT
]


Limit: TypeAlias = Annotated[
    int, Meta(ge=1, le=PAGE_ITEMS_MAX, description="The number of items, at most.")
]
Cursor: TypeAlias = Annotated[
    str, Meta(max_length=1000, description="The next_cursor of the page before.")
]


class Paged(msgspec.Struct, kw_only=True):
    """The parameters of a list in pages."""

    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None


JobFilter: TypeAlias = Annotated[
    Shorter, Meta(description="A job's name or id.", examples=["resize"])
]


WorkerFilter: TypeAlias = Annotated[
    Shorter, Meta(description="A worker's id or name.", examples=["web-1"])
]
StatusFilter: TypeAlias = Annotated[
    list[StatusWord], Meta(max_length=20, description="A state, or pending; may be repeated.")
]
WorkflowFilter: TypeAlias = Annotated[
    Id, Meta(description="Those of this execution: the nodes of a workflow's run.")
]
WithNodes: TypeAlias = Annotated[
    bool, Meta(description="Also nodes of workflows' runs, which are left out otherwise.")
]


QueryText: TypeAlias = Annotated[
    str,
    checked_by(read_query),
    Meta(
        max_length=QUERY_CHARS_MAX,
        description="Conditions `NAME:VALUE`, all of which must hold: status, job (`etl*` is a"
        " prefix), queue, worker, user, workflow, since, until, finished, duration, error, key,"
        " arg.NAME. A value with spaces is in double quotes.",
        examples=['status:dead job:etl* finished:<1d error:"timed out"'],
    ),
]


Sort: TypeAlias = Annotated[
    str,
    checked_by(SortOrder.parse),
    Meta(
        description="The order: created, started, ended or duration; with a minus, the latest or"
        " longest first. All that match are read, 5,000 at most; a filter lets fewer through.",
        examples=["-duration"],
        extra_json_schema={"enum": list(ORDERS)},
    ),
]


class Search(msgspec.Struct, kw_only=True):
    """The parameters of lists of executions, with those that search by content."""

    job_id: JobFilter | None = None
    job: JobFilter | None = None
    worker_id: WorkerFilter | None = None
    queue: Shorter | None = None
    since: AgoBound | None = None
    until: AgoBound | None = None
    limit: Limit = PAGE_ITEMS_DEFAULT
    cursor: Cursor | None = None
    unique_key: (
        Annotated[UniqueKey, Meta(description="Its unique key.", examples=["order-42"])] | None
    ) = None
    error: (
        Annotated[
            Searched,
            Meta(
                description="The class of its error, also a base class, or a part of its text in"
                " any case of letters. The traceback is not searched.",
                examples=["TimeoutError"],
            ),
        ]
        | None
    ) = None
    ended_since: AgoBound | None = None
    ended_until: AgoBound | None = None
    q: QueryText | None = None

    def read_filters(self, request: Request) -> Filters:
        """Return the filters as the client takes them; arguments are in the address alone."""
        return {
            "job": choose_job(self.job, self.job_id),
            "worker": self.worker_id,
            "queue": self.queue,
            "since": self.since,
            "until": self.until,
            "unique_key": self.unique_key,
            "error": self.error,
            "ended_since": self.ended_since,
            "ended_until": self.ended_until,
            "args": _read_args(request),
            "q": self.q,
        }


# Parameters with names that the caller chooses, which no struct has.
ARGS_PARAMETER: Final[dict[str, Any]] = {
    "name": "arg",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`arg.NAME=VALUE`: an argument, by its name or a dotted path; may be repeated"
    " with other names. `42` is the number and the text, `true`, `false` and `null` are both, too.",
    "schema": {
        "type": "object",
        "patternProperties": {
            r"^arg\.[a-z_]+(\.[a-z0-9_]+)*$": {"type": "string", "maxLength": SEARCH_CHARS_MAX}
        },
        "additionalProperties": False,
        "maxProperties": SEARCH_ARGS_MAX,
    },
    "example": {"arg.order_id": "42"},
}


def choose_job(job: str | None, job_id: str | None) -> str | None:
    """Return the job that is given under one of two names."""
    if job is not None and job_id is not None and job != job_id:
        raise UsageError("job and job_id are two names for the same; give one", field="job")
    return job_id if job is None else job


def _read_args(request: Request) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.startswith(ARGS_PREFIX):
            if name in given:
                raise UsageError(f"{shown(name)} is given twice; give it once", field=name)
            given[name] = check_plain_text(value)
    return {name.removeprefix(ARGS_PREFIX): value for name, value in given.items()}
