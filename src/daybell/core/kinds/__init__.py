"""Kinds of jobs: what runs them, and the settings that each has.

task      a Python function of an app
command   a program
http      a request
sql       a statement, in a database that workers know by name
notify    a message to people
workflow  a graph of others
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
# Settings that are values by name. As a whole they stand for nothing: a header, a variable or a
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
    """Read what people write of a kind without code. Raises UsageError."""
    return SETTINGS[kind].parse(value)


def settings_json(settings: KindSettings) -> dict[str, Any]:
    """Settings as plain data, without what is as usual; `read_settings` takes it again."""
    said = cast("dict[str, Any]", msgspec.to_builtins(settings))
    told = {
        field.name: said[field.name]
        for field in msgspec.structs.fields(settings)
        if field.required or getattr(settings, field.name) != _default(field)
    }
    if isinstance(settings, HttpSettings) and settings.body is not None:
        told["method"] = settings.method  # left out, a body would mean POST
    return told


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def secrets_of(kind: str, settings: Mapping[str, Any]) -> set[str]:
    """The secrets that settings refer to, as plain data."""
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
    """What a worker must offer to run a job, as lanes know it. `settings` is JSON.

    A statement needs a worker that knows its connection: one that does not would have to give it
    back.
    """
    if kind != "sql":
        return kind
    return f"sql:{payload.decode(settings)['connection']}"
