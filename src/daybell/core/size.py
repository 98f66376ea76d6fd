"""Amounts of memory: numbers of bytes, "512MB", "1GiB", one way in."""

from __future__ import annotations

import re
from typing import Final, cast

from daybell.core.limits import MEMORY_LIMIT_BYTES_MIN
from daybell.errors import UsageError, shown

Size = int | str  # what a caller may write

_UNITS: Final = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
_TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGT]?i?B)", re.IGNORECASE | re.ASCII)
_TAKES: Final = 'an amount of memory is text like "512MB" or "1GiB", or a number of bytes'


def parse_size(value: Size, *, what: str) -> int:
    """Return `value` in bytes; `what` names it in the message. MB are powers of 1000, MiB of 1024.

    Less than a megabyte is a unit that was forgotten.
    """
    given = cast("object", value)  # callers without a type checker exist
    if isinstance(given, str):
        match = _TEXT.fullmatch(given.strip())
        if match is None:
            fact = "has no unit" if given.strip().isdecimal() else "cannot be read"
            raise UsageError(f"{what} {shown(given)} {fact}; {_TAKES}", field=what)
        size = int(float(match[1]) * _UNITS[match[2].upper()])
    elif isinstance(given, int) and not isinstance(given, bool):
        size = given
    else:
        raise UsageError(f"{what}={shown(given)} is of the wrong type; {_TAKES}", field=what)
    if not MEMORY_LIMIT_BYTES_MIN <= size < 2**63:
        fact = "is too little to run anything in" if size < 2**63 else "is more than there is"
        raise UsageError(f"{what} {shown(given)} {fact}; {_TAKES}", field=what)
    return size


def format_size(size: int) -> str:
    """Return the usual way to write it: "512MB", "1GiB", "1.5GB"."""
    for factor, units in ((1024, ("TiB", "GiB", "MiB")), (1000, ("TB", "GB", "MB"))):
        for power, unit in zip((4, 3, 2), units, strict=True):
            if size >= factor**power and size % factor**power == 0:
                return f"{size // factor**power}{unit}"
    return f"{size / 1000**2:.1f}MB"
