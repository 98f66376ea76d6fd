"""Parameters of a workflow in Python: as `app.workflow(…, params=…)` declares them, and as nodes
are given them, `load.bind(day=etl.params["day"])`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import EllipsisType
from typing import Any, Final, NoReturn, TypeAlias, cast

from daybell.core.outputs import PARAM, PATH
from daybell.core.params import Params, no_such_param, read_params
from daybell.errors import InvalidWorkflow, shown

# Defaults by name; `...` is for what must be given.
ParamsGiven: TypeAlias = "Mapping[str, Any | EllipsisType]"

_DECIDE: Final = "have a task decide, with .when(…) or .branch(…)"
_EACH: Final = "a task runs once for each item with .map(…)"


def read_declared(value: ParamsGiven | None) -> Params:
    """Read what `params=` says. Raises InvalidWorkflow."""
    if value is None:
        return ()
    if not isinstance(cast("object", value), Mapping):
        raise InvalidWorkflow(
            f"params={shown(value)} must be a dict of defaults; ... is for what must be given, as"
            ' in params={"day": ..., "limit": 10}',
            field="params",
        )
    return read_params(
        [
            {"name": name} if default is ... else {"name": name, "default": default}
            for name, default in value.items()
        ]
    )


class Later:
    """What is known only when a run has come to it. To look at it when a workflow is written would
    give an answer, and a wrong one.
    """

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise self._not_yet(_DECIDE)

    def __eq__(self, other: object) -> bool:
        raise self._not_yet(_DECIDE)

    def __lt__(self, other: object) -> bool:
        raise self._not_yet(_DECIDE)

    def __le__(self, other: object) -> bool:
        raise self._not_yet(_DECIDE)

    def __gt__(self, other: object) -> bool:
        raise self._not_yet(_DECIDE)

    def __ge__(self, other: object) -> bool:
        raise self._not_yet(_DECIDE)

    def __contains__(self, one: object) -> bool:
        raise self._not_yet(_DECIDE)

    # Without it, Python would take its parts from 0 on, for ever.
    def __iter__(self) -> NoReturn:
        raise self._not_yet(_EACH)

    def __len__(self) -> int:
        raise self._not_yet(f"{_DECIDE}; {_EACH}")

    def __format__(self, spec: str) -> str:
        raise self._not_yet('bind {"join": ["a text", …]}, or have the task make the text')

    def _not_yet(self, way_out: str) -> InvalidWorkflow:
        return InvalidWorkflow(f"{self!r} is not known while the workflow is written; {way_out}")


class Declared:
    """The parameters of a workflow: `etl.params["day"]` stands for what its run is given."""

    def __init__(self, workflow: str, params: Params) -> None:
        self._workflow = workflow
        self._params = params

    def __getitem__(self, name: str) -> Param:
        if name not in list(self):
            raise InvalidWorkflow(
                f"workflow {self._workflow!r} {no_such_param(name, self._params)}", field="params"
            )
        return Param(self._workflow, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by Python, which may have made it without __init__
            raise AttributeError(name)
        raise AttributeError(
            f"parameters are no attributes; one of them is {self._workflow}.params[{name!r}]"
        )

    def __iter__(self) -> Iterator[str]:
        return (param.name for param in self._params)

    def __repr__(self) -> str:
        return f"<Params of {self._workflow}: {', '.join(map(str, self._params)) or 'none'}>"


class Param(Later):
    """What a run will be given, or a part of that: `etl.params["conf"]["tables"][0]`."""

    def __init__(self, workflow: str, name: str, path: tuple[str, ...] = ()) -> None:
        self.workflow = workflow
        self.name = name
        self.path = path

    def __getitem__(self, key: str | int) -> Param:
        return Param(self.workflow, self.name, (*self.path, part_named(key, "a parameter")))

    def reference(self) -> dict[str, str]:
        """As JSON has it."""
        path = {PATH: ".".join(self.path)} if self.path else {}
        return {PARAM: self.name, **path}

    def __repr__(self) -> str:
        parts = "".join(f"[{part!r}]" for part in (self.name, *self.path))
        return f"<Param {self.workflow}.params{parts}>"


def part_named(key: object, what: str) -> str:
    """The part of an output or a parameter that a key names, as a path has it."""
    part = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(part, str) or not part or "." in part:
        raise InvalidWorkflow(
            f"{shown(key)} cannot name a part of {what}; it is a key without a dot, or a place in a"
            " list"
        )
    return part
