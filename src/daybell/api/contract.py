"""Texts of the OpenAPI document: examples, errors and headers; and the schemas of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from daybell.client import wire
from daybell.core.alerts.notifications import JobNotification
from daybell.core.options import Keep, PlainOptions
from daybell.core.views import Page

# Answers to read by: one example of each, as the OpenAPI document shows them.

_JOB_ID: Final = "019a8c1e-6c00-7a3b-8f21-5b1f0c9d4e11"
_ID: Final = "019a8c20-1f40-7c55-9d02-3c7e8a1b2f66"
_WORKER_ID: Final = "019a8c11-0a80-7b10-a4e3-90d1f2c3b4a5"
_KEY_ID: Final = "019a8c30-7d00-7e11-8a5c-1d2e3f405162"
_AT: Final = "2026-11-16T09:00:00Z"
_PERIOD: Final = {
    "success_rate": 0.99,
    "counts": {"succeeded": 198, "dead": 2},
    "run": {"p50": 0.4, "p95": 0.9, "p99": 1.2},
    "delay": {"p50": 0.01, "p95": 0.05, "p99": 0.1},
}
_LATER: Final = "2026-11-17T00:00:00Z"

Example = dict[str, Any]
# The values of fields that an example does not name.
_USUAL: Final[Example] = {
    "tenant": "default",
    "job": "daily-report",
    "job_id": _JOB_ID,
    "execution_id": _ID,
    "worker_id": _WORKER_ID,
    "key_id": _KEY_ID,
    "queue": "default",
    "version": 1,
    "attempt": 1,
    "created_at": _AT,
    "updated_at": _AT,
    "at": _AT,
}
_EMPTY: Final[Mapping[Any, Any]] = {list: [], dict: {}, bool: False, int: 0, float: 0.0, str: ""}


def _example(answer: type[msgspec.Struct], **own: Any) -> Example:
    """Return an example of an answer. A field that it does not name is null or the usual one."""
    found: Example = {}
    for field in msgspec.structs.fields(answer):
        name, types = field.encode_name, wire.parts_of(field.type)
        if name in own:
            found[name] = own.pop(name)
        elif field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
            is_optional = type(None) in types or Any in types
            found[name] = None if is_optional else _USUAL.get(name) or _EMPTY[types[0]]
    assert not own, own
    return found


EXECUTION: Final[Example] = _example(
    wire.Execution,
    status="succeeded",
    priority="normal",
    args={"day": "2026-11-15"},
    run_at=_AT,
    started_at=_AT,
    finished_at=_AT,
    worker_id=_WORKER_ID,
    progress=100.0,
    outcome="succeeded",
    result={"pages": 12},
)
DETAIL: Final[Example] = {
    **EXECUTION,
    "attempts": [
        _example(
            wire.Attempt, outcome="succeeded", worker_id=_WORKER_ID, started_at=_AT, ended_at=_AT
        )
    ],
    "timeline": [
        {"at": _AT, "event": "created"},
        {"at": _AT, "event": "started", "attempt": 1, "worker_id": _WORKER_ID},
        {"at": _AT, "event": "ended", "status": "succeeded"},
    ],
    "fired_by": None,
    "workflow": None,
    "steps": [
        _example(
            wire.Step,
            n=1,
            name="charge",
            kind="step",
            status="done",
            started_at=_AT,
            finished_at=_AT,
            result={"cents": 1200},
        )
    ],
}
RUN: Final[Example] = _example(
    wire.WorkflowRun,
    nodes=[
        _example(
            wire.RunNode,
            name="extract",
            status="succeeded",
            execution_id="019a8c20-1f40-7c55-9d02-3c7e8a1b2f67",
            kind="task",
            task="extract",
            rule="all_success",
            ready_at="2026-11-16T08:59:58Z",
            started_at="2026-11-16T09:00:00Z",
            finished_at="2026-11-16T09:00:04Z",
            attempts=[
                _example(
                    wire.NodeAttempt,
                    outcome="failed",
                    worker_id="019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    started_at="2026-11-16T09:00:00Z",
                    ended_at="2026-11-16T09:00:01Z",
                ),
                _example(
                    wire.NodeAttempt,
                    attempt=2,
                    outcome="succeeded",
                    worker_id="019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    started_at="2026-11-16T09:00:03Z",
                    ended_at="2026-11-16T09:00:04Z",
                ),
            ],
        ),
        _example(
            wire.RunNode,
            name="transform",
            status="running",
            kind="command",
            rule="all_success",
            ready_at="2026-11-16T09:00:04Z",
            started_at="2026-11-16T09:00:04Z",
            items={"total": 40, "ended": 12, "failed": 0},
        ),
    ],
    edges=[{"from": "extract", "to": "transform", "when": "result.rows > 0"}],
    progress={"ended": 1, "total": 2},
    max_running=4,
)
HOOK: Final = _example(
    wire.Hook,
    hook_id=_KEY_ID,
    job="build",
    name="github",
    event="hook.build",
    hint="dbh_Qk3x",
    signature="github",
    secret="github-hook",
    created_by="key deploy",
)

EVENT: Final[Example] = _example(
    wire.Event,
    event_id="A-1047",
    source="/shop",
    type="order.approved",
    data={"order_id": 42, "by": "ada"},
    received_at=_AT,
)
VERSION: Final[Example] = {
    "job_id": _JOB_ID,
    "name": "daily-report",
    "version": 1,
    "tenant": "default",
    "kind": "command",
    "task": None,
    "signature": None,
    "command": "python generate_report.py",
    "shell": None,
    "env": None,
    "http": None,
    "sql": None,
    "notify": None,
    "workflow": None,
    **msgspec.json.decode(msgspec.json.encode(PlainOptions(timeout=3600.0))),
    "notifications": [{"on": ["dead", "late"], "to": [{"secret": "TEAM_CHAT"}]}],
    "priority": "normal",
    "retry": {"retries": 3, "backoff": "exponential", "base": 1.0, "factor": 2.0, "cap": 3600.0},
    "settings": {"run": "python generate_report.py"},
    "args": {},
    "schedules": [{"cron": "0 0 * * *"}],
    "misfire": {},
    "dependencies": [],
    "template": None,
    "author": f"key deploy (dbk_Zk3v, {_KEY_ID})",
    "created_at": _AT,
    "is_current": True,
    "paused_at": None,
    "pause_note": "",
    "truncated": False,
    "link": None,
}
SCHEDULE: Final[Example] = _example(
    wire.Schedule,
    schedule_id="54c6bbb3-e64f-5860-959a-52a445404533",
    rule={"cron": "0 0 * * *"},
    description="At 00:00, UTC",
    args={},
    next_run_at=_LATER,
    is_declared=True,
    overlap_by="job",
)
JOB: Final[Example] = {
    **VERSION,
    "status": "scheduled",
    "progress": None,
    "started_at": None,
    "next_run_at": _LATER,
    "schedules": [SCHEDULE],
    "has_more_schedules": False,
    "last_execution": None,
    "waits_for": [],
}
QUEUE: Final[Example] = _example(
    wire.Queue, name="default", queued=12, scheduled=3, retrying=1, running=4, oldest_run_at=_AT
)
LIMIT: Final[Example] = _example(
    wire.Limit,
    name="stripe",
    limit=10,
    rates=["100/m"],
    declared={"limit": 20, "rates": ["100/m"]},
    running=10,
    waiting=42,
    keys=1,
    next_at=_AT,
    buckets=[_example(wire.LimitKey, running=10, waiting=42, tokens=7, holders=[_JOB_ID])],
)
WORKER: Final[Example] = _example(
    wire.Worker,
    name="worker-1",
    state="live",
    host="node-1",
    pid=4242,
    version="0.1.0",
    queues=["default"],
    kinds=["task"],
    tasks={"daily-report": "5f70bf18a086"},
    capacity=8,
    running=4,
    started_at=_AT,
    renewed_at=_AT,
    lease_until=_AT,
    shared=False,
)
TEMPLATE: Final[Example] = _example(
    wire.Template,
    name="backup",
    description="Saves a database.",
    parameters={"database": {"type": "string"}},
    job={"command": ["pg_dump", {"parameter": "database"}], "schedule": "0 3 * * *"},
    author=f"key deploy (dbk_Zk3v, {_KEY_ID})",
)
TENANT: Final[Example] = {
    "name": "acme",
    "created_at": _AT,
    "quotas": {"jobs": 100, "queued": None, "per_minute": 6000, "running": None},
    "keep": {"succeeded": 604800.0, "logs": 86400.0},
    "weight": 1.0,
}
KEY: Final[Example] = _example(
    wire.Key,
    name="deploy",
    role="operator",
    jobs=["billing-*"],
    actions=["read", "trigger"],
    hint="dbk_Zk3v",
    kind="key",
    created_by="cli ana@host",
)
ENTRY: Final[Example] = _example(
    wire.AuditEntry,
    entry_id="019a8c31-2b00-7f22-9b6d-2e3f40516273",
    actor=f"key deploy (dbk_Zk3v, {_KEY_ID})",
    action="job.pause",
    target="daily-report",
    after={"note": "until the disk is replaced"},
    source="10.0.0.7",
)
_TOTALS: Final[Example] = _example(wire.Totals, queued=12, scheduled=3, retrying=1, running=4)


def _page(item: Example) -> Example:
    return {"items": [item], "next_cursor": None}


SECRET: Final[Example] = _example(
    wire.Secret,
    name="API_TOKEN",
    version=2,
    key_id="3f9a1c0b7d52",
    updated_at=_LATER,
    author="key deploy",
)
LISTED_VERSION: Final[Example] = {
    **VERSION,
    "version": 2,
    "changes": [{"field": "timeout", "before": None, "after": 3600.0}],
}
ALERT: Final[Example] = _example(
    wire.Alert,
    name="dead-letters",
    on="dead_letter",
    to=[{"secret": "TEAM_CHAT"}],
    count=1,
    rate=0.5,
    within=3600.0,
    factor=2.0,
    repeat=14400.0,
    message_queue="default",
    author="key deploy",
)
INCIDENT: Final[Example] = _example(
    wire.Incident,
    incident_id=_ID,
    rule="dead-letters",
    subject="daily-report",
    detail="Job daily-report has 1 dead letter, the last since 2026-11-16T00:00:00Z: OSError",
    opened_at=_AT,
    notified_at=_AT,
)
EXPORT_POLICY: Final[Example] = _example(
    wire.ExportPolicy, name="warehouse", until=_AT, author="key deploy"
)
SUBSCRIPTION: Final[Example] = _example(
    wire.Subscription,
    name="chat",
    url="https://chat.example.org/hooks/daybell",
    secret="CHAT_SIGNING_KEY",
    types=["execution.*"],
    status=["dead", "cancelled"],
    message_queue="default",
    delivery_job="events:chat",
    author="key deploy",
)
_REMEDY: Final[Example] = {
    "label": "resume queue mail",
    "command": "daybell queues resume mail",
    "request": {"method": "POST", "path": "/api/v1/queues/mail/resume", "body": None},
}
EXAMPLES: Final[dict[str, Example]] = {
    "Job": JOB,
    "JobPage": _page(JOB),
    "ListedVersion": LISTED_VERSION,
    "ListedVersionPage": _page(LISTED_VERSION),
    "SchedulePage": _page(SCHEDULE),
    "AppliedJob": _example(
        wire.AppliedJob,
        action="changed",
        before={"name": "daily-report", "command": "python generate_report.py"},
        after={
            "name": "daily-report",
            "command": "python generate_report.py",
            "schedule": "0 0 * * *",
        },
        job=JOB,
    ),
    "StrPage": {
        "items": ["secret API_TOKEN is not set, so it fails until `daybell secrets set` was run"],
        "next_cursor": None,
    },
    "Template": TEMPLATE,
    "TemplatePage": _page(TEMPLATE),
    "Alert": ALERT,
    "AlertPage": _page(ALERT),
    "AlertTest": {"name": "dead-letters", "execution_id": _ID, "job": "alert:dead-letters"},
    "ExportPolicy": EXPORT_POLICY,
    "ExportPolicyPage": _page(EXPORT_POLICY),
    "Subscription": SUBSCRIPTION,
    "SubscriptionPage": _page(SUBSCRIPTION),
    "IncidentPage": _page(INCIDENT),
    "Acknowledged": {
        "incident_id": _ID,
        "rule": "dead-letters",
        "subject": "daily-report",
        "status": "acknowledged",
    },
    "DeletedName": {"name": "backup", "status": "deleted"},
    "Deleted": _example(wire.Deleted, name="daily-report", status="deleted", cancelled=2),
    "Backfill": _example(
        wire.Backfill,
        dry_run=True,
        ticks=1,
        items=[
            {"scheduled_for": _AT, "schedule": "", "execution_id": None, "created": False},
        ],
    ),
    "Enqueued": {"execution_id": _ID, "status": "queued", "created": True},
    "EnqueuedMany": {
        "count": 1,
        "created": 1,
        "items": [{"execution_id": _ID, "created": True}],
    },
    "ExecutionPage": _page(EXECUTION),
    "ExecutionDetail": DETAIL,
    "WorkflowRun": RUN,
    "Hook": HOOK,
    "HookPage": _page(HOOK),
    "NewHookAnswer": {**HOOK, "token": "dbh_…", "path": "/api/v1/hooks/dbh_…"},
    "Published": _example(wire.Published, event_id="A-1047", created=True, resumed=1),
    "EventPage": _page(EVENT),
    "DeadLetterGroupPage": _page(
        _example(
            wire.DeadLetterGroup,
            job="resize",
            fingerprint="9f86d081884c",
            error="TimeoutError",
            message="no answer after 30 s",
            count=12,
            first_seen=_AT,
            last_seen=_AT,
            q="job:resize fingerprint:9f86d081884c",
        )
    ),
    "StateCounts": {
        "executions": {"queued": 12, "succeeded": 10_000},
        "at_least": ["succeeded"],
        "estimate": 1204300,
    },
    "LogPage": {
        "items": [_example(wire.LogLine, level="info", source="app", message="12 pages")],
        "next_cursor": None,
        "end_cursor": "1.3",
    },
    "Why": _example(
        wire.Why,
        status="queued",
        code="queue_paused",
        detail="queue 'mail' is paused; resume it",
        lack="queue 'mail' is paused; resume it",
        actions=[_REMEDY],
        ahead=3,
    ),
    "QueueWhy": _example(
        wire.QueueWhy,
        queue="mail",
        code="queue_paused",
        detail="queue 'mail' is paused; resume it. 12 executions are due in it",
        actions=[_REMEDY],
        needs=[
            _example(
                wire.QueueNeed,
                needs="task",
                queued=12,
                oldest_run_at="2026-06-01T02:00:00Z",
                workers=1,
            )
        ],
        workers=1,
        capacity=10,
    ),
    "Signature": {
        "job_id": _ID,
        "job": "resize",
        "schema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "width": {"type": "integer", "default": 800},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    },
    "JobWhy": _example(
        wire.JobWhy,
        job_id=_ID,
        status="scheduled",
        code="scheduled",
        detail="its next time is 2026-06-02T02:00:00+00:00: at 02:00",
        next_at="2026-06-02T02:00:00Z",
        next_run_at="2026-06-02T02:00:00Z",
        ticks=[
            {
                "at": "2026-06-01T02:00:00Z",
                "decision": "skipped",
                "reason": "overlap",
                "until": None,
                "count": 1,
                "execution_id": _ID,
                "schedule": "",
                "detail": "it was skipped by the overlap rule: an earlier execution had not ended",
            }
        ],
    ),
    "Cancelled": {"execution_id": _ID, "status": "cancelled", "cancel_requested": False},
    "Counts": {"matched": 2, "cancelled": 2, "unknown": 1},
    "QueuePage": {"items": [QUEUE], "next_cursor": None},
    "Limit": LIMIT,
    "LimitPage": {"items": [{**LIMIT, "buckets": []}], "next_cursor": None},
    "QueueState": {"name": "mail", "is_paused": True},
    "Purged": {"name": "mail", "cancelled": 12},
    "Scaling": _example(wire.Scaling, value=16, queued=12, running=4, workers=1, capacity=8),
    "WorkerPage": {"items": [WORKER], "next_cursor": None},
    "Drained": {"worker_id": _WORKER_ID, "state": "draining"},
    "CalendarEntryPage": _page(
        _example(
            wire.CalendarEntry,
            schedule_id=_ID,
            job="report",
            description="At 09:00, Europe/Rome",
            fires=[
                {
                    "at": _AT,
                    "decision": "upcoming",
                    "reason": None,
                    "until": None,
                    "count": 1,
                    "execution_id": None,
                }
            ],
        )
    ),
    "Preview": {
        "description": "At 09:00 on Monday to Friday, Europe/Berlin",
        "next": ["2026-11-16T09:00:00+01:00"],
    },
    "Stats": _example(
        wire.Stats,
        now=_AT,
        totals=_TOTALS,
        queues=[QUEUE],
        workers=[WORKER],
        rates={"enqueued": 10.5, "finished": 10.2, "failed": 0.1},
    ),
    "Series": _example(
        wire.Series,
        queue="mail",
        since=_AT,
        until=_AT,
        step=300,
        series={"succeeded": [12, 9], "run_p95": [0.42, None]},
        totals={"succeeded": 21, "run_p95": 0.42},
    ),
    "JobStats": _example(
        wire.JobStats,
        job="resize",
        since=_AT,
        until=_AT,
        current=_PERIOD,
        previous=_PERIOD,
        trend={"success_rate": 0.01, "run_p95": -0.2, "dead": None},
    ),
    "Status": {"now": _AT, "leaders": []},
    "Tenant": TENANT,
    "TenantPage": {"items": [TENANT], "next_cursor": None},
    "Key": KEY,
    "KeyPage": {"items": [KEY], "next_cursor": None},
    "EndedSession": {"status": "ended"},
    "Session": _example(
        wire.Session,
        role="operator",
        jobs=["billing-*"],
        actions=["read", "trigger"],
        key_id=_KEY_ID,
        name="deploy",
        expires_at=_AT,
        csrf_token="f1d2…",
        version="0.1.0",
    ),
    "NewKeyAnswer": {**KEY, "token": "dbk_…"},
    "Secret": SECRET,
    "SecretPage": _page(SECRET),
    "AuditEntryPage": _page(ENTRY),
    "AuditCheck": {
        "entries": 128,
        "head": "128:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "broken": None,
        "next_cursor": None,
    },
    "Health": {"status": "ok"},
    "WorkerLease": _example(
        wire.WorkerLease,
        status="live",
        now=_AT,
        lease_until=_AT,
        cancel=[{"execution_id": _ID, "attempt": 1}],
    ),
    "LeaseClaim": {
        "lease_id": _KEY_ID,
        "executions": [
            _example(
                wire.ClaimedExecution,
                job="resize",
                version=3,
                kind="task",
                queue="images",
                priority="normal",
                args={"width": 100},
                run_at=_AT,
            )
        ],
        "now": _AT,
    },
    "ReportVerdicts": {
        "items": [_example(wire.ReportVerdict, ruling="stale", current_attempt=2)],
    },
    "StaleReports": {"stale": [{"execution_id": _ID, "attempt": 1}]},
    "LogReceipt": {"parts": 1},
    "RecordedSteps": {
        "items": [
            _example(
                wire.RecordedStep,
                n=1,
                name="charge",
                kind="step",
                started_at=_AT,
                is_done=True,
                result={"receipt": 42},
                finished_at=_AT,
            )
        ],
    },
    "RunBegun": {"is_begun": True},
    "HeldDetails": {
        "definition": {"name": "resize", "queue": "images"},
        "attempts": [],
        "secrets": {"TOKEN": "…"},
    },
    "Released": {"released": 1},
}


# What may go wrong with any request, and with any that has a body.
ALWAYS: Final = (400, 401, 403, 404, 408, 421, 422, 429, 431, 500, 503)
WITH_BODY: Final = (413, 415)

EXPLAINED: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request itself is malformed, or has a key in its address."),
    401: ("key-needed", "There is no key, or none that is valid."),
    403: ("access-denied", "The key does not open this, or the request comes from elsewhere."),
    404: ("not-found", "There is no such thing, or not for this tenant."),
    408: ("request-timeout", "The request was not sent, or not answered, in time."),
    409: ("conflict", "It cannot be done as things are now; the detail says why."),
    412: ("precondition-failed", "It is not at the version that If-Match names."),
    413: ("payload-too-large", "There is more of it than one request may have."),
    415: ("unsupported", "The body is not said to be JSON."),
    421: ("wrong-host", "The server does not go by the name in the Host header."),
    422: ("invalid", "Something in the request makes no sense; errors says what, by field."),
    429: ("quota-exceeded", "More than the tenant, or this address, may ask for now."),
    431: ("request-header-fields-too-large", "The head of the request is too long."),
    500: ("internal-error", "A mistake of the server's, which is in its log."),
    503: ("unavailable", "The store cannot be used now. Send it again after Retry-After."),
}
RETRY_AFTER: Final = {
    "Retry-After": {"description": "After how many seconds.", "schema": {"type": "string"}}
}
ETAG: Final = {"ETag": {"description": "Its version, in quotes.", "schema": {"type": "string"}}}
LOCATION: Final = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
REPLAYED: Final = {
    "Idempotency-Replayed": {
        "description": "true: this is the answer to an earlier request with the same key.",
        "schema": {"type": "string"},
    }
}

REF: Final = "#/components/schemas/{name}"
_PAGE: Final = re.compile(r"Page_(\w+?)_(?=\")")


def schema_name(answers: Any) -> str:
    """The name of the schema of an answer. That of a page of jobs is JobPage."""
    parts = get_args(answers)
    return _page_name(parts[0].__name__) if parts else answers.__name__


def _page_name(item: str) -> str:
    return f"{item[0].upper()}{item[1:]}Page"


# Structs of the core that answers contain.
PARTS: Final = {"JobNotification": JobNotification, "Keep": Keep}


def answer_schemas(answer_types: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of answers, by name, with those that they refer to."""
    types = [wire.Problem, *answer_types.values()]
    _, found = msgspec.json.schema_components(types, ref_template=REF)
    text = _PAGE.sub(lambda page: _page_name(page[1]), msgspec.json.encode(found).decode())
    schemas: dict[str, Any] = msgspec.json.decode(text)
    for name, schema in schemas.items():
        fields = schema.get("properties", {})
        for field in fields.values():
            field.pop("default", None)
        if name.endswith("Page") and not hasattr(wire, name):
            schema |= {"title": name, "description": "A page of a list."}
        if fields:
            schema["required"] = _required_fields(getattr(wire, name, PARTS.get(name, Page)))
        if name in EXAMPLES and name not in answer_types:
            schema["examples"] = [EXAMPLES[name]]
    return schemas


