"""Parameters of a workflow: what is read of them, and where what a run is given goes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.references import fill_args
from daybell.core.workflow.expressions import fill_outputs, fill_settings, items_of
from daybell.core.workflow.graph import Graph, params_of, plain_by_name
from daybell.core.workflow.run import Spec
from daybell.errors import InvalidArguments, InvalidWorkflow, PayloadTooLarge, UsageError
from tests.core.workflow.test_expressions import looking_like_references
from tests.refusals import refuses

LOAD: dict[str, Any] = {"name": "load", "task": "load"}
DYA = {"param": "dya"}


def graph(*nodes: dict[str, Any], params: Any = None, **rest: Any) -> Graph:
    said = {"nodes": list(nodes), **({} if params is None else {"params": params}), **rest}
    return Graph.parse(said)


def specs(of: Graph, **given: Any) -> dict[str, Spec]:
    plan = of.plan(given)
    return {new.node.label: msgspec.json.decode(new.spec, type=Spec) for new in plan.nodes}


def no_secret(name: str) -> Any:
    raise AssertionError(f"secret {name} was looked for")


@pytest.mark.parametrize(
    ("params", "field", "said"),
    [
        ({"day": {}}, "", "must be a list, such as"),
        ("day", "", "must be a list"),
        ([3], "[0]", "3 is no parameter"),
        (["day", {"name": "day"}], "[1].name", "two parameters are called 'day'"),
        ([""], "[0].name", "'' cannot name a parameter"),
        ([{"default": 1}], "[0].name", "None cannot name a parameter"),
        (["a.b"], "[0].name", "'a.b' cannot name a parameter"),
        (["1st"], "[0].name", "begins with no digit"),
        (["class"], "[0].name", "a word of Python"),
        ([{"name": "day", "deflt": 1}], "[0].deflt", "has no 'deflt'; it has name and default"),
        ([f"p{n}" for n in range(101)], "", "101 parameters are too many"),
        ([{"name": "day", "default": object()}], "[0].default", "default of day: cannot be stored"),
    ],
)
def test_what_is_no_parameter_is_refused_with_its_place(params: Any, field: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        graph(LOAD, params=params)

    assert refused.value.field == f"workflow.params{field}"
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"task": "x", "args": {"a": 1, "b": [DYA]}}, "args.b"),
        ({"job": "x", "args": {"b": {"join": ["x", DYA]}}}, "args.b"),
        ({"command": ["x", DYA]}, "command"),
        ({"http": {"url": DYA}}, "http"),
        ({"sql": {"connection": "c", "statement": "x", "parameters": {"a": DYA}}}, "sql"),
        ({"notify": {"to": "log://", "body": DYA}}, "notify"),
        ({"task": "x", "args": {"a": {"item": True}}, "map": DYA}, "map"),
    ],
)  # fmt: skip
def test_a_reference_to_no_parameter_is_refused_with_its_place(
    node: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        graph(LOAD, {"name": "n", **node}, params=["day"])

    assert refused.value.field == f"workflow.nodes[1].{field}"
    assert "refers to a parameter 'dya' of the workflow; did you mean 'day'?" in str(refused.value)
    with pytest.raises(InvalidWorkflow, match="it takes none"):
        graph({"name": "n", **node})


@pytest.mark.parametrize("item", [{"param": "day"}, [DYA], {"x": {"output": "load"}}])
def test_a_list_that_is_written_out_has_no_references(item: Any) -> None:
    node = {"name": "n", "task": "x", "args": {"a": {"item": True}}, "map": ["a", item]}

    with refuses(InvalidWorkflow, field="workflow.nodes[1].map") as refused:
        graph(LOAD, node, params=["day"])

    assert refused.value.field == "workflow.nodes[1].map"


def test_a_path_of_a_parameter_leads_somewhere() -> None:
    node = {**LOAD, "args": {"a": {"param": "day", "path": "a..b"}}}

    with refuses(InvalidWorkflow, field="workflow.nodes[0].path"):
        graph(node, params=["day"])


def test_a_definition_keeps_parameters_and_is_as_it_was_without() -> None:
    plain = graph(LOAD)
    with_them = graph(LOAD, params=["day", {"name": "limit", "default": None}])

    assert plain.to_settings() == {"nodes": [LOAD]}
    kept = with_them.to_settings()
    assert kept["params"] == [{"name": "day"}, {"name": "limit", "default": None}]
    again = Graph.from_settings(json.dumps(kept))
    assert (again, again.to_settings()) == (with_them, kept)
    assert params_of(json.dumps(kept)) == with_them.params
    assert params_of(json.dumps(plain.to_settings())) == ()


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({}, "day", "must be given day; it takes day, limit=10"),
        ({"day": 1, "limt": 2}, "limt", "has no parameter 'limt'; did you mean 'limit'?"),
        ({"day": 1, "x": 2}, "x", "has no parameter 'x'; it takes day, limit=10"),
    ],
)
def test_a_run_is_given_what_there_is_and_what_must_be(
    given: dict[str, Any], field: str, said: str
) -> None:
    one = graph(LOAD, params=["day", {"name": "limit", "default": 10}])

    with pytest.raises(InvalidArguments) as refused:
        one.plan(given)

    assert refused.value.field == field
    assert said in str(refused.value)


def test_what_refers_to_a_parameter_in_an_old_definition_is_data_as_before() -> None:
    node = {**LOAD, "args": {"a": {"param": "day"}, "b": {"output": "first"}}}
    old = Graph.from_settings(json.dumps({"nodes": [{"name": "first", "task": "x"}, node]}))

    args = fill_outputs(specs(old)["load"].args, {"first": 7}.get)

    assert json.loads(args) == {"a": {"param": "day"}, "b": 7}
    assert fill_settings("http", {"body": {"param": "day"}}, "{}") == {"body": {"param": "day"}}


def test_parameters_are_put_in_once_and_results_later() -> None:
    node = {
        **LOAD,
        "args": {
            "whole": {"param": "conf"},
            "part": {"param": "conf", "path": "rows.0"},
            "gone": {"param": "conf", "path": "x.y"},
            "text": {"join": ["on ", {"param": "day"}, "!"]},
            "later": {"join": [{"param": "day"}, {"output": "first"}]},
            "secret": {"join": [{"param": "day"}, {"secret": "S"}]},
            "usual": {"param": "limit"},
        },
    }
    params = ["day", "conf", {"name": "limit", "default": 10}]
    one = graph({"name": "first", "task": "x"}, node, params=params)

    spec = specs(one, day="monday", conf={"rows": [7]})["load"]

    assert spec.outputs == ("first",)
    assert json.loads(fill_outputs(spec.args, {"first": 1}.get)) == {
        "whole": {"rows": [7]},
        "part": 7,
        "gone": None,
        "text": "on monday!",
        "later": "monday1",
        "secret": {"join": ["monday", {"secret": "S"}]},
        "usual": 10,
    }


def test_a_node_without_code_is_given_parameters_beside_results_of_the_same_name() -> None:
    node = {"name": "n", "command": ["x", {"param": "day"}, {"output": "day"}, {"item": True}]}
    one = graph({"name": "day", "task": "x"}, {**node, "map": {"param": "files"}},
                params=["day", "files"])  # fmt: skip

    spec = specs(one, day={"n": 1}, files=["a"])["n"]

    assert spec.map is not None and items_of(spec.map, {}.get) == ["a"]
    args = fill_outputs(spec.args, {"day": "result"}.get, "a")
    settings = json.loads(json.dumps(one.by_name["n"].settings))
    assert fill_settings("command", settings, args)["run"] == ["x", '{"n":1}', "result", "a"]
    alone = graph({"name": "n", "command": ["x", {"param": "day"}]}, params=["day"])
    assert json.loads(specs(alone, day=1)["n"].args) == {"[params]": {"day": 1}}


def test_what_is_mapped_over_must_be_a_list_when_its_turn_comes() -> None:
    node = {**LOAD, "args": {"a": {"item": True}}, "map": {"param": "files"}}
    one = graph({"name": "first", "task": "x"}, node, params=["files"])

    for value in (5, {"output": "first"}, {"as_is": [1]}):
        over = specs(one, files=value)["load"].map
        assert over is not None
        with refuses(UsageError, field="map"):
            items_of(over, {"first": [1]}.get)
    over = specs(one, files=[{"output": "first"}, {"as_is": 1}])["load"].map
    assert over is not None
    assert items_of(over, no_secret) == [{"output": "first"}, {"as_is": 1}]


def test_a_run_is_only_so_large_with_all_that_is_put_in() -> None:
    nodes = [{"name": f"n{n}", "task": "x", "args": {"a": {"param": "big"}}} for n in range(70)]

    with refuses(PayloadTooLarge, field="args"):
        graph(*nodes, params=["big"]).plan({"big": "x" * 1_000_000})


# --- whatever is given stays what it is -----------------------------------------------------------

parts = st.sampled_from(["", "a", "a.0", "x"])


def a_reference(path: str) -> dict[str, Any]:
    return {"param": "p", "path": path} if path else {"param": "p"}


templates = st.recursive(
    st.none() | st.integers() | st.text(max_size=2) | parts.map(a_reference),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def reference(template: Any, value: Any) -> Any:
    """What a task must be given, said in the plainest way."""
    if isinstance(template, dict) and "param" in template:
        for key in template["path"].split(".") if "path" in template else ():
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and key == "0":
                value = next(iter(value), None)
            else:
                value = None
        return value
    if isinstance(template, dict):
        return {key: reference(one, value) for key, one in template.items()}
    if isinstance(template, list):
        return [reference(one, value) for one in template]
    return template


values = looking_like_references | st.dictionaries(
    st.just("a"), looking_like_references | st.lists(looking_like_references, max_size=2)
)


@given(templates, values)
def test_whatever_is_given_a_task_gets_the_same(template: Any, value: Any) -> None:
    node = {**LOAD, "args": {"value": template, "result": {"output": "first"}}}
    one = graph({"name": "first", "task": "x"}, node, params=["p"])

    text = fill_outputs(specs(one, p=value)["load"].args, {"first": 1}.get)

    expected = {"value": reference(template, value), "result": 1}
    assert fill_args(json.loads(text), no_secret) == expected
    assert plain_by_name(json.loads(text)) == expected  # of a workflow in this one


@given(parts, values)
def test_whatever_is_given_a_request_is_sent_the_same(path: str, value: Any) -> None:
    node = {"name": "n", "http": {"url": "https://x", "body": {"all": [a_reference(path)]}}}
    one = graph(node, params=["p"])

    args = fill_outputs(specs(one, p=value)["n"].args, {}.get)
    body = fill_settings("http", one.by_name["n"].settings, args)["body"]

    assert fill_args(body, no_secret) == {"all": [reference(a_reference(path), value)]}
