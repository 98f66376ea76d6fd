"""Functions as jobs: arguments by annotation, results as JSON, contexts, loop or thread."""

import asyncio
import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from daybell.core import payload
from daybell.core.retry import Retry
from daybell.errors import InvalidArguments, PayloadError, UsageError
from daybell.runners.python import PythonHandler, Threads, check_function
from tests.refusals import refuses

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


class Claimed:
    """As much of a claimed execution as a handler looks at."""

    def __init__(self, args: str):
        self.args = args


class Running:
    is_cancelled = False
    is_hopeless = is_watchful = False
    patience = 0.0
    durable = ledger = None
    devices: dict[str, list[int]] | None = None

    def __init__(self, args: str):
        self.claimed: Any = Claimed(args)

    def hide(self, values): ...
    def without_secrets(self, text):
        return text

    def report(self, **_): ...
    def say(self, level, source, message, *, length=None): ...
    def print(self, stream, text): ...
    async def begin(self): ...
    async def undo(self): ...


def a_handler(function: Callable[..., Any], **options: Any) -> PythonHandler:
    options.setdefault("store_result", True)
    options.setdefault("context_names", frozenset())
    options.setdefault("enter", lambda running: None)
    options.setdefault("make_context", lambda running: "the context")
    return PythonHandler(function, retry=Retry(), timeout=None, threads=Threads(), **options)


async def ran(function: Callable[..., Any], args: Any = None, **options: Any) -> str | None:
    text = payload.encode({} if args is None else args)
    return await a_handler(function, **options).run(Running(text))


class Colour(Enum):
    RED = "red"
    NUMBER = 3


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Order(msgspec.Struct):
    id: UUID
    lines: list[Point]


class Model:
    """What pydantic's models look like from here."""

    def __init__(self, name):
        self.name = name

    def model_dump(self, **_):
        return {"name": self.name}

    @classmethod
    def model_validate_json(cls, text):
        return cls(payload.decode(text)["name"])

    def __eq__(self, other):
        return isinstance(other, Model) and other.name == self.name


