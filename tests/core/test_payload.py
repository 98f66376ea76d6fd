"""JSON in and out: everything that fits survives, everything else is named."""

import dataclasses
import enum
import functools
import json
import time
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core.limits import ARGS_BYTES_MAX, PAYLOAD_DEPTH_MAX
from daybell.core.payload import decode, encode
from daybell.errors import PayloadError, PayloadTooLarge
from tests.core.labels import label
from tests.refusals import refuses

NAN = float("nan")

plain_text = st.text(st.characters(exclude_categories=()), max_size=20)
halves = st.sampled_from(["\ud800", "a\udfff", "\ud83d", "\udc00\ud800", "\0\ud800"])
numbers = (
    st.integers()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def json_values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
        max_leaves=20,
    )


def nested(depth: int, *innermost: Any) -> list[Any]:
    return functools.reduce(lambda inner, _: [inner], range(depth - 1), list(innermost))


class Colour(enum.Enum):
    RED = "red"
    MIXED = (1, 2)
    STRANGE = NAN


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Order(msgspec.Struct):
    item: Any
    note: str | msgspec.UnsetType = msgspec.UNSET


class Model:
    """Looks like a pydantic model."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def model_dump(self, *, mode: str, by_alias: bool) -> Any:
        assert (mode, by_alias) == ("json", True)
        return {"data": self.data}


class Text(str):
    def __str__(self) -> str:
        return "not me"


class Number(int):
    pass


@given(json_values(st.text(max_size=20)))
def test_any_json_value_survives(value):
    assert decode(encode(value)) == value


@given(json_values(plain_text | halves))
def test_half_surrogate_pairs_survive_at_any_depth_and_in_keys(value):
    text = encode(value)

    # Two halves in a row are the character they make: JSON has no way to keep them apart.
    assert decode(text) == joined(value)
    assert "\0" not in text
    text.encode()


def joined(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({"a": None}, '{"a":null}'),
        ("null", '"null"'),
        (datetime(2026, 11, 15, 12, tzinfo=UTC), '"2026-11-15T12:00:00Z"'),
        (date(2026, 11, 15), '"2026-11-15"'),
        (timedelta(hours=1), '"PT3600S"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.10"), '"1.10"'),
        (Colour.RED, '"red"'),
        (Colour.MIXED, "[1,2]"),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        (frozenset(), "[]"),
        (b"hi", '"aGk="'),
        (Point(1, Point(2)), '{"x":1,"y":{"x":2,"y":0}}'),
        (Order(item=[1]), '{"item":[1]}'),
        (Model([Model(1)]), '{"data":[{"data":1}]}'),
        (Text("hi"), '"hi"'),
        (Number(3), "3"),
        ({1: "a", Colour.RED: "b"}, '{"1":"a","red":"b"}'),
        (2**200, str(2**200)),
        ("a\0b", r'"a\u0000b"'),
        ("\ud800", r'"\ud800"'),
        ({UUID(int=1): "\ud800"}, r'{"00000000-0000-0000-0000-000000000001":"\ud800"}'),
        (Point("\udc00", Text("\0")), r'{"x":"\udc00","y":"\u0000"}'),
        ({"__class__": "os.system", "__proto__": 1}, '{"__class__":"os.system","__proto__":1}'),
    ],
    ids=label,
)
def test_what_is_accepted_is_written_like_this(value, text):
    assert encode(value) == text
    json.loads(text)


PASS = "pass text, numbers, lists, dicts, dates, a dataclass or a model"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), f"args: cannot be stored as JSON: object; {PASS}"),
        (
            {"items": [0, 1, 2, {"when": object()}]},
            f"args.items[3].when: cannot be stored as JSON: object; {PASS}",
        ),
        (
            {"a b": {7: len}},
            f"args['a b'][7]: cannot be stored as JSON: builtin_function_or_method; {PASS}",
        ),
        ([Point(1, {2j})], f"args[0].y[0]: cannot be stored as JSON: complex; {PASS}"),
        (Order(item=Point), f"args.item: cannot be stored as JSON: type; {PASS}"),
        ({"m": Model(object())}, f"args.m.data: cannot be stored as JSON: object; {PASS}"),
        ({"a": "\ud800", "b": object()}, f"args.b: cannot be stored as JSON: object; {PASS}"),
        (iter([1]), f"args: cannot be stored as JSON: list_iterator; {PASS}"),
        (NAN, "args: nan is not a JSON number; pass None or text"),
        ({"a": [1.0, float("-inf")]}, "args.a[1]: -inf is not a JSON number; pass None or text"),
        ({"n": None, "p": Point(NAN)}, "args.p.x: nan is not a JSON number; pass None or text"),
        ({"s": {NAN}}, "args.s[0]: nan is not a JSON number; pass None or text"),
        (Order(item=NAN), "args.item: nan is not a JSON number; pass None or text"),
        (Model(NAN), "args.data: nan is not a JSON number; pass None or text"),
        ([Colour.STRANGE], "args[0]: nan is not a JSON number; pass None or text"),
        (["\ud800", NAN], "args[1]: nan is not a JSON number; pass None or text"),
        ({"\ud800": 1, (1,): 1}, "args: (1,) cannot be a key in JSON; use text"),
        ({(1, 2): 1}, "args: (1, 2) cannot be a key in JSON; use text"),
        ([OrderedDict({None: 1})], "args[0]: None cannot be a key in JSON; use text"),
        ([10**4300], "args[0]: an integer of more than 4,300 digits; pass it as text"),
    ],
    ids=label,
)
def test_what_json_cannot_hold_is_refused_by_its_path(value, message):
    with pytest.raises(PayloadError) as refusal:
        encode(value)

    assert str(refusal.value) == message


def test_the_path_begins_with_what_it_is():
    with refuses(PayloadError, field="result"):
        encode({"x": object()}, what="result")


def test_attrs_classes_are_accepted_and_looked_into():
    attrs = pytest.importorskip("attrs")
    cls = attrs.make_class("Cls", ["x"])

    assert encode(cls(1)) == '{"x":1}'
    with pytest.raises(PayloadError, match=r"^args\.x: nan"):
        encode(cls(NAN))


def test_pydantic_models_are_accepted():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", when=(date, ...))

    assert encode([model(when=date(2026, 11, 15))]) == '[{"when":"2026-11-15"}]'


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger():
    assert len(encode("x" * (ARGS_BYTES_MAX - 2))) == ARGS_BYTES_MAX

    with pytest.raises(PayloadTooLarge) as refusal:
        encode("é" * (ARGS_BYTES_MAX // 2))

    assert str(refusal.value) == (
        "args is 1,048,578 bytes of JSON; the limit is 1,048,576. Store it elsewhere and pass "
        "its address"
    )


def test_a_payload_may_be_as_deep_as_the_limit_and_no_deeper():
    deepest = nested(PAYLOAD_DEPTH_MAX)
    for fits in (deepest, [*nested(PAYLOAD_DEPTH_MAX), []], nested(PAYLOAD_DEPTH_MAX, "\ud800")):
        assert decode(encode(fits)) == fits

    for too_deep in (nested(65), nested(65, "\ud800"), {"a": nested(500)}, nested(5000)):
        with refuses(PayloadError, field="args"):
            encode(too_deep)


def test_a_value_that_contains_itself_is_refused():
    endless: list[Any] = []
    endless.append(endless)

    with refuses(PayloadError, field="args"):
        encode(endless)


@pytest.mark.parametrize(
    "wide", [[[1]] * 1000, ["[[[{{{"] * 100, {'"[': ['\\"[{'] * 100}, [{"]": "}"}] * 100], ids=label
)
def test_many_brackets_side_by_side_or_in_text_are_not_depth(wide):
    assert decode(encode(wide)) == wide


def test_brackets_in_text_do_not_hide_depth():
    hidden = functools.reduce(lambda inner, _: ["]]]\\", inner], range(70), "]")

    with refuses(PayloadError, field="args"):
        encode(hidden)
    with refuses(PayloadError, field="payload"):
        decode(json.dumps(hidden))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "payload is not JSON that can be read: it ends too early, after byte 0"),
        ('{"é": ', "payload is not JSON that can be read: it ends too early, after byte 7"),
        ("[1,]", "payload is not JSON that can be read: JSON is malformed: "),
        ("NaN", "payload is not JSON that can be read: JSON is malformed: "),
        ("1e999", "payload is not JSON that can be read: Number out of range"),
        ("9" * 100_000, "payload is not JSON that can be read: Integer value out of range"),
        (r'["\ud800", NaN]', "payload is not JSON that can be read: NaN is not a JSON number"),
        (r'["\ud800", 1e999]', "payload is not JSON that can be read: Number out of range"),
        (r'["\ud800", ' + "9" * 100_000, "payload is not JSON that can be read: Exceeds the limit"),
        ('"a\0"', "payload is not JSON that can be read: JSON is malformed: "),
        ("\ud800", "payload is not JSON that can be read: Expecting value"),
        ("[" * 65 + "]" * 65, "payload: nested deeper than 64 levels"),
        ("[" * 100_000 + "]" * 100_000, "payload: nested deeper than 64 levels"),
        ("[" * 100_000, "payload: nested deeper than 64 levels"),
        ('{"a":' * 100_000, "payload: nested deeper than 64 levels"),
        (r'["\ud800", ' + "[" * 100_000, "payload: nested deeper than 64 levels"),
    ],
    ids=label,
)
def test_hostile_text_is_refused_at_once(text, message):
    began = time.process_time()

    with pytest.raises(PayloadError) as refusal:
        decode(text)

    assert str(refusal.value).startswith(message)
    assert time.process_time() - began < 1


def test_of_duplicate_keys_the_last_one_wins():
    assert decode('{"a":1,"a":2}') == {"a": 2}


@given(st.text(max_size=50) | st.text('[]{}",:\\ud80eE19.-nulltrue ', max_size=50))
def test_any_text_is_json_or_a_refusal(text):
    try:
        value = decode(text)
    except PayloadError:
        return

    assert decode(encode(value)) == value
