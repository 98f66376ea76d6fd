"""`H` in a cron expression: a number that is always the same for one name, and spread over names.

A thousand jobs "once an hour" need not all run on the hour. `H` is any number of the field,
`H(0-29)` one of that range, `H/15` every 15 from one of the first 15. Replacing it is all that is
done here: what comes out is an expression like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from daybell.core.when.fields import DAY, WEEKDAY, Field, Unit, parse_number, parse_step


def is_hashed(expression: str) -> bool:
    """Whether there is an H to be replaced."""
    return any(item[:1] == "H" for text in expression.split() for item in text.split(","))


def bound(expression: str, units: Iterable[Unit], *, name: str) -> str:
    """The expression as it is for `name`."""
    texts = zip(expression.split(), units, strict=True)
    return " ".join(_bound_field(text, unit, name) if "H" in text else text for text, unit in texts)


def _bound_field(text: str, unit: Unit, name: str) -> str:
    field = Field(text, unit)
    items = text.split(",")
    return ",".join(_bound_item(item, field, name) if item[:1] == "H" else item for item in items)


def _bound_item(item: str, field: Field, name: str) -> str:
    unit = field.unit
    span, slash, step_text = item.partition("/")
    lowest, highest = _range(span, field)
    step = parse_step(step_text, field) if slash else 0
    room = highest - lowest + 1
    digest = sha256(f"{unit.name}\0{name}".encode(errors="surrogatepass")).digest()
    start = lowest + int.from_bytes(digest[:8], "big") % (min(step, room) if step else room)
    if not step:
        return str(start)
    # Without an end it counts as steps over the whole range, which keep their spacing.
    return f"{start}/{step}" if highest == unit.highest else f"{start}-{highest}/{step}"


def _range(span: str, field: Field) -> tuple[int, int]:
    unit = field.unit
    if span == "H":
        highest = unit.highest
        if unit is DAY:
            highest = 28  # every month has them
        elif unit is WEEKDAY:
            highest = 6  # 7 is Sunday again
        return unit.lowest, highest
    first, dash, last = span[2:-1].partition("-")
    if span[1:2] != "(" or span[-1:] != ")" or not dash:
        raise field.refuse("has an H that is neither H nor like H(0-29)")
    lowest, highest = parse_number(first, field), parse_number(last, field)
    if lowest > highest:
        raise field.refuse("has a range of H that ends before it starts")
    return lowest, highest
