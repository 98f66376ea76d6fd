"""Expressions in workflows: conditions on results, and references to data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from daybell.core import payload
from daybell.core.kinds import BY_NAME
from daybell.core.limits import CONDITION_CHARS_MAX, CONDITION_DEPTH_MAX
from daybell.core.references import (
    JOIN,
    LITERAL,
    as_data,
    is_literal,
    is_reference,
    joined_parts,
    joined_text,
    literal,
    map_inside,
    walk,
)
from daybell.errors import InvalidWorkflow, UsageError, shown

_TOKEN: Final = re.compile(
    r"""(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>==|!=|<=|>=|[<>()\[\].,-])
      | (?P<space>\s+)""",
    re.X,
)
_CONSTANTS: Final[dict[str, Any]] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip
# Hints for users of other languages.
_HINTS: Final = {
    "is": "; say == null or != null",
    "if": "; a condition is true or false by itself",
}
_RESERVED: Final = frozenset({"or", "and", "not", "in", "len", "result", *_CONSTANTS})


class Condition(msgspec.Struct, frozen=True):
    """A parsed condition."""

    text: str
    tree: Expression

    @classmethod
    def parse(cls, text: object, *, field: str = "when") -> Condition:
        """Parse a condition. Raises InvalidWorkflow with the position of the error."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidWorkflow(
                f"{field}={shown(text)} must be a condition such as result.rows > 0", field=field
            )
        if len(text) > CONDITION_CHARS_MAX:
            raise InvalidWorkflow(
                f"{field} has {len(text):,} characters; the limit is {CONDITION_CHARS_MAX}",
                field=field,
            )
        return cls(text, _Reader(text, field).whole())

    def holds(self, result: Any) -> bool:
        """Evaluate the condition for a result."""
        return _truth(_value(self.tree, result))


class Constant(msgspec.Struct, frozen=True, tag=True):
    value: Any


class Root(msgspec.Struct, frozen=True, tag=True):
    pass


class PathPart(msgspec.Struct, frozen=True, tag=True):
    of: Expression
    key: Expression


class Listed(msgspec.Struct, frozen=True, tag=True):
    items: tuple[Expression, ...]


class Length(msgspec.Struct, frozen=True, tag=True):
    of: Expression


class Not(msgspec.Struct, frozen=True, tag=True):
    of: Expression


class Junction(msgspec.Struct, frozen=True, tag=True):
    word: str  # and, or
    items: tuple[Expression, ...]


class Comparison(msgspec.Struct, frozen=True, tag=True):
    sign: str
    left: Expression
    right: Expression


