"""Parameters of a workflow: what a run of it may be given, and what must be.

    "params": [{"name": "day"}, {"name": "limit", "default": 10}]

One without a default must be given; a plain text is the name of such a one. Nodes refer to them as
{"param": "day"}: see `core.outputs`. What is given is data, whatever it looks like.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from daybell.core import payload
from daybell.core.limits import NAME_CHARS_MAX, PARAMETERS_MAX
from daybell.core.references import LITERAL, is_literal, names_in
from daybell.errors import InvalidArguments, InvalidWorkflow, PayloadError, shown, suggested

if TYPE_CHECKING:
    from daybell.core.graph_node import GraphNode

_FIELDS: Final = ("name", "default")


class Param(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run may be given under this name."""

    name: str
    default: Any = msgspec.UNSET  # without one it must be given

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.UNSET

    def to_settings(self) -> dict[str, Any]:
        """As a definition keeps it."""
        return {"name": self.name} | ({} if self.is_required else {"default": self.default})

    def __str__(self) -> str:
        return self.name if self.is_required else f"{self.name}={shown(self.default)}"


Params = tuple[Param, ...]


class _Kept(msgspec.Struct):
    params: Params = ()


_KEPT: Final = msgspec.json.Decoder(_Kept)


def params_of(settings: str) -> Params:
    """The parameters in the settings of a workflow, of which nothing else is read."""
    return _KEPT.decode(settings).params


def read_params(value: Any, *, field: str = "params") -> Params:
    """Read what people write. Raises InvalidWorkflow, which says where: workflow.params[1]."""
    if not isinstance(value, list | tuple):
        raise InvalidWorkflow(
            f'params={shown(value)} must be a list, such as [{{"name": "day"}}, {{"name": "limit",'
            ' "default": 10}]',
            field=field,
        )
    listed = cast("Sequence[Any]", value)
    if len(listed) > PARAMETERS_MAX:
        raise InvalidWorkflow(
            f"{len(listed):,} parameters are too many; the limit is {PARAMETERS_MAX}", field=field
        )
    found: dict[str, Param] = {}
    for place, one in enumerate(listed):
        param = _read_param(one, f"{field}[{place}]")
        if param.name in found:
            raise InvalidWorkflow(
                f"two parameters are called {shown(param.name)}; a name is one's",
                field=f"{field}[{place}].name",
            )
        found[param.name] = param
    return tuple(found.values())


def check_given(params: Params, given: Mapping[str, Any], *, what: str) -> None:
    """Refuse what a run cannot be called with: `what` is the workflow, for the message."""
    known = [param.name for param in params]
    for name in given:
        if name not in known:
            raise InvalidArguments(f"{what} {no_such_param(name, params)}", field=str(name))
    missing = [param.name for param in params if param.is_required and param.name not in given]
    if missing:
        raise InvalidArguments(
            f"{what} must be given {', '.join(missing)}; it takes {_listed(params)}",
            field=missing[0],
        )


def check_passed(params: Params, args: Mapping[str, Any], *, what: str) -> None:
    """The same for a node that runs a workflow, whose arguments may refer to others. A secret would
    not be looked up there, and nobody would be told.
    """
    check_given(params, args, what=what)
    for name, value in args.items():
        for secret in sorted(names_in(value)):
            raise InvalidArguments(
                f"{what} takes its parameters as data, and {name} names the secret {secret}; name"
                " it in the node that uses it",
                field=name,
            )


def values_of(params: Params, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is given, with defaults for the rest. Raises InvalidArguments."""
    check_given(params, given, what="the workflow")
    return {param.name: given.get(param.name, param.default) for param in params}


def decoded(args: str) -> dict[str, Any]:
    """What a run was called with. Raises InvalidArguments for what is no object."""
    given: object = payload.decode(args, what="args")
    if not isinstance(given, dict):
        raise InvalidArguments(f"arguments are given by name, as an object, not as {shown(given)}")
    return cast("dict[str, Any]", given)


def plain_by_name(args: Mapping[str, Any]) -> dict[str, Any]:
    """What another run passes on, as data: there, {"as_is": …} keeps it from being looked at."""
    return {name: _plain(value) for name, value in args.items()}


def _plain(value: Any) -> Any:
    if is_literal(value):
        return value[LITERAL]
    if isinstance(value, dict):
        return plain_by_name(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    return value


def no_such_param(name: object, params: Params) -> str:
    """What is said of a workflow that has none of this name."""
    return f"has no parameter {shown(name)}; {_hint(name, params)}"


def check_references(nodes: Iterable[GraphNode], params: Params, field: str) -> None:
    """Refuse a node that refers to a parameter which is not there. Raises InvalidWorkflow."""
    known = {param.name for param in params}
    way_out = "" if params else '. Name it in "params", or put {"as_is": …} around mere data'
    for place, node in enumerate(nodes):
        for name in node.params:
            if name not in known:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} refers to a parameter {shown(name)} of the workflow;"
                    f" {_hint(name, params)}{way_out}",
                    field=f"{field}[{place}].{node.place_of_param(name)}",
                )


def _read_param(value: Any, field: str) -> Param:
    given: object = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise InvalidWorkflow(
            f'{shown(given)} is no parameter; write {{"name": "day"}}, and "default" if it need not'
            " be given",
            field=field,
        )
    said = cast("Mapping[str, Any]", given)
    for one in said:
        if one not in _FIELDS:
            raise InvalidWorkflow(
                f"a parameter has no {shown(one)}; it has {' and '.join(_FIELDS)}",
                field=f"{field}.{one}",
            )
    name = _read_name(said.get("name"), f"{field}.name")
    if "default" not in said:
        return Param(name)
    try:
        text = payload.encode(said["default"], what=f"the default of {name}")
    except PayloadError as error:
        raise type(error)(str(error), field=f"{field}.default") from None
    return Param(name, payload.decode(text))


def _read_name(value: object, field: str) -> str:
    name = value if isinstance(value, str) else ""
    if not name.isidentifier() or len(name) > NAME_CHARS_MAX:
        raise InvalidWorkflow(
            f"{shown(value)} cannot name a parameter; a name has letters, digits and _, and begins"
            " with no digit",
            field=field,
        )
    if keyword.iskeyword(name):
        raise InvalidWorkflow(
            f"{shown(name)} is a word of Python, where no parameter has such a name; take another",
            field=field,
        )
    return name


def _hint(name: object, params: Params) -> str:
    names = [param.name for param in params]
    return suggested(name, names, otherwise=f"it takes {_listed(params)}")


def _listed(params: Params) -> str:
    return ", ".join(map(str, params)) or "none"
