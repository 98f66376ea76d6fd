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

EXECUTION: Final[Example] = {
    "execution_id": _ID,
    "job_id": _JOB_ID,
    "job": "daily-report",
    "version": 1,
    "tenant": "default",
    "status": "succeeded",
    "reason": None,
    "queue": "default",
    "priority": "normal",
    "args": {"day": "2026-11-15"},
    "attempt": 1,
    "failures": 0,
    "crashes": 0,
    "created_at": _AT,
    "run_at": _AT,
    "scheduled_for": None,
    "expires_at": None,
    "started_at": _AT,
    "finished_at": _AT,
    "cancel_requested_at": None,
    "worker_id": _WORKER_ID,
    "unique_key": None,
    "retries": None,
    "timeout": None,
    "parent_id": None,
    "node": None,
    "workflow_id": None,
    "schedule_id": None,
    "progress": 100.0,
    "note": None,
    "outcome": "succeeded",
    "result": {"pages": 12},
    "error": None,
    "checkpoint": None,
    "is_discarded": False,
    "truncated": False,
    "link": None,
}
DETAIL: Final[Example] = {
    **EXECUTION,
    "attempts": [
        {
            "attempt": 1,
            "outcome": "succeeded",
            "worker_id": _WORKER_ID,
            "started_at": _AT,
            "ended_at": _AT,
            "error": None,
        }
    ],
    "timeline": [
        {"at": _AT, "event": "created"},
        {"at": _AT, "event": "started", "attempt": 1, "worker_id": _WORKER_ID},
        {"at": _AT, "event": "ended", "status": "succeeded"},
    ],
    "fired_by": None,
    "workflow": None,
    "steps": [
        {
            "n": 1,
            "name": "charge",
            "kind": "step",
            "status": "done",
            "failures": 0,
            "started_at": _AT,
            "finished_at": _AT,
            "wake_at": None,
            "result": {"cents": 1200},
            "is_result_left_out": False,
            "error": None,
        }
    ],
}
RUN: Final[Example] = {
    "nodes": [
        {
            "name": "extract",
            "status": "succeeded",
            "reason": None,
            "execution_id": "019a8c20-1f40-7c55-9d02-3c7e8a1b2f67",
            "kind": "task",
            "task": "extract",
            "job": None,
            "rule": "all_success",
            "note": "",
            "ready_at": "2026-11-16T08:59:58Z",
            "started_at": "2026-11-16T09:00:00Z",
            "finished_at": "2026-11-16T09:00:04Z",
            "items": None,
            "run_at": None,
            "waits": [],
            "attempts": [
                {
                    "attempt": 1,
                    "outcome": "failed",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:00Z",
                    "ended_at": "2026-11-16T09:00:01Z",
                },
                {
                    "attempt": 2,
                    "outcome": "succeeded",
                    "worker_id": "019a8c1f-77aa-7b10-8c11-5f1d0e2a9b3c",
                    "started_at": "2026-11-16T09:00:03Z",
                    "ended_at": "2026-11-16T09:00:04Z",
                },
            ],
        },
        {
            "name": "transform",
            "status": "running",
            "reason": None,
            "execution_id": None,
            "kind": "command",
            "task": None,
            "job": None,
            "rule": "all_success",
            "note": "",
            "ready_at": "2026-11-16T09:00:04Z",
            "started_at": "2026-11-16T09:00:04Z",
            "finished_at": None,
            "items": {"total": 40, "ended": 12, "failed": 0},
            "run_at": None,
            "waits": [],
            "attempts": [],
        },
    ],
    "edges": [{"from": "extract", "to": "transform", "when": "result.rows > 0"}],
    "progress": {"ended": 1, "total": 2},
    "failed": [],
    "fail_fast": False,
    "max_running": 4,
}
HOOK: Final = {
    "hook_id": _KEY_ID,
    "job": "build",
    "name": "github",
    "event": "hook.build",
    "hint": "dbh_Qk3x",
    "signature": "github",
    "secret": "github-hook",
    "header": None,
    "algorithm": None,
    "encoding": None,
    "created_at": _AT,
    "created_by": "key deploy",
    "expires_at": None,
    "used_at": None,
    "revoked_at": None,
}

