"""What is said of words that were typed, in those words: `--shell` rather than {"shell": true}."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

from daybell.errors import DaybellError

Words = str | Callable[[re.Match[str]], str]


def _with_args(found: re.Match[str]) -> str:
    """What was said, and how the parameters that it names are given."""
    named = ", ".join(f'"{name}": …' for name in found["names"].split(", "))
    return f"{found['said']}. Say --args '{{{named}}}'"


# What a message for everybody says, and what a command's user can type. A message about a file
# begins with its place, and is left as it is: there the words are those of the file.
_DEFINING: Final[Mapping[str, Words]] = {
    r'^(without a shell, .*; )\{"shell": true\} runs': r"\1--shell runs",
    r'such as \{"secret": "NAME"\}$': "such as @secret:NAME",
    r'^a job whose schedule is "manual" (runs .* no others); .*$': (
        r"a job with --manual \1; add --no-dependencies, or leave --manual out"
    ),
    r"^sql has no connection$": "sql has no connection; name one with --connection",
    r"^(?P<said>its schedule would .* must be given (?P<names>[\w, ]+);.*); say args$": _with_args,
}
_TRIGGERING: Final[Mapping[str, Words]] = {
    r"cancel it, or force this one$": "cancel it, or add --force",
    r"arguments are given by name, as a dict, not as \w+$": (
        'arguments are given by name, as a JSON object such as {"size": 3}'
    ),
    r"^(?P<said>workflow .* must be given (?P<names>[\w, ]+);.*)$": _with_args,
}


def of_defining(message: str) -> str:
    """What is said of a job that was made or changed with options."""
    return _said(message, _DEFINING)


def of_triggering(message: str) -> str:
    """What is said of an execution that was asked for."""
    return _said(message, _TRIGGERING)


@contextmanager
def told(words: Callable[[str], str]) -> Generator[None]:
    """Have errors say it in these words."""
    try:
        yield
    except DaybellError as error:
        error.args = (words(str(error)), *error.args[1:])
        raise


def _said(message: str, table: Mapping[str, Words]) -> str:
    for pattern, words in table.items():
        message = re.sub(pattern, words, message)
    return message
