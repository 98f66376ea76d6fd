"""Between a call and its stored arguments: names in, JSON data out, annotated types back.

A call is checked where it is made, so that a typing error is an exception in the caller's hands
and not a dead letter at night.
"""

from __future__ import annotations

import inspect
import json
import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeGuard, cast

import msgspec

from daybell.core import payload
from daybell.errors import InvalidArguments, PayloadError, shown, suggested


class _Parameter(msgspec.Struct, frozen=True, kw_only=True):
    annotation: Any  # Any: pass through
    default: Any


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a function, found out once."""

    name: str
    parameters: dict[str, _Parameter]  # by name, without **kwargs
    required: tuple[str, ...]
    positional: tuple[str, ...]
    positional_only: int  # how many of them, from the left
    var_positional: str | None
    extra: _Parameter | None  # **kwargs


def bind(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    skip: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the arguments of a call by name, as they are stored, or say why the call would fail.

    Defaults are left to the moment of the run. `*args` is a list under its own name and `**kwargs`
    are spread. Parameters in `skip` are the worker's to fill.
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
    """Turn stored arguments into what the annotations of `function` ask for.

    Parameters without an annotation, or with one that means nothing here, get the JSON data.
    What does not fit is refused by the name of its parameter. Those in `unseen` stand for something
    else, and are left as they are.
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
    """Refuse a set that the function would get as a list, since no annotation makes it a set."""
    plan = _plan(function)
    for name, value in given.items():
        parameter = plan.parameters.get(name, plan.extra)
        annotation = Any if parameter is None else parameter.annotation
        if _is_open(annotation) and _loses_set(value, converted.get(name), annotation):
            raise InvalidArguments(
                f"{plan.name}(), argument {name!r}: {payload.path_of_set(value, name)} is a set,"
                " which JSON does not have, and would arrive as a list. Pass a list, or annotate"
                f" the parameter, as in {name}: set[int]",
                field=name,
            )


def check_result_sets(function: Callable[..., Any], value: Any, text: str, *, what: str) -> None:
    """The same for a result, which is `text` as JSON."""
    try:
        annotation = _result_annotation(function)
    except (ValueError, TypeError):  # some of what is written in C does not tell its signature
        annotation = Any
    if not _is_open(annotation) or not payload.has_set(value):
        return
    returned = payload.decode(text)
    if annotation is not Any:
        returned = convert_result(function, returned)
    if _loses_set(value, returned, annotation):
        name = getattr(function, "__name__", type(function).__name__)
        raise PayloadError(
            f"{payload.path_of_set(value, what)} is a set, which JSON does not have, and would come"
            " back as a list. Return a list, or annotate the result, as in"
            f" def {name}(…) -> set[int]",
            field=what,
        )


def _is_open(annotation: Any) -> bool:
    """True if an annotation lets some of the value be anything, so that a set stays a list."""
    try:
        return _holds_any(annotation)
    except TypeError:  # one that cannot be hashed
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
        return False  # it becomes what the annotation says
    return payload.has_set(value) and not payload.has_set(converted)


def check_value(function: Callable[..., Any], name: str, value: Any) -> None:
    """Refuse a stored value that does not fit this parameter, whatever the others are given."""
    plan = _plan(function)
    parameter = plan.parameters.get(name, plan.extra)
    if parameter is None or parameter.annotation is Any or _is_default(value, parameter):
        return
    _convert_one(plan, name, value, parameter.annotation)


def convert_result(function: Callable[..., Any], value: Any) -> Any:
    """Turn a stored result into what `function` says that it returns.

    What does not fit is left as the JSON data that it is: the function has run, and calling it
    would not have checked its result either.
    """
    annotation = _result_annotation(function)
    if value is None or annotation is Any:
        return value
    try:
        return _converted(value, annotation)
    except (ValueError, TypeError, RecursionError):
        return value


def annotations_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Each parameter's annotation as it is written, and resolved: Any where that failed."""
    written = _signature(function).parameters
    resolved = _plan(function).parameters
    return {
        name: (written[name].annotation, parameter.annotation)
        for name, parameter in resolved.items()
    }


def spread(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Split arguments by name into the positional and the keyword ones that a call needs."""
    plan = _plan(function)
    by_name = dict(arguments)
    rest: list[Any] = by_name.pop(plan.var_positional, []) if plan.var_positional else []
    needed = plan.positional if rest else plan.positional[: plan.positional_only]
    while needed and not rest and needed[-1] not in by_name:
        needed = needed[:-1]
    args = [by_name.pop(name, plan.parameters[name].default) for name in needed]
    return [*args, *rest], by_name


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

        # A name that exists only for the type checker must not make the function unusable.
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _annotation(parameter: inspect.Parameter, names: dict[str, Any]) -> Any:
    """Return what to convert to, or Any where that cannot be told."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    holder = type("holder", (), {"__annotations__": {"it": parameter.annotation}})
    try:
        annotation: Any = typing.get_type_hints(holder, names, include_extras=True)["it"]
        if _is_enum(annotation):
            return annotation
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            annotation = list[annotation]
        msgspec.json.Decoder(annotation, dec_hook=_made_of)
    except Exception:  # evaluating a stranger's annotation can raise anything
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
    # `limit: int = None` is wrong but common, and None is then meant to be allowed.
    return value is None and parameter.default is None


def _convert_one(plan: _Plan, name: str, value: Any, annotation: Any) -> Any:
    try:
        return _converted(value, annotation)
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).replace("`$", f"`{name}")
        raise InvalidArguments(f"{plan.name}(), argument {name!r}: {reason}", field=name) from error


def _converted(value: Any, annotation: Any) -> Any:
    if _is_enum(annotation):
        return _member(annotation, value)
    return msgspec.convert(value, annotation, dec_hook=_made_of, str_keys=True)


def _is_enum(annotation: object) -> TypeGuard[type[Enum]]:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _member(annotation: type[Enum], value: Any) -> Enum:
    # msgspec knows enums of only text or only integers; these may hold anything JSON does.
    for member in annotation:
        stored = _listed(member.value)
        if stored == value and isinstance(stored, bool) == isinstance(value, bool):
            return member
    if isinstance(value, annotation):
        return value
    allowed = ", ".join(shown(member.value) for member in annotation)
    raise ValueError(f"{shown(value)} is not one of {allowed}")


def _listed(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _made_of(annotation: Any, value: Any) -> Any:
    """Build what msgspec does not know; it checks the type of what comes back."""
    if type(value) is annotation:
        return value
    if hasattr(annotation, "model_validate_json"):
        # Through text, because a strict model takes a date from JSON but not from a Python str.
        return annotation.model_validate_json(json.dumps(value))
    return value
