"""Short ways of writing at a terminal: a secret within a text, a file's text, a name and a value.

Imported for `--help` too: nothing heavy here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import typer

# What a terminal's user writes for {"secret": "NAME"}, anywhere in a text.
SECRET: Final = re.compile(r"@secret:([A-Za-z_][A-Za-z0-9_]*)")
MARK: Final = "@secret:"


def referring(text: str) -> Any:
    """The text, or what stands for it if a secret is named in it."""
    parts: list[Any] = []
    end = 0
    for found in SECRET.finditer(text):
        parts += [text[end : found.start()], {"secret": found[1]}]
        end = found.end()
    if not parts:
        return text
    said = [part for part in (*parts, text[end:]) if part != ""]
    return said[0] if len(said) == 1 else {"join": said}


def referring_within(value: Any) -> Any:
    """The same for all texts in a value."""
    if isinstance(value, str):
        return referring(value)
    if isinstance(value, list):
        return [referring_within(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: referring_within(one) for name, one in fields.items()}
    return value


def written(value: Any) -> str:
    """The other way round, for people: a text with its secrets by name."""
    from daybell.core.references import JOIN, is_reference, reference

    named = reference(value, "secret")
    if named is not None:
        return f"{MARK}{named}"
    if is_reference(value):
        return "".join(map(written, value[JOIN]))
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)


def decoded(text: str, *, what: str) -> str:
    """The text itself, or that of a file which is named as @FILE; @- is what comes in. Text that
    begins with @ is written with two of them.
    """
    if not text.startswith("@") or text.startswith(MARK):
        return text
    if text.startswith("@@"):
        return text[1:]
    from daybell.cli.files import read_text
    from daybell.errors import UsageError

    try:
        return read_text(text[1:], what=f"{what} {text}")
    except UsageError as error:
        raise UsageError(f"{error}; text that begins with @ is written @@") from None


def pairs(given: Sequence[str], flag: str, mark: str) -> dict[str, str]:
    """What was given by name; a name that comes twice is refused."""
    said: dict[str, str] = {}
    for one in given:
        name, found, value = one.partition(mark)
        name = name.strip()
        if not found or not name:
            from daybell.errors import shown

            form = "NAME=VALUE" if mark == "=" else "'NAME: VALUE'"
            raise typer.BadParameter(f"{flag} {shown(one)} is not of the form {form}")
        if name in said:
            raise typer.BadParameter(f"{flag} {name} is given twice")
        said[name] = value
    return said
