"""Daybell, a distributed task scheduler that keeps every job in SQLite or PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING

from daybell.sdk.launch import register as _register
from daybell.version import VERSION

if TYPE_CHECKING:
    from daybell.client import Client
    from daybell.client.remote.client import RemoteClient
    from daybell.core.flow import Limit
    from daybell.core.retry import Retry
    from daybell.core.when import (
        Calendar,
        Misfire,
        Schedule,
        after,
        after_any,
        any_of,
        at,
        cron,
        every,
        on_event,
        rrule,
    )
    from daybell.errors import (
        Conflict,
        DaybellError,
        ExecutionInTheWay,
        NotFound,
        PermanentError,
        RetryLater,
        SchemaError,
        StepFailed,
        StepsChanged,
        Suspended,
        Unavailable,
        UsageError,
    )
    from daybell.sdk.app import App
    from daybell.sdk.batch import Batch
    from daybell.sdk.context import Context, current_execution
    from daybell.sdk.durable import Approval, ReceivedEvent
    from daybell.sdk.task import ExecutionFailed
    from daybell.sdk.workflow import job

__version__ = VERSION

__all__ = [
    "App",
    "Approval",
    "Batch",
    "Calendar",
    "Client",
    "Conflict",
    "Context",
    "DaybellError",
    "ExecutionFailed",
    "ExecutionInTheWay",
    "Limit",
    "Misfire",
    "NotFound",
    "PermanentError",
    "ReceivedEvent",
    "RemoteClient",
    "Retry",
    "RetryLater",
    "Schedule",
    "SchemaError",
    "StepFailed",
    "StepsChanged",
    "Suspended",
    "Unavailable",
    "UsageError",
    "__version__",
    "after",
    "after_any",
    "any_of",
    "at",
    "cron",
    "current_execution",
    "every",
    "job",
    "on_event",
    "rrule",
]

# Imported when first asked for: a name that a program does not use costs it nothing.
_HOMES = {
    "App": "daybell.sdk.app",
    "Approval": "daybell.sdk.durable",
    "Calendar": "daybell.core.when",
    "Client": "daybell.client",
    "Context": "daybell.sdk.context",
    "ExecutionFailed": "daybell.sdk.task",
    "Batch": "daybell.sdk.batch",
    "Limit": "daybell.core.flow",
    "Misfire": "daybell.core.when",
    "ReceivedEvent": "daybell.sdk.durable",
    "RemoteClient": "daybell.client.remote.client",
    "Retry": "daybell.core.retry",
    "Schedule": "daybell.core.when",
    "after": "daybell.core.when",
    "after_any": "daybell.core.when",
    "any_of": "daybell.core.when",
    "at": "daybell.core.when",
    "cron": "daybell.core.when",
    "current_execution": "daybell.sdk.context",
    "every": "daybell.core.when",
    "on_event": "daybell.core.when",
    "job": "daybell.sdk.workflow",
    "rrule": "daybell.core.when",
}

# `App.run` is `daybell dev` for one app. This package knows all layers, so it connects the two.
_register("daybell.cli.roles.dev:run_app")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "daybell.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
