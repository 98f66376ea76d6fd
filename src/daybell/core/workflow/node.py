"""One node of a workflow, as written by users and as stored in a definition.

    {"name": "load", "task": "load_rows", "args": {"rows": {"output": "extract"}}, "retries": 2}

It runs one of task, command, http, sql, notify and job, with the fields of a job of that kind;
`job` names another job. Its values may refer to results, and to parameters of the run: see
`core.workflow.expressions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar, cast

import msgspec

from daybell.core import payload
from daybell.core.execution import Priority
from daybell.core.kinds import BY_NAME, SETTINGS, needs_of, read_settings, settings_json
from daybell.core.kinds.schema import NODE
from daybell.core.kinds.settings import BESIDE, command_of
from daybell.core.limits import MAP_ITEMS_DEFAULT, MAP_ITEMS_MAX, check_name
from daybell.core.options import OPTIONS
from daybell.core.placement import DEMAND_OPTIONS, NO_DEMANDS, Demands, check_demands
from daybell.core.references import is_literal, map_inside
from daybell.core.retry import Retry
from daybell.core.units import Seconds, format_duration, parse_limit
from daybell.core.workflow.expressions import (
    ITEM,
    PARAMS,
    Output,
    as_literal,
    check_path,
    fill_params,
    fill_params_by_name,
    find_outputs,
    output,
)
from daybell.core.workflow.rules import Rule
from daybell.core.workflow.run import Spec
from daybell.errors import InvalidWorkflow, PermanentError, UsageError, shown, suggested

# References in the settings of a node.
#
# Readers of settings know texts and parameters of templates, but not references, which exist only
# in workflows. While settings are read, a template parameter takes the place of each reference. Its
# name starts with NUL, which no valid name has.
_HIDDEN: Final = "\0"


def hide_references(kind: str, value: Any, hidden: list[Any]) -> Any:
    """Replace references in settings with placeholders; append the references to `hidden`."""
    if not isinstance(value, Mapping):
        return _hide(value, hidden)

    def hide(one: Any) -> Any:
        return _hide(one, hidden)

    by_name = BY_NAME.get(kind, ())
    told: dict[str, Any] = {}
    for name, one in cast("Mapping[str, Any]", value).items():
        # A mapping of values by name is no reference itself, even with a key "output".
        is_by_name = name in by_name and isinstance(one, Mapping)
        told[name] = map_inside(one, hide) if is_by_name else hide(one)
    return told


def restore_references(value: Any, hidden: list[Any]) -> Any:
    """Replace placeholders with their references, as plain JSON."""
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        named = given.get("parameter")
        if len(given) == 1 and isinstance(named, str) and named.startswith(_HIDDEN):
            return hidden[int(named[1:])]
    return map_inside(value, lambda one: restore_references(one, hidden))


def restore_message(message: str, hidden: list[Any]) -> str:
    """Replace placeholders in a message with their references."""
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
    return map_inside(value, lambda one: _hide(one, hidden))


# Branch nodes: the task returns the names of the nodes to continue with.
#
# {"name": "choose", "task": "choose", "branch": ["full", "part"]}
#
# Each name makes an edge with a condition on the result. The worker checks the result: an unknown
# name is an error, because otherwise all nodes would be skipped and the run would succeed.


def condition_for(name: str) -> str:
    """Return the condition that a result is this name, or a list that contains it."""
    quoted = msgspec.json.encode(name).decode()
    return f"result == {quoted} or result[0] != null and {quoted} in result"


def describe_condition(when: str, child: str) -> str:
    """Describe a condition for users; that of a branch as its name."""
    return f"it says {child}" if when == condition_for(child) else when


def check_choice(result: str | None, names: Sequence[str]) -> None:
    """Check the result of a branch task against the names; `[]` chooses none."""
    said: Any = None if result is None else payload.decode(result)
    listed = cast("list[Any]", said if isinstance(said, list) else [said])
    for one in listed:
        if one not in names:
            raise PermanentError(
                f"a branch returned {shown(one)}, which is none of its nodes; it may return"
                f" {', '.join(map(shown, names))}, a list of them, or [] for none"
            )


def read_branch(value: Any, *, what: str) -> tuple[str, ...]:
    """Parse the branch names of a node that runs `what`. Raises InvalidWorkflow."""
    said = shown(value)
    listed = cast("list[Any]", value if isinstance(value, list | tuple) else [])
    if not listed or not all(isinstance(one, str) for one in listed):
        raise InvalidWorkflow(f"branch={said} must be a list of names of nodes")
    if len(set(listed)) < len(listed):
        raise InvalidWorkflow("branch names a node twice; name it once")
    if what != "task":
        raise InvalidWorkflow(
            f"branch is for a task that returns names, and this is a {what}; put conditions on its"
            " edges, or a task after it that chooses"
        )
    return tuple(listed)


def add_branches(
    edges: dict[tuple[str, str], str | None], nodes: Mapping[str, GraphNode], field: str
) -> None:
    """Add the edges of branch nodes. Raises InvalidWorkflow."""
    for place, node in enumerate(nodes.values()):
        for name in node.branch:
            where = f"{field}[{place}].branch"
            if name not in nodes:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to {shown(name)}, which is no node; add it"
                    " to nodes",
                    field=where,
                )
            if name == node.name:
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to itself; a workflow has no circles",
                    field=where,
                )
            when = condition_for(name)
            if edges.get((node.name, name)) not in (None, when):
                raise InvalidWorkflow(
                    f"node {shown(node.name)} branches to {shown(name)}, and there is an edge with"
                    " a condition between them; leave one of them out",
                    field=where,
                )
            edges[node.name, name] = when


T = TypeVar("T")

JOB: Final = "job"
# Exactly one of these is the kind of a node.
CHOICES: Final = ("task", *SETTINGS, JOB)
FIELDS: Final = tuple(NODE)
RULES: Final = tuple(map(str, Rule))


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a graph."""

    name: str
    kind: str  # task, command, http, sql, notify, or job
    runs: Any  # the name of a task or a job; for other kinds, their settings
    args: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    queue: str | None = None  # None here and below: the option of the workflow or the named job
    priority: Priority | None = None
    retry: Retry | None = None
    timeout: Seconds | None = None
    rule: Rule = Rule.ALL_SUCCESS
    map: Any = None  # a list, or a reference to a list
    max_items: int = MAP_ITEMS_DEFAULT  # of that list
    branch: tuple[str, ...] = ()  # names that its task chooses from
    demands: Demands = NO_DEMANDS  # on its worker

    @classmethod
    def parse(cls, value: Any, *, field: str) -> GraphNode:
        """Parse a node. Raises InvalidWorkflow; `field` is its place: workflow.nodes[3]."""
        if not isinstance(value, Mapping):
            raise InvalidWorkflow(
                f"{shown(value)} is no node; a node is an object with a name and what it runs",
                field=field,
            )
        given = {k: one for k, one in cast("Mapping[str, Any]", value).items() if one is not None}
        return _NodeReader(given, field).node()

    @classmethod
    def from_settings(cls, kept: Mapping[str, Any]) -> GraphNode:
        """Read the output of `to_settings`, without validation."""
        kind = next(name for name in CHOICES if name in kept)
        retries, timeout = kept.get("retries"), kept.get("timeout")
        return cls(
            name=kept["name"],
            kind=kind,
            runs=kept[kind],
            args=kept.get("args", {}),
            queue=kept.get("queue"),
            priority=Priority.parse(kept["priority"]) if "priority" in kept else None,
            retry=None if retries is None else Retry.parse(retries),
            timeout=None if timeout is None else parse_limit(timeout, what="timeout"),
            rule=Rule(kept.get("rule", Rule.ALL_SUCCESS)),
            map=kept.get("map"),
            max_items=kept.get("max_items", MAP_ITEMS_DEFAULT),
            branch=tuple(kept.get("branch", ())),
            demands=_demands_of(kept),
        )

    def to_settings(self) -> dict[str, Any]:
        """Return the node as a definition stores it; `parse` reads it."""
        is_usual = self.max_items == MAP_ITEMS_DEFAULT
        options: dict[str, Any] = {
            "args": self.args or None,
            "queue": self.queue,
            "priority": None if self.priority is None else self.priority.label,
            "retries": None if self.retry is None else _retries_of(self.retry),
            "timeout": None if self.timeout is None else format_duration(self.timeout),
            "rule": None if self.rule is Rule.ALL_SUCCESS else str(self.rule),
            "map": self.map,
            "max_items": None if is_usual else self.max_items,
            "branch": list(self.branch) or None,
        }
        given = {name: value for name, value in options.items() if value is not None}
        demands = msgspec.to_builtins(self.demands)
        return {"name": self.name, self.kind: self.runs, **given, **demands}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of an equivalent job; not for kind `job`."""
        return {"task": self.runs} if self.kind == "task" else self.runs

    @property
    def needs(self) -> str:
        """The required worker capabilities, and its demands; not for kind `job`."""
        return needs_of(self.kind, payload.encode(self.settings)) + self.demands.text

    @property
    def is_bare(self) -> bool:
        """True if it has no values that could contain references."""
        return not self.args and self.map is None and self.kind not in SETTINGS

    @property
    def outputs(self) -> tuple[str, ...]:
        """The nodes to whose results it refers, each once."""
        if self.is_bare:
            return ()
        return tuple(dict.fromkeys(one.node for one in self.references() if one.node is not None))

    @property
    def params(self) -> tuple[str, ...]:
        """The parameters of the run that it refers to, each once."""
        if self.is_bare:
            return ()
        return tuple(dict.fromkeys(one.param for one in self.references() if one.param is not None))

    @property
    def has_item(self) -> bool:
        """True if it refers to the item of a mapped node."""
        return any(one.is_item for one in self._values())

    def references(self) -> Iterable[Output]:
        """Yield all references to results and parameters, with repetitions."""
        yield from self._values()
        if (over := output(self.map)) is not None:
            yield over

    def place_of(self, name: str) -> str:
        """Return the field that refers to the result of a node."""
        if all(one.node != name for one in self._values()):
            return "map"
        return "args" if self.args else self.kind

    def place_of_param(self, name: str) -> str:
        """Return the field that refers to a parameter of the run."""
        for key, value in self.args.items():
            if any(one.param == name for one in find_outputs(value)):
                return f"args.{key}"
        return self.kind if any(one.param == name for one in self._values()) else "map"

    def _values(self) -> Iterable[Output]:
        """Yield the references in arguments and settings."""
        yield from _outputs_by_name(self.args)
        if self.kind in SETTINGS:
            by_name = BY_NAME.get(self.kind, ())
            for name, value in self.runs.items():
                yield from _outputs_by_name(value) if name in by_name else find_outputs(value)

    def spec(self, params: Mapping[str, Any] | None = None) -> Spec:
        """Return the parameters of its start, given the parameters of the run."""
        given = params or {}
        outputs = self.outputs
        args: dict[str, Any] = fill_params_by_name(self.args, given)
        if self.kind in SETTINGS:
            args = {name: {"output": name} for name in outputs}
            if self.has_item:
                args[ITEM] = {ITEM: True}
            if given and (named := self.params):
                args[PARAMS] = as_literal({name: given[name] for name in named})
        # A literal list is data.
        over = self.map if output(self.map) is None else fill_params(self.map, given)
        inline = self.kind != JOB
        return Spec(
            job=None if inline else self.runs,
            needs=self.needs if inline else None,
            queue=self.queue,
            priority=self.priority,
            retries=None if self.retry is None else self.retry.retries,
            timeout=self.timeout,
            args=payload.encode(args),
            outputs=outputs,
            map=None if over is None else payload.encode(over, what="map"),
            max_items=self.max_items,
        )


def _demands_of(given: Mapping[str, Any]) -> Demands:
    said = {name: OPTIONS[name].read(given[name], name) for name in _DEMANDS if name in given}
    return Demands(**said) if said else NO_DEMANDS


_DEMANDS: Final = DEMAND_OPTIONS


class _NodeReader:
    """The parser of one node."""

    def __init__(self, given: dict[str, Any], field: str) -> None:
        self._given = given
        self._field = field
        self._called = f"node {shown(given['name'])}" if "name" in given else "a node without name"

    def node(self) -> GraphNode:
        given = self._given
        self._check_fields()
        name = self._take("name", lambda one: check_name(one, what="node"))
        if name == ITEM:
            self._refuse("stands for the item of a mapped node; take another name", "name")
        kind = self._kind()
        node = GraphNode(
            name=name,
            kind=kind,
            runs=self._runs(kind),
            args=self._args(kind),
            queue=self._take("queue", lambda one: check_name(one, what="queue")),
            priority=self._take("priority", Priority.parse),
            retry=self._retry(),
            timeout=self._take("timeout", lambda one: parse_limit(one, what="timeout")),
            rule=self._rule(),
            max_items=self._max_items(),
            map=self._map() if "map" in given else None,
            branch=self._branch(kind) if "branch" in given else (),
            demands=self._demands(kind),
        )
        for one in node.references():
            if one.is_item and node.map is None:
                self._refuse(
                    'has {"item": true} in it, and is mapped over nothing; say `map`', kind
                )
            if one.path:
                self._read("path", lambda path: check_path(path, field="path"), one.path)
        return node

    def _kind(self) -> str:
        if "workflow" in self._given:
            self._refuse(
                "has a workflow inside; make it a job of its own, and name it here as"
                ' {"job": "its name"}',
                "workflow",
            )
        said = [name for name in CHOICES if name in self._given]
        if len(said) > 1:
            self._refuse(f"has {said[0]} and {said[1]}, two things to run; it runs one", said[1])
        if not said:
            self._refuse(f"does not say what it runs; give one of {', '.join(CHOICES)}", CHOICES[0])
        for name in BESIDE:
            if said[0] != "command" and name in self._given:
                self._refuse(f"has {name}, which is for a command", name)
        return said[0]

    def _runs(self, kind: str) -> Any:
        value = self._given[kind]
        if kind not in SETTINGS:
            return self._take(kind, lambda one: check_name(one, what=kind))
        hidden: list[Any] = []
        if kind == "command":
            value = self._read(kind, lambda one: command_of(one, self._given), value)
        value = hide_references(kind, value, hidden)
        try:
            settings = settings_json(read_settings(kind, value))
        except UsageError as error:
            self._refuse_with(restore_message(str(error), hidden), error.field or kind)
        return restore_references(settings, hidden)

    def _args(self, kind: str) -> dict[str, Any]:
        args = self._given.get("args", {})
        if not isinstance(args, Mapping):
            self._refuse(
                f"has args={shown(args)}; arguments are given by name, as an object", "args"
            )
        given = dict(cast("Mapping[str, Any]", args))
        if given and kind in SETTINGS:
            self._refuse(
                f"has args, which a {kind} takes none of in a workflow; put"
                ' {"output": …} or {"param": …} into its settings',
                "args",
            )
        self._read("args", payload.encode, given)
        return given

    def _demands(self, kind: str) -> Demands:
        """Return the demands on the worker. Those of a job are the job's."""
        for name in _DEMANDS if kind == JOB else ():
            if name in self._given:
                self._refuse(f"has {name}, and runs a job, which has its own; change the job", name)
        found = self._read("requires", _demands_of, self._given)
        self._read("requires", check_demands, found)
        return found

    def _retry(self) -> Retry | None:
        if "retries" not in self._given and "backoff" not in self._given:
            return None
        retries, backoff = self._given.get("retries"), self._given.get("backoff")
        if backoff is None:
            return self._read("retries", Retry.parse, retries)
        if isinstance(backoff, str):
            backoff = {"backoff": backoff}
        if not isinstance(backoff, Mapping) or not isinstance(retries, int | None):
            self._refuse('has a backoff that is no word such as "fixed", and no object', "backoff")
        policy = dict(cast("Mapping[str, Any]", backoff))
        more = {} if retries is None else {"retries": retries}
        return self._read("backoff", Retry.parse, {**policy, **more})

    def _rule(self) -> Rule:
        rule = self._given.get("rule", Rule.ALL_SUCCESS)
        if rule not in RULES:
            self._refuse(f"has the rule {shown(rule)}; {suggested(rule, RULES)}", "rule")
        return Rule(rule)

    def _map(self) -> Any:
        over: object = self._given["map"]
        found = output(over)
        if found is not None and found.is_item:
            self._refuse("is mapped over its own item; name a node with a list", "map")
        if found is None and not isinstance(over, list):
            self._refuse(
                f"is mapped over {shown(over)}; give a list, or"
                ' {"output": "the node that answers one"}, or {"param": "one of the workflow"}',
                "map",
            )
        if isinstance(over, list):
            self._check_items(cast("list[Any]", over))
        self._read("map", lambda value: payload.encode(value, what="map"), over)
        return cast("Any", over)

    def _max_items(self) -> int:
        most = self._given.get("max_items", MAP_ITEMS_DEFAULT)
        if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAP_ITEMS_MAX:
            self._refuse(
                f"has max_items={shown(most)}; give a whole number from 1 to {MAP_ITEMS_MAX:,}",
                "max_items",
            )
        if "max_items" in self._given and "map" not in self._given:
            self._refuse("has max_items, and is mapped over nothing; give `map`", "max_items")
        return most

    def _check_items(self, items: list[Any]) -> None:
        if len(items) > (most := self._max_items()):
            self._refuse(
                f"is mapped over {len(items):,} items; the limit is {most:,}. Set max_items to"
                f" allow more, up to {MAP_ITEMS_MAX:,}",
                "map",
            )
        if any(not one.is_item for one in find_outputs(items)):
            self._refuse(
                "is mapped over a list with references in it; refer to what is the whole list,"
                ' {"output": "the node that answers it"}, or {"param": "one of the workflow"}',
                "map",
            )

    def _branch(self, kind: str) -> tuple[str, ...]:
        what = "mapped node" if "map" in self._given else kind
        return self._read("branch", lambda one: read_branch(one, what=what), self._given["branch"])

    def _check_fields(self) -> None:
        for name in self._given:
            if name == "near":
                self._refuse("has near, which is for executions that a task enqueues", name)
            if name not in FIELDS and name != "workflow":
                self._refuse(f"has no field {shown(name)}; {suggested(name, FIELDS)}", name)
        if "name" not in self._given:
            raise InvalidWorkflow("a node has no name", field=f"{self._field}.name")

    def _take(self, name: str, read: Callable[[Any], T]) -> Any:
        """Read an optional field."""
        return None if name not in self._given else self._read(name, read, self._given[name])

    def _read(self, name: str, read: Callable[[Any], T], value: Any) -> T:
        try:
            return read(value)
        except UsageError as error:
            self._refuse_with(str(error), name)

    def _refuse_with(self, why: str, name: str) -> NoReturn:
        raise InvalidWorkflow(f"{self._called}: {why}", field=f"{self._field}.{name}") from None

    def _refuse(self, why: str, name: str) -> NoReturn:
        raise InvalidWorkflow(f"{self._called} {why}", field=f"{self._field}.{name}")


def _outputs_by_name(values: Mapping[str, Any]) -> Iterable[Output]:
    for value in values.values():
        yield from find_outputs(value)


def _retries_of(retry: Retry) -> Any:
    said = payload.decode(retry.to_json())
    usual = payload.decode(Retry(retries=retry.retries).to_json())
    return retry.retries if said == usual else said
