"""References to results: data takes their place, and stays data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.references import fill_args
from daybell.core.workflow.expressions import fill_outputs, fill_settings, find_outputs, items_of
from daybell.errors import UsageError

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
    with pytest.raises(UsageError, match="which is no list"):
        items_of('{"output": "extract"}', RESULTS.get)


def test_all_references_are_found_but_those_in_plain_data() -> None:
    value = {"a": [{"output": "x"}], "b": {"as_is": {"output": "y"}}, "c": {"item": True}}

    assert [one.node for one in find_outputs(value)] == ["x", None]