Expression = Constant | Root | PathPart | Listed | Length | Not | Junction | Comparison


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Reader:
    """A recursive-descent parser with one method per level of the grammar."""

    def __init__(self, text: str, field: str) -> None:
        self._text = text
        self._field = field
        self._tokens = list(self._split())
        self._place = 0
        self._depth = 0

    def whole(self) -> Expression:
        tree = self._read_or()
        if self._next.kind != "end":
            hint = _HINTS.get(self._next.text, "")
            self._refuse(f"{self._next.text!r} is not expected here{hint}")
        return tree

    def _split(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None:
                raise InvalidWorkflow(
                    f"{self._field} {shown(self._text)}: {self._text[at]!r} at {at + 1} is nothing"
                    " that a condition can have",
                    field=self._field,
                )
            kind = cast("str", found.lastgroup)
            if kind != "space":
                yield _Token(kind, found[0], at)
            at = found.end()
        yield _Token("end", "the end", len(self._text))

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self, *texts: str) -> str | None:
        """Consume the next token if it is one of these."""
        token = self._next
        if token.kind in ("text", "number", "end") or token.text not in texts:
            return None
        self._place += 1
        return token.text

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            self._refuse(f"{text!r} is missing {self._before}")

    @property
    def _before(self) -> str:
        return "at its end" if self._next.kind == "end" else f"before {self._next.text!r}"

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidWorkflow(
            f"{self._field} {shown(self._text)}: {why} (at {self._next.at + 1})", field=self._field
        )

    def _read_or(self) -> Expression:
        self._go_deeper()
        items = [self._read_and()]
        while self._take("or"):
            items.append(self._read_and())
        self._depth -= 1
        return items[0] if len(items) == 1 else Junction("or", tuple(items))

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > CONDITION_DEPTH_MAX:
            self._refuse("it is nested too deeply")

    def _read_and(self) -> Expression:
        items = [self._read_not()]
        while self._take("and"):
            items.append(self._read_not())
        return items[0] if len(items) == 1 else Junction("and", tuple(items))

    def _read_not(self) -> Expression:
        count = 0
        while self._take("not"):
            count += 1
        compared = self._read_comparison()
        if count == 0:
            return compared
        return Not(compared) if count % 2 else Not(Not(compared))

    def _read_comparison(self) -> Expression:
        left = self._read_operand()
        sign = self._take("==", "!=", "<=", ">=", "<", ">", "in", "not")
        if sign is None:
            return left
        if sign == "not":
            self._need("in")
            sign = "not in"
        compared = Comparison(sign, left, self._read_operand())
        if self._take("==", "!=", "<=", ">=", "<", ">", "in") is not None:
            self._place -= 1
            self._refuse("comparisons are joined by `and`, not chained")
        return compared

    def _read_operand(self) -> Expression:
        node = self._read_atom()
        while True:
            if self._take("."):
                token = self._next
                if token.kind != "word":
                    self._refuse("a name is missing after '.'; a list's first item is [0]")
                self._place += 1
                node = PathPart(node, Constant(token.text))
            elif self._take("["):
                self._go_deeper()
                key = self._read_operand()
                self._depth -= 1
                self._need("]")
                node = PathPart(node, key)
            else:
                return node

    def _read_atom(self) -> Expression:
        token = self._next
        if token.kind == "number":
            self._place += 1
            return Constant(_number(token.text))
        if token.kind == "text":
            self._place += 1
            return Constant(_unquote(token.text))
        if self._take("-"):
            number = self._next
            if number.kind != "number":
                self._refuse("a number is missing after '-'")
            self._place += 1
            return Constant(-_number(number.text))
        if self._take("("):
            inner = self._read_or()
            self._need(")")
            return inner
        if self._take("["):
            return self._list()
        if self._take("len"):
            self._need("(")
            inner = self._read_or()
            self._need(")")
            return Length(inner)
        if self._take("result"):
            return Root()
        if token.kind == "word" and token.text in _CONSTANTS:
            self._place += 1
            return Constant(_CONSTANTS[token.text])
        if token.kind == "word" and token.text not in _RESERVED:
            self._refuse(f"{token.text!r} is not known; a condition is about result")
        self._refuse(f"a value, such as 3 or result.rows, is missing {self._before}")

    def _list(self) -> Expression:
        items: list[Expression] = []
        while not self._take("]"):
            items.append(self._read_or())
            if not self._take(","):
                self._need("]")
                break
        return Listed(tuple(items))


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)


def _value(node: Expression, result: Any) -> Any:
    match node:
        case Constant(value):
            return value
        case Root():
            return result
        case PathPart(of, key):
            return _get_part(_value(of, result), _value(key, result))
        case Listed(items):
            return [_value(item, result) for item in items]
        case Length(of):
            value = _value(of, result)
            return len(cast("str", value)) if isinstance(value, str | list | dict) else None
        case Not(of):
            return not _truth(_value(of, result))
        case Junction("and", items):
            return all(_truth(_value(item, result)) for item in items)
        case Junction(_, items):
            return any(_truth(_value(item, result)) for item in items)
        case Comparison(sign, left, right):
            return _compare(sign, _value(left, result), _value(right, result))