EVENT: Final[Example] = {
    "event_id": "A-1047",
    "source": "/shop",
    "type": "order.approved",
    "data": {"order_id": 42, "by": "ada"},
    "time": None,
    "received_at": _AT,
    "execution_id": None,
}
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
SCHEDULE: Final[Example] = {
    "schedule_id": "54c6bbb3-e64f-5860-959a-52a445404533",
    "tenant": "default",
    "job": "daily-report",
    "name": "",
    "rule": {"cron": "0 0 * * *"},
    "description": "At 00:00, UTC",
    "args": {},
    "delay": None,
    "is_reboot": False,
    "since": None,
    "next_run_at": _LATER,
    "last_run_at": None,
    "last_success_at": None,
    "is_declared": True,
    "overlap_by": "job",
    "is_paused": False,
    "fired": 0,
    "skipped": 0,
    "missed": 0,
    "failures": 0,
    "truncated": False,
}
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
QUEUE: Final[Example] = {
    "name": "default",
    "is_paused": False,
    "queued": 12,
    "scheduled": 3,
    "retrying": 1,
    "running": 4,
    "waiting": 0,
    "oldest_run_at": _AT,
    "at_least": [],
}
LIMIT: Final[Example] = {
    "name": "stripe",
    "limit": 10,
    "rates": ["100/m"],
    "declared": {"limit": 20, "rates": ["100/m"]},
    "is_paused": False,
    "paused_until": None,
    "running": 10,
    "waiting": 42,
    "keys": 1,
    "next_at": _AT,
    "at_least": [],
    "buckets": [
        {
            "key": "",
            "running": 10,
            "waiting": 42,
            "tokens": 7,
            "next_at": None,
            "paused_until": None,
            "is_paused": False,
            "holders": [_JOB_ID],
        }
    ],
}
WORKER: Final[Example] = {
    "worker_id": _WORKER_ID,
    "name": "worker-1",
    "tenant": "default",
    "state": "live",
    "host": "node-1",
    "pid": 4242,
    "version": "0.1.0",
    "queues": ["default"],
    "kinds": ["task"],
    "tasks": {"daily-report": "5f70bf18a086"},
    "labels": {},
    "resources": {},
    "capacity": 8,
    "running": 4,
    "started_at": _AT,
    "renewed_at": _AT,
    "lease_until": _AT,
}
TEMPLATE: Final[Example] = {
    "name": "backup",
    "version": 1,
    "tenant": "default",
    "description": "Saves a database.",
    "parameters": {"database": {"type": "string"}},
    "job": {"command": ["pg_dump", {"parameter": "database"}], "schedule": "0 3 * * *"},
    "author": f"key deploy (dbk_Zk3v, {_KEY_ID})",
    "created_at": _AT,
    "updated_at": _AT,
    "truncated": False,
    "link": None,
}
TENANT: Final[Example] = {
    "name": "acme",
    "created_at": _AT,
    "quotas": {"jobs": 100, "queued": None, "per_minute": 6000, "running": None},
    "keep": {"succeeded": 604800.0, "logs": 86400.0},
}
KEY: Final[Example] = {
    "key_id": _KEY_ID,
    "tenant": "default",
    "name": "deploy",
    "role": "operator",
    "jobs": ["billing-*"],
    "queues": None,
    "actions": ["read", "trigger"],
    "hint": "dbk_Zk3v",
    "kind": "key",
    "parent_id": None,
    "created_at": _AT,
    "created_by": "cli ana@host",
    "expires_at": None,
    "used_at": None,
    "revoked_at": None,
}
ENTRY: Final[Example] = {
    "entry_id": "019a8c31-2b00-7f22-9b6d-2e3f40516273",
    "tenant": "default",
    "at": _AT,
    "actor": f"key deploy (dbk_Zk3v, {_KEY_ID})",
    "action": "job.pause",
    "target": "daily-report",
    "before": None,
    "after": {"note": "until the disk is replaced"},
    "source": "10.0.0.7",
}
_TOTALS: Final[Example] = {
    "queued": 12,
    "scheduled": 3,
    "retrying": 1,
    "running": 4,
    "waiting": 0,
    "at_least": [],
}


def _page(item: Example) -> Example:
    return {"items": [item], "next_cursor": None}


