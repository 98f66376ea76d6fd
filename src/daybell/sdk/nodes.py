"""Nodes and parameters of a workflow in its block: the results of `>>`, `when`, `bind` and `map`.
They are valid only in the block, and become the JSON of `POST /jobs`, which
`core.workflow.graph` checks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import EllipsisType
from typing import (
    Any,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
)

from daybell.client.requests import check_options
from daybell.core.job import JobDefinition
from daybell.core.retry import Retry
from daybell.core.units import Duration
from daybell.core.workflow.expressions import ITEM, OUTPUT, PARAM, PATH, Condition
from daybell.core.workflow.graph import Params, no_such_param, read_params
from daybell.core.workflow.node import condition_for
from daybell.errors import InvalidArguments, InvalidWorkflow, shown


class NodeTask(Protocol):
    """A task, from the view of its nodes."""

    @property
    def name(self) -> str: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def definition(self) -> JobDefinition: ...

    @property
    def context_names(self) -> frozenset[str]: ...


class InnerWorkflow(Protocol):
    """A workflow, from the view of a node that runs it."""

    @property
    def params(self) -> DeclaredParams: ...


class NodeHome(Protocol):
    """The workflow of an open block."""

    @property
    def name(self) -> str: ...

    def label(self, node: Node) -> str: ...

    def add(self, what: Nodelike, name: str | None, options: NodeOptions) -> Node: ...

    def add_job(self, job: str, name: str | None, options: NodeOptions) -> Node: ...

    def link(self, first: Linkable, then: Linkable) -> Links: ...

    def link_before(self, then: Linkable, first: Linkable) -> Links: ...

    def heads(self, thing: Linkable) -> list[End]: ...

    def ends(self, thing: Linkable) -> list[End]: ...

    def check_open(self, node: Node) -> None: ...

    def check_param(self, param: Param, node: Node) -> None: ...

    def note_condition(self, node: Node, condition: str) -> None: ...


# Parameters of a workflow: `app.workflow(…, params=…)` and `load.bind(day=etl.params["day"])`.

# Defaults by name; `...` marks required parameters.
ParamsGiven: TypeAlias = "Mapping[str, Any | EllipsisType]"

_DECIDE: Final = "have a task decide, with .when(…) or .branch(…)"
_EACH: Final = "a task runs once for each item with .map(…)"


def read_declared(value: ParamsGiven | None) -> Params:
    """Parse `params=`. Raises InvalidWorkflow."""
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


class DeferredValue:
    """A value that is known only during a run; comparing or iterating it in the block fails."""

    __hash__ = object.__hash__

    def _refuse_test(self, *_: object) -> NoReturn:
        raise self._not_yet(_DECIDE)

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _refuse_test

    # Without it, Python would call __getitem__ with 0, 1, …, without end.
    def __iter__(self) -> NoReturn:
        raise self._not_yet(_EACH)

    def __len__(self) -> int:
        raise self._not_yet(f"{_DECIDE}; {_EACH}")

    def __format__(self, spec: str) -> str:
        raise self._not_yet('bind {"join": ["a text", …]}, or have the task make the text')

    def _not_yet(self, way_out: str) -> InvalidWorkflow:
        return InvalidWorkflow(f"{self!r} is not known while the workflow is written; {way_out}")


class DeclaredParams:
    """The parameters of a workflow: `etl.params["day"]` is a reference to one."""

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
        if name.startswith("_"):  # looked up by Python, possibly before __init__
            raise AttributeError(name)
        raise AttributeError(
            f"parameters are no attributes; one of them is {self._workflow}.params[{name!r}]"
        )

    def __iter__(self) -> Iterator[str]:
        return (param.name for param in self._params)

    def __repr__(self) -> str:
        return f"<Params of {self._workflow}: {', '.join(map(str, self._params)) or 'none'}>"


class Param(DeferredValue):
    """A reference to a parameter of the run, or to a part: `etl.params["conf"]["tables"][0]`."""

    def __init__(self, workflow: str, name: str, path: tuple[str, ...] = ()) -> None:
        self.workflow = workflow
        self.name = name
        self.path = path

    def __getitem__(self, key: str | int) -> Param:
        return Param(self.workflow, self.name, (*self.path, part_named(key, "a parameter")))

    def reference(self) -> dict[str, str]:
        """Return the reference as JSON."""
        path = {PATH: ".".join(self.path)} if self.path else {}
        return {PARAM: self.name, **path}

    def __repr__(self) -> str:
        parts = "".join(f"[{part!r}]" for part in (self.name, *self.path))
        return f"<Param {self.workflow}.params{parts}>"


def part_named(key: object, what: str) -> str:
    """Return the path element of a key of an output or a parameter."""
    part = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(part, str) or not part or "." in part:
        raise InvalidWorkflow(
            f"{shown(key)} cannot name a part of {what}; it is a key without a dot, or a place in a"
            " list"
        )
    return part


# The workflow of the open block, in this thread or task.
draft: ContextVar[NodeHome | None] = ContextVar("daybell_workflow", default=None)


class NodeOptions(TypedDict, total=False):
    """Options of one node; by default those of its task or workflow."""

    rule: str  # the condition on its parents: all_success, all_done, one_failed, …
    queue: str
    priority: str | int
    retries: int | Retry | Mapping[str, Any] | None
    timeout: Duration | None
    requires: Mapping[str, str | Sequence[str]]
    prefer: Mapping[str, str | Sequence[str]]
    resources: Mapping[str, float | str]
    max_items: int  # of the list to map over


NODE_OPTIONS: Final = frozenset(NodeOptions.__optional_keys__)


def _link_to(self: Linkable, then: Linkable) -> Links:
    return open_draft(">>").link(self, then)


def _link_back(self: Linkable, first: Linkable) -> Links:
    return open_draft("<<").link_before(self, first)


def _link_from(self: Linkable, first: Linkable) -> Links:
    return open_draft(">>").link(first, self)


def _link_back_from(self: Linkable, then: Linkable) -> Links:
    return open_draft("<<").link_before(then, self)


class Linked:
    """A part of a chain: `a >> [b, c] >> d`."""

    __rshift__, __lshift__, __rrshift__, __rlshift__ = (
        _link_to, _link_back, _link_from, _link_back_from
    )  # fmt: skip


class Nodelike:
    """A task or a workflow, which is a node of its own name in a block."""

    __rshift__, __lshift__, __rrshift__, __rlshift__ = (
        _link_to, _link_back, _link_from, _link_back_from
    )  # fmt: skip

    def node(self, name: str | None = None, /, **options: Unpack[NodeOptions]) -> Node:
        """Return a node that runs this, under another name or with options."""
        return open_draft("node()").add(self, name, options)

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Bind arguments of its node: constants, outputs of nodes, parameters of the workflow."""
        return open_draft("bind()").add(self, None, {}).bind(*args, **kwargs)

    def map(self, over: Output | Param | Iterable[Any] | None = None, /, **by_name: Any) -> Node:
        """Run its node once for each item of a list that is known during the run."""
        return open_draft("map()").add(self, None, {}).map(over, **by_name)

    def when(self, condition: str) -> When:
        """Continue from its node only under a condition on its result: `"result.rows > 0"`."""
        return open_draft("when()").add(self, None, {}).when(condition)

    def branch(self, *nodes: Linkable) -> Links:
        """Continue with those of these nodes that its result names; the others are skipped."""
        return open_draft("branch()").add(self, None, {}).branch(*nodes)

    @property
    def output(self) -> Output:
        """A reference to the result of its node."""
        return open_draft(".output").add(self, None, {}).output