def _get_part(value: Any, key: Any) -> Any:
    if isinstance(value, dict) and isinstance(key, str):
        return cast("dict[str, Any]", value).get(key)
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool):
        listed = cast("list[Any]", value)
        return listed[key] if -len(listed) <= key < len(listed) else None
    return None


def _compare(sign: str, left: Any, right: Any) -> bool:
    match sign:
        case "==":
            return _same(left, right)
        case "!=":
            return not _same(left, right)
        case "in" | "not in":
            return _within(left, right) is (sign == "in")
        case _:
            pass
    if not (_is_number(left) and _is_number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        return False
    match sign:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON: true is not a number, and 1 equals 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        ours, theirs = cast("list[Any]", left), cast("list[Any]", right)
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(left, dict) and isinstance(right, dict):
        mine, other = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return mine.keys() == other.keys() and all(_same(mine[key], other[key]) for key in mine)
    return left == right


def _within(item: Any, whole: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(item, str) and item in whole
    if isinstance(whole, list):
        return any(_same(item, one) for one in cast("list[Any]", whole))
    return isinstance(whole, dict) and isinstance(item, str) and item in whole


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _truth(value: Any) -> bool:
    """Convert as Python does: empty values, zero and null are false."""
    return bool(value)


# References in the values of nodes.
#
# {"output": "extract"}                              the result of a node
# {"output": "extract", "path": "body.rows.0"}       a part of it; null if it does not exist
# {"item": true}, {"item": true, "path": "id"}       the item of a mapped node
# {"param": "day"}, {"param": "conf", "path": "x"}   a parameter of the run, or a part of it
#
# Parameters are filled in when the run starts, the rest when a node starts. Settings of nodes
# without code are filled in by the worker, from the arguments. Filled-in values are data: a value
# that looks like a reference to a secret is not one.

OUTPUT: Final = "output"
ITEM: Final = "item"
PATH: Final = "path"
PARAM: Final = "param"
# The argument with the parameters of a node without code. No node has brackets in its name.
PARAMS: Final = "[params]"
# Marks a value that is not known yet: its reference stays.
_LATER: Final = object()


class Output(NamedTuple):
    """A reference to a result; without a node, to a parameter of the run, or to the item."""

    node: str | None
    path: str = ""
    param: str | None = None

    @property
    def is_item(self) -> bool:
        return self.node is None and self.param is None

    def of(self, value: Any) -> Any:
        """Return the part of a value that the path selects."""
        for key in self.path.split(".") if self.path else ():
            value = _get_path_part(value, key)
        return value


def output(value: Any) -> Output | None:
    """Parse a value as a reference; None if it is none."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    path = given.get(PATH, "")
    if len(given) != 1 + (PATH in given) or not isinstance(path, str):
        return None
    named = given.get(OUTPUT)
    if isinstance(named, str):
        return Output(named, path)
    named = given.get(PARAM)
    if isinstance(named, str):
        return Output(None, path, named)
    return Output(None, path) if given.get(ITEM) is True else None


def find_outputs(value: Any) -> Iterator[Output]:
    """Yield all references in a value."""
    return (found for one in walk(value) if (found := output(one)) is not None)


Find = Callable[[Output], Any]


def _fill(value: Any, find: Find, *, is_text: bool = False) -> Any:
    """Replace references with data; as text where the field takes only text, except for null."""
    if (found := output(value)) is not None:
        data = find(found)
        if data is _LATER:
            return value
        data = found.of(data)
        return as_literal(joined_text([data]) if is_text and data is not None else data)
    if is_literal(value):
        return value
    if (parts := joined_parts(value, _refers)) is not None:
        put_in = [_fill(part, find) for part in parts]
        # Joined later: only a worker resolves secrets, and results exist after a node has ended.
        if any(is_reference(part) or _refers(part) for part in put_in):
            return {JOIN: put_in}
        return joined_text(as_data(part) for part in put_in)
    return map_inside(value, lambda one: _fill(one, find, is_text=is_text))


def as_literal(data: Any) -> Any:
    """Return a value that stands for this data, also in places that are searched for references."""
    value = literal(data)
    is_clear = value is not data or next(find_outputs(data), None) is None
    return value if is_clear else {LITERAL: data}


def fill_params(value: Any, given: Mapping[str, Any]) -> Any:
    """Fill in the parameters of the run; other references stay."""
    return _fill(value, _params_of(given)) if given else value


def fill_params_by_name(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in parameters in arguments by name."""
    return {name: fill_params(value, given) for name, value in values.items()}


def may_refer(args: str) -> bool:
    """Return False if the text of arguments has no reference to results or items."""
    return f'"{OUTPUT}"' in args or f'"{ITEM}"' in args


def fill_outputs(args: str, look_up: Callable[[str], Any], item: Any = None) -> str:
    """Fill in references in the text of arguments."""
    if not may_refer(args):
        return args
    put_in = _fill_by_name(_template(args), _data_of(look_up, item))
    return payload.encode(put_in, what="arguments")


@lru_cache(maxsize=16)  # items of a mapped node share it
def _template(args: str) -> dict[str, Any]:
    """Decode arguments. The result is shared: never modify it."""
    return cast("dict[str, Any]", payload.decode(args))


def fill_settings(kind: str, settings: Mapping[str, Any], args: str) -> dict[str, Any]:
    """Fill in the settings of a node without code from the arguments of its execution: results by
    the name of a node, the item as "item", parameters of the run as "[params]". Secrets are
    resolved later.
    """
    came = cast("dict[str, Any]", payload.decode(args))
    data = {name: as_data(value) for name, value in came.items()}
    find = _data_of(data.get, data.get(ITEM), cast("dict[str, Any]", data.get(PARAMS, {})))
    by_name = BY_NAME.get(kind, ())
    put_in: dict[str, Any] = {}
    for name, value in settings.items():
        # Values of commands and messages are text; these are sent as they are.
        is_text = (kind, name) not in (("http", "body"), ("sql", "parameters"))
        if name in by_name:
            inner = cast("Mapping[str, Any]", value)
            put_in[name] = _fill_by_name(inner, find, is_text=is_text)
        else:
            put_in[name] = _fill(value, find, is_text=is_text)
    return put_in


def _fill_by_name(
    values: Mapping[str, Any], find: Find, *, is_text: bool = False
) -> dict[str, Any]:
    """Fill in values by name. The mapping itself is no reference, even with a key "output"."""
    return {name: _fill(value, find, is_text=is_text) for name, value in values.items()}


def _params_of(given: Mapping[str, Any]) -> Find:
    return lambda one: _LATER if one.param is None else given.get(one.param, _LATER)


def _data_of(
    look_up: Callable[[str], Any], item: Any, params: Mapping[str, Any] | None = None
) -> Find:
    given = params or {}

    def find(one: Output) -> Any:
        if one.param is not None:
            return given.get(one.param, _LATER)
        return item if one.node is None else look_up(one.node)

    return find


def items_of(given: str, look_up: Callable[[str], Any]) -> list[Any]:
    """Return the list that a mapped node iterates over. Raises UsageError if it is not a list."""
    value = payload.decode(given)
    found = output(value)
    if found is not None and found.node is not None:
        value = found.of(look_up(found.node))
    else:
        value = as_data(value)  # a parameter of the run, already filled in
    if not isinstance(value, list):
        raise UsageError(f"it is mapped over {shown(value)}, which is no list", field="map")
    return cast("list[Any]", value)


def check_path(path: str, *, field: str) -> None:
    """Reject a path with an empty part."""
    if any(not part for part in path.split(".")):
        raise InvalidWorkflow(f"path {shown(path)} has an empty part", field=field)


def _refers(value: Any) -> bool:
    return output(value) is not None


def _get_path_part(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).get(key)
    if isinstance(value, list) and key.removeprefix("-").isdecimal():
        listed, place = cast("list[Any]", value), int(key)
        return listed[place] if -len(listed) <= place < len(listed) else None
    return None
