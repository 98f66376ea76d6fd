"""Conditions on results and references to results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.limits import CONDITION_CHARS_MAX
from daybell.core.references import fill_args
from daybell.core.workflow.expressions import (
    Condition,
    fill_outputs,
    fill_settings,
    find_outputs,
    items_of,
)
from daybell.errors import InvalidWorkflow, UsageError
from tests.refusals import refuses

RESULT = {"rows": 3, "kind": "full", "tags": ["a", "b"], "deep": {"list": [{"x": 1.0}]}, "no": None}

TOKENS = (
    *("result", ".rows", ".deep", "[0]", "[", "]", "(", ")", ",", "len(", "and", "or", "not", "in"),
    *("==", "!=", "<", "<=", ">", ">=", "1", "-1", "2.5", "1e3", '"a"', "'b'", "true", "null", "x"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "deep"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("result.rows > 0", True),
        ("result.rows > 3", False),
        ("result.rows >= 3 and result.rows <= 3", True),
        ("result.rows < 3 or result.kind == 'full'", True),
        ("not result.rows == 3", False),
        ("not not result.rows", True),
        ('result["rows"] == 3.0', True),
        ("result.tags[0] == 'a' and result.tags[-1] == 'b'", True),
        ("result.tags[7]", False),
        ("result.deep.list[0].x == 1", True),
        ("'a' in result.tags and 'c' not in result.tags", True),
        ("'ul' in result.kind", True),
        ("'rows' in result", True),
        ("result.kind in ['full', 'part']", True),
        ("len(result.tags) == 2 and len(result.kind) == 4", True),
        ("len(result.rows)", False),
        ("result.missing.more == null and result.no == null", True),
        ("result.rows == '3' or result.rows < '4'", False),
        ("result.tags == ['a', 'b']", True),
        ("true == 1 or false == 0", False),
        ("result", True),
        ("(result.rows > 5 or result.rows > 1) and result.kind != 'part'", True),
        ("result.rows > -1.5e0", True),
        (r"'it\'s' == " + '"it\'s"', True),
    ],
)
def test_a_condition_says_whether_a_result_is_wanted(text: str, holds: bool) -> None:
    assert Condition.parse(text).holds(RESULT) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a condition"),
        (5, "must be a condition"),
        ("result.rows >", "such as 3 or result.rows, is missing at its end (at 14)"),
        ("rows > 0", "'rows' is not known; a condition is about result (at 1)"),
        ("result.rows = 3", "'=' at 13 is nothing that a condition can have"),
        ("1 < result.rows < 5", "joined by `and`, not chained (at 17)"),
        ("result is not None", "'is' is not expected here; say == null or != null"),
        ("result.rows 5", "'5' is not expected here (at 13)"),
        ("(result", "')' is missing at its end"),
        ("result.0", "a list's first item is [0]"),
        ("__import__('os')", "'__import__' is not known"),
        ("result.rows + 1", "'+' at 13 is nothing"),
        ("(" * 60 + "1" + ")" * 60, "nested too deeply"),
        ("result[" * 60 + "0" + "]" * 60, "nested too deeply"),
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ("1 == " * 200 + "1", f"the limit is {CONDITION_CHARS_MAX}"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text: Any, said: str) -> None:
    with pytest.raises(InvalidWorkflow) as refused:
        Condition.parse(text, field="workflow.edges[1].when")

    assert said in str(refused.value)
    assert refused.value.field == "workflow.edges[1].when"


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(TOKENS), min_size=1, max_size=40).map(" ".join)
    | st.text(min_size=1, max_size=60),
    json_values,
)
def test_a_text_is_a_condition_or_refused_and_a_condition_is_true_or_false(
    text: str, result: Any
) -> None:
    try:
        condition = Condition.parse(text)
    except InvalidWorkflow:
        return

    assert condition.holds(result) in (True, False)


# References to results: data takes their place, and stays data.

RESULTS: dict[str, Any] = {
    "extract": {"rows": [{"id": 7}, {"id": 8}], "secret": "x"},
    "odd": {"secret": "TOKEN"},
}


def filled(args: dict[str, Any], item: Any = None) -> Any:
    return json.loads(fill_outputs(json.dumps(args), RESULTS.get, item))


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        ({"output": "extract", "path": "rows.0.id"}, 7),
        ({"output": "extract", "path": "rows.-1.id"}, 8),
        ({"output": "extract", "path": "rows.5.id"}, None),
        ({"output": "extract", "path": "rows.x"}, None),
        ({"output": "gone"}, None),
        ([{"output": "extract", "path": "rows"}], [[{"id": 7}, {"id": 8}]]),
        ({"item": True}, {"n": 1}),
        ({"item": True, "path": "n"}, 1),
        ({"item": False}, {"item": False}),
        ({"output": "extract", "more": 1}, {"output": "extract", "more": 1}),
        ({"join": ["id=", {"output": "extract", "path": "rows.0.id"}]}, "id=7"),
        (
            {"join": ["id=", {"output": "extract", "path": "rows.0.id"}, {"secret": "S"}]},
            {"join": ["id=", 7, {"secret": "S"}]},
        ),
        ({"output": "odd"}, {"as_is": {"secret": "TOKEN"}}),
        ({"as_is": {"output": "extract"}}, {"as_is": {"output": "extract"}}),
    ],
)
def test_a_reference_becomes_the_data_that_it_stands_for(value: Any, becomes: Any) -> None:
    assert filled({"value": value}, {"n": 1}) == {"value": becomes}


def test_arguments_as_a_whole_stand_for_nothing() -> None:
    assert filled({"output": "extract"}) == {"output": "extract"}


def test_settings_are_filled_with_what_the_execution_came_with() -> None:
    settings = {
        "url": {"join": ["https://x/", {"output": "extract", "path": "rows.0.id"}]},
        "headers": {"output": {"item": True}, "Token": {"secret": "S"}},
        "body": {"rows": {"output": "odd"}},
    }
    args = filled(
        {"extract": {"output": "extract"}, "odd": {"output": "odd"}, "item": {"item": True}}, "i"
    )

    assert fill_settings("http", settings, json.dumps(args)) == {
        "url": "https://x/7",
        "headers": {"output": "i", "Token": {"secret": "S"}},
        "body": {"rows": {"as_is": {"secret": "TOKEN"}}},
    }


def test_where_only_a_text_will_do_data_is_text() -> None:
    settings = {
        "run": ["x", {"item": True}, {"output": "extract", "path": "rows.0"}, {"output": "gone"}],
        "env": {"N": {"output": "extract", "path": "rows.0.id"}},
    }
    args = filled({"extract": {"output": "extract"}, "item": {"item": True}}, "i")
    request = fill_settings(
        "http", {"body": [{"output": "extract", "path": "rows"}]}, json.dumps(args)
    )

    assert fill_settings("command", settings, json.dumps(args)) == {
        "run": ["x", "i", '{"id":7}', None],
        "env": {"N": "7"},
    }
    assert request == {"body": [[{"id": 7}, {"id": 8}]]}


looking_like_references = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["secret", "join", "as_is", "output", "item", "parameter", "path"]),
            inner | st.just("TOKEN") | st.just(True),
            max_size=2,
        )
    ),
    max_leaves=12,
)


@given(looking_like_references)
def test_whatever_a_result_looks_like_a_task_is_given_the_same(result: Any) -> None:
    args = {"value": {"output": "n"}, "deep": [{"output": "n"}]}
    text = fill_outputs(json.dumps(args), {"n": result}.get)

    def no_secret(name: str) -> Any:
        raise AssertionError(f"secret {name} was looked for")

    assert fill_args(json.loads(text), no_secret) == {"value": result, "deep": [result]}


def test_a_mapped_node_takes_a_list_or_is_refused() -> None:
    assert items_of('{"output": "extract", "path": "rows"}', RESULTS.get) == [{"id": 7}, {"id": 8}]
    assert items_of('[1, {"output": "x"}]', RESULTS.get) == [1, {"output": "x"}]
    with refuses(UsageError, field="map"):
        items_of('{"output": "extract"}', RESULTS.get)


def test_all_references_are_found_but_those_in_plain_data() -> None:
    value = {"a": [{"output": "x"}], "b": {"as_is": {"output": "y"}}, "c": {"item": True}}

    assert [one.node for one in find_outputs(value)] == ["x", None]
