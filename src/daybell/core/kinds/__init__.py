"""Kinds of jobs, and their settings.

task      a Python function of an app
command   a program
http      a request
sql       a statement, in a database of the workers' configuration
notify    a message to people
workflow  a graph of other jobs
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from daybell.core import payload
from daybell.core.kinds.settings import (
    CommandSettings,
    HttpSettings,
    NotifySettings,
    SqlSettings,
    why_refused,
)
from daybell.core.references import names_in, names_in_args
from daybell.errors import shown

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
    "warnings_of",
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


# Warnings about settings that are allowed but look wrong.

# Words that have a meaning only in a shell, or prefixes of such words.
_SHELL_WORDS: Final = re.compile(
    r"\|\|?|&&?|;|\d?>>?(?:&\d)?|<<?|\d?>&\d"
    r"|~/.*|\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})(?:/.*)?|\$\(.*|`.*",
    re.DOTALL,
)
_SHELL_FIRST: Final = re.compile(
    r"cd|export|source|\.|set|unset|ulimit|umask|alias|eval|[A-Za-z_]\w*=.*", re.DOTALL
)
_TELLING_HEADERS: Final = re.compile(
    r"authorization|cookie|(?:.*-)?(?:api-?key|token|secret)", re.IGNORECASE
)
_TELLING_QUERY: Final = re.compile(r"[?&][^=&]*(?:pass|token|key|secret)[^=&]*=.", re.IGNORECASE)
_MAIL: Final = ("mailto", "mailtos")
# In these addresses the rest is a path or a topic, in all others it contains tokens.
_PLAIN: Final = (*_MAIL, "json", "jsons", "xml", "xmls", "form", "forms", "ntfy", "ntfys")


def warnings_of(
    settings: KindSettings,
) -> list[str]:
    """List likely mistakes in settings that are allowed, as sentences."""
    match settings:
        case CommandSettings():
            return [*_shell_words(settings), *_refused_variables(settings)]
        case HttpSettings():
            return [
                _readable(f"header {name}")
                for name, value in settings.headers.items()
                if isinstance(value, str) and value and _TELLING_HEADERS.fullmatch(name)
            ]
        case NotifySettings():
            return [
                _readable(f"the address {one.partition('://')[0]}://…, with its login or token")
                for one in settings.to
                if isinstance(one, str) and _has_login(one)
            ]
        case SqlSettings():
            return []


def _shell_words(settings: CommandSettings) -> list[str]:
    if settings.shell:
        return []
    argv = settings.argv
    odd = [word for word in argv[:1] if isinstance(word, str) and _SHELL_FIRST.fullmatch(word)]
    if isinstance(settings.run, str):  # a list needs no shell
        odd += [word for word in argv if _SHELL_WORDS.fullmatch(word)]
    if not odd:
        return []
    return [
        f'without a shell, {shown(odd[0])} is only a word; {{"shell": true}} runs the command'
        " by sh -c"
    ]


def _refused_variables(settings: CommandSettings) -> list[str]:
    return [
        f"a worker refuses to set {name}, which {why}, unless it is started with --allow-env {name}"
        for name in settings.env
        if (why := why_refused(name)) is not None
    ]


def _has_login(address: str) -> bool:
    scheme, _, rest = address.partition("://")
    if _TELLING_QUERY.search(rest):
        return True
    scheme, place = scheme.strip().lower(), rest.partition("?")[0]
    login, at, _ = place.rpartition("@")
    if at and (":" in login or scheme not in _MAIL):
        return True
    return scheme not in _PLAIN and bool(place.partition("/")[2])


def _readable(what: str) -> str:
    return f'every reader of the job can read {what}; keep it as a secret: {{"secret": "NAME"}}'
