"""From a call to stored arguments and back into the function."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybell.core import payload
from daybell.core.limits import LIST_VALUE_BYTES_MAX
from daybell.core.payload import bind, convert, decode, describe, encode, spread
from daybell.errors import InvalidArguments, UsageError
from tests.core.labels import label
from tests.refusals import refuses

CTX = frozenset({"ctx"})


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "text"
    PAIR = (1, 2)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(msgspec.Struct):
    points: list[Point]


class Model:
    """Looks like a pydantic model."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def model_dump(self, *, mode: str, by_alias: bool) -> Any:
        return {"name": self.name}

    @classmethod
    def model_validate_json(cls, text: str) -> Model:
        data = decode(text)
        if "name" not in data:
            raise ValueError("name is missing")
        return cls(data["name"])


def send(to: str, subject: str = "", *, copies: int = 1) -> None: ...


def report(ctx: Any, day: date) -> None: ...


def gather(first: int, *rest: int, sep: str = ",", **labels: int) -> None: ...


def strict(a: int, b: int = 2, /, c: int = 3) -> None: ...


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (send, ("a",), {}, {"to": "a"}),
        (send, ("a", "b"), {"copies": 2}, {"to": "a", "subject": "b", "copies": 2}),
        (report, ("2026-11-15",), {}, {"day": "2026-11-15"}),
        (report, (), {"day": 1}, {"day": 1}),
        (gather, (1, 2, 3), {"x": 4}, {"first": 1, "rest": [2, 3], "x": 4}),
        (strict, (1,), {"c": 5}, {"a": 1, "c": 5}),
        (nothing, (), {}, {}),
    ],
    ids=label,
)
def test_a_call_is_stored_by_name_without_defaults(function, args, kwargs, expected):
    assert bind(function, args, kwargs, skip=CTX) == expected


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "message"),
    [
        (send, (), {}, "send() is missing 'to'"),
        (
            send,
            ("a", "b", 3),
            {},
            "send() was given 3 positional arguments and takes 2 (to, subject)",
        ),
        (nothing, (1,), {}, "nothing() was given 1 positional arguments and takes none"),
        (send, ("a",), {"to": "b"}, "send() was given 'to' twice"),
        (
            send,
            ("a",),
            {"subjekt": "x"},
            "send() has no argument 'subjekt'; did you mean 'subject'?",
        ),
        (send, ("a",), {"q": 1}, "send() has no argument 'q'; it takes to, subject, copies"),
        (nothing, (), {"q": 1}, "nothing() has no argument 'q'; it takes none"),
        (report, (), {}, "report() is missing 'day'"),
        (report, (), {"ctx": 1, "day": 2}, "report(): 'ctx' is filled by the worker; leave it out"),
        (
            gather,
            (1,),
            {"rest": 1},
            "gather(): 'rest' can only be given by position; leave it out",
        ),
        (gather, (1,), {"first": 1}, "gather() was given 'first' twice"),
    ],
    ids=label,
)
def test_a_call_that_would_fail_is_refused_with_the_reason(function, args, kwargs, message):
    with pytest.raises(InvalidArguments) as refusal:
        bind(function, args, kwargs, skip=CTX)

    assert str(refusal.value) == message


def taking(annotation: Any, *, default: Any = inspect.Parameter.empty) -> Callable[..., Any]:
    """A function whose only parameter `it` has this annotation."""

    def task(it: Any) -> Any:
        return it

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameter = inspect.Parameter("it", kind, annotation=annotation, default=default)
    task.__signature__ = inspect.Signature([parameter])  # pyright: ignore[reportFunctionMemberAccess]
    return task


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 3),
        (float, 0.5),
        (datetime, datetime(2026, 11, 15, 12, tzinfo=UTC)),
        ("datetime", datetime(2026, 11, 15, 12, tzinfo=UTC)),
        (date, date(2026, 11, 15)),
        (timedelta, timedelta(minutes=5)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (list[Colour], [Colour.BLUE]),
        (Mixed, Mixed.ONE),
        (Mixed, Mixed.TEXT),
        (Mixed, Mixed.PAIR),
        (Point, Point(1, 2)),
        (Point | None, None),
        (Order, Order(points=[Point(1)])),
        (Model, Model("x")),
        (list[Model], [Model("x"), Model("y")]),
        ("Model | None", Model("x")),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[int, Point], {1: Point(2)}),
        (bytes, b"\x00\xff"),
        (str, "\ud800\0"),
    ],
    ids=label,
)
def test_an_annotated_argument_comes_back_as_what_it_was(annotation, value):
    function = taking(annotation)

    stored = encode(bind(function, (value,), {}))

    assert convert(function, decode(stored)) == {"it": value}
    assert type(convert(function, decode(stored))["it"]) is type(value)


