"""Values of requests, checked by their types: all errors at once, by field, in plain words.

The types are msgspec's. A check of the domain is a part of a type: `Annotated[str, checked_by(…)]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta
from msgspec import inspect as types

from daybell.errors import UsageError, shown, suggested

T = TypeVar("T")
Findings: TypeAlias = list[tuple[str, str]]  # a field, and a message
Unset: TypeAlias = T | msgspec.UnsetType  # a field that may be left out
_CHECK: Final = "check"
_MUST_BE: Final = "must be "
_ERRORS_MAX: Final = 100

WHOLE: Final = "must be a whole number"
NUMBER: Final = "must be a number"
LOGICAL: Final = "must be true or false"
OBJECT: Final = "must be an object"
TEXT: Final = "must be text"
LIST: Final = "must be a list"
MISSING: Final = "is missing"
# Messages for a value of the wrong type; all others are about a value of the right type.
_TYPE_MESSAGES: Final = frozenset({WHOLE, NUMBER, LOGICAL, OBJECT, TEXT, LIST})
_WORDS: Final = {"true": True, "1": True, "false": False, "0": False}


class RequestBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A body, or a part of one.

    Such a struct may have three more attributes. `fixed` names fields that no request can change,
    each with the way out. `prepare` returns the fields by their own names. `check` raises
    UsageError for an error of the fields together.
    """


def checked_by(check: Callable[[Any], object]) -> Meta:
    """Return a rule of the domain, as a part of a type. It raises UsageError."""
    return Meta(extra={_CHECK: check})


def join_findings(found: Iterable[str]) -> str:
    """Return one sentence from the messages of each type of a union.

    If the value has one of the types, the messages of the others are left out.
    """
    told = list(dict.fromkeys(found))
    finer = [one for one in told if one not in _TYPE_MESSAGES]
    first, *more = finer or told
    return first + "".join(f", or {one.removeprefix(_MUST_BE)}" for one in more)


@cache
def info_of(model: type[msgspec.Struct]) -> types.StructType:
    """Return the fields of a struct."""
    return cast("types.StructType", types.type_info(model))


def read_struct(model: type[T], value: Any, wrong: Findings) -> T | None:
    """Return a JSON value as a struct; None if there are errors, which are added to `wrong`."""
    return _read(info_of(cast("Any", model)), value, "", wrong, is_text=False)


def read_parameters(model: type[T], sent: Mapping[str, Sequence[str]], wrong: Findings) -> T | None:
    """Return the parameters of an address, or headers, as a struct. All of them are texts."""
    values: dict[str, Any] = {}
    info = info_of(cast("Any", model))
    for field in info.fields:
        texts = sent.get(field.encode_name)
        if texts:
            value = texts if _is_list(field.type) else texts[-1]
            values[field.name] = _read(field.type, value, field.encode_name, wrong, is_text=True)
        elif field.required:
            wrong.append((field.encode_name, MISSING))
    return None if wrong else model(**values)


def read_text(info: types.Type, text: str, path: str, wrong: Findings) -> Any:
    """Return a parameter of the path."""
    bare = info
    if isinstance(info, types.Metadata) and cast("Any", info.extra) is None:
        bare = info.type
    if isinstance(bare, types.StrType) and _check_text(bare, text) is None:
        return text  # most are: the rest takes a multiple of this
    return _read(info, text, path, wrong, is_text=True)


def _is_list(info: types.Type) -> bool:
    if isinstance(info, types.UnionType):
        return any(map(_is_list, info.types))
    return isinstance(_bare(info), types.ListType)


def _bare(info: types.Type) -> types.Type:
    while isinstance(info, types.Metadata):
        info = info.type
    return info


def _read(info: types.Type, value: Any, path: str, wrong: Findings, *, is_text: bool) -> Any:
    """Return a value as its type has it. Errors are added to `wrong`, each with its path."""
    if isinstance(info, types.Metadata):
        return _read_checked(info, value, path, wrong, is_text=is_text)
    if isinstance(info, types.UnionType):
        return _read_union(info, value, path, wrong, is_text=is_text)
    if isinstance(info, types.StructType):
        return _read_fields(info, value, path, wrong)
    if isinstance(info, types.ListType):
        return _read_list(info, value, path, wrong, is_text=is_text)
    if isinstance(info, types.DictType):
        return _read_dict(info, value, path, wrong)
    message = _check_scalar(info, value := _convert(info, value) if is_text else value)
    if message is not None:
        wrong.append((path, message))
    elif isinstance(info, types.EnumType):
        return info.cls(value)
    return value


def _convert(info: types.Type, text: str) -> Any:
    """Return a text of an address as a number or a truth value; the text, if it is neither."""
    if isinstance(info, types.BoolType):
        return _WORDS.get(text.lower(), text)
    if isinstance(info, types.IntType) and re.fullmatch("[+-]?[0-9]{1,20}", text):
        return int(text)
    return text


