"""What the settings of every kind have in common: fields by name, and none that do not exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from daybell.errors import UsageError, shown, suggested


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
