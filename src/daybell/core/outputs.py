"""What nodes of a workflow say of each other's results, and of what its run is given.

    {"output": "extract"}                          the result of a node
    {"output": "extract", "path": "body.rows.0"}   a part of it; what is not there is null
    {"item": true}, {"item": true, "path": "id"}   in a mapped node: the item in hand
    {"param": "day"}, {"param": "conf", "path": "x"}   a parameter of the run, or a part of it

Parameters are put in when the run begins, the rest when a node starts. Settings of nodes without
code are filled where they run, with what came as arguments.

What is put in is data: whatever it looks like, nobody takes it for a reference to a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from daybell.core import payload
from daybell.core.kinds import BY_NAME
from daybell.core.references import (
    JOIN,
    LITERAL,
    as_data,
    is_literal,
    is_reference,
    joined_parts,
    joined_text,
    literal,
)
from daybell.errors import InvalidWorkflow, UsageError, shown

OUTPUT: Final = "output"
ITEM: Final = "item"
PATH: Final = "path"
PARAM: Final = "param"
# Under which a node without code is given parameters. No node has brackets in its name.
PARAMS: Final = "[params]"
# Stands for what is not known yet: its reference stays.
_LATER: Final = object()


class Output(NamedTuple):
    """A reference to a result; without a node, to a parameter of the run, or to the item."""

    node: str | None
    path: str = ""
    param: str | None = None

    @property
    def is_item(self) -> bool:
        return self.node is None and self.param is None

    def of(self, value: Any) -> Any:
        """The part of a result that is meant."""
        for key in self.path.split(".") if self.path else ():
            value = _part(value, key)
        return value


def output(value: Any) -> Output | None:
    """What a value refers to; None: it is something else."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    path = given.get(PATH, "")
    if len(given) != 1 + (PATH in given) or not isinstance(path, str):
        return None
    named = given.get(OUTPUT)
    if isinstance(named, str):
        return Output(named, path)
    named = given.get(PARAM)
    if isinstance(named, str):
        return Output(None, path, named)
    return Output(None, path) if given.get(ITEM) is True else None


def outputs_in(value: Any) -> Iterator[Output]:
    """All references in a value, however deep."""
    if (found := output(value)) is not None:
        yield found
    elif is_literal(value):
        return
    elif isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from outputs_in(one)
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from outputs_in(one)


Find = Callable[[Output], Any]


def _filled(value: Any, find: Find, *, is_text: bool = False) -> Any:
    """A value with data in the place of references; as text, where only a text will do. What is not
    there is never made into one.
    """
    if (found := output(value)) is not None:
        data = find(found)
        if data is _LATER:
            return value
        data = found.of(data)
        return as_literal(joined_text([data]) if is_text and data is not None else data)
    if is_literal(value):
        return value
    if (parts := joined_parts(value, _refers)) is not None:
        put_in = [_filled(part, find) for part in parts]
        # A secret is seen by a worker alone, and a result when its node has ended.
        if any(is_reference(part) or _refers(part) for part in put_in):
            return {JOIN: put_in}
        return joined_text(as_data(part) for part in put_in)
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {key: _filled(one, find, is_text=is_text) for key, one in given.items()}
    if isinstance(value, list):
        return [_filled(one, find, is_text=is_text) for one in cast("list[Any]", value)]
    return value


def as_literal(data: Any) -> Any:
    """A value that stands for this one, also where references to results are looked for."""
    value = literal(data)
    is_clear = value is not data or next(outputs_in(data), None) is None
    return value if is_clear else {LITERAL: data}


def with_params(value: Any, given: Mapping[str, Any]) -> Any:
    """A value with parameters of the run put in. What refers to others is left as it is."""
    return _filled(value, _params_of(given)) if given else value


def with_params_by_name(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same for arguments, which stand for nothing as a whole."""
    return {name: with_params(value, given) for name, value in values.items()}


def may_refer(args: str) -> bool:
    """Whether there may be a reference in arguments, as text."""
    return f'"{OUTPUT}"' in args or f'"{ITEM}"' in args


def filled_with_outputs(args: str, look_up: Callable[[str], Any], item: Any = None) -> str:
    """Arguments as text, with data in the place of references."""
    if not may_refer(args):
        return args
    put_in = _filled_by_name(_template(args), _data_of(look_up, item))
    return payload.encode(put_in, what="arguments")


@lru_cache(maxsize=16)  # items of a mapped node have the same
def _template(args: str) -> dict[str, Any]:
    """Never changed by who gets it: others get the same."""
    return cast("dict[str, Any]", payload.decode(args))


def filled_settings(kind: str, settings: Mapping[str, Any], args: str) -> dict[str, Any]:
    """The settings of a node without code, with the data that its execution came with: arguments
    by the name of a node, the item as "item", and parameters of the run as "[params]". Secrets in
    them are still to be put in.
    """
    came = cast("dict[str, Any]", payload.decode(args))
    data = {name: as_data(value) for name, value in came.items()}
    find = _data_of(data.get, data.get(ITEM), cast("dict[str, Any]", data.get(PARAMS, {})))
    by_name = BY_NAME.get(kind, ())
    put_in: dict[str, Any] = {}
    for name, value in settings.items():
        # Of a command or a message all is text; these are sent as they are.
        is_text = (kind, name) not in (("http", "body"), ("sql", "parameters"))
        if name in by_name:
            inner = cast("Mapping[str, Any]", value)
            put_in[name] = _filled_by_name(inner, find, is_text=is_text)
        else:
            put_in[name] = _filled(value, find, is_text=is_text)
    return put_in


def _filled_by_name(
    values: Mapping[str, Any], find: Find, *, is_text: bool = False
) -> dict[str, Any]:
    """Values by name. As a whole they stand for nothing: a task may have a parameter called
    "output".
    """
    return {name: _filled(value, find, is_text=is_text) for name, value in values.items()}


def _params_of(given: Mapping[str, Any]) -> Find:
    return lambda one: _LATER if one.param is None else given.get(one.param, _LATER)


def _data_of(
    look_up: Callable[[str], Any], item: Any, params: Mapping[str, Any] | None = None
) -> Find:
    given = params or {}

    def find(one: Output) -> Any:
        if one.param is not None:
            return given.get(one.param, _LATER)
        return item if one.node is None else look_up(one.node)

    return find


def items_of(given: str, look_up: Callable[[str], Any]) -> list[Any]:
    """What a mapped node is mapped over. Raises UsageError if that is no list."""
    value = payload.decode(given)
    found = output(value)
    if found is not None and found.node is not None:
        value = found.of(look_up(found.node))
    else:
        value = as_data(value)  # a parameter of the run was put in
    if not isinstance(value, list):
        raise UsageError(f"it is mapped over {shown(value)}, which is no list", field="map")
    return cast("list[Any]", value)


def check_path(path: str, *, field: str) -> None:
    """Refuse what can lead nowhere."""
    if any(not part for part in path.split(".")):
        raise InvalidWorkflow(f"path {shown(path)} has an empty part", field=field)


def _refers(value: Any) -> bool:
    return output(value) is not None


def _part(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(key)
    if isinstance(value, list) and key.removeprefix("-").isdecimal():
        listed, place = cast("list[Any]", value), int(key)
        return listed[place] if -len(listed) <= place < len(listed) else None
    return None
