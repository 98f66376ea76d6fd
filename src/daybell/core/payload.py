"""Arguments and results as JSON text.

Nothing is unpickled or imported by name: stored data is plain JSON, converted to richer types only
by the annotations of the function that receives it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, NoReturn, TypeGuard, cast

import msgspec

from daybell.core.limits import (
    ARGS_BYTES_MAX,
    INTEGER_DIGITS_MAX,
    LIST_VALUE_BYTES_MAX,
    PAYLOAD_DEPTH_MAX,
)
from daybell.errors import InvalidArguments, PayloadError, PayloadTooLarge, shown, suggested

_PATH_CHARS_MAX: Final = 120
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_PLAIN: Final = frozenset({type(None), bool, int, float, str})  # types without children
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def encode(value: object, *, what: str = "args", bytes_max: int = ARGS_BYTES_MAX) -> str:
    """Return `value` as JSON text; `what` starts the path in errors: `args.items[3].when: …`.

    The text is valid UTF-8 without NUL. Accepted are pydantic models and all types of msgspec
    (dates, UUID, Decimal, enums, dataclasses, attrs, sets). Types that JSON lacks become text or
    lists, unless an annotation restores them: bytes are base64, keys of a dict that are numbers,
    dates or enums are text, so {1: …, "1": …} keeps one. NaN and infinity are refused, since JSON
    would make them null. A lone surrogate survives; two halves become their character.
    """
    if value is None:
        return "null"
    try:
        raw = _ENCODER.encode(value)
    except Exception as error:
        raw = _encode_slowly(value, what, error)
    if len(raw) > bytes_max:
        raise PayloadTooLarge(
            f"{what} is {len(raw):,} bytes of JSON; the limit is {bytes_max:,}. Store it elsewhere "
            "and pass its address",
            field=what,
        )
    # A walk in Python costs far more than the encoder, so it is done only if necessary: msgspec
    # writes null for NaN, and deep nesting needs many brackets.
    if b"null" in raw and _hides_nan(value):
        raise PayloadError(_problem(value, what, 0) or f"{what}: contains NaN", field=what)
    _check_depth(raw, what)
    return raw.decode()


def encode_read(values: Sequence[dict[str, Any]]) -> list[str] | None:
    """Encode many objects that were parsed from JSON and so have no NaN; None if one of them needs
    the checks of `encode`.
    """
    try:
        raw = _ENCODER.encode_lines(values)
    except Exception:
        return None
    texts = raw.decode().split("\n")  # inside a text, line breaks are escaped
    texts.pop()  # after the last line
    # Only a long text can be too large, and each level takes two brackets.
    is_fine = len(raw) <= 2 * PAYLOAD_DEPTH_MAX or all(map(_is_modest, texts))
    return texts if is_fine else None


def _is_modest(text: str) -> bool:
    if len(text) <= 2 * PAYLOAD_DEPTH_MAX:
        return True
    return (
        4 * len(text) <= ARGS_BYTES_MAX and text.count("[") + text.count("{") <= PAYLOAD_DEPTH_MAX
    )


def decode(text: str, *, what: str = "payload", depth_max: int = PAYLOAD_DEPTH_MAX) -> Any:
    """Return the plain JSON data of a text. The last of duplicate keys wins."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        value = _decode_slowly(text, what, error)
    if text.count("[") + text.count("{") > depth_max:
        _check_depth(text.encode(errors="replace"), what, depth_max)
    return value


