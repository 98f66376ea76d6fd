"""References in the settings of a node, while these are read.

Settings of a kind know texts, and what stands for one. A reference to a result or to a parameter of
the run is such a thing only in a workflow. So it is read like the parameter of a template, which
comes later, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from daybell.core.kinds import BY_NAME
from daybell.core.outputs import output
from daybell.core.references import is_literal
from daybell.errors import shown

# What a placeholder is called while settings are read. No name that people write has a NUL in it.
_HIDDEN: Final = "\0"


def hide_settings(kind: str, value: Any, hidden: list[Any]) -> Any:
    """The settings with placeholders where references are, which are added to `hidden`."""
    if not isinstance(value, Mapping):
        return _hide(value, hidden)
    by_name = BY_NAME.get(kind, ())
    told: dict[str, Any] = {}
    for name, one in cast("Mapping[str, Any]", value).items():
        if name in by_name and isinstance(one, Mapping):
            inner = cast("Mapping[str, Any]", one)
            told[name] = {key: _hide(each, hidden) for key, each in inner.items()}
        else:
            told[name] = _hide(one, hidden)
    return told


def show_hidden(value: Any, hidden: list[Any]) -> Any:
    """With references in their places again, as plain JSON."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        named = given.get("parameter")
        if len(given) == 1 and isinstance(named, str) and named.startswith(_HIDDEN):
            return hidden[int(named[1:])]
        return {name: show_hidden(one, hidden) for name, one in given.items()}
    if isinstance(value, list | tuple):
        return [show_hidden(one, hidden) for one in cast("list[Any]", value)]
    return value


def shown_in(message: str, hidden: list[Any]) -> str:
    """A message with references as they were written."""
    for number, reference in enumerate(hidden):
        message = message.replace(shown(_placeholder(number)), shown(reference))
    return message


def _placeholder(number: int) -> dict[str, str]:
    return {"parameter": f"{_HIDDEN}{number}"}


def _hide(value: Any, hidden: list[Any]) -> Any:
    if output(value) is not None:
        hidden.append(value)
        return _placeholder(len(hidden) - 1)
    if is_literal(value):
        return value
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {name: _hide(one, hidden) for name, one in given.items()}
    if isinstance(value, list | tuple):
        return [_hide(one, hidden) for one in cast("list[Any]", value)]
    return value