def _required_fields(answer: type[msgspec.Struct]) -> list[str]:
    """The fields that are in each answer of a type."""
    is_short = answer.__struct_config__.omit_defaults
    return [
        field.encode_name
        for field in msgspec.structs.fields(answer)
        if field.default is not msgspec.UNSET
        and not (is_short and field.default is not msgspec.NODEFAULT)
    ]


# Jobs to begin with: one of each kind, as requests that the OpenAPI document shows.

NEW_JOBS: Final[dict[str, dict[str, Any]]] = {
    "a command": {
        "name": "daily-report",
        "schedule": "0 0 * * *",
        "command": "python generate_report.py",
        "dependencies": ["extract", "load"],
        "retries": 3,
        "timeout": 3600,
    },
    "a command with more": {
        "name": "backup",
        "schedule": {"cron": "0 3 * * *", "tz": "Europe/Rome"},
        "command": {"run": ["pg_dump", "shop"], "directory": "/srv/backup", "retry_codes": [75]},
        "env": {"PGPASSWORD": {"secret": "BACKUP_PASSWORD"}},
    },
    "a request": {
        "name": "refresh-rates",
        "schedule": {"every": "15m"},
        "http": {
            "url": "https://example.org/rates",
            "headers": {"Authorization": {"join": ["Bearer ", {"secret": "API_TOKEN"}]}},
            "expect": [200, 304],
        },
    },
    "a statement": {
        "name": "purge-events",
        "schedule": "@daily",
        "sql": {
            "connection": "warehouse",
            "statement": "DELETE FROM events WHERE kind = :kind",
            "parameters": {"kind": "debug"},
        },
    },
    "a message": {
        "name": "stand-up",
        "schedule": "30 9 * * mon-fri",
        "notify": {"to": {"secret": "TEAM_CHAT"}, "title": "Stand-up", "body": "In ten minutes."},
    },
    "a workflow": {
        "name": "etl",
        "schedule": "0 2 * * *",
        "workflow": {
            "nodes": [
                {"name": "extract", "http": "https://example.org/files"},
                {
                    "name": "transform",
                    "command": ["clean", {"item": True, "path": "name"}],
                    "map": {"output": "extract", "path": "body.files"},
                    "retries": 2,
                },
                {
                    "name": "tell",
                    "notify": {"to": {"secret": "TEAM_CHAT"}, "body": "No files today."},
                },
            ],
            "edges": [{"from": "extract", "to": "tell", "when": "len(result.body.files) == 0"}],
            "max_running": 4,
        },
    },
    "a task, once, now": {"name": "import-42", "task": "load", "args": {"file": "42.csv"}},
    "from a template": {
        "name": "backup-shop",
        "template": "backup",
        "parameters": {"database": "shop"},
        "queue": "slow",
    },
}
CHANGED_JOBS: Final[dict[str, dict[str, Any]]] = {
    "another time": {"schedule": {"cron": "0 6 * * *", "tz": "Europe/Rome"}},
    "another command": {"command": "python generate_report.py --all"},
}
DECLARED_JOBS: Final[dict[str, dict[str, Any]]] = {
    "all that it is": {
        "command": "python generate_report.py",
        "schedule": "0 0 * * *",
        "timeout": 3600,
        "source": "apply",
    },
}
NEW_ALERTS: Final[dict[str, dict[str, Any]]] = {
    "dead letters": {
        "name": "dead-letters",
        "on": "dead_letter",
        "to": [{"secret": "TEAM_CHAT"}],
        "repeat": "4h",
    },
    "a missed run": {
        "name": "reports-missed",
        "on": "missed_run",
        "job": "report-*",
        "grace": "30m",
        "to": ["mailto://alerts.example.org"],
    },
}
NEW_SUBSCRIPTIONS: Final[dict[str, dict[str, Any]]] = {
    "dead and cancelled executions": {
        "name": "chat",
        "url": "https://chat.example.org/hooks/daybell",
        "secret": "CHAT_SIGNING_KEY",
        "status": ["dead", "cancelled"],
    },
    "changes of jobs": {
        "name": "inventory",
        "url": "https://inventory.example.org/events",
        "types": ["job.changed"],
    },
}
NEW_TEMPLATES: Final[dict[str, dict[str, Any]]] = {
    "a backup": {
        "name": "backup",
        "description": "Saves a database.",
        "parameters": {"database": "string", "password": {"type": "secret"}},
        "job": {
            "command": ["pg_dump", {"parameter": "database"}],
            "env": {"PGPASSWORD": {"parameter": "password"}},
            "schedule": "0 3 * * *",
        },
    },
}
