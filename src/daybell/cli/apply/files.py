"""Files with job definitions: find them, read YAML, JSON and TOML with line numbers."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from pathlib import Path as FilePath
from typing import Any, Final, NoReturn, cast

import yaml

from daybell.cli import output
from daybell.cli.references import STDIN, read_text
from daybell.core.limits import INTEGER_DIGITS_MAX, PAYLOAD_DEPTH_MAX
from daybell.errors import UsageError, shown

# The content of a file: plain data, with the line of each part of it.

Path = tuple[str | int, ...]  # the way to a part: fields by name, items by number
Lines = dict[Path, int]


@dataclass(frozen=True)
class Document:
    """One of the documents of a file. Lines count from 1; not every format knows them."""

    value: Any
    line: int | None = None
    lines: Lines = field(default_factory=Lines)
    file: str = ""

    def line_of(self, path: Path) -> int | None:
        """Return the line where a part begins, or the nearest part around it with a line."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return self.line

    def place(self, path: Path = ()) -> str:
        """Return the place of a part, for messages: `jobs/a.yaml:12`."""
        line = self.line_of(path)
        return self.file if line is None else f"{self.file}:{line}"


class FileError(Exception):
    """A text that cannot be read, and the line of the error."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def too_deep(line: int | None) -> FileError:
    """Return the error for data that is nested too deep."""
    return FileError(f"nested deeper than {PAYLOAD_DEPTH_MAX} levels", line)


FILES_MAX: Final = 10_000

_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|\n')
_TOML_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


def find_files(paths: Sequence[str]) -> list[FilePath]:
    """Return the named files, and those in named folders at any depth, in order.

    In a folder, hidden files and files of other types are skipped.
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
    """Return the documents of a file; `-` is standard input as YAML. Raises UsageError."""
    is_stdin = str(path) == STDIN
    name = "stdin" if is_stdin else str(path)
    read = _READERS.get(".yaml" if is_stdin else path.suffix.lower())
    if read is None:
        known = ", ".join(ENDINGS)
        raise UsageError(f"{name} is no file of jobs; their names end with one of {known}")
    try:
        documents = read(read_text(str(path), what=name))
    except FileError as fault:
        where = name if fault.line is None else f"{name}:{fault.line}"
        raise UsageError(f"{where}: {fault}") from None
    return [replace(one, file=name) for one in documents]


def _in_folder(folder: FilePath) -> list[FilePath]:
    """Return the files in order of their names. Links to folders are followed, each folder once."""
    found: list[FilePath] = []
    seen = {_identity(folder)}
    # A folder that cannot be read is not empty: its jobs would count as removed.
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
                _identity(file)  # a link to a missing target may have been a folder of jobs
    return sorted(found)


def _is_new(folder: FilePath, seen: set[tuple[int, int]]) -> bool:
    """Return true if a folder was not seen before, under this name or another."""
    identity = _identity(folder)
    is_new = identity not in seen
    seen.add(identity)
    return is_new


def _identity(path: FilePath) -> tuple[int, int]:
    """Return a key that is unique to a file or folder of this machine, by any path."""
    try:
        known = path.stat()
    except OSError as error:
        _refuse_folder(error)
    return known.st_dev, known.st_ino


def _refuse_folder(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}")


def _read_yaml(text: str) -> list[Document]:

    return read_yaml(text)


def _read_json(text: str) -> list[Document]:
    if not text.strip():
        return []
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise FileError(f"not JSON: {error.msg.lower()}", error.lineno) from None
    except RecursionError:
        raise too_deep(None) from None
    except ValueError as error:  # a number without end
        raise FileError(f"not JSON: {error}") from None
    return [Document(value=value, line=1, lines=_json_lines(text))]


def _json_lines(text: str) -> Lines:
    """Return the line of each part of a JSON text. A key that comes twice is refused."""
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
                raise FileError(f"{key} is there twice: in line {lines[step]}, too", line)
            lines[step] = line
    return lines


def _read_toml(text: str) -> list[Document]:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _TOML_LINE.search(str(error))
        words = _TOML_LINE.sub("", str(error))
        raise FileError(f"not TOML: {words.lower()}", None if at is None else int(at[1])) from None
    except RecursionError:
        raise too_deep(None) from None
    except ValueError as error:  # a number without end
        raise FileError(f"not TOML: {error}") from None
    return [Document(value=_plain(value, 0))] if value else []


def _plain(value: Any, depth: int) -> Any:
    """Return a value without the types that only TOML has: times are text."""
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
        raise FileError(f"{value} is no number that JSON knows; put it in quotes")
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


