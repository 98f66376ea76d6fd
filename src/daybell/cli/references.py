"""Values as they are typed: secrets within a text, the text of a file, pairs of name and value."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import typer

from daybell.core.references import JOIN, is_reference, reference
from daybell.errors import UsageError, shown

# The form of {"secret": "NAME"} on a terminal, anywhere in a text.
SECRET: Final = re.compile(r"@secret:([A-Za-z_][A-Za-z0-9_]*)")
MARK: Final = "@secret:"
FILE_BYTES_MAX: Final = 1024 * 1024  # of one file; files written by hand are far smaller
STDIN: Final = "-"


def parse_reference(text: str) -> Any:
    """Return the text, or the reference that replaces it if a secret is named in it."""
    parts: list[Any] = []
    end = 0
    for found in SECRET.finditer(text):
        parts += [text[end : found.start()], {"secret": found[1]}]
        end = found.end()
    if not parts:
        return text
    said = [part for part in (*parts, text[end:]) if part != ""]
    return said[0] if len(said) == 1 else {"join": said}


def parse_nested_references(value: Any) -> Any:
    """Replace the references in all texts of a value."""
    if isinstance(value, str):
        return parse_reference(value)
    if isinstance(value, list):
        return [parse_nested_references(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: parse_nested_references(one) for name, one in fields.items()}
    return value


def format_references(value: Any) -> str:
    """Return a text with its secrets by name, for people: the reverse of `parse_reference`."""
    named = reference(value, "secret")
    if named is not None:
        return f"{MARK}{named}"
    if is_reference(value):
        return "".join(map(format_references, value[JOIN]))
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def read_text_value(text: str, *, what: str) -> str:
    """Return the text itself, or that of a file which is named as @FILE; @- is standard input. Text
    that begins with @ is written with two of them.
    """
    if not text.startswith("@") or text.startswith(MARK):
        return text
    if text.startswith("@@"):
        return text[1:]
    try:
        return read_text(text[1:], what=f"{what} {text}")
    except UsageError as error:
        raise UsageError(f"{error}; text that begins with @ is written @@") from None


def parse_pairs(given: Sequence[str], flag: str, mark: str) -> dict[str, str]:
    """Return the values by name; a name that comes twice is refused."""
    said: dict[str, str] = {}
    for one in given:
        name, found, value = one.partition(mark)
        name = name.strip()
        if not found or not name:
            form = "NAME=VALUE" if mark == "=" else "'NAME: VALUE'"
            raise typer.BadParameter(f"{flag} {shown(one)} is not of the form {form}")
        if name in said:
            raise typer.BadParameter(f"{flag} {name} is given twice")
        said[name] = value
    return said


def read_text(path: str, *, what: str) -> str:
    """Return a file's text; `-` is standard input."""
    try:
        if path == STDIN:
            raw = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise UsageError(f"{what} is too large; the limit is {FILE_BYTES_MAX:,} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{what}:{line}: not UTF-8 text") from None
