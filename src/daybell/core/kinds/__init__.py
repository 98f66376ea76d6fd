"""Kinds of jobs, and their settings.

task      a Python function of an app
command   a program
http      a request
sql       a statement, in a database of the workers' configuration
notify    a message to people
workflow  a graph of other jobs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from daybell.core import payload
from daybell.core.kinds.settings import CommandSettings, HttpSettings, NotifySettings, SqlSettings
from daybell.core.references import names_in, names_in_args

KindSettings = CommandSettings | HttpSettings | SqlSettings | NotifySettings

KINDS: Final = ("task", "command", "http", "sql", "notify", "workflow")
SETTINGS: Final[dict[str, type[KindSettings]]] = {
    "command": CommandSettings,
    "http": HttpSettings,
    "sql": SqlSettings,
    "notify": NotifySettings,
}
# Settings that are values by name. The mapping itself is no reference: a header, a variable or a
# parameter may be called "secret".
BY_NAME: Final[dict[str, tuple[str, ...]]] = {
    "command": ("env",),
    "http": ("headers",),
    "sql": ("parameters",),
}

__all__ = [
    "KINDS",
    "SETTINGS",
    "CommandSettings",
    "HttpSettings",
    "KindSettings",
    "NotifySettings",
    "SqlSettings",
    "needs_of",
    "read_settings",
    "secrets_of",
    "settings_json",
]


def read_settings(kind: str, value: Any) -> KindSettings:
    """Parse the settings of a kind without code. Raises UsageError."""
    return SETTINGS[kind].parse(value)


def settings_json(settings: KindSettings) -> dict[str, Any]:
    """Return settings as plain data without defaults; `read_settings` parses it."""
    values = cast("dict[str, Any]", msgspec.to_builtins(settings))
    written = {
        field.name: values[field.name]
        for field in msgspec.structs.fields(settings)
        if field.required or getattr(settings, field.name) != _default(field)
    }
    if isinstance(settings, HttpSettings) and settings.body is not None:
        written["method"] = settings.method  # by default, a body means POST
    return written


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def secrets_of(kind: str, settings: Mapping[str, Any]) -> set[str]:
    """Return the names of secrets in settings, given as plain data."""
    if kind == "workflow":
        return set[str]().union(*map(_secrets_of_node, settings["nodes"]))
    by_name = BY_NAME.get(kind, ())
    names = set[str]()
    for field, value in settings.items():
        names |= names_in_args(value) if field in by_name else names_in(value)
    return names


def _secrets_of_node(node: Mapping[str, Any]) -> set[str]:
    names = names_in_args(node.get("args", {}))
    return names.union(*(secrets_of(kind, node[kind]) for kind in SETTINGS if kind in node))


def needs_of(kind: str, settings: str) -> str:
    """Return the capability that a worker needs to run a job, given its settings as JSON.

    A statement needs a worker that has its connection.
    """
    if kind != "sql":
        return kind
    return f"sql:{payload.decode(settings)['connection']}"
