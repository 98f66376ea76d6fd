"""Conditions on a parent's result: `result.rows > 0 and result.kind in ["a", "b"]`.

A small language of its own, read into a tree and never run as code:

    or  and  not    == != < <= > >=  in  not in    ( )    [a, b]
    12  -1.5  "text"  true  false  null    result  result.name  result["name"]  result[0]  len(x)

What is not there is null. Values of different types are unequal, and neither is less than the
other; only numbers and texts have an order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from daybell.core.limits import CONDITION_CHARS_MAX, CONDITION_DEPTH_MAX
from daybell.errors import InvalidWorkflow, shown

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
# What people who know other languages write instead.
_HINTS: Final = {
    "is": "; say == null or != null",
    "if": "; a condition is true or false by itself",
}
_RESERVED: Final = frozenset({"or", "and", "not", "in", "len", "result", *_CONSTANTS})


class Condition(msgspec.Struct, frozen=True):
    """A condition that was read."""

    text: str
    tree: Node

    @classmethod
    def parse(cls, text: object, *, field: str = "when") -> Condition:
        """Read a condition. Raises InvalidWorkflow, and says where it went wrong."""
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
        """Whether it is true of a result."""
        return _truth(_value(self.tree, result))


class Constant(msgspec.Struct, frozen=True, tag=True):
    value: Any


class Root(msgspec.Struct, frozen=True, tag=True):
    pass


class Part(msgspec.Struct, frozen=True, tag=True):
    of: Node
    key: Node


class Listed(msgspec.Struct, frozen=True, tag=True):
    items: tuple[Node, ...]


class Length(msgspec.Struct, frozen=True, tag=True):
    of: Node


class Not(msgspec.Struct, frozen=True, tag=True):
    of: Node


class Junction(msgspec.Struct, frozen=True, tag=True):
    word: str  # and, or
    items: tuple[Node, ...]


class Comparison(msgspec.Struct, frozen=True, tag=True):
    sign: str
    left: Node
    right: Node


Node = Constant | Root | Part | Listed | Length | Not | Junction | Comparison


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Reader:
    """Reads by descent, one method per level of the grammar."""

    def __init__(self, text: str, field: str) -> None:
        self._text = text
        self._field = field
        self._tokens = list(self._split())
        self._place = 0
        self._depth = 0

    def whole(self) -> Node:
        tree = self._either()
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
        """The next token, if it is one of these."""
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

    def _either(self) -> Node:
        self._go_deeper()
        items = [self._both()]
        while self._take("or"):
            items.append(self._both())
        self._depth -= 1
        return items[0] if len(items) == 1 else Junction("or", tuple(items))

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > CONDITION_DEPTH_MAX:
            self._refuse("it is nested too deeply")

    def _both(self) -> Node:
        items = [self._negated()]
        while self._take("and"):
            items.append(self._negated())
        return items[0] if len(items) == 1 else Junction("and", tuple(items))

    def _negated(self) -> Node:
        count = 0
        while self._take("not"):
            count += 1
        compared = self._compared()
        if count == 0:
            return compared
        return Not(compared) if count % 2 else Not(Not(compared))

    def _compared(self) -> Node:
        left = self._operand()
        sign = self._take("==", "!=", "<=", ">=", "<", ">", "in", "not")
        if sign is None:
            return left
        if sign == "not":
            self._need("in")
            sign = "not in"
        compared = Comparison(sign, left, self._operand())
        if self._take("==", "!=", "<=", ">=", "<", ">", "in") is not None:
            self._place -= 1
            self._refuse("comparisons are joined by `and`, not chained")
        return compared

    def _operand(self) -> Node:
        node = self._atom()
        while True:
            if self._take("."):
                token = self._next
                if token.kind != "word":
                    self._refuse("a name is missing after '.'; a list's first item is [0]")
                self._place += 1
                node = Part(node, Constant(token.text))
            elif self._take("["):
                self._go_deeper()
                key = self._operand()
                self._depth -= 1
                self._need("]")
                node = Part(node, key)
            else:
                return node

    def _atom(self) -> Node:
        token = self._next
        if token.kind == "number":
            self._place += 1
            return Constant(_number(token.text))
        if token.kind == "text":
            self._place += 1
            return Constant(_unquoted(token.text))
        if self._take("-"):
            number = self._next
            if number.kind != "number":
                self._refuse("a number is missing after '-'")
            self._place += 1
            return Constant(-_number(number.text))
        if self._take("("):
            inner = self._either()
            self._need(")")
            return inner
        if self._take("["):
            return self._list()
        if self._take("len"):
            self._need("(")
            inner = self._either()
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

    def _list(self) -> Node:
        items: list[Node] = []
        while not self._take("]"):
            items.append(self._either())
            if not self._take(","):
                self._need("]")
                break
        return Listed(tuple(items))


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)


def _value(node: Node, result: Any) -> Any:
    match node:
        case Constant(value):
            return value
        case Root():
            return result
        case Part(of, key):
            return _part(_value(of, result), _value(key, result))
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


def _part(value: Any, key: Any) -> Any:
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
    """As JSON: true is no number, but 1 and 1.0 are one."""
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
    """As Python has it: empty, zero and null are false."""
    return bool(value)