def has_set(value: object) -> bool:
    """Return True if a value contains a set, which JSON turns into a list."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        inside: Iterable[Any]
        if isinstance(item, set | frozenset):
            return True
        if type(item) is dict:
            inside = cast("dict[Any, Any]", item).values()
        elif type(item) is list or type(item) is tuple:
            inside = cast("Sequence[Any]", item)
        else:
            inside = [child for _, child in _children(item)]
        if not _PLAIN.issuperset(map(type, inside)):  # skips long lists of numbers
            waiting.extend(one for one in inside if type(one) not in _PLAIN)
    return False


def path_of_set(value: object, path: str) -> str:
    """Return the path of the first set in a value at `path`."""
    while not isinstance(value, set | frozenset):
        step, value = next(pair for pair in _children(value) if has_set(pair[1]))
        path += step
    return path


def pairs_in(raw: bytes) -> int:
    """Count the keys of all objects in a JSON text, with duplicates."""
    return _STRINGS.sub(b"", raw).count(b":")


def _plain(value: Any) -> Any:
    """Convert a type that msgspec does not know, or raise TypeError."""
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True)
    for plain, exact in ((str, str.__str__), (int, int.__int__), (float, float.__float__)):
        if isinstance(value, plain):
            return cast("Callable[[Any], Any]", exact)(value)
    raise TypeError(type(value).__name__)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def _encode_slowly(value: object, what: str, error: Exception) -> bytes:
    problem = _problem(value, what, 0)
    if problem is not None:
        raise PayloadError(problem, field=what) from None
    if not isinstance(error, UnicodeEncodeError):
        raise PayloadError(f"{what}: cannot be stored as JSON: {error}", field=what) from error
    # Only escapes can represent lone surrogates, and only the standard library writes those.
    data = msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _problem(value: object, path: str, depth: int) -> str | None:
    """Describe the first value below `path` that JSON cannot hold; None if there is none."""
    kind = type(value).__name__
    if depth > PAYLOAD_DEPTH_MAX:
        return f"{path[:_PATH_CHARS_MAX]}…: nested deeper than {PAYLOAD_DEPTH_MAX} levels"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path}: {value} is not a JSON number; pass None or text"
    try:
        for step, child in _children(value):
            problem = _problem(child, path + step, depth + 1)
            if problem is not None:
                return problem
        if not isinstance(value, list | tuple | set | frozenset | dict):
            _ENCODER.encode(value)
    except UnicodeEncodeError:
        return None  # a lone surrogate is valid
    except TypeError:
        return (
            f"{path}: cannot be stored as JSON: {kind}; pass text, numbers, lists, "
            "dicts, dates, a dataclass or a model"
        )
    except Exception as error:
        if isinstance(value, int):
            return f"{path}: an integer of more than {INTEGER_DIGITS_MAX:,} digits; pass it as text"
        return f"{path}: cannot be stored as JSON: {error}"
    return _key_problem(cast("object", value), path)


def _key_problem(value: object, path: str) -> str | None:
    for key in cast("dict[Any, Any]", value) if isinstance(value, dict) else ():
        try:
            _ENCODER.encode({key: None})
        except UnicodeEncodeError:
            continue
        except Exception:
            return f"{path}: {shown(key)} cannot be a key in JSON; use text"
    return None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the children of a value, each with its path element."""
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            is_word = isinstance(key, str) and key.isidentifier() and len(key) < _PATH_CHARS_MAX
            yield (f".{key}" if is_word else f"[{shown(key)}]"), item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(cast("Iterable[Any]", value)):
            yield f"[{index}]", item
    elif isinstance(value, Enum):
        yield "", value.value
    elif isinstance(value, type):
        return
    elif hasattr(value, "model_dump"):
        yield "", _plain(value)
    else:
        names: Iterable[str] = getattr(value, "__struct_fields__", ())
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
        elif hasattr(value, "__attrs_attrs__"):
            names = [field.name for field in value.__attrs_attrs__]
        for name in names:
            item = getattr(value, name, msgspec.UNSET)
            if item is not msgspec.UNSET:
                yield f".{name}", item


def _hides_nan(value: object) -> bool:
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, str | int):
            continue
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            waiting.extend(cast("dict[Any, Any]", item).values())
        elif isinstance(item, list | tuple):
            waiting.extend(cast("Iterable[Any]", item))
        else:
            waiting.extend(child for _, child in _children(item))
    return False


def _check_depth(raw: bytes, what: str, depth_max: int = PAYLOAD_DEPTH_MAX) -> None:
    if is_deeper(raw, depth_max):
        raise PayloadError(f"{what}: nested deeper than {depth_max} levels", field=what)


def is_deeper(raw: bytes, depth_max: int) -> bool:
    """Return True if JSON text is nested deeper than this."""
    if raw.count(b"[") + raw.count(b"{") <= depth_max:
        return False
    brackets = _STRINGS.sub(b"", raw).translate(None, _NOT_BRACKETS)
    return max(itertools.accumulate(map(_STEP.__getitem__, brackets)), default=0) > depth_max


