"""Files that describe jobs: which ones are meant, and what they say."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn, cast

from daybell.cli.documents import Document, Fault, Lines, Path, too_deep
from daybell.core.limits import PAYLOAD_DEPTH_MAX
from daybell.errors import UsageError, shown

FILE_BYTES_MAX: Final = 1024 * 1024  # of one file; what people write by hand is far smaller
FILES_MAX: Final = 10_000
STDIN: Final = "-"

_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|\n')
_TOML_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


def find_files(paths: Sequence[str]) -> list[FilePath]:
    """The files that are named, and those in folders that are, however deep, in order.

    Of a folder, what is hidden or no file of jobs is passed over.
    """
    found: dict[FilePath, FilePath] = {}
    for text in paths:
        path = FilePath(text)
        if text == STDIN:
            found[path] = path
        elif path.is_dir():
            for file in _in_folder(path):
                found.setdefault(file.resolve(), file)
        elif path.exists():
            found.setdefault(path.resolve(), path)
        else:
            raise UsageError(f"there is no file or folder {shown(text)}", field="file")
    if len(found) > FILES_MAX:
        raise UsageError(f"{len(found):,} files are too many; the limit is {FILES_MAX:,}")
    return list(found.values())


def read_file(path: FilePath) -> list[Document]:
    """The documents of a file; `-` is what comes in as YAML. Raises UsageError."""
    is_stdin = str(path) == STDIN
    name = "stdin" if is_stdin else str(path)
    read = _READERS.get(".yaml" if is_stdin else path.suffix.lower())
    if read is None:
        known = ", ".join(ENDINGS)
        raise UsageError(f"{name} is no file of jobs; their names end with one of {known}")
    try:
        documents = read(read_text(str(path), what=name))
    except Fault as fault:
        where = name if fault.line is None else f"{name}:{fault.line}"
        raise UsageError(f"{where}: {fault}") from None
    return [replace(one, file=name) for one in documents]


def read_text(path: str, *, what: str) -> str:
    """A file's text; `-` is what comes in."""
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


def _in_folder(folder: FilePath) -> list[FilePath]:
    """In order of their names. Links to folders are followed, and lead into each folder once."""
    found: list[FilePath] = []
    seen = {_identity(folder)}
    # What cannot be looked into is no empty folder: its jobs would count as removed.
    for place, folders, names in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        inner = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in inner if _is_new(FilePath(place, name), seen)]
        for name in names:
            file = FilePath(place, name)
            if name.startswith("."):
                continue
            if file.suffix.lower() in _READERS:
                found.append(file)
            elif file.is_symlink():
                _identity(file)  # one that leads nowhere may have been a folder of jobs
    return sorted(found)


def _is_new(folder: FilePath, seen: set[tuple[int, int]]) -> bool:
    """Whether a folder was not seen before, under this name or another."""
    identity = _identity(folder)
    is_new = identity not in seen
    seen.add(identity)
    return is_new


def _identity(path: FilePath) -> tuple[int, int]:
    """What tells a file or folder from all others of this machine, whatever leads to it."""
    try:
        known = path.stat()
    except OSError as error:
        _refuse_folder(error)
    return known.st_dev, known.st_ino


def _refuse_folder(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}")


def _read_yaml(text: str) -> list[Document]:
    from daybell.cli.yaml_text import read_yaml

    return read_yaml(text)


def _read_json(text: str) -> list[Document]:
    if not text.strip():
        return []
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise Fault(f"not JSON: {error.msg.lower()}", error.lineno) from None
    except RecursionError:
        raise too_deep(None) from None
    except ValueError as error:  # a number without end
        raise Fault(f"not JSON: {error}") from None
    return [Document(value=value, line=1, lines=_json_lines(text))]


def _json_lines(text: str) -> Lines:
    """In which line each part of a JSON text is. A key that comes twice is refused."""
    lines: Lines = {}
    path: list[str | int | None] = []  # None: a key comes next
    line = 1
    for found in _JSON_PART.finditer(text):
        part = found[0]
        if part not in "\n],:" and path and isinstance(path[-1], int):
            lines.setdefault(cast("Path", tuple(path)), line)
        if part == "\n":
            line += 1
        elif part in "[{":
            path.append(0 if part == "[" else None)
            if len(path) > PAYLOAD_DEPTH_MAX:
                raise too_deep(line)
        elif part in "]}":
            path.pop()
        elif part == "," and path:
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else None
        elif part.startswith('"') and path and path[-1] is None:
            path[-1] = json.loads(part)
            step = cast("Path", tuple(path))
            if step in lines:
                key = shown(path[-1])
                raise Fault(f"{key} is there twice: in line {lines[step]}, too", line)
            lines[step] = line
    return lines


def _read_toml(text: str) -> list[Document]:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _TOML_LINE.search(str(error))
        words = _TOML_LINE.sub("", str(error))
        raise Fault(f"not TOML: {words.lower()}", None if at is None else int(at[1])) from None
    except RecursionError:
        raise too_deep(None) from None
    except ValueError as error:  # a number without end
        raise Fault(f"not TOML: {error}") from None
    return [Document(value=_plain(value, 0))] if value else []


def _plain(value: Any, depth: int) -> Any:
    """Without the types that only TOML has: times are text."""
    if depth > PAYLOAD_DEPTH_MAX:
        raise too_deep(None)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _plain(one, depth + 1) for key, one in fields.items()}
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in cast("list[Any]", value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault(f"{value} is no number that JSON knows; put it in quotes")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{shown(text)} is too large a number")
    return number


_READERS: Final[dict[str, Callable[[str], list[Document]]]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".json": _read_json,
    ".toml": _read_toml,
}
ENDINGS: Final = tuple(_READERS)  # of files of jobs
