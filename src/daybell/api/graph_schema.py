"""What requests may say of a workflow, for the OpenAPI document. `core/graph.py` reads them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from daybell.api.kind_schema import (
    CommandOf,
    HttpRequestOf,
    MessageOf,
    SecretReference,
    Shown,
    Statement,
)
from daybell.core.limits import (
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    PARAMETERS_MAX,
    WORKFLOW_EDGES_MAX,
    WORKFLOW_NODES_MAX,
)
from daybell.core.rules import Rule


class OutputReference(Shown):
    """Stands for the result of a node that comes before, which is an edge, too."""

    output: str = Field(description="The node's name.", examples=["extract"])
    path: str | None = Field(None, description="A part of the result.", examples=["rows.0"])


class ParamReference(Shown):
    """Stands for what a run is given."""

    param: str = Field(description="The parameter's name.", examples=["day"])
    path: str | None = Field(None, description="A part of it.")


class ItemReference(Shown):
    """Stands for the item that a mapped node runs for."""

    item: Literal[True]
    path: str | None = Field(None, description="A part of it.")


Reference = OutputReference | ParamReference | ItemReference


class NodeJoined(Shown):
    """Stands for all of these as one text."""

    join: list[str | SecretReference | Reference] = Field(
        description="Texts, and what stands for them.",
        examples=[["https://example.org/", {"output": "list", "path": "id"}]],
    )


NodeWords = str | SecretReference | NodeJoined | Reference


class NodeCommand(CommandOf[NodeWords]):
    """A program to run."""


class NodeHttpRequest(HttpRequestOf[NodeWords]):
    """A request to send."""


class NodeMessage(MessageOf[NodeWords]):
    """A message to people."""


class Edge(Shown):
    """One node waits for another, and perhaps for what that answered."""

    from_: str = Field(alias="from", description="The node that comes first.")
    to: str = Field(description="The node that waits.")
    when: str | None = Field(
        None,
        description="A condition on the first one's result; not met, it counts as skipped.",
        examples=["result.rows > 0 and result.kind in ['full', 'part']"],
    )


class Param(Shown):
    """What a run of the workflow may be given. Without a `default` it must be given."""

    name: str = Field(description="Letters, digits and _.", examples=["day"])
    default: Any = Field(None, description="Any JSON. It may be null; left out, there is none.")


class Node(Shown):
    """One thing to run. Its values may refer to results: `{"output": "extract", "path": "rows.0"}`,
    to parameters of the run: `{"param": "day"}`, and in a mapped node `{"item": true}`.
    """

    name: str = Field(description="What other nodes and people call it.")
    task: str | None = Field(None, description="A task of an app.")
    command: str | list[NodeWords] | NodeCommand | None = None
    http: NodeWords | NodeHttpRequest | None = None
    sql: Statement | None = None
    notify: NodeMessage | None = None
    job: str | None = Field(None, description="Another job by its name; perhaps a workflow.")
    args: dict[str, Any] | None = Field(None, description="Of a task or a job.")
    shell: bool | None = None
    env: dict[str, NodeWords] | None = None
    queue: str | None = Field(None, description="By default the task's, or the workflow's.")
    priority: Literal["critical", "high", "normal", "low"] | None = None
    retries: int | dict[str, Any] | None = None
    backoff: str | dict[str, Any] | None = None
    timeout: float | str | None = None
    rule: Rule | None = Field(
        None, description="What it wants of the nodes before it; by default that all succeed."
    )
    map: list[Any] | dict[str, Any] | None = Field(
        None,
        description="It runs once for each item of this list, result or parameter.",
        examples=[{"output": "extract", "path": "files"}],
    )
    max_items: int | None = Field(
        None,
        ge=1,
        le=MAP_ITEMS_MAX,
        description=f"Of a mapped node: the longest list that it takes; {MAP_ITEMS_DEFAULT:,} by"
        " default. A longer one fails the node.",
    )
    branch: list[str] | None = Field(
        None,
        description="Of a task: the nodes that it chooses among. It returns the name of one, or a"
        " list of names; the others are skipped.",
        examples=[["full", "part"]],
    )


class Workflow(Shown):
    """Nodes and what they wait for. A reference to a result is an edge, too."""

    nodes: Annotated[list[Node], Field(min_length=1, max_length=WORKFLOW_NODES_MAX)]
    edges: Annotated[list[tuple[str, str] | Edge], Field(max_length=WORKFLOW_EDGES_MAX)] = Field([])
    params: Annotated[list[str | Param], Field(max_length=PARAMETERS_MAX)] = Field(
        [],
        description="What a run is given as `args`. A text is the name of one that must be given.",
        examples=[[{"name": "day"}, {"name": "limit", "default": 10}]],
    )
    fail_fast: bool = Field(False, description="Start nothing more once a node has failed.")
    max_running: int | None = Field(None, ge=1, description="So many nodes at a time, at most.")