def _decode_slowly(text: str, what: str, error: Exception) -> Any:
    # msgspec refuses lone surrogates; the standard library accepts them.
    if isinstance(error, RecursionError):
        raise PayloadError(f"{what}: nested deeper than {PAYLOAD_DEPTH_MAX} levels") from None
    if _HALF_PAIR.search(text):
        try:
            return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        except RecursionError:
            raise PayloadError(f"{what}: nested deeper than {PAYLOAD_DEPTH_MAX} levels") from None
        except ValueError as reason:
            error = reason
    reason = str(error)
    if reason == "Input data was truncated":
        reason = f"it ends too early, after byte {len(text.encode(errors='replace'))}"
    elif reason.startswith("JSON is malformed"):
        reason += """; text is in double quotes, as in {"name": "Ada"}"""
    raise PayloadError(f"{what} is not JSON that can be read: {reason}", field=what) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number


# Arguments of calls: bound to names, stored as JSON, converted by annotations.
#
# A call is checked by the caller, so that a wrong type is an exception there and not a dead letter.


class _Parameter(msgspec.Struct, frozen=True, kw_only=True):
    annotation: Any  # Any: no conversion
    default: Any


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The analyzed signature of a function."""

    name: str
    parameters: dict[str, _Parameter]  # by name, without **kwargs
    required: tuple[str, ...]
    positional: tuple[str, ...]
    positional_only: int  # number of positional-only parameters
    var_positional: str | None
    extra: _Parameter | None  # **kwargs


def bind(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    skip: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the arguments of a call by name, or raise as the call would.

    Defaults are applied when the function runs. `*args` is a list under its own name and `**kwargs`
    are spread. The worker fills the parameters in `skip`.
    """
    plan = _plan(function)
    bound = _bind_positional(plan, args, skip) if args else {}
    for name, value in kwargs.items():
        if name in bound:
            raise InvalidArguments(f"{plan.name}() was given {name!r} twice", field=name)
        if name == plan.var_positional:
            _refuse_unknown(plan, name, skip)
        bound[name] = value
    _check_names(plan, bound, skip)
    return bound


def _bind_positional(plan: _Plan, args: Sequence[Any], skip: frozenset[str]) -> dict[str, Any]:
    positional = [name for name in plan.positional if name not in skip]
    bound = dict(zip(positional, args, strict=False))
    if len(args) > len(positional):
        if plan.var_positional is None:
            takes = f"{len(positional)} ({', '.join(positional)})" if positional else "none"
            raise InvalidArguments(
                f"{plan.name}() was given {len(args)} positional arguments and takes {takes}"
            )
        bound[plan.var_positional] = list(args[len(positional) :])
    return bound


def convert(
    function: Callable[..., Any],
    arguments: object,
    *,
    skip: frozenset[str] = frozenset(),
    unseen: Collection[str] = (),
) -> dict[str, Any]:
    """Convert stored arguments by the annotations of `function`.

    Parameters without a usable annotation get the JSON data. Errors name the parameter. Parameters
    in `unseen` are references and stay unchanged.
    """
    plan = _plan(function)
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"{plan.name}() takes its arguments as an object by name, not {shown(arguments)}"
        )
    given = cast("dict[str, Any]", arguments)
    _check_names(plan, given, skip)
    converted: dict[str, Any] = {}
    for name, value in given.items():
        parameter = plan.parameters.get(name, plan.extra)
        if (
            name in unseen
            or parameter is None
            or parameter.annotation is Any
            or _is_default(value, parameter)
        ):
            converted[name] = value
        else:
            converted[name] = _convert_one(plan, name, value, parameter.annotation)
    return converted


def check_sets(
    function: Callable[..., Any], given: Mapping[str, Any], converted: Mapping[str, Any]
) -> None:
    """Refuse a set that the function would get as a list for lack of an annotation."""
    plan = _plan(function)
    for name, value in given.items():
        parameter = plan.parameters.get(name, plan.extra)
        annotation = Any if parameter is None else parameter.annotation
        if _is_open(annotation) and _loses_set(value, converted.get(name), annotation):
            raise InvalidArguments(
                f"{plan.name}(), argument {name!r}: {path_of_set(value, name)} is a set,"
                " which JSON does not have, and would arrive as a list. Pass a list, or annotate"
                f" the parameter, as in {name}: set[int]",
                field=name,
            )


def check_result_sets(function: Callable[..., Any], value: Any, text: str, *, what: str) -> None:
    """Refuse a set in a result, which is `text` as JSON."""
    try:
        annotation = _result_annotation(function)
    except (ValueError, TypeError):  # some C functions have no signature
        annotation = Any
    if not _is_open(annotation) or not has_set(value):
        return
    returned = decode(text)
    if annotation is not Any:
        returned = convert_result(function, returned)
    if _loses_set(value, returned, annotation):
        name = getattr(function, "__name__", type(function).__name__)
        raise PayloadError(
            f"{path_of_set(value, what)} is a set, which JSON does not have, and would come"
            " back as a list. Return a list, or annotate the result, as in"
            f" def {name}(…) -> set[int]",
            field=what,
        )