class Node(Linked):
    """One node of an open block."""

    def __init__(
        self,
        home: NodeHome,
        name: str,
        *,
        task: NodeTask | None = None,
        job: str | None = None,
        inner: InnerWorkflow | None = None,
    ) -> None:
        self.home = home
        self.name = name
        self.task = task
        self.job = job  # the job to run, if it is not a task
        self.inner = inner  # that job, if it is a workflow of the same app
        self.options: NodeOptions = {}
        self.args: dict[str, Any] = {}
        self.over: Any = None  # the list to map over, as JSON
        self.choices: dict[str, None] = {}  # names of nodes to branch to

    def __repr__(self) -> str:
        return f"<Node {self.name} of {self.home.name}>"

    @property
    def output(self) -> Output:
        """A reference to its result."""
        return Output(self)

    def set(self, options: NodeOptions) -> Node:
        """Add options."""
        check_options(options, NODE_OPTIONS, "node()")
        for name, value in options.items():
            if name in self.options and self.options[name] != value:
                raise InvalidWorkflow(f"{self.home.label(self)} has two of {name}=; say it once")
        self.options |= options
        return self

    def node(self, name: str | None = None, /, **options: Unpack[NodeOptions]) -> Node:
        """Add options to this node. Its name must be set before anything is bound to it."""
        self.home.check_open(self)
        if name not in (None, self.name):
            raise InvalidWorkflow(
                f"{self.home.label(self)} has its name already; name it first, as in"
                f" {self.name}.node({name!r}).bind(…)"
            )
        return self.set(options)

    def bind(self, *args: Any, **kwargs: Any) -> Node:
        """Bind arguments: constants, outputs of nodes, parameters of the workflow."""
        self.home.check_open(self)
        names = self.free_names() if args else []
        if len(args) > len(names):
            takes = ", ".join(names) or "none"
            raise InvalidArguments(
                f"{self.home.label(self)} is given {len(args)} arguments without a name, and takes"
                f" {takes}"
            )
        given = dict(zip(names, args, strict=False))
        for name, value in (*given.items(), *kwargs.items()):
            if name in self.args or (name in given and name in kwargs):
                raise InvalidArguments(f"{self.home.label(self)} is given {name!r} twice")
            self.args[name] = self._convert(value)
        return self

    def map(self, over: Output | Param | Iterable[Any] | None = None, /, **by_name: Any) -> Node:
        """Run it once for each item of a list. The item is its first unbound argument, or the one
        of that name; the nodes after it get the list of all results.
        """
        self.home.check_open(self)
        if self.over is not None:
            raise InvalidWorkflow(f"{self.home.label(self)} is mapped twice")
        if over is not None and by_name:
            raise InvalidWorkflow(
                f"{self.home.label(self)} is mapped over one list; what is the same for all items"
                f" is bound: {self.name}.bind({', '.join(f'{one}=…' for one in by_name)}).map(…)"
            )
        if (over is not None) + len(by_name) != 1:
            raise InvalidWorkflow(
                f"{self.home.label(self)} is mapped over one list: map(items), or map(name=items)"
            )
        name, items = next(iter(by_name.items()), (None, over))
        if not isinstance(items, Output | Param):
            items = _constants(items, self)
        self.over = self._convert(items)
        if name is None:
            name = next((name for name in self.free_names() if name not in self.args), None)
            if name is None:
                raise InvalidArguments(
                    f"{self.home.label(self)} has no argument left that could be given the item"
                )
        return self.bind(**{name: _Item()})

    def when(self, condition: str) -> When:
        """Continue from here only under a condition on its result."""
        self.home.check_open(self)
        text = Condition.parse(condition).text
        self.home.note_condition(self, text)
        return When(self, text)

    def branch(self, *nodes: Linkable) -> Links:
        """Continue with those of these nodes that its result names; the others are skipped."""
        self.home.check_open(self)
        heads = self.home.heads(nodes)
        if not heads:
            raise InvalidWorkflow(f"{self.home.label(self)} branches into nothing")
        self._check_chooses(nodes)
        for end in heads:
            self.home.link(self.when(condition_for(end.node.name)), end.node)
            self.choices[end.node.name] = None
        return Links(self.home.ends(nodes), heads=[End(self)])

    def _check_chooses(self, nodes: Iterable[Linkable]) -> None:
        if self.task is None:
            raise InvalidWorkflow(
                f"{self.home.label(self)} is a job, and branch() is for a task, which returns"
                " names; say .when(…) of its result, or have a task after it choose"
            )
        if not self.task.definition.store_result:
            raise InvalidWorkflow(
                f"{self.home.label(self)} chooses by what it returns, and its task says"
                " store_result=False; leave that out"
            )
        if any(isinstance(one, Links) and one.is_chain for one in flatten_links(nodes)):
            raise InvalidWorkflow(
                f"{self.home.label(self)} branches to nodes, and was given a chain; say"
                " choose.branch(a, b), and then a >> c"
            )

    def free_names(self) -> list[str]:
        """List its positional arguments, in order."""
        if self.task is None:
            return [] if self.inner is None else list(self.inner.params)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [
            name
            for name, one in inspect.signature(self.task.function).parameters.items()
            if one.kind in kinds and name not in self.task.context_names
        ]

    def _convert(self, value: Any) -> Any:
        """Convert a value to JSON with references; link the nodes of outputs."""
        if isinstance(value, Output):
            self.home.check_open(value.of)
            self.home.link(value.of, self)
            return value.reference()
        if isinstance(value, Param):
            self.home.check_param(value, self)
            return value.reference()
        if isinstance(value, _Item):
            return {ITEM: True}
        if isinstance(value, dict):
            given = cast("dict[Any, Any]", value)
            return {key: self._convert(one) for key, one in given.items()}
        if isinstance(value, list | tuple):
            return [self._convert(one) for one in cast("list[Any]", value)]
        if isinstance(value, Linked | Nodelike):
            raise InvalidArguments(
                f"{self.home.label(self)} is given {value!r} itself; to pass on what it returns,"
                " say .output"
            )
        return value


