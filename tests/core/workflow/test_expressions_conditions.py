"""Conditions on results: read as a small language, and never run as code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybell.core.limits import CONDITION_CHARS_MAX
from daybell.core.workflow.expressions import Condition
from daybell.errors import InvalidWorkflow

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