def _is_open(annotation: Any) -> bool:
    """Return True if an annotation leaves a part of the value open, so that a set stays a list."""
    try:
        return _holds_any(annotation)
    except TypeError:  # not hashable
        return True


@lru_cache(maxsize=4096)
def _holds_any(annotation: Any) -> bool:
    inner = typing.get_args(annotation)
    if not inner:
        return (typing.get_origin(annotation) or annotation) in _ANY_INSIDE
    return any(one is not ... and _is_open(one) for one in inner)


_ANY_INSIDE: Final = (Any, object, list, tuple, dict, Sequence, Mapping, Collection)


def _loses_set(value: Any, converted: Any, annotation: Any) -> bool:
    if annotation is not Any and isinstance(value, set | frozenset):
        return False  # the annotation restores it
    return has_set(value) and not has_set(converted)


def check_value(function: Callable[..., Any], name: str, value: Any) -> None:
    """Check one stored value against its parameter, independent of the others."""
    plan = _plan(function)
    parameter = plan.parameters.get(name, plan.extra)
    if parameter is None or parameter.annotation is Any or _is_default(value, parameter):
        return
    _convert_one(plan, name, value, parameter.annotation)


def convert_result(function: Callable[..., Any], value: Any) -> Any:
    """Convert a stored result by the return annotation of `function`.

    A result that does not fit stays JSON data: Python does not check it, either.
    """
    annotation = _result_annotation(function)
    if value is None or annotation is Any:
        return value
    try:
        return _convert_value(value, annotation)
    except (ValueError, TypeError, RecursionError):
        return value


def annotations_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return each parameter's annotation, as written and resolved; Any if that fails."""
    written = _signature(function).parameters
    resolved = _plan(function).parameters
    return {
        name: (written[name].annotation, parameter.annotation)
        for name, parameter in resolved.items()
    }