class Output(DeferredValue):
    """A reference to a node's result, or to a part of it: `extract.output["rows"][0]`."""

    def __init__(self, of: Node, path: tuple[str, ...] = ()) -> None:
        self.of = of
        self.path = path

    def __getitem__(self, key: str | int) -> Output:
        return Output(self.of, (*self.path, part_named(key, "an output")))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # looked up by Python, possibly before __init__
            raise AttributeError(name)
        parts = "".join(f"[{one!r}]" for one in (*self.path, name))
        raise AttributeError(
            f"an output has no attribute {name!r}; a part of it is {self.of.name}.output{parts}"
        )

    def reference(self) -> dict[str, str]:
        """Return the reference as JSON."""
        path = {PATH: ".".join(self.path)} if self.path else {}
        return {OUTPUT: self.of.name, **path}

    def __repr__(self) -> str:
        return f"<Output of {self.of.name}{''.join(f'[{part!r}]' for part in self.path)}>"


class When(Linked):
    """A node with a condition for the next ones."""

    def __init__(self, node: Node, condition: str) -> None:
        self.node = node
        self.condition = condition

    def __repr__(self) -> str:
        return f"<{self.node.name} when {self.condition}>"


class Links(Linked):
    """The nodes at the ends of a chain. `a >> b << c` continues from its ends, or puts a node
    before its heads; the head of a branch is the node that chooses. A chain in brackets,
    `a >> (b >> c)`, is one part, from its first nodes to its last.
    """

    def __init__(
        self,
        ends: Iterable[End],
        *,
        heads: Iterable[End] | None = None,
        first: Iterable[End] | None = None,
        last: Iterable[End] | None = None,
        is_chain: bool = False,
    ) -> None:
        self.ends = tuple(ends)
        self.heads = self.ends if heads is None else tuple(heads)
        self.first = self.heads if first is None else tuple(first)
        self.last = self.ends if last is None else tuple(last)
        self.is_chain = is_chain

    def __repr__(self) -> str:
        return f"<Links {', '.join(end.node.name for end in self.ends)}>"


