"""Arguments and results as JSON text.

Nothing is ever unpickled or imported by name: what comes back is plain JSON data, turned into
richer types only by the annotations of the function that receives it (`core.arguments`).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NoReturn, cast

import msgspec

from daybell.core.limits import ARGS_BYTES_MAX, INTEGER_DIGITS_MAX, PAYLOAD_DEPTH_MAX
from daybell.errors import PayloadError, PayloadTooLarge, shown

_PATH_CHARS_MAX: Final = 120
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_PLAIN: Final = frozenset({type(None), bool, int, float, str})  # types that contain nothing
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def encode(value: object, *, what: str = "args", bytes_max: int = ARGS_BYTES_MAX) -> str:
    """Return `value` as JSON text; `what` begins the path in messages: `args.items[3].when: …`.

    The text is always valid UTF-8 without a raw NUL. Everything that msgspec knows is taken
    (dates, UUID, Decimal, enums, dataclasses, attrs, sets), and pydantic models. Types that JSON
    lacks become text or lists and come back as such unless an annotation says otherwise: bytes
    are base64, and a dict's number, date or enum keys are text, so {1: …, "1": …} keeps one. NaN
    and infinity are refused, since JSON would make them null. Half a surrogate pair survives;
    two halves in a row come back as the character they make.
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
    # A walk in Python costs far more than the encoder, so only texts that may hide something get
    # one: msgspec writes null for NaN, and only many brackets can nest deeply.
    if b"null" in raw and _hides_nan(value):
        raise PayloadError(_problem(value, what, 0) or f"{what}: contains NaN", field=what)
    _check_depth(raw, what)
    return raw.decode()


def encode_read(values: Sequence[dict[str, Any]]) -> list[str] | None:
    """The same for many objects that JSON was read into, so that there is no NaN in them; None if
    one of them has to be looked at more closely, by `encode`.
    """
    try:
        raw = _ENCODER.encode_lines(values)
    except Exception:
        return None
    texts = raw.decode().split("\n")  # within a text they are escaped
    texts.pop()  # what comes after the last line
    # Only a text of some length can be too long, and each level takes two brackets.
    is_fine = len(raw) <= 2 * PAYLOAD_DEPTH_MAX or all(map(_is_modest, texts))
    return texts if is_fine else None


def _is_modest(text: str) -> bool:
    if len(text) <= 2 * PAYLOAD_DEPTH_MAX:
        return True
    return (
        4 * len(text) <= ARGS_BYTES_MAX and text.count("[") + text.count("{") <= PAYLOAD_DEPTH_MAX
    )


def decode(text: str, *, what: str = "payload", depth_max: int = PAYLOAD_DEPTH_MAX) -> Any:
    """Return what `encode` was given, as plain JSON data. Of duplicate keys the last one wins."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        value = _decode_slowly(text, what, error)
    if text.count("[") + text.count("{") > depth_max:
        _check_depth(text.encode(errors="replace"), what, depth_max)
    return value


def has_set(value: object) -> bool:
    """True if there is a set in a value that JSON can hold: it becomes a list."""
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
        if not _PLAIN.issuperset(map(type, inside)):  # as of a long list of numbers
            waiting.extend(one for one in inside if type(one) not in _PLAIN)
    return False


def path_of_set(value: object, path: str) -> str:
    """Where the first set in a value is; `path` leads to the value."""
    while not isinstance(value, set | frozenset):
        step, value = next(pair for pair in _children(value) if has_set(pair[1]))
        path += step
    return path


def pairs_in(raw: bytes) -> int:
    """How many keys the objects in a JSON text have, those that come twice counted twice."""
    return _STRINGS.sub(b"", raw).count(b":")


def _plain(value: Any) -> Any:
    """Make something msgspec knows of what it does not, or raise TypeError."""
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
    # Lone surrogates: only escapes can carry them, and only the standard library writes those.
    data = msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _problem(value: object, path: str, depth: int) -> str | None:
    """Name the first value below `path` that JSON cannot hold; None if there is none."""
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
        return None  # half a surrogate pair is fine
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
    """Yield what a value contains, with the step that leads there."""
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
    """True if JSON text is nested deeper than this."""
    if raw.count(b"[") + raw.count(b"{") <= depth_max:
        return False
    brackets = _STRINGS.sub(b"", raw).translate(None, _NOT_BRACKETS)
    return max(itertools.accumulate(map(_STEP.__getitem__, brackets)), default=0) > depth_max


def _decode_slowly(text: str, what: str, error: Exception) -> Any:
    # msgspec refuses lone surrogates, which the standard library reads.
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
    raise PayloadError(f"{what} is not JSON that can be read: {reason}", field=what) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number