@pytest.mark.parametrize(
    "annotation",
    [Any, inspect.Parameter.empty, "Missing", "list[Missing]", "1 +", list[Mixed], 3, "send"],
    ids=label,
)
def test_an_annotation_that_means_nothing_here_passes_the_data_through(annotation):
    assert convert(taking(annotation), {"it": {"a": [1]}}) == {"it": {"a": [1]}}


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (int, "3", "Expected `int`, got `str`"),
        (int, None, "Expected `int`, got `null`"),
        (datetime, "tomorrow", "Invalid RFC3339 encoded datetime"),
        (list[Point], [{"x": 1}, {"x": "a"}], "Expected `int`, got `str` - at `it[1].x`"),
        (Colour, "green", "'green' is not one of 'red', 'blue'"),
        (Mixed, True, "True is not one of 1, 'text', (1, 2)"),
        (Model, {}, "name is missing"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "Expected `int` >= 1"),
        (Callable[[], int], 1, "Expected `Callable`, got `int`"),
    ],
    ids=label,
)
def test_an_argument_that_does_not_fit_is_refused_by_name(annotation, value, reason):
    with pytest.raises(InvalidArguments) as refusal:
        convert(taking(annotation), {"it": value})

    assert str(refusal.value) == f"task(), argument 'it': {reason}"
    assert refusal.value.field == "it"


def test_none_is_allowed_where_it_is_the_default():
    assert convert(taking(int, default=None), {"it": None}) == {"it": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([1], "send() takes its arguments as an object by name, not [1]"),
        (None, "send() takes its arguments as an object by name, not None"),
        ({}, "send() is missing 'to'"),
        (
            {"to": "a", "x" * 10**6: 1},
            f"send() has no argument '{'x' * 59}…; it takes to, subject, copies",
        ),
    ],
    ids=label,
)
def test_stored_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(InvalidArguments) as refusal:
        convert(send, arguments)

    assert str(refusal.value) == message


def test_star_arguments_are_converted_one_by_one():
    arguments = {"first": 1, "rest": [2, 3], "x": 4}
    assert convert(gather, arguments) == arguments

    with pytest.raises(
        InvalidArguments, match=r"'rest': Expected `int`, got `str` - at `rest\[0\]`"
    ):
        convert(gather, {"first": 1, "rest": ["a"]})
    with pytest.raises(InvalidArguments, match="'x': Expected `int`"):
        convert(gather, {"first": 1, "x": "a"})


@pytest.mark.parametrize(
    ("function", "arguments", "args", "kwargs"),
    [
        (send, {"to": "a", "copies": 2}, [], {"to": "a", "copies": 2}),
        (gather, {"first": 1, "x": 2}, [], {"first": 1, "x": 2}),
        (gather, {"first": 1, "rest": [2, 3], "x": 4}, [1, 2, 3], {"x": 4}),
        (strict, {"a": 1}, [1], {}),
        (strict, {"a": 1, "b": 5, "c": 6}, [1, 5], {"c": 6}),
    ],
    ids=label,
)
def test_arguments_by_name_are_spread_into_a_call(function, arguments, args, kwargs):
    assert spread(function, arguments) == (args, kwargs)


def test_a_gap_before_a_positional_argument_is_filled_with_the_default():
    def spaced(a: int = 1, b: int = 2, /, *rest: int) -> None: ...

    assert spread(spaced, {"b": 5}) == ([1, 5], {})
    assert spread(spaced, {"rest": [7]}) == ([1, 2, 7], {})


def test_a_decorated_function_is_seen_through():
    @functools.wraps(send)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    assert bind(wrapped, ("a",), {"copies": 2}) == {"to": "a", "copies": 2}
    with pytest.raises(InvalidArguments, match="'copies': Expected `int`"):
        convert(wrapped, {"to": "a", "copies": "2"})


def test_pydantic_models_come_back_by_annotation():
    pydantic = pytest.importorskip("pydantic")
    fields: dict[str, Any] = {
        "when": (date, pydantic.Field(alias="When")),
        "__config__": {"strict": True},
    }
    model = pydantic.create_model("Strict", **fields)
    function = taking(list[model])
    value = [model(When=date(2026, 11, 15))]

    assert convert(function, decode(encode(bind(function, (value,), {})))) == {"it": value}
    with refuses(InvalidArguments, field="it"):
        convert(function, {"it": [{"When": "soon"}]})


def echo(a: Any, b: Any = 2, /, c: Any = 3, *rest: Any, d: Any = 4, **more: Any) -> Any:
    return a, b, c, rest, d, more


