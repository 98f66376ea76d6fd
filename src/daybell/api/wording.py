"""What is wrong with a value, in our own words: what a checker finds has a kind, and each kind a
sentence that goes on from the field's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_WHOLE: Final = "must be a whole number"
_NUMBER: Final = "must be a number"
_LOGICAL: Final = "must be true or false"
_OBJECT: Final = "must be an object"

# Of what type it has to be.
TYPES: Final[Mapping[str, str]] = {
    "bool_parsing": _LOGICAL,
    "bool_type": _LOGICAL,
    "dict_type": _OBJECT,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "list_type": "must be a list",
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_type": "must be text",
}
# What it has to be beyond that; the names in braces are what the checker tells with the kind.
RULES: Final[Mapping[str, str]] = {
    "enum": "must be {expected}",
    "finite_number": "must be a number that is not infinite",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_long": "must have {max_length} characters or fewer",
    "string_too_short": "must have {min_length} or more characters",
    "too_long": "must have {max_length} entries or fewer",
    "too_short": "must have {min_length} or more entries",
}
_MUST_BE: Final = "must be "


def worded(found: Mapping[str, Any]) -> str:
    """A finding of pydantic's as we say it."""
    kind = found["type"]
    if kind in TYPES:
        return TYPES[kind]
    said = found.get("ctx", {})
    if said.get("field_type") == "Value":  # what has a rule of its own beside its length is text
        kind = f"string_{kind}"
    if kind in RULES:
        return RULES[kind].format_map(said)
    return str(found["msg"])


def joined(found: Iterable[str]) -> str:
    """One sentence of what each type of a choice said.

    If one of them had the right type, it is its word that counts.
    """
    told = list(dict.fromkeys(found))
    types = set(TYPES.values())
    finer = [one for one in told if one not in types]
    first, *more = finer or told
    return first + "".join(f", or {one.removeprefix(_MUST_BE)}" for one in more)
