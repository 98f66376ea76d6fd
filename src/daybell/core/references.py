"""References to secrets and parameters in the settings and arguments of a job, and reading of
settings by field.
"""

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
# What a text has in it if a value that it was made of refers to a secret: quick to look for.
SECRET_MARK: Final = '"secret"'
_LITERAL_MARK: Final = f'"{LITERAL}"'
# Objects that stand for a text, also in workflows (see `core.workflow.expressions`), and the keys
# that may stand beside them.
_BESIDE: Final = {
    **{noun: () for noun in (*NOUNS, JOIN)},
    **{noun: ("path",) for noun in ("output", "param", "item")},
}


def may_refer(args: str) -> bool:
    """Whether a worker has to look at arguments, as text, before they can be used."""
    return SECRET_MARK in args or _LITERAL_MARK in args


def reference(value: Any, noun: Noun) -> str | None:
    """The name that a value refers to; None: it is something else."""
    if not isinstance(value, dict):
        return None
    given = cast("dict[str, Any]", value)
    named = given.get(noun) if len(given) == 1 else None
    return named if isinstance(named, str) else None


def is_reference(value: Any) -> bool:
    """Whether it stands for something else: by itself, or joined with others."""
    if not isinstance(value, dict):
        return False
    if any(reference(value, noun) is not None for noun in NOUNS):
        return True
    return joined_parts(value, is_reference) is not None


def literal(value: Any) -> Any:
    """A value that stands for this one, whatever it looks like: plain data stands for itself."""
    if isinstance(value, str | int | float | None):
        return value  # most items are that simple
    is_plain = not any(is_reference(one) or is_literal(one) for one in _walk(value))
    return value if is_plain else {LITERAL: value}


def is_literal(value: Any) -> bool:
    """Whether it stands for what is in it, as it is."""
    return isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1 and LITERAL in value


def as_data(value: Any) -> Any:
    """What a literal stands for; anything else as it is."""
    return value[LITERAL] if is_literal(value) else value


def names_in(value: Any, noun: Noun = "secret") -> set[str]:
    """The secrets, or parameters, that a value refers to, however deep."""
    return {named for one in _walk(value) if (named := reference(one, noun)) is not None}


def names_in_args(args: Mapping[str, Any]) -> set[str]:
    """The secrets that arguments, or other values by name, refer to."""
    return set[str]().union(*(names_in(value) for value in args.values()))


def fill_references(value: Any, noun: Noun, look_up: Callable[[str], Any]) -> Any:
    """The value with what its references stand for. What is joined becomes a text as soon as
    nothing in it refers to anything.
    """
    if (named := reference(value, noun)) is not None:
        return look_up(named)
    if is_literal(value):
        return value[LITERAL] if noun == "secret" else value  # the last that is put in
    if (parts := joined_parts(value, is_reference)) is not None:
        put_in = [fill_references(part, noun, look_up) for part in parts]
        if noun != "secret" and any(map(is_reference, put_in)):
            return {JOIN: put_in}
        return joined_text(put_in)
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        return {key: fill_references(one, noun, look_up) for key, one in given.items()}
    if isinstance(value, list | tuple):
        return [fill_references(one, noun, look_up) for one in cast("list[Any]", value)]
    return value


def fill_args(args: Mapping[str, Any], look_up: Callable[[str], Any]) -> dict[str, Any]:
    """Arguments with the secrets that they refer to."""
    return {name: fill_references(value, "secret", look_up) for name, value in args.items()}


def joined_text(parts: Iterable[Any]) -> str:
    """What is joined, as one text."""
    return "".join(map(_as_text, parts))


def check_text(value: Any, what: str, *, field: str | None = None) -> Any:
    """Return what is a text, or stands for one."""
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
    """What is wrong with a value that neither is a text nor stands for one."""
    given = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    for noun, beside in _BESIDE.items():
        unknown = [key for key in given if key != noun and key not in beside]
        if noun in given and unknown:
            hint = suggested(unknown[0], beside, otherwise="leave it out")
            return f"has {shown(unknown[0])} beside {noun}, which does not belong there; {hint}"
    return 'must be text, or stand for one as {"secret": "NAME"} does'


def check_secret_name(value: object) -> str:
    """Return what can name a secret: as variables of an environment are named."""
    name = value if isinstance(value, str) else ""
    if not name.isascii() or not name.isidentifier() or len(name) > SECRET_NAME_CHARS_MAX:
        raise InvalidName(
            f"{shown(value)} cannot name a secret; a name has letters, digits and _, begins with"
            f" no digit, and has at most {SECRET_NAME_CHARS_MAX} characters",
            field="secret",
        )
    return name


def joined_parts(value: Any, refers: Callable[[Any], bool]) -> list[Any] | None:
    """What is joined; None: it is something else. Without a part that refers to something, it is
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


def _walk(value: Any) -> Iterator[Any]:
    yield value
    if is_literal(value):
        return
    if isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from _walk(one)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from _walk(one)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# What the settings of every kind have in common: fields by name, and none that do not exist.


def read_fields(value: Any, kind: type[msgspec.Struct], what: str) -> dict[str, Any]:
    """Return what is given of a kind's settings; null says the same as nothing."""
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