def _check_scalar(info: types.Type, value: Any) -> str | None:
    """Return the error of a value that has no parts."""
    match info:
        case types.StrType():
            return _check_text(info, value) if isinstance(value, str) else TEXT
        case types.AnyType():
            return None
        case types.BoolType():
            return None if isinstance(value, bool) else LOGICAL
        case types.IntType():
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return _check_range(info, value) if is_whole else WHOLE
        case types.FloatType():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return _check_range(info, value) if is_number else NUMBER
        case types.LiteralType():
            return None if value in info.values else f"must be {_join(info.values)}"
        case types.EnumType():
            words = [one.value for one in info.cls]
            return None if value in words else f"must be {_join(words)}"
        case _:
            raise TypeError(f"requests have no values of type {info}")


def _check_range(info: types.IntType | types.FloatType, value: float) -> str | None:
    if isinstance(info, types.FloatType) and not _is_finite(value):
        return "must be a number that is not infinite"
    if info.ge is not None and value < info.ge:
        return f"must be {info.ge} or more"
    if info.le is not None and value > info.le:
        return f"must be {info.le} or less"
    return None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _check_text(info: types.StrType, value: str) -> str | None:
    if info.min_length is not None and len(value) < info.min_length:
        return f"must have {info.min_length} or more characters"
    if info.max_length is not None and len(value) > info.max_length:
        return f"must have {info.max_length} characters or fewer"
    if info.pattern is not None and re.search(info.pattern, value) is None:
        return f"must match {info.pattern}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be text in Unicode; it has half of a surrogate pair"
    return None


def _join(words: Iterable[Any]) -> str:
    *most, last = map(repr, words)
    return f"{', '.join(most)} or {last}" if most else last


def _read_checked(
    info: types.Metadata, value: Any, path: str, wrong: Findings, *, is_text: bool
) -> Any:
    before = len(wrong)
    read = _read(info.type, value, path, wrong, is_text=is_text)
    extra = cast("Mapping[str, Any]", info.extra or {})
    check = extra.get(_CHECK)
    if check is not None and len(wrong) == before:
        try:
            check(read)
        except UsageError as error:
            wrong.append((path, str(error)))
    return read


def _read_union(
    info: types.UnionType, value: Any, path: str, wrong: Findings, *, is_text: bool
) -> Any:
    others = [one for one in info.types if not isinstance(one, types.NoneType)]
    if value is None and len(others) < len(info.types):
        return None
    said: list[Findings] = []
    for one in others:
        found: Findings = []
        read = _read(one, value, path, found, is_text=is_text)
        if not found:
            return read
        said.append(found)
    # For a value with parts, the errors of its parts are more exact than TEXT.
    inner = [found for found in said if found[0] != (path, found[0][1])]
    if inner:
        wrong += inner[0]
    else:
        wrong.append((path, join_findings(message for found in said for _, message in found)))
    return None


def _read_list(
    info: types.ListType, value: Any, path: str, wrong: Findings, *, is_text: bool
) -> Any:
    if not isinstance(value, list):
        wrong.append((path, LIST))
        return None
    items = cast("list[Any]", value)
    if message := _check_size(info, len(items)):
        wrong.append((path, message))
        return None
    read: list[Any] = []
    for number, one in enumerate(items):
        read.append(_read(info.item_type, one, f"{path}[{number}]", wrong, is_text=is_text))
        if len(wrong) >= _ERRORS_MAX:
            break
    return read


def _read_dict(info: types.DictType, value: Any, path: str, wrong: Findings) -> Any:
    if not isinstance(value, dict):
        wrong.append((path, OBJECT))
        return None
    given = cast("dict[str, Any]", value)
    if message := _check_size(info, len(given)):
        wrong.append((path, message))
        return None
    return {
        name: _read(info.value_type, one, _inside(path, name), wrong, is_text=False)
        for name, one in given.items()
    }


def _check_size(info: types.ListType | types.DictType, size: int) -> str | None:
    if info.min_length is not None and size < info.min_length:
        return f"must have {info.min_length} or more entries"
    if info.max_length is not None and size > info.max_length:
        return f"must have {info.max_length} entries or fewer"
    return None


def _read_fields(info: types.StructType, value: Any, path: str, wrong: Findings) -> Any:
    if not isinstance(value, dict):
        wrong.append((path, OBJECT))
        return None
    model: Any = info.cls
    given: dict[str, Any] = getattr(model, "prepare", dict[str, Any])(cast("dict[str, Any]", value))
    known = {field.encode_name: field for field in info.fields}
    before = len(wrong)
    for name in given.keys() - known.keys():
        fixed: Mapping[str, str] = getattr(model, "fixed", {})
        message = fixed.get(name) or _unknown_field(name, sorted(known))
        wrong.append((_inside(path, name), message))
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in given:
            there = _inside(path, name)
            values[field.name] = _read(field.type, given[name], there, wrong, is_text=False)
        elif field.required:
            wrong.append((_inside(path, name), MISSING))
    try:
        if hasattr(model, "check"):
            model.check(given)
    except UsageError as error:
        wrong.append((_inside(path, error.field or "body"), str(error)))
    return model(**values) if len(wrong) == before else None


def _unknown_field(name: str, known: Sequence[str]) -> str:
    if not known:
        return f"there is no field {shown(name)}; it takes no fields"
    return f"there is no field {shown(name)}; {suggested(name, known)}"


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