SECRET: Final[Example] = {
    "name": "API_TOKEN",
    "tenant": "default",
    "version": 2,
    "key_id": "3f9a1c0b7d52",
    "created_at": _AT,
    "updated_at": _LATER,
    "author": "key deploy",
}
LISTED_VERSION: Final[Example] = {
    **VERSION,
    "version": 2,
    "changes": [{"field": "timeout", "before": None, "after": 3600.0}],
}
ALERT: Final[Example] = {
    "name": "dead-letters",
    "version": 1,
    "tenant": "default",
    "on": "dead_letter",
    "job": None,
    "queue": None,
    "to": [{"secret": "TEAM_CHAT"}],
    "count": 1,
    "rate": 0.5,
    "within": 3600.0,
    "grace": None,
    "factor": 2.0,
    "repeat": 14400.0,
    "message_queue": "default",
    "description": "",
    "silenced_until": None,
    "silence_reason": "",
    "author": "key deploy",
    "created_at": _AT,
    "updated_at": _AT,
}
INCIDENT: Final[Example] = {
    "incident_id": _ID,
    "tenant": "default",
    "rule": "dead-letters",
    "subject": "daily-report",
    "detail": "Job daily-report has 1 dead letter, the last since 2026-11-16T00:00:00Z: OSError",
    "opened_at": _AT,
    "notified_at": _AT,
    "closed_at": None,
    "acknowledged_at": None,
    "acknowledged_by": "",
}
EXPORT_POLICY: Final[Example] = {
    "name": "warehouse",
    "tenant": "default",
    "until": _AT,
    "author": "key deploy",
    "updated_at": _AT,
}
SUBSCRIPTION: Final[Example] = {
    "name": "chat",
    "version": 1,
    "tenant": "default",
    "url": "https://chat.example.org/hooks/daybell",
    "secret": "CHAT_SIGNING_KEY",
    "types": ["execution.*"],
    "status": ["dead", "cancelled"],
    "job": None,
    "queue": None,
    "message_queue": "default",
    "description": "",
    "delivery_job": "events:chat",
    "author": "key deploy",
    "created_at": _AT,
    "updated_at": _AT,
}
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
    "AppliedJob": {
        "action": "changed",
        "before": {"name": "daily-report", "command": "python generate_report.py"},
        "after": {
            "name": "daily-report",
            "command": "python generate_report.py",
            "schedule": "0 0 * * *",
        },
        "job": JOB,
        "warnings": [],
    },
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
    "Deleted": {
        "job_id": _JOB_ID,
        "name": "daily-report",
        "status": "deleted",
        "cancelled": 2,
        "warnings": [],
    },
    "Backfill": {
        "backfill_id": None,
        "job": "daily-report",
        "dry_run": True,
        "ticks": 1,
        "created": 0,
        "items": [
            {"scheduled_for": _AT, "schedule": "", "execution_id": None, "created": False},
        ],
    },
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
    "Published": {
        "event_id": "A-1047",
        "created": True,
        "resumed": 1,
        "executions": [],
        "execution_id": None,
        "node": None,
    },
    "EventPage": _page(EVENT),
    "DeadLetterGroupPage": _page(
        {
            "job": "resize",
            "job_id": _JOB_ID,
            "fingerprint": "9f86d081884c",
            "error": "TimeoutError",
            "message": "no answer after 30 s",
            "count": 12,
            "first_seen": _AT,
            "last_seen": _AT,
            "execution_id": _ID,
            "q": "job:resize fingerprint:9f86d081884c",
        }
    ),
    "StateCounts": {
        "executions": {"queued": 12, "succeeded": 10_000},
        "at_least": ["succeeded"],
        "estimate": 1204300,
    },
    "LogPage": {
        "items": [
            {"at": _AT, "attempt": 1, "level": "info", "source": "app", "message": "12 pages"}
        ],
        "next_cursor": None,
        "end_cursor": "1.3",
    },
    "Why": {
        "execution_id": _ID,
        "status": "queued",
        "code": "queue_paused",
        "detail": "queue 'mail' is paused; resume it",
        "next_at": None,
        "lack": "queue 'mail' is paused; resume it",
        "actions": [_REMEDY],
        "holders": [],
        "nearest_worker": None,
        "ahead": 3,
        "at_least": False,
        "estimated_start": None,
        "delays": [],
    },
    "QueueWhy": {
        "queue": "mail",
        "code": "queue_paused",
        "detail": "queue 'mail' is paused; resume it. 12 executions are due in it",
        "next_at": None,
        "actions": [_REMEDY],
        "needs": [
            {
                "needs": "task",
                "queued": 12,
                "at_least": False,
                "oldest_run_at": "2026-06-01T02:00:00Z",
                "workers": 1,
            }
        ],
        "workers": 1,
        "capacity": 10,
        "running": 0,
        "starts_per_second": None,
    },
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
    "JobWhy": {
        "job_id": _ID,
        "job": "daily-report",
        "status": "scheduled",
        "code": "scheduled",
        "detail": "its next time is 2026-06-02T02:00:00+00:00: at 02:00",
        "next_at": "2026-06-02T02:00:00Z",
        "next_run_at": "2026-06-02T02:00:00Z",
        "actions": [],
        "schedules": [],
        "executions": [],
        "ticks": [
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
    },
    "Cancelled": {"execution_id": _ID, "status": "cancelled", "cancel_requested": False},
    "Counts": {"matched": 2, "cancelled": 2, "unknown": 1},
    "QueuePage": {"items": [QUEUE], "next_cursor": None},
    "Limit": LIMIT,
    "LimitPage": {"items": [{**LIMIT, "buckets": []}], "next_cursor": None},
    "QueueState": {"name": "mail", "is_paused": True},
    "Purged": {"name": "mail", "cancelled": 12},
    "Scaling": {
        "queue": "default",
        "value": 16,
        "queued": 12,
        "running": 4,
        "workers": 1,
        "capacity": 8,
        "is_paused": False,
        "at_least": [],
    },
    "WorkerPage": {"items": [WORKER], "next_cursor": None},
    "Drained": {"worker_id": _WORKER_ID, "state": "draining"},
    "CalendarEntryPage": _page(
        {
            "schedule_id": _ID,
            "job": "report",
            "name": "",
            "description": "At 09:00, Europe/Rome",
            "is_paused": False,
            "fires": [
                {
                    "at": _AT,
                    "decision": "upcoming",
                    "reason": None,
                    "until": None,
                    "count": 1,
                    "execution_id": None,
                }
            ],
            "has_more": False,
        }
    ),
    "Preview": {
        "description": "At 09:00 on Monday to Friday, Europe/Berlin",
        "next": ["2026-11-16T09:00:00+01:00"],
    },
    "Stats": {
        "now": _AT,
        "totals": _TOTALS,
        "queues": [QUEUE],
        "workers": [WORKER],
        "rates": {"enqueued": 10.5, "finished": 10.2, "failed": 0.1},
        "dead_letters": [],
        "has_more_dead_letters": False,
    },
    "Series": {
        "job": None,
        "queue": "mail",
        "since": _AT,
        "until": _AT,
        "step": 300,
        "series": {"succeeded": [12, 9], "run_p95": [0.42, None]},
        "totals": {"succeeded": 21, "run_p95": 0.42},
        "at_least": [],
    },
    "JobStats": {
        "job": "resize",
        "job_id": _JOB_ID,
        "since": _AT,
        "until": _AT,
        "current": _PERIOD,
        "previous": _PERIOD,
        "trend": {"success_rate": 0.01, "run_p95": -0.2, "dead": None},
    },
    "Status": {"now": _AT, "leaders": []},
    "Tenant": TENANT,
    "TenantPage": {"items": [TENANT], "next_cursor": None},
    "Key": KEY,
    "KeyPage": {"items": [KEY], "next_cursor": None},
    "EndedSession": {"status": "ended"},
    "Session": {
        "tenant": "default",
        "role": "operator",
        "jobs": ["billing-*"],
        "queues": None,
        "actions": ["read", "trigger"],
        "key_id": _KEY_ID,
        "name": "deploy",
        "expires_at": _AT,
        "csrf_token": "f1d2…",
        "read_only": False,
        "version": "0.1.0",
    },
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
    "WorkerLease": {
        "worker_id": _WORKER_ID,
        "status": "live",
        "now": _AT,
        "lease_until": _AT,
        "cancel": [{"execution_id": _ID, "attempt": 1}],
        "returned": 0,
    },
    "LeaseClaim": {
        "lease_id": _KEY_ID,
        "executions": [
            {
                "execution_id": _ID,
                "attempt": 1,
                "job": "resize",
                "version": 3,
                "kind": "task",
                "queue": "images",
                "priority": "normal",
                "args": {"width": 100},
                "failures": 0,
                "crashes": 0,
                "created_at": _AT,
                "run_at": _AT,
            }
        ],
        "now": _AT,
    },
    "ReportVerdicts": {
        "items": [
            {
                "execution_id": _ID,
                "attempt": 1,
                "ruling": "stale",
                "detail": "",
                "current_attempt": 2,
            }
        ]
    },
    "StaleReports": {"stale": [{"execution_id": _ID, "attempt": 1}]},
    "LogReceipt": {"parts": 1},
    "RecordedSteps": {
        "items": [
            {
                "n": 1,
                "name": "charge",
                "kind": "step",
                "started_at": _AT,
                "is_done": True,
                "result": {"receipt": 42},
                "finished_at": _AT,
            }
        ]
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
