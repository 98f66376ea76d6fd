"""Warnings about settings of jobs without code that are allowed but look wrong."""

from __future__ import annotations

import re
from typing import Final

from daybell.core.kinds.settings import (
    CommandSettings,
    HttpSettings,
    NotifySettings,
    SqlSettings,
    why_refused,
)
from daybell.errors import shown

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
    settings: CommandSettings | HttpSettings | SqlSettings | NotifySettings,
) -> list[str]:
    """List likely mistakes, as sentences."""
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
    return f'whoever may look at the job can read {what}; keep it as a secret: {{"secret": "NAME"}}'