# YAML as files of jobs use it: plain data, and no surprises.
#
# Numbers are those of JSON; true, false and null have their usual meaning; all else is text: `on`,
# `yes`, `0755`, `12:30:00` and `2026-01-01` mean themselves. Constructs that make a small file
# large, or turn a text into another value, are refused: anchors and aliases, tags, merged keys, and
# keys that come twice.

# Use libyaml's if it is there, which is twenty times as fast; neither makes anything but events.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_QUOTES: Final = "put texts that begin with * or @ in quotes, as \"*/5 * * * *\" and '@daily'"


def read_yaml(text: str) -> list[Document]:
    """Return the documents of a text; empty ones are skipped."""
    try:
        documents = list(_Reader(text).documents())
    except yaml.MarkedYAMLError as error:
        raise FileError(_in_words(error, text), line=_line(error.problem_mark)) from None
    except yaml.YAMLError as error:
        raise FileError(f"not YAML: {str(error).splitlines()[0]}") from None
    return [one for one in documents if one.value is not None]


class _Reader:
    """Makes values of events, and keeps the line of each."""

    def __init__(self, text: str) -> None:
        parse = cast("Callable[..., Iterator[Any]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]
        self._events = parse(text, Loader=_LOADER)
        self._lines: Lines = {}

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._lines = {}
                first = next(self._events)
                value = self._value(first, ())
                yield Document(value=value, line=_line(first.start_mark) or 1, lines=self._lines)

    def _value(self, event: Any, path: Path) -> Any:
        _refuse_magic(event)
        if len(path) > PAYLOAD_DEPTH_MAX:
            raise too_deep(_line(event.start_mark))
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            step = (*path, len(items))
            self._lines[step] = event.start_mark.line + 1
            items.append(self._value(event, step))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, line = _key(event), event.start_mark.line + 1
            step = (*path, key)
            if key in fields:
                raise FileError(
                    f"{shown(key)} is there twice: in line {self._lines[step]}, too", line
                )
            self._lines[step] = line
            fields[key] = self._value(next(self._events), step)
        return fields


def _key(event: Any) -> str:
    _refuse_magic(event)
    line = _line(event.start_mark)
    if not isinstance(event, yaml.ScalarEvent):
        raise FileError("a key must be text, not a list or an object", line)
    if event.implicit[0] and event.value == "<<":
        raise FileError("keys cannot be merged with <<; write them out, or use a template", line)
    if event.implicit[0] and event.value in ("", "~"):
        raise FileError("a key is missing before the colon", line)
    return event.value


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # in quotes, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > INTEGER_DIGITS_MAX:
            raise FileError(f"{shown(text)} has too many digits; put it in quotes", _line_of(event))
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise FileError(
                f"{shown(text)} is too large a number; put it in quotes", _line_of(event)
            )
        return number
    return text


def _refuse_magic(event: Any) -> None:
    line = _line(event.start_mark)
    if isinstance(event, yaml.AliasEvent):
        raise FileError(f"*{event.anchor} would be an alias, which is not read; {_QUOTES}", line)
    if event.anchor is not None:
        raise FileError(
            f"&{event.anchor} is an anchor, which is not read; write things out, or use a template",
            line,
        )
    if event.tag is not None:
        raise FileError(f"{shown(event.tag)} is a tag, which is not read; leave it out", line)


def _in_words(error: yaml.MarkedYAMLError, text: str) -> str:
    problem, context = error.problem or "", error.context or ""
    if _is_tab(text, error.problem_mark):
        return "not YAML: a tab cannot indent YAML; use spaces"
    if "alias" in context or "cannot start any token" in problem:
        return f"not YAML: {problem}; {_QUOTES}"
    if "mapping values are not allowed" in problem:
        return "not YAML: a colon where none is expected; put texts with ': ' in them in quotes"
    return "not YAML: " + (f"{problem}, {context}" if context else problem)


def _is_tab(text: str, mark: Any) -> bool:
    """Return true if the line of an error begins with a tab, or with spaces and a tab."""
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return False
    line = lines[int(mark.line)]
    return "\t" in line[: len(line) - len(line.lstrip(" \t"))]


def _line_of(event: Any) -> int | None:
    return _line(event.start_mark)


def _line(mark: Any) -> int | None:
    return None if mark is None else mark.line + 1


def write_yaml(value: Any, *, indent: str = "") -> str:
    """Return a value as YAML that `read_yaml` reads as the same, and that a terminal can print."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    lines = output.printable(text, keep="\n").splitlines(keepends=True)
    return "".join(f"{indent}{line}" for line in lines)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and repeats values instead of writing aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if not text.replace("\n", "").isprintable():
        style = '"'  # so that unprintable characters can be escaped
    elif text in _WORDS or _NUMBER.fullmatch(text):
        style = "'"
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
