"""References to secrets and parameters in settings and arguments, and reading of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from daybell.core.limits import SECRET_NAME_CHARS_MAX
from daybell.errors import InvalidName, UsageError, shown, suggested

Noun = Literal["secret", "parameter"]

NOUNS: Final[tuple[Noun, ...]] = ("secret", "parameter")
JOIN: Final = "join"
LITERAL: Final = "as_is"
# The text of a value with a reference to a secret contains this.
SECRET_MARK: Final = '"secret"'
_LITERAL_MARK: Final = f'"{LITERAL}"'
# References, also those of workflows (see `core.workflow.expressions`), with the keys that are
# valid beside them.
_BESIDE: Final = {
    **{noun: () for noun in (*NOUNS, JOIN)},
    **{noun: ("path",) for noun in ("output", "param", "item")},
}


def may_refer(args: str) -> bool:
    """Return False if the text of arguments has neither secrets nor literals to resolve."""
    return SECRET_MARK in args or _LITERAL_MARK in args


def reference(value: Any, noun: Noun) -> str | None:
    """Return the name that a value refers to; None if it is no reference."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    named = given.get(noun) if len(given) == 1 else None
    return named if isinstance(named, str) else None


def is_reference(value: Any) -> bool:
    """Return True for a reference, or a join that contains one."""
    if not isinstance(value, dict):
        return False
    if any(reference(value, noun) is not None for noun in NOUNS):
        return True
    return joined_parts(value, is_reference) is not None


def literal(value: Any) -> Any:
    """Return a value that stands for this data; plain data stands for itself."""
    if isinstance(value, str | int | float | None):
        return value  # most values
    is_plain = not any(is_reference(one) or is_literal(one) for one in walk(value))
    return value if is_plain else {LITERAL: value}


def is_literal(value: Any) -> bool:
    """Return True for {"as_is": …}."""
    return isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1 and LITERAL in value


def as_data(value: Any) -> Any:
    """Unwrap a literal."""
    return value[LITERAL] if is_literal(value) else value


def names_in(value: Any, noun: Noun = "secret") -> set[str]:
    """Return the names of all secrets, or parameters, that a value refers to."""
    return {named for one in walk(value) if (named := reference(one, noun)) is not None}


def names_in_args(args: Mapping[str, Any]) -> set[str]:
    """Return the names of all secrets in arguments."""
    return set[str]().union(*(names_in(value) for value in args.values()))


def fill_references(value: Any, noun: Noun, look_up: Callable[[str], Any]) -> Any:
    """Resolve references of one kind. A join becomes text when its parts have no references."""
    if (named := reference(value, noun)) is not None:
        return look_up(named)
    if is_literal(value):
        return value[LITERAL] if noun == "secret" else value  # secrets are resolved last
    if (parts := joined_parts(value, is_reference)) is not None:
        put_in = [fill_references(part, noun, look_up) for part in parts]
        if noun != "secret" and any(map(is_reference, put_in)):
            return {JOIN: put_in}
        return joined_text(put_in)
    return map_inside(value, lambda one: fill_references(one, noun, look_up))


def fill_args(args: Mapping[str, Any], look_up: Callable[[str], Any]) -> dict[str, Any]:
    """Resolve the secrets in arguments."""
    return {name: fill_references(value, "secret", look_up) for name, value in args.items()}


def joined_text(parts: Iterable[Any]) -> str:
    """Join parts to one text."""
    return "".join(map(_as_text, parts))


def check_text(value: Any, what: str, *, field: str | None = None) -> Any:
    """Return a text, or a reference to one."""
    if isinstance(value, str):
        if "\0" in value:
            raise UsageError(f"{what} {shown(value)} contains a NUL character", field=field or what)
        return value
    if is_reference(value):
        for named in names_in(value):
            check_secret_name(named)
        return value
    raise UsageError(f"{what}={shown(value)} {_fault(value)}", field=field or what)


def _fault(value: Any) -> str:
    """Describe a value that is neither a text nor a reference."""
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for noun, beside in _BESIDE.items():
        unknown = [key for key in given if key != noun and key not in beside]
        if noun in given and unknown:
            hint = suggested(unknown[0], beside, otherwise="leave it out")
            return f"has {shown(unknown[0])} beside {noun}, which does not belong there; {hint}"
    return 'must be text, or stand for one as {"secret": "NAME"} does'


def check_secret_name(value: object) -> str:
    """Return a valid name of a secret, which is that of an environment variable."""
    name = value if isinstance(value, str) else ""
    if not name.isascii() or not name.isidentifier() or len(name) > SECRET_NAME_CHARS_MAX:
        raise InvalidName(
            f"{shown(value)} cannot name a secret; a name has letters, digits and _, begins with"
            f" no digit, and has at most {SECRET_NAME_CHARS_MAX} characters",
            field="secret",
        )
    return name


def joined_parts(value: Any, refers: Callable[[Any], bool]) -> list[Any] | None:
    """Return the parts of a join; None for other values. Without a reference in its parts, it is
    plain data.
    """
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    parts = given.get(JOIN) if len(given) == 1 else None
    if not isinstance(parts, list):
        return None
    listed = cast("list[Any]", parts)
    return listed if any(map(refers, listed)) else None


def map_inside(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an object or a list with changed items; other values as they are."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {name: change(one) for name, one in given.items()}
    if isinstance(value, list | tuple):
        return [change(one) for one in cast("list[Any]", value)]
    return value


def walk(value: Any) -> Iterator[Any]:
    """Yield a value and all values inside it, but not those in literals."""
    yield value
    if is_literal(value):
        return
    if isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from walk(one)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from walk(one)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Settings of all kinds: objects with known fields.


def read_fields(value: Any, kind: type[msgspec.Struct], what: str) -> dict[str, Any]:
    """Return the given settings of a kind without nulls."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}={shown(value)} must be given by name, as an object", field=what)
    known = [field.name for field in msgspec.structs.fields(kind)]
    given: dict[str, Any] = {}
    for name, one in cast("Mapping[str, Any]", value).items():
        if name not in known:
            hint = suggested(name, known, otherwise=f"it takes {', '.join(known)}")
            raise UsageError(f"{what} has no {shown(name)}; {hint}", field=f"{what}.{name}")
        if one is not None:
            given[name] = one
    return given
