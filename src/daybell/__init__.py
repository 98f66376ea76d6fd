"""Daybell, a distributed task scheduler that keeps every job in SQLite or PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daybell.client import Client
    from daybell.core.retry import Retry
    from daybell.errors import (
        Conflict,
        DaybellError,
        NotFound,
        PermanentError,
        RetryLater,
        SchemaError,
        Unavailable,
        UsageError,
    )
    from daybell.sdk.app import App
    from daybell.sdk.context import Context
    from daybell.sdk.handle import ExecutionFailed

__version__ = "0.1.0.dev0"

__all__ = [
    "App",
    "Client",
    "Conflict",
    "Context",
    "DaybellError",
    "ExecutionFailed",
    "NotFound",
    "PermanentError",
    "Retry",
    "RetryLater",
    "SchemaError",
    "Unavailable",
    "UsageError",
    "__version__",
]

# Imported when first asked for: a name that a program does not use costs it nothing.
_HOMES = {
    "App": "daybell.sdk.app",
    "Client": "daybell.client",
    "Context": "daybell.sdk.context",
    "ExecutionFailed": "daybell.sdk.handle",
    "Retry": "daybell.core.retry",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "daybell.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
