"""JSON schemas of what a job runs: the settings of each kind, the graph of a workflow, and the
objects that stand for other values in them.

The classes of `settings.py` describe the fields of each kind. Here are the fields of a graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from daybell.core.kinds.settings import (
    CommandSettings,
    HttpSettings,
    NotifySettings,
    SqlSettings,
    fields_of,
)
from daybell.core.limits import (
    MAP_ITEMS_DEFAULT,
    MAP_ITEMS_MAX,
    PARAMETERS_MAX,
    WORKFLOW_EDGES_MAX,
    WORKFLOW_NODES_MAX,
)
from daybell.core.workflow.rules import Rule

Schema = dict[str, Any]

REFS: Final = "#/components/schemas/"
TEXT: Final[Schema] = {"type": "string"}
DURATION: Final[Schema] = {
    "anyOf": [{"type": "number"}, TEXT],
    "examples": [3600, "5m"],
}
PRIORITY: Final[Schema] = {
    "anyOf": [TEXT, {"type": "integer", "minimum": 0, "maximum": 3}],
    "examples": ["high"],
}


def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"{REFS}{name}"}


def says(meaning: str, schema: Mapping[str, Any], **more: Any) -> Schema:
    """Return a schema with the meaning of the value."""
    return {**schema, "description": meaning, **more}


def list_of(items: Schema, **more: Any) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


def any_of(*schemas: Schema) -> Schema:
    """Return the schema of a value that one of these describes."""
    return {"anyOf": list(schemas)}


def an_object(meaning: str, fields: Mapping[str, Any], *, required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of an object without other fields."""
    return {
        "type": "object",
        "description": meaning,
        "properties": dict(fields),
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def kind_schema(kind: type[msgspec.Struct], meaning: str, *, in_node: bool = False) -> Schema:
    """Return the schema of a kind's settings. In a node, references may stand for texts."""
    structs = msgspec.structs.fields(kind)
    fields = {name: says(one.meaning, one.schema) for name, one in fields_of(kind).items()}
    required = tuple(one.name for one in structs if one.required)
    schema = an_object(meaning, fields, required=required)
    if in_node:
        words = json.dumps(schema).replace(f"{REFS}Words", f"{REFS}NodeWords")
        schema = json.loads(words)
    return schema


_PATH: Final = says("A part of the value.", TEXT, examples=["rows.0"])
_MAX_RUNNING: Final[Schema] = {"type": "integer", "minimum": 1}
_NODE_ITEMS: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": MAP_ITEMS_MAX}
_REFERENCES: Final = [ref(f"{name}Reference") for name in ("Output", "Param", "Item")]

NODE: Final[Schema] = {
    "name": says("The name for other nodes and people.", TEXT),
    "task": says("A task of an app.", TEXT),
    "command": says(
        "A program: a line, its words, or an object.",
        any_of(TEXT, list_of(ref("NodeWords")), ref("NodeCommand")),
    ),
    "http": says(
        "A request: an address, or an object.", any_of(ref("NodeWords"), ref("NodeHttpRequest"))
    ),
    "sql": says("A statement in a database that workers know by name.", ref("Statement")),
    "notify": says("A message to people.", ref("NodeMessage")),
    "job": says("Another job by its name; perhaps a workflow.", TEXT),
    "shell": says("Of a command: run its line by `sh -c`.", {"type": "boolean"}),
    "env": says(
        "Of a command: variables of its environment.",
        {"type": "object", "additionalProperties": ref("NodeWords")},
    ),
    "args": says("Arguments of a task or a job.", {"type": "object"}),
    "queue": says("By default the task's, or the workflow's.", TEXT),
    "priority": says("By default the task's, or the workflow's.", PRIORITY),
    "retries": says(
        "Tries after the first, or an object with a whole policy.",
        any_of({"type": "integer"}, {"type": "object"}),
    ),
    "backoff": says("The wait before each retry.", any_of(TEXT, {"type": "object"})),
    "timeout": says("The longest time of one try.", DURATION),
    "requires": says("Labels that its worker must have, by name.", {"type": "object"}),
    "prefer": says("Labels of workers that take it first.", {"type": "object"}),
    "resources": says("Amounts of its worker that it uses, by name.", {"type": "object"}),
    "rule": says(
        "The condition on the nodes before it; by default all succeed.",
        {"enum": [str(one) for one in Rule]},
    ),
    "map": says(
        "Run once for each item of this list, result or parameter.",
        any_of({"type": "array"}, {"type": "object"}),
        examples=[{"output": "extract", "path": "files"}],
    ),
    "max_items": says(
        f"Of a mapped node: the longest list that it takes; {MAP_ITEMS_DEFAULT:,} by default. A"
        " longer one fails the node.",
        _NODE_ITEMS,
    ),
    "branch": says(
        "Of a task: the nodes that it chooses among. It returns the name of one, or a list of"
        " names; the others are skipped.",
        list_of(TEXT),
        examples=[["full", "part"]],
    ),
}
WORKFLOW: Final[Schema] = {
    "nodes": says("The nodes.", list_of(ref("Node"), minItems=1, maxItems=WORKFLOW_NODES_MAX)),
    "edges": says(
        "Pairs of nodes, the first of which comes before the second.",
        list_of(
            any_of(list_of(TEXT, minItems=2, maxItems=2), ref("Edge")), maxItems=WORKFLOW_EDGES_MAX
        ),
    ),
    "params": says(
        "Parameters of a run, given as `args`. A text is the name of a required one.",
        list_of(any_of(TEXT, ref("Param")), maxItems=PARAMETERS_MAX),
        examples=[[{"name": "day"}, {"name": "limit", "default": 10}]],
    ),
    "fail_fast": says("Start no other node once a node has failed.", {"type": "boolean"}),
    "max_running": says("The number of nodes that run at a time, at most.", _MAX_RUNNING),
}
EDGE: Final[Schema] = {
    "from": says("The node that comes first.", TEXT),
    "to": says("The node that waits.", TEXT),
    "when": says(
        "A condition on the result of the first; not met, the edge counts as skipped.",
        TEXT,
        examples=["result.rows > 0 and result.kind in ['full', 'part']"],
    ),
}
PARAM: Final[Schema] = {
    "name": says("Letters, digits and _.", TEXT, examples=["day"]),
    "default": says("Any JSON, also null. Without a default the parameter is required.", {}),
}


def _joined(words: list[Schema], example: list[Any]) -> Schema:
    parts = says("Texts, and objects that stand for texts.", list_of(any_of(*words)))
    return an_object(
        "Stands for all of these as one text.",
        {"join": {**parts, "examples": [example]}},
        required=("join",),
    )


def _reference(name: str, meaning: str, value: Schema, example: Any) -> Schema:
    fields = {name: {**value, "examples": [example]}, "path": _PATH}
    return an_object(meaning, fields, required=(name,))


_SECRET: Final = an_object(
    "Stands for a secret's value, which only a worker sees.",
    {"secret": says("The secret's name.", TEXT, examples=["API_TOKEN"])},
    required=("secret",),
)
_JOINED: Final = _joined([TEXT, ref("SecretReference")], ["Bearer ", {"secret": "API_TOKEN"}])
_NODE_JOINED: Final = _joined(
    [TEXT, ref("SecretReference"), *_REFERENCES],
    ["https://example.org/", {"output": "list", "path": "id"}],
)
_NODE_MEANING: Final = (
    'One thing to run. Its values may refer to results: `{"output": "extract", "path": "rows.0"}`,'
    ' to parameters of the run: `{"param": "day"}`, and in a mapped node `{"item": true}`.'
)

COMPONENTS: Final[Mapping[str, Schema]] = {
    "SecretReference": _SECRET,
    "Joined": _JOINED,
    "Words": any_of(TEXT, ref("SecretReference"), ref("Joined")),
    "Command": kind_schema(CommandSettings, "A program to run."),
    "HttpRequest": kind_schema(HttpSettings, "A request to send."),
    "Statement": kind_schema(SqlSettings, "A statement to run in a database."),
    "Message": kind_schema(NotifySettings, "A message to people."),
    "OutputReference": _reference(
        "output", "Stands for the result of a node before it, and makes an edge.", TEXT, "extract"
    ),
    "ParamReference": _reference("param", "Stands for a parameter of the run.", TEXT, "day"),
    "ItemReference": _reference(
        "item", "Stands for the item that a mapped node runs for.", {"const": True}, True
    ),
    "NodeJoined": _NODE_JOINED,
    "NodeWords": any_of(TEXT, ref("SecretReference"), ref("NodeJoined"), *_REFERENCES),
    "NodeCommand": kind_schema(CommandSettings, "A program to run.", in_node=True),
    "NodeHttpRequest": kind_schema(HttpSettings, "A request to send.", in_node=True),
    "NodeMessage": kind_schema(NotifySettings, "A message to people.", in_node=True),
    "Node": an_object(_NODE_MEANING, NODE, required=("name",)),
    "Edge": an_object("One node waits for another.", EDGE, required=("from", "to")),
    "Param": an_object("A parameter of a run.", PARAM, required=("name",)),
    "Workflow": an_object(
        "Nodes and their order. A reference to a result is an edge, too.",
        WORKFLOW,
        required=("nodes",),
    ),
    "MadeFrom": an_object(
        "The template that a job was made from.",
        {
            "name": says("The template's name.", TEXT),
            "version": says("Its version then.", {"type": "integer"}),
            "parameters": says("The parameters then.", {"type": "object"}),
        },
        required=("name", "version", "parameters"),
    ),
}
