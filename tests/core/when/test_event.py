"""Schedules that events fire: filters, and arguments that events fill."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core import payload
from daybell.core.event import Event
from daybell.core.when import Schedule, any_of, cron, on_event
from daybell.core.when.event import check_event_args, fill_args, sample_args, without_event
from daybell.errors import InvalidSchedule, UsageError
from tests.refusals import refuses

EVENT = Event(id="1", source="/s3", name="file.uploaded", data='{"path":"a"}', received_at=1e9)


def accepts(where, data):
    return on_event("e", where=where).accepts(data)


@pytest.mark.parametrize(
    ("where", "data"),
    [
        (None, None),
        ({}, 5),
        ({"size": 3}, {"size": 3.0}),
        ({"size": None}, {"size": None}),
        ({"is_new": True}, {"is_new": True, "more": 1}),
        ({"a.b.c": "x"}, {"a": {"b": {"c": "x"}}}),
        ({"size": {"gt": 0, "lte": 10}}, {"size": 10}),
        ({"size": {"gte": 1.5}}, {"size": 1.5}),
        ({"day": {"lt": "2026-02-01"}}, {"day": "2026-01-31"}),
        ({"country": {"in": ["DE", "AT", 1]}}, {"country": "AT"}),
        ({"path": {"prefix": "in/"}}, {"path": "in/a.csv"}),
        ({"path": {"exists": True}}, {"path": None}),
        ({"path": {"exists": False}}, {}),
        ({"path.to": {"exists": False}}, {"path": "to"}),
        ({"path": {"exists": False}}, [1]),
    ],
)
def test_a_filter_accepts(where, data):
    assert accepts(where, data)


@pytest.mark.parametrize(
    ("where", "data"),
    [
        ({"size": 1}, {"size": True}),
        ({"size": 1}, {"size": "1"}),
        ({"is_new": False}, {"is_new": 0}),
        ({"size": {"gt": 0}}, {"size": 0}),
        ({"size": {"gt": 0}}, {"size": "9"}),
        ({"size": {"gt": 0}}, {"size": True}),
        ({"size": {"gt": 0}}, {"size": None}),
        ({"size": {"gt": 0, "lt": 10}}, {"size": 10}),
        ({"size": {"gt": 0}, "kind": "a"}, {"size": 1, "kind": "b"}),
        ({"country": {"in": ["DE"]}}, {"country": ["DE"]}),
        ({"country": {"in": [1]}}, {"country": True}),
        ({"path": {"prefix": "in/"}}, {"path": "out/in/"}),
        ({"path": {"prefix": "1"}}, {"path": 12}),
        ({"path": {"exists": True}}, {}),
        ({"path": {"exists": False}}, {"path": None}),
        ({"a.b": 1}, {"a.b": 1}),
        ({"a.0": 1}, {"a": [1]}),
        ({"a": None}, {}),
    ],
)
def test_a_filter_refuses(where, data):
    assert not accepts(where, data)


@pytest.mark.parametrize(
    "where",
    [
        5,
        [],
        {1: 2},
        {"": 1},
        {"a..b": 1},
        {".".join("abcdefghijk"): 1},
        {"a" * 300: 1},
        {"a\0": 1},
        {"a": [1]},
        {"a": {}},
        {"a": {"gt": None}},
        {"a": {"gt": True}},
        {"a": {"lt": float("nan")}},
        {"a": {"above": 3}},
        {"a": {"in": []}},
        {"a": {"in": "DE"}},
        {"a": {"in": [[1]]}},
        {"a": {"in": [*range(101)]}},
        {"a": {"prefix": ""}},
        {"a": {"prefix": 1}},
        {"a": {"exists": 1}},
        {"a": float("inf")},
        {"a": "\ud800"},
        {str(n): 1 for n in range(21)},
        {"a": {"in": ["x" * 100] * 100}},
    ],
)
def test_a_wrong_filter_is_refused_where_it_is_written(where):
    with refuses(InvalidSchedule, field="filter"):
        on_event("e", where=where)


def test_an_operator_that_is_almost_right_is_recognized():
    with pytest.raises(InvalidSchedule, match="did you mean 'exists'"):
        on_event("e", where={"a": {"exist": True}})


@pytest.mark.parametrize("name", ["", None, 5, "x" * 300, "a\0b"])
def test_a_wrong_name_is_refused(name):
    with refuses(InvalidSchedule, field="event"):
        on_event(name)


def test_it_is_written_and_read_as_the_same():
    one = on_event("file.uploaded", where={"size": {"gt": 0}, "kind": "csv"})

    said = {"event": "file.uploaded", "filter": {"kind": "csv", "size": {"gt": 0}}}
    assert one.to_dict() == said
    assert Schedule.parse(said) == Schedule.from_json(one.to_json()) == one
    assert one.to_json().startswith('{"event":')
    assert Schedule.parse({"event": "a", "filter": None}).to_dict() == {"event": "a"}
    assert one.next_after(0.0) is None


def test_it_is_described():
    where = {"size": {"gt": 0}, "path": {"exists": True}, "kind": "csv"}
    one = on_event("file.uploaded", where=where)

    assert one.describe() == (
        'When an event file.uploaded comes with kind = "csv", path is there and size > 0'
    )
    assert on_event("a").describe() == "When an event a comes"


def test_it_takes_no_options_of_times_and_is_no_part_of_a_union():
    with pytest.raises(InvalidSchedule):
        Schedule.parse({"event": "a", "jitter": "5s"})
    with pytest.raises(InvalidSchedule):
        any_of(cron("0 9 * * *"), on_event("a"))


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "ab"])
DATA = st.recursive(SCALARS, lambda one: st.dictionaries(st.sampled_from("ab"), one), max_leaves=6)


@given(DATA, st.sampled_from(["a", "b", "a.b"]), SCALARS)
def test_a_bare_value_is_the_only_one_of_a_list(data, path, value):
    assert accepts({path: value}, data) == accepts({path: {"in": [value]}}, data)
    assert accepts({path: value}, data) <= accepts({path: {"exists": True}}, data)


@given(DATA, st.integers(-5, 5))
def test_a_number_is_above_below_or_equal(data, value):
    met = [accepts({"a": {name: value}}, data) for name in ("gt", "lt")] + [
        accepts({"a": value}, data)
    ]
    assert sum(met) == (isinstance(data, dict) and type(data.get("a")) is int)


def test_the_event_is_an_argument():
    said = json.loads(fill_args('{"n":1}', EVENT))

    assert said.pop("n") == 1
    assert said == {
        "event": {
            "id": "1",
            "source": "/s3",
            "name": "file.uploaded",
            "data": {"path": "a"},
            "time": None,
            "received_at": "2001-09-09T01:46:40Z",
        }
    }


def test_an_argument_named_event_stays():
    assert json.loads(fill_args('{"event":5}', EVENT)) == {"event": 5}


@pytest.mark.parametrize(
    ("path", "value"),
    [("data.path", "a"), ("data", {"path": "a"}), ("name", "file.uploaded"), ("data.x.y", None)],
)
def test_parts_of_it_fill_arguments(path, value):
    args = payload.encode({"of": {"event": path}, "n": {"event": 5}})

    assert json.loads(fill_args(args, EVENT)) == {"of": value, "n": {"event": 5}}
    assert json.loads(without_event(args)) == {"n": {"event": 5}}
    assert json.loads(sample_args(args)).keys() == {"of", "n"}


@pytest.mark.parametrize("path", ["", "path", "data..path", "type", "date.path"])
def test_a_path_to_nowhere_is_refused(path):
    with refuses(UsageError, field="args.of"):
        check_event_args(payload.encode({"of": {"event": path}}))
