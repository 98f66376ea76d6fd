"""A good request for every operation: something to ask with, whatever is to be found out."""

from functools import cache
from typing import Any

from daybell.api import create_api
from daybell.client import Client

UNKNOWN = "01934b2e-7c00-7000-8000-000000000000"

BODIES: dict[str, Any] = {
    "create_job": {"name": "daily", "task": "resize", "schedule": "0 0 * * *"},
    "update_job": {"queue": "mail"},
    "apply_job": {"command": "true"},
    "create_template": {"name": "nightly", "job": {"command": "true"}},
    "set_template": {"job": {"command": "true"}},
    "trigger_job": {"args": {"width": 1}},
    "rollback_job": {"version": 1},
    "backfill_job": {"since": "2026-01-01", "until": "2026-01-02"},
    "enqueue_executions": [{"job": "resize"}],
    "cancel_executions": {"filter": {}},
    "retry_executions": {"filter": {}},
    "retry_dead_letters": {"filter": {}},
    "discard_dead_letters": {"filter": {}},
    "publish_event": {"type": "order.approved"},
    "signal_execution": {"name": "order.approved"},
    "create_tenant": {"name": "acme"},
    "update_tenant": {"jobs": 1},
    "create_key": {"name": "ci", "role": "viewer"},
    "set_secret": {"value": "hush-hush"},
    "create_alert": {"name": "letters", "on": "dead_letter"},
    "hold_export": {"until": "2026-11-01T00:00:00Z"},
    "create_subscription": {"name": "hooks", "url": "http://127.0.0.1:1/a"},
    "update_subscription": {"description": "changed"},
    "set_alert": {"on": "dead_letter"},
    "silence_alert": {"duration": "1h"},
    "preview_any_schedule": {"schedule": "0 0 * * *"},
    "set_limit": {"limit": 5},
    "create_hook": {"name": "github"},
    "register_worker": {"queues": ["mail"], "kinds": ["task"]},
    "create_session": {"key": "dbk_" + "x" * 43},
}
QUERIES = {"preview_schedule": "?cron=0 0 * * *"}
STREAMS = {"stream"}  # they do not end by themselves


@cache
def document() -> dict[str, Any]:
    """What the API says of itself; it takes a while to make."""
    return create_api(Client("memory://")).openapi()


def operations() -> list[tuple[str, str, str]]:
    """Method, path below the base, and id of every operation that is answered at once."""
    paths = document()["paths"]
    return [
        (method.upper(), _filled(path) + QUERIES.get(said["operationId"], ""), said["operationId"])
        for path, methods in paths.items()
        for method, said in methods.items()
        if path.startswith("/api/") and said["operationId"] not in STREAMS
    ]


def _filled(path: str) -> str:
    return path.removeprefix("/api/v1").format(
        job="resize", id=UNKNOWN, name="images", version=1, worker=UNKNOWN, token="t", hook="github"
    )