def describe(function: Callable[..., Any], *, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the JSON Schema of a function's arguments, as an object by name.

    A parameter without a usable annotation takes any value. A large schema has only the names.
    """
    plan = _plan(function)
    parameters = {name: one for name, one in plan.parameters.items() if name not in skip}
    annotations = [one.annotation for one in parameters.values()]
    known = [one for one in annotations if _has_schema(one)]
    schemas, components = msgspec.json.schema_components(known, ref_template="#/$defs/{name}")
    found = iter(schemas)
    properties: dict[str, Any] = {}
    for (name, one), annotation in zip(parameters.items(), annotations, strict=True):
        properties[name] = dict(next(found)) if _has_schema(annotation) else {}
        if name not in plan.required and one.default is not inspect.Parameter.empty:
            with contextlib.suppress(PayloadError):
                properties[name]["default"] = decode(encode(one.default))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [name for name in plan.required if name not in skip],
        "additionalProperties": plan.extra is not None,
    }
    if components:
        schema["$defs"] = components
    if len(msgspec.json.encode(schema)) > LIST_VALUE_BYTES_MAX:
        return {**schema, "properties": {name: {} for name in properties}, "$defs": {}}
    return schema


class Signature(msgspec.Struct, frozen=True):
    """The names in a schema that `describe` made: those that a call may and must give."""

    properties: dict[str, Any] = {}
    required: tuple[str, ...] = ()
    additionalProperties: bool = True

    def fits(self, names: Collection[str]) -> bool:
        """Return True if a call may give these arguments, and no others."""
        is_known = self.additionalProperties or all(name in self.properties for name in names)
        return is_known and all(name in names for name in self.required)

    def check(self, names: Collection[str], *, what: str) -> None:
        """Raise InvalidArguments for an unknown or a missing argument; `what` names the job."""
        takes = f"it takes {', '.join(self.properties) or 'no arguments'}"
        for name in () if self.additionalProperties else names:
            if name not in self.properties:
                hint = suggested(name, self.properties, otherwise=takes)
                raise InvalidArguments(f"{what} has no argument {shown(name)}; {hint}", field=name)
        missing = [name for name in self.required if name not in names]
        if missing:
            told = f"{what} must be given {', '.join(missing)}; {takes}"
            raise InvalidArguments(told, field=missing[0])


@lru_cache(maxsize=4096)
def read_signature(schema: str) -> Signature:
    """Read the schema of a function's arguments, as a definition has it."""
    return msgspec.json.decode(schema, type=Signature)


_NAMED: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def argument_names(args: str) -> Collection[str]:
    """Return the names of stored arguments, without reading their values."""
    return _NAMED.decode(args).keys()


def _has_schema(annotation: Any) -> bool:
    """Return True if a type has a JSON Schema; a model of another library has none here."""
    try:
        msgspec.json.schema(annotation)
    except (TypeError, ValueError, RecursionError):
        return False
    return annotation is not Any


def spread(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Split arguments by name into positional and keyword arguments of a call."""
    plan = _plan(function)
    by_name = dict(arguments)
    rest: list[Any] = by_name.pop(plan.var_positional, []) if plan.var_positional else []
    needed = plan.positional if rest else plan.positional[: plan.positional_only]
    while needed and not rest and needed[-1] not in by_name:
        needed = needed[:-1]
    args = [by_name.pop(name, plan.parameters[name].default) for name in needed]
    return [*args, *rest], by_name


# Calls: stored arguments, decoded straight into the values of a call.
#
# One decoder per signature does what `decode`, `convert` and `spread` do one after the other. What
# it refuses is left to these, which name what is wrong.


class EncodedArgs(dict[str, Any]):
    """Checked arguments, with the text that is stored: they are encoded once."""

    __slots__ = ("text",)

    def __init__(self, given: Mapping[str, Any], text: str) -> None:
        super().__init__(given)
        self.text = text


class CallReader:
    """Reads the stored arguments of one function. The worker fills the parameters in `skip`."""

    def __init__(self, function: Callable[..., Any], skip: frozenset[str]) -> None:
        self._function = function
        self._skip = skip
        plan = _plan(function)
        self._keywords = tuple(plan.parameters)[len(plan.positional) :]
        self._positional = len(plan.positional)
        self._filled = [place for place, name in enumerate(plan.parameters) if name in skip]
        self._decode = _call_decoder(plan, skip)

    def accepts(self, text: str) -> bool:
        """Return True if the arguments are right; False: unknown."""
        return self._values(text) is not None

    def read(self, text: str, filled: Callable[[], Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of a call."""
        values = self._values(text)
        if values is None:
            return self.arrange(decode(text, what="args"), filled)
        if self._filled:
            values = list(values)
            value = filled()
            for place in self._filled:
                values.insert(place, value)
        if not self._keywords:
            return values, {}
        split = self._positional
        return values[:split], dict(zip(self._keywords, values[split:], strict=True))

    def arrange(
        self, given: object, filled: Callable[[], Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Do the same with arguments that are JSON data."""
        converted = convert(self._function, given, skip=self._skip)
        if self._skip:
            converted |= dict.fromkeys(self._skip, filled())
        return spread(self._function, converted)

    def _values(self, text: str) -> Sequence[Any] | None:
        # Each level of nesting takes two brackets.
        if self._decode is None or (len(text) > 2 * PAYLOAD_DEPTH_MAX and _is_bracketed(text)):
            return None
        try:
            return msgspec.structs.astuple(self._decode(text))
        except (ValueError, TypeError, RecursionError):
            return None


call_reader: Final = lru_cache(maxsize=4096)(CallReader)


def _is_bracketed(text: str) -> bool:
    return text.count("[") + text.count("{") > PAYLOAD_DEPTH_MAX


def _call_decoder(plan: _Plan, skip: frozenset[str]) -> Callable[[str], msgspec.Struct] | None:
    """Return the decoder of a signature; None: it takes any number of arguments, or an enumeration,
    of which msgspec knows too little.
    """
    parameters = plan.parameters.values()
    is_open = plan.extra is not None or plan.var_positional is not None
    if is_open or any(_is_enum(one.annotation) for one in parameters):
        return None
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for place, (name, one) in enumerate(plan.parameters.items()):
        if name in skip:
            continue
        field, annotation, default = f"a{place}", one.annotation, one.default
        names[field] = name
        if default is inspect.Parameter.empty:
            fields.append((field, annotation, msgspec.NODEFAULT))
            continue
        elif default is None:
            annotation = typing.Optional[annotation]  # noqa: UP045
        fields.append((field, annotation, msgspec.field(default_factory=partial(_same, default))))
    try:
        struct = msgspec.defstruct(
            "Call", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
        )
        return msgspec.json.Decoder(struct, dec_hook=_build).decode
    except (TypeError, ValueError):
        return None


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=4096)
def _plan(function: Callable[..., Any]) -> _Plan:
    parameters = _signature(function).parameters
    names = getattr(inspect.unwrap(function), "__globals__", {})
    described = {
        name: _Parameter(annotation=_annotation(parameter, names), default=parameter.default)
        for name, parameter in parameters.items()
    }
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    only, either = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    star, stars = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return _Plan(
        name=getattr(function, "__name__", type(function).__name__),
        parameters={name: described[name] for name in kinds if kinds[name] is not stars},
        required=tuple(
            name
            for name, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty and kinds[name] not in (star, stars)
        ),
        positional=tuple(name for name in kinds if kinds[name] in (only, either)),
        positional_only=sum(kind is only for kind in kinds.values()),
        var_positional=next((name for name in kinds if kinds[name] is star), None),
        extra=next((described[name] for name in kinds if kinds[name] is stars), None),
    )


@lru_cache(maxsize=4096)
def _result_annotation(function: Callable[..., Any]) -> Any:
    written = _signature(function).return_annotation
    parameter = inspect.Parameter("it", inspect.Parameter.KEYWORD_ONLY, annotation=written)
    return _annotation(parameter, getattr(inspect.unwrap(function), "__globals__", {}))


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Names that exist only for type checkers must not make a function unusable.
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _annotation(parameter: inspect.Parameter, names: dict[str, Any]) -> Any:
    """Return the type to convert to, or Any if there is none."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    holder = type("holder", (), {"__annotations__": {"it": parameter.annotation}})
    try:
        annotation: Any = typing.get_type_hints(holder, names, include_extras=True)["it"]
        if _is_enum(annotation):
            return annotation
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            annotation = list[annotation]
        msgspec.json.Decoder(annotation, dec_hook=_build)
    except Exception:  # evaluating an annotation can raise anything
        return Any
    return annotation


def _check_names(plan: _Plan, given: Mapping[str, Any], skip: frozenset[str]) -> None:
    for name in given:
        if name in skip or (name not in plan.parameters and plan.extra is None):
            _refuse_unknown(plan, name, skip)
    missing = [name for name in plan.required if name not in given and name not in skip]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        raise InvalidArguments(f"{plan.name}() is missing {listed}", field=missing[0])


def _refuse_unknown(plan: _Plan, name: str, skip: frozenset[str]) -> NoReturn:
    if name in skip or name == plan.var_positional:
        why = "is filled by the worker" if name in skip else "can only be given by position"
        raise InvalidArguments(f"{plan.name}(): {shown(name)} {why}; leave it out", field=name)
    known = [known for known in plan.parameters if known not in skip]
    hint = suggested(name, known, otherwise=f"it takes {', '.join(known) or 'none'}")
    raise InvalidArguments(f"{plan.name}() has no argument {shown(name)}; {hint}", field=name)


def _is_default(value: Any, parameter: _Parameter) -> bool:
    # Accept None for `limit: int = None`, which is wrong but common.
    return value is None and parameter.default is None


def _convert_one(plan: _Plan, name: str, value: Any, annotation: Any) -> Any:
    try:
        return _convert_value(value, annotation)
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).replace("`$", f"`{name}")
        raise InvalidArguments(f"{plan.name}(), argument {name!r}: {reason}", field=name) from error


def _convert_value(value: Any, annotation: Any) -> Any:
    if _is_enum(annotation):
        return _member(annotation, value)
    return msgspec.convert(value, annotation, dec_hook=_build, str_keys=True)


def _is_enum(annotation: object) -> TypeGuard[type[Enum]]:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _member(annotation: type[Enum], value: Any) -> Enum:
    # msgspec knows enums of text or of integers; these may have any JSON value.
    for member in annotation:
        stored = _tuple_to_list(member.value)
        if stored == value and isinstance(stored, bool) == isinstance(value, bool):
            return member
    if isinstance(value, annotation):
        return value
    allowed = ", ".join(shown(member.value) for member in annotation)
    raise ValueError(f"{shown(value)} is not one of {allowed}")


def _tuple_to_list(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _build(annotation: Any, value: Any) -> Any:
    """Convert to a type that msgspec does not know; msgspec checks the result's type."""
    if type(value) is annotation:
        return value
    if hasattr(annotation, "model_validate_json"):
        # Through text, because a strict model takes a date from JSON but not from a Python str.
        return annotation.model_validate_json(json.dumps(value))
    return value
