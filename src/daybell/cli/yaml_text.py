"""YAML as files of jobs are written in it: plain data, and no surprises.

Numbers are those of JSON; true, false and null are what they say; all else is text: `on`, `yes`,
`0755`, `12:30:00` and `2026-01-01` mean themselves. What makes a small file large or a text
something else is refused: anchors and aliases, tags, merged keys, and keys that come twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import yaml

from daybell.cli import show
from daybell.cli.documents import Document, Fault, Lines, Path, too_deep
from daybell.core.limits import INTEGER_DIGITS_MAX, PAYLOAD_DEPTH_MAX
from daybell.errors import shown

# libyaml's if it is there, which is twenty times as fast; neither makes anything but events.
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
    """The documents of a text; those without anything in them are passed over."""
    try:
        documents = list(_Reader(text).documents())
    except yaml.MarkedYAMLError as error:
        raise Fault(_in_words(error, text), line=_line(error.problem_mark)) from None
    except yaml.YAMLError as error:
        raise Fault(f"not YAML: {str(error).splitlines()[0]}") from None
    return [one for one in documents if one.value is not None]


class _Reader:
    """Makes values of events, and keeps where each was said."""

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
                raise Fault(f"{shown(key)} is there twice: in line {self._lines[step]}, too", line)
            self._lines[step] = line
            fields[key] = self._value(next(self._events), step)
        return fields


def _key(event: Any) -> str:
    _refuse_magic(event)
    line = _line(event.start_mark)
    if not isinstance(event, yaml.ScalarEvent):
        raise Fault("a key must be text, not a list or an object", line)
    if event.implicit[0] and event.value == "<<":
        raise Fault("keys cannot be merged with <<; write them out, or use a template", line)
    if event.implicit[0] and event.value in ("", "~"):
        raise Fault("a key is missing before the colon", line)
    return event.value


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # in quotes, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > INTEGER_DIGITS_MAX:
            raise Fault(f"{shown(text)} has too many digits; put it in quotes", _line_of(event))
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise Fault(f"{shown(text)} is too large a number; put it in quotes", _line_of(event))
        return number
    return text


def _refuse_magic(event: Any) -> None:
    line = _line(event.start_mark)
    if isinstance(event, yaml.AliasEvent):
        raise Fault(f"*{event.anchor} would be an alias, which is not read; {_QUOTES}", line)
    if event.anchor is not None:
        raise Fault(
            f"&{event.anchor} is an anchor, which is not read; write things out, or use a template",
            line,
        )
    if event.tag is not None:
        raise Fault(f"{shown(event.tag)} is a tag, which is not read; leave it out", line)


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
    """Whether a line begins with a tab, or with spaces and a tab, where a fault was found."""
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
    """A value as YAML that `read_yaml` reads again as the same, and that a terminal can bear."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    lines = show.printable(text, keep="\n").splitlines(keepends=True)
    return "".join(f"{indent}{line}" for line in lines)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and repeats what would be an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if not text.replace("\n", "").isprintable():
        style = '"'  # so that what does not print can be escaped
    elif text in _WORDS or _NUMBER.fullmatch(text):
        style = "'"
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