class End(NamedTuple):
    """A node in a chain, and the condition for the next one."""

    node: Node
    condition: str | None = None


class _Item:
    """A placeholder for the item of a mapped node."""


Linkable: TypeAlias = "Linked | Nodelike | Iterable[Linkable]"


def flatten_links(thing: object) -> Iterator[object]:
    """Yield the elements of nested lists."""
    if isinstance(thing, list | tuple | set):
        for one in cast("Iterable[object]", thing):
            yield from flatten_links(one)
    else:
        yield thing


def open_draft(what: str) -> NodeHome:
    """Return the workflow of the open block. Raises InvalidWorkflow outside of a block."""
    found = draft.get()
    if found is None:
        raise InvalidWorkflow(
            f"{what} makes nodes of a workflow, and none is being written here; use it inside"
            " `with app.workflow(…):`"
        )
    return found


def _constants(items: Any, node: Node) -> list[Any]:
    given: object = items
    if isinstance(given, Linked | Nodelike):
        raise InvalidWorkflow(
            f"{node.home.label(node)} is mapped over {shown(given)} itself; did you mean"
            " .output, the list that it returns?"
        )
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        said = shown(cast("object", given))
        raise InvalidWorkflow(f"{node.home.label(node)} is mapped over {said}, which is no list")
    return list(cast("Iterable[Any]", given))