VALUES = {
    "text": (str, "a"),
    "datetime": (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "date": (date, date(2026, 1, 2)),
    "timedelta": (timedelta, timedelta(minutes=5)),
    "uuid": (UUID, UUID(int=7)),
    "decimal": (Decimal, Decimal("1.10")),
    "enum": (Colour, Colour.RED),
    "mixed enum": (Colour, Colour.NUMBER),
    "bytes": (bytes, b"\x00\xff"),
    "dataclass": (Point, Point(1, 2.5)),
    "struct": (Order, Order(UUID(int=1), [Point(1)])),
    "model": (Model, Model("ada")),
    "set": (set[int], {1, 2}),
    "tuple": (tuple[int, str], (1, "a")),
    "optional": (Point | None, None),
    "mapping": (dict[str, Decimal], {"a": Decimal("0.1")}),
}


@pytest.mark.parametrize(("annotation", "value"), VALUES.values(), ids=VALUES)
async def test_an_argument_arrives_as_its_annotation_says(annotation, value):
    got = []

    async def task(value):
        got.append(value)

    task.__annotations__ = {"value": annotation}
    await ran(task, {"value": value})

    assert got == [value]
    assert type(got[0]) is type(value)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (0, "0"),
        (False, "false"),
        ("", '""'),
        ([], "[]"),
        ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
        (Point(1), '{"x":1,"y":0.0}'),
        (Colour.RED, '"red"'),
        (UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (Decimal("1.10"), '"1.10"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
    ],
    ids=repr,
)
async def test_a_result_is_kept_as_json(value, stored):
    async def coroutine():
        return value

    assert await ran(coroutine) == stored
    assert await ran(lambda: value) == stored
    assert await ran(coroutine, store_result=False) is None


async def test_a_result_that_json_cannot_hold_is_refused():
    with refuses(PayloadError, field="result"):
        await ran(lambda: object())
    assert await ran(lambda: object(), store_result=False) is None
    with pytest.raises(PayloadError, match=r"result is .* bytes of JSON"):
        await ran(lambda: "x" * 2_000_000)


async def test_arguments_that_do_not_fit_are_refused_by_name():
    async def task(number: int): ...

    with pytest.raises(InvalidArguments, match=r"task\(\), argument 'number': Expected `int`"):
        await ran(task, {"number": "x"})
    with refuses(InvalidArguments, field="nummer"):
        await ran(task, {"nummer": 1})
    with refuses(InvalidArguments, field="number"):
        await ran(task)


async def test_only_what_is_refused_here_and_not_by_the_function_is_hopeless():
    async def task(number: int = 0):
        if number:
            raise InvalidArguments("of another task")
        return object()

    async def needy(number): ...

    async def is_hopeless(function, args):
        running = Running(payload.encode(args))
        with pytest.raises(UsageError):
            await a_handler(function).run(running)
        return running.is_hopeless

    assert await is_hopeless(task, {"number": "x"})
    assert await is_hopeless(task, {"unknown": 1})
    assert await is_hopeless(task, {})  # whose result cannot be kept
    assert await is_hopeless(needy, {})
    assert not await is_hopeless(task, {"number": 1})


async def where() -> int:
    return threading.get_ident()


def where_sync() -> int:
    return threading.get_ident()


class Callables:
    async def __call__(self) -> int:
        return threading.get_ident()


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def made_async(function):
    """A decorator that has a plain function called by a coroutine."""

    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def made_plain(function):
    """A decorator that has a coroutine run to its end by a plain function."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return asyncio.run(function(*args, **kwargs))

    return wrapper


@pytest.mark.parametrize(
    ("function", "on_the_loop"),
    [
        (where, True),
        (wrapped(where), True),
        (made_async(where_sync), True),
        (functools.partial(where), True),
        (Callables(), True),
        (Callables().__call__, True),
        (functools.partial(Callables()), True),
        (functools.partial(functools.partial(made_async(where_sync))), True),
        (where_sync, False),
        (wrapped(where_sync), False),
        (made_plain(where), False),
        (functools.partial(made_plain(where)), False),
    ],
    ids=[
        "coroutine",
        "decorated",
        "decorated as coroutine",
        "partial",
        "object",
        "method",
        "partial object",
        "partial decorated",
        "function",
        "decorated function",
        "decorated as function",
        "partial decorated as function",
    ],
)
async def test_coroutines_run_on_the_loop_and_functions_in_threads(function, on_the_loop):
    assert (await ran(function) == str(threading.get_ident())) is on_the_loop


def yields():
    yield 1


async def yields_async():
    yield 1


class Yields:
    def __call__(self):
        yield 1


@pytest.mark.parametrize(
    "function",
    [yields, yields_async, Yields(), functools.partial(Yields()), Yields().__call__],
    ids=["generator", "async generator", "object", "partial", "method"],
)
def test_a_function_that_yields_is_no_task(function):
    with pytest.raises(UsageError, match=r"\(\) has a yield in it"):
        check_function(function)


@pytest.mark.parametrize(
    "function", [where, where_sync, Callables(), functools.wraps(yields)(lambda: list(yields()))]
)
def test_a_function_that_does_its_work_when_it_is_called_is_one(function):
    check_function(function)


async def test_context_variables_are_carried_over():
    colour.set("red")

    async def coroutine():
        return colour.get()

    assert await ran(coroutine) == '"red"'
    assert await ran(colour.get) == '"red"'


async def test_what_enter_sets_is_seen_by_the_function():
    def enter(running):
        colour.set("blue")

    async def coroutine():
        return colour.get()

    assert await ran(coroutine, enter=enter) == '"blue"'
    assert await ran(colour.get, enter=enter) == '"blue"'


@pytest.mark.parametrize(
    ("function", "args", "result"),
    [
        (lambda ctx: ctx, {}, '"the context"'),
        (lambda ctx, *rest: [ctx, *rest], {"rest": [1, 2]}, '["the context",1,2]'),
        (lambda ctx, /, n=1: [ctx, n], {"n": 2}, '["the context",2]'),
        (lambda n, *, ctx: [ctx, n], {"n": 2}, '["the context",2]'),
        (lambda n=1, ctx=None: [ctx, n], {}, '["the context",1]'),
    ],
    ids=["alone", "before the rest", "by position", "by name", "with a default"],
)
async def test_the_context_is_given_where_it_is_asked_for(function, args, result):
    assert await ran(function, args, context_names=frozenset({"ctx"})) == result


async def test_errors_come_out_as_they_are():
    async def coroutine():
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await ran(coroutine)
    with pytest.raises(ZeroDivisionError):
        await ran(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ran(lambda: next(iter([])))


async def test_stopping_the_handler_stops_the_coroutine():
    is_running, seen = asyncio.Event(), []

    async def endless():
        is_running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    running = asyncio.ensure_future(ran(endless))
    await is_running.wait()
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["cancelled"]