@given(
    st.lists(st.integers(), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(["d", "e", "f"]), st.integers()),
)
def test_a_stored_call_is_the_same_call(args, kwargs):
    stored = decode(encode(bind(echo, args, kwargs)))
    again, named = spread(echo, convert(echo, stored))

    assert echo(*again, **named) == echo(*args, **kwargs)


def test_a_schema_describes_each_parameter_that_a_caller_gives():
    def draw(
        ctx, path: str, colour: Colour, at: Point, model: Model, plain, day: date = date(2026, 1, 2)
    ): ...

    schema = describe(draw, skip=CTX)

    assert schema["required"] == ["path", "colour", "at", "model", "plain"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "path": {"type": "string"},
        "colour": {"$ref": "#/$defs/Colour"},
        "at": {"$ref": "#/$defs/Point"},
        "model": {},
        "plain": {},
        "day": {"type": "string", "format": "date", "default": "2026-01-02"},
    }
    assert schema["$defs"]["Colour"]["enum"] == ["blue", "red"]


def test_a_schema_takes_other_names_for_double_starred_parameters_only():
    def gather(*paths: str, **rest: int): ...

    schema = describe(gather)

    assert schema["properties"] == {"paths": {"type": "array", "items": {"type": "string"}}}
    assert (schema["required"], schema["additionalProperties"]) == ([], True)


def test_a_large_schema_has_only_names():
    wide = enum.Enum("wide", {f"x{n}": "y" * 100 + str(n) for n in range(200)})

    def take(one): ...

    take.__annotations__["one"] = wide

    assert describe(take)["properties"] == {"one": {}}
    assert len(encode(describe(take))) < LIST_VALUE_BYTES_MAX


def plain_call(number: int, ref: float, sleep: float = 0.5) -> None: ...
def loose_call(a, /, b: int = cast(int, None), *, c: list[Point] = [], d: Any = 1) -> None: ...  # noqa: B006
def wide_call(a: int, *rest: int, **more: str) -> None: ...
def context_call(number: int, ctx: object, ref: float = 0.5, *, more: object = None) -> None: ...
def typed_call(ctx: object, when: datetime, parcel: Point, by: Colour = Colour.RED) -> None: ...


@pytest.mark.parametrize("function", [plain_call, loose_call, wide_call, context_call, typed_call])
@pytest.mark.parametrize(
    "text",
    [
        '{"number":1,"ref":2}', '{"number":1,"ref":2.5,"sleep":1,"sleep":3}', '{"number":"1"}',
        '{"number":1,"ref":null}', '{"number":1,"ref":2,"ctx":3}', "{}", "[]", "{", "null",
        '{"number":99999999999999999999999,"ref":1e2}', '{"number":1.0,"ref":1,"x":1}',
        '{"a":1}', '{"a":"\\ud800"}', '{"a":{"b":[1,2]},"b":null,"c":[{"x":1}],"d":null}',
        '{"a":1,"b":"x"}', '{"a":1,"c":[{"x":"x"}]}', '{"a":%s}' % ("[" * 300 + "]" * 300),
        '{"a":1,"rest":[1,2],"more":"x"}', '{"a":1,"rest":["x"]}',
        '{"when":"2026-01-01T00:00:00Z","parcel":{"x":1,"y":2}}',
        '{"when":"2026-01-01T00:00:00Z","parcel":{"x":1},"by":"red"}',
        '{"when":"x","parcel":{"x":1},"by":"blue"}',
    ],
)  # fmt: skip
def test_stored_arguments_are_read_at_once_as_they_are_step_by_step(function, text):
    def step_by_step():
        return reader.arrange(payload.decode(text, what="args"), lambda: "filled")

    def call(read):
        try:
            args, kwargs = read()
            bound = inspect.signature(function).bind(*args, **kwargs)
        except UsageError as error:
            return type(error), error.field, str(error)
        bound.apply_defaults()
        return bound.arguments

    reader = payload.CallReader(function, frozenset({"ctx"}) & function.__annotations__.keys())

    assert call(lambda: reader.read(text, lambda: "filled")) == call(step_by_step)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (plain_call, ((1, 2.0, 0.5), {})),
        (context_call, ([1, "filled", 2.0], {"more": None})),
    ],
)
def test_stored_arguments_of_a_common_signature_are_not_converted_one_by_one(
    function, call, monkeypatch
):
    reader = payload.CallReader(function, frozenset({"ctx"}) & function.__annotations__.keys())
    monkeypatch.setattr(payload, "convert", None)

    assert reader.read('{"number":1,"ref":2}', lambda: "filled") == call
