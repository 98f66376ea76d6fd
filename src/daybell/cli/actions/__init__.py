"""The work of each command, imported when a command runs.

A module of `daybell.cli.commands` declares the words that can be typed. It imports this package,
which imports nothing, and names the work as `actions.MODULE.function`. So `--help` and completion
stay quick, and the modules with the work import at their top all that they need.
A command that needs little besides its client does its work itself: `options.on_client`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from daybell.cli import benchmark, connection, migration, references, terminal
    from daybell.cli.actions import (
        admin,
        chaos,
        completion,
        definitions,
        executions,
        export,
        job_flags,
        job_options,
        jobs,
        schedules,
        selection,
    )
    from daybell.cli.apply import command as apply
    from daybell.cli.doctor import report as doctor
    from daybell.cli.roles import bridge, dev, server, startup, worker
    from daybell.cli.views import dashboard

__all__ = [
    "admin",
    "apply",
    "benchmark",
    "bridge",
    "chaos",
    "completion",
    "connection",
    "dashboard",
    "definitions",
    "dev",
    "doctor",
    "executions",
    "export",
    "job_flags",
    "job_options",
    "jobs",
    "migration",
    "references",
    "schedules",
    "selection",
    "server",
    "startup",
    "terminal",
    "worker",
]

# Modules that are not in this package.
_HOMES: Final = {
    "apply": "daybell.cli.apply.command",
    "benchmark": "daybell.cli.benchmark",
    "bridge": "daybell.cli.roles.bridge",
    "connection": "daybell.cli.connection",
    "dashboard": "daybell.cli.views.dashboard",
    "dev": "daybell.cli.roles.dev",
    "doctor": "daybell.cli.doctor.report",
    "migration": "daybell.cli.migration",
    "references": "daybell.cli.references",
    "server": "daybell.cli.roles.server",
    "startup": "daybell.cli.roles.startup",
    "terminal": "daybell.cli.terminal",
    "worker": "daybell.cli.roles.worker",
}


def __getattr__(name: str) -> Any:
    """Import a module at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_HOMES.get(name, f"{__name__}.{name}"))
